"""A folder of DICOM files, sound and broken, and the search for what they say about patients."""

from pathlib import Path

import numpy as np

from tests.data.bad_inputs import picture
from tests.data.dicom_files import (
    BIRTH_DATE,
    CANARIES,
    MARK,
    dicom_bytes,
    grey_ramp,
    items,
    jpeg_dicom,
    table,
)

TWELVE = {"BitsStored": 12}
BAD = {
    "cine.dcm": dicom_bytes(grey_ramp(), NumberOfFrames=5),
    "ct.dcm": dicom_bytes(grey_ramp("int16", 900)),
    "cut.dcm": dicom_bytes(grey_ramp())[:-200],
    "cut-early.dcm": dicom_bytes(grey_ramp())[:900],
    "no-frames.dcm": dicom_bytes(grey_ramp()).replace(b"\x28\x00\x10\x00US", b"\x28\x00\x10\x00PN"),
    "report.dcm": dicom_bytes(grey_ramp("float32", 1)),
    "colours.dcm": dicom_bytes(np.asarray(picture(1)), PhotometricInterpretation=f"{MARK}COLOUR"),
    "window.dcm": dicom_bytes(grey_ramp(), WindowCenter=1, WindowWidth=1, VOILUTFunction=f"{MARK}CURVE", **TWELVE),
}  # fmt: skip


def fill_clinic(root: Path) -> Path:
    """Two classes of six sound files each, some without a suffix, and the broken ones beside the benign."""
    for number, label in enumerate(("benign", "malignant")):
        (root / label).mkdir()
        for seed in range(6):
            image = picture(10 * number + seed)
            grey = (np.asarray(image.convert("L")).astype(np.uint16) << 4) + 7
            curve = items(table(0, np.arange(4096), 12))
            sound = (
                jpeg_dicom(image),
                dicom_bytes(np.asarray(image), BurnedInAnnotation="YES"),
                dicom_bytes(grey, WindowCenter=[2000, 1], WindowWidth=[4000, 2], **TWELVE),
                dicom_bytes(grey, VOILUTSequence=curve, PhotometricInterpretation="MONOCHROME1", **TWELVE),
            )[seed % 4]
            (root / label / (f"{seed}.dcm" if seed % 2 else f"1.2.840.{seed}")).write_bytes(sound)
    for name, data in BAD.items():
        (root / "benign" / name).write_bytes(data)
    return root


def canaries_in(data: bytes) -> set[str]:
    """Words that only the files may know, in any of the ways in which a text is written."""
    words = {MARK, BIRTH_DATE, *CANARIES.values()}
    return {
        word
        for word in words
        for way in ("utf-8", "utf-16-le", "utf-16-be")
        if word.lower().encode(way) in data.lower()
    }


def written(folder: Path) -> bytes:
    return b"".join(file.read_bytes() for file in sorted(folder.rglob("*")) if file.is_file())

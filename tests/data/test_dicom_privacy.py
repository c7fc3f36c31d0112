"""Nothing that a DICOM file says about a patient comes out of any command, whatever is right or wrong with the file.

Every file carries canaries: a word of its own in each element that may name somebody. The tests search every byte
that the commands write, print or leave behind for any of them.
"""

from pathlib import Path

import numpy as np
import pytest

from abomed.cli.main import call
from abomed.data.dicom import READ
from abomed.data.packed import open_pack
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


@pytest.fixture(scope="module")
def clinic(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two classes of sound and broken files, some without a suffix."""
    root = tmp_path_factory.mktemp("clinic")
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


def test_the_search_finds_what_it_looks_for(clinic: Path) -> None:
    found = canaries_in(written(clinic))
    assert {MARK, BIRTH_DATE, *CANARIES.values()} <= found


@pytest.mark.parametrize("json", [(), ("--json",)])
def test_packing(
    clinic: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], json: tuple[str, ...]
) -> None:
    out = tmp_path / "clinic.safetensors"
    assert call(["data", "pack", str(clinic), "--out", str(out), *json]) == 0
    told = capfd.readouterr()
    pack = open_pack(out)
    assert (len(pack), pack.header.format_names) == (13, ("DICOM",))
    assert "several-frames" in told.out + told.err
    assert not canaries_in(written(tmp_path) + told.out.encode() + told.err.encode())


@pytest.mark.parametrize("json", [(), ("--json",)])
def test_auditing(
    clinic: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], json: tuple[str, ...]
) -> None:
    assert call(["data", "audit", str(clinic), *json]) == 0
    told = capfd.readouterr()
    assert "several-frames" in told.out + told.err
    assert not canaries_in(told.out.encode() + told.err.encode())


def test_nothing_that_is_read_is_about_a_person() -> None:
    """What is read is of the picture's own groups, but for the kind of file and its functional groups."""
    from pydicom.datadict import tag_for_keyword

    groups = {name: (tag_for_keyword(name) or 0) >> 16 for name in READ}
    assert 0 not in groups.values()
    others = {name for name, group in groups.items() if group not in (0x0028, 0x7FE0)}
    assert others == {"SOPClassUID", "SharedFunctionalGroupsSequence", "PerFrameFunctionalGroupsSequence"}

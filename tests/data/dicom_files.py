"""DICOM files made for tests, each with canaries: words that no output may ever hold."""

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from pydicom.data import get_testdata_file
from pydicom.dataset import Dataset, FileMetaDataset
from pydicom.encaps import encapsulate
from pydicom.sequence import Sequence
from pydicom.uid import ExplicitVRLittleEndian, JPEGBaseline8Bit

SECONDARY_CAPTURE = "1.2.840.10008.5.1.4.1.1.7"
# One word for each place where a file says whose it is; every word begins with this mark.
MARK = "CANARY"
CANARIES: Mapping[str, str] = {
    "PatientName": "CANARYDOE^JANE",
    "PatientID": "CANARYID4711",
    "OtherPatientIDs": "CANARYOTHER",
    "PatientComments": "CANARYCOMMENT",
    "PatientAddress": "CANARYSTREET",
    "AccessionNumber": "CANARYACC",
    "InstitutionName": "CANARYHOSPITAL",
    "ReferringPhysicianName": "CANARYDOCTOR",
    "StudyDescription": "CANARYSTUDY",
    "SeriesDescription": "CANARYSERIES",
    "ImageComments": "CANARYIMAGE",
    "WindowCenterWidthExplanation": "CANARYWINDOW",
    "StationName": "CANARYSTATION",
}
BIRTH_DATE = "19540301"  # a date has no room for the mark


def dicom_bytes(
    stored: np.ndarray, *, syntax: str = ExplicitVRLittleEndian, frame: bytes | None = None, **elements: Any
) -> bytes:
    """A file with these stored values; further elements by their keywords, None to leave one out."""
    colour = stored.ndim == 3
    told: dict[str, Any] = {
        "SOPClassUID": SECONDARY_CAPTURE,
        "SOPInstanceUID": "1.2.3.4.5",
        "SpecificCharacterSet": "ISO_IR 192",
        "PatientBirthDate": BIRTH_DATE,
        **CANARIES,
        "Rows": stored.shape[0],
        "Columns": stored.shape[1],
        "SamplesPerPixel": 3 if colour else 1,
        "PhotometricInterpretation": "RGB" if colour else "MONOCHROME2",
        **({"PlanarConfiguration": 0} if colour else {}),
        "BitsAllocated": 8 * stored.dtype.itemsize,
        "BitsStored": 8 * stored.dtype.itemsize,
        "PixelRepresentation": int(stored.dtype.kind == "i"),
        **elements,
    }
    if stored.dtype.kind != "f":
        told.setdefault("HighBit", told["BitsStored"] - 1)
        pixels = stored.tobytes() if frame is None else encapsulate([frame])
        told["PixelData"] = pixels + b"\0" * (len(pixels) % 2)
    file = Dataset()
    for name, value in told.items():
        if value is not None:
            setattr(file, name, value)
    if "PixelData" in file:
        file["PixelData"].VR = "OB" if told["BitsAllocated"] <= 8 or frame is not None else "OW"
    nested = Dataset()
    nested.PatientName = "CANARYNESTED"
    file.RequestAttributesSequence = Sequence([nested])
    file.private_block(0x0011, "CANARYMAKER", create=True).add_new(1, "LO", "CANARYPRIVATE")
    file.file_meta = FileMetaDataset()
    file.file_meta.TransferSyntaxUID = syntax
    file.file_meta.SourceApplicationEntityTitle = "CANARYSCANNER"
    buffer = io.BytesIO()
    file.save_as(buffer, enforce_file_format=True)
    return buffer.getvalue()


def jpeg_frame(image: Image.Image) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=95, subsampling=0)
    return buffer.getvalue()


def jpeg_dicom(image: Image.Image, **elements: Any) -> bytes:
    """A colour picture in a JPEG frame, as dermatoscopes write them."""
    kind = {"PhotometricInterpretation": "YBR_FULL", **elements}
    return dicom_bytes(np.asarray(image), syntax=JPEGBaseline8Bit, frame=jpeg_frame(image), **kind)


def grey_ramp(dtype: str = "uint16", top: int = 4095, side: int = 40) -> np.ndarray:
    """Every pixel another value, from the smallest to the largest."""
    low = -top - 1 if np.dtype(dtype).kind == "i" else 0
    return np.linspace(low, top, side * side).round().astype(dtype).reshape(side, side)


def table(first: int, values: np.ndarray, bits: int) -> Dataset:
    """One item of a sequence of look-up tables, with a canary where its purpose is told."""
    item = Dataset()
    item.LUTDescriptor = [len(values), first, bits]
    item.LUTExplanation = "CANARYTABLE"
    item.add_new("LUTData", "US", values.tolist())
    return item


def items(*datasets: Dataset) -> Sequence:
    return Sequence(datasets)


def fill(**elements: Any) -> Dataset:
    item = Dataset()
    for name, value in elements.items():
        setattr(item, name, value)
    return item


def shipped(name: str) -> bytes:
    """A file that comes with pydicom; nothing is fetched."""
    path = get_testdata_file(name, download=False)
    assert path is not None
    return Path(str(path)).read_bytes()

"""The part of the catalogue of bad input that is DICOM; `CASES` is the whole catalogue."""

from pathlib import Path

import numpy as np
from PIL import Image
from pydicom.uid import JPEGBaseline8Bit, JPEGLossless

from tests.data.bad_inputs import case, picture, with_file
from tests.data.bad_tables import CASES
from tests.data.dicom_files import dicom_bytes, grey_ramp, jpeg_dicom, jpeg_frame

__all__ = ["CASES"]
TWELVE = {"BitsStored": 12}


@case
def dicom_without_picture(root: Path) -> list[str]:
    return with_file(root, "benign/report.dcm", dicom_bytes(grey_ramp("float32", 1)))


@case
def dicom_multi_frame(root: Path) -> list[str]:
    return with_file(root, "benign/cine.dcm", dicom_bytes(grey_ramp(), NumberOfFrames=40))


@case
def dicom_whole_slide(root: Path) -> list[str]:
    kind = "1.2.840.10008.5.1.4.1.1.77.1.6"
    return with_file(root, "benign/slide.dcm", dicom_bytes(grey_ramp(), SOPClassUID=kind))


@case
def dicom_without_decoder(root: Path) -> list[str]:
    frame = jpeg_frame(picture(1).convert("L"))
    data = dicom_bytes(grey_ramp("uint8", 255), syntax=JPEGLossless, frame=frame)
    return with_file(root, "benign/lossless.dcm", data)


@case
def dicom_cut_off(root: Path) -> list[str]:
    return with_file(root, "benign/cut.dcm", dicom_bytes(grey_ramp())[:-500])


@case
def dicom_without_file_header(root: Path) -> list[str]:
    return with_file(root, "benign/sent.dcm", b"\x08\x00\x05\x00CS\n\x00ISO_IR 100")


@case
def dicom_signed_without_window(root: Path) -> list[str]:
    return with_file(root, "benign/ct.dcm", dicom_bytes(grey_ramp("int16", 1000)))


@case
def dicom_bomb(root: Path) -> list[str]:
    frame = jpeg_frame(Image.new("L", (9000, 9000)))
    data = dicom_bytes(np.zeros((40, 40), np.uint8), syntax=JPEGBaseline8Bit, frame=frame)
    return with_file(root, "benign/bomb.dcm", data)


@case
def dicom_windowed_by_its_file(root: Path) -> list[str]:
    data = dicom_bytes(grey_ramp(), WindowCenter=[1000, 40], WindowWidth=[2000, 80], **TWELVE)
    return with_file(root, "benign/1.2.840.113619.2.7", data)


@case
def dicom_monochrome1_without_window(root: Path) -> list[str]:
    data = dicom_bytes(grey_ramp(), PhotometricInterpretation="MONOCHROME1", **TWELVE)
    return with_file(root, "benign/xray.dcm", data)


@case
def dicom_named_png(root: Path) -> list[str]:
    return with_file(root, "benign/scan.png", jpeg_dicom(picture(7)))


@case
def dicom_with_burned_in_text(root: Path) -> list[str]:
    data = dicom_bytes(np.asarray(picture(7)), BurnedInAnnotation="YES")
    return with_file(root, "benign/ultrasound.dcm", data)

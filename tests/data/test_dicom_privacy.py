"""Nothing that a DICOM file says about a patient comes out of any command, whatever is right or wrong with the file.

Every file carries canaries: a word of its own in each element that may name somebody. The tests search every byte
that the commands write, print or leave behind for any of them.
"""

from pathlib import Path

import pytest

from abomed.cli.main import call
from abomed.data.dicom import READ
from abomed.data.packed import open_pack
from tests.data.clinic import canaries_in, fill_clinic, written
from tests.data.dicom_files import BIRTH_DATE, CANARIES, MARK


@pytest.fixture(scope="module")
def clinic(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fill_clinic(tmp_path_factory.mktemp("clinic"))


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

"""Every trap of the real archives, reported by the audit itself."""

from pathlib import Path

import pytest

from abomed.audit import Audit, audit
from abomed.config.audit import AuditSettings
from abomed.config.data import PackSettings
from abomed.data.manifest import read_manifest
from abomed.data.pack import write_pack
from abomed.data.packed import open_pack
from abomed.types import Finding, Level

ARCHIVES = Path(__file__).parents[3] / "shared" / "data"
SIZE = 64

pytestmark = pytest.mark.real_data


@pytest.fixture(scope="session")
def report_of(tmp_path_factory):
    """The audit of an archive, packed small and once a session."""
    folder, known = tmp_path_factory.mktemp("packs"), {}

    def make(name: str) -> Audit:
        archive = ARCHIVES / f"{name}.zip"
        if not archive.is_file():
            pytest.skip(f"the real archives are not beside the project: no {name}.zip")
        if name not in known:
            out = folder / f"{name}.safetensors"
            write_pack(read_manifest(str(archive)), out, pack=PackSettings(size=SIZE, workers=1))
            known[name] = audit(open_pack(out), AuditSettings(images_per_class=100))
        return known[name]

    return make


def _of(report: Audit, code: str, where: str = "") -> Finding:
    (finding,) = [each for each in report.findings if (each.code, each.where) == (code, where)]
    return finding


def test_breakhis_patient_13412_lies_in_two_classes(report_of) -> None:
    finding = _of(report_of("breakhis400x"), "duplicate-across-classes")
    assert finding.level is Level.WARN
    assert "ductal_carcinoma + lobular_carcinoma 26 (patient 13412)" in finding.text


def test_breakhis_holds_no_exact_duplicate_inside_a_class(report_of) -> None:
    codes = {finding.code for finding in report_of("breakhis400x").findings}
    assert not {"duplicate", "duplicate-across-groups"} & codes


def test_breakhis_patients_span_classes(report_of) -> None:
    spanning = report_of("breakhis400x").to_json()["groups"]["spanning_classes"]
    assert {each["group"]: set(each["images"]) for each in spanning} == {
        "13412": {"ductal_carcinoma", "lobular_carcinoma"},
        "29960": {"adenosis", "fibroadenoma"},
        "21998": {"fibroadenoma", "phyllodes_tumor"},
    }
    text = _of(report_of("breakhis400x"), "group-spans-classes").text
    assert all(number in text for number in ("13412", "29960", "21998"))


@pytest.mark.parametrize(("name", "patients"), [("adenosis", 2), ("phyllodes_tumor", 3)])
def test_breakhis_classes_of_few_patients_are_named(report_of, name: str, patients: int) -> None:
    finding = _of(report_of("breakhis400x"), "few-groups", name)
    assert finding.level is Level.WARN
    assert finding.data["groups"] == patients


def test_breakhis_queries_share_patients_as_measured_by_simulation(report_of) -> None:
    report = report_of("breakhis400x")
    novel = report.to_json()["groups"]["sharing"][-1]
    assert novel["classes"] == ["adenosis", "phyllodes_tumor", "tubular_adenoma"]
    # 45.4 / 71.8 / 81.6 / 92.0 % were counted in drawn episodes
    shares = [novel["queries"][shots] for shots in ("1", "3", "5", "10")]
    assert shares == pytest.approx([0.454, 0.718, 0.816, 0.920], abs=0.005)
    assert novel["tasks"] == 1.0
    assert _of(report, "shared-groups").level is Level.WARN


def test_pap_smear_size_tells_the_class(report_of) -> None:
    report = report_of("papsmear")
    finding = _of(report, "size-tells-class")
    assert finding.level is Level.WARN
    assert finding.data["accuracy"] > finding.data["chance"] + 0.2
    assert "72 px in 'carcinoma_in_situ'" in finding.text
    assert "px in 'normal_superficiel'" in finding.text
    assert _of(report, "inferred-groups").level is Level.NOTE


def test_isic_lesions_copies_counts_and_missing_images_are_told(report_of) -> None:
    report = report_of("isic2018")
    assert report.images == 7_698
    assert "1 picture in 2 files equal to the pixel" in _of(report, "duplicate").text
    assert "NV/ISIC_0025226.jpg = NV/ISIC_0030074.jpg" in _of(report, "near-duplicate-across-groups").text
    assert "2,777 of 7,698 images share their lesion" in _of(report, "shared-groups").text
    assert _of(report, "class-imbalance").data["images"]["DF"] == 105
    assert "7,698 of 10,015" in _of(report, "incomplete-source").text
    assert "size-tells-class" not in {finding.code for finding in report.findings}  # all have one size

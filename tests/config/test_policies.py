"""Policies as data: those that are shipped, those of a user, and what is refused."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from abomed.augment.policies import choose_policy, resolve_policy
from abomed.config.policies import (
    LIMITS,
    ONE_SIDED,
    POLICIES,
    MedRAugSettings,
    Policy,
    load_policy,
    read_policy,
)
from abomed.data.catalogue import SOURCES
from abomed.errors import ConfigError

# The paper's three tables, the list of Cubuk et al. (2020) and that of Faryna et al. (2021).
POOLS = {
    "pap-smear": "identity rotate scale brightness contrast rgb-shift gamma",
    "isic2018": "identity rotate translate-x translate-y brightness contrast color sharpness",
    "breakhis": "identity rotate translate-x translate-y shear-x shear-y brightness contrast color sharpness equalize"
    " hsv-shift hed-shift",
    "randaugment": "identity autocontrast equalize rotate solarize color posterize contrast brightness sharpness"
    " shear-x shear-y translate-x translate-y",
}
OWN = """
name = "colposcopy"
operations = 1
magnitude = [0.2, 0.6]

[[entries]]
operation = "rotate"
high = 15
sign = "minus"
rationale = "the speculum is held at an angle"

[[entries]]
operation = "equalize"
low = 0.1
high = 0.2
rationale = "uneven light"
"""


@pytest.mark.parametrize("name", POOLS)
def test_pools_are_the_published_ones(name: str) -> None:
    assert [entry.operation for entry in load_policy(name).entries] == POOLS[name].split()


def test_he_randaugment_has_the_operations_of_breakhis() -> None:
    """The paper's thirteen operations for BreaKHis are those of H&E-tailored RandAugment."""
    pools = [
        sorted(entry.operation for entry in load_policy(name).entries)
        for name in ("breakhis", "he-randaugment")
    ]
    assert pools[0] == pools[1]


@pytest.mark.parametrize("name", POLICIES)
def test_every_entry_has_a_range_and_a_reason(name: str) -> None:
    policy = load_policy(name)
    assert policy.name == name
    assert policy.operations == 2
    for entry in policy.entries:
        assert len(entry.rationale) > 5
        assert 0 <= entry.low <= entry.high <= LIMITS[entry.operation]
        assert (entry.high == 0) == (entry.operation == "identity")
        assert entry.sign == ("plus" if entry.operation in ONE_SIDED else "random")


def test_policies_of_modalities_reach_no_change_at_all() -> None:
    for name in ("pap-smear", "isic2018", "breakhis", "general"):
        assert {entry.low for entry in load_policy(name).entries} == {0.0}
        assert load_policy(name).magnitude == (0.0, 1.0)


@pytest.mark.parametrize("name", ["pap-smear", "isic2018", "breakhis", "general"])
def test_the_page_tells_ranges_and_reasons_as_they_are(name: str) -> None:
    page = (Path(__file__).parents[2] / "docs/augmentation.md").read_text(encoding="utf-8")
    table = page.split(f"### {name}: {load_policy(name).title}\n")[1].split("\n\n")[0].splitlines()[2:]
    entries = load_policy(name).entries
    assert len(table) == len(entries)
    for line, entry in zip(table, entries, strict=True):
        operation, told, reason = line.strip("| ").split(" | ")
        assert (operation, reason) == (entry.operation, entry.rationale)
        assert told == "changes nothing" if entry.high == 0 else f"{entry.high:g}" in told.split(",")[0]


def test_the_page_s_own_modality_can_be_used() -> None:
    page = (Path(__file__).parents[2] / "docs/augmentation.md").read_text(encoding="utf-8")
    policy = read_policy(page.split("```toml\n")[1].split("```")[0], "the page")
    assert [(entry.operation, entry.high, entry.sign) for entry in policy.entries] == [
        ("rotate", 15, "random"),
        ("brightness", 0.1, "minus"),
    ]


def test_every_source_has_a_policy_and_unknown_ones_a_safe_one() -> None:
    chosen = {name: choose_policy(name) for name in SOURCES}
    assert chosen.pop("pap-smear") == "pap-smear"
    assert chosen.pop("isic2018") == "isic2018"
    assert set(chosen.values()) == {"breakhis"}
    assert "breakhis400" in chosen
    assert choose_policy("BreaKHis-400") == "breakhis"
    assert choose_policy("") == choose_policy("folder") == choose_policy("synthetic") == "general"
    colours = {"color", "rgb-shift", "hsv-shift", "hed-shift", "equalize"}
    assert not colours & {entry.operation for entry in load_policy("general").entries}


def test_a_modality_is_added_by_a_file(tmp_path: Path) -> None:
    path = tmp_path / "own.toml"
    path.write_text(OWN, encoding="utf-8")
    policy = resolve_policy(MedRAugSettings(policy=str(path)), "pap-smear")
    assert policy.name == "colposcopy"
    assert policy.magnitude == (0.2, 0.6)
    assert [entry.sign for entry in policy.entries] == ["minus", "plus"]
    assert policy == load_policy(path)


def test_settings_override_the_policy() -> None:
    policy = resolve_policy(MedRAugSettings(), "bchi")
    assert policy == load_policy("breakhis")
    swept = MedRAugSettings(policy="isic2018", operations=4, magnitude_low=0.3, magnitude_high=0.5)
    policy = resolve_policy(swept, "bchi")
    assert (policy.name, policy.operations, policy.magnitude) == ("isic2018", 4, (0.3, 0.5))
    assert policy.entries == load_policy("isic2018").entries
    one_end = MedRAugSettings(policy="randaugment", magnitude_high=0.5)
    assert resolve_policy(one_end).magnitude == (0.5, 0.5)
    other_end = MedRAugSettings(policy="he-randaugment", magnitude_low=0.7)
    assert resolve_policy(other_end).magnitude == (0.7, 0.7)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (OWN.replace("high = 15", "high = 200"), "rotate needs 0 <= low <= high <= 180, not 0, 200"),
        (OWN.replace("low = 0.1", "low = 0.3"), "equalize needs 0 <= low <= high <= 1, not 0.3, 0.2"),
        (OWN.replace('"equalize"', '"equalise"'), "Input should be 'identity'"),
        (OWN.replace("low = 0.1", 'sign = "random"'), "equalize has no opposite"),
        (OWN.replace("0.2, 0.6", "0.6, 0.2"), "magnitude needs its lower end first, not 0.6, 0.2"),
        (OWN.replace('rationale = "uneven light"', ""), "Field required"),
        ('name = "nothing"\nentries = []', "at least 1 item"),
        ("name = ", "Invalid value"),
    ],
)
def test_unusable_policies_say_what_is_wrong(tmp_path: Path, text: str, found: str) -> None:
    path = tmp_path / "own.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        load_policy(path)
    assert found in (caught.value.found or "")
    assert str(path) in (caught.value.where or "")


def test_unknown_names_and_missing_files(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="did you mean 'pap-smear'"):
        load_policy("papsmear")
    with pytest.raises(ConfigError, match="cannot be read"):
        load_policy(tmp_path / "absent.toml")


def test_settings_are_checked() -> None:
    with pytest.raises(ValidationError, match="must not exceed"):
        MedRAugSettings(magnitude_low=0.6, magnitude_high=0.5)
    with pytest.raises(ValidationError):
        MedRAugSettings(magnitude_high=1.5)
    with pytest.raises(ValidationError):
        Policy.model_validate({"name": "x", "operations": 17, "entries": load_policy("pap-smear").entries})

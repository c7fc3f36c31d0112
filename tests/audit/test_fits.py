"""The table of tasks that fit, against brute force over sets of groups."""

from unittest.mock import Mock

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from abomed.audit.fits import describe_fits, measure_fits
from abomed.config.audit import AuditSettings
from abomed.data.packed import Pack
from tests.oracles import audit as oracle


def _pack(classes: list[list[int]], grouped: bool = True) -> Pack:
    """A pack of labels and groups alone: fits look at nothing else."""
    labels = [label for label, sizes in enumerate(classes) for size in sizes for _ in range(size)]
    places = [(label, place) for label, sizes in enumerate(classes) for place in range(len(sizes))]
    groups = [n for n, (label, place) in enumerate(places) for _ in range(classes[label][place])]
    pack = Mock(spec=Pack, header=Mock(group_kind="patient"))
    pack.labels = torch.tensor(labels)
    pack.groups = torch.tensor(groups) if grouped else torch.full((len(labels),), -1)
    pack.class_names = tuple("abcdef"[: len(classes)])
    pack.group_names = tuple(f"p{n}" for n in range(len(places))) if grouped else ()
    return pack


class_sizes = st.lists(st.lists(st.integers(1, 9), min_size=1, max_size=5), min_size=2, max_size=4)


@settings(max_examples=60, deadline=None)
@given(classes=class_sizes, queries=st.integers(1, 8))
def test_classes_that_serve_are_those_of_brute_force(classes: list[list[int]], queries: int) -> None:
    asked = AuditSettings(table_shots=(1, 3), shots=5, queries=queries)
    fits = measure_fits(_pack(classes), asked)
    assert [(fit.disjoint, fit.shots) for fit in fits] == [
        (kind, shots) for kind in ("images", "groups") for shots in (1, 3, 5)
    ]
    for fit in fits:
        parts = classes if fit.disjoint == "groups" else [[1] * sum(sizes) for sizes in classes]
        able = [
            sum(sizes) >= fit.shots + queries
            if fit.disjoint == "images"
            else oracle.can_serve(sizes, fit.shots, queries)
            for sizes in parts
        ]
        assert fit.serving == tuple(name for name, ok in zip("abcdef", able, strict=False) if ok)
        assert {each.name for each in fit.short} == set("abcdef"[: len(classes)]) - set(fit.serving)
        assert [fit.fits(ways) for ways in (2, 3, 4)] == [sum(able) >= ways for ways in (2, 3, 4)]


def test_groups_play_no_part_where_none_are_known() -> None:
    fits = measure_fits(_pack([[9, 9], [9, 9]], grouped=False), AuditSettings())
    assert {fit.disjoint for fit in fits} == {"images"}


def test_findings_name_class_reason_and_remedy() -> None:
    pack, asked = _pack([[30, 30], [40], [3, 2], [20, 20]]), AuditSettings()
    findings = [each.finding for each in describe_fits(pack, measure_fits(pack, asked), asked).findings]
    assert [finding.code for finding in findings] == ["class-too-small", "groups-do-not-part"]
    assert findings[0].data["classes"] == ["c"]
    assert "'c' has 5 images" in findings[0].text
    assert findings[1].data["classes"] == ["b", "c"]
    assert "'b' has 40 images in 1 group" in findings[1].text
    assert "leave out 'b', 'c'" in findings[1].advice


@pytest.mark.parametrize("sizes", [[20], [10, 10]])
def test_a_set_that_serves_every_task_has_no_finding(sizes: list[int]) -> None:
    pack = _pack([[20, 20], [20, 20], sizes])
    asked = AuditSettings(shots=5, queries=5)
    codes = [each.finding.code for each in describe_fits(pack, measure_fits(pack, asked), asked).findings]
    assert codes == ([] if len(sizes) > 1 else ["groups-do-not-part"])

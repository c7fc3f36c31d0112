"""The whole audit of data sets with planted faults: findings, ranking, tables and JSON."""

import json

import numpy as np
import pytest
from PIL import Image

from abomed.audit import Audit, Weighed, audit
from abomed.audit.report import carry_over, rank
from abomed.config.audit import AuditSettings
from abomed.types import Finding, Level
from tests.audit.made_up import Folder, fill, texture

QUICK = AuditSettings(queries=10, folds=2, images_per_class=20)
CLASSES = {"even": (6, 6, 6, 6, 6), "odd": (6, 6, 6, 6, 6), "rare": (3, 1)}


@pytest.fixture(scope="module")
def report(tmp_path_factory) -> Audit:
    """Two healthy classes, a poor one, and one of each fault."""
    random = np.random.default_rng(7)
    folder = Folder(tmp_path_factory.mktemp("report") / "set")
    fill(folder, random, CLASSES)
    picture = {name: texture(random) for name in ("classes", "groups", "inside", "near")}
    folder.add("even/x_classes.png", picture["classes"], "patient-x")
    folder.add("odd/x_classes.png", picture["classes"], "patient-x")
    folder.add("even/x_groups.png", picture["groups"], "patient-y")
    folder.add("even/x_again.png", picture["groups"], "patient-z")
    folder.add("odd/x_inside.png", picture["inside"], "odd-0")
    folder.add("odd/x_within.png", picture["inside"], "odd-0")
    folder.add("even/x_near.png", picture["near"], "even-0")
    folder.add("odd/x_near.jpg", np.fliplr(picture["near"]).copy(), "odd-1", quality=70)
    (folder.root / "even" / "broken.png").write_bytes(b"")
    (folder.root / "odd" / "page.jpg").write_bytes(b"<html>not found</html>")
    folder.groups |= {"even/broken.png": "even-0", "odd/page.jpg": "odd-0"}
    return audit(folder.pack(32), QUICK)


def _of(report: Audit, code: str) -> Finding:
    (finding,) = [each for each in report.findings if each.code == code]
    return finding


def test_every_planted_fault_is_found_and_nothing_else(report) -> None:
    codes = {(finding.level.value, finding.code) for finding in report.findings}
    assert codes == {
        ("refuse", "empty"),
        ("refuse", "html"),
        ("warn", "class-too-small"),
        ("warn", "duplicate"),
        ("warn", "duplicate-across-classes"),
        ("warn", "duplicate-across-groups"),
        ("warn", "few-groups"),
        ("warn", "group-spans-classes"),
        ("warn", "groups-do-not-part"),
        ("warn", "near-duplicate-across-classes"),
        ("warn", "near-duplicate-across-groups"),
        ("warn", "shared-groups"),
        ("note", "class-imbalance"),
        ("note", "groups-found"),
    }


def test_findings_say_where_what_and_what_to_do(report) -> None:
    across = _of(report, "duplicate-across-classes")
    assert across.text.startswith("1 picture in 2 files equal to the pixel in different classes")
    assert across.text.endswith("even + odd 1 (group patient-x)")
    assert "--duplicates drop-both" in across.advice
    assert across.data == {"sets": 1, "images": 2}
    spans = _of(report, "group-spans-classes")
    assert spans.text == "1 group with images in several classes: patient-x (even 1, odd 1)"
    few = _of(report, "few-groups")
    assert (few.where, few.data["groups"]) == ("rare", 2)
    assert "(3 + 1 of 4 images)" in few.text
    assert "even/x_again.png = even/x_groups.png" in _of(report, "duplicate-across-groups").text
    assert all(
        finding.text and (finding.advice or finding.level is Level.NOTE) for finding in report.findings
    )


def test_findings_are_ranked_by_level_and_then_by_weight(report) -> None:
    keys = [(list(Level).index(each.finding.level), -each.weight) for each in report.ranked]
    assert keys == sorted(keys)
    assert all(0 <= each.weight <= 1 for each in report.ranked)


def test_tables_are_rectangles_of_printable_text(report) -> None:
    titles = [table.title for table in report.tables]
    assert len(titles) == len(set(titles))
    for table in (*report.tables, report.summary):
        assert table.rows
        assert all(len(row) == len(table.columns) for row in table.rows)
        assert all(isinstance(cell, str) and cell.isprintable() for row in table.rows for cell in row)


def _shape(value: object) -> object:
    """The keys and types of a JSON value; equal entries of a list are one."""
    if isinstance(value, dict):
        return {key: _shape(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_shape(value[0])] if value else []
    return type(value).__name__


def test_the_json_has_a_stable_shape(report) -> None:
    body = report.to_json()
    assert list(body) == [
        "schema_version", "source", "images", "class_names", "columns_sha256", "settings",
        "counts", "leaks", "groups", "shortcuts", "fits", "refused", "findings",
    ]  # fmt: skip
    assert body["schema_version"] == 1
    copies = {"paths": ["str"], "classes": ["str"], "groups": ["str"], "splits": [], "similarity": "float"}
    assert _shape(body["leaks"]) == {
        "near_rule": {"bits": "int", "correlation": "float"},
        "near_complete": "bool",
        "equal": [copies],
        "near": [copies],
    }
    assert _shape(body["groups"]) == {
        "spanning_classes": [{"group": "str", "images": {"even": "int", "odd": "int"}}],
        "spanning_splits": [],
        "sharing": [{
            "over": "str", "classes": ["str"], "tasks": "NoneType",
            "queries": dict.fromkeys(("1", "3", "5", "10"), "float"),
        }],
    }  # fmt: skip
    assert _shape(body["shortcuts"]["results"][0]) == {
        "facts": "str", "accuracy": "float", "error": "float", "chance": "float",
        "images": "int", "folds": "int", "by": "str",
    }  # fmt: skip
    assert _shape(body["fits"]["tasks"][0]) == {
        "shots": "int", "queries": "int", "disjoint": "str", "classes": ["str"],
        "ways": dict.fromkeys(("2", "3", "4", "5"), "bool"),
        "too_small": [{"name": "str", "images": "int", "groups": "NoneType"}],
    }  # fmt: skip
    assert {tuple(entry) for entry in body["findings"]} == {
        ("level", "code", "where", "text", "advice", "weight", "data")
    }
    assert [entry["path"] for entry in body["refused"]["files"]] == ["even/broken.png", "odd/page.jpg"]


def test_the_json_survives_a_round_trip_and_names_no_place_on_the_machine(report, tmp_path) -> None:
    body = report.to_json()
    text = json.dumps(body, sort_keys=True, allow_nan=False)
    assert json.loads(text) == body
    assert str(tmp_path.parent) not in text


def test_the_same_pack_gives_the_same_json(tmp_path) -> None:
    folder = Folder(tmp_path / "set")
    fill(folder, np.random.default_rng(3), {"a": (4, 4), "b": (4, 4)})
    pack = folder.pack(16)
    assert audit(pack, QUICK).to_json() == audit(pack, QUICK).to_json()


def test_a_healthy_set_has_no_warnings(tmp_path) -> None:
    folder = Folder(tmp_path / "set")
    fill(folder, np.random.default_rng(3), dict.fromkeys("abc", (1,) * 30))
    report = audit(folder.pack(24), QUICK)
    assert [finding.code for finding in report.findings if finding.level is not Level.NOTE] == []
    assert report.summary.title == "1 finding"


def test_copies_and_groups_across_source_splits_are_told(tmp_path) -> None:
    folder, random = Folder(tmp_path / "set"), np.random.default_rng(4)
    for split in ("train", "test"):
        for name in "ab":
            for number in range(10):
                folder.add(f"{split}/{name}/{number}.png", texture(random), f"{split}-{name}-{number}")
    twice = texture(random)
    folder.add("train/a/x.png", twice, "patient-x")
    folder.add("test/a/x.png", twice, "patient-x")
    report = audit(folder.pack(24), QUICK)
    assert "patient-x (test 1, train 1)" in _of(report, "group-spans-splits").text
    assert "test/a/x.png = train/a/x.png" in _of(report, "duplicate-across-splits").text
    assert report.to_json()["leaks"]["equal"][0]["splits"] == ["test", "train"]


def test_without_groups_near_copies_warn_and_groups_are_not_invented(tmp_path) -> None:
    folder, random = Folder(tmp_path / "set"), np.random.default_rng(4)
    for name in "ab":
        for number in range(25):
            folder.add(f"{name}/{number}.png", texture(random))
    picture = texture(random)
    folder.add("a/x.png", picture)
    folder.add("a/y.jpg", np.asarray(Image.fromarray(picture).resize((90, 90))), quality=60)
    report = audit(folder.pack(32), QUICK)
    assert _of(report, "near-duplicate").level is Level.WARN
    assert _of(report, "no-groups").level is Level.WARN
    assert report.to_json()["groups"] == {"sharing": [], "spanning_classes": [], "spanning_splits": []}
    assert {task["disjoint"] for task in report.to_json()["fits"]["tasks"]} == {"images"}


def test_what_was_dropped_when_packing_is_still_told(tmp_path) -> None:
    folder, random = Folder(tmp_path / "set"), np.random.default_rng(4)
    for name in "ab":
        for number in range(6):
            folder.add(f"{name}/{number}.png", texture(random))
    twice = texture(random)
    folder.add("a/x.png", twice)
    folder.add("b/x.png", twice)
    report = audit(folder.pack(24, duplicates="drop-both"), QUICK)
    assert "all were dropped" in _of(report, "duplicate-across-classes").text
    assert report.to_json()["leaks"]["equal"] == []
    assert report.to_json()["refused"]["dropped"] == ["a/x.png", "b/x.png"]


def test_findings_of_one_code_are_told_once() -> None:
    findings = [Finding(Level.WARN, "elongated", f"a/{n}.png", "is long", "crop it") for n in range(9)]
    (told,) = carry_over(findings, set(), images=90)
    assert told.finding.text == "9 times: is long (a/0.png, a/1.png, a/2.png and 6 more)"
    assert told.finding.data == {"where": [f"a/{n}.png" for n in range(9)]}
    assert (told.finding.advice, told.weight) == ("crop it", pytest.approx(0.1))


def test_what_the_audit_measures_itself_is_not_told_twice() -> None:
    pair = Finding(Level.WARN, "duplicate", "a/1.png", "the same picture as a/2.png")
    assert carry_over([pair], {"duplicate"}, images=10) == []
    assert [each.finding for each in carry_over([pair], set(), images=10)] == [pair]


def test_ranking_is_total() -> None:
    def finding(level: Level, code: str, weight: float) -> Weighed:
        return Weighed(Finding(level, code, "", "text"), weight)

    ranked = rank([
        finding(Level.NOTE, "n", 0.9), finding(Level.WARN, "b", 0.1), finding(Level.WARN, "a", 0.1),
        finding(Level.WARN, "c", 0.5), finding(Level.REFUSE, "r", 0.0),
    ])  # fmt: skip
    assert [each.finding.code for each in ranked] == ["r", "c", "a", "b", "n"]

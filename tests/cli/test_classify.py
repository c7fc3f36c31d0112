"""`abomed classify` from a folder to a table: every column against its own computation, and what a user is told."""

import hashlib
import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from abomed.audit import shortcuts
from abomed.classify.answer_table import unguard
from abomed.classify.doubt import Doubt
from abomed.classify.estimator import FewShotClassifier
from abomed.cli.main import call
from abomed.data import crew
from tests.classify.questions import COLOURS, asked, draw, labelled, read_answers

MODEL = ["--model", "untrained:cnn4"]


@pytest.fixture(autouse=True)
def _few_trees(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shortcuts, "_TREES", 10)


def ask(root: Path, *more: str) -> list[str]:
    workers = [] if "--workers" in more else ["--workers", "1"]
    out = ["--out", str(root / "answers.csv"), *workers, *MODEL]
    return ["classify", "--support", str(root / "labelled"), "--query", str(root / "asked"), *out, *more]


def test_every_column_is_what_it_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    support, queries = labelled(tmp_path / "labelled"), asked(tmp_path / "asked")
    capsys.readouterr()
    assert call(ask(tmp_path, "--views", "2", "--json")) == 0
    body = json.loads(capsys.readouterr().out)
    rows = read_answers(tmp_path / "answers.csv")
    files = sorted(queries.rglob("*.png"))
    assert [row["path"] for row in rows] == [str(file.relative_to(queries)) for file in files]
    known = sorted(support.rglob("*.png"))
    fitted = FewShotClassifier("untrained:cnn4", views=2).fit(known, [file.parent.name for file in known])
    shares, features = fitted.answer(files)
    doubt = Doubt.of(fitted, None, 0.9)
    sets, novelty = doubt.sets(features, shares), doubt.novelty(features)
    assert list(rows[0]) == [
        "path", "label", "prediction", "p_alpha", "p_beta", "p_gamma", "set", "novelty", "flags", "sha256"
    ]  # fmt: skip
    for place, (row, file) in enumerate(zip(rows, files, strict=True)):
        told = [float(row[f"p_{name}"]) for name in COLOURS]
        np.testing.assert_allclose(told, shares[place], atol=5e-7)
        assert row["prediction"] == list(COLOURS)[int(np.argmax(told))]
        assert row["label"] == file.parent.name
        assert row["set"] == ";".join(fitted.classes_[sets[place]])
        assert float(row["novelty"]) == pytest.approx(novelty[place], rel=1e-3)
        assert ("unlike-labelled" in row["flags"]) == bool(novelty[place] > doubt.threshold.value)
        assert row["sha256"] == hashlib.sha256(file.read_bytes()).hexdigest()
    right = sum(row["prediction"] == row["label"] for row in rows)
    assert right >= 16, "three colours are easily told apart"
    score = body["scores"]["rows"][0]
    assert (score["right"], score["images"], score["over"]) == (right, 18, "images")
    assert np.trace(body["scores"]["confusion"]) == right
    assert body["support"] == {"images": 15, "classes": dict.fromkeys(COLOURS, 5)}
    assert body["expected"]["left_out"] == pytest.approx(float(doubt.held_out.correct.double().mean()))
    assert body["predictions"] == {n: sum(row["prediction"] == n for row in rows) for n in COLOURS}
    assert (body["queries"], body["answered"], body["refused"]) == (18, 18, 0)


def test_an_answer_does_not_depend_on_the_others_nor_on_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    labelled(tmp_path / "labelled")
    queries = asked(tmp_path / "asked", count=25)
    assert call(ask(tmp_path)) == 0
    together = {row["path"]: row for row in read_answers(tmp_path / "answers.csv")}
    few = [queries / "beta" / f"beta {number}.png" for number in (3, 20)]
    arguments = ask(tmp_path)
    at = arguments.index("--query")
    arguments[at + 1 : at + 2] = [str(file) for file in few]
    assert call(arguments) == 0
    for row in read_answers(tmp_path / "answers.csv"):
        whole = together[str(Path(row["path"]).relative_to(queries))]
        assert {k: v for k, v in row.items() if k != "path"} == {
            k: v for k, v in whole.items() if k != "path"
        }
    monkeypatch.setattr(crew, "CHUNK", 8)
    monkeypatch.setattr(crew, "IN_PROCESS", 20)
    assert call(ask(tmp_path, "--workers", "2")) == 0
    assert {row["path"]: row for row in read_answers(tmp_path / "answers.csv")} == together


def test_unlabelled_queries_are_answered_and_not_scored(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    labelled(tmp_path / "labelled")
    asked(tmp_path / "asked", sorted_by_class=False)
    (tmp_path / "asked" / "broken.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    capsys.readouterr()
    assert call(ask(tmp_path)) == 0
    said = capsys.readouterr().out
    assert "15 labelled images (alpha 5, beta 5, gamma 5), answered with untrained:cnn4" in said
    assert "of further images like the labelled ones will be answered right" in said
    assert "refused: damaged\n  broken.png: " in said
    assert f"18 images answered (alpha 6, beta 6, gamma 6), 1 could not be read: {tmp_path}" in said
    assert "answered as labelled" not in said
    assert said.endswith("Research use only: no answer is a diagnosis.\n")
    rows = read_answers(tmp_path / "answers.csv")
    assert {row["label"] for row in rows} == {""}
    assert "broken.png" not in {row["path"] for row in rows}


def test_copies_and_known_patients_are_flagged_and_not_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    support, queries = labelled(tmp_path / "labelled"), asked(tmp_path / "asked")
    shutil.copy(support / "alpha" / "alpha 0.png", queries / "alpha" / "again.png")
    draw("beta", 1).save(queries / "beta" / "again.jpg", quality=90)
    groups = [f"{name}/{name} {n}.png,{name} patient {n}" for name in COLOURS for n in range(5)]
    (support / "groups.csv").write_text("\n".join(["path,group", *groups]))
    rows = [f"{name}/{name} {n}.png,{name} patient {4 + n}" for name in COLOURS for n in range(6)]
    (queries / "groups.csv").write_text("\n".join(["path,group", *rows]))
    capsys.readouterr()
    assert call(ask(tmp_path, "--json")) == 0
    body = json.loads(capsys.readouterr().out)
    flags = {row["path"]: row["flags"].split(";") for row in read_answers(tmp_path / "answers.csv")}
    assert "copy-of-labelled" in flags["alpha/again.png"]
    assert "near-copy-of-labelled" in flags["beta/again.jpg"]
    assert [path for path, each in flags.items() if "group-of-labelled" in each] == [
        f"{name}/{name} 0.png" for name in COLOURS
    ]
    assert [row["images"] for row in body["scores"]["rows"]] == [20, 18, 15]
    assert body["scores"]["left_out"] == [
        "2 queries equal or nearly equal a labelled image",
        "3 queries of a patient, lesion or slide that was labelled",
    ]
    assert (body["scores"]["rows"][2]["over"], body["scores"]["rows"][2]["units"]) == ("images", 15)
    codes = {finding["code"]: finding["text"] for finding in body["findings"]}
    assert "alpha/again.png (alpha/alpha 0.png)" in codes["copy-of-labelled"]
    assert codes["group-of-labelled"].startswith("3 of 20 queries share a patient")


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such names")
def test_names_survive_the_table_and_cannot_harm(tmp_path: Path) -> None:
    labelled(tmp_path / "labelled")
    queries = tmp_path / "asked"
    queries.mkdir()
    names = [
        "=1+1.png",
        "+a.png",
        "-b.png",
        "@c.png",
        "\td.png",
        "'e.png",
        'q",;\n.png',
        "größe 染色 🔬.png",
        "\re.png",
    ]
    for number, name in enumerate(names):
        draw("alpha", number).save(queries / name, "PNG")
    with open(os.fsencode(queries) + b"/\xff.png", "wb") as file:
        file.write((queries / "+a.png").read_bytes())
    assert call(ask(tmp_path)) == 0
    rows = read_answers(tmp_path / "answers.csv")
    told = [row["path"] for row in rows]
    assert not [path for path in told if path[0] in "=+-@\t\r\n"]
    assert sorted(map(unguard, told)) == sorted([*names, "\\udcff.png"])


def test_queries_prepared_in_another_way_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    labelled(tmp_path / "labelled")
    queries = tmp_path / "asked"
    queries.mkdir()
    for number in range(4):
        draw("gamma", number, (200, 150)).save(queries / f"{number}.jpg", quality=40)
    capsys.readouterr()
    assert call(ask(tmp_path)) == 0
    said = capsys.readouterr().out
    assert "warning: prepared-differently" in said
    assert "labelled images are PNG, 4 of 4 queries JPEG" in said
    assert "queries are 3.3 times as large" in said


@pytest.mark.parametrize("given", ["table of queries", "table of labels", "groups inside", "groups told"])
def test_answers_never_overwrite_what_they_are_made_from(
    tmp_path: Path, given: str, capsys: pytest.CaptureFixture[str]
) -> None:
    labelled(tmp_path / "labelled"), asked(tmp_path / "asked")
    places = {
        "table of queries": ("asked/own.csv", "--query"),
        "table of labels": ("labelled/own.csv", "--support"),
        "groups inside": ("asked/groups.csv", None),
        "groups told": ("told.csv", "--groups"),
    }
    name, flag = places[given]
    file = tmp_path / name
    file.write_text("path,label,group\nx.png,a,g\n")
    words = ask(tmp_path)
    if flag in words:
        words[words.index(flag) + 1] = str(file)
    elif flag is not None:
        words += [flag, str(file)]
    words[words.index("--out") + 1] = str(file)
    assert call(words) == 2
    assert "would overwrite what they are made from" in capsys.readouterr().err
    assert file.read_text() == "path,label,group\nx.png,a,g\n"

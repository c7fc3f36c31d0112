"""The study that leaves one base class out: what it trains on, what it tests on, how it goes on after an end."""

import json
from argparse import Namespace
from pathlib import Path

import pytest
import torch

from abomed.data.packed import Pack, open_pack
from abomed.engine.evaluate import answer_tasks
from abomed.engine.material import choose_split
from abomed.engine.record import RunFolder
from abomed.engine.train import Loop
from benchmarks.studies import held_out_class as study
from tests.oracles.engine import make_pack


@pytest.fixture(scope="module")
def pack(tmp_path_factory: pytest.TempPathFactory) -> Pack:
    return open_pack(make_pack(tmp_path_factory.mktemp("held-out")))


def arguments_for(out: Path, **more: int) -> Namespace:
    small = {
        "iterations": 2,
        "every": 1,
        "seeds": 1,
        "tasks": 2,
        "task-batch": 1,
        "queries": 2,
        "shots": 2,
        "image-size": 16,
    }
    told = [text for name, value in {**small, **more}.items() for text in (f"--{name}", str(value))]
    return study.read_arguments(["--data", "x", "--out", str(out), *told])


def test_neither_training_nor_tests_hold_a_novel_class(pack: Pack, tmp_path: Path) -> None:
    whole = choose_split(pack, None, 0)
    left_out = whole.base[0]
    material = study.without(pack, left_out, 3)
    learnt = {pack.class_names[label] for label in pack.labels[material.parts.train].tolist()}
    assert learnt == set(whole.base) - {left_out}
    loop = Loop(
        study.configure(3, arguments_for(tmp_path / "o")),
        material,
        RunFolder(tmp_path),
        torch.device("cpu"),
        print,
    )
    source = study.tasks_with(material, left_out, whole.base[1:3], loop)
    assert source.table.names == tuple(sorted((left_out, *whole.base[1:3])))
    assert not set(source.table.images.tolist()) & set(material.parts.train.tolist())
    # The recall of the class left out, counted one query at a time.
    label = pack.class_names.index(left_out)
    answers = answer_tasks(loop.method, loop.backbone, source, 2, chunk=None)
    right = [
        int(answers.logits[task, query].argmax()) == int(answers.labels[task, query])
        for task in range(2)
        for query in range(answers.labels.shape[1])
        if int(answers.classes[task, answers.labels[task, query]]) == label
    ]
    accuracy, recall = study.test(loop, [source], label, 2)
    assert accuracy == pytest.approx(float(answers.accuracy.mean()))
    assert recall == pytest.approx(sum(right) / len(right))


def test_what_the_file_holds_is_not_computed_again(
    pack: Pack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = arguments_for(tmp_path / "out.json")
    monkeypatch.setattr(study, "read_arguments", lambda: arguments)
    monkeypatch.setattr(study, "open_packs", lambda *_: {pack.header.source: pack})
    arguments.threads = 1
    study.main()
    whole = json.loads(arguments.out.read_text())
    base = choose_split(pack, None, 0).base
    assert len(whole["trainings"]) == len(base) == 5
    (summary,) = whole["sets"].values()
    curves = [each["accuracy"] for each in whole["trainings"].values()]
    means = [sum(curve[place] for curve in curves) / 5 for place in range(3)]
    assert summary["accuracy"] == pytest.approx(means)
    assert means[summary["chosen"]] == pytest.approx(max(means))
    assert summary["chosen"] in summary["within_one_standard_error"]
    # Ended before its last training, it goes on with that one alone and finds the same.
    last = list(whole["trainings"])[-1]
    cut = {**whole, "sets": {}, "trainings": {k: v for k, v in whole["trainings"].items() if k != last}}
    arguments.out.write_text(json.dumps(cut))
    capsys.readouterr()
    study.main()
    said = capsys.readouterr().out.splitlines()
    assert (len(said), said[0].split(":")[0]) == (2, last)
    again = json.loads(arguments.out.read_text())
    for body in (whole, again):
        body["trainings"][last].pop("seconds")
    assert again == whole
    with pytest.raises(SystemExit, match="another --out"):
        study.begin(Namespace(**{**vars(arguments), "tasks": 3}))

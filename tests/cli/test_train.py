"""`abomed train` as a user runs it: what is printed, what is left behind, and how it is stopped and continued."""

import json
import os
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from abomed.cli import main
from abomed.cli.train import _stopping, describe
from abomed.engine.progress import Event
from tests.oracles.engine import CLASSES, figures_without_clock, make_folder, make_pack

pytestmark = pytest.mark.usefixtures("no_settings_from_outside")

SMALL = [
    *("--preset", "tiny", "--shots", "2", "--queries", "2", "--image-size", "16", "--task-batch", "2"),
    *("--validation-tasks", "4", "--validate-every", "4", "--checkpoint-every", "4", "--log-every", "2"),
    *("--device", "cpu"),
]


@pytest.fixture(scope="module")
def pack(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(make_pack(tmp_path_factory.mktemp("cli")))


def command(data: str, out: Path, *more: str) -> list[str]:
    return ["train", "--data", data, "--out", str(out), *SMALL, *more]


def test_a_folder_of_images_becomes_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, out = make_folder(tmp_path / "images"), tmp_path / "run"
    assert main.call(command(str(folder), out, "--iterations", "4")) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith("split random-3-of-8-seed-10: base ")
    assert said[0].endswith("(images: 80 train, 20 validation, 60 novel)")
    assert all(name in said[0] for name in CLASSES)
    assert [line.split()[0] for line in said[1:4]] == ["2", "4", "4"]
    assert said[2].split("query loss ")[1].split()[1:3] == ["accuracy", "y"]
    assert "validation" in said[3]
    assert said[4:] == [
        f"weights of iteration 4 (last) in {out / 'weights.safetensors'}",
        f"next: abomed evaluate {out} --data {folder}",
    ]
    assert json.loads((out / "card.json").read_bytes())["preset"] == "tiny"


def test_what_a_division_by_patients_came_to_is_told_and_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, out = make_folder(tmp_path / "images"), tmp_path / "run"
    table = folder / "groups.csv"
    # Three patients get images of a second class; for two of them one class is base and the other novel.
    shared = {"blue-0": "red-0", "cyan-9": "red-9", "olive-4": "red-4"}
    text = table.read_text()
    for own, other in shared.items():
        text = text.replace(own, other)
    table.write_text(text)
    novel = "leave-classes-out:red+olive+amber"
    more = ["--iterations", "1", "--split", novel, "--split-disjoint", "groups"]
    assert main.call(command(str(folder), out, *more)) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith("split leave-out-amber+olive+red: base blue, cyan, dim, green, mauve; novel ")
    card = json.loads((out / "card.json").read_bytes())
    shares = card["validation_shares"]
    assert shares.keys() == {"blue", "cyan", "dim", "green", "mauve"}
    told = ", ".join(
        f"{name} {100 * shares[name]:.0f} %" for name in ("blue", "cyan", "dim", "green", "mauve")
    )
    assert said[1] == f"validation by whole groups, 20 % wanted: {told}"
    assert said[2] == "warning: 2 patients have images in base and in novel classes"
    assert card["groups_in_base_and_novel"] == 2
    recorded = tomllib.loads((out / "config.toml").read_text())["split"]
    assert (recorded["disjoint"], recorded["novel"]) == ("groups", ["amber", "olive", "red"])


def test_flags_replace_the_file_and_the_file_the_preset(
    pack: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "mine.toml"
    file.write_text("[train]\niterations = 2\nseed = 5\n[inner]\nridge = 0.25\n")
    monkeypatch.setenv("ABOMED_INNER_PENALTY", "3")
    arguments = ["--config", str(file), "--seed", "6", "--outer.schedule", "cosine"]
    assert main.call(command(pack, tmp_path / "run", *arguments)) == 0
    assert "split random-3-of-8-seed-6" in capsys.readouterr().out
    recorded = (tmp_path / "run" / "config.toml").read_text().splitlines()
    expected = ["iterations = 2", "seed = 6", "ridge = 0.25", "penalty = 3.0", 'schedule = "cosine"']
    assert [line for line in expected if line not in recorded] == []
    # A run's own file starts another run with the same settings.
    again = [
        "train",
        "--data",
        pack,
        "--out",
        str(tmp_path / "again"),
        "--config",
        str(tmp_path / "run" / "config.toml"),
    ]
    monkeypatch.delenv("ABOMED_INNER_PENALTY")
    assert main.call(again) == 0
    assert (tmp_path / "again" / "config.toml").read_text().splitlines() == recorded
    assert (tmp_path / "again" / "weights.safetensors").read_bytes() == (
        tmp_path / "run" / "weights.safetensors"
    ).read_bytes()


def test_augmentation_is_chosen_and_tuned_by_flags(
    pack: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ABOMED_MIXING_SIDES", "query")
    chosen = ["--augment", "cutmix+medraug", "--mixing.probability", "0.5", "--medraug.operations", "3"]
    assert main.call(command(pack, tmp_path / "run", "--iterations", "1", *chosen)) == 0
    recorded = tomllib.loads((tmp_path / "run" / "config.toml").read_text())
    assert recorded["train"]["augment"] == "medraug+cutmix"
    assert (recorded["mixing"]["probability"], recorded["mixing"]["sides"]) == (0.5, "query")
    assert recorded["medraug"]["operations"] == recorded["policy"]["operations"] == 3


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (["--augment", "baseline+mixpu"], "did you mean 'mixup'?"),
        (["--augment", "cutmix+mixup"], "mixup and cutmix cannot be added"),
        (["--mixing.probability", "2"], "less than or equal to 1"),
        (["--augment", "medraug", "--medraug.policy", "isic2081"], "did you mean 'isic2018'?"),
    ],
)
def test_augmentations_that_do_not_exist(
    wrong: list[str], said: str, pack: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert said in " ".join(refused(command(pack, tmp_path / "run", *wrong), capsys, 2))
    assert not list(tmp_path.glob("run/*"))


def test_control_c_saves_and_says_how_to_go_on(
    pack: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    straight, out = tmp_path / "straight", tmp_path / "run"
    assert main.call(command(pack, straight, "--iterations", "30")) == 0
    process = subprocess.Popen(
        [sys.executable, "-m", "abomed", *command(pack, out, "--iterations", "30")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert process.stdout is not None
    first = [process.stdout.readline() for _ in range(2)]  # the split, and the figures of iteration 2
    process.send_signal(signal.SIGINT)
    said, complained = process.communicate(timeout=60)
    assert (process.returncode, first[1].split()[0]) == (130, "2")
    assert said.splitlines()[-1] == f"stopped; the same command with --resume continues the run in {out}"
    assert "Traceback" not in complained
    stopped = int(max((out / "checkpoints").glob("checkpoint-*")).stem.split("-")[1])
    assert 2 <= stopped < 30
    assert not (out / "weights.safetensors").exists()
    capsys.readouterr()
    assert main.call(command(pack, out, "--iterations", "30", "--resume")) == 0
    assert f"{stopped:>6} resumed" in capsys.readouterr().out.splitlines()
    assert (out / "weights.safetensors").read_bytes() == (straight / "weights.safetensors").read_bytes()
    assert figures_without_clock(out / "metrics.jsonl") == figures_without_clock(straight / "metrics.jsonl")


def test_the_second_control_c_does_not_wait() -> None:
    usual = signal.default_int_handler  # a shell that starts jobs in the background has it ignored
    before = signal.signal(signal.SIGINT, usual)
    with _stopping() as stop:
        assert not stop()
        signal.raise_signal(signal.SIGINT)
        assert stop()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.signal(signal.SIGINT, before) is usual


def refused(arguments: list[str], capsys: pytest.CaptureFixture[str], code: int) -> list[str]:
    assert main.call(arguments) == code
    return capsys.readouterr().err.splitlines()


def test_refusals(pack: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "run"
    assert refused(command(pack, out, "--resume"), capsys, 3) == [
        "error: there is no run in this folder",
        f"  where: {out}",
        "  found: no config.toml",
        "  right: a folder that a training has written; without --resume a new run is started",
    ]
    assert main.call(command(pack, out, "--iterations", "2")) == 0
    capsys.readouterr()
    assert refused(command(pack, out, "--iterations", "2"), capsys, 3)[0::3] == [
        "error: there is a run in this folder",
        "  right: --resume to continue it, or another folder for a new run",
    ]
    assert refused(command(pack, out, "--iterations", "3", "--resume"), capsys, 2) == [
        "error: the run was started with other settings",
        f"  where: {out / 'config.toml'}",
        "  found: train.iterations was 2, now 3",
        "  right: the settings of the run, or another folder for a run with the new ones",
    ]
    file = tmp_path / "file"
    file.write_text("")
    assert refused(command(pack, file), capsys, 3)[:2] == [
        "error: the run folder cannot be locked",
        f"  where: {file}",
    ]
    wrong = ["--selection", "iteration=9", "--iterations", "2"]
    assert refused(command(pack, tmp_path / "new", *wrong), capsys, 2) == [
        "error: the configuration is not valid",
        "  found: train.selection = 'iteration=9': the training has iterations 1 to 2",
    ]
    small = ["train", "--data", pack, "--out", str(tmp_path / "new"), "--preset", "tiny"]
    assert refused(small, capsys, 3)[:2] == [
        "error: 3-way 5-shot 5-query tasks need 10 images of every class (5 shots + 5 queries)",
        "  where: validation images, classes "
        + ", ".join(f"'{name}'" for name in sorted(CLASSES) if name in _base(out)),
    ]
    assert not (tmp_path / "new" / "config.toml").exists()
    assert refused(command(pack, tmp_path / "new", "--preset", "tny"), capsys, 2)[0].startswith("error: ")


def _base(run: Path) -> list[str]:
    base: list[str] = tomllib.loads((run / "config.toml").read_text())["split"]["base"]
    return base


def test_lost_numbers_end_with_code_four(
    pack: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wild = ["--outer.optimiser", "sgd", "--outer.lr-outer", "1e30", "--iterations", "9"]
    said = refused(command(pack, tmp_path / "run", *wild), capsys, 4)
    assert said[0] == "error: numbers are no longer finite at iteration 2"
    assert said[2].startswith("  found: task 0 of the batch: smoothness L_s = ")
    assert said[3].startswith("  right: a smaller --outer.lr-outer")


def test_events_as_text() -> None:
    figures = {
        "loss_z": 1.2345, "accuracy_y": 0.5, "accuracy_z": 0.25, "residual_y": 1e-4, "residual_z": 2e-5, "loss_y": 0.1
    }  # fmt: skip
    assert describe(Event(7, figures, 12.6)) == (
        "     7 query loss 1.234  accuracy y 50.0 % z 25.0 %  residual y 1.0e-04 z 2.0e-05  13 s"
    )
    validation = {"accuracy": 0.5, "half_width": 0.015, "best": 0.625}
    assert describe(Event(50, validation, 1.0, "validation")) == (
        "    50 validation 50.0 ± 1.5 % (best 62.5 %)"
    )
    assert describe(Event(40, {}, 0.0, "resumed")) == "    40 resumed"
    assert describe(Event(3, {"loss": 0.5}, 2.0)) == "     3 loss 0.5  2 s"

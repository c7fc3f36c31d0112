"""The folder of a run: settings that read back equal, metrics that a kill does not change, refusals that say why."""

import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from abomed.engine.environment import describe_environment, find_commit
from abomed.engine.journal import CLOCK, Cut, Journal, cut_journal, read_journal
from abomed.engine.lock import RunLock
from abomed.engine.record import create_run, read_config, resume_run, write_card
from abomed.engine.toml import dump_toml, load_toml
from abomed.errors import CheckpointError, ConfigError

CONFIG = {
    "seed": 10,
    "workers": 4,
    "episodes": {"ways": 3, "shots": 5, "sizes": [1, 5]},
    "inner": {"ridge": 0.5, "steps": "auto"},
}
ENVIRONMENT = {"torch": "2.12", "cores": 2, "commit": None}

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
plain = st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats() | text
values = plain | st.recursive(
    st.lists(plain, max_size=3), lambda inner: st.lists(inner, max_size=2), max_leaves=4
)
tables = st.recursive(
    st.dictionaries(text, values, max_size=4),
    lambda inner: st.dictionaries(text, values | inner, max_size=4),
    max_leaves=12,
)


def _exact(value: object) -> object:
    """Type and value; NaN equals itself, -0.0 does not equal 0.0."""
    if isinstance(value, dict):
        return {key: _exact(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_exact(item) for item in value]
    return type(value), repr(value)


@settings(max_examples=200, deadline=None)
@given(tables)
def test_toml_round_trip(table: dict[str, Any]) -> None:
    assert _exact(load_toml(dump_toml(table), "here")) == _exact(table)


def test_toml_is_what_a_person_would_write() -> None:
    assert dump_toml({"episodes": {"ways": 3}, "name": 'a "b"\n', "rate": 1e-05, "sizes": (1, 5)}) == (
        'name = "a \\"b\\"\\n"\nrate = 1e-05\nsizes = [1, 5]\n\n[episodes]\nways = 3\n'
    )


@pytest.mark.parametrize(
    ("value", "found"), [(None, "NoneType"), ([{}], "dict"), (b"x", "bytes"), ("\udcff", "not UTF-8")]
)
def test_toml_refuses_what_it_cannot_bring_back(value: object, found: str) -> None:
    with pytest.raises(ConfigError, match=f"where: data.source\n  found: .*{found}"):
        dump_toml({"data": {"source": value}})


def test_a_new_run_holds_what_was_asked_and_with_what(tmp_path: Path) -> None:
    run = create_run(tmp_path / "a" / "run", CONFIG, ENVIRONMENT, {"title": "made up"})
    assert read_config(run) == CONFIG
    assert json.loads(run.environment.read_bytes()) == {"started": ENVIRONMENT, "resumed": []}
    assert json.loads(run.card.read_bytes()) == {"title": "made up"}
    assert not run.metrics.exists()
    write_card(run, {"title": "measured", "accuracy": 0.84})
    assert json.loads(run.card.read_bytes())["accuracy"] == 0.84


def test_a_folder_with_a_run_is_refused_and_resume_is_named(tmp_path: Path) -> None:
    create_run(tmp_path, CONFIG, ENVIRONMENT)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(CheckpointError) as caught:
        create_run(tmp_path, CONFIG, ENVIRONMENT)
    assert caught.value.what == "there is a run in this folder"
    assert caught.value.found == "card.json, config.toml, environment.json"
    assert "--resume to continue it" in str(caught.value)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_folder_with_anything_else_is_refused(tmp_path: Path) -> None:
    for number in range(8):
        (tmp_path / f"{number}.png").touch()
    with pytest.raises(
        CheckpointError, match=r"not empty[\s\S]*0.png, 1.png, 2.png, 3.png, 4.png and 3 more"
    ):
        create_run(tmp_path, CONFIG, ENVIRONMENT)
    with pytest.raises(CheckpointError, match="cannot be written"):
        create_run(tmp_path / "0.png", CONFIG, ENVIRONMENT)


def test_the_lock_and_a_start_that_was_killed_do_not_fill_a_folder(tmp_path: Path) -> None:
    (tmp_path / ".config.toml.tmp-0badc0de").touch()
    (tmp_path / "environment.json").write_text("{")
    with RunLock(tmp_path):
        run = create_run(tmp_path, CONFIG, ENVIRONMENT)
        assert resume_run(tmp_path, CONFIG, ENVIRONMENT).run == run


def test_resume_takes_equal_settings_and_free_ones(tmp_path: Path) -> None:
    run = create_run(tmp_path, CONFIG, ENVIRONMENT)
    told = run.config.read_bytes()
    changed = CONFIG | {"workers": 1, "episodes": {"shots": 5, "sizes": (1, 5), "ways": 3}}
    resumed = resume_run(tmp_path, changed)
    assert (resumed.run, resumed.changes) == (run, ())
    assert run.config.read_bytes() == told


def test_settings_that_may_change_bits_are_told_and_recorded_once(tmp_path: Path) -> None:
    started = CONFIG | {"train": {"device": "cuda", "chunk": 0, "log_every": 10, "checkpoint_every": 50}}
    asked = CONFIG | {"train": {"device": "cpu", "chunk": 4, "log_every": 10, "checkpoint_every": 5}}
    told = ("train.chunk: 0 then, 4 now", 'train.device: "cuda" then, "cpu" now')
    run = create_run(tmp_path, started, ENVIRONMENT)
    assert resume_run(tmp_path, asked).changes == told
    assert resume_run(tmp_path, asked, ENVIRONMENT).changes == told
    assert resume_run(tmp_path, asked, ENVIRONMENT).changes == ()
    (recorded,) = json.loads(run.environment.read_bytes())["resumed"]
    settings_now = {"train.chunk": "4", "train.device": '"cpu"', "train.log_every": "10"}
    assert recorded == ENVIRONMENT | settings_now
    assert resume_run(tmp_path, started, ENVIRONMENT).changes[0] == "train.chunk: 4 then, 0 now"
    assert read_config(run) == started


def test_resume_names_every_changed_setting_with_both_values(tmp_path: Path) -> None:
    run = create_run(tmp_path, CONFIG, ENVIRONMENT)
    changed = {
        "seed": 10.0,  # another type is another setting
        "workers": 1,
        "episodes": {"ways": 3, "shots": 1, "sizes": [1, 5], "queries": 15},
        "inner": {"ridge": 0.5},
    }
    with pytest.raises(ConfigError) as caught:
        resume_run(tmp_path, changed)
    assert caught.value.where == str(run.config)
    assert caught.value.found == (
        "episodes.queries was not set, now 15; episodes.shots was 5, now 1; "
        'inner.steps was "auto", now not set; seed was 10, now 10.0'
    )
    with pytest.raises(ConfigError, match="workers was 4, now 1"):
        resume_run(tmp_path, CONFIG | {"workers": 1}, free=())


def test_resume_needs_a_run(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="there is no run in this folder"):
        resume_run(tmp_path, CONFIG)
    run = create_run(tmp_path, CONFIG, ENVIRONMENT)
    run.config.write_text("seed = ")
    with pytest.raises(ConfigError, match="not TOML"):
        resume_run(tmp_path, CONFIG)
    run.config.write_bytes(b"\xff")
    with pytest.raises(CheckpointError, match="cannot be read"):
        resume_run(tmp_path, CONFIG)


def test_another_environment_is_told_and_recorded_once(tmp_path: Path) -> None:
    run = create_run(tmp_path, CONFIG, ENVIRONMENT)
    assert resume_run(tmp_path, CONFIG, ENVIRONMENT).changes == ()
    newer = ENVIRONMENT | {"torch": "2.13"}
    assert resume_run(tmp_path, CONFIG, newer).changes == ("torch: 2.12 then, 2.13 now",)
    assert resume_run(tmp_path, CONFIG, newer).changes == ()
    assert json.loads(run.environment.read_bytes()) == {"started": ENVIRONMENT, "resumed": [newer]}
    run.environment.write_text("[]")
    with pytest.raises(CheckpointError, match="environment of the run cannot be read"):
        resume_run(tmp_path, CONFIG, newer)


def test_environment_describes_this_process(tmp_path: Path) -> None:
    told = describe_environment()
    assert told["torch"] == torch.__version__
    assert told["device"] == "cpu"
    assert told["device_name"]
    assert told["threads"] == torch.get_num_threads()
    assert json.loads(json.dumps(told)) == told


def test_commit_is_that_of_the_file_and_not_of_the_folder_around_it(tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text("first = 1\n")
    assert find_commit(module) is None  # no repository, or no git at all

    def git(*arguments: str) -> str:
        identity = {
            f"GIT_{who}_{what}": "x@x" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")
        }
        done = subprocess.run(
            ["git", *arguments], cwd=tmp_path, env={**os.environ, **identity}, capture_output=True,
            text=True, check=True,
        )  # fmt: skip
        return done.stdout.strip()

    try:
        git("init")
    except OSError:
        pytest.skip("git is not installed")
    assert find_commit(module) is None  # there, but not tracked: an installed package in a .venv
    git("add", "module.py")
    git("commit", "--message", "first")
    assert find_commit(module) == git("rev-parse", "HEAD")
    module.write_text("second = 2\n")
    assert find_commit(module) == f"{git('rev-parse', 'HEAD')}-dirty"


def _train(path: Path, start: int, stop: int) -> None:
    """What a training writes: a line per iteration, one more for each validation."""
    with Journal(path) as journal:
        for iteration in range(start, stop):
            journal.append(
                iteration, {"kind": "train", "loss": 1 / (iteration + 1)}, {"seconds": start + 0.5}
            )
            if iteration % 3 == 0:
                journal.append(iteration, {"kind": "val", "accuracy": {"y": 0.5, "z": math.nan}})
        journal.sync()


def _without_clock(path: Path) -> list[dict[str, Any]]:
    return [{key: value for key, value in row.items() if key != CLOCK} for row in read_journal(path)]


@pytest.mark.parametrize("lost", [0, 1, 7, 30, 60, 100])
def test_a_killed_and_resumed_journal_equals_one_never_killed(tmp_path: Path, lost: int) -> None:
    straight, resumed = tmp_path / "straight.jsonl", tmp_path / "resumed.jsonl"
    _train(straight, 1, 13)
    _train(resumed, 1, 10)
    left = resumed.read_bytes()[: resumed.stat().st_size - lost]
    resumed.write_bytes(left)
    done = cut_journal(resumed, 6)  # the newest checkpoint; 7 to 9 are computed again
    assert done.kept == 8
    assert done.unreadable == (not left.endswith(b"\n"))
    _train(resumed, 7, 13)
    assert _without_clock(resumed) == _without_clock(straight)
    assert read_journal(resumed) != read_journal(straight)  # the clock differs


def test_cutting_a_whole_journal_does_not_touch_it(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    assert cut_journal(path, 5) == Cut(0, 0, 0)
    assert not path.exists()
    _train(path, 1, 5)
    told = path.stat().st_mtime_ns, path.stat().st_ino
    assert cut_journal(path, 5) == Cut(5, 0, 0)
    assert (path.stat().st_mtime_ns, path.stat().st_ino) == told
    assert cut_journal(path, 0) == Cut(0, 5, 0)
    assert path.read_bytes() == b""


def test_damaged_lines_are_counted_and_the_others_kept(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b'{"iteration": 1}\n\0\0\0\n[2]\n{"loss": 3}\n{"iteration": true}\n{"iteration": 4}\n')
    assert cut_journal(path, 9) == Cut(2, 0, 4)
    assert read_journal(path) == [{"iteration": 1}, {"iteration": 4}]


def test_every_line_is_there_at_once_and_reserved_names_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    with Journal(path) as journal:
        journal.append(1, {"loss": math.inf, "rates": (0.5, math.nan)}, {"seconds": 2.0})
        assert read_journal(path) == [
            {"iteration": 1, "loss": None, "rates": [0.5, None], "clock": {"seconds": 2.0}}
        ]
        for name in ("iteration", "clock"):
            with pytest.raises(ValueError, match=name):
                journal.append(2, {name: 1})


def test_a_full_disk_leaves_no_half_line(tmp_path: Path) -> None:
    resource = pytest.importorskip("resource")  # POSIX only
    path = tmp_path / "metrics.jsonl"
    with Journal(path) as journal:
        journal.append(1, {"note": "x" * 100})
        before = path.read_bytes()
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 50, limits[1]))
        try:
            with pytest.raises(CheckpointError, match="metrics of the run could not be written"):
                journal.append(2, {"note": "x" * 100})
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert path.read_bytes() == before
        journal.append(2, {"note": "y"})
    assert read_journal(path)[1] == {"iteration": 2, "note": "y"}


def test_reading_a_record_needs_no_torch() -> None:
    code = (
        "import sys, abomed.engine.record, abomed.engine.journal, abomed.engine.lock;"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0

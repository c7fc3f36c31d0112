"""Several workers on one search: every point once, whoever is killed, and with the numbers of one worker alone."""

import multiprocessing
import signal
import time
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from abomed.engine.lock import RunLock
from abomed.errors import CheckpointError
from abomed.study.search_slots import Slots
from abomed.study.search_storage import JOURNAL, _journal_lock, open_study
from tests.oracles.engine import make_pack
from tests.study.searching import GRID, Workers, plan_search, results, run_here, starts


@pytest.fixture(scope="module")
def pack(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_pack(tmp_path_factory.mktemp("search"))


def test_two_workers_finish_every_point_once_and_a_killed_one_costs_nothing(
    pack: Path, tmp_path: Path
) -> None:
    out = tmp_path / "killed"
    plan = plan_search(pack, out)
    workers = Workers(out, plan, 2)
    victim = workers.processes[0]
    number = _wait_for_a_training_of(out, victim.pid)
    victim.kill()
    assert workers.join() == [-signal.SIGKILL, 0]
    trials = results(out, plan)
    assert [trial.state for trial in trials] == ["complete"] * 27
    assert len({tuple(trial.point.items()) for trial in trials}) == 27
    begun = starts(out, plan)
    assert begun[number] == 2
    assert sum(begun) == 28
    # One worker alone, never killed, finds the same at that point and at two beside it.
    at = trials[number].point
    near = [GRID[0], *(f"{key}={at[key]}" for key in ("inner.lr_y", "inner.penalty"))]
    alone = run_here(tmp_path / "alone", plan_search(pack, tmp_path / "alone", tuple(near)))
    assert len(alone) == 3
    found = {tuple(trial.point.values()): trial.accuracy for trial in trials}
    for trial in alone:
        key = (trial.point["inner.lr_z"], at["inner.lr_y"], at["inner.penalty"])
        assert found[key] == trial.accuracy


def _wait_for_a_training_of(out: Path, pid: int | None) -> int:
    """The number of a trial that the process has written a run of, its third at least."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        for lock in sorted(out.glob("trials/*/run/run.lock"))[::-1]:
            try:
                held = f'"pid": {pid},' in lock.read_text()
            except OSError:
                continue
            if held and int(lock.parts[-3]) >= 2:
                return int(lock.parts[-3])
    raise AssertionError("the worker began no training")


def test_a_point_held_by_the_living_is_left_alone_and_taken_when_let_go(pack: Path, tmp_path: Path) -> None:
    plan = plan_search(pack, tmp_path)
    with open_study(tmp_path, None, plan) as study:
        first, second = (Slots(study, plan, tmp_path, shared=True) for _ in range(2))
        first.fill()
        second.fill()
        assert len(study.get_trials()) == 27
        with first.next() as held, second.next() as other:
            assert held is not None
            assert other is not None
            assert (held.number, other.number) == (0, 1)
        # Both were let go without a result, as by a stop: the next worker begins with them.
        with first.next() as again:
            assert again is not None
            assert (again.number, again.starts) == (0, 2)


def test_a_trial_that_ends_its_worker_each_time_is_given_up(pack: Path, tmp_path: Path) -> None:
    plan = plan_search(pack, tmp_path)
    with open_study(tmp_path, None, plan) as study:
        slots = Slots(study, plan, tmp_path, shared=True)
        slots.fill()
        for _ in range(3):
            with slots.next() as claim:
                assert claim is not None
                assert claim.number == 0
        with slots.next() as claim:
            assert claim is not None
            assert claim.number == 1
        first = results(tmp_path, plan)[0]
    assert (first.state, first.error) == ("failed", "it ended its worker 3 times")


def test_a_stop_on_purpose_is_no_such_end(pack: Path, tmp_path: Path) -> None:
    plan = plan_search(pack, tmp_path)
    with open_study(tmp_path, None, plan) as study:
        slots = Slots(study, plan, tmp_path, shared=True)
        slots.fill()
        for _ in range(5):
            with slots.next() as claim:
                assert claim is not None
                assert (claim.number, claim.starts) == (0, 1)
                claim.give_back()


def test_a_silent_worker_elsewhere_loses_its_trial(
    pack: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From another machine the lock of a folder tells nothing; silence does, and the point is tried anew."""
    plan = plan_search(pack, tmp_path)
    now = [0.0]
    monkeypatch.setattr("abomed.study.search_slots.time.monotonic", lambda: now[0])
    with open_study(tmp_path, None, plan) as study:
        away, here = Slots(study, plan, tmp_path, shared=True), Slots(study, plan, tmp_path, shared=False)
        here.place = "another folder"
        away.fill()
        lost = away._take_new()
        assert lost is not None
        assert here._take_up() is None
        now[0] = 899.0
        assert here._take_up() is None
        lost.trial.set_user_attr("beat", 1.0)  # a sign of life, by a clock that is wrong
        now[0] = 1000.0
        assert here._take_up() is None
        now[0] = 1901.0
        assert here._take_up() is None
        trials = study.get_trials()
        assert (trials[0].state.name, len(trials)) == ("FAIL", 28)
        assert trials[27].system_attrs["fixed_params"] == trials[0].params
        # The silent one lives after all, and is told so when it comes back with a result.
        from abomed.study.search_points import finish

        assert not finish(study, 0, 0.5)
        lost.lock.__exit__(None, None, None)


def test_more_slots_than_asked_for_are_void(pack: Path, tmp_path: Path) -> None:
    """Two machines without a common folder may lay out the same slots at once."""
    plan = plan_search(pack, tmp_path, ("inner.penalty=0.1:1",), trials=2)
    with open_study(tmp_path, None, plan) as study:
        slots = Slots(study, plan, tmp_path, shared=True)
        slots.fill()
        study.enqueue_trial({})
    assert [trial.state for trial in run_here(tmp_path, plan)] == ["complete"] * 2
    with open_study(tmp_path, None, plan) as study:
        assert study.get_trials()[2].user_attrs["void"] == "more trials than were asked for"


def test_a_search_is_extended(pack: Path, tmp_path: Path) -> None:
    over = ("inner.penalty=0.1:1",)
    first = run_here(tmp_path, plan_search(pack, tmp_path, over, trials=2))
    longer = run_here(tmp_path, plan_search(pack, tmp_path, over, trials=4))
    assert longer[:2] == first
    assert len({trial.point["inner.penalty"] for trial in longer}) == 4
    # In one go the same points are proposed.
    at_once = run_here(tmp_path / "whole", plan_search(pack, tmp_path / "whole", over, trials=4))
    assert [trial.point for trial in at_once] == [trial.point for trial in longer]


def test_a_half_written_line_is_cut_off(pack: Path, tmp_path: Path) -> None:
    plan = plan_search(pack, tmp_path, ("inner.penalty=0.1,1",))
    before = run_here(tmp_path, plan)
    journal = tmp_path / "journal.jsonl"
    whole = journal.read_bytes()
    journal.write_bytes(whole + b'{"op_code": 6, "trial')
    assert results(tmp_path, plan) == before
    assert journal.read_bytes() == whole


def test_a_claimed_trial_is_locked(pack: Path, tmp_path: Path) -> None:
    plan = plan_search(pack, tmp_path, ("inner.penalty=0.1,1",))
    with open_study(tmp_path, None, plan) as study:
        slots = Slots(study, plan, tmp_path, shared=True)
        slots.fill()
        with slots.next() as claim:
            assert claim is not None
            lock = RunLock(claim.folder)
            with pytest.raises(CheckpointError, match="another process writes this run"):
                lock.__enter__()


def test_a_process_killed_while_it_writes_holds_nobody_up(pack: Path, tmp_path: Path) -> None:
    """Each line of the journal is written under a lock: of many kills, some fall into it."""
    plan = plan_search(pack, tmp_path, ("inner.penalty=0.1,1",))
    context = multiprocessing.get_context("forkserver")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_hold_journal, args=(tmp_path, sender))
    process.start()
    sender.close()  # or an end of the process would not be noticed here
    assert receiver.recv() == "held"
    process.kill()
    process.join()
    started = time.monotonic()
    with open_study(tmp_path, None, plan) as study:
        Slots(study, plan, tmp_path, shared=True).fill()
        assert len(study.get_trials()) == 2
    assert time.monotonic() - started < 20  # Optuna's own lock would be waited for half a minute


def _hold_journal(out: Path, sender: Connection) -> None:
    _journal_lock(str(out / JOURNAL)).acquire()
    sender.send("held")
    time.sleep(60)

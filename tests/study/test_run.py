"""Running a study: nothing twice, nothing lost, the same numbers however it is interrupted or shared out."""

import json
import os
import threading
import time
from pathlib import Path

import pytest

from abomed.config.study import CellSpec, EvaluationSpec
from abomed.data.packed import open_pack
from abomed.engine.lock import RunLock
from abomed.engine.progress import Stop
from abomed.study import workers
from abomed.study.address import plan_cell
from abomed.study.board import last_iteration
from abomed.study.cell import Job, Outcome, run_job
from abomed.study.grid import cells_of, load_study
from abomed.study.run import Summary, run_study
from abomed.study.store import StudyFolder
from abomed.study.workers import Report
from tests.study.made_up import kill_when, made_up_cells, numbers, running


@pytest.fixture(scope="module")
def undisturbed(pack: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The whole study, computed in one go."""
    out = tmp_path_factory.mktemp("undisturbed")
    _run(out, pack)
    return out


def _run(out: Path, pack: Path, *cells: CellSpec, workers: int = 1, retry: bool = False) -> Summary:
    given = {"synthetic": pack}
    return run_study(cells or made_up_cells(), out, given, workers=workers, device="cpu", retry=retry)


def _job(pack: Path, out: Path, cell: CellSpec) -> Job:
    return Job(cell.model_dump(mode="json"), str(out), {"synthetic": str(pack)}, "cpu")


def test_every_cell_leaves_one_whole_result(undisturbed: Path) -> None:
    bodies = list(StudyFolder(undisturbed))
    assert [body["state"] for body in bodies] == ["finished"] * 4
    ours = [body for body in bodies if body["spec"]["label"] == "ours"]
    assert {row["evaluation"] for body in ours for row in body["rows"]} == {"images", "episode"}
    assert len({row["episode_hash"] for body in ours for row in body["rows"]}) == 1
    for body in bodies:
        for row in body["rows"]:
            correct = row["scores"]["correct_by_task"]
            assert len(correct) == 12
            accuracy = sum(correct) / len(correct) / row["scores"]["rows"]
            assert row["over_tasks"]["mean"] == pytest.approx(accuracy)
    runs = list((undisturbed / "runs").iterdir())
    assert len(runs) == 3
    assert all((run / "weights.safetensors").is_file() and not (run / "checkpoints").exists() for run in runs)
    assert (undisturbed / ".gitignore").read_text().split() == ["runs/", "packs/", "locks/"]


def test_weights_along_the_way_are_those_of_the_way(undisturbed: Path) -> None:
    """The last of them is the end of a training that was never stopped."""
    bodies = {(body["spec"]["label"], body["spec"]["seed"]): body for body in StudyFolder(undisturbed)}
    along = {row["at"]: row["scores"]["correct_by_task"] for row in bodies["seen along the way", 0]["rows"]}
    assert list(along) == [0, 4, 8]
    (end,) = [row for row in bodies["ours", 0]["rows"] if row["evaluation"] == "images"]
    assert along[8] == end["scores"]["correct_by_task"]
    assert (
        bodies["seen along the way", 0]["training"]["validation"]
        == bodies["ours", 0]["training"]["validation"]
    )
    assert along[0] != along[8]


def test_finished_cells_are_not_computed_again(undisturbed: Path, pack: Path) -> None:
    before = {path.name: path.stat().st_mtime_ns for path in (undisturbed / "cells").iterdir()}
    summary = _run(undisturbed, pack)
    assert all(entry.was_known for entry in summary.board.entries)
    assert {path.name: path.stat().st_mtime_ns for path in (undisturbed / "cells").iterdir()} == before


def test_another_study_with_less_to_test_finds_them_too(undisturbed: Path, pack: Path) -> None:
    cell = made_up_cells(label="ours", seed=0)[0]
    renamed = cell.evaluations[1].model_copy(update={"name": "another name"})
    other = cell.model_copy(update={"label": "theirs", "evaluations": (renamed,)})
    assert run_job(_job(pack, undisturbed, other)).state == "known"


def test_killed_three_times_it_ends_with_the_same_numbers(
    undisturbed: Path, pack: Path, tmp_path: Path
) -> None:
    """Once in the first training, once between cells, once in the training that is stopped on its way."""
    folder = StudyFolder(tmp_path)

    def reached(iteration: int, finished: int) -> bool:
        done = len(list(folder.cells.glob("*.json"))) if folder.cells.is_dir() else 0
        runs = (tmp_path / "runs").glob("*")
        return done >= finished and max(map(last_iteration, runs), default=0) >= iteration

    for iteration, finished in ((3, 0), (8, 1), (8, 2)):
        with running(pack, tmp_path) as process:
            kill_when(process, lambda i=iteration, f=finished: reached(i, f))  # type: ignore[misc]
    half_written = [path for path in folder.cells.glob("*.json") if not path.read_text().endswith("}\n")]
    assert not half_written
    with running(pack, tmp_path) as process:
        process.join()
        assert process.exitcode == 0
    assert numbers(tmp_path) == numbers(undisturbed)


def test_time_is_measured_alone_and_last(monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[tuple[str, list[str]]] = []

    def pool(part: dict[int, Job], workers: int, report: Report, stop: Stop, left: dict[int, Job]) -> bool:
        order.append((f"{workers} at once", [job.spec["label"] for job in part.values()]))
        left.clear()
        return False

    def here(job: Job, stop: Stop) -> Outcome:
        order.append(("alone", [job.spec["label"]]))
        return Outcome("finished")

    monkeypatch.setattr(workers, "_pool", pool)
    monkeypatch.setattr(workers, "run_job", here)
    kinds = {"a": "time", "b": "train", "c": "time", "d": "features"}
    jobs = [Job({"label": label, "kind": kind}, "", {}) for label, kind in kinds.items()]
    told: list[int] = []
    workers.in_processes(2)(
        jobs, lambda number, outcome: told.append(number) if outcome else None, lambda: False
    )
    assert order == [("2 at once", ["b", "d"]), ("alone", ["a"]), ("alone", ["c"])]
    assert told == [0, 2]


def test_every_method_of_the_main_study_is_a_cell(pack: Path, tmp_path: Path) -> None:
    ours = made_up_cells(label="ours", seed=0)[0]
    methods = list(dict.fromkeys(cell.method for cell in cells_of(load_study("main"))))
    train = {"task_batch": 2, "validate_every": 2, "validation_tasks": 2}
    fields = {
        "evaluations": (EvaluationSpec(name="images", queries=1, tasks=2),),
        "iterations": 1,
        "shots": 1,
        "settings": {"train": train, "reptile": {"steps": 1, "adapt_steps": 2}},
    }
    cells = [ours.model_copy(update={**fields, "method": method, "label": method}) for method in methods]
    summary = _run(tmp_path, pack, *cells)
    assert {entry.cell.label: entry.error for entry in summary.board.entries} == dict.fromkeys(methods, "")
    hashes = {row["episode_hash"] for body in StudyFolder(tmp_path) for row in body["rows"]}
    assert len(hashes) == 1  # all on equal tasks
    assert len(methods) == 9


def test_two_processes_share_the_work_and_the_numbers(undisturbed: Path, pack: Path, tmp_path: Path) -> None:
    summary = _run(tmp_path, pack, workers=2)
    assert summary.board.counts() == {"finished": 4}
    assert numbers(tmp_path) == numbers(undisturbed)


def test_no_worker_outlives_a_study_that_was_killed(pack: Path, tmp_path: Path) -> None:
    """Each stops after the iteration in hand, and its lock is free for the next command."""
    folder = StudyFolder(tmp_path)

    def holders() -> list[int]:
        return [json.loads(lock.read_bytes())["pid"] for lock in (tmp_path / "locks").glob("*/run.lock")]

    with running(pack, tmp_path, workers=2) as process:
        kill_when(process, lambda: any(map(last_iteration, (tmp_path / "runs").glob("*"))))
    workers = holders()
    deadline = time.monotonic() + 60
    while any(os.path.exists(f"/proc/{worker}") for worker in workers) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not [worker for worker in workers if os.path.exists(f"/proc/{worker}")]
    assert process.pid not in workers
    _run(tmp_path, pack)
    assert len(list(folder)) == 4


def test_a_cell_that_another_process_holds_is_left_to_it(pack: Path, tmp_path: Path) -> None:
    cell = made_up_cells(label="mean colour")[0]
    folder = StudyFolder(tmp_path)
    folder.prepare()
    assert run_job(_job(pack, tmp_path, cell)).state == "finished"
    (body,) = folder
    (path,) = folder.cells.iterdir()
    path.unlink()
    with RunLock(folder.lock_of(body["key"])):
        assert run_job(_job(pack, tmp_path, cell)).state == "held"
    assert run_job(_job(pack, tmp_path, cell)).state == "finished"


def test_a_study_waits_for_the_cells_that_others_hold(pack: Path, tmp_path: Path) -> None:
    """The other process leaves without a result: the cell is computed here."""
    cell = made_up_cells(label="mean colour")[0]
    folder = StudyFolder(tmp_path)
    folder.prepare()
    plan = plan_cell(cell, {"synthetic": open_pack(pack)})
    lock = RunLock(folder.lock_of(plan.key))
    lock.__enter__()
    seen: list[str] = []
    timer = threading.Timer(1.5, lambda: lock.__exit__(None, None, None))
    timer.start()
    summary = run_study(
        [cell], tmp_path, {"synthetic": pack}, workers=1, device="cpu",
        watch=lambda _, entry: seen.append("" if entry is None else entry.state),
    )  # fmt: skip
    assert summary.board.counts() == {"finished": 1}
    assert summary.seconds > 1.4
    assert seen == ["", "running", "waiting", "running", "finished"]


def test_stopping_loses_nothing_that_was_finished(undisturbed: Path, pack: Path, tmp_path: Path) -> None:
    folder, calls = StudyFolder(tmp_path), 0

    def stop() -> bool:
        nonlocal calls
        calls += 1
        return calls > 12

    with pytest.raises(KeyboardInterrupt):
        run_study(made_up_cells(), tmp_path, {"synthetic": pack}, workers=1, device="cpu", stop=stop)
    assert len(list(folder)) < 4
    assert not list(tmp_path.rglob("run.lock"))
    _run(tmp_path, pack)
    assert numbers(tmp_path) == numbers(undisturbed)


def test_a_failure_is_kept_and_stops_nothing(pack: Path, tmp_path: Path) -> None:
    good = made_up_cells(label="mean colour")[0]
    ours = made_up_cells(label="ours", seed=0)[0]
    lost = ours.model_copy(
        update={"settings": {**ours.settings, "outer": {"optimiser": "sgd", "lr_outer": 1e30}}}
    )
    unknown = ours.model_copy(update={"settings": {"inner": {"penalti": 1.0}}})
    summary = _run(tmp_path, pack, lost, unknown, good)
    assert [entry.state for entry in summary.board.entries] == ["failed", "failed", "finished"]
    failed = {body["error"]["type"]: body for body in StudyFolder(tmp_path) if body["state"] == "failed"}
    assert set(failed) == {"NumericalError", "ConfigError"}
    assert "no longer finite at iteration" in failed["NumericalError"]["error"]["message"]
    assert "did you mean 'penalty'" in failed["ConfigError"]["error"]["message"]
    again = _run(tmp_path, pack, lost, good)
    assert again.board.entries[0].was_known
    assert again.board.entries[0].state == "failed"
    retried = _run(tmp_path, pack, lost, retry=True)
    assert not retried.board.entries[0].was_known
    attempts = [body["error"]["attempts"] for body in StudyFolder(tmp_path) if body["error"]]
    assert sorted(attempts) == [1, 2]


def test_missing_images_are_named_and_the_rest_is_computed(pack: Path, tmp_path: Path) -> None:
    here = made_up_cells(label="mean colour")[0]
    away = here.model_copy(update={"data": "bchi"})
    target = here.evaluations[0].model_copy(update={"name": "far", "data": "bchi", "classes": "all"})
    both = here.model_copy(update={"evaluations": (*here.evaluations, target)})
    summary = _run(tmp_path, pack, away, both)
    assert [entry.state for entry in summary.board.entries] == ["missing", "finished"]
    assert "abomed data fetch bchi" in summary.missing["bchi"]
    (body,) = StudyFolder(tmp_path)
    assert {row["evaluation"] for row in body["rows"]} == {"images", "episode"}


def test_a_test_that_the_images_do_not_allow_is_a_finding(pack: Path, tmp_path: Path) -> None:
    cell = made_up_cells(label="mean colour")[0]
    apart = cell.evaluations[0].model_copy(update={"name": "apart", "disjoint": "groups", "shots": 17})
    summary = _run(tmp_path, pack, cell.model_copy(update={"evaluations": (*cell.evaluations, apart)}))
    assert summary.board.counts() == {"finished": 1}
    (body,) = StudyFolder(tmp_path)
    (row,) = [row for row in body["rows"] if row["evaluation"] == "apart"]
    assert row["impossible"]
    assert "over_tasks" not in row


def test_other_images_under_the_same_name_are_another_cell(pack: Path, tmp_path: Path) -> None:
    from tests.oracles.engine import CLASSES, make_folder

    cell = made_up_cells(label="mean colour")[0]
    _run(tmp_path, pack, cell)
    folder = make_folder(tmp_path / "images", CLASSES)
    victim = sorted((folder / CLASSES[0]).iterdir())[0]
    victim.write_bytes((folder / CLASSES[1] / victim.name).read_bytes())
    summary = run_study([cell], tmp_path, {"synthetic": folder}, workers=1, device="cpu")
    assert not summary.board.entries[0].was_known
    assert len(list(StudyFolder(tmp_path))) == 2
    again = run_study(
        [cell], tmp_path, {}, workers=1, device="cpu"
    )  # packed before: found without being given
    assert again.board.entries[0].was_known


def test_a_result_of_a_later_version_is_refused_in_words(tmp_path: Path) -> None:
    folder = StudyFolder(tmp_path)
    folder.prepare()
    path = folder.cells / "a-b.json"
    path.write_text(json.dumps({"schema_version": 99}))
    with pytest.raises(Exception, match="needs a newer abomed"):
        list(folder)
    path.write_text("{")
    with pytest.raises(Exception, match="no result of a cell"):
        list(folder)
    os.remove(path)
    assert list(folder) == []

"""Who runs which trial: every point once, whoever is killed.

A search is a list of slots, laid out before the first trial: under a grid one for each point, under `tpe` as many as
there are to be trials. Workers take them; no worker makes one of its own.

Decisions a reader would question:

- What decides who runs a trial is the lock of its folder (`engine.lock`), not the storage. A trial that is running
  in the storage while nobody alive holds its folder was left by a killed worker: whoever gets the lock goes on with
  it, from its last checkpoint, under the same number. Optuna's journal has no sign of life of its workers, and its
  databases only look for one within `optimize`.
- The lock is taken after the storage has given the trial, and the trial's state is read again under it. Between the
  two another worker may have taken over a trial that looked left behind; then this one goes to the next.
- A folder that a worker elsewhere holds tells nothing here, nor does a folder on a disk that is not shared. There a
  sign of life every minute is written to the storage; a trial that a worker has watched for fifteen minutes without
  seeing one is void, and its slot is laid out anew. Clocks are not compared, and a laptop may sleep.
- Of several trials of one point, or of more trials than were asked for, those with the lowest numbers count and the
  others are void: so it does not matter if two machines lay out the same slots at once.
- A trial that ended its worker three times (for lack of memory, say) is a failed one.
"""

import random
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from abomed.config.search import Point, SearchPlan
from abomed.engine.lock import RunLock
from abomed.errors import CheckpointError
from abomed.study.search_plan import PLACE, hold
from abomed.study.search_points import (
    coded_key,
    decode,
    encode,
    finish,
    is_void,
    key_of,
    open_trial,
    propose,
)

if TYPE_CHECKING:
    from optuna import Study
    from optuna.trial import FrozenTrial, Trial

TRIALS = "trials"
BEAT, STALE = 60.0, 900.0  # seconds
MOST_STARTS = 3


@dataclass(frozen=True)
class Claim:
    """A trial that this process alone runs."""

    trial: "Trial"
    point: Point
    folder: Path
    lock: RunLock
    starts: int

    @property
    def number(self) -> int:
        return self.trial.number

    def give_back(self) -> None:
        """Stopped on purpose: this start does not count."""
        self.trial.set_user_attr("starts", self.starts - 1)


class Slots:
    """The trials of one search, as one worker sees them."""

    def __init__(self, study: "Study", plan: SearchPlan, out: Path, *, shared: bool) -> None:
        self.study, self.plan, self.out, self.shared = study, plan, out, shared
        self.place = (out / PLACE).read_text(encoding="ascii")
        self._watched: dict[
            int, tuple[float, float]
        ] = {}  # trial: its last sign of life, and when that was seen

    def fill(self) -> None:
        """Lay out the slots that are missing."""
        with hold(self.out / "planning"):
            trials = self.study.get_trials(deepcopy=False)
            live = [trial for trial in trials if not is_void(trial)]
            if self.plan.is_grid:
                there = {key_of(trial) for trial in live}
                for point in self.plan.points:
                    coded = encode(point)
                    if coded_key(coded) not in there:
                        self.study.enqueue_trial(coded)
                return
            if self._wanted() < self.plan.trials:
                self.study.set_user_attr("wanted", self.plan.trials)
            missing = max(0, self._wanted() - len(live))
            for point in self._unseen(trials, missing):
                self.study.enqueue_trial(point)

    @contextmanager
    def next(self) -> Iterator[Claim | None]:
        """The next trial, held as long as the block lasts; None where none is to be had now."""
        claim = self._take_up() or self._take_new()
        if claim is None:
            yield None
            return
        stop = threading.Event()
        beat = threading.Thread(target=_beat, args=(claim.trial, stop), daemon=True)
        beat.start()
        try:
            yield claim
        finally:
            stop.set()
            beat.join()
            claim.lock.__exit__(None, None, None)

    def unfinished(self) -> int:
        """Trials that wait or run."""
        return sum(not trial.state.is_finished() for trial in self.study.get_trials(deepcopy=False))

    def _take_up(self) -> Claim | None:
        """A trial that a killed worker left behind."""
        for trial in self.study.get_trials(deepcopy=False):
            if trial.state.name != "RUNNING":
                continue
            if self.shared or trial.user_attrs.get(PLACE) == self.place:
                claim = self._lock(trial.number)
                if claim is not None:
                    return claim
            if self._silence(trial) > STALE:
                self._void(trial.number, "its worker gave no sign of life")
                self.fill()
        return None

    def _take_new(self) -> Claim | None:
        while any(trial.state.name == "WAITING" for trial in self.study.get_trials(deepcopy=False)):
            claim = self._lock(self.study.ask().number)
            if claim is not None:
                return claim
        return None

    def _lock(self, number: int) -> Claim | None:
        """Take the trial, unless another worker holds or has finished it, or it is void."""
        folder = self.out / TRIALS / f"{number:05d}"
        lock = RunLock(folder)
        try:
            lock.__enter__()
        except CheckpointError as error:
            if isinstance(error.__cause__, OSError):
                raise
            return None
        try:
            claim = self._claim(number, folder, lock)
        except BaseException:
            lock.__exit__(None, None, None)
            raise
        if claim is None:
            lock.__exit__(None, None, None)
            with suppress(OSError):
                folder.rmdir()  # a void trial leaves no folder; another's is not empty
        return claim

    def _claim(self, number: int, folder: Path, lock: RunLock) -> Claim | None:
        frozen = self.study.get_trials(deepcopy=False)[number]
        if frozen.state.name != "RUNNING":
            return None
        if "fixed_params" not in frozen.system_attrs or self._rank(frozen) >= self._wanted():
            self._void(number, "more trials than were asked for")
            return None
        trial = open_trial(self.study, frozen)
        trial.set_user_attr(PLACE, self.place)
        # Two samplers may propose one point at the same time: the later one must see the earlier one's.
        with nullcontext() if self.plan.is_grid else hold(self.out / "asking"):
            coded = propose(trial, self.plan.sampled)
            repeated = self._repeats(number, coded_key(coded))
        if repeated:
            self._void(number, "the point of an earlier trial")
            self.fill()
            return None
        starts = frozen.user_attrs.get("starts", 0) + 1
        if starts > MOST_STARTS:
            trial.set_user_attr("error", f"it ended its worker {MOST_STARTS} times")
            finish(self.study, number, None)
            return None
        trial.set_user_attr("starts", starts)
        trial.set_user_attr("beat", time.time())
        return Claim(trial, decode(coded), folder, lock, starts)

    def _silence(self, trial: "FrozenTrial") -> float:
        """For how many seconds this process has seen no new sign of life."""
        beat, now = float(trial.user_attrs.get("beat", 0.0)), time.monotonic()
        last, since = self._watched.get(trial.number, (-1.0, now))
        if beat != last:
            since = now
        self._watched[trial.number] = beat, since
        return now - since

    def _rank(self, trial: "FrozenTrial") -> int:
        """How many trials that count have a lower number."""
        earlier = self.study.get_trials(deepcopy=False)[: trial.number]
        return sum(not is_void(each) for each in earlier)

    def _repeats(self, number: int, key: str) -> bool:
        earlier = self.study.get_trials(deepcopy=False)[:number]
        return any(key_of(each) == key for each in earlier if not is_void(each))

    def _wanted(self) -> int:
        return self.plan.trials if self.plan.is_grid else int(self.study.user_attrs.get("wanted", 0))

    def _void(self, number: int, why: str) -> None:
        trial = self.study.get_trials(deepcopy=False)[number]
        if not trial.state.is_finished():
            open_trial(self.study, trial).set_user_attr("void", why)
            finish(self.study, number, None)

    def _unseen(self, trials: "Sequence[FrozenTrial]", count: int) -> list[Point]:
        """Empty slots, for `tpe` to fill; in a finite space, after a repetition, points not seen yet instead."""
        if not self.plan.points or not any(is_void(trial) for trial in trials):
            return [{} for _ in range(count)]
        there = {key_of(trial) for trial in trials if not is_void(trial)}
        left = [coded for coded in map(encode, self.plan.points) if coded_key(coded) not in there]
        return random.Random(len(trials)).sample(left, min(count, len(left)))


def _beat(trial: "Trial", stop: threading.Event) -> None:
    while not stop.wait(BEAT):
        with suppress(Exception):  # a lost sign of life is no reason to end a training
            trial.set_user_attr("beat", time.time())

"""Signs of life between the ranks of one training, so that the end of one is told by the others, with its cause.

Decisions:
- A collective waits for a rank that is gone, at worst for ever and always without saying for whom. So each rank has
  a thread that once a second counts up in the store that the launcher keeps, and looks at the others: who left a
  message, whose process is dead (on the same machine), whose count stands still.
- The thread ends the process when the main one does not come out of its collective by itself: from Python there is
  no other way out of a call that waits for a dead GPU rank. What is on the disk is whole at any moment.
"""

import json
import os
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

from torch.distributed.distributed_c10d import Store

from abomed.engine.lock import Holder, this_process

BEAT = 1.0  # seconds between two signs of life
SILENCE = 40.0  # seconds without one, after which a rank counts as lost
PATIENCE = 10.0  # seconds that the main thread gets to say itself who was lost


@dataclass(frozen=True)
class Lost:
    """A rank that has gone, and what is known of it."""

    rank: int
    cause: str


class Signs:
    """This rank's signs of life, and its look at the others'."""

    def __init__(self, store: Store, rank: int, count: int) -> None:
        self.store, self.rank, self.others = store, rank, [r for r in range(count) if r != rank]
        self.holders: dict[int, Holder] = {}
        self.beats = {other: (0, time.monotonic()) for other in self.others}
        self.looking = threading.Lock()
        store.set(f"process/{rank}", json.dumps(asdict(this_process())))

    def beat(self) -> None:
        self.store.add(f"beat/{self.rank}", 1)

    def leave(self) -> None:
        """This rank has done all its work."""
        self.store.set(f"left/{self.rank}", "1")

    def tell(self, cause: str) -> None:
        """This rank ends before its work is done."""
        self.store.set(f"cause/{self.rank}", cause)

    def told(self, rank: int) -> str | None:
        return self._read(f"cause/{rank}")

    def look(self) -> Lost | None:
        """The first rank that has gone."""
        with self.looking:
            for other in self.others:
                cause = self._fate(other)
                if cause is not None:
                    return Lost(other, cause)
        return None

    def wait_for_loss(self, seconds: float) -> Lost | None:
        """The first rank that has gone, as soon as that is known."""
        deadline = time.monotonic() + seconds
        while (lost := self.look()) is None and time.monotonic() < deadline:
            time.sleep(0.1)
        return lost

    def _fate(self, other: int) -> str | None:
        cause = self.told(other)
        if cause is not None:
            return cause
        if self._read(f"left/{other}") is not None:
            return None
        holder = self._holder(other)
        if holder is not None and holder.is_dead:
            # It may have told its cause, or left, between the two looks.
            told = self.told(other)
            if told is None and self._read(f"left/{other}") is not None:
                return None
            killed = f"process {holder.pid} is dead and left no message: killed by a signal, or for memory"
            return told or killed
        count, (before, since) = self.store.add(f"beat/{other}", 0), self.beats[other]
        if count != before:
            self.beats[other] = (count, time.monotonic())
        elif time.monotonic() - since > SILENCE:
            return f"no sign of life for {SILENCE:.0f} seconds"
        return None

    def _holder(self, other: int) -> Holder | None:
        if other not in self.holders:
            text = self._read(f"process/{other}")
            if text is None:
                return None
            self.holders[other] = Holder(**json.loads(text))
        return self.holders[other]

    def _read(self, key: str) -> str | None:
        return self.store.get(key).decode() if self.store.check([key]) else None


class Watch:
    """The thread that gives and looks for signs of life; `farewell` makes the last message of a loss."""

    def __init__(self, signs: Signs, farewell: Callable[[Lost], str]) -> None:
        self.signs, self.farewell = signs, farewell
        self.ending = threading.Event()  # the main thread is on its way out and needs nobody's help
        self.thread = threading.Thread(target=self._run, name="abomed-liveness", daemon=True)
        self.thread.start()

    def stop(self) -> None:
        self.ending.set()
        self.thread.join(2 * BEAT)

    def _run(self) -> None:
        while not self.ending.wait(BEAT):
            lost = self._look()
            if lost is not None and not self.ending.wait(PATIENCE):
                sys.stderr.write(f"error: {self.farewell(lost)}\n")
                sys.stderr.flush()
                os._exit(1)

    def _look(self) -> Lost | None:
        try:
            self.signs.beat()
            return self.signs.look()
        except RuntimeError:  # the store went with the launcher, or with the rank that kept it
            return Lost(0, "the store that the ranks share is gone, and with it the launcher or rank 0")

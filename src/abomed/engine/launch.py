"""The processes that torchrun starts as the ranks of one training.

Decisions:
- `torchrun --nproc-per-node N -m abomed train …` is the whole interface: rank and number of ranks come from its
  environment variables, each rank takes the GPU of its local number, and without them a training is alone.
- Of several ranks one speaks, the lowest that lives. When a rank ends by an error or a kill, the others say which
  one, why, and how to go on; their own errors from broken collectives say nothing and are not shown.
- SIGTERM, which torchrun sends to all when one has failed or a cluster wants the machine back, asks for a stop after
  the iteration in hand, like Ctrl-C. Torchrun kills what has not ended after 30 seconds.
"""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import PrefixStore
from torch.distributed.rendezvous import rendezvous

from abomed.engine.liveness import PATIENCE, Lost, Signs, Watch
from abomed.engine.parallel import Ranks, RanksPartedError
from abomed.errors import AbomedError, ConfigError

_LONGEST = timedelta(
    minutes=30
)  # of one collective; a rank that is gone is noticed by its signs of life instead


def launched_ranks() -> int:
    """How many ranks torchrun started; 1 without it."""
    return int(os.environ.get("WORLD_SIZE", "1")) if "RANK" in os.environ else 1


def device_of_rank(device: torch.device) -> torch.device:
    """This rank's own device where all were told `device`."""
    if launched_ranks() == 1 or device.type == "cpu":
        return device
    local = int(os.environ.get("LOCAL_RANK", "0"))
    if device.type != "cuda" or device.index is not None:
        raise ConfigError(
            "several ranks cannot share one device", found=f"--device {device}", right="--device cuda or cpu"
        )
    there = torch.cuda.device_count()
    if local >= there:
        raise ConfigError(
            "there are more ranks than GPUs on this machine",
            found=f"{there} GPU{'' if there == 1 else 's'}, and a rank with local number {local}",
            right=f"--nproc-per-node {there}",
        )
    return torch.device("cuda", local)


@contextmanager
def join_ranks(device: torch.device, out: Path) -> Iterator[Ranks]:
    """This process as one of the ranks that write the run `out`, until they are done or one of them is lost."""
    if launched_ranks() == 1:
        yield Ranks()
        return
    if device.type == "cuda":
        torch.cuda.set_device(device)
    store, rank, count = next(rendezvous("env://"))
    own = store.clone()  # of a connection of its own: the watching thread must not wait for the main one
    dist.init_process_group(
        "nccl" if device.type == "cuda" else "gloo",
        store=PrefixStore("collectives", store),
        rank=rank,
        world_size=count,
        timeout=_LONGEST,
    )
    signs = Signs(PrefixStore("signs", own), rank, count)
    watch = Watch(signs, lambda lost: str(_ended(lost, count, out)))
    try:
        with _asked_to_end() as asked:
            yield Ranks(rank, count, dist.group.WORLD, asked.is_set)
    except BaseException as error:
        watch.ending.set()
        _part(error, signs, count, out)
        raise
    signs.leave()
    watch.stop()
    dist.destroy_process_group()


@contextmanager
def _asked_to_end() -> Iterator[threading.Event]:
    asked = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield asked
        return
    usual = signal.signal(signal.SIGTERM, lambda *_: asked.set())
    yield asked
    # Not after an error: torchrun's SIGTERM follows the loss of a rank, and must not end this one before it has told.
    signal.signal(signal.SIGTERM, usual)


def _part(error: BaseException, signs: Signs, count: int, out: Path) -> None:
    """Leave after `error`: with another rank's end if that was its cause, told by one rank alone."""
    if isinstance(error, KeyboardInterrupt):
        with suppress(RuntimeError):
            signs.leave()
        if signs.rank > 0:
            raise SystemExit(130) from None
        return
    own = isinstance(error, AbomedError) or not isinstance(error, RuntimeError | RanksPartedError)
    if own:
        with suppress(RuntimeError):
            signs.tell(str(error).replace("\n  ", "; "))
        # Where all ranks fail alike (lost numbers, a wrong setting), one of them says it.
        lost = _look(signs, 3.0) if signs.rank > 0 else None
        if lost is not None and lost.rank == 0 and isinstance(error, AbomedError):
            raise SystemExit(error.exit_code) from None
        return
    lost = _look(signs, PATIENCE)
    if lost is None:  # a failure of this rank's own
        with suppress(RuntimeError):
            signs.tell(f"{type(error).__name__}: {error}")
        if isinstance(error, RanksPartedError):
            raise AbomedError("the ranks of this training lost each other", found=str(error)) from None
        return
    with suppress(RuntimeError):
        signs.leave()  # it ends because of another, which alone is to be told
    if signs.rank > (1 if lost.rank == 0 else 0):
        raise SystemExit(1) from None
    raise _ended(lost, count, out) from None


def _look(signs: Signs, seconds: float) -> Lost | None:
    try:
        return signs.wait_for_loss(seconds)
    except RuntimeError:
        return Lost(0, "the store that the ranks share is gone, and with it the launcher or rank 0")


def _ended(lost: Lost, count: int, out: Path) -> AbomedError:
    return AbomedError(
        f"rank {lost.rank} of {count} has ended, and with it the training",
        where=str(out),
        found=lost.cause,
        right="the same command with --resume goes on from the last checkpoint, with any number of ranks",
    )

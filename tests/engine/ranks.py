"""Ranks as threads of one process, connected by gloo as processes would be."""

import threading
from collections.abc import Callable
from datetime import timedelta
from typing import TypeVar

from torch.distributed import HashStore, ProcessGroupGloo

from abomed.engine.parallel import Ranks

Result = TypeVar("Result")


def on_ranks(count: int, work: Callable[[Ranks], Result]) -> list[Result]:
    """What `work` returns on each of `count` ranks."""
    store, results, errors = HashStore(), dict[int, Result](), list[BaseException]()

    def run(number: int) -> None:
        try:
            group = ProcessGroupGloo(store, number, count, timedelta(seconds=60))
            results[number] = work(Ranks(number, count, group))
        except BaseException as error:  # told by the thread that waits
            errors.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return [results[number] for number in range(count)]

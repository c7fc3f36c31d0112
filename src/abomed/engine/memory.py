"""The most memory that a computation's own tensors held at once, on any device.

A process's resident size says little on a processor, where allocators keep what was freed. So every operation's
results are counted when they appear and discounted when their storage dies. What existed before is not counted,
views cost nothing, and scratch space inside one operation is not seen.
"""

import weakref
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

Result = TypeVar("Result")


def peak_memory(run: Callable[[], Result]) -> tuple[Result, int]:
    """What `run` returns, and the peak in bytes."""
    with _Meter() as meter:
        result = run()
    return result, meter.peak


class _Meter(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.alive = self.peak = 0
        self.known: set[int] = set()

    def __torch_dispatch__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        for value in tree_iter((args, kwargs)):
            self._note(value, counts=False)
        result = func(*args, **(kwargs or {}))
        for value in tree_iter(result):
            self._note(value, counts=True)
        return result

    def _note(self, value: object, counts: bool) -> None:
        if not isinstance(value, torch.Tensor):
            return
        storage = value.untyped_storage()
        key = storage._cdata
        if key in self.known:
            return
        size = storage.nbytes() if counts else 0
        self.known.add(key)
        self.alive += size
        self.peak = max(self.peak, self.alive)
        weakref.finalize(storage, self._forget, key, size).atexit = False

    def _forget(self, key: int, size: int) -> None:
        self.known.discard(key)
        self.alive -= size

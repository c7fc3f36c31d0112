"""Other projects' code, where it is installed: loaded as it is, and never guessed where it is not.

easyfsl's packages import torchvision for networks that are not needed here; its one file is loaded past them.
"""

import importlib
import sys
import types
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import Any


def installed_version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def load(name: str) -> Any | str:
    """The module, or why there is none."""
    if find_spec(name) is None:
        return "not installed"
    try:
        return importlib.import_module(name)
    except Exception as error:  # whatever a broken or outdated installation raises is the answer
        return _fault(error)


def load_finetune() -> Any | str:
    """easyfsl's class Finetune, or why there is none."""
    spec = find_spec("easyfsl")
    if spec is None or spec.submodule_search_locations is None:
        return "not installed"
    root = next(iter(spec.submodule_search_locations))
    kept = {name: module for name, module in sys.modules.items() if name.split(".")[0] == "easyfsl"}
    try:
        for name, folder in (("easyfsl", root), ("easyfsl.methods", f"{root}/methods")):
            package = types.ModuleType(name)
            package.__path__ = [folder]
            sys.modules[name] = package
        with _without_torchvision():
            return importlib.import_module("easyfsl.methods.finetune").Finetune
    except Exception as error:
        sys.modules.update(kept)
        return _fault(error)


def _fault(error: Exception) -> str:
    return f"does not load: {type(error).__name__}: {str(error).partition(chr(10))[0]}"


class _without_torchvision:  # noqa: N801  (reads as a statement)
    """While the file is loaded, an empty torchvision where there is none."""

    def __enter__(self) -> None:
        self.added = [n for n in ("torchvision", "torchvision.transforms") if n not in sys.modules]
        if find_spec("torchvision") is not None:
            self.added = []
        for name in self.added:
            sys.modules[name] = types.ModuleType(name)

    def __exit__(self, *_: object) -> None:
        for name in self.added:
            sys.modules.pop(name, None)

"""Few-shot medical image classification: ABO-Med, MedRAug and their rivals, on your own images.

Public names are loaded when they are first used, so that `import abomed` and `abomed --help` need no torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from abomed.audit.report import audit as audit_pack
    from abomed.config.episodes import EpisodeSpec as EpisodeSpec
    from abomed.data.manifest import read_manifest as read_manifest
    from abomed.data.pack import write_pack as write_pack
    from abomed.data.packed import open_pack as open_pack
    from abomed.data.splits import assign_parts as assign_parts
    from abomed.data.splits import load_split as load_split
    from abomed.episodes import class_table as class_table
    from abomed.episodes import draw_episodes as draw_episodes
    from abomed.episodes import gather as gather

__version__ = "0.1.0.dev0"

_HOMES = {
    "EpisodeSpec": "abomed.config.episodes",
    "assign_parts": "abomed.data.splits",
    "audit_pack": "abomed.audit",
    "class_table": "abomed.episodes",
    "draw_episodes": "abomed.episodes",
    "gather": "abomed.episodes",
    "load_split": "abomed.data.splits",
    "open_pack": "abomed.data.packed",
    "read_manifest": "abomed.data.manifest",
    "write_pack": "abomed.data.pack",
}

__all__ = ["__version__", *_HOMES]  # noqa: PLE0604  (a literal table; the names resolve below)


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'abomed' has no attribute '{name}'")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)

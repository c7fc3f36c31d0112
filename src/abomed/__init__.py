"""Few-shot medical image classification: ABO-Med, MedRAug and their rivals, on your own images.

Public names are loaded when they are first used, so that `import abomed` and `abomed --help` need no torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from abomed.audit.report import audit as audit_pack  # noqa: F401  (a public name of another spelling)
    from abomed.classify.estimator import FewShotClassifier as FewShotClassifier
    from abomed.classify.weights import load as load
    from abomed.classify.weights import save as save
    from abomed.config.episodes import EpisodeSpec as EpisodeSpec
    from abomed.config.run import RunConfig as RunConfig
    from abomed.config.run import load_run_config as load_run_config
    from abomed.config.train import EvaluateSettings as EvaluateSettings
    from abomed.data.manifest import read_manifest as read_manifest
    from abomed.data.pack import write_pack as write_pack
    from abomed.data.packed import open_pack as open_pack
    from abomed.data.splits import assign_parts as assign_parts
    from abomed.data.splits import load_split as load_split
    from abomed.engine.assess import assess as assess
    from abomed.engine.assess import load_run as load_run
    from abomed.engine.material import choose_split as choose_split
    from abomed.engine.material import divide as divide
    from abomed.engine.train import train as train
    from abomed.episodes import class_table as class_table
    from abomed.episodes import draw_episodes as draw_episodes
    from abomed.episodes import gather as gather
    from abomed.models import create_backbone as create_backbone
    from abomed.models import list_backbones as list_backbones

__version__ = "0.1.0.dev0"

_HOMES = {
    "EpisodeSpec": "abomed.config.episodes:EpisodeSpec",
    "EvaluateSettings": "abomed.config.train:EvaluateSettings",
    "FewShotClassifier": "abomed.classify.estimator:FewShotClassifier",
    "RunConfig": "abomed.config.run:RunConfig",
    "assess": "abomed.engine.assess:assess",
    "assign_parts": "abomed.data.splits:assign_parts",
    "audit_pack": "abomed.audit:audit",
    "choose_split": "abomed.engine.material:choose_split",
    "class_table": "abomed.episodes:class_table",
    "create_backbone": "abomed.models:create_backbone",
    "divide": "abomed.engine.material:divide",
    "draw_episodes": "abomed.episodes:draw_episodes",
    "gather": "abomed.episodes:gather",
    "list_backbones": "abomed.models:list_backbones",
    "load": "abomed.classify.weights:load",
    "load_run": "abomed.engine.assess:load_run",
    "load_run_config": "abomed.config.run:load_run_config",
    "load_split": "abomed.data.splits:load_split",
    "open_pack": "abomed.data.packed:open_pack",
    "read_manifest": "abomed.data.manifest:read_manifest",
    "save": "abomed.classify.weights:save",
    "train": "abomed.engine.train:train",
    "write_pack": "abomed.data.pack:write_pack",
}

__all__ = ["__version__", *_HOMES]  # noqa: PLE0604  (a literal table; the names resolve below)


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'abomed' has no attribute '{name}'")
    module, _, attribute = _HOMES[name].partition(":")
    return getattr(import_module(module), attribute)


def __dir__() -> list[str]:
    return sorted(__all__)

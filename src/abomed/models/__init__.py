"""Backbones: images of tasks in, features out, with their normalisation said aloud."""

from abomed.models.backbone import Backbone, Features, extract, task_slices
from abomed.models.normalise import LayerStatistics, RowPlan, Statistics
from abomed.models.registry import create_backbone, list_backbones

__all__ = [
    "Backbone",
    "Features",
    "LayerStatistics",
    "RowPlan",
    "Statistics",
    "create_backbone",
    "extract",
    "list_backbones",
    "task_slices",
]

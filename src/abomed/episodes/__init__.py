"""Few-shot tasks: which images, drawn reproducibly, and gathered on the device."""

from abomed.episodes.batch import Batch, gather
from abomed.episodes.fits import Shortfall, check_fit, largest_fit, shortfalls
from abomed.episodes.sampler import draw_episodes, draw_tasks
from abomed.episodes.table import ClassTable, class_table
from abomed.episodes.tasks import Episodes

__all__ = [
    "Batch",
    "ClassTable",
    "Episodes",
    "Shortfall",
    "check_fit",
    "class_table",
    "draw_episodes",
    "draw_tasks",
    "gather",
    "largest_fit",
    "shortfalls",
]

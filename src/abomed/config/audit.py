"""Settings of the audit: what counts as a copy, as a shortcut, and as too few."""

from typing import Annotated

from pydantic import Field

from abomed.config.base import Settings

Share = Annotated[float, Field(gt=0, lt=1)]
Shots = Annotated[int, Field(ge=1)]


class AuditSettings(Settings):
    """How a pack is examined. The defaults were chosen on the real data sets and are stated in the report."""

    near_bits: Annotated[int, Field(ge=0, le=16)] = 10
    """Most bits (of 63) in which the perceptual hashes of two images may differ to be compared at all."""

    near_correlation: Share = 0.98
    """Least correlation of two 24 x 24 grey thumbnails, in the best of 8 orientations, of near-duplicates."""

    near_pairs: Annotated[int, Field(ge=1)] = 100_000
    """Most pairs of near-duplicates that are kept; the report says when there were more."""

    ways: Annotated[int, Field(ge=2)] = 3
    """Classes of the task that findings are stated for."""

    shots: Shots = 5
    """Labelled images per class of the task that findings are stated for."""

    queries: Annotated[int, Field(ge=1)] = 15
    """Tested images per class of all tasks."""

    table_ways: tuple[Annotated[int, Field(ge=2)], ...] = (2, 3, 4, 5)
    """Numbers of ways in the table of tasks that fit."""

    table_shots: tuple[Shots, ...] = (1, 3, 5, 10)
    """Numbers of shots in the tables of tasks that fit and of queries that share a group."""

    few_groups: Annotated[int, Field(ge=2)] = 5
    """Warn of classes with fewer patients, lesions or slides than this."""

    images_per_class: Annotated[int, Field(ge=10)] = 300
    """Most images of each class, drawn by seed, on which shortcuts are measured."""

    folds: Annotated[int, Field(ge=2)] = 5
    """Parts of the cross-validation of shortcuts."""

    warn_above: Share = 0.10
    """Warn when a shortcut's balanced accuracy exceeds chance by more than this."""

    note_above: Share = 0.05
    """Note a shortcut whose balanced accuracy exceeds chance by more than this."""

    seed: Annotated[int, Field(ge=0, lt=2**32)] = 0
    """Seed of the images, folds and trees of the shortcuts and of the tasks drawn."""

    @property
    def all_shots(self) -> tuple[int, ...]:
        """Those of the tables and those that findings are stated for, ascending."""
        return tuple(sorted({*self.table_shots, self.shots}))

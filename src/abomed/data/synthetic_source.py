"""The synthetic set as a source like any other: packed by the same code as a user's folder."""

import io
from dataclasses import dataclass
from functools import cached_property

from PIL import Image

from abomed.config.synthetic import SyntheticSettings
from abomed.data.manifest import Manifest
from abomed.data.records import Record
from abomed.data.synthetic import SYNTHETIC_VERSION, SyntheticSpec, plan, render


@dataclass(frozen=True)
class SyntheticStore:
    """Draws a file when it is read; travels to worker processes as its settings."""

    settings: SyntheticSettings

    def read(self, path: str) -> bytes:
        buffer = io.BytesIO()
        # Stored, not compressed: these bytes live in memory only.
        Image.fromarray(render(self.settings, self._specs[path])).save(buffer, "PNG", compress_level=0)
        return buffer.getvalue()

    @cached_property
    def _specs(self) -> dict[str, SyntheticSpec]:
        return {spec.path: spec for spec in plan(self.settings)}


def synthetic_manifest(settings: SyntheticSettings) -> Manifest:
    """The set of `settings`, ready for packing."""
    specs = plan(settings)
    records = tuple(
        sorted((Record(s.path, s.class_name, s.group) for s in specs), key=lambda r: (r.label, r.path))
    )
    return Manifest(
        source="synthetic",
        where=f"seed {settings.seed}",
        layout=f"synthetic stained cells, version {SYNTHETIC_VERSION}, seed {settings.seed} "
        f"({len(settings.classes)} classes)",
        records=records,
        class_names=tuple(dict.fromkeys(record.label for record in records)),
        group_kind="patient",
        licence="Apache-2.0, as abomed itself",
        findings=(),
        store=SyntheticStore(settings),
    )

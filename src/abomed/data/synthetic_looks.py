"""What tells the synthetic classes apart: one frozen table of what a pathologist looks at.

Lengths are in units of a frame of 128, whatever the size in pixels. Colour is no part of a look: stain,
light and optics belong to the patient's laboratory (`synthetic_stain`), and the same laboratories serve every
class. `CELL` is the ordinary cell; a class states only what differs, and ordinary cells stand among its own
(`typical` is the share of its own), because real fields are never pure. Changing a number here changes every
image drawn: it needs a new `SYNTHETIC_VERSION`.
"""

from dataclasses import dataclass, replace
from typing import Literal

from abomed.config.synthetic import SyntheticClass

Arrangement = Literal["scattered", "aligned", "clustered", "ring"]
NucleusForm = Literal["whole", "mitotic", "fragmented"]


@dataclass(frozen=True)
class ClassLook:
    """How the cells of a class look and lie."""

    cell_radius: float = 23.0  # of the cytoplasm
    cell_aspect: float = 1.25  # long axis over short axis
    cell_density: float = 1.0  # stain taken up by the cytoplasm
    cell_wobble: float = 0.09  # how far the border leaves an ellipse
    nucleus_radius: float = 9.5
    nucleus_spread: float = 0.1  # standard deviation of the radius, relative
    nucleus_aspect: float = 1.2
    nucleus_wobble: float = 0.04
    nucleus_depth: float = 1.0  # haematoxylin of an average nucleus
    fine: float = 0.16  # amplitude of fine chromatin grains
    coarse: float = 0.1  # amplitude of coarse chromatin clumps
    membrane: float = 0.3  # haematoxylin of the rim above the nucleus
    nucleoli: tuple[int, int] = (0, 1)  # fewest and most
    nucleolus_radius: float = 1.4
    nuclei: int = 1  # per cell
    form: NucleusForm = "whole"
    halo: float = 0.0  # cleared rim around the nucleus, in units
    vacuoles: tuple[int, int] = (0, 0)  # fewest and most
    eccentric: float = 0.12  # how far the nucleus lies from the centre, relative to the cell
    arrangement: Arrangement = "scattered"
    inflammation: tuple[int, int] = (0, 2)  # lymphocytes and neutrophils among the cells
    typical: float = 0.9  # share of the cells that look like this; the rest are ordinary
    coverage: float = 1.0  # of the frame by cells, relative to what the field draws


CELL = ClassLook()

LOOKS: dict[SyntheticClass, ClassLook] = {
    "even_chromatin": CELL,
    "small_dark_nuclei": replace(
        CELL,
        cell_radius=27.0,
        cell_wobble=0.14,
        nucleus_radius=4.8,
        nucleus_depth=1.9,
        fine=0.04,
        coarse=0.03,
        membrane=0.1,
        nucleoli=(0, 0),
    ),
    "large_pale_nuclei": replace(
        CELL,
        cell_radius=25.0,
        nucleus_radius=14.5,
        nucleus_depth=0.5,
        fine=0.07,
        coarse=0.05,
        membrane=0.42,
        nucleoli=(0, 0),
    ),
    "high_nuclear_ratio": replace(
        CELL,
        cell_radius=17.0,
        nucleus_radius=13.5,
        nucleus_depth=1.05,
        nucleus_spread=0.14,
        eccentric=0.05,
    ),
    "elongated_nuclei": replace(
        CELL,
        cell_radius=19.0,
        cell_aspect=3.2,
        nucleus_radius=8.5,
        nucleus_aspect=3.0,
        nucleus_wobble=0.02,
        arrangement="aligned",
    ),
    "coarse_chromatin": replace(
        CELL, nucleus_radius=11.5, nucleus_depth=0.85, fine=0.1, coarse=0.75, membrane=0.35, nucleoli=(0, 0)
    ),
    "prominent_nucleoli": replace(
        CELL,
        nucleus_radius=12.5,
        nucleus_depth=0.6,
        fine=0.08,
        coarse=0.05,
        membrane=0.3,
        nucleoli=(1, 2),
        nucleolus_radius=3.6,
    ),
    "folded_membranes": replace(
        CELL,
        nucleus_radius=12.0,
        nucleus_wobble=0.26,
        nucleus_depth=0.7,
        membrane=0.9,
        fine=0.1,
        nucleoli=(0, 0),
    ),
    "crowded_clusters": replace(
        CELL,
        cell_radius=12.5,
        nucleus_radius=8.5,
        nucleus_spread=0.14,
        nucleus_depth=0.95,
        arrangement="clustered",
        coverage=0.9,
        typical=1.0,
    ),
    "mitotic_figures": replace(
        CELL, cell_radius=20.0, cell_wobble=0.05, cell_density=0.8, form="mitotic", typical=0.65
    ),
    "binucleated": replace(CELL, cell_radius=25.0, nucleus_radius=8.6, nuclei=2, eccentric=0.04),
    "perinuclear_halos": replace(
        CELL,
        cell_radius=26.0,
        nucleus_radius=8.0,
        nucleus_wobble=0.12,
        nucleus_depth=1.4,
        halo=7.0,
        cell_wobble=0.12,
        eccentric=0.08,
    ),
    "vacuolated": replace(
        CELL,
        cell_radius=24.0,
        nucleus_radius=7.6,
        nucleus_aspect=1.7,
        nucleus_depth=1.2,
        vacuoles=(2, 5),
        eccentric=0.62,
    ),
    "inflammatory": replace(CELL, inflammation=(12, 20), coverage=0.8),
    "apoptotic": replace(
        CELL,
        cell_radius=13.0,
        cell_aspect=1.1,
        cell_density=1.7,
        cell_wobble=0.04,
        nucleus_radius=6.5,
        form="fragmented",
        typical=0.7,
        coverage=0.9,
    ),
    "gland_rings": replace(
        CELL,
        cell_radius=14.0,
        cell_aspect=1.7,
        nucleus_radius=7.2,
        nucleus_aspect=1.5,
        arrangement="ring",
        eccentric=0.3,
        typical=1.0,
    ),
}

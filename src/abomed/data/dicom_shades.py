"""From stored grey values of a DICOM file to shades: modality, values of interest, black and white.

The standard's chain (PS3.3 C.7.6.16, C.11.1, C.11.2; PS3.4 N.2): stored value → modality value (slope and intercept,
or a table) → shade (a window or a table) → turned round where MONOCHROME1 says that small values are bright.

Decisions a reader would question:

- A window told by `--window` speaks of modality values (Hounsfield units on a CT) and comes before the file's own. Of
  several windows in a file the first is taken, and a table of interest (VOI LUT) comes before windows.
- Without a window, unsigned values of at most 16 bits are scaled by the full range of the stored bits, as for PNG and
  TIFF. Signed, deeper and floating-point values are refused: what is black and what is white is not known.
- Single-frame files of the enhanced kind hold slope and window in their functional groups: looked for there first.
- The chain is worked out once for each stored value that occurs and looked up for each pixel.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from abomed.config.data import DecodeSettings
from abomed.data.colours import to_shades
from abomed.data.records import Refusal, Remark
from abomed.types import Level

MOST_LEVELS = 65536
_ROWS = 256
WINDOW_ADVICE = "give --window LOW,HIGH or --window 1%,99%"


def shade_grey(
    stored: np.ndarray, bits: int, elements: Any, settings: DecodeSettings, remarks: list[Remark]
) -> np.ndarray:
    """Shades 0 to 255 of stored values; `elements` is pydicom's Dataset."""
    shades = _shade(_Grey.of(stored, bits, elements), elements, settings, remarks)
    if str(elements.PhotometricInterpretation) == "MONOCHROME1":
        remarks.append(
            Remark(Level.NOTE, "white-is-zero", "the file says that small is bright: turned round")
        )
        shades = np.uint8(255) - shades
    return shades


@dataclass(frozen=True, eq=False)
class _Grey:
    """Each modality value that occurs, and where: pixels are `levels[place]`, or `levels` where place is None."""

    levels: np.ndarray
    place: np.ndarray | None
    range: tuple[float, float] | None  # of the stored type; None where it says nothing
    padding: float | None

    @classmethod
    def of(cls, stored: np.ndarray, bits: int, elements: Any) -> "_Grey":
        if stored.dtype.kind == "f":
            if not np.isfinite(stored).all():
                raise Refusal("not-finite", "holds values that are not finite numbers")
            return cls(_to_modality(stored, elements), None, None, None)
        low, high = int(stored.min()), int(stored.max())
        signed = int(elements.get("PixelRepresentation") or 0) == 1
        full = None if signed or bits > 16 else (0.0, 2.0**bits - 1)
        padding = elements.get("PixelPaddingValue")
        within = None if full is None else _modality_range(*full, elements)
        blank = None if padding is None else float(_to_modality(np.array([int(padding)]), elements)[0])
        if high - low >= MOST_LEVELS:
            return cls(_to_modality(stored, elements), None, within, blank)
        levels = _to_modality(np.arange(low, high + 1, dtype=np.int64), elements)
        wide = np.int64 if stored.dtype.itemsize > 2 else np.int32
        return cls(levels, np.subtract(stored, low, dtype=wide).astype(np.uint16), within, blank)

    def look_up(self, shades: np.ndarray) -> np.ndarray:
        if self.place is None:
            return shades
        pixels = np.empty(self.place.shape, shades.dtype)
        for start in range(0, len(pixels), _ROWS):  # numpy makes 8 bytes of each index while it looks up
            rows = slice(start, start + _ROWS)
            pixels[rows] = np.take(shades, self.place[rows])
        return pixels

    def percentiles(self, low: float, high: float) -> tuple[float, float]:
        """Of the pixels that are not padding."""
        values = self.look_up(self.levels)
        if self.padding is not None:
            inside = values != self.padding
            values = values[inside] if inside.any() else values
        first, second = (float(level) for level in np.percentile(values, (low, high)))
        return first, max(second, math.nextafter(first, math.inf))


def _shade(grey: _Grey, elements: Any, settings: DecodeSettings, remarks: list[Remark]) -> np.ndarray:
    if settings.window != "full":
        low, high = settings.window_range
        if settings.window_in_percent:
            low, high = grey.percentiles(low, high)
        remarks.append(Remark(Level.NOTE, "deep-grey", f"grey values windowed by {settings.window}"))
        return grey.look_up(to_shades(grey.levels, low, high))
    told = _group(elements, "FrameVOILUTSequence")
    if told.get("VOILUTSequence"):
        remarks.append(Remark(Level.NOTE, "dicom-window", "grey values mapped by the table in the file"))
        table = _Table.of(told.VOILUTSequence[0], elements)
        return grey.look_up(to_shades(table.look_up(grey.levels), 0, 2.0**table.bits - 1))
    window = _window(told, remarks)
    if window is not None:
        return grey.look_up(window.shades(grey.levels))
    if grey.range is None:
        low, high = float(grey.levels.min()), float(grey.levels.max())
        raise Refusal(
            "needs-window",
            f"a DICOM file without a window, with signed, deep or floating-point values from {low:g} to {high:g}: "
            "what is black and what is white is not known",
            WINDOW_ADVICE,
        )
    low, high = grey.range
    if high - low > 255:
        text = f"no window in the file: grey scaled by full range ({low:,g} to {high:,g})"
        remarks.append(Remark(Level.NOTE, "deep-grey", text))
    return grey.look_up(to_shades(grey.levels, low, max(high, math.nextafter(low, math.inf))))


def _group(elements: Any, name: str) -> Any:
    """Where this module's elements stand: in the frame's functional group, the shared one, or the file itself."""
    for place in ("PerFrameFunctionalGroupsSequence", "SharedFunctionalGroupsSequence"):
        groups = elements.get(place)
        inside = groups[0].get(name) if groups else None
        if inside:
            return inside[0]
    return elements


def _to_modality(stored: np.ndarray, elements: Any) -> np.ndarray:
    told = _group(elements, "PixelValueTransformationSequence")
    if told.get("ModalityLUTSequence"):
        return _Table.of(told.ModalityLUTSequence[0], elements).look_up(stored)
    slope, intercept = _number(told, "RescaleSlope"), _number(told, "RescaleIntercept")
    slope, intercept = 1.0 if slope is None else slope, 0.0 if intercept is None else intercept
    if not (math.isfinite(slope) and math.isfinite(intercept)) or slope == 0:
        text = "DICOM, but its rescale slope and intercept cannot be used"
        raise Refusal("damaged", text, "export the file again")
    if slope == 1 and intercept == 0:
        return stored
    return stored * slope + intercept


def _modality_range(low: float, high: float, elements: Any) -> tuple[float, float]:
    told = _group(elements, "PixelValueTransformationSequence")
    if told.get("ModalityLUTSequence"):
        return 0.0, 2.0 ** _Table.of(told.ModalityLUTSequence[0], elements).bits - 1
    ends = _to_modality(np.array([low, high]), elements)
    return float(ends.min()), float(ends.max())


def _number(elements: Any, name: str) -> float | None:
    """The first value of an element, None where there is none."""
    value = elements.get(name)
    if value is None or value == "":
        return None
    if not isinstance(value, str) and hasattr(value, "__len__"):
        value = value[0] if len(value) else None
    return None if value is None else float(value)


@dataclass(frozen=True)
class _Window:
    centre: float
    width: float
    function: str

    def shades(self, values: np.ndarray) -> np.ndarray:
        if self.function == "SIGMOID":
            exponent = np.clip(-4 * (values - self.centre) / self.width, -700, 700)
            return (255 / (1 + np.exp(exponent)) + 0.5).astype(np.uint8)
        # LINEAR counts grey values, LINEAR_EXACT measures between them.
        centre, width = self.centre, self.width
        if self.function == "LINEAR":
            centre, width = centre - 0.5, width - 1
        low = centre - width / 2
        return to_shades(values, low, max(low + width, math.nextafter(low, math.inf)))


def _window(elements: Any, remarks: list[Remark]) -> _Window | None:
    """The first window of the file, if it can be used."""
    centre, width = _number(elements, "WindowCenter"), _number(elements, "WindowWidth")
    if centre is None or width is None:
        return None
    function = str(elements.get("VOILUTFunction") or "LINEAR")
    least = 1.0 if function == "LINEAR" else math.ulp(0)
    known = function in ("LINEAR", "LINEAR_EXACT", "SIGMOID")
    if not (known and math.isfinite(centre) and least <= width < math.inf):
        remarks.append(Remark(Level.WARN, "dicom-window", "the window in the file makes no sense: ignored"))
        return None
    more = elements.get("WindowCenter")
    count = 1 if isinstance(more, str) or not hasattr(more, "__len__") else len(more)
    text = f"grey values windowed as the file says (centre {centre:g}, width {width:g}"
    text += f"; the first of {count} windows)" if count > 1 else ")"
    remarks.append(Remark(Level.NOTE, "dicom-window", text))
    return _Window(centre, width, function)


@dataclass(frozen=True, eq=False)
class _Table:
    """A look-up table: values before its first entry take that entry, values behind its last the last."""

    first: int
    entries: np.ndarray
    bits: int

    @classmethod
    def of(cls, item: Any, elements: Any) -> "_Table":
        count, first, bits = (int(value) for value in item.LUTDescriptor)
        data, count = item.LUTData, count or MOST_LEVELS
        if isinstance(data, bytes):
            order = "<" if elements.file_meta.TransferSyntaxUID.is_little_endian else ">"
            data = np.frombuffer(data, "u1" if len(data) < 2 * count else f"{order}u2")
        entries = np.atleast_1d(np.asarray(data))[:count]
        if len(entries) < count or not 1 <= bits <= 16:
            raise Refusal("damaged", "DICOM, but its table of grey values cannot be used", "export it again")
        return cls(first, entries.astype(np.int64), bits)

    def look_up(self, values: np.ndarray) -> np.ndarray:
        first = self.first
        if first > 0x7FFF and values.min() < 0:  # written as unsigned although values are signed
            first -= 0x10000
        place = np.rint(values).astype(np.int64) - first
        entries: np.ndarray = np.take(self.entries, np.clip(place, 0, len(self.entries) - 1))
        return entries

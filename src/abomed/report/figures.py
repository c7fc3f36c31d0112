"""Pictures of images: contact sheets and episodes, drawn with Pillow so that they need no extra."""

import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import UInt8
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

from abomed.data.packed import Pack
from abomed.episodes import Episodes
from abomed.types import printable

GAP = 4
LABEL_WIDTH = 190
INK, PAPER, QUIET = "#1d2327", "#ffffff", "#6b7780"


@dataclass(frozen=True)
class Row:
    """One line of a sheet: its name and its images."""

    name: str
    images: UInt8[Tensor, "count 3 side side"]
    remark: str = ""


def contact_sheet(pack: Pack, columns: int = 8, side: int = 96, seed: int = 0) -> Image.Image:
    """A row per class with images spread over its groups."""
    return draw_sheet(contact_rows(pack, columns, seed), side)


def contact_rows(pack: Pack, columns: int = 8, seed: int = 0) -> list[Row]:
    """A row per class, for a sheet or for a page that sets names beside pictures itself."""
    rows = []
    for label, name in enumerate(pack.class_names):
        members = (pack.labels == label).nonzero()[:, 0]
        chosen = _spread(members, pack, columns, seed)
        rows.append(Row(name, pack.take(chosen), f"{len(members):,} images"))
    return rows


def episode_sheet(
    pack: Pack, episodes: Episodes, task: int = 0, columns: int = 8, side: int = 96
) -> Image.Image:
    """One task as a learner sees it: the labelled images of each class, then the first of those to be told."""
    return draw_sheet(episode_rows(pack, episodes, task, columns), side)


def episode_rows(pack: Pack, episodes: Episodes, task: int = 0, columns: int = 8) -> list[Row]:
    """Two rows per class of a task: support, then query."""
    rows = []
    for way, label in enumerate(episodes.classes[task].tolist()):
        name = pack.class_names[label]
        support, query = episodes.support[task, way][:columns], episodes.query[task, way][:columns]
        rows.append(Row(name, pack.take(support.cpu()), f"support, {episodes.spec.shots} labelled"))
        rows.append(Row("", pack.take(query.cpu()), f"query, {len(query)} of {episodes.spec.queries}"))
    return rows


def draw_strip(images: UInt8[Tensor, "count 3 side side"], side: int) -> Image.Image:
    """Images in a row, without a name."""
    strip = Image.new("RGB", (strip_width(len(images), side), side), PAPER)
    for column, pixels in enumerate(images):
        strip.paste(_tile(pixels, side), (column * (side + GAP), 0))
    return strip


def strip_width(count: int, side: int) -> int:
    return count * (side + GAP) - GAP


def draw_sheet(rows: Sequence[Row], side: int) -> Image.Image:
    """Rows of equal squares with their names on the left."""
    columns = max(len(row.images) for row in rows)
    width = LABEL_WIDTH + columns * (side + GAP) + GAP
    sheet = Image.new("RGB", (width, len(rows) * (side + GAP) + GAP), PAPER)
    pen = ImageDraw.Draw(sheet)
    for line, row in enumerate(rows):
        top = GAP + line * (side + GAP)
        _write(pen, row.name, row.remark, top, side)
        for column, pixels in enumerate(row.images):
            sheet.paste(_tile(pixels, side), (LABEL_WIDTH + GAP + column * (side + GAP), top))
    return sheet


def to_png(image: Image.Image) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, "PNG", optimize=True)
    return buffer.getvalue()


def save_png(image: Image.Image, path: Path) -> None:
    path.write_bytes(to_png(image))


def _tile(pixels: UInt8[Tensor, "3 height width"], side: int) -> Image.Image:
    tile = Image.fromarray(np.ascontiguousarray(pixels.permute(1, 2, 0).numpy()))
    return tile.resize((side, side), Image.Resampling.LANCZOS)


def _write(pen: ImageDraw.ImageDraw, name: str, remark: str, top: int, side: int) -> None:
    bold, small = ImageFont.load_default(14), ImageFont.load_default(12)
    lines = _wrap(printable(name).replace("_", " "), bold)
    height = 18 * len(lines) + (16 if remark else 0)
    y = top + (side - height) // 2
    for text in lines:
        pen.text((GAP * 2, y), text, fill=INK, font=bold)
        y += 18
    if remark:
        pen.text((GAP * 2, y), remark, fill=QUIET, font=small)


def _wrap(text: str, font: ImageFont.FreeTypeFont | ImageFont.ImageFont, most: int = 3) -> list[str]:
    lines: list[str] = []
    for word in text.split():
        if lines and font.getlength(f"{lines[-1]} {word}") <= LABEL_WIDTH - 4 * GAP:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return lines[:most]


def _spread(members: Tensor, pack: Pack, count: int, seed: int) -> Tensor:
    """Members in turn from as many groups as there are, so that a sheet does not show one patient eight times."""
    order = torch.randperm(len(members), generator=torch.Generator().manual_seed(seed))
    shuffled = members[order]
    turn: dict[int, int] = {}
    ranks = []
    for group in pack.groups[shuffled].tolist():
        turn[group] = turn.get(group, -1) + (1 if group >= 0 else 0)
        ranks.append(turn[group])
    best = sorted(range(len(shuffled)), key=lambda place: (ranks[place], place))[:count]
    return shuffled[torch.tensor(best)].sort().values

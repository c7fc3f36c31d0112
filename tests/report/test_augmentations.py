"""The figure of augmentations and the policy sheet: which images are drawn where, number by number."""

import io
import sys

import numpy as np
import pytest
import torch
from PIL import Image

from abomed.augment import baseline, medraug
from abomed.augment.evaluation import prepare
from abomed.augment.ops import DRAWS
from abomed.config.augment import BaselineSettings
from abomed.config.policies import ONE_SIDED, POLICIES, Policy, load_policy
from abomed.errors import MissingExtraError
from abomed.report.augmentations import STREAM, augmentation_figure, draw_mixing, to_levels
from abomed.report.examples import Examples, synthetic_examples
from abomed.report.policy_sheet import (
    CHANNELS,
    DRAWN_ROWS,
    STEPS,
    magnitudes,
    policy_lines,
    policy_sheet,
)
from abomed.report.tiles import TileRow, TileSheet, draw_tiles, lay_out
from tests.oracles import augment_ops as oracle

SIDE = 32


@pytest.fixture(scope="module")
def sets() -> list[Examples]:
    """Two sets of images that no two share, of sources with policies of their own."""
    made = [synthetic_examples(3, seed, SIDE) for seed in (0, 1)]
    return [
        Examples(name, name, each.images, each.classes)
        for name, each in zip(("pap-smear", "isic2018"), made, strict=True)
    ]


def tiles(sheet: TileSheet) -> dict[str, torch.Tensor]:
    return {row.name: row.images for row in sheet.rows if row.name}


def test_examples_are_of_different_classes() -> None:
    examples = synthetic_examples(4, 0, SIDE)
    assert examples.images.shape == (4, 3, SIDE, SIDE)
    assert len(set(examples.classes)) == 4
    assert len(examples.images.unique(dim=0)) == 4
    assert torch.equal(synthetic_examples(4, 0, SIDE).images, examples.images)
    many = synthetic_examples(18, 0, SIDE)
    assert len(many.images.unique(dim=0)) == 18, "of a class that is shown twice another patient"


def test_rows_of_the_figure_are_what_training_shows(sets: list[Examples]) -> None:
    sheet = augmentation_figure(sets, seed=3)
    rows = tiles(sheet)
    assert list(rows) == ["original", "baseline", "Cutout", "Mixup", "CutMix", "MedRAug"]
    assert sheet.groups == [("pap-smear", 3), ("isic2018", 3)]
    for place, given in enumerate(sets):
        columns, stream, index = slice(3 * place, 3 * place + 3), f"{STREAM}/{place}", torch.arange(3)
        assert torch.equal(rows["original"][columns], given.images)
        drawn = baseline.draw(BaselineSettings(), seed=3, stream=stream, index=index, side=SIDE)
        assert torch.equal(rows["baseline"][columns], to_levels(baseline.apply(given.images, drawn, SIDE)))
        policy = load_policy(given.source)
        drawn = medraug.draw(policy, seed=3, stream=stream, index=index)
        assert torch.equal(rows["MedRAug"][columns], to_levels(medraug.apply(given.images, drawn, SIDE)))


def test_mixtures_are_of_images_of_the_same_set(sets: list[Examples]) -> None:
    sheet = augmentation_figure(sets, seed=3)
    rows, captions = tiles(sheet), {row.name: row.captions for row in sheet.rows}
    for place, given in enumerate(sets):
        plain = prepare(given.images, SIDE)
        levels = to_levels(plain)
        for column in range(3):
            at = 3 * place + column
            share = float(captions["Mixup"][at].removesuffix(" %")) / 100
            assert 0.5 <= share <= 0.85
            others = [other for other in range(3) if other != column]
            errors = [
                (rows["Mixup"][at] / 255 - (share * plain[column] + (1 - share) * plain[other])).abs().max()
                for other in others
            ]
            assert min(errors) < 0.01, "half a per cent of the share, half a level"
            patch = (rows["CutMix"][at] != levels[column]).any(0)
            assert any(torch.equal(rows["CutMix"][at][:, patch], levels[other][:, patch]) for other in others)
            kept = float(captions["CutMix"][at].removesuffix(" %")) / 100
            assert 1 - patch.float().mean().item() == pytest.approx(kept, abs=0.03)
            hidden = (rows["Cutout"][at] != levels[column]).any(0)
            assert 0.05 < hidden.float().mean() <= 0.26
            assert len(rows["Cutout"][at][:, hidden].unique(dim=1).T) == 1


def test_sets_have_draws_of_their_own(sets: list[Examples]) -> None:
    one, two = (Examples(name, "pap-smear", sets[0].images, sets[0].classes) for name in "ab")
    rows = tiles(augmentation_figure([one, two]))
    for name, images in rows.items():
        assert torch.equal(images[:3], images[3:]) == (name == "original")


def test_the_first_clearest_mixture_is_shown() -> None:
    for name in ("mixup", "cutmix"):
        drawn = draw_mixing(name, 4, 84, 0, "test")
        assert len(drawn) == 1
        assert ((drawn.share >= 0.3) & (drawn.share <= 0.85)).all()
        assert (drawn.partner != torch.arange(4)).all()


def step_images(policy: Policy, image: torch.Tensor) -> dict[str, list[np.ndarray]]:
    """Every row by the slow definition of its operation."""
    pool = [entry.operation for entry in policy.entries]
    pixels = image.permute(1, 2, 0).numpy()
    rows = {}
    for line in policy_lines(policy):
        rows[line.name] = [
            oracle.augmented(
                pixels,
                [(pool[step.place], step.magnitude, np.array([*step.directions, *[0.0] * DRAWS][:DRAWS]))],
                len(pixels),
                int(len(pixels) * medraug.MARGIN),
            )
            for step in line.steps
        ]
    return rows


@pytest.mark.parametrize("name", ["pap-smear", "breakhis"])
def test_rows_of_a_sheet_are_the_operations_one_by_one(name: str) -> None:
    given, policy = synthetic_examples(2, 0, SIDE), load_policy(name)
    sheet = policy_sheet(policy, given)
    rows = tiles(sheet)
    assert sheet.groups == [(given.classes[0], STEPS), (given.classes[1], STEPS)]
    for place, image in enumerate(given.images):
        for row, slow in step_images(policy, image).items():
            shown = rows[row][place * STEPS : (place + 1) * STEPS].permute(0, 2, 3, 1).numpy()
            apart = np.abs(shown - 255 * np.stack(slow))
            assert (apart > 0.51).mean() < (0.02 if row == "equalize" else 0.001), row


@pytest.mark.parametrize("name", POLICIES)
def test_every_operation_is_shown_from_end_to_end(name: str) -> None:
    policy = load_policy(name)
    high = policy.magnitude[1]
    lines = {line.name: line for line in policy_lines(policy)}
    for place, entry in enumerate(policy.entries):
        top = entry.low + high * (entry.high - entry.low)
        shown = [line for line_name, line in lines.items() if line_name.split(",")[0] == entry.operation]
        assert len(shown) == (len(CHANNELS[entry.operation]) + 1 if entry.operation in CHANNELS else 1)
        for line in shown:
            assert len(line.steps) == STEPS
            assert {step.place for step in line.steps} == {place}
            assert max(abs(step.magnitude) for step in line.steps) == pytest.approx(top)
            assert entry.rationale in line.remark or line.name.endswith("corners")
        if entry.operation not in CHANNELS:
            values = magnitudes(entry, policy)
            assert list(values) == sorted(values)
            assert (min(values) < 0) == (entry.operation not in ONE_SIDED and top > 0)
            assert 0.0 in values
    moved = {
        row: {way for step in lines[row].steps for way in step.directions}
        for row in lines
        if "corners" in row
    }
    assert all({-1.0, 1.0} <= ways for ways in moved.values())


def test_one_channel_moves_alone_and_both_ways() -> None:
    lines = {line.name: line for line in policy_lines(load_policy("pap-smear"))}
    high = next(entry.high for entry in load_policy("pap-smear").entries if entry.operation == "rgb-shift")
    moves = [step.magnitude * np.array(step.directions[:3]) for step in lines["rgb-shift, green"].steps]
    np.testing.assert_allclose(np.array(moves), [[0, share * high, 0] for share in (-1, -0.5, 0, 0.5, 1)])


def test_the_last_rows_are_draws_of_training() -> None:
    given, policy = synthetic_examples(1, 0, SIDE), load_policy("breakhis")
    sheet = policy_sheet(policy, given, seed=4)
    index = torch.arange(DRAWN_ROWS * STEPS)
    drawn = medraug.draw(policy, seed=4, stream="policy sheet", index=index)
    expected = to_levels(medraug.apply(given.images.expand(len(index), -1, -1, -1), drawn, SIDE))
    shown = torch.cat([row.images for row in sheet.rows[-DRAWN_ROWS:]])
    assert (shown.int() - expected.int()).abs().max() <= 1
    names = [caption for row in sheet.rows[-DRAWN_ROWS:] for caption in row.captions]
    pool = [entry.operation for entry in policy.entries]
    for name, chosen in zip(names, drawn.operation.tolist(), strict=True):
        told = [] if name == "as it is" else name.split(", ")
        assert told == [pool[place] for place in chosen if pool[place] != "identity"]


def test_a_sign_that_is_fixed_is_shown_on_its_side() -> None:
    entry = {"operation": "brightness", "low": 0.1, "high": 0.3, "sign": "minus", "rationale": "darker only"}
    policy = Policy.model_validate({"name": "own", "entries": [entry], "magnitude": (0.5, 1.0)})
    assert magnitudes(policy.entries[0], policy) == pytest.approx((0, -0.225, -0.25, -0.275, -0.3))
    (line,) = policy_lines(policy)
    assert line.remark.startswith("− 0.2 to − 0.3")


def test_tiles_stand_where_they_should_and_files_hold_them() -> None:
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (2, 3, 3, SIDE, SIDE), dtype=torch.uint8, generator=generator)
    rows = [TileRow(f"row $_{place}", of, ["a", "b\x1b", "c" * 99], "why") for place, of in enumerate(images)]
    sheet = TileSheet("title", "subtitle", [("one", 2), ("two", 1)], rows)
    canvas = lay_out(sheet)
    drawn = draw_tiles(sheet)
    with Image.open(io.BytesIO(drawn.png)) as picture:
        pixels = np.asarray(picture.convert("RGB"))
    assert pixels.shape == canvas.shape
    for line in range(2):
        for column in range(3):
            top, left = sheet.top(line), sheet.left(column)
            tile = images[line, column].permute(1, 2, 0).numpy()
            np.testing.assert_array_equal(canvas[top : top + SIDE, left : left + SIDE], tile)
            np.testing.assert_array_equal(pixels[top : top + SIDE, left : left + SIDE], tile)
    assert sheet.left(2) - sheet.left(1) > sheet.left(1) - sheet.left(0), "groups stand apart"
    assert (canvas[:, : sheet.beside] == 255).all()
    assert (pixels[:, : sheet.beside] < 128).any(), "words"
    assert drawn.pdf.startswith(b"%PDF")
    height, width, _ = canvas.shape
    assert f"/Width {width}".encode() in drawn.pdf
    assert f"/Height {height}".encode() in drawn.pdf
    assert b"/Type0" in drawn.pdf, "words stay words"
    assert draw_tiles(sheet) == drawn, "the same images give the same bytes"


def test_without_matplotlib_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    rows = [TileRow("row", torch.zeros(1, 3, 8, 8, dtype=torch.uint8), [""])]
    with pytest.raises(MissingExtraError, match=r"abomed\[report\]"):
        draw_tiles(TileSheet("", "", [("", 1)], rows))

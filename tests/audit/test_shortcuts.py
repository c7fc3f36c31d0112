"""Planted shortcuts are found, absent ones are not."""

from collections.abc import Callable

import numpy as np
import pytest

from abomed.audit.appearance import look
from abomed.audit.shortcuts import describe_shortcuts, measure_shortcuts, tell_class
from abomed.config.audit import AuditSettings
from abomed.types import Level
from tests.audit.made_up import Folder, texture

IMAGES = 30
Draw = Callable[[np.random.Generator, int], np.ndarray]


def _found(folder: Folder) -> dict[str, Level]:
    pack, asked = folder.pack(32), AuditSettings(folds=2)
    section = describe_shortcuts(pack, measure_shortcuts(pack, look(pack), asked), asked)
    return {each.finding.code: each.finding.level for each in section.findings}


def _folder(tmp_path, draw: Draw, suffixes: tuple[str, ...] = ("png", "png", "png")) -> Folder:
    """Three classes; `draw(random, label)` draws an image of a class."""
    folder, random = Folder(tmp_path / "set"), np.random.default_rng(5)
    for label, name in enumerate("abc"):
        for number in range(IMAGES):
            path = f"{name}/{number:03}.{suffixes[label]}"
            folder.add(path, draw(random, label), f"{name}-{number // 2}")
    return folder


def _any_size(random: np.random.Generator) -> tuple[int, int]:
    return int(random.integers(40, 80)), int(random.integers(40, 80))


def test_no_shortcut_is_found_where_none_was_planted(tmp_path) -> None:
    assert _found(_folder(tmp_path, lambda random, _: texture(random, *_any_size(random)))) == {}


def test_a_class_that_is_larger_than_the_others_is_told_by_size(tmp_path) -> None:
    def draw(random: np.random.Generator, label: int) -> np.ndarray:
        width, height = _any_size(random)
        return texture(random, width + 30 * label, height + 30 * label)

    found = _found(_folder(tmp_path, draw))
    assert found["size-tells-class"] is Level.WARN
    assert not {"colour-tells-class", "colour-spread-tells-class"} & set(found)


def test_a_class_with_a_tint_is_told_by_colour(tmp_path) -> None:
    def draw(random: np.random.Generator, label: int) -> np.ndarray:
        tint = np.zeros(3)
        tint[label] = 60
        return np.clip(texture(random) + tint, 0, 255).astype(np.uint8)

    assert _found(_folder(tmp_path, draw)) == {"colour-tells-class": Level.WARN}


def test_a_class_of_flat_colour_is_told_by_its_spread_alone(tmp_path) -> None:
    def draw(random: np.random.Generator, label: int) -> np.ndarray:
        picture = texture(random).astype(float)
        mean = picture.mean((0, 1))
        return np.clip(mean + (picture - mean) * (0.4 if label == 0 else 1.0), 0, 255).astype(np.uint8)

    found = _found(_folder(tmp_path, draw))
    assert found["colour-spread-tells-class"] is Level.WARN
    assert "colour-tells-class" not in found


def test_a_class_of_its_own_format_is_told_by_its_files(tmp_path) -> None:
    folder = _folder(tmp_path, lambda random, _: texture(random), ("png", "png", "bmp"))
    assert _found(folder) == {"file-tells-class": Level.WARN}


def test_a_patients_look_is_no_shortcut_when_folds_keep_patients_apart() -> None:
    patients = 30
    groups = np.repeat(np.arange(patients), 10)
    labels = groups % 3
    asked, excess = AuditSettings(folds=3), []
    for seed in range(2):
        random = np.random.default_rng(seed)
        looks = random.normal(size=(patients, 4))[groups] + random.normal(0, 0.01, (len(groups), 4))
        mixed = tell_class("looks", looks, labels, np.full(len(groups), -1), asked)
        apart = tell_class("looks", looks, labels, groups, asked)
        assert (mixed.by, apart.by) == ("images", "groups")
        assert mixed.accuracy > 0.9
        assert apart.error >= np.sqrt(1 / 3 * 2 / 3 / patients)  # patients are what luck deals with
        excess.append(apart.excess)
    assert np.mean(excess) < asked.note_above


def test_folds_are_by_image_where_a_class_has_one_group() -> None:
    random = np.random.default_rng(0)
    labels = np.repeat([0, 1], 20)
    groups = np.where(labels == 0, 0, 1 + np.arange(40) // 4)
    assert tell_class("noise", random.normal(size=(40, 2)), labels, groups, AuditSettings()).by == "images"


def test_fewer_groups_than_folds_make_fewer_folds() -> None:
    random = np.random.default_rng(0)
    labels, groups = np.repeat([0, 1], 20), np.repeat([0, 1, 2, 3], 10)
    telling = tell_class("noise", random.normal(size=(40, 2)), labels, groups, AuditSettings())
    assert (telling.by, telling.folds) in {("groups", 4), ("images", 5)}


def test_facts_that_never_differ_are_exactly_chance() -> None:
    labels = np.repeat(np.arange(4), 10)
    telling = tell_class("nothing", np.ones((40, 2)), labels, np.full(40, -1), AuditSettings())
    assert (telling.accuracy, telling.chance, telling.error) == (0.25, 0.25, 0.0)


def test_small_classes_reduce_the_folds_and_single_images_are_left_out() -> None:
    random = np.random.default_rng(0)
    labels = np.array([0] * 20 + [1] * 20 + [2] * 3 + [3])
    telling = tell_class("noise", random.normal(size=(44, 2)), labels, np.full(44, -1), AuditSettings())
    assert (telling.folds, telling.images, telling.chance) == (3, 43, pytest.approx(1 / 3))
    assert tell_class("noise", np.ones((2, 1)), np.array([0, 1]), np.full(2, -1), AuditSettings()) is None


def test_no_more_images_of_a_class_are_used_than_asked_for(tmp_path) -> None:
    pack = _folder(tmp_path, lambda random, _: texture(random)).pack(16)
    appearance = look(pack)
    few = measure_shortcuts(pack, appearance, AuditSettings(images_per_class=10, folds=2))
    assert {each.images for each in few} == {30}
    assert few == measure_shortcuts(pack, appearance, AuditSettings(images_per_class=10, folds=2))

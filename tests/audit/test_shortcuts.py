"""Planted shortcuts are found, absent ones are not."""

import numpy as np
import pytest
from PIL import Image

from abomed.audit import audit
from abomed.audit.shortcuts import tell_class
from abomed.config.audit import AuditSettings
from abomed.types import Level
from tests.audit.made_up import Folder, texture

IMAGES = 40
CODES = {"size-tells-class", "colour-tells-class", "colour-spread-tells-class", "file-tells-class"}


def _levels(folder: Folder) -> dict[str, Level]:
    report = audit(folder.pack(32))
    return {finding.code: finding.level for finding in report.findings if finding.code in CODES}


def _folder(tmp_path, picture, suffix=lambda label: "png") -> Folder:
    """Three classes; `picture(random, label)` draws an image of a class."""
    folder, random = Folder(tmp_path / "set"), np.random.default_rng(5)
    for label, name in enumerate("abc"):
        for number in range(IMAGES):
            path = f"{name}/{number:03}.{suffix(label)}"
            folder.add(path, picture(random, label), f"{name}-{number // 2}")
    return folder


def _any_size(random: np.random.Generator) -> tuple[int, int]:
    return int(random.integers(40, 80)), int(random.integers(40, 80))


def test_no_shortcut_is_found_where_none_was_planted(tmp_path) -> None:
    folder = _folder(tmp_path, lambda random, label: texture(random, *_any_size(random)))
    assert _levels(folder) == {}


def test_a_class_that_is_larger_than_the_others_is_told_by_size(tmp_path) -> None:
    def picture(random: np.random.Generator, label: int) -> np.ndarray:
        width, height = _any_size(random)
        return texture(random, width + 30 * label, height + 30 * label)

    found = _levels(_folder(tmp_path, picture))
    assert found["size-tells-class"] is Level.WARN
    assert not {"colour-tells-class", "colour-spread-tells-class"} & set(found)


def test_a_class_with_a_tint_is_told_by_colour(tmp_path) -> None:
    def picture(random: np.random.Generator, label: int) -> np.ndarray:
        tint = np.zeros(3)
        tint[label] = 60
        return np.clip(texture(random) + tint, 0, 255).astype(np.uint8)

    assert _levels(_folder(tmp_path, picture)) == {"colour-tells-class": Level.WARN}


def test_a_class_of_its_own_format_is_told_by_its_files(tmp_path) -> None:
    folder = _folder(tmp_path, lambda random, label: texture(random), lambda label: ("png", "png", "bmp")[label])
    assert _levels(folder) == {"file-tells-class": Level.WARN}


def test_a_patients_look_is_no_shortcut_when_folds_keep_patients_apart() -> None:
    random = np.random.default_rng(0)
    groups = np.repeat(np.arange(30), 10)
    labels = groups % 3
    look_of_patient = random.normal(size=(30, 4))[groups] + random.normal(0, 0.01, (300, 4))
    asked = AuditSettings()
    apart = tell_class("look", look_of_patient, labels, groups, asked)
    mixed = tell_class("look", look_of_patient, labels, np.full(300, -1), asked)
    assert (apart.by, mixed.by) == ("groups", "images")
    assert mixed.accuracy > 0.9
    assert not (apart.excess > asked.warn_above and apart.is_beyond_luck)


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


def test_a_grey_class_among_colour_classes_is_told(tmp_path) -> None:
    def picture(random: np.random.Generator, label: int) -> np.ndarray:
        image = Image.fromarray(texture(random))
        return np.asarray(image.convert("L") if label == 0 else image)

    report = audit(_folder(tmp_path, picture).pack(32))
    finding = next(f for f in report.findings if f.code == "grey-and-colour")
    assert finding.level is Level.WARN
    assert finding.text == "class 'a' is grey, classes 'b', 'c' are colour: a model can use this"
    assert finding.data["grey"] == {"a": 1.0, "b": 0.0, "c": 0.0}

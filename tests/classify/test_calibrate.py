"""Refits without part of the support, against one general minimisation for each part left out."""

import pytest
import torch
from torch import Tensor

from abomed.classify.calibrate import MOST_FOLDS, leave_one_out
from abomed.config.bilevel import InnerSettings
from abomed.errors import DataError
from tests.oracles import classify as oracle

INNER = InnerSettings(tolerance=1e-10, max_steps=20_000)


def drawn(shots: tuple[int, ...], dim: int = 20, seed: int = 0, gap: float = 1.0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(len(shots)).repeat_interleave(torch.tensor(shots))
    centres = gap * torch.randn(len(shots), dim, generator=generator, dtype=torch.float64)
    noise = torch.randn(len(labels), dim, generator=generator, dtype=torch.float64)
    return centres[labels] + noise, labels


def by_loop(
    features: Tensor, labels: Tensor, fold: Tensor, ways: int, asked: Tensor, blocks: tuple[int, ...] = ()
) -> tuple[Tensor, Tensor]:
    """Logits of every row by the refit without its fold, and of `asked` by all refits."""
    out = torch.zeros(len(features), ways, dtype=torch.float64)
    of_asked = []
    for number in range(int(fold.max()) + 1):
        rest = fold != number
        total, total_asked = 0.0, 0.0
        first = 0
        for width in blocks or (features.shape[1],):
            part = slice(first, first + width)
            first += width
            left, factor = oracle.scaled(features[rest, part], INNER.feature_norm)
            weight, bias = oracle.best_head(left, labels[rest], ways, INNER.ridge)
            total = total + features[:, part] @ weight.T * factor + bias
            total_asked = total_asked + asked[:, part] @ weight.T * factor + bias
        out[~rest] = total[~rest]
        of_asked.append(total_asked)
    return out, torch.stack(of_asked)


@pytest.mark.parametrize("blocks", [(), (8, 12)])
@pytest.mark.parametrize("balanced", [True, False])
def test_refits_are_those_of_a_plain_loop(balanced: bool, blocks: tuple[int, ...]) -> None:
    features, labels = drawn((4, 4, 4))
    asked = drawn((2, 2, 2), seed=9)[0]
    found = leave_one_out(features[None], labels[None], 3, INNER, balanced=balanced, blocks=blocks)
    assert int(found.fold.max()) + 1 == (4 if balanced else 12)
    own, of_asked = by_loop(features, labels, found.fold[0], 3, asked, blocks)
    torch.testing.assert_close(found.logits[0], own, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(found.fold_logits(asked), of_asked, atol=1e-5, rtol=1e-5)


def test_balanced_folds_hold_one_image_of_every_class() -> None:
    features, labels = drawn((5, 5, 5))
    fold = leave_one_out(features[None], labels[None], 3, INNER).fold[0]
    for number in range(5):
        assert sorted(labels[fold == number].tolist()) == [0, 1, 2]


def test_unequal_classes_share_the_folds_of_the_smallest() -> None:
    features, labels = drawn((3, 7, 12))
    found = leave_one_out(features[None], labels[None], 3, INNER)
    for number in range(3):
        counts = torch.bincount(labels[found.fold[0] == number], minlength=3).tolist()
        assert counts[0] == 1
        assert counts[1] in (2, 3)
        assert counts[2] == 4
    assert found.usable()


def test_many_images_have_a_limited_number_of_folds() -> None:
    features, labels = drawn((MOST_FOLDS + 5,) * 2, dim=4)
    assert int(leave_one_out(features[None], labels[None], 2, INNER).fold.max()) + 1 == MOST_FOLDS


def test_groups_are_left_out_whole() -> None:
    features, labels = drawn((6, 6))
    groups = torch.tensor([0, 0, 0, 1, 1, 2, 3, 3, 4, 4, 5, -1])
    found = leave_one_out(features[None], labels[None], 2, INNER, groups[None])
    for group in range(6):
        assert len(found.fold[0][groups == group].unique()) == 1
    assert int(found.groups.max()) + 1 == 7  # six named, and the image without one
    expected, _ = by_loop(features, labels, found.fold[0], 2, features[:1])
    torch.testing.assert_close(found.logits[0], expected, atol=1e-5, rtol=1e-5)


def test_a_batch_of_tasks_is_each_of_them() -> None:
    tasks = [drawn((4, 4, 4), seed=seed) for seed in range(3)]
    features, labels = (torch.stack(part) for part in zip(*tasks, strict=True))
    together = leave_one_out(features, labels, 3, INNER)
    for task, (own, label) in enumerate(tasks):
        alone = leave_one_out(own[None], label[None], 3, INNER)
        torch.testing.assert_close(together.logits[task], alone.logits[0], atol=1e-7, rtol=1e-6)
        asked = own[:2]
        torch.testing.assert_close(
            together.fold_logits(asked, task), alone.fold_logits(asked), atol=1e-7, rtol=1e-6
        )


@pytest.mark.parametrize(
    ("shots", "groups", "sentence"),
    [
        ((2, 5), None, "from 3 images of each class on"),
        ((1, 1), None, "1 labelled image in the smallest class"),
        ((4, 4), [0, 0, 0, 0, 1, 2, 3, 4], "all come from one group"),
    ],
)
def test_where_nothing_can_be_told_a_sentence_says_why(
    shots: tuple[int, ...], groups: list[int] | None, sentence: str
) -> None:
    features, labels = drawn(shots)
    told = None if groups is None else torch.tensor(groups)[None]
    found = leave_one_out(features[None], labels[None], 2, INNER, told)
    assert not found.usable()
    assert sentence in found.notes[0]


@pytest.mark.parametrize(
    ("features", "labels", "message"),
    [
        (torch.zeros(1, 3, 2), torch.zeros(1, 4, dtype=torch.int64), "do not belong together"),
        (torch.zeros(1, 3, 2), torch.tensor([[0, 1, 5]]), "a label names no class"),
        (torch.full((1, 3, 2), torch.nan), torch.tensor([[0, 1, 1]]), "not finite"),
    ],
)
def test_what_cannot_be_refitted_is_refused(features: Tensor, labels: Tensor, message: str) -> None:
    with pytest.raises(DataError, match=message):
        leave_one_out(features, labels, 2, INNER)

"""What a head reaches without any network: on mean colour, on the size of the originals, on raw pixels.

A trained backbone is worth what it adds to these. Decisions a reader would question:

- The head, its ridge and its solver are those of the compared method, on the same list of tasks. Only the features
  differ.
- Features are standardised by each task's support set alone, so no answer depends on other queries. A column that
  is constant over the support set becomes zero on both sides: a head fitted to it could learn nothing from it.
- Standardised features are then brought to the scale of the method's own (`feature_norm`), for which its ridge is
  meant.
- Size is given as the logarithms of both sides: a linear head then sees area and aspect ratio, and twice as large
  counts as much as half as large.
- Raw pixels are those a backbone is shown (the centre of the image), at a side of choice.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float, Float32
from torch import Tensor

from abomed.augment.evaluation import prepare
from abomed.bilevel.inner import adapt_head
from abomed.bilevel.objective import Examples
from abomed.config.bilevel import InnerSettings
from abomed.config.episodes import EpisodeSpec
from abomed.config.train import EvaluateSettings
from abomed.data.packed import Pack
from abomed.engine.assess import STREAM, Assessment, TrainedRun, assess, class_sets, pool_interval, restrict
from abomed.engine.intervals import Interval, over_tasks
from abomed.engine.metrics import score_tasks
from abomed.episodes import Episodes, draw_episodes
from abomed.errors import ConfigError, DataError
from abomed.models.backbone import Features
from abomed.models.scale import scale_features

RAW_SIDE = 16
_AT_ONCE = 64  # images or tasks held as floats at a time
_CONSTANT = 1e-6  # a spread below this share of the column's size is rounding


def mean_colour_features(pack: Pack) -> Float32[Tensor, "images 3"]:
    """Mean red, green and blue of each packed image, in [0, 1]."""
    images = pack.load()
    means = [block.flatten(2).double().mean(2) / 255 for block in images.split(_AT_ONCE)]
    return torch.cat(means).float()


def size_features(pack: Pack) -> Float32[Tensor, "images 2"]:
    """The logarithms of both sides of each original, as it was before packing."""
    return pack.sizes.double().log().float()


def raw_pixel_features(pack: Pack, side: int = RAW_SIDE) -> Float32[Tensor, "images pixels"]:
    """The pixels of each image's centre at `side` by `side`, as one vector."""
    return prepare(pack.load(), side, chunk=_AT_ONCE).flatten(1)


def standardise(features: Features) -> Features:
    """Columns with mean 0 and variance 1 over the support set of their task; constant columns become 0."""
    support = features.support.double()
    mean = support.mean(1, keepdim=True)
    spread = (support - mean).square().mean(1, keepdim=True).sqrt()
    size = support.abs().amax(1, keepdim=True)
    varies = spread > _CONSTANT * size
    factor = torch.where(varies, 1 / torch.where(varies, spread, 1.0), 0.0)
    return Features(
        ((support - mean) * factor).to(features.support.dtype),
        ((features.query.double() - mean) * factor).to(features.query.dtype),
    )


def answer_from_features(
    features: Float[Tensor, "images dim"], episodes: Episodes, inner: InnerSettings
) -> Float[Tensor, "tasks query ways"]:
    """Logits of all queries, from a head fitted to the standardised features of each task's support set."""
    logits = []
    for first in range(0, len(episodes), _AT_ONCE):
        part = episodes[first : first + _AT_ONCE]
        chosen = Features(features[part.support.flatten(1)], features[part.query.flatten(1)])
        scaled = scale_features(standardise(chosen), inner.feature_norm)
        labels = _way_of_each(part, part.spec.shots)
        head = adapt_head(Examples.of(scaled.support, labels, part.spec.ways), inner).head
        logits.append(head.logits(scaled.query))
    return torch.cat(logits)


def assess_features(
    features: Float[Tensor, "images dim"],
    pack: Pack,
    classes: tuple[str, ...],
    spec: EpisodeSpec,
    inner: InnerSettings,
    *,
    tasks: int,
    seed: int,
) -> Assessment:
    """Test fixed features on the tasks that `assess` gives a trained run with the same spec and seed."""
    if len(features) != len(pack):
        raise DataError(
            "the features are not those of this pack",
            where=str(pack.path),
            found=f"{len(features):,} rows for {len(pack):,} images",
            right="one row for each image, in the order of the pack",
        )
    table = restrict(pack, classes)
    episodes = draw_episodes(table, spec, seed=seed, stream=STREAM, count=tasks)
    asked = episodes.query.flatten(1)
    logits = answer_from_features(features, episodes, inner)
    scores = score_tasks(
        logits, _way_of_each(episodes, spec.queries), episodes.classes, groups=pack.groups[asked]
    )
    return Assessment(
        spec,
        tuple(pack.class_names[label] for label in table.labels.tolist()),
        "support",
        over_tasks(scores.accuracy),
        pool_interval(scores.correct.double(), episodes, pack),
        scores,
        episodes.hash,
    )


@dataclass(frozen=True, eq=False)
class Comparison:
    """A trained backbone beside its own beginnings and beside features without a network, on equal tasks."""

    untrained: Assessment
    trained: Assessment
    simple: Mapping[str, Assessment]  # by the name of the features
    episodes: Episodes
    gain: Interval | None  # of trained over untrained, for other images or patients; None: too few to tell

    @property
    def rows(self) -> dict[str, Assessment]:
        return {"untrained": self.untrained, **self.simple, "trained": self.trained}


def compare_with_baselines(
    run: TrainedRun,
    pack: Pack,
    settings: EvaluateSettings,
    features: Mapping[str, Float[Tensor, "images dim"]],
    device: torch.device,
    on_progress: Callable[[int, int], None] | None = None,
) -> Comparison:
    """Test a run before and after training, and `features` by name, all on one list of tasks.

    `settings` must name one number of shots and one set of classes.
    """
    if len(settings.shots) > 1 or settings.classes == "triples":
        raise ConfigError(
            "a comparison speaks of one kind of task",
            found=f"shots {settings.shots}, classes {settings.classes}",
            right="one number of shots, and novel or all classes",
        )
    (untrained,) = assess(run.untrained(), pack, settings, device, on_progress)
    (trained,) = assess(run, pack, settings, device, on_progress)
    (classes,) = class_sets(run, pack, settings)
    spec, seed = trained.spec, settings.evaluation_seed
    simple = {
        name: assess_features(values, pack, classes, spec, run.config.inner, tasks=settings.tasks, seed=seed)
        for name, values in features.items()
    }
    episodes = draw_episodes(restrict(pack, classes), spec, seed=seed, stream=STREAM, count=settings.tasks)
    more = trained.scores.correct.double() - untrained.scores.correct.double()
    return Comparison(untrained, trained, simple, episodes, pool_interval(more, episodes, pack))


def _way_of_each(episodes: Episodes, per_way: int) -> Tensor:
    ways = torch.arange(episodes.spec.ways).repeat_interleave(per_way)
    return ways.expand(len(episodes), -1)

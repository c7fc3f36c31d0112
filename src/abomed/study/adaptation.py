"""Many ways to adapt the head, on features computed once: what a grid over K', β and θ asks for.

Each answer is the one that `engine.assess.assess` gives for these settings; the test says so.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from abomed.bilevel.inner import adapt_head
from abomed.bilevel.objective import Examples
from abomed.config.bilevel import InnerSettings
from abomed.config.episodes import EpisodeSpec
from abomed.config.train import EvaluateSettings
from abomed.data.packed import Pack
from abomed.engine.assess import STREAM, Assessment, TrainedRun, class_sets, pool_interval, restrict
from abomed.engine.capacity import backbone_chunk
from abomed.engine.evaluate import TASKS_AT_ONCE
from abomed.engine.intervals import over_tasks
from abomed.engine.metrics import score_tasks
from abomed.engine.source import TaskSource
from abomed.models import extract, task_slices
from abomed.models.scale import scale_features


@torch.no_grad()
def assess_adaptations(
    run: TrainedRun,
    pack: Pack,
    settings: EvaluateSettings,
    inners: Sequence[InnerSettings],
    device: torch.device,
) -> list[Assessment]:
    """One assessment for each of `inners`; `settings` must name one number of shots and one set of classes."""
    (classes,) = class_sets(run, pack, settings)
    table = restrict(pack, classes).to(device)
    normalisation = settings.normalisation or run.config.model.normalisation
    spec = EpisodeSpec(
        ways=run.config.episodes.ways,
        shots=settings.shots[0],
        queries=settings.queries,
        disjoint=settings.disjoint,
    )
    backbone = run.backbone.to(device)
    source = TaskSource(
        pack.load(device), table, spec, settings.evaluation_seed, STREAM, backbone.image_size, None
    )
    chunk = backbone_chunk(0, backbone, spec.ways * spec.images_per_class, device)
    episodes = source.draw(0, settings.tasks)
    logits: list[list[Tensor]] = [[] for _ in inners]
    labels: list[Tensor] = []
    for first in range(0, settings.tasks, TASKS_AT_ONCE):
        tasks = source.show(episodes[first : first + TASKS_AT_ONCE], first)
        labels.append(tasks.query_labels.cpu())
        for part in task_slices(len(tasks), chunk):
            features = extract(backbone, tasks.support[part], tasks.query[part], normalisation)
            for answers, inner in zip(logits, inners, strict=True):
                scaled = scale_features(features, inner.feature_norm)
                examples = Examples.of(scaled.support, tasks.support_labels[part], tasks.ways)
                answers.append(adapt_head(examples, inner).head.logits(scaled.query).float().cpu())
    episodes = episodes.to("cpu")
    asked = episodes.query.flatten(1)
    found = []
    for answers in logits:
        scores = score_tasks(
            torch.cat(answers), torch.cat(labels), episodes.classes, groups=pack.groups[asked]
        )
        pool = pool_interval(scores.correct.double(), episodes, pack)
        accuracy = over_tasks(scores.accuracy)
        found.append(Assessment(spec, tuple(classes), normalisation, accuracy, pool, scores, episodes.hash))
    return found

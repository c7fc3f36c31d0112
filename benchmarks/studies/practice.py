"""How often a user is right who chooses nothing, beside what else they could have done, on equal tasks of novel
classes.

Decisions a reader would question:

- The candidates differ in features and head alone; the tasks are those of `abomed evaluate`.
- The rule that joins two networks is chosen for each set on the OTHER sets' classes: `chosen_elsewhere` says which
  rule that was and what it reached. The shipped default is one rule for all, and the choice must not rest on the set
  it is judged by.
- `protonet` is a CNN4 trained by ProtoNet on as many tasks as the CNN4 of ABO-Med beside it.
- Differences to the default are paired, with intervals that hold for all candidates of a set at once.

    python -m benchmarks.studies.practice --data pap-smear.zip isic2018.zip breakhis.zip --cache FOLDER \
        --trained pap-smear=RUN isic2018=RUN breakhis400=RUN --protonet pap-smear=RUN … --out accuracy.json
"""

import argparse
import json
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, get_args

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from abomed.classify.estimator import BEST_RULE
from abomed.classify.weights import FALLBACK, LITE0, STAGES, Model, automatic, load
from abomed.config.classify import EnsembleRule
from abomed.engine.clusters import over_pool, units_of
from abomed.engine.differences import Measured, correct, paired_difference
from abomed.engine.environment import describe_environment
from abomed.engine.intervals import over_tasks
from abomed.engine.material import choose_device
from abomed.errors import DataError
from abomed.models.lite0 import LAST
from benchmarks.studies import candidates
from benchmarks.studies.task_features import TaskFeatures, image_features, task_features
from benchmarks.studies.task_lists import ImageSet, TaskList, novel_tasks, open_sets

DEFAULT = f"auto: {'+'.join(automatic())}, {BEST_RULE}"
PAIRS = ((STAGES, "untrained"), (STAGES, "cnn4"), (LITE0, "untrained"))


def main() -> None:
    parser = add_arguments(argparse.ArgumentParser(description=__doc__))
    parser.add_argument("--shots", type=int, nargs="+", default=[5])
    parser.add_argument("--views", type=int, default=1, choices=(1, 2, 4, 8))
    parser.add_argument("--disjoint", default="images", choices=("images", "groups"))
    parser.add_argument("--only", nargs="*", help="test some of the sets; their answers are kept for later")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    sets = open_sets(arguments.data, arguments.cache)
    models = load_all(arguments)
    body: dict[str, Any] = {
        "environment": describe_environment(choose_device("cpu")),
        "settings": {
            "tasks": arguments.tasks,
            "queries": arguments.queries,
            "shots": arguments.shots,
            "views": arguments.views,
            "disjoint": arguments.disjoint,
        },
        "default": DEFAULT,
        "rows": {},
    }
    for shots in arguments.shots:
        right: dict[str, dict[str, Tensor]] = {}
        for name in arguments.only or sets:
            start = time.perf_counter()
            views = arguments.views
            apart = arguments.disjoint
            beside = views == 1 and apart == "images"
            counts = (shots, arguments.tasks, arguments.queries)
            tasks = novel_tasks(sets, name, *counts, strange=beside, disjoint=apart)
            right[name] = kept_answers(sets, tasks, name, models, arguments.cache, views)
            body["rows"][f"{name}/{shots}-shot"] = compare(sets[name], tasks, right[name])
            print(f"{name} {shots}-shot: {time.perf_counter() - start:.0f} s", flush=True)
            say(body["rows"][f"{name}/{shots}-shot"])
        body.setdefault("chosen_elsewhere", {})[f"{shots}-shot"] = choose_elsewhere(right)
        arguments.out.write_text(json.dumps(body, indent=1) + "\n")
    print(json.dumps(body["chosen_elsewhere"], indent=1))


def add_arguments(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    parser.add_argument("--data", nargs="+", required=True)
    parser.add_argument("--cache", type=Path, required=True, help="where packs and features are kept")
    parser.add_argument(
        "--trained", nargs="*", default=[], help="SET=MODEL: a run, a folder, or a shipped name"
    )
    parser.add_argument("--protonet", nargs="*", default=[], help="SET=RUN: a run of ProtoNet")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--tasks", type=int, default=600)
    parser.add_argument("--queries", type=int, default=15)
    parser.add_argument("--threads", type=int, default=2)
    return parser


def load_all(arguments: argparse.Namespace) -> dict[str, Model]:
    """Lite0, the untrained CNN4, and by the name of its set a trained one, and one of ProtoNet."""
    own = dict(each.split("=", 1) for each in arguments.trained)
    rivals = {f"protonet of {name}": run for name, run in (r.split("=", 1) for r in arguments.protonet)}
    named = {STAGES: STAGES, FALLBACK: FALLBACK, **own, **rivals}
    return {name: load(run) for name, run in named.items()}


def raw_features(
    sets: Mapping[str, ImageSet],
    tasks: TaskList,
    name: str,
    models: Mapping[str, Model],
    cache: Path,
    views: int = 1,
) -> dict[str, TaskFeatures]:
    """Lite0, untrained, and where there is one, cnn4 (trained on the set's own base classes) and protonet."""
    stages = image_features(sets, tasks, models[STAGES].backbone, STAGES, cache, views)
    found = {
        STAGES: stages,
        # The last layer of the same forward.
        LITE0: TaskFeatures(*(getattr(stages, side)[..., -LAST:] for side in candidates.SIDES)),
        "untrained": task_features(sets, tasks, models[FALLBACK].backbone, "untrained", cache, views),
    }
    for title, model, kept in (("cnn4", name, "own"), ("protonet", f"protonet of {name}", "protonet")):
        if model in models:
            found[title] = task_features(sets, tasks, models[model].backbone, kept, cache, views)
    return found


def kept_answers(
    sets: Mapping[str, ImageSet],
    tasks: TaskList,
    name: str,
    models: Mapping[str, Model],
    cache: Path,
    views: int = 1,
) -> dict[str, Tensor]:
    """By candidate: which queries it answers right; what was found before on the same tasks is not asked again."""
    file = cache / f"answers-{tasks.name}-{len(tasks.support)}-{views}-views.safetensors"
    known = load_file(file) if file.exists() else {}
    raw = raw_features(sets, tasks, name, models, cache, views)
    for title, ask in list_candidates(sets, tasks, raw).items():
        if title not in known:
            known[title] = ask().contiguous()
    save_file(known, file)
    return known


def list_candidates(
    sets: Mapping[str, ImageSet], tasks: TaskList, raw: Mapping[str, TaskFeatures]
) -> dict[str, Callable[[], Tensor]]:
    """How each candidate answers."""

    def by_head(names: tuple[str, ...], rule: EnsembleRule) -> Callable[[], Tensor]:
        return lambda: candidates.answer(candidates.ensemble(raw, names, rule), tasks)

    def by_prototypes(name: str) -> Callable[[], Tensor]:
        return lambda: candidates.answer_by_prototypes(raw[name], tasks)

    found = {name: by_head((name,), "joined") for name in raw if name != "protonet"}
    for pair in PAIRS:
        for rule in get_args(EnsembleRule):
            if set(pair) <= set(raw):
                found[f"{'+'.join(pair)}, {rule}"] = by_head(pair, rule)
    for title, name in (("prototypes of cnn4", "cnn4"), ("protonet", "protonet")):
        if name in raw:
            found[title] = by_prototypes(name)
    for title, describe in (("pixels", candidates.raw_pixels), ("colours", candidates.colour_histograms)):
        found[f"regression on {title}"] = partial(candidates.answer_by_regression, sets, tasks, describe)
    return found


def compare(own: ImageSet, tasks: TaskList, right: Mapping[str, Tensor]) -> dict[str, Any]:
    """Accuracies with both intervals, and paired differences to the default."""
    default = f"{STAGES}+untrained, {BEST_RULE}"
    groups = own.pack.groups if bool((own.pack.groups >= 0).any()) else None
    measured = {
        name: Measured(name, hits.double().mean(1), tasks.episodes.hash) for name, hits in right.items()
    }
    others = [name for name in right if name != default]
    differences = correct([paired_difference(measured[default], measured[name]) for name in others])
    rows = {}
    for name, hits in right.items():
        try:
            pool = over_pool(hits.double(), units_of(tasks.episodes, groups)).to_json()
        except DataError:  # too few patients to speak of others
            pool = None
        rows[name] = {"over_tasks": over_tasks(measured[name].values).to_json(), "over_pool": pool}
    for name, difference in zip(others, differences, strict=True):
        rows[name]["default_minus_this"] = difference.to_json()
    return {"episode_hash": tasks.episodes.hash, "default": default, "candidates": rows}


def choose_elsewhere(right: Mapping[str, Mapping[str, Tensor]]) -> dict[str, Any]:
    """For each set the rule that does best on the other sets, and what it does here."""
    chosen = {}
    for partner in ("untrained", "cnn4"):
        ways = [f"{STAGES}+{partner}, {rule}" for rule in get_args(EnsembleRule)]
        able = {name: hits for name, hits in right.items() if ways[0] in hits}
        for name, here in able.items():
            others = [hits for other, hits in able.items() if other != name]
            if others:
                best = max(ways, key=lambda way: sum(float(hits[way].double().mean()) for hits in others))
                reached = {way: float(here[way].double().mean()) for way in ways}
                chosen[f"{name}, {partner}"] = {"rule": best, "accuracy": reached[best], "all": reached}
    return chosen


def say(row: Mapping[str, Any]) -> None:
    for name, each in row["candidates"].items():
        interval = each["over_tasks"]
        print(f"  {name:<34} {100 * interval['mean']:.2f} ± {100 * interval['half_width']:.2f}", flush=True)


if __name__ == "__main__":
    main()

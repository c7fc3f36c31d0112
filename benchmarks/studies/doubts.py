"""Whether the classifier's doubts are right, on novel classes: probabilities, sets, foretold accuracy, novelty.

What base classes have taught (`experience`) is learnt first, from their validation images; the test tasks then are
treated as a user's are, one support set at a time. Decisions a reader would question:

- The experience of a model that was trained on one set comes from that set's base classes. That of untrained models
  comes from tasks of all classes of the OTHER sets and of the base classes of the set that is tested: base classes
  alone are too few triples, and mislead about temperatures. What is shipped comes from all classes of all sets.
- A foretold accuracy is compared with that of the task's own queries, so its interval is asked for as many.
- What is unlike the support is measured twice: images of other sets, and images of the same set's other classes.

    python -m benchmarks.studies.doubts --data pap-smear.zip isic2018.zip breakhis.zip --cache FOLDER \
        --trained pap-smear=RUN isic2018=RUN breakhis400=RUN --out doubts.json
"""

import argparse
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from abomed.classify.calibrate import fit_heads, leave_one_out
from abomed.classify.conformal import prediction_sets
from abomed.classify.estimator import BEST_RULE
from abomed.classify.expected import expected_accuracy
from abomed.classify.experience import BaseTasks, Experience, learn
from abomed.classify.novelty import familiar
from abomed.classify.temperature import refine_temperature
from abomed.classify.weights import FALLBACK, LITE0, STAGES, Model
from abomed.engine.environment import describe_environment
from abomed.engine.material import choose_device
from benchmarks.studies.candidates import AT_ONCE, INNER, Blocks, ensemble, part_of
from benchmarks.studies.doubt_figures import (
    LEVEL,
    tell_foretold,
    tell_novelty,
    tell_probabilities,
    tell_sets,
)
from benchmarks.studies.practice import add_arguments, load_all, raw_features
from benchmarks.studies.results import save
from benchmarks.studies.task_lists import (
    ImageSet,
    TaskList,
    base_tasks,
    novel_tasks,
    open_sets,
    tasks_of_all_classes,
)

DEFAULT = f"{STAGES}+{FALLBACK}"
Draw = Callable[[Mapping[str, ImageSet], str, int, int, int], TaskList]
BASE_QUERIES = 5


@dataclass(frozen=True)
class Subject:
    """One ensemble whose doubts are studied."""

    title: str
    names: tuple[str, ...]  # of kept features
    models: tuple[str, ...]  # as `load` knows them
    tested: tuple[str, ...]
    own: str | None = None  # the set that one of its models was trained on
    shipped: bool = True  # it has no card that could tell

    def sources(self, sets: Sequence[str], tested: str | None) -> dict[str, Draw]:
        """Where its experience comes from, for a test on the novel classes of `tested`, or to be shipped."""
        if self.own is not None:
            return {self.own: base_tasks}
        return {name: base_tasks if name == tested else tasks_of_all_classes for name in sets}


def main() -> None:
    parser = add_arguments(argparse.ArgumentParser(description=__doc__))
    parser.add_argument("--shots", type=int, nargs="+", default=[5, 10])
    parser.add_argument("--base-shots", type=int, nargs="+", default=[1, 3, 5, 10, 20])
    parser.add_argument("--base-tasks", type=int, default=100, help="of each set and number of shots")
    parser.add_argument("--ship", type=Path, help="write what is known of models without a card to this file")
    parser.add_argument("--only-ship", action="store_true", help="no tests")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    sets, models = open_sets(arguments.data, arguments.cache), load_all(arguments)
    body: dict[str, Any] = {
        "environment": describe_environment(choose_device("cpu")),
        "settings": {
            "tasks": arguments.tasks,
            "queries": arguments.queries,
            "base_tasks": arguments.base_tasks,
        },
        "experience": {},
        "rows": {},
    }
    for subject in subjects(sets, models):
        for name in () if arguments.only_ship else subject.tested:
            sources = subject.sources(tuple(sets), name)
            known = gather_experience(sets, subject, sources, models, arguments)
            body["experience"][f"{subject.title}/{name}"] = known.model_dump(mode="json")
            for shots in arguments.shots:
                start = time.perf_counter()
                tasks = novel_tasks(sets, name, shots, arguments.tasks, arguments.queries)
                blocks = blocks_of(sets, tasks, name, subject, models, arguments.cache)
                row = study(blocks, tasks, known)
                body["rows"][f"{subject.title}/{name}/{shots}-shot"] = row
                print(f"{subject.title} {name} {shots}-shot, {time.perf_counter() - start:.0f} s", flush=True)
                print("  " + "; ".join(f"{key} {value:.3f}" for key, value in brief(row).items()), flush=True)
                save(body, arguments.out, indent=1)
    if arguments.ship:
        kept = [
            gather_experience(sets, each, each.sources(tuple(sets), None), models, arguments)
            for each in subjects(sets, models)
            if each.shipped
        ]
        save([known.model_dump(mode="json") for known in kept], arguments.ship, indent=1)


def subjects(sets: Mapping[str, ImageSet], models: Mapping[str, Model]) -> list[Subject]:
    every = tuple(sets)
    found = [
        Subject(DEFAULT, (STAGES, "untrained"), (STAGES, FALLBACK), every),
        Subject(FALLBACK, ("untrained",), (FALLBACK,), every),
        Subject(STAGES, (STAGES,), (STAGES,), ()),
        Subject(LITE0, (LITE0,), (LITE0,), ()),
    ]
    for name in sets:
        if name in models:
            found.append(Subject(name, ("cnn4",), (name,), (name,), own=name, shipped=False))
            found.append(Subject(f"{STAGES}+{name}", (STAGES, "cnn4"), (STAGES, name), (name,), own=name))
    return found


def blocks_of(
    sets: Mapping[str, ImageSet],
    tasks: TaskList,
    name: str,
    subject: Subject,
    models: Mapping[str, Model],
    cache: Path,
) -> Blocks:
    return ensemble(raw_features(sets, tasks, name, models, cache), subject.names, BEST_RULE)


def gather_experience(
    sets: Mapping[str, ImageSet],
    subject: Subject,
    sources: Mapping[str, Draw],
    models: Mapping[str, Model],
    arguments: argparse.Namespace,
) -> Experience:
    """What tasks of these sets teach about the subject."""
    by_shots: dict[int, BaseTasks] = {}
    widths: tuple[int, ...] = ()
    for shots in arguments.base_shots:
        parts: list[BaseTasks] = []
        for name, draw in sources.items():
            tasks = draw(sets, name, shots, arguments.base_tasks, BASE_QUERIES)
            blocks = blocks_of(sets, tasks, name, subject, models, arguments.cache)
            widths, spec = blocks.widths, tasks.episodes.spec
            parts.append(
                BaseTasks(
                    blocks.features.support,
                    tasks.labels(spec.shots),
                    blocks.features.query,
                    tasks.labels(spec.queries),
                )
            )
        by_shots[shots] = BaseTasks(
            *(
                torch.cat([getattr(part, side) for part in parts])
                for side in ("support", "support_labels", "query", "query_labels")
            )
        )
    return learn(
        by_shots, INNER, models=subject.models, ensemble=BEST_RULE, data=tuple(sources), blocks=widths
    )


def study(blocks: Blocks, tasks: TaskList, known: Experience) -> dict[str, Any]:
    """All figures of one kind of task."""
    found: dict[str, list[Any]] = {}
    for first in range(0, len(tasks.support), AT_ONCE):
        for key, values in _study_part(blocks, tasks, known, slice(first, first + AT_ONCE)).items():
            found.setdefault(key, []).extend(values)
    return {
        **tell_probabilities(found, tasks),
        **tell_sets(found, tasks),
        **tell_foretold(found),
        **tell_novelty(found),
    }


def _study_part(blocks: Blocks, tasks: TaskList, known: Experience, some: slice) -> dict[str, list[Any]]:
    spec = tasks.episodes.spec
    part = part_of(blocks.features, some)
    labels, asked = tasks.labels(spec.shots)[some], tasks.labels(spec.queries)[some]
    logits = fit_heads(part.support, labels, spec.ways, INNER, blocks=blocks.widths).logits(part.query)
    refits = leave_one_out(part.support, labels, spec.ways, INNER, blocks=blocks.widths)
    base, accuracy, threshold = known.temperature(spec.shots), known.accuracy(), known.novelty(spec.shots)
    out: dict[str, list[Any]] = {}
    for task in range(len(labels)):
        temperature = refine_temperature(base, refits, task).value
        shares = (logits[task] / temperature).softmax(1)
        sets = prediction_sets(refits, part.query[task], shares, LEVEL, task)
        told = expected_accuracy(refits, accuracy, task=task, queries=len(asked[task]), level=LEVEL)
        near = familiar(part.support[task], labels[task])
        found = {
            "temperature": temperature,
            "plain": logits[task].softmax(1).amax(1),
            "tempered": shares.amax(1),
            "base_tempered": (logits[task] / base.query.value).softmax(1).amax(1),
            "right": logits[task].argmax(1) == asked[task],
            "covered": sets.members.gather(1, asked[task][:, None])[:, 0],
            "sizes": sets.sizes,
            "told": (told.estimate, told.low, told.high, told.left_out),
            "novelty": tuple(near.score(each[task]) for each in (part.query, part.siblings, part.strangers)),
            "threshold": threshold,
        }
        for key, value in found.items():
            out.setdefault(key, []).append(value)
    return out


def brief(row: Mapping[str, Any]) -> dict[str, float]:
    """The figures to watch."""
    out: dict[str, float] = {
        "accuracy": row["accuracy"]["mean"],
        "ECE plain": row["calibration"]["plain"]["debiased"],
        "base": row["calibration"]["base_tempered"]["debiased"],
        "refined": row["calibration"]["tempered"]["debiased"],
        "coverage": row["coverage"]["mean"],
        "size": row["set_size"],
        "all": row["all_classes"],
        "foretold": row["foretold"]["mean"],
        "actual": row["foretold"]["actual"],
        "inside": row["foretold"]["inside"],
        "alarms": row["novelty"]["false_alarms"],
    }
    for key in ("strangers", "siblings"):
        if key in row["novelty"]:
            out[key] = row["novelty"][key]["auroc"]
    return out


if __name__ == "__main__":
    main()

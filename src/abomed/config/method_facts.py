"""What each method learns, what it costs and where it comes from: for `abomed methods` and docs/methods.md.

Costs are per task and meta-update, in passes through the whole network: a gradient is one of a loss on the support or
query images, a product one with its second derivatives, which costs two to three gradients. What happens on features
alone (ABO-Med's heads, ANIL's steps) costs next to nothing beside them and is counted as nothing. The tests count the
calls and compare.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from abomed.config.methods import PRESETS, SECTIONS
from abomed.config.run import RunConfig, load_run_config


@dataclass(frozen=True)
class Cost:
    """Of one task in one meta-update."""

    gradients: float
    products: float = 0.0


@dataclass(frozen=True)
class Facts:
    """One method in words."""

    title: str
    learns: str
    adapts: str
    reference: str
    differs: str
    cost: Callable[[RunConfig], Cost]


def _unrolled(settings: Any, steps: float | None = None) -> Cost:
    steps = settings.steps if steps is None else steps
    return Cost(steps + 1, steps)


def _mean_steps(config: RunConfig) -> float:
    """Of Tra-MAML's trapezoid, whose ramps climb by one step at a time: as `methods.tra_maml.trapezoid` has it."""
    own = config.tra_maml
    top, rises = 2 * int(own.epochs * own.width / 2), own.steps - own.min_steps
    stair = (own.epochs - top) // 2 // rises if rises else 0
    ramp = sum(range(own.min_steps, own.steps)) * stair
    peak = own.steps if own.width > 0 or not rises else own.steps - 1
    return (2 * ramp + peak * (own.epochs - 2 * rises * stair)) / own.epochs


def _maml_plus(config: RunConfig) -> Cost:
    own = config.maml_plus
    queries = 1 + own.multi_step * (own.steps - 1)
    return Cost(own.steps + queries, own.steps * (1 - own.first_order))


def _fo_b_maml(config: RunConfig) -> Cost:
    own = config.fo_b_maml
    return Cost((4 if own.difference == "symmetric" else 3) * own.steps)


HEAD = "backbone and initial head"
FACTS: dict[str, Facts] = {
    "abo-med": Facts(
        "ABO-Med",
        "backbone",
        "a head, fitted to features",
        "the paper; F2BA (Kwon et al. 2023, Chen et al. 2025)",
        "docs/deviations.md",
        lambda _: Cost(1),
    ),
    "maml": Facts(
        "MAML",
        HEAD,
        "everything, by gradient steps",
        "Finn et al. 2017",
        "Normalisation weights adapt too, as in the lineage of the paper; 5,000 updates of 4 tasks instead of 60,000",
        lambda c: _unrolled(c.maml),
    ),
    "fomaml": Facts(
        "FOMAML",
        HEAD,
        "everything, by gradient steps",
        "Finn et al. 2017",
        "as MAML",
        lambda c: Cost(c.fomaml.steps + 1),
    ),
    "anil": Facts(
        "ANIL",
        HEAD,
        "the head, by gradient steps",
        "Raghu et al. 2020",
        "The backbone sees each image once: the same function, fewer passes",
        lambda _: Cost(1),
    ),
    "reptile": Facts(
        "Reptile",
        HEAD,
        "everything, by Adam on minibatches",
        "Nichol et al. 2018",
        "Adam's second moments begin anew with each task; 5,000 updates instead of 100,000. The lineage's copy, "
        "which undoes all updates of an epoch but one, is not reproduced",
        lambda c: Cost(c.reptile.steps),
    ),
    "alfa": Facts(
        "ALFA",
        "backbone, initial head, a network that generates step sizes and decays",
        "all but normalisation weights",
        "Baik et al. 2020",
        "64 filters instead of 48; the best validated weights instead of an ensemble of five",
        lambda c: _unrolled(c.alfa),
    ),
    "tra-maml": Facts(
        "Tra-MAML",
        HEAD,
        "everything, by as many steps as the epoch says",
        "Voon et al. 2025",
        "Validation and test take the full number of steps; the ramp divides by the rise, which is theirs for every "
        "published setting; the mean of the batch instead of the sum, under Adam the same",
        lambda c: _unrolled(c.tra_maml, _mean_steps(c)),
    ),
    "meta-sgd": Facts(
        "Meta-SGD",
        "backbone, initial head, a step size for every number",
        "everything, by one step of learned sizes",
        "Li et al. 2017",
        "5,000 updates instead of 60,000",
        lambda c: _unrolled(c.meta_sgd),
    ),
    "maml++": Facts(
        "MAML++",
        "backbone, initial head, step sizes and normalisation weights of each step",
        "all but normalisation weights",
        "Antoniou et al. 2019",
        "Order and outer rate are annealed as the paper says; its code's settings for mini-ImageNet do neither. The "
        "best validated weights instead of an ensemble; running statistics, which the code collects and never reads, "
        "are not collected",
        _maml_plus,
    ),
    "imaml": Facts(
        "iMAML",
        HEAD,
        "everything, held near its start by a proximal term",
        "Rajeswaran et al. 2019",
        "Plain descent in the inner problem; a task whose next direction has no positive curvature stops its linear "
        "solve",
        lambda c: Cost(c.imaml.steps + 1 + bool(c.imaml.cg_steps), c.imaml.cg_steps),
    ),
    "fo-b-maml": Facts(
        "FO-B-MAML",
        HEAD,
        "everything, held near its start by a proximal term",
        "Chayti and Jaggi 2024",
        "It publishes no settings for images: iMAML's, and a symmetric difference of 0.1",
        _fo_b_maml,
    ),
    "protonet": Facts(
        "ProtoNet",
        "backbone",
        "nothing: distances to class means",
        "Snell et al. 2017",
        "Trained with as many ways as tested",
        lambda _: Cost(1),
    ),
    "frozen": Facts(
        "frozen features",
        "nothing",
        "a head, fitted to features",
        "the baseline without meta-training",
        "ABO-Med's head on a backbone that is not trained here",
        lambda _: Cost(0),
    ),
}


def preset_of(name: str) -> RunConfig:
    """The configuration that `abomed train --method NAME` starts from."""
    return load_run_config(flags={"train": {"method": name}})


def describe_budget(name: str) -> str:
    """The outer loop of a method's preset in words."""
    config = preset_of(name)
    outer, train = config.outer, config.train
    if name == "frozen":
        return "none"
    words = {"adamw": "Adam", "sgd": "SGD", "rahgd": "RAHGD"}[outer.optimiser]
    pace = "" if outer.schedule == "constant" else f", {outer.schedule} to 0"
    return f"{words} {outer.lr_outer:g}{pace}; {train.iterations:,} x {train.task_batch} tasks"


def describe_inner(name: str) -> str:
    """The inner loop of a method's preset in words: steps in training / in testing."""
    config = preset_of(name)
    if name not in SECTIONS:
        return "to convergence"
    own = getattr(config, SECTIONS[name])
    if name == "protonet":
        return "-"
    if name == "meta-sgd":
        return f"{own.steps} / {own.adapt_steps} of {own.lr_inner:g} to {own.lr_inner_most:g}"
    steps = f"{own.min_steps}-{own.steps}-{own.width:g}" if name == "tra-maml" else f"{own.steps}"
    return f"{steps} / {own.adapt_steps} of {own.lr_inner:g}"


def describe_cost(name: str) -> str:
    """Gradients and products with second derivatives, with the preset's numbers of steps."""
    cost = FACTS[name].cost(preset_of(name))
    return f"{cost.gradients:g} + {cost.products:g}"


def method_table() -> str:
    """The table of docs/methods.md."""
    lines = [
        "| `--method` | learns | a task adapts | gradients + products | steps | meta-training | reference |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, facts in FACTS.items():
        cells = (
            f"`{name}`",
            facts.learns,
            facts.adapts,
            describe_cost(name),
            describe_inner(name),
            describe_budget(name),
            facts.reference,
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def own_preset(name: str) -> dict[str, dict[str, Any]]:
    """What a method's preset says, by section."""
    return PRESETS.get(name, {})

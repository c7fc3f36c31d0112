"""What a comparison of hypergradients says in words: where penalty wins, where it does not, and what limits it.

- To reach a target means an error at or below it in a trial that was made; nothing is interpolated.
- Times within a tenth of each other are equal: that is what a second measurement would change.
- BOME's direction is no estimate, and its sentence says so instead of ranking it.
"""

import math
from collections.abc import Callable
from typing import Literal

from abomed.config.hypergradients import Estimator
from abomed.engine.compare import Comparison, Measurement
from abomed.types import Finding, Level

TARGETS = (0.3, 0.1, 0.01, 0.001)

Price = Callable[[Measurement], float]


def judge(comparison: Comparison) -> tuple[Finding, ...]:
    """Sentences for the reader of the table."""
    ranked = tuple(_rank(comparison, target) for target in TARGETS)
    found = [
        *ranked,
        *_penalty_against_rivals(comparison, "calls", lambda row: row.calls, margin=0.0),
        *_penalty_against_rivals(comparison, "time", lambda row: row.milliseconds, margin=0.1),
        *_limits(comparison),
        *_first_order(comparison),
        *_memory(comparison),
        *_direction(comparison),
    ]
    return tuple(found)


def cheapest(comparison: Comparison, estimator: Estimator, target: float, price: Price) -> Measurement | None:
    """The trial of an estimator that reaches the target for the least."""
    reached = [row for row in comparison.of(estimator) if row.finite and row.error <= target]
    return min(reached, key=price, default=None)


def _rank(comparison: Comparison, target: float) -> Finding:
    reached, missed = [], []
    for estimator in comparison.estimators:
        row = cheapest(comparison, estimator, target, lambda row: row.calls)
        if row is None:
            missed.append(estimator)
        else:
            reached.append(row)
    reached.sort(key=lambda row: row.calls)
    told = ", ".join(
        f"{row.estimator} {row.calls:,.0f} calls, {row.milliseconds:.1f} ms ({row.setting})"
        for row in reached
    )
    text = f"error of {_percent(target)}: {told or 'reached by none'}"
    if missed:
        text += f"; not reached by {', '.join(missed)}"
    return Finding(Level.NOTE, "target", "", text)


def _penalty_against_rivals(
    comparison: Comparison, what: Literal["calls", "time"], price: Price, margin: float
) -> list[Finding]:
    outcomes: dict[str, dict[str, list[str]]] = {"wins": {}, "ties": {}, "loses": {}}
    for rival in comparison.estimators:
        if rival == "penalty":
            continue
        for target in TARGETS:
            own = cheapest(comparison, "penalty", target, price)
            other = cheapest(comparison, rival, target, price)
            if own is None and other is None:
                continue
            outcome = _outcome(
                math.inf if own is None else price(own), math.inf if other is None else price(other), margin
            )
            outcomes[outcome].setdefault(rival, []).append(_percent(target))
    fewer, same = {"calls": ("fewer calls", "as many calls"), "time": ("less time", "as much time")}[what]
    words = {
        "wins": f"penalty needs {fewer} than",
        "ties": f"penalty needs about {same} as",
        "loses": f"penalty needs more, or does not arrive: {fewer} by",
    }
    return [
        Finding(Level.NOTE, f"penalty-{outcome}-{what}", "", f"{words[outcome]} {_list(targets)}")
        for outcome, targets in outcomes.items()
        if targets
    ]


def _outcome(own: float, other: float, margin: float) -> str:
    if own < (1 - margin) * other:
        return "wins"
    return "loses" if other < (1 - margin) * own else "ties"


def _limits(comparison: Comparison) -> list[Finding]:
    """The bias 1/λ, and what rounding times λ leaves."""
    rows = [row for row in comparison.of("penalty") if row.finite]
    if not rows:
        return []
    best = min(rows, key=lambda row: row.error)
    rest = [
        row
        for row in comparison.measurements
        if row.finite and row.estimator not in ("penalty", "implicit-exact")
    ]
    text = f"the best of penalty is an error of {_percent(best.error)} ({best.setting}; {comparison.precision}): "
    text += "its bias falls as 1/lambda, and rounding and unfinished solves count lambda-fold"
    if rest:
        rival = min(rest, key=lambda row: row.error)
        text += f"; {rival.estimator} comes to {_percent(rival.error)}"
    found = [Finding(Level.NOTE, "penalty-floor", "", text)]
    configured = next((row for row in rows if row.configured), None)
    if configured is not None:
        penalty = comparison.inner.penalty
        text = (
            f"as configured (lambda {penalty:.4g}) penalty is {_percent(configured.error)} off, cosine "
            f"{configured.cosine:.4f}, for {configured.calls:,.0f} calls and {configured.milliseconds:.1f} ms"
        )
        found.append(Finding(Level.NOTE, "penalty-configured", "", text))
    return found


def _first_order(comparison: Comparison) -> list[Finding]:
    """Where second derivatives cannot be had, these are the rivals."""
    best = {}
    for estimator in comparison.estimators:
        rows = [row for row in comparison.of(estimator) if row.finite and row.first_order]
        if rows:
            best[estimator] = min(rows, key=lambda row: row.error)
    if len(best) < 2 or "penalty" not in best:
        return []
    told = ", ".join(
        f"{name} {_percent(row.error)}" for name, row in sorted(best.items(), key=lambda pair: pair[1].error)
    )
    text = f"with gradients alone, no product with second derivatives, the least errors are: {told}"
    return [Finding(Level.NOTE, "first-order", "", text)]


def _memory(comparison: Comparison) -> list[Finding]:
    spans = []
    for estimator in comparison.estimators:
        sizes = [row.mebibytes for row in comparison.of(estimator)]
        low, high = min(sizes), max(sizes)
        spans.append(f"{estimator} {low:.1f}" + (f" to {high:.1f}" if high > 1.05 * low else ""))
    return [Finding(Level.NOTE, "memory", "", f"MiB alive at once: {', '.join(spans)}")]


def _direction(comparison: Comparison) -> list[Finding]:
    rows = [row for row in comparison.of("bome") if row.finite]
    if not rows:
        return []
    text = (
        f"bome is a direction of joint descent and not an estimate; its cosine here is at most "
        f"{max(row.cosine for row in rows):.2f}, and no budget brings it to 1"
    )
    return [Finding(Level.NOTE, "bome", "", text)]


def _list(targets: dict[str, list[str]]) -> str:
    return "; ".join(f"{rival} at {', '.join(errors)}" for rival, errors in targets.items())


def _percent(error: float) -> str:
    return f"{100 * error:,.0f} %" if error >= 1 else f"{100 * error:.2g} %"

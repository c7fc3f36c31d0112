"""`abomed methods`: what can be trained, what it learns and costs, and one method's settings."""

import difflib

from abomed.cli import console
from abomed.config.base import Settings
from abomed.config.method_facts import (
    FACTS,
    describe_budget,
    describe_cost,
    describe_inner,
    own_preset,
    preset_of,
)
from abomed.config.methods import SECTIONS
from abomed.errors import ConfigError


def methods(name: str | None = None, /) -> None:
    """What `abomed train --method` takes: what each learns, what it costs, its own settings.

    Parameters
    ----------
    name
        One method: its settings as flags of `abomed train`, and its preset.
    """
    if name is None:
        _print_all()
        return
    if name not in FACTS:
        close = difflib.get_close_matches(name, FACTS, n=1)
        hint = f"did you mean '{close[0]}'? " if close else ""
        raise ConfigError(f"there is no method '{name}'", right=f"{hint}one of {', '.join(FACTS)}")
    _print_one(name)


def _print_all() -> None:
    rows = [
        (
            name,
            facts.learns,
            facts.adapts,
            describe_cost(name),
            describe_inner(name),
            describe_budget(name),
            facts.reference,
        )
        for name, facts in FACTS.items()
    ]
    columns = ("method", "learns", "a task adapts", "cost", "steps", "meta-training", "reference")
    console.print_table("methods", columns, rows, texts=len(columns))
    console.say(
        "cost: gradients + products with second derivatives, of a task in a meta-update, through the whole network\n"
        "next: abomed methods NAME, for its settings"
    )


def _print_one(name: str) -> None:
    facts, config = FACTS[name], preset_of(name)
    console.say(f"{facts.title} ({facts.reference})")
    console.say(f"learns: {facts.learns}; a task adapts: {facts.adapts}")
    console.say(f"cost of a task in a meta-update: {describe_cost(name)} (gradients + products)")
    console.say(f"differs from the original: {facts.differs}")
    preset = [
        f"--{flag} {value}"
        for section, values in own_preset(name).items()
        for flag, value in _flags(section, values).items()
    ]
    console.say(f"preset: {' '.join(preset) or 'default'}\n")
    section = SECTIONS.get(name, "inner")
    own: Settings = getattr(config, section)
    flag = section.replace("_", "-")
    rows = [
        (
            f"--{flag}.{key.replace('_', '-')}",
            str(getattr(own, key)),
            " ".join((field.description or "").split()),
        )
        for key, field in type(own).model_fields.items()
    ]
    console.print_table("settings", ("flag", "default", "what"), rows, texts=3)
    if name == "abo-med":
        console.say(
            "next: --hypergradient NAME (abomed compare hypergradients) and the flags of `abomed train --help`"
        )


def _flags(section: str, values: dict[str, object]) -> dict[str, object]:
    """Names as typed: what describes the training and the backbone has no prefix."""
    prefix = "" if section in ("train", "model", "episodes") else f"{section}."
    return {f"{prefix}{name.replace('_', '-')}": value for name, value in values.items()}

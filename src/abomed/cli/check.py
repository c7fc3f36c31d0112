"""`abomed check`: whether the hypergradient of a configuration or a run is to be trusted, and which step is not."""

import math
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter
from cyclopts.validators import Number

from abomed.cli import console
from abomed.cli.subject import choose_picture, describe, draw_tasks, open_subject
from abomed.errors import DataError

if TYPE_CHECKING:
    from torch import Tensor

    from abomed.bilevel.diagnosis import PenaltyComparison
    from abomed.engine.check import HypergradientCheck

PICTURE = Path("check.png")


def check(
    *,
    run: Path | None = None,
    data: str | None = None,
    preset: Literal["default", "paper", "tiny"] | None = None,
    tasks: Annotated[int, Parameter(validator=Number(gte=1))] = 4,
    seed: Annotated[int | None, Parameter(validator=Number(gte=0))] = None,
    out: Path | None = None,
    json: bool = False,
) -> None:
    """Compare the penalty hypergradient with the exact one on a batch of tasks, and the step sizes with their limits.

    Parameters
    ----------
    run
        A finished run: its weights and its settings. Without it, fresh weights and a preset.
    data
        A pack, or anything `abomed data pack` reads. Without it, a small synthetic set is drawn.
    preset
        The settings to examine where no run is given: `default`, `paper` or `tiny`.
    tasks
        Tasks of the batch.
    seed
        Seed of the tasks and of fresh weights; the configuration's own by default.
    out
        The picture to write, FILE.png; check.png by default, where matplotlib is installed.
    json
        Print one JSON text instead of tables.
    """
    picture = choose_picture(out, PICTURE)
    from abomed.engine.check import check_backbone

    subject = open_subject(run, preset, seed)
    seed = subject.config.train.seed if seed is None else seed
    drawn = draw_tasks(subject, data, tasks, seed)
    result = check_backbone(subject.backbone, drawn.images, subject.config)
    title = describe(subject, data, drawn, tasks)
    if picture is not None:
        _save_picture(result, title, picture)
    if json:
        about = {"batch": title, "episode_hash": drawn.episode_hash, "seed": seed}
        console.print_json(
            {**about, "picture": None if picture is None else str(picture), **_to_json(result)}
        )
        return
    console.say(f"{title}\n")
    _print(result)
    if picture is not None:
        console.say(f"the picture: {picture}")
    else:
        console.say('no picture was drawn: it needs matplotlib, pip install "abomed[report]"')


def _save_picture(result: "HypergradientCheck", title: str, path: Path) -> None:
    from abomed.report.figures import save_png
    from abomed.report.hypergradient import draw_curves

    try:
        save_png(draw_curves(result, title), path)
    except OSError as error:
        raise DataError(
            "the picture cannot be written",
            where=str(path),
            found=error.strerror or str(error),
            right="a folder that exists and can be written: --out FOLDER/check.png",
        ) from error


def _print(result: "HypergradientCheck") -> None:
    console.print_table(
        "the penalty hypergradient against the exact one",
        (
            "lambda", "cosine, solved fully", "error", "cosine, as configured", "error", "bound on error",
            "residual y", "residual z",
        ),
        _curve_rows(result),
    )  # fmt: skip
    console.say("")
    console.print_table(
        "constants of the lower problem", ("", "median task", "worst task"), _constants(result)
    )
    console.say("")
    console.print_table(
        f"step sizes (steps = {result.settings.steps})",
        ("step", "configured", "theorem", "auto", "largest stable", "configured / stable"),
        [
            (
                step.name,
                *(f"{value:.4g}" for value in (step.configured, step.theorem, step.auto, step.stable)),
                f"{step.configured / step.stable:.3g}",
            )
            for step in result.steps
        ],
    )
    console.say("")
    console.print_findings(result.findings)


def _curve_rows(result: "HypergradientCheck") -> list[tuple[str, ...]]:
    rows, marked = [], False
    for at in result.curve:
        if at.penalty >= result.mark and not marked:
            rows.append((f"{result.mark:.4g} = 2 L_d/mu", *([""] * 7)))
            marked = True
        rows.append(_curve_row(at, "  (configured)" if at is result.configured else ""))
    return rows


def _curve_row(at: "PenaltyComparison", remark: str) -> tuple[str, ...]:
    return (
        f"{at.penalty:.4g}{remark}",
        f"{at.converged_cosine:.6f}",
        f"{at.converged_error:.3g}",
        f"{at.configured_cosine:.6f}",
        f"{at.configured_error:.3g}",
        f"{at.bound:.3g}",
        f"{at.residual_y:.2g}",
        f"{at.residual_z:.2g}",
    )


def _named_constants(result: "HypergradientCheck") -> dict[str, tuple[str, "Tensor"]]:
    given = result.constants
    return {
        "L_s": ("L_s, curvature of the support loss", given.smoothness_support),
        "L_d": ("L_d, curvature of the query loss", given.smoothness_query),
        "C_d": ("C_d, slope of the query loss", given.lipschitz_query),
        "rho_s": ("rho_s, change of the support loss's curvature", given.hessian_lipschitz),
        "kappa": ("kappa = L_s/mu, condition of the solve of z", given.condition),
        "kappa_paper": ("kappa as the paper defines it", given.paper_condition),
        "least_penalty": ("2 L_d/mu, least lambda of the O(1/lambda) law", given.least_penalty),
    }


def _constants(result: "HypergradientCheck") -> list[tuple[str, ...]]:
    ridge = f"{result.constants.strong_convexity:.4g}"
    return [
        ("mu, the ridge", ridge, ridge),
        *(
            (words, f"{float(of.median()):.4g}", f"{float(of.max()):.4g}")
            for words, of in _named_constants(result).values()
        ),
    ]


def _to_json(result: "HypergradientCheck") -> dict[str, object]:
    """Everything as JSON values; constants are those of the worst task, numbers that are not finite null."""
    constants = {name: float(of.max()) for name, (_, of) in _named_constants(result).items()}
    return {
        "tasks": result.tasks,
        "inner": result.settings.model_dump(mode="json"),
        "slope": result.slope,
        "constants": _finite({"mu": result.constants.strong_convexity, **constants}),
        "steps": [{**_finite(asdict(step)), "beyond_stable": step.beyond_stable} for step in result.steps],
        "curve": [_finite(asdict(at)) for at in result.curve],
        "configured": _finite(asdict(result.configured)),
        "findings": [console.finding_to_json(finding) for finding in result.findings],
    }


def _finite(values: dict[str, Any]) -> dict[str, Any]:
    """JSON has no word for infinity, which is where a curve of diverging solves goes."""
    return {
        name: None if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in values.items()
    }

"""`abomed figure augmentations` and `abomed figure policy`: augmentation to look at, before it is trusted."""

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from abomed.cli import console
from abomed.config.data import DecodeSettings, ReadSettings
from abomed.config.policies import MedRAugSettings, load_policy, policy_file
from abomed.errors import ConfigError, DataError, MissingExtraError

if TYPE_CHECKING:
    from abomed.config.policies import Policy
    from abomed.report.examples import Examples
    from abomed.report.tiles import TileSheet

FIGURE, POLICY = Path("augmentations.png"), "policy-{}.png"

_Seed = Annotated[int, Parameter(validator=Number(gte=0))]


def augmentations(
    *,
    data: Annotated[list[str] | None, Parameter(consume_multiple=True)] = None,
    out: Path | None = None,
    columns: Annotated[int, Parameter(validator=Number(gte=2, lte=12))] = 4,
    policy: str = "auto",
    seed: _Seed = 0,
    json: bool = False,
) -> None:
    """Images of each set: original, baseline, Cutout, Mixup, CutMix, MedRAug. A PNG and a PDF.

    Parameters
    ----------
    data
        Packs, or anything `abomed data pack` reads, one after another. Without it, the synthetic set.
    out
        The picture to write, FILE.png or FILE.pdf; both are written. augmentations.png by default.
    columns
        Examples of each set.
    policy
        MedRAug's policy: auto (by the source of each set), the name of one, or a TOML file.
    seed
        Seed of the choice of images and of all draws.
    json
        Print one JSON text instead of sentences.
    """
    target = _choose_target(out, FIGURE)
    settings = MedRAugSettings(policy=policy)
    if policy != "auto":
        load_policy(policy)  # a wrong name is told before any image is read
    from abomed.report.augmentations import augmentation_figure

    sets = _gather(data, columns, seed)
    if len({each.images.shape[-1] for each in sets}) > 1:
        raise ConfigError(
            "images of different sizes do not fit one figure",
            where="--data",
            found=", ".join(f"{each.name}: {each.images.shape[-1]} pixels" for each in sets),
            right="packs of one --size",
        )
    sheet = augmentation_figure(sets, medraug_settings=settings, seed=seed)
    written = _write(sheet, target)
    if json:
        rows = {row.name: list(row.captions) for row in sheet.rows}
        classes = {each.name: list(each.classes) for each in sets}
        console.print_json(
            {"files": [str(path) for path in written], "sets": classes, "rows": rows, "seed": seed}
        )
        return
    for each in sets:
        console.say(f"{each.name}: {', '.join(each.classes)}")
    console.say(f"the figure: {' and '.join(map(str, written))}")


def policy(
    *,
    modality: str = "auto",
    data: str | None = None,
    out: Path | None = None,
    images: Annotated[int, Parameter(validator=Number(gte=1, lte=8))] = 3,
    seed: _Seed = 0,
    json: bool = False,
) -> None:
    """Every operation of a policy at five magnitudes, with its range and its reason: to be looked at and vetoed.

    Parameters
    ----------
    modality
        The policy: a name (pap-smear, isic2018, breakhis, general, randaugment, he-randaugment), a TOML file,
        or auto: by the source of the images.
    data
        A pack, or anything `abomed data pack` reads: its images are shown. Without it, those of the synthetic set.
    out
        The picture to write, FILE.png or FILE.pdf; both are written. policy-NAME.png by default.
    images
        How many images are shown side by side.
    seed
        Seed of the choice of images and of the draws in the last rows.
    json
        Print one JSON text instead of a table.
    """
    if modality != "auto":
        load_policy(modality)
    _require_matplotlib()
    from abomed.augment.policies import resolve_policy
    from abomed.report.policy_sheet import policy_sheet

    (examples,) = _gather(None if data is None else [data], images, seed)
    chosen = resolve_policy(MedRAugSettings(policy=modality), examples.source)
    target = _choose_target(out, Path(POLICY.format(_as_file_name(chosen.name))))
    written = _write(policy_sheet(chosen, examples, seed=seed), target)
    if json:
        console.print_json(
            {"policy": chosen.model_dump(mode="json"), "files": [str(path) for path in written]}
        )
        return
    _print_policy(chosen)
    console.say(f"\nthe sheet: {' and '.join(map(str, written))}")
    original = policy_file(chosen.name if modality == "auto" else modality)
    console.say(
        f"to veto an operation or narrow its range: copy {original}, change the copy, "
        "and train with --augment medraug --medraug.policy COPY.toml"
    )


def _print_policy(chosen: "Policy") -> None:
    from abomed.report.policy_sheet import describe_range

    low, high = chosen.magnitude
    console.print_table(
        f"{chosen.name}: {chosen.title}; {chosen.operations} operations per image, M from {low:g} to {high:g}",
        ("operation", "range", "reason"),
        [(entry.operation, describe_range(entry, chosen), entry.rationale) for entry in chosen.entries],
    )


def _gather(data: list[str] | None, count: int, seed: int) -> "list[Examples]":
    from abomed.cli.opening import open_source
    from abomed.report.examples import choose_examples, synthetic_examples

    if not data:
        return [synthetic_examples(count, seed)]
    sets = []
    for source in data:
        with open_source(source, ReadSettings(), DecodeSettings()) as pack:
            sets.append(choose_examples(pack, count, seed))
    return sets


def _choose_target(out: Path | None, default: Path) -> Path:
    _require_matplotlib()
    target = default if out is None else out
    if target.suffix.lower() not in (".png", ".pdf"):
        raise ConfigError(
            "the picture is a PNG and a PDF",
            where="--out",
            found=str(out),
            right="a name ending in .png or .pdf",
        )
    return target


def _require_matplotlib() -> None:
    if find_spec("matplotlib") is None:
        raise MissingExtraError("drawing images with their names", "report", "matplotlib")


def _write(sheet: "TileSheet", target: Path) -> list[Path]:
    from abomed.report.tiles import draw_tiles

    drawn = draw_tiles(sheet)
    written = []
    for suffix, content in ((".png", drawn.png), (".pdf", drawn.pdf)):
        path = target.with_suffix(suffix)
        try:
            path.write_bytes(content)
        except OSError as error:
            raise DataError(
                "the picture cannot be written",
                where=str(path),
                found=error.strerror or str(error),
                right="a folder that exists and can be written: --out FOLDER/figure.png",
            ) from error
        written.append(path)
    return written


def _as_file_name(name: str) -> str:
    """A policy's name is free text."""
    return "".join(char if char.isalnum() or char in "-_" else "-" for char in name)

"""`abomed models`: the weights that are here, and the card of one of them."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from abomed.cli import console
from abomed.config.data import DecodeSettings, ReadSettings
from abomed.types import printable

if TYPE_CHECKING:
    from abomed.classify.card import AccuracyEntry, Card
    from abomed.classify.offers import Offer

app = App(
    name="models",
    help="The weights that are here, with their cards.",
    default_parameter=Parameter(negative=""),
)


Flat = Parameter(name="*")
_READ, _DECODE = ReadSettings(), DecodeSettings()


@app.default
@app.command(name="list")
def list_models(*, json: bool = False) -> None:
    """What `--model` can name here, and what each is.

    Parameters
    ----------
    json
        Print one JSON text instead of a table.
    """
    from abomed.classify.offers import list_offers

    offers = list_offers()
    if json:
        console.print_json([_offer_to_json(offer) for offer in offers])
        return
    rows = [(offer.name, offer.title, offer.state) for offer in offers]
    console.print_table("models", ("name", "what it is", "here"), rows)
    console.say("")
    console.say(
        "Several joined by + answer together: lite0-stages+untrained:cnn4. A folder of abomed train or abomed.save "
        "is one too, and so is timm:NAME (extra [pretrained]). One card: abomed models show NAME. Research use only."
    )


@app.command
def show(name: Annotated[str, Parameter(show_default=False)], /, *, json: bool = False) -> None:
    """The card of one model: what it was trained on, how well it did, and what it must not be used for.

    Parameters
    ----------
    name
        A name of the list, or a folder of abomed.save.
    json
        Print the card itself.
    """
    from abomed.classify.offers import read_card

    card = read_card(name)
    if json:
        console.print_json(card.model_dump(mode="json"))
        return
    for title, text in _lines(card):
        console.say(f"{title:<12} {printable(text)}")
    if card.accuracy:
        console.say("")
        columns = ("classes", "task", "accuracy", "over tasks", "over images", "untrained")
        console.print_table(
            "accuracy on classes it has never seen", columns, [_row(e) for e in card.accuracy]
        )


@app.command
def make(
    run: Path,
    /,
    *,
    data: str,
    out: Path,
    name: str | None = None,
    title: str = "",
    evaluation: tuple[Path, ...] = (),
    untrained: tuple[Path, ...] = (),
    limit: tuple[str, ...] = (),
    tasks: int = 60,
    read: Annotated[ReadSettings, Flat] = _READ,
) -> None:
    """Turn a finished run into a model with a card, calibrated on its base classes.

    Parameters
    ----------
    run
        A run folder of `abomed train`.
    data
        The images it was trained on: a pack, or anything `abomed data pack` reads.
    out
        A new or empty folder for the model.
    name
        What the model is called; as its folder by default.
    title
        One line that says what it is.
    evaluation
        Results of `abomed evaluate RUN --out FILE`, copied into the card; several times for several.
    untrained
        The same with --untrained.
    limit
        A sentence on what it must not be used for; several times for several.
    tasks
        Base-class tasks for each number of shots.
    """
    from abomed.classify.describe import describe, read_results
    from abomed.cli.opening import open_source
    from abomed.engine.assess import load_run

    trained = load_run(run)
    with open_source(data, read, _DECODE) as pack, console.progress("base tasks") as on_progress:
        model = describe(
            trained,
            pack,
            name=name or out.name,
            title=title or f"{trained.backbone.name}, meta-trained on {trained.source}",
            evaluations=read_results(evaluation),
            untrained=read_results(untrained),
            limits=limit,
            tasks=tasks,
            on_progress=on_progress,
        )
    model.save(out)
    size = (out / "weights.safetensors").stat().st_size / 2**20
    console.say(f"{out}: weights ({size:.2f} MiB) and card. Use it: --model {out}")


def _lines(card: "Card") -> list[tuple[str, str]]:
    images, base = f"{card.data.images:,} images", ", ".join(card.split.base)
    lines = [
        ("name", card.name),
        ("what", card.title),
        ("use", card.use),
        ("backbone", f"{card.model.backbone}, {card.iterations:,} iterations, seed {card.seed}"),
        ("data", f"{card.data.name}, {images}; licence: {card.data.licence}"),
        ("trained on", base),
        ("tested on", ", ".join(card.split.novel)),
    ]
    lines += [("note", card.data.note)] if card.data.note else []
    lines += [("limit", limit) for limit in card.limits]
    return [*lines, ("written by", card.written_by), ("SHA-256", card.weights_sha256)]


def _row(entry: "AccuracyEntry") -> tuple[str, ...]:
    pool = "-" if entry.pool is None else f"{_percent(entry.pool[0])} to {_percent(entry.pool[1])}"
    return (
        ", ".join(entry.classes),
        f"{entry.ways}-way {entry.shots}-shot",
        _percent(entry.mean),
        f"{_percent(entry.low)} to {_percent(entry.high)}",
        pool,
        "-" if entry.untrained_mean is None else _percent(entry.untrained_mean),
    )


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _offer_to_json(offer: "Offer") -> dict[str, Any]:
    return {"name": offer.name, "title": offer.title, "state": offer.state, "usable": offer.usable}

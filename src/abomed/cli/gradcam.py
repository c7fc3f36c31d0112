"""`abomed figure gradcam`: heat maps of several models on a task of each set, side by side."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from abomed.cli import console
from abomed.config.episodes import EpisodeSpec
from abomed.errors import ConfigError

_Few = Annotated[int, Parameter(validator=Number(gte=1, lte=12))]


def gradcam(
    *,
    data: Annotated[list[str], Parameter(consume_multiple=True)],
    model: Annotated[list[str] | None, Parameter(consume_multiple=True)] = None,
    out: Path = Path("gradcam.png"),
    ways: Annotated[int, Parameter(validator=Number(gte=2))] = 3,
    shots: Annotated[int, Parameter(validator=Number(gte=1))] = 10,
    columns: _Few = 3,
    layer: str = "last_map",
    seed: Annotated[int, Parameter(validator=Number(gte=0))] = 0,
    json: bool = False,
) -> None:
    """Grad-CAM of several models on one task of each set. A PNG and a PDF.

    Parameters
    ----------
    data
        Folders, archives or packs, one after another; NAME=PATH for a known data set.
    model
        What `abomed classify --model` takes, one row of maps for each: run folders, lite0, untrained:cnn4, A+B.
    out
        The picture to write, FILE.png or FILE.pdf; both are written.
    ways
        Classes of the task.
    shots
        Labelled images of each class.
    columns
        Images shown of each set.
    layer
        The layer whose map is shown: last_map, or the name of a module such as backbone.body.blocks.2.
    seed
        Seed of the choice of images.
    json
        Print one JSON text instead of sentences.
    """
    if out.suffix.lower() not in (".png", ".pdf"):
        raise ConfigError(
            "the picture is a PNG and a PDF",
            where="--out",
            found=str(out),
            right="a name ending in .png or .pdf",
        )
    from abomed.classify.embedding import working_side
    from abomed.classify.weights import load_models
    from abomed.data.durable import replace_file
    from abomed.data.manifest import read_manifest
    from abomed.data.packed import open_pack
    from abomed.report.gradcam import gradcam_sheet, read_task, take_task
    from abomed.report.tiles import draw_tiles

    models = [load_models(name) for name in model or ["auto"]]
    spec = EpisodeSpec(ways=ways, shots=shots, queries=-(-columns // ways))
    side = max(working_side(each) for each in models)
    tasks = [
        take_task(open_pack(source), spec, columns, seed)
        if Path(source).suffix == ".safetensors"
        else read_task(read_manifest(source), spec, columns, seed, side)
        for source in data
    ]
    sheet = gradcam_sheet(tasks, models, layer)
    drawn = draw_tiles(sheet)
    written = []
    for suffix, content in ((".png", drawn.png), (".pdf", drawn.pdf)):
        with replace_file(out.with_suffix(suffix)) as file:
            file.write(content)
        written.append(str(out.with_suffix(suffix)))
    if json:
        rows = {row.name: list(row.captions) for row in sheet.rows}
        console.print_json({"files": written, "rows": rows, "seed": seed})
        return
    for row in sheet.rows:
        console.say(f"{row.name}: {', '.join(row.captions)}")
    console.say(f"the figure: {' and '.join(written)}")

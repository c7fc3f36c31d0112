"""`abomed export`: a fitted classifier as one file that needs no abomed."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from abomed.cli import console
from abomed.types import printable

if TYPE_CHECKING:
    from abomed.classify.export import Exported


def export(
    folder: Annotated[Path, Parameter(show_default=False)],
    /,
    *,
    to: Literal["onnx", "torch"] | None = None,
    out: Path | None = None,
    json: bool = False,
) -> None:
    """Write a fitted classifier as one file: pixels in, probabilities out, without abomed. Research use only.

    The file takes 8-bit RGB images of any one size, any number at a time, and was run before it was written: it gives
    the classifier's probabilities.

    Parameters
    ----------
    folder
        A folder of `abomed classify --save` or of `FewShotClassifier.save`.
    to
        `onnx` (ONNX Runtime and whatever else reads ONNX; extra [export]) or `torch` (torch.export, .pt2); by default
        what the suffix of --out says, else onnx.
    out
        The file to write; by default the folder's name with .onnx or .pt2, beside the folder.
    json
        Print one JSON text instead of sentences.
    """
    from abomed import FewShotClassifier
    from abomed.classify.export import SUFFIXES, export
    from abomed.data.durable import check_space

    to = to or ("torch" if out is not None and out.suffix.lower() == SUFFIXES["torch"] else "onnx")
    if out is None:
        out = folder.absolute().with_name(folder.absolute().name + SUFFIXES[to])
    check_space(out.absolute().parent, 2**20)
    written = export(FewShotClassifier.load(folder), out, to)
    if json:
        console.print_json(_to_json(written))
    else:
        _tell(written)


def _to_json(written: "Exported") -> dict[str, object]:
    return {
        "path": str(written.path),
        "format": written.format,
        "bytes": written.size,
        "side": written.side,
        "classes": list(written.classes),
        "difference": written.difference,
    }


def _tell(written: "Exported") -> None:
    names = ", ".join(printable(name) for name in written.classes)
    side = f"{written.side} x {written.side}"
    console.say(f"wrote {printable(str(written.path))} ({written.size / 2**20:.1f} MiB)")
    console.say("in:  images, 8-bit RGB, [images, height, width, 3]")
    console.say(f"out: probabilities, [images, {len(written.classes)}]: {names}")
    console.say(
        "checked: run on made-up pictures, its probabilities differ from the classifier's by "
        f"{written.difference:.0e} at most; pictures of another size than {side} are resized inside"
    )
    console.say("Research use only: no answer is a diagnosis.")

"""A fitted classifier as one file that runs without abomed: ONNX, or a program of torch.export.

Decisions a reader would question:

- Both formats are written from one graph (module `graph`), and what was written is checked before it takes its name:
  it is run as its user would run it, on made-up pictures, and must give the probabilities of the classifier.
- ONNX at operator set 18, the oldest that knows antialiased resizing; weights inside, so that it is one file.
- What the exporters note beside each operation (classes, source files, lines) is taken out: it names folders of the
  machine that exported.
- The classes, the cards of the weights and what the file is not for travel inside it.
"""

import importlib.util
import io
import json
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import UInt8

from abomed import __version__
from abomed.classify.card import USE
from abomed.classify.estimator import FewShotClassifier
from abomed.classify.graph import ClassifierGraph
from abomed.classify.imagenet import LICENCE
from abomed.classify.weights import LITE0, Model
from abomed.engine.files import write_whole
from abomed.errors import ConfigError, MissingExtraError, NumericalError

Format = Literal["onnx", "torch"]
SUFFIXES: dict[Format, str] = {"onnx": ".onnx", "torch": ".pt2"}
INPUT, OUTPUT = "images", "probabilities"
AXES = ("images", "height", "width")
NOTES = "abomed.json"  # the name of the notes inside a .pt2 file
OPERATORS = 18
TOLERANCE = 1e-4
_TRACES = ("stack_trace", "nn_module_stack", "source_fn_stack", "torch_fn", "from_node")


@dataclass(frozen=True)
class Exported:
    """What was written, and how far its answers are from the classifier's."""

    path: Path
    format: Format
    size: int  # bytes
    side: int  # of squares whose answers are the classifier's; other sizes are resized to it
    classes: tuple[str, ...]
    difference: float  # the largest between two probabilities, on made-up pictures


def export(classifier: FewShotClassifier, path: str | Path, format: Format | None = None) -> Exported:
    """Write `classifier`, fitted to images, to `path` (.onnx or .pt2), and check what was written."""
    path = Path(path)
    format = format or _format_of(path)
    if path.suffix.lower() != SUFFIXES[format]:
        raise ConfigError(
            f"a file of the format '{format}' has another suffix",
            where=str(path),
            found=f"the suffix '{path.suffix}'",
            right=f"a name that ends in {SUFFIXES[format]}",
        )
    if format == "onnx":
        _require("onnx", "onnxscript", "onnxruntime")
    graph = ClassifierGraph(classifier).eval()
    notes = describe(classifier, graph.side)
    with _quiet():
        program = _trace(graph)
        data = _to_onnx(program, notes) if format == "onnx" else _to_torch(program, notes)
        pictures = made_up_squares(graph.side)
        answers = _run_onnx(data, pictures) if format == "onnx" else _run_torch(data, pictures)
    difference = float(np.abs(answers - classifier.predict_proba(pictures)).max())
    if not difference <= TOLERANCE:
        raise NumericalError(
            "the exported classifier gives other answers than the fitted one; nothing was written",
            found=f"probabilities that differ by {difference:.1e}",
            right=f"at most {TOLERANCE:.0e}; please report it, with the model's name",
        )
    write_whole(path, data, "the exported classifier could not be written")
    names = tuple(str(name) for name in classifier.classes_.tolist())
    return Exported(path, format, len(data), graph.side, names, difference)


def describe(classifier: FewShotClassifier, side: int) -> dict[str, str]:
    """What travels inside the file; lists and cards as JSON."""
    models = [_describe_model(model) for model in classifier.fitted_models_]
    return {
        "use": USE,
        "classes": json.dumps([str(name) for name in classifier.classes_.tolist()]),
        "input": f"{INPUT}: 8-bit RGB, [images, height, width, 3]; {side} x {side} is not resized",
        "output": f"{OUTPUT}: [images, classes], in the order of classes",
        "labelled_images": json.dumps(torch.bincount(classifier.support_labels_).tolist()),
        "models": json.dumps(models, sort_keys=True),
        "written_by": f"abomed {__version__}, torch {torch.__version__}",
    }


def made_up_squares(side: int, count: int = 6) -> UInt8[np.ndarray, "count side side 3"]:
    """Soft patches of colour, each picture another."""
    generator = torch.Generator().manual_seed(0)
    patches = torch.rand(count, 3, 6, 6, generator=generator)
    soft = torch.nn.functional.interpolate(patches, size=(side, side), mode="bilinear")
    pixels: np.ndarray = (soft * 255).round().to(torch.uint8).permute(0, 2, 3, 1).contiguous().numpy()
    return pixels


def _format_of(path: Path) -> Format:
    for format, suffix in SUFFIXES.items():
        if path.suffix.lower() == suffix:
            return format
    raise ConfigError(
        "the format of the export is not clear",
        where=str(path),
        found=f"the suffix '{path.suffix}'",
        right="a name that ends in .onnx or .pt2",
    )


def _require(*modules: str) -> None:
    for module in modules:
        if importlib.util.find_spec(module) is None:
            raise MissingExtraError("an export to ONNX", "export", module)


def _describe_model(model: Model) -> dict[str, Any]:
    """Name and card of one model, and the licence of weights that have no card."""
    told: dict[str, Any] = {"name": model.name}
    if model.card is not None:
        told["card"] = model.card.model_dump(mode="json")
    if model.name == LITE0:
        told["licence"] = LICENCE
    return told


@contextmanager
def _quiet() -> Iterator[None]:
    """Without what the exporters say about themselves: deprecations inside torch, packages that are not needed."""
    logger = logging.getLogger("torch.onnx")
    level, fast = logger.level, torch.backends.mha.get_fastpath_enabled()
    logger.setLevel(logging.ERROR)
    torch.backends.mha.set_fastpath_enabled(False)  # a fused layer of transformers that no format knows
    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
        torch.backends.mha.set_fastpath_enabled(fast)


def _trace(graph: ClassifierGraph) -> torch.export.ExportedProgram:
    # Three numbers that are equal to none in the graph, so that each stays free.
    example = torch.zeros(2, graph.side + 3, graph.side + 5, 3, dtype=torch.uint8)
    free = {place: torch.export.Dim(name) for place, name in enumerate(AXES)}
    return torch.export.export(graph, (example,), dynamic_shapes={INPUT: free})


def _to_onnx(program: torch.export.ExportedProgram, notes: dict[str, str]) -> bytes:
    written = torch.onnx.export(
        program,
        dynamo=True,
        external_data=False,
        opset_version=OPERATORS,
        output_names=[OUTPUT],
        verbose=False,
    )
    assert written is not None
    proto = written.model_proto
    for node in (*proto.graph.node, *(node for function in proto.functions for node in function.node)):
        node.ClearField("metadata_props")
        node.ClearField("doc_string")
    for value in (*proto.graph.value_info, *proto.graph.input, *proto.graph.output, *proto.graph.initializer):
        value.ClearField("metadata_props")
    for part in (proto, proto.graph):
        part.ClearField("metadata_props")
    _name_axes(proto)
    for key, text in notes.items():
        proto.metadata_props.add(key=key, value=text)
    proto.doc_string = USE
    data: bytes = proto.SerializeToString(deterministic=True)
    return data


def _name_axes(proto: Any) -> None:
    """images, height and width instead of the tracer's symbols; shapes in between are not needed."""
    del proto.graph.value_info[:]
    shape = proto.graph.input[0].type.tensor_type.shape
    for place, name in enumerate(AXES):
        shape.dim[place].dim_param = name
    proto.graph.output[0].type.tensor_type.shape.dim[0].dim_param = AXES[0]


def _to_torch(program: torch.export.ExportedProgram, notes: dict[str, str]) -> bytes:
    for node in program.graph.nodes:
        for trace in _TRACES:
            node.meta.pop(trace, None)
    buffer = io.BytesIO()
    told = json.dumps(notes, indent=1, sort_keys=True)
    torch.export.save(program, buffer, extra_files={NOTES: told})
    return buffer.getvalue()


def _run_onnx(data: bytes, pictures: np.ndarray) -> np.ndarray:
    import onnxruntime

    session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    answers: np.ndarray = session.run(None, {INPUT: pictures})[0]
    return answers


def _run_torch(data: bytes, pictures: np.ndarray) -> np.ndarray:
    program = torch.export.load(io.BytesIO(data))
    answers: np.ndarray = program.module()(torch.from_numpy(pictures)).numpy()
    return answers

"""The command line: one application, one place where errors become sentences and exit codes.

Command groups are named by import path and loaded when called, so that help answers without torch.
"""

import os
import sys
from collections.abc import Sequence
from functools import cache

import docstring_parser
from cyclopts import App, CycloptsError, Parameter
from docstring_parser import Docstring, DocstringParam
from pydantic import BaseModel, ValidationError
from rich.console import Console

from abomed import __version__
from abomed.cli.heap import keep_freed_memory
from abomed.errors import AbomedError, ConfigError

app = App(
    name="abomed",
    help="Few-shot medical image classification. Research use only.",
    version=__version__,
    default_parameter=Parameter(negative=""),
)
app.command(
    "abomed.cli.train:train", name="train", help="Meta-train a backbone on the base classes of a data set."
)
app.command(
    "abomed.cli.methods:methods",
    name="methods",
    help="What can be trained: what it learns, costs and is told.",
)
app.command(
    "abomed.cli.evaluate:evaluate", name="evaluate", help="Test a trained run on classes it has never seen."
)
app.command("abomed.cli.data:app", name="data", help="Read, pack, audit and verify images.")
app.command(
    "abomed.cli.quickstart:quickstart",
    name="quickstart",
    help="Minutes on a synthetic set: images, audit, meta-training, unseen classes, a page.",
)
app.command(
    "abomed.cli.check:check",
    name="check",
    help="Compare the hypergradient and the step sizes with what the theory asks for.",
)
app.command(
    "abomed.cli.compare:app",
    name="compare",
    help="Hypergradient estimators side by side: error, calls, time.",
)
app.command(
    "abomed.cli.classify:classify",
    name="classify",
    help="Answer for a folder of images from a few labelled ones: a table, a page, warnings.",
)
app.command("abomed.cli.models:app", name="models", help="The weights that are here, with their cards.")
app.command(
    "abomed.cli.export:export", name="export", help="A fitted classifier as one file that needs no abomed."
)
app.command("abomed.cli.study:app", name="study", help="The paper's tables and figures, rerun.")
app.command(
    "abomed.cli.search:search",
    name="search",
    help="Settings that do best on classes that are not the test's.",
)
app.command("abomed.cli.figure:app", name="figure", help="One figure from your data or your results.")
app.command(
    "abomed.cli.bench:app", name="bench", help="How long each stage takes here, and how long others take."
)
app.command(
    "abomed.cli.doctor:doctor",
    name="doctor",
    help="What is installed, on which devices, and what is missing.",
)


def run(arguments: Sequence[str] | None = None) -> None:
    """Run one command and exit: 0 ok, 1 a bug, 2 usage or settings, 3 data, 4 numerical."""
    keep_freed_memory()
    sys.exit(call(arguments))


def call(arguments: Sequence[str] | None = None) -> int:
    """Run one command; every expected failure becomes a message on standard error and its exit code."""
    console = Console(stderr=True, soft_wrap=True, highlight=False)
    _parse_each_docstring_once()
    try:
        result = app(arguments, exit_on_error=False, print_error=False, result_action="return_value")
    except AbomedError as error:
        console.print(f"error: {error}", markup=False, style="red" if console.is_terminal else None)
        return error.exit_code
    except (CycloptsError, ValidationError) as error:
        console.print(f"error: {_explain(error)}", markup=False, style="red" if console.is_terminal else None)
        return ConfigError.exit_code
    except KeyboardInterrupt:
        console.print("stopped; nothing half-written was left behind", markup=False)
        return 130
    except BrokenPipeError:
        # The reader (head, less) has gone; Python would complain again when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        if os.environ.get("ABOMED_DEBUG"):
            raise
        console.print(
            f"error: this is a bug in abomed: {type(error).__name__}: {error}\n"
            "  right: run again with ABOMED_DEBUG=1 and report what it prints",
            markup=False,
        )
        return AbomedError.exit_code
    return result if isinstance(result, int) else 0


def _parse_each_docstring_once() -> None:
    """cyclopts parses the source of every settings class, and of pydantic's BaseModel each time, again and again:
    half of the time that `abomed train --help` takes. pydantic has read the texts of the fields already."""
    parse = docstring_parser.parse_from_object
    if hasattr(parse, "cache_info"):
        return

    @cache
    def read(described: type) -> Docstring:
        if not (isinstance(described, type) and issubclass(described, BaseModel)):
            return parse(described)
        found = Docstring()
        for name, field in described.model_fields.items():
            told = DocstringParam(["attribute", name], field.description, name, None, None, None)
            found.meta += [told] if field.description else []
        return found

    docstring_parser.parse_from_object = read


def _explain(error: CycloptsError | ValidationError) -> str:
    cause = error if isinstance(error, ValidationError) else error.__cause__
    if not isinstance(cause, ValidationError):
        return str(error).strip()
    lines = []
    for fault in cause.errors():
        names = ".".join(str(part) for part in fault["loc"]).replace("_", "-")
        message = fault["msg"].removeprefix("Value error, ")
        given = f" (found {fault['input']!r})" if names else ""
        lines.append(f"--{names}: {message}{given}" if names else message)
    return "\n  ".join(lines)

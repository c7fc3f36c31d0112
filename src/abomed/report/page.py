"""Self-contained HTML pages: no outside request, every name from a file escaped, pictures inside the file."""

import base64
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from abomed.report.figures import to_png
from abomed.types import printable


def picture(image: Any) -> str:
    """A picture as a data address for the `src` of an image."""
    return "data:image/png;base64," + base64.b64encode(to_png(image)).decode("ascii")


def write_page(path: Path, template: str, **content: Any) -> None:
    """Render a template of `abomed/report/templates` into one file."""
    text = _environment().get_template(template).render(**content)
    # Undecodable file names arrive as surrogates, which UTF-8 cannot hold; `printable` has escaped them.
    path.write_text(text, encoding="utf-8")


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("abomed.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["printable"] = printable
    return environment

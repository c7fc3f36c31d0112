"""The first thing a newcomer runs ends with a page that holds everything it promises."""

import re
from pathlib import Path

import pytest

from abomed.cli.main import call


def test_quickstart_ends_with_a_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "quickstart"
    assert call(["quickstart", "--out", str(out), "--images-per-class", "24"]) == 0
    said = capsys.readouterr().out
    page = (out / "index.html").read_text(encoding="utf-8")
    assert str(out / "index.html") in said
    assert {"index.html", "contact_sheet.png", "episode.png", "synthetic.safetensors"} == {
        p.name for p in out.iterdir()
    }
    assert page.count("data:image/png;base64,") == 2
    assert "mitotic" in page
    assert re.search(r"hash <code>[0-9a-f]{16}…", page)
    # Self-contained: no address but those inside the file.
    assert not re.findall(r"""(?:src|href)=["'](?!data:|#)""", page)
    assert "http" not in re.sub(r"base64,[A-Za-z0-9+/=]+", "", page).replace("http-equiv", "")
    assert call(["quickstart", "--out", str(out), "--images-per-class", "24"]) == 0, (
        "a second run replaces the first"
    )


def test_quickstart_never_writes_among_other_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "thesis.docx").write_text("precious")
    assert call(["quickstart", "--out", str(tmp_path)]) == 3
    assert "holds other files" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.docx"]

"""The JSON of a pack: any header comes back as it was, any other text is refused by name."""

import hashlib
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from abomed.config.data import DecodeSettings
from abomed.data import header as header_module
from abomed.data.header import PackHeader, dump_findings, load_findings, parse_header
from abomed.errors import DataError
from abomed.types import Finding, Level

# Every code point a file name can carry: newlines, quotes, emoji, and the surrogates of undecodable bytes.
names = st.text(st.characters() | st.characters(min_codepoint=0xDC80, max_codepoint=0xDCFF), max_size=12)
unique = st.lists(names, max_size=6, unique=True).map(tuple)
findings = st.lists(st.builds(Finding, st.sampled_from(Level), names, names, names, names), max_size=4).map(
    tuple
)


@st.composite
def headers(draw: st.DrawFn) -> PackHeader:
    paths = draw(unique)
    return PackHeader(
        source=draw(names),
        layout=draw(names),
        licence=draw(names),
        images=len(paths),
        size=draw(st.integers(8, 1024)),
        fit=draw(st.sampled_from(["squash", "pad", "crop"])),
        decode=DecodeSettings(window=draw(st.sampled_from(["full", "1%,99%", "-5,1e3"]))),
        duplicates="keep",
        class_names=draw(unique),
        group_kind=draw(names),
        group_names=draw(unique),
        split_names=draw(unique),
        format_names=("PNG",),
        paths=paths,
        dropped=tuple((name, "ab" * 32) for name in draw(unique)),
        findings=dump_findings(draw(findings)),
        block_images=4,
        block_sha256=("cd" * 32,) * -(-len(paths) // 4),
        columns_sha256="ef" * 32,
        written_by=draw(names),
    )


@settings(max_examples=200, deadline=None)
@given(headers())
def test_any_header_comes_back_as_it_was(header: PackHeader) -> None:
    text = header.to_json()
    assert text.isascii()
    assert parse_header(text, "x") == header
    assert parse_header(text, "x").to_json() == text
    assert dump_findings(load_findings(header)) == header.findings


@settings(max_examples=300, deadline=None)
@given(headers(), st.data())
def test_any_changed_character_is_refused(header: PackHeader, data: st.DataObject) -> None:
    text = header.to_json()
    place = data.draw(st.integers(0, len(text) - 1))
    other = data.draw(st.characters(max_codepoint=127).filter(lambda char: char != text[place]))
    with pytest.raises(DataError):
        parse_header(text[:place] + other + text[place + 1 :], "x")


def sample(**changes: object) -> str:
    """A header with a checksum that is right, whatever else is wrong."""
    header = PackHeader(
        source="folder", layout="", licence="", images=1, size=8, fit="squash", decode=DecodeSettings(),
        duplicates="keep", class_names=("a",), group_kind="group", group_names=(), split_names=(),
        format_names=("PNG",), paths=("a/1.png",), dropped=(), findings=(), block_images=64,
        block_sha256=("00",), columns_sha256="00", written_by="",
    )  # fmt: skip
    body = header.model_dump(mode="json") | changes
    text = json.dumps(body, sort_keys=True, separators=(",", ":"))
    told = hashlib.sha256(text.encode()).hexdigest()
    return json.dumps({**body, "sha256": told}, sort_keys=True, separators=(",", ":"))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (sample(schema_version=2), "newer abomed"),
        (sample(schema_version=2, unheard_of=True), "newer abomed"),
        (sample(unheard_of=True), "Extra inputs"),
        (sample(images=2), "2 images, but 1 paths and 1 blocks"),
        (sample(images=-1), "-1 images"),
        (sample(block_images=0), "1 images"),
        (sample(class_names=["a", "a"]), "twice"),
        (sample(paths=["a/1.png"] * 2, images=2), "twice"),
        (sample(fit="stretch"), "Input should be"),
        (sample(decode={"max_pixels": 0}), "greater than or equal"),
        (sample().replace("a/1.png", r"\u0061/1.png"), "checksum"),
        (sample().replace(",", ", "), "checksum"),
        ("", "not the JSON"),
        ("[]", "not the JSON"),
        ("{}", "not the JSON"),
        ("null", "not the JSON"),
        ("[" * 100_000, "not the JSON"),
        (sample()[:-1], "not the JSON"),
    ],
)
def test_headers_that_lie(text: str, words: str) -> None:
    with pytest.raises(DataError) as caught:
        parse_header(text, "some.safetensors")
    assert caught.value.where == "some.safetensors"
    assert words in str(caught.value)


def test_sample_itself_is_sound() -> None:
    assert parse_header(sample(), "x").paths == ("a/1.png",)


def test_long_headers_are_refused_unread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(header_module, "MAX_HEADER_BYTES", len(sample()) - 1)
    with pytest.raises(DataError, match="too long"):
        parse_header(sample(), "x")

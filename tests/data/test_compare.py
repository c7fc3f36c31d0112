"""A pack against its source: every change is seen, and nothing that is none."""

from pathlib import Path

import pytest

from abomed.config.data import DecodeSettings, PackSettings, ReadSettings
from abomed.data import crew
from abomed.data.compare import Difference, compare_source
from abomed.data.manifest import read_manifest
from abomed.data.pack import write_pack
from abomed.data.packed import Pack, open_pack
from tests.data.bad_inputs import encode, picture

SMALL = PackSettings(size=16, workers=1)


def pack(source: Path, settings: PackSettings = SMALL) -> Pack:
    out = source.with_name("x.safetensors")
    write_pack(read_manifest(str(source)), out, pack=settings)
    return open_pack(out)


def compare(opened: Pack, source: Path, read: ReadSettings | None = None) -> Difference:
    return compare_source(opened, read_manifest(str(source), read))


def test_no_difference(small_set: Path) -> None:
    difference = compare(pack(small_set), small_set)
    assert not difference
    assert str(difference) == "no difference"
    names = ("added", "missing", "changed", "relabelled", "settings")
    assert difference.to_json() == {name: [] for name in names}


def test_added_missing_and_changed(small_set: Path) -> None:
    opened = pack(small_set)
    (small_set / "normal" / "0.png").unlink()
    (small_set / "normal" / "9.png").write_bytes(encode(picture(99)))
    groups = small_set / "groups.csv"
    groups.write_text(groups.read_text() + "normal/9.png,p9\n")
    jpeg = small_set / "grade 2" / "1.jpg"
    data = bytearray(jpeg.read_bytes())
    data[-10] ^= 1  # it still decodes: only the hash can tell
    jpeg.write_bytes(bytes(data))
    difference = compare(opened, small_set)
    assert difference == Difference(
        added=("normal/9.png",), missing=("normal/0.png",), changed=("grade 2/1.jpg",)
    )
    assert str(difference) == "1 files added, 1 files missing, 1 files changed"
    assert difference.some_paths(2) == ["grade 2/1.jpg", "normal/0.png"]


def test_unreadable_counts_as_changed(small_set: Path) -> None:
    opened, manifest = pack(small_set), read_manifest(str(small_set))
    (small_set / "normal" / "0.png").unlink()
    assert compare_source(opened, manifest).changed == ("normal/0.png",)


def test_moved_between_classes(small_set: Path) -> None:
    opened = pack(small_set)
    (small_set / "groups.csv").unlink()
    (small_set / "normal" / "0.png").rename(small_set / "grade 2" / "00.png")
    difference = compare(opened, small_set, ReadSettings(group_from=r"^(.)"))
    assert difference.missing == ("normal/0.png",)
    assert difference.added == ("grade 2/00.png",)


def test_relabelled_by_a_table(small_set: Path) -> None:
    rows = [f"{r.path},{r.label},{r.group},train" for r in read_manifest(str(small_set)).records]
    (small_set / "groups.csv").unlink()
    table = small_set / "labels.csv"
    table.write_text("\n".join(["path,label,group,split", *rows]))
    opened = pack(table)
    assert not compare(opened, table)
    changed = [rows[0].replace(",grade 2,", ",normal,"), rows[1].replace("train", "test"), *rows[2:]]
    changed[3] = changed[3].replace("patient 1", "patient 7")
    table.write_text("\n".join(["path,label,group,split", *changed]))
    assert compare(opened, table) == Difference(
        relabelled=tuple(r.split(",")[0] for r in (rows[0], rows[1], rows[3]))
    )


def test_groups_that_come_or_go(small_set: Path) -> None:
    opened = pack(small_set)
    table = (small_set / "groups.csv").read_text()
    (small_set / "groups.csv").unlink()
    assert len(compare(opened, small_set).relabelled) == 12
    bare = pack(small_set)
    assert not compare(bare, small_set)
    (small_set / "groups.csv").write_text(table)
    assert len(compare(bare, small_set).relabelled) == 12


def test_groups_given_to_equal_pictures_are_no_news(small_set: Path) -> None:
    (small_set / "groups.csv").unlink()
    (small_set / "normal" / "twin.png").write_bytes((small_set / "normal" / "0.png").read_bytes())
    opened = pack(small_set)
    assert opened.group_names == ("copies of normal/0.png",)
    assert not compare(opened, small_set)


def test_refused_files_are_news_only_when_mended(small_set: Path) -> None:
    (small_set / "groups.csv").unlink()
    bad = small_set / "normal" / "bad.png"
    bad.write_bytes(b"")
    opened = pack(small_set)
    assert not compare(opened, small_set)
    bad.write_bytes(b"still no image")
    assert not compare(opened, small_set)
    bad.write_bytes(encode(picture(77)))
    assert compare(opened, small_set) == Difference(added=("normal/bad.png",))


def test_what_ended_a_decoder_is_not_decoded_here(small_set: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (small_set / "groups.csv").unlink()
    deadly = small_set / "normal" / "deadly.png"
    deadly.write_bytes(b"")
    opened = pack(small_set)
    told = tuple(
        (level, crew.DECODER_DIED if where == "normal/deadly.png" else code, where, text, advice)
        for level, code, where, text, advice in opened.header.findings
    )
    opened.header = opened.header.model_copy(update={"findings": told})
    deadly.write_bytes(encode(picture(77)))

    def explode(*_: object) -> None:
        raise AssertionError("decoded")

    monkeypatch.setattr("abomed.data.compare.decode", explode)
    assert not compare(opened, small_set)


def test_dropped_copies_are_news_only_when_changed(small_set: Path) -> None:
    (small_set / "groups.csv").unlink()
    copy = small_set / "grade 2" / "copy.png"
    copy.write_bytes((small_set / "normal" / "0.png").read_bytes())
    opened = pack(small_set, PackSettings(size=16, workers=1, duplicates="drop-both"))
    assert len(opened) == 11
    assert not compare(opened, small_set)
    copy.write_bytes(encode(picture(55)))
    assert compare(opened, small_set) == Difference(added=("grade 2/copy.png",))


def test_settings_are_compared_where_given(small_set: Path) -> None:
    opened, manifest = pack(small_set), read_manifest(str(small_set))
    assert not compare_source(opened, manifest, DecodeSettings(), SMALL)
    assert not compare_source(opened, manifest, DecodeSettings(), PackSettings(size=16, workers=7))
    other = PackSettings(size=20, fit="pad", duplicates="keep-first")
    difference = compare_source(opened, manifest, DecodeSettings(window="0,9"), other)
    assert difference.settings == ("decoding", "size", "fit", "duplicates")
    assert str(difference) == "decoding differs, size differs, fit differs, duplicates differs"


def test_progress_ends_at_the_number_of_files(small_set: Path) -> None:
    told: list[tuple[int, int]] = []
    opened = pack(small_set)
    compare_source(opened, read_manifest(str(small_set)), on_progress=lambda *done: told.append(done))
    assert told == [(12, 12)]

"""Downloading against a server on this machine that breaks connections, ignores ranges and changes files."""

import hashlib
import io
import json
import re
import sys
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from abomed.config.fetch import FetchSettings
from abomed.data.catalogue import SOURCES
from abomed.data.fetch import CHECKSUMS, fetch, licence_notice
from abomed.data.repack import repack
from abomed.data.sources import match_source
from abomed.data.transfer import transfer
from abomed.errors import ConfigError, DataError, MissingExtraError
from tests.data.file_server import Server, tar_of, zip_of

pytest.importorskip("pooch")
QUICK = FetchSettings(attempts=3, pause=0.0, timeout=5.0)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with Server() as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield running
        running.shutdown()
        thread.join()


SMEAR = zip_of({"smear2005/New database pictures/light_dysplastic/149143370-149143378-001.BMP": bytes(5000)})
SMEAR_SUM = hashlib.sha256(SMEAR).hexdigest()


def test_file_is_fetched_recorded_and_not_fetched_again(server: Server, tmp_path: Path) -> None:
    server.files["smear2005.zip"] = SMEAR
    steps: list[tuple[str, int, int | None]] = []
    into = tmp_path / "new" / "folder"
    paths = fetch(
        "herlev", into, settings=QUICK, base_url=server.url, progress=lambda *step: steps.append(step)
    )
    assert paths == (into / "smear2005.zip",)
    assert paths[0].read_bytes() == SMEAR
    assert steps[-1] == ("smear2005.zip", len(SMEAR), len(SMEAR))
    assert json.loads((into / CHECKSUMS).read_text()) == {"smear2005.zip": SMEAR_SUM}
    assert sorted(path.name for path in into.iterdir()) == [CHECKSUMS, "smear2005.zip"]
    assert fetch("pap-smear", into, settings=QUICK, base_url=server.url) == paths
    assert len(server.asked) == 1


@pytest.mark.parametrize("cuts", [[1000], [10, 20, 30, 40, 50]], ids=["once", "more often than attempts"])
def test_broken_connection_is_continued(server: Server, tmp_path: Path, cuts: list[int]) -> None:
    server.files["smear2005.zip"] = SMEAR
    server.break_after = list(cuts)
    (path,) = fetch("pap-smear", tmp_path, settings=QUICK, base_url=server.url)
    assert path.read_bytes() == SMEAR
    offsets = [sum(cuts[: count + 1]) for count in range(len(cuts))]
    assert [asked for _, asked in server.asked] == [None, *(f"bytes={offset}-" for offset in offsets)]


def test_next_run_continues_what_the_last_one_left(server: Server, tmp_path: Path) -> None:
    server.files["smear2005.zip"] = SMEAR
    server.break_after = [1000, 0, 0, 0]
    with pytest.raises(DataError, match=re.escape("1,000 bytes are kept and will be continued")):
        fetch("pap-smear", tmp_path, settings=QUICK, base_url=server.url)
    assert (tmp_path / "smear2005.zip.part").stat().st_size == 1000
    server.asked.clear()
    (path,) = fetch("pap-smear", tmp_path, settings=QUICK, base_url=server.url)
    assert path.read_bytes() == SMEAR
    assert server.asked == [("/smear2005.zip", "bytes=1000-")]


def test_part_that_is_whole_already_is_not_sent_again(server: Server, tmp_path: Path) -> None:
    server.files["file"] = SMEAR
    part = tmp_path / "file.part"
    part.write_bytes(SMEAR)
    part.with_name("file.part.tag").write_text(f'"{hashlib.md5(SMEAR).hexdigest()}"')
    transfer(f"{server.url}/file", part, QUICK)
    assert part.read_bytes() == SMEAR
    assert server.asked == [("/file", f"bytes={len(SMEAR)}-")]


@pytest.mark.parametrize("fault", ["no ranges", "no tag", "file changed"])
def test_what_cannot_be_continued_starts_anew(server: Server, tmp_path: Path, fault: str) -> None:
    server.ranges, server.tagged = fault != "no ranges", fault != "no tag"
    server.files["file"] = SMEAR
    server.break_after = [1000, 0, 0, 0]
    part = tmp_path / "file.part"
    with pytest.raises(DataError, match="the download failed"):
        transfer(f"{server.url}/file", part, QUICK)
    if fault == "file changed":
        server.files["file"] = SMEAR[::-1] + b"longer"
    transfer(f"{server.url}/file", part, QUICK)
    assert part.read_bytes() == server.files["file"]


def test_server_that_recovers_is_waited_for_and_one_that_refuses_is_not(
    server: Server, tmp_path: Path
) -> None:
    server.files["smear2005.zip"] = SMEAR
    server.statuses = [503, 429]
    assert fetch("pap-smear", tmp_path, settings=QUICK, base_url=server.url)[0].read_bytes() == SMEAR
    assert len(server.asked) == 3
    server.asked.clear()
    with pytest.raises(DataError, match="found: 404"):
        fetch("isic2018", tmp_path, settings=QUICK, base_url=server.url)
    assert len(server.asked) == 1


def test_attempts_are_bounded(server: Server, tmp_path: Path) -> None:
    server.statuses = [503] * 10
    with pytest.raises(DataError, match=r"503 .*\(3 attempts in a row brought nothing\)"):
        transfer(f"{server.url}/file", tmp_path / "file.part", QUICK)
    assert len(server.asked) == 3


def test_wrong_checksum_keeps_the_file_aside(server: Server, tmp_path: Path) -> None:
    server.files["smear2005.zip"] = SMEAR
    expected = "0" * 64
    (tmp_path / CHECKSUMS).write_text(json.dumps({"smear2005.zip": expected}))
    with pytest.raises(DataError) as caught:
        fetch("pap-smear", tmp_path, settings=QUICK, base_url=server.url)
    assert caught.value.found == f"sha256:{SMEAR_SUM}"
    assert f"sha256:{expected}" in (caught.value.right or "")
    assert (tmp_path / "smear2005.zip.bad").read_bytes() == SMEAR
    assert not (tmp_path / "smear2005.zip").exists()
    assert json.loads((tmp_path / CHECKSUMS).read_text()) == {"smear2005.zip": expected}


def test_published_checksum_is_compared(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dataclasses import replace

    source = SOURCES["pap-smear"]
    for digest, fits in ((hashlib.md5(SMEAR).hexdigest(), True), ("f" * 32, False)):
        download = replace(source.downloads[0], checksum=f"md5:{digest}")
        monkeypatch.setattr(
            "abomed.data.fetch.find_source", lambda _, d=download: replace(source, downloads=(d,))
        )
        server.files["smear2005.zip"] = SMEAR
        into = tmp_path / digest
        if fits:
            assert fetch("pap-smear", into, settings=QUICK, base_url=server.url)[0].exists()
        else:
            with pytest.raises(DataError, match="published by its owner"):
                fetch("pap-smear", into, settings=QUICK, base_url=server.url)


def test_file_that_rotted_on_the_disk_is_found(server: Server, tmp_path: Path) -> None:
    server.files["smear2005.zip"] = SMEAR
    (path,) = fetch("pap-smear", tmp_path, settings=QUICK, base_url=server.url)
    path.write_bytes(SMEAR[:-1] + b"?")
    with pytest.raises(DataError, match="does not have the checksum"):
        fetch("pap-smear", tmp_path, settings=QUICK, base_url=server.url)
    assert fetch("pap-smear", tmp_path, settings=QUICK, base_url=server.url)[0].read_bytes() == SMEAR


def test_file_that_somebody_put_there_is_not_touched(server: Server, tmp_path: Path) -> None:
    (tmp_path / "smear2005.zip").write_bytes(b"mine")
    with pytest.raises(DataError, match="was not downloaded by abomed"):
        fetch("pap-smear", tmp_path, settings=QUICK, base_url=server.url)
    assert (tmp_path / "smear2005.zip").read_bytes() == b"mine"
    assert server.asked == []


@pytest.mark.parametrize("content", ["{", "[]", '{"smear2005.zip": 1}'])
def test_broken_record_of_checksums_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "smear2005.zip").write_bytes(SMEAR)
    (tmp_path / CHECKSUMS).write_text(content)
    with pytest.raises(DataError, match="record of checksums"):
        fetch("pap-smear", tmp_path, settings=QUICK)


SLIDE = "BreaKHis_v1/histology_slides/breast/benign/SOB/adenosis/SOB_B_A_14-22549AB/400X"


def test_tar_becomes_a_zip_that_is_read_in_place(server: Server, tmp_path: Path) -> None:
    members = {f"{SLIDE}/SOB_B_A-14-22549AB-400-{number:03}.png": bytes([number]) * 70 for number in range(3)}
    server.files["BreaKHis_v1.tar.gz"] = tar_of(members, links={"BreaKHis_v1/link.png": "/etc/passwd"})
    (path,) = fetch("breakhis400", tmp_path, settings=QUICK, base_url=server.url)
    assert path.name == "BreaKHis_v1.zip"
    with zipfile.ZipFile(path) as archive:
        assert {name: archive.read(name) for name in archive.namelist()} == members
        assert {info.compress_type for info in archive.infolist()} == {zipfile.ZIP_STORED}
        assert match_source(archive.namelist()) is SOURCES["breakhis400"]
    first = path.read_bytes()
    assert fetch("breakhis40", tmp_path, settings=QUICK, base_url=server.url) == (path,)
    assert len(server.asked) == 1
    path.unlink()
    assert fetch("breakhis40", tmp_path, settings=QUICK, base_url=server.url)[0].read_bytes() == first


def test_several_files_become_one_zip(server: Server, tmp_path: Path) -> None:
    server.files = {
        "ISIC2018_Task3_Training_GroundTruth.zip": zip_of(
            {"Truth/ISIC2018_Task3_Training_GroundTruth.csv": b"image"}
        ),
        "ISIC2018_Task3_Training_LesionGroupings.csv": b"image,lesion_id",
        "ISIC2018_Task3_Training_Input.zip": zip_of({"Input/ISIC_0024306.jpg": b"jpeg"}),
    }
    (path,) = fetch("isic2018", tmp_path, settings=QUICK, base_url=server.url)
    with zipfile.ZipFile(path) as archive:
        assert match_source(archive.namelist()) is SOURCES["isic2018"]
        assert archive.read("ISIC2018_Task3_Training_LesionGroupings.csv") == b"image,lesion_id"
    assert set(json.loads((tmp_path / CHECKSUMS).read_text())) == {"isic2018.zip", *server.files}


@pytest.mark.parametrize(
    "name", ["../evil.png", "/evil.png", "a/../../evil.png", "a\\..\\evil.png", "C:/evil.png"]
)
@pytest.mark.parametrize("kind", ["tar.gz", "zip"])
def test_member_that_leads_out_stops_the_archive(
    server: Server, tmp_path: Path, name: str, kind: str
) -> None:
    members = {"fine.png": b"1", name: b"2"}
    if kind == "zip":
        part = tmp_path / "part.zip"
        part.write_bytes(zip_of(members))
        with pytest.raises(DataError, match="leads out of it"):
            repack([part], io.BytesIO())
        return
    server.files["BreaKHis_v1.tar.gz"] = tar_of(members)
    with pytest.raises(DataError, match="leads out of it") as caught:
        fetch("breakhis400", tmp_path / "into", settings=QUICK, base_url=server.url)
    assert caught.value.found == name
    assert sorted(path.name for path in (tmp_path / "into").iterdir()) == ["BreaKHis_v1.tar.gz", CHECKSUMS]
    assert not (tmp_path / "evil.png").exists()


@pytest.mark.parametrize("keep", [0.5, 0.9])
def test_damaged_archive_is_refused(tmp_path: Path, keep: float) -> None:
    whole = tar_of({f"{number}.png": hashlib.sha256(bytes([number])).digest() * 400 for number in range(9)})
    part = tmp_path / "part.tar.gz"
    part.write_bytes(whole[: int(keep * len(whole))])
    with pytest.raises(DataError, match="the archive is damaged"):
        repack([part], io.BytesIO())


def test_names_that_parts_share_are_told_apart(tmp_path: Path) -> None:
    parts = [tmp_path / "one.zip", tmp_path / "two.zip"]
    for number, part in enumerate(parts):
        part.write_bytes(zip_of({"LICENSE.txt": b"%d" % number}))
    with (tmp_path / "both.zip").open("wb") as file:
        repack(parts, file)
    with zipfile.ZipFile(tmp_path / "both.zip") as archive:
        assert {name: archive.read(name) for name in archive.namelist()} == {
            "LICENSE.txt": b"0",
            "two/LICENSE.txt": b"1",
        }
    with pytest.raises(DataError, match="two members have the same name"):
        repack([*parts, parts[1]], io.BytesIO())


def test_proxy_of_the_environment_is_used(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.files["file"] = SMEAR
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("http_proxy", server.url)
    transfer("http://somewhere.invalid/file", tmp_path / "file.part", QUICK)
    assert server.asked == [("http://somewhere.invalid/file", None)]
    assert (tmp_path / "file.part").read_bytes() == SMEAR


def test_folder_that_cannot_be_written_is_named(server: Server, tmp_path: Path) -> None:
    server.files["file"] = SMEAR
    with pytest.raises(DataError, match="the download could not be written"):
        transfer(f"{server.url}/file", tmp_path / "no such folder" / "file.part", QUICK)


def test_missing_extra_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pooch", None)
    with pytest.raises(MissingExtraError, match=re.escape('pip install "abomed[data]"')):
        fetch("pap-smear", tmp_path)


def test_unknown_name_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="did you mean 'isic2018'"):
        fetch("isic2108", tmp_path)


@pytest.mark.parametrize("name", list(SOURCES))
def test_licence_notice_says_licence_origin_and_size(name: str) -> None:
    notice = licence_notice(SOURCES[name])
    assert f"licence: {SOURCES[name].licence}" in notice
    assert all(download.url in notice for download in SOURCES[name].downloads)
    assert notice.count(" MB") == len(SOURCES[name].downloads)

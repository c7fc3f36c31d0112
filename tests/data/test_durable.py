"""Files that are either the old ones or the new ones."""

from pathlib import Path

import pytest

from abomed.data.durable import check_space, replace_file
from abomed.errors import DataError


def test_the_name_is_taken_only_at_the_end(tmp_path: Path) -> None:
    target = tmp_path / "x"
    target.write_bytes(b"old")
    with replace_file(target) as file:
        file.write(b"new")
        assert target.read_bytes() == b"old"
        (temporary,) = [path for path in tmp_path.iterdir() if path != target]
        assert temporary.name.startswith(".x.tmp-")
    assert target.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [target]


@pytest.mark.parametrize("error", [ValueError("no"), KeyboardInterrupt()])
def test_what_is_no_fault_of_the_disk_passes_through(error: BaseException, tmp_path: Path) -> None:
    target = tmp_path / "x"
    target.write_bytes(b"old")

    def write_half() -> None:
        with replace_file(target) as file:
            file.write(b"half")
            raise error

    with pytest.raises(type(error)):
        write_half()
    assert target.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [target]


def test_two_writers_do_not_share_a_file(tmp_path: Path) -> None:
    with replace_file(tmp_path / "x") as first, replace_file(tmp_path / "x") as second:
        first.write(b"first")
        second.write(b"second")
    assert (tmp_path / "x").read_bytes() == b"first"  # the outer one ends last
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


def test_a_folder_in_the_way_is_named(tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()
    with pytest.raises(DataError, match="could not be written") as caught, replace_file(tmp_path / "x"):
        pass
    assert caught.value.where == str(tmp_path / "x")
    assert caught.value.right is not None
    assert "MiB are free" in caught.value.right


def test_space_is_checked_without_a_trace(tmp_path: Path) -> None:
    check_space(tmp_path, 1)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(DataError, match="not enough free space"):
        check_space(tmp_path, 2**70)

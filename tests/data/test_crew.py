"""Worker processes: whichever image ends one is named, and nothing else is lost."""

import os
import signal
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from abomed.config.data import DecodeSettings, PackSettings
from abomed.data import crew
from abomed.data.crew import prepare_all
from abomed.data.prepare import Job, Prepared
from abomed.data.records import Record
from tests.data.bad_inputs import encode, picture

COUNT, SIDE = 60, 8
PICTURES = [encode(picture(number, (SIDE, SIDE)), "BMP") for number in range(COUNT)]


@dataclass(frozen=True)
class Trap:
    """A store whose reading of some paths ends the process that reads, once or always."""

    always: tuple[str, ...] = ()
    once: tuple[str, ...] = ()
    seen: str = ""  # a folder in which processes leave word of what they read once

    def read(self, path: str) -> bytes:
        if path in self.once:
            mark = Path(self.seen, path)
            if not mark.exists():
                mark.touch()
                os.kill(os.getpid(), signal.SIGKILL)
        if path in self.always:
            os.kill(os.getpid(), signal.SIGKILL)
        return PICTURES[int(path)]


@pytest.fixture
def few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crew, "CHUNK", 4)
    monkeypatch.setattr(crew, "IN_PROCESS", 0)


def run(store: Trap, tmp_path: Path, workers: int = 2) -> tuple[list[Prepared], np.ndarray]:
    raw = tmp_path / "raw"
    raw.write_bytes(bytes(COUNT * 3 * SIDE * SIDE))
    job = Job(store, DecodeSettings(), PackSettings(size=SIDE, workers=workers), raw)
    told: list[tuple[int, int]] = []
    records = [Record(str(number), "x") for number in range(COUNT)]
    prepared = prepare_all(job, records, lambda done, total: told.append((done, total)))
    assert [row.slot for row in prepared] == list(range(COUNT))
    assert told == sorted(told)
    assert told[-1] == (COUNT, COUNT)
    return prepared, np.fromfile(raw, np.uint8).reshape(COUNT, 3, SIDE, SIDE)


def assert_all_but(lost: set[int], prepared: list[Prepared], raw: np.ndarray) -> None:
    refused = {row.slot: row.refusal.code for row in prepared if row.refusal is not None}
    assert refused == dict.fromkeys(lost, crew.DECODER_DIED)
    for number in set(range(COUNT)) - lost:
        expected = np.asarray(picture(number, (SIDE, SIDE))).transpose(2, 0, 1)
        assert np.array_equal(raw[number], expected)


@pytest.mark.usefixtures("few_at_a_time")
def test_images_that_end_their_process_are_refused_by_name(tmp_path: Path) -> None:
    lost = {0, 1, COUNT - 1}  # two in a row, and one in the last chunk
    assert_all_but(lost, *run(Trap(always=tuple(map(str, sorted(lost)))), tmp_path))


@pytest.mark.usefixtures("few_at_a_time")
def test_a_death_that_happens_once_costs_nothing(tmp_path: Path) -> None:
    store = Trap(once=("7", "40"), seen=str(tmp_path))
    assert_all_but(set(), *run(store, tmp_path))
    assert (tmp_path / "7").exists()
    assert (tmp_path / "40").exists()


@pytest.mark.usefixtures("few_at_a_time")
def test_processes_or_none_give_the_same(tmp_path: Path) -> None:
    alone, alone_raw = run(Trap(), tmp_path, workers=1)
    crowd, crowd_raw = run(Trap(), tmp_path, workers=2)
    assert alone == crowd
    assert np.array_equal(alone_raw, crowd_raw)


def test_a_script_without_the_guard_is_told_so(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent(
            f"""
            from pathlib import Path
            from abomed.config.data import PackSettings
            from abomed.data.manifest import read_manifest
            from abomed.data.pack import write_pack
            from abomed.data import crew
            crew.IN_PROCESS = 0
            root = Path({str(tmp_path)!r})
            settings = PackSettings(size=8, workers=2)
            write_pack(read_manifest(str(root / "set")), root / "x.safetensors", pack=settings)
            """
        )
    )
    for number, data in enumerate(PICTURES[:4]):
        folder = tmp_path / "set" / ("a" if number % 2 else "b")
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{number}.bmp").write_bytes(data)
    answer = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False)
    assert answer.returncode == 1
    assert "ConfigError: worker processes cannot be started" in answer.stderr
    assert "if __name__ == '__main__':" in answer.stderr.splitlines()[-1]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["script.py", "set"]

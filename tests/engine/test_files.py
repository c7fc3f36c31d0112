"""What a killed process left half written goes; what another process may be about to use stays."""

from pathlib import Path

from abomed.engine.files import clear_unfinished


def test_half_written_files_go_and_all_else_stays(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").mkdir()
    left = [".weights.safetensors.tmp-0badc0de", "checkpoints/.latest.json.tmp-b3828baf"]
    kept = [
        "config.toml",
        ".run.lock.tmp-0badc0de",
        ".notes.tmp-mine",
        "a.tmp-0badc0de",
        "checkpoints/latest.json",
    ]
    for name in left + kept:
        (tmp_path / name).touch()
    clear_unfinished(tmp_path)
    found = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()}
    assert found == set(kept)

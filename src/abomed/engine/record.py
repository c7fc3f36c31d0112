"""The folder of one run: what was asked (config.toml), with what (environment.json), what came (metrics.jsonl).

- config.toml is written last and marks a run: a start that was killed before it left nothing to resume, and the
  next start uses the folder as if it were empty.
- A run is continued with the settings it was started with, or not at all. Only settings that cannot change a
  number may differ: where it is written, what is printed, how often it is saved, how many processes decode.
- Continuing under another version of Python, torch or abomed, on another device, or with another number of tasks
  per backbone pass (a run that ran out of memory needs fewer) may change bits; another `log_every` changes which
  lines of metrics follow. It is allowed, told, and recorded beside the first environment.
- The caller holds the run's lock (`engine.lock`), which may already have made the folder.
"""

import json
import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from abomed.data.durable import sync_folder
from abomed.engine.files import no_access, write_whole
from abomed.engine.lock import LOCK_FILE
from abomed.engine.toml import dump_toml, dump_value, load_toml
from abomed.errors import CheckpointError, ConfigError
from abomed.types import printable

CONFIG, ENVIRONMENT, METRICS, CARD = "config.toml", "environment.json", "metrics.jsonl", "card.json"

# The last part of a setting's name: `workers` is also `data.workers`.
TOLD_SETTINGS = frozenset({"device", "chunk", "log_every"})
FREE_SETTINGS = frozenset({"out", "resume", "progress", "workers", "checkpoint_every"}) | TOLD_SETTINGS

_SHOWN = 5  # names of files in a message


@dataclass(frozen=True)
class RunFolder:
    """Where everything of one run lies."""

    path: Path

    @property
    def config(self) -> Path:
        return self.path / CONFIG

    @property
    def environment(self) -> Path:
        return self.path / ENVIRONMENT

    @property
    def metrics(self) -> Path:
        return self.path / METRICS

    @property
    def card(self) -> Path:
        return self.path / CARD

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"


@dataclass(frozen=True)
class ResumedRun:
    """A run that is continued, and what differs from when it was last started: `torch: 2.12 then, 2.13 now`."""

    run: RunFolder
    changes: tuple[str, ...]


def create_run(
    out: Path,
    config: Mapping[str, Any],
    environment: Mapping[str, Any],
    card: Mapping[str, Any] | None = None,
) -> RunFolder:
    """Start a run in a new or empty folder."""
    run, text = RunFolder(out), dump_toml(config)
    try:
        out.mkdir(parents=True, exist_ok=True)
        sync_folder(out.parent)
        found = sorted(name for name in os.listdir(out) if not _is_passing(name))
    except OSError as error:
        raise no_access("the run folder cannot be written", out, error) from error
    if CONFIG in found or set(found) - {ENVIRONMENT, CARD}:
        raise _not_empty(run, found)
    write_card(run, card or {})
    _write_json(run.environment, {"started": dict(environment), "resumed": []})
    _write(run.config, text.encode())
    return run


def resume_run(
    out: Path,
    config: Mapping[str, Any],
    environment: Mapping[str, Any] | None = None,
    free: Collection[str] = FREE_SETTINGS,
) -> ResumedRun:
    """Continue the run in `out`, if it was started with the same settings (but for those named in `free`)."""
    run = RunFolder(out)
    told, asked = read_config(run), load_toml(dump_toml(config), "the settings given now")
    differing = _differences(told, asked)
    refused = [(name, then, now) for name, then, now in differing if name.rpartition(".")[2] not in free]
    if refused:
        raise ConfigError(
            "the run was started with other settings",
            where=str(run.config),
            found="; ".join(f"{name} was {then}, now {now}" for name, then, now in refused),
            right="the settings of the run, or another folder for a run with the new ones",
        )
    then, now = _told_settings(told), _told_settings(asked)
    if environment is None:
        return ResumedRun(run, _changes(then, now))
    return ResumedRun(run, _note_environment(run, then, {**environment, **now}))


def read_config(run: RunFolder) -> dict[str, Any]:
    """The settings that a run was started with."""
    if not run.config.is_file():
        raise CheckpointError(
            "there is no run in this folder",
            where=str(run.path),
            found=f"no {CONFIG}",
            right="a folder that a training has written; without --resume a new run is started",
        )
    return load_toml(_read(run.config), str(run.config))


def write_card(run: RunFolder, card: Mapping[str, Any]) -> None:
    """What a reader of the weights should know, as JSON; replaces the card that is there."""
    _write_json(run.card, card)


def _note_environment(
    run: RunFolder, settings: Mapping[str, str], environment: Mapping[str, Any]
) -> tuple[str, ...]:
    """What differs from the last start, recorded; `settings` are those told of at the first one."""
    now = json.loads(_json(environment))
    try:
        told = json.loads(_read(run.environment))
        before = told["resumed"][-1] if told["resumed"] else told["started"]
        if not isinstance(before, dict):
            raise TypeError("no table")
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise CheckpointError(
            "the environment of the run cannot be read", where=str(run.environment), found=str(error)
        ) from error
    changes = _changes({**settings, **before}, now)
    if changes:
        _write_json(run.environment, {**told, "resumed": [*told["resumed"], now]})
    return changes


def _changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(
        f"{name}: {before.get(name)} then, {now.get(name)} now"
        for name in sorted({*before, *now})
        if before.get(name) != now.get(name)
    )


def _told_settings(config: Mapping[str, Any]) -> dict[str, str]:
    """The settings whose change is told, as TOML text by full name (`train.chunk`)."""
    flat = _flat(config)
    return {name: text for name, text in flat.items() if name.rpartition(".")[2] in TOLD_SETTINGS}


def _differences(then: Mapping[str, Any], now: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Name and both values, as TOML text, of all settings that differ; 1, 1.0 and true are different."""
    before, after = _flat(then), _flat(now)
    return [
        (name, before.get(name, "not set"), after.get(name, "not set"))
        for name in sorted({*before, *after})
        if before.get(name) != after.get(name)
    ]


def _flat(table: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    flat: dict[str, str] = {}
    for name, value in table.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{prefix}{name}.")
        else:
            flat[prefix + name] = dump_value(value, prefix + name)
    return flat


def _is_passing(name: str) -> bool:
    """The lock, and temporary files of a start that was killed."""
    return name == LOCK_FILE or (name.startswith(".") and ".tmp-" in name)


def _not_empty(run: RunFolder, found: list[str]) -> CheckpointError:
    rest = f" and {len(found) - _SHOWN:,} more" if len(found) > _SHOWN else ""
    listed = printable(", ".join(found[:_SHOWN])) + rest
    if CONFIG in found:
        what, right = (
            "there is a run in this folder",
            "--resume to continue it, or another folder for a new run",
        )
    else:
        what, right = (
            "the folder for the run is not empty",
            "a new or empty folder (--resume continues a run)",
        )
    return CheckpointError(what, where=str(run.path), found=listed, right=right)


def _json(value: Mapping[str, Any]) -> str:
    return json.dumps(value, indent=2, sort_keys=True, allow_nan=False) + "\n"


def _write_json(path: Path, value: Mapping[str, Any]) -> None:
    _write(path, _json(value).encode("ascii"))


def _write(path: Path, data: bytes) -> None:
    write_whole(path, data, "the run folder cannot be written")


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise CheckpointError(
            "a file of the run cannot be read", where=str(path), found=str(error)
        ) from error

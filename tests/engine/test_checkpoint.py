"""Checkpoints: what goes in comes out bit by bit, and nothing else is ever taken for one."""

import base64
import errno
import hashlib
import io
import json
import os
import pickle
import random
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from abomed.engine.checkpoint import (
    STORED_TYPES,
    dump_checkpoint,
    load_checkpoint,
    prefix_names,
    read_checkpoint,
    select_prefix,
    write_checkpoint,
)
from abomed.engine.optimiser import pack_optimiser, restore_optimiser
from abomed.engine.rotation import POINTER, CheckpointFolder
from abomed.errors import CheckpointError
from tests.engine.fault_files import FaultyFiles, possible_disks

FAULTS = (errno.ENOSPC, errno.EIO, errno.EACCES, errno.EDQUOT)

# Written by schema 1, which every later version must read: {"step": int64 7, "w": float32 [1.5, -0.0]}.
SCHEMA_1 = (
    "yAEAAAAAAAB7Il9fbWV0YWRhdGFfXyI6eyJhYm9tZWQiOiJ7XCJraW5kXCI6XCJjaGVja3BvaW50XCIsXCJwYXlsb2FkX3NoYTI1"
    "NlwiOlwiOTNmNmM0NWQ3NjllZWI2NDc2YjFlZTFhYTQ4Mzk3NDMyOGM5YzFjMWE2NGYxMDExZTdmYmIzN2M5OTRiNjY4YlwiLFwi"
    "c2NoZW1hX3ZlcnNpb25cIjoxLFwic2hhMjU2XCI6XCI3NmE0YWQxZGM2NGJiNTYzZGQwYTI5NDcyYTEwMDQ1YjEyOTJjNGY5YzY2"
    "YjU0MzAzOWU1MDRhN2UwNWU1MjZmXCIsXCJzdGF0ZVwiOntcImJlc3RcIjowLjUsXCJpdGVyYXRpb25cIjo3LFwibmFtZVwiOlwi"
    "XFx1MDBmY2J1bmdcIn0sXCJ3cml0dGVuX2J5XCI6XCJhYm9tZWQgMC4xLjAuZGV2MFwifSJ9LCJzdGVwIjp7ImR0eXBlIjoiSTY0"
    "Iiwic2hhcGUiOltdLCJkYXRhX29mZnNldHMiOlswLDhdfSwidyI6eyJkdHlwZSI6IkYzMiIsInNoYXBlIjpbMl0sImRhdGFfb2Zm"
    "c2V0cyI6WzgsMTZdfX0HAAAAAAAAAAAAwD8AAACA"
)


def made_up(iteration: int) -> dict[str, Tensor]:
    weight = torch.arange(24, dtype=torch.float32).reshape(4, 6) + iteration
    return {"model/weight": weight, "optimiser/0/step": torch.tensor(float(iteration))}


def bits(tensor: Tensor) -> bytes:
    return tensor.detach().reshape(-1).view(torch.uint8).numpy().tobytes()


def same(first: dict[str, Tensor], second: dict[str, Tensor]) -> bool:
    return set(first) == set(second) and all(
        (first[name].dtype, first[name].shape, bits(first[name]))
        == (second[name].dtype, second[name].shape, bits(second[name]))
        for name in first
    )


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
tensors = st.builds(
    lambda kind, shape, data: torch.frombuffer(
        bytearray(data * (int(np.prod(shape)) * kind.itemsize)), dtype=torch.uint8
    ).view(kind).reshape(shape)
    if 0 not in shape
    else torch.empty(shape, dtype=kind),
    st.sampled_from(sorted(STORED_TYPES - {torch.bool}, key=str)),
    st.lists(st.integers(0, 3), max_size=3).map(tuple),
    st.binary(min_size=1, max_size=1),
)  # fmt: skip
names = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)


@settings(max_examples=150, deadline=None)
@given(st.dictionaries(names, tensors, max_size=4), st.dictionaries(st.text(), json_values, max_size=4))
def test_round_trip_and_same_bytes(written: dict[str, Tensor], state: dict[str, Any]) -> None:
    data = dump_checkpoint(written, state, "here")
    read = load_checkpoint(data, "here")
    assert same(read.tensors, written)
    assert read.state == state
    assert json.dumps(read.state, sort_keys=True) == json.dumps(
        state, sort_keys=True
    )  # 1, 1.0 and true differ
    backwards = dict(reversed(written.items())), dict(reversed(state.items()))
    assert dump_checkpoint(*backwards, "elsewhere") == data


def test_booleans_views_and_other_memory_formats_come_back_equal(tmp_path: Path) -> None:
    image = torch.randn(2, 3, 4, 5, generator=torch.Generator().manual_seed(0))
    given_ = {
        "mask": image > 0,
        "channels_last": image.to(memory_format=torch.channels_last),
        "transposed": image[0, 0].T,
        "tied": image,
        "tied too": image,
        "conjugate": torch.complex(image[0, 0], image[1, 1]).conj(),
        "parameter": nn.Parameter(image[0]),
    }
    write_checkpoint(tmp_path / "c.safetensors", given_, {})
    read = read_checkpoint(tmp_path / "c.safetensors").tensors
    assert all(torch.equal(read[name], tensor.detach()) for name, tensor in given_.items())
    assert not any(tensor.requires_grad for tensor in read.values())


def test_returned_checksum_is_that_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "c.safetensors"
    told = write_checkpoint(path, made_up(1), {"iteration": 1})
    assert hashlib.sha256(path.read_bytes()).hexdigest() == told


def test_schema_1_opens_for_ever() -> None:
    read = load_checkpoint(base64.b64decode(SCHEMA_1), "golden")
    assert same(read.tensors, {"step": torch.tensor(7), "w": torch.tensor([1.5, -0.0])})
    assert read.state == {"best": 0.5, "iteration": 7, "name": "übung"}
    assert read.schema == 1


def test_newer_schema_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("abomed.engine.checkpoint.SCHEMA", 2)
    data = dump_checkpoint(made_up(1), {}, "here")
    monkeypatch.undo()
    with pytest.raises(CheckpointError, match=r"needs a newer abomed[\s\S]*schema 2, written by abomed \d"):
        load_checkpoint(data, "here")


@pytest.mark.parametrize(
    "state",
    [{"a": (1, 2)}, {"a": {1: 2}}, {"a": float("nan")}, {"a": float("inf")}, {"a": {1, 2}}, {"a": b"x"}],
)
def test_state_that_json_would_change_is_refused(state: dict[str, Any]) -> None:
    with pytest.raises(CheckpointError, match="not plain JSON"):
        dump_checkpoint({}, state, "here")


@pytest.mark.parametrize(
    ("name", "tensor"),
    [
        ("a", torch.zeros(2, dtype=torch.complex128)),
        ("a", torch.eye(2).to_sparse()),
        ("__metadata__", torch.zeros(2)),
    ],
)
def test_tensor_that_cannot_be_stored_is_named(name: str, tensor: Tensor) -> None:
    with pytest.raises(CheckpointError, match=f"'{name}' of here"):
        dump_checkpoint({name: tensor}, {}, "here")


def test_every_flipped_bit_is_refused() -> None:
    data = bytearray(dump_checkpoint(made_up(3), {"iteration": 3, "best": {"value": 0.5, "at": 2}}, "here"))
    places = range(8 * len(data))  # all of them: header, metadata and payload
    assert len(places) > 4_000
    for place in places:
        data[place // 8] ^= 1 << place % 8
        with pytest.raises(CheckpointError):
            load_checkpoint(bytes(data), "here")
        data[place // 8] ^= 1 << place % 8
    assert load_checkpoint(bytes(data), "here").state["iteration"] == 3


def test_mutated_headers_never_do_worse_than_refuse() -> None:
    whole = dump_checkpoint(made_up(3), {"iteration": 3}, "here")
    dice = random.Random(0)
    for _ in range(3_000):
        data = bytearray(whole)
        for _ in range(dice.randint(1, 6)):
            start = dice.randrange(len(data))
            kind = dice.randrange(3)
            if kind == 0:
                data[start] = dice.randrange(256)
            elif kind == 1:
                del data[start : start + dice.randint(1, 40)]
            else:
                data[start:start] = dice.randbytes(dice.randint(1, 8))
            if not data:
                break
        if bytes(data) != whole:
            with pytest.raises(CheckpointError):
                load_checkpoint(bytes(data), "here")


class _Canary:
    """Writes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (self.path,)


def _foreign_files(canary: Path) -> dict[str, bytes]:
    pickled = pickle.dumps(_Canary(canary))
    saved, arrays, zipped = io.BytesIO(), io.BytesIO(), io.BytesIO()
    torch.save(_Canary(canary), saved)
    np.savez(arrays, a=np.array([_Canary(canary)], dtype=object))
    with zipfile.ZipFile(zipped, "w") as archive:
        archive.writestr("data.pkl", pickled)
    whole = dump_checkpoint(made_up(1), {}, "here")
    return {
        "pickle": pickled,
        "torch.save": saved.getvalue(),
        "npz": arrays.getvalue(),
        "zip": zipped.getvalue(),
        "empty": b"",
        "text": b"epoch: 3\n",
        "huge header": (2**62).to_bytes(8, "little") + b"{}",
        "deep header": (200_000).to_bytes(8, "little") + b"[" * 200_000,
        "cut": whole[:-1],
        "polyglot": whole + pickled,
        "other safetensors": safetensors.torch.save({"a": torch.zeros(2)}),
        "other metadata": safetensors.torch.save({"a": torch.zeros(2)}, {"abomed": "[]"}),
        "other kind": safetensors.torch.save({}, {"abomed": '{"schema_version":1,"sha256":""}'}),
    }


def test_foreign_files_are_refused_and_never_executed(tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    for kind, data in _foreign_files(canary).items():
        path = tmp_path / "c.safetensors"
        path.write_bytes(data)
        with pytest.raises(CheckpointError) as caught:
            read_checkpoint(path)
        assert caught.value.where == str(path), kind
        assert caught.value.exit_code == 3
        if kind in {"pickle", "torch.save", "npz", "zip"}:
            assert "never loaded" in str(caught.value), kind
    assert not canary.exists()
    with pytest.raises(CheckpointError, match="no checkpoint at this path"):
        read_checkpoint(tmp_path)


def test_prefixes_come_off_again() -> None:
    model = nn.Linear(2, 3)
    both = prefix_names(model.state_dict(), "model") | {"other/x": torch.zeros(1), "modelling": torch.ones(1)}
    assert set(both) == {"model/weight", "model/bias", "other/x", "modelling"}
    assert same(select_prefix(both, "model"), model.state_dict())


def _network() -> nn.Sequential:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(4 * 36, 2))
    return network.to(memory_format=torch.channels_last)


def _steps(network: nn.Module, optimiser: torch.optim.Optimizer, count: int, seed: int) -> None:
    dice = torch.Generator().manual_seed(seed)
    for _ in range(count):
        optimiser.zero_grad()
        network(torch.randn(5, 3, 8, 8, generator=dice)).square().sum().backward()
        optimiser.step()


def _split(network: nn.Module) -> list[dict[str, Any]]:
    body, head = list(network.parameters())[:4], list(network.parameters())[4:]
    return [{"params": body}, {"params": head, "lr": 3e-4, "weight_decay": 0.0}]


OPTIMISERS: dict[str, Any] = {
    "sgd": lambda groups: torch.optim.SGD(groups, lr=1e-3, momentum=0.9, nesterov=True, weight_decay=1e-4),
    "sgd-plain": lambda groups: torch.optim.SGD(groups, lr=1e-3),
    "adamw": lambda groups: torch.optim.AdamW(groups, lr=1e-3, amsgrad=True, foreach=False),
    "adamw-foreach": lambda groups: torch.optim.AdamW(groups, lr=1e-3, foreach=True),
    "adamw-fused": lambda groups: torch.optim.AdamW(groups, lr=1e-3, fused=True),
    "adamw-tensor-rate": lambda groups: torch.optim.AdamW(
        groups, lr=torch.tensor(1e-3), foreach=False, betas=(0.8, 0.99)
    ),
}


@pytest.mark.parametrize("kind", OPTIMISERS)
def test_optimiser_goes_on_bit_by_bit(kind: str) -> None:
    straight = _network()
    optimiser = OPTIMISERS[kind](_split(straight))
    _steps(straight, optimiser, 3, seed=1)
    packed = pack_optimiser(optimiser)
    everything = prefix_names(straight.state_dict(), "model") | packed.tensors
    read = load_checkpoint(dump_checkpoint(everything, {"optimiser": packed.state}, "here"), "here")
    _steps(straight, optimiser, 3, seed=2)

    resumed = _network()
    _steps(
        resumed, torch.optim.SGD(resumed.parameters(), lr=0.1), 1, seed=9
    )  # anything but the right weights
    resumed.load_state_dict(select_prefix(read.tensors, "model"))
    again = OPTIMISERS[kind](_split(resumed))
    restore_optimiser(again, read.tensors, read.state["optimiser"])
    assert pack_optimiser(again).state == packed.state
    assert [type(group.get("betas")) for group in again.param_groups] == [
        type(group.get("betas")) for group in optimiser.param_groups
    ]
    for name, tensor in packed_formats(again).items():
        assert tensor == packed_formats(optimiser)[name]
    _steps(resumed, again, 3, seed=2)
    assert same(dict(resumed.state_dict()), dict(straight.state_dict()))
    assert same(pack_optimiser(again).tensors, pack_optimiser(optimiser).tensors)


def packed_formats(optimiser: torch.optim.Optimizer) -> dict[str, tuple[int, ...]]:
    return {name: tensor.stride() for name, tensor in pack_optimiser(optimiser).tensors.items()}


def test_restored_state_shares_no_memory_with_the_checkpoint() -> None:
    network = _network()
    optimiser = OPTIMISERS["adamw"](_split(network))
    _steps(network, optimiser, 1, seed=1)
    packed = pack_optimiser(optimiser)
    kept = {name: tensor.clone() for name, tensor in packed.tensors.items()}
    again = OPTIMISERS["adamw"](_split(network))
    restore_optimiser(again, packed.tensors, packed.state)
    _steps(network, again, 2, seed=2)
    assert same(packed.tensors, kept)


def test_state_of_another_optimiser_is_refused() -> None:
    network = _network()
    sgd, adam = OPTIMISERS["sgd"](_split(network)), OPTIMISERS["adamw"](_split(network))
    packed = pack_optimiser(sgd)
    with pytest.raises(CheckpointError, match=r"another optimiser[\s\S]*kind[\s\S]*SGD[\s\S]*AdamW"):
        restore_optimiser(adam, packed.tensors, packed.state)
    with pytest.raises(CheckpointError, match="its shapes"):
        restore_optimiser(torch.optim.SGD(nn.Linear(2, 2).parameters()), packed.tensors, packed.state)
    with pytest.raises(CheckpointError, match="number of groups"):
        restore_optimiser(torch.optim.SGD(network.parameters()), packed.tensors, packed.state)
    lbfgs = torch.optim.LBFGS(nn.Linear(2, 2).parameters())
    lbfgs.state[lbfgs.param_groups[0]["params"][0]]["old_dirs"] = [torch.zeros(2)]
    with pytest.raises(CheckpointError, match="cannot store"):
        pack_optimiser(lbfgs)


def test_rotation_keeps_two_and_the_named(tmp_path: Path) -> None:
    folder = CheckpointFolder(tmp_path / "checkpoints")
    assert folder.is_empty
    with pytest.raises(CheckpointError, match="there is no checkpoint in this folder"):
        folder.newest()
    folder.save_named("best", 1, made_up(1), {"value": 0.75})
    assert folder.is_empty  # nothing to go on from
    (folder.folder / ".checkpoint-00000001.safetensors.tmp-0badc0de").touch()
    for iteration in (1, 2, 3, 10):
        folder.save(iteration, made_up(iteration), {"note": "x"})
    left = sorted(path.name for path in folder.folder.iterdir())
    assert left == [
        "best.safetensors", "checkpoint-00000003.safetensors", "checkpoint-00000010.safetensors", POINTER,
    ]  # fmt: skip
    newest = folder.newest()
    assert (newest.iteration, newest.path.name, newest.skipped) == (10, left[2], ())
    assert newest.checkpoint.state == {"iteration": 10, "note": "x"}
    assert same(newest.checkpoint.tensors, made_up(10))
    assert folder.read_named("best").state == {"iteration": 1, "value": 0.75}
    assert json.loads((folder.folder / POINTER).read_bytes()) == {
        "name": left[2],
        "sha256": hashlib.sha256(newest.path.read_bytes()).hexdigest(),
    }


def test_names_and_numbers_are_checked(tmp_path: Path) -> None:
    folder = CheckpointFolder(tmp_path)
    for name in ("checkpoint-00000001", "../best", "Best", ""):
        with pytest.raises(ValueError, match="name is lower-case"):
            folder.save_named(name, 1, {}, {})
    with pytest.raises(ValueError, match="the state says 4"):
        folder.save(3, {}, {"iteration": 4})
    with pytest.raises(ValueError, match="at least 2"):
        CheckpointFolder(tmp_path, keep=1)


def _damage(path: Path, kind: str) -> None:
    data = bytearray(path.read_bytes())
    if kind == "flipped":
        data[-1] ^= 4
        path.write_bytes(data)
    elif kind == "cut":
        path.write_bytes(data[: len(data) // 2])
    elif kind == "missing":
        path.unlink()
    elif kind == "renamed":
        path.write_bytes(dump_checkpoint(made_up(2), {"iteration": 2}, "elsewhere"))
    else:
        path.write_bytes(dump_checkpoint(made_up(2), {"iteration": 3}, "elsewhere"))


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("flipped", "damaged"),
        ("cut", "no checkpoint"),
        ("missing", "missing"),
        ("renamed", "not the one that was written"),
        ("replaced", "not the one that was written"),
    ],
)
def test_a_damaged_newest_is_passed_over_and_told(tmp_path: Path, kind: str, reason: str) -> None:
    folder = CheckpointFolder(tmp_path)
    folder.save(2, made_up(2), {})
    _damage(folder.save(3, made_up(3), {}), kind)
    found = folder.newest()
    assert found.iteration == 2
    ((path, why),) = found.skipped
    assert path.name == "checkpoint-00000003.safetensors"
    assert reason in why
    # The resumed run saves before it reaches 3 again: both left are then whole.
    folder.save(2, made_up(2), {"again": True})
    assert [path.name for path in folder.paths()] == ["checkpoint-00000002.safetensors"]
    assert folder.newest().skipped == ()


def test_a_damaged_pointer_costs_nothing_and_a_wrong_name_is_found(tmp_path: Path) -> None:
    folder = CheckpointFolder(tmp_path)
    newest = folder.save(3, made_up(3), {})
    (tmp_path / POINTER).write_bytes(b'{"name": "../../etc/passwd", "sha256": ""}')
    found = folder.newest()
    assert (found.iteration, [path.name for path, _ in found.skipped]) == (3, [POINTER])
    (tmp_path / POINTER).unlink()
    newest.rename(tmp_path / "checkpoint-00000009.safetensors")
    with pytest.raises(
        CheckpointError, match=r"checkpoint-00000009\S* the checkpoint has the name of another"
    ):
        folder.newest()


def test_when_nothing_is_left_every_file_is_listed(tmp_path: Path) -> None:
    folder = CheckpointFolder(tmp_path)
    for iteration in (2, 3):
        _damage(folder.save(iteration, made_up(iteration), {}), "cut")
    with pytest.raises(CheckpointError) as caught:
        folder.newest()
    assert "no checkpoint in this folder can be used" in str(caught.value)
    assert {"checkpoint-00000002", "checkpoint-00000003"} <= {
        word.split(".")[0] for word in str(caught.value).split()
    }


def _disk(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("again", [False, True], ids=["next", "same number"])
def test_a_power_cut_leaves_this_checkpoint_or_the_one_before(tmp_path: Path, again: bool) -> None:
    """Promise R2: at every instant, with every subset of what was not yet synced lost."""
    folder = CheckpointFolder(tmp_path / "real")
    for iteration in range(1, 2 if again else 4):
        folder.save(iteration, made_up(iteration), {"run": 1})
    before, last = _disk(folder.folder), folder.newest().iteration
    now = last if again else last + 1
    files = FaultyFiles()
    with pytest.MonkeyPatch.context() as patch:
        files.install(patch)
        folder.save(now, made_up(now), {"run": 2})
    assert {call.kind for call in files.calls} >= {
        "create",
        "write",
        "sync",
        "rename",
        "sync-folder",
        "remove",
    }

    seen: set[frozenset[tuple[str, bytes]]] = set()
    reached = []
    for made, disk in possible_disks(before, files.calls):
        if frozenset(disk.items()) not in seen:
            seen.add(frozenset(disk.items()))
            found = _newest_on(tmp_path / "cut", disk)
            reached.append((made, found.iteration, found.checkpoint.state["run"]))
            assert same(found.checkpoint.tensors, made_up(found.iteration))
    assert 30 < len(reached) < 2_000
    assert {(iteration, run) for _, iteration, run in reached} == {(last, 1), (now, 2)}
    assert [(iteration, run) for made, iteration, run in reached if made == len(files.calls)] in (
        [], [(now, 2)],
    )  # fmt: skip


def _newest_on(folder: Path, disk: dict[str, bytes]) -> Any:
    folder.mkdir(exist_ok=True)
    for path in folder.iterdir():
        path.unlink()
    for name, data in disk.items():
        (folder / name).write_bytes(data)
    return CheckpointFolder(folder).newest()


def test_the_simulated_power_cut_finds_a_missing_sync(tmp_path: Path) -> None:
    """The control of the test above: without syncing, a cut may leave a file of zeros under the right name."""
    folder = CheckpointFolder(tmp_path / "real")
    files = FaultyFiles()
    with pytest.MonkeyPatch.context() as patch:
        files.install(patch)
        folder.save(1, made_up(1), {})
    careless = [call for call in files.calls if call.kind != "sync"]
    broken = 0
    for _, disk in possible_disks({}, careless):
        if "checkpoint-00000001.safetensors" in disk:
            try:
                _newest_on(tmp_path / "cut", disk)
            except CheckpointError:
                broken += 1
    assert broken


def test_a_failing_disk_leaves_the_old_state(tmp_path: Path) -> None:
    """Promise R3: every write, sync and rename fails in turn, with every cause."""
    clean = FaultyFiles()
    folder = CheckpointFolder(tmp_path / "clean")
    with pytest.MonkeyPatch.context() as patch:
        clean.install(patch)
        folder.save(2, made_up(2), {})
    assert clean.attempts == 10  # open, write, sync, rename, sync of the folder: twice
    for number in range(clean.attempts):
        for code in FAULTS:
            folder = CheckpointFolder(tmp_path / f"{number}-{code}")
            before = folder.save(1, made_up(1), {}).read_bytes()
            with pytest.MonkeyPatch.context() as patch:
                FaultyFiles(fail_at=number, code=code).install(patch)
                with pytest.raises(CheckpointError) as caught:
                    folder.save(2, made_up(2), {})
            assert str(folder.folder) in str(caught.value)
            assert os.strerror(code) in str(caught.value)
            assert "bytes were to be written" in str(caught.value)
            assert "MiB are free" in str(caught.value)
            assert (folder.folder / "checkpoint-00000001.safetensors").read_bytes() == before
            assert not [path.name for path in folder.folder.iterdir() if "tmp" in path.name]
            assert folder.newest().iteration == (1 if number < 4 else 2)
            folder.save(2, made_up(2), {})  # the fault was passing: the next save succeeds
            assert folder.newest().iteration == 2


def test_a_limit_of_the_real_system_is_told_the_same_way(tmp_path: Path) -> None:
    resource = pytest.importorskip("resource")  # POSIX only
    folder = CheckpointFolder(tmp_path)
    folder.save(1, made_up(1), {})
    before = _disk(tmp_path)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
    try:
        with pytest.raises(CheckpointError, match="could not be written") as caught:
            folder.save(2, {"large": torch.zeros(100_000)}, {})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert os.strerror(errno.EFBIG) in str(caught.value)
    assert _disk(tmp_path) == before


def test_old_files_that_cannot_be_removed_do_not_cost_the_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = CheckpointFolder(tmp_path)
    for iteration in (1, 2):
        folder.save(iteration, made_up(iteration), {})
    unlink = os.unlink

    def refusing(path: Path, **options: Any) -> None:
        if Path(path).name == "checkpoint-00000001.safetensors":
            raise OSError(errno.EACCES, os.strerror(errno.EACCES))
        unlink(path, **options)

    monkeypatch.setattr(os, "unlink", refusing)
    with pytest.raises(CheckpointError, match="cannot be used"):
        folder.save(3, made_up(3), {})
    assert folder.newest().iteration == 3

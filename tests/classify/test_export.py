"""Exported files give the fitted classifier's probabilities, to whoever has no abomed."""

import importlib.util
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch

from abomed import FewShotClassifier
from abomed.classify import export as module
from abomed.classify.card import USE
from abomed.classify.export import Exported, export
from abomed.classify.weights import Model
from abomed.config.bilevel import InnerSettings
from abomed.errors import ConfigError, MissingExtraError, NumericalError
from abomed.models import create_backbone
from tests.classify.made_up import draw_images, small_model
from tests.classify.test_weights import make_card

EXACT = 1e-5
# Pictures of another size are resized by the graph, whose pixels are Pillow's but for a grey level here and there.
NEAR = 2e-3


def fitted(*models: Model | str, **settings: object) -> FewShotClassifier:
    images, labels = draw_images(3, 4)
    names = np.array(["naevus", "melanoma", "dermatofibroma"])[labels]
    return FewShotClassifier(list(models), **settings).fit(images, names)


def resnet() -> Model:
    return Model("deep", create_backbone("resnet10", image_size=32), InnerSettings(), "support", False)


CLASSIFIERS = {
    "product": lambda: fitted(small_model(), resnet(), ensemble="product", views=2, temperature=2.0),
    "lite0-stages": lambda: fitted("lite0-stages", small_model(), ensemble="joined"),
}


@pytest.fixture(scope="module", params=CLASSIFIERS)
def exported(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple:
    folder = tmp_path_factory.mktemp("exported")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ABOMED_CACHE", str(folder))
        classifier = CLASSIFIERS[request.param]()
    return classifier, export(classifier, folder / "classifier.onnx")


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> tuple[FewShotClassifier, Exported]:
    model = small_model()
    classifier = fitted(replace(model, card=make_card(model)))
    return classifier, export(classifier, tmp_path_factory.mktemp("program") / "classifier.pt2")


def session_of(file: Exported) -> onnxruntime.InferenceSession:
    return onnxruntime.InferenceSession(str(file.path), providers=["CPUExecutionProvider"])


def test_onnxruntime_gives_the_same_probabilities_for_any_number_of_images(
    exported: tuple[FewShotClassifier, Exported],
) -> None:
    classifier, file = exported
    session = session_of(file)
    asked, _ = draw_images(3, 2, seed=5, side=file.side)
    expected = classifier.predict_proba(asked)
    assert np.ptp(expected, axis=0).min() > 0.05
    for count in (1, 5, 6):
        (seen,) = session.run(None, {"images": asked[:count]})
        np.testing.assert_allclose(seen, expected[:count], rtol=0, atol=EXACT)
    assert file.difference <= EXACT


def test_pictures_of_other_sizes(exported: tuple[FewShotClassifier, Exported]) -> None:
    classifier, file = exported
    session = session_of(file)
    asked, _ = draw_images(3, 1, seed=6, side=300)
    for pictures in (asked, asked[:, :220], asked[:, :, 50:99]):
        (seen,) = session.run(None, {"images": np.ascontiguousarray(pictures)})
        np.testing.assert_allclose(seen, classifier.predict_proba(pictures), rtol=0, atol=NEAR)


def test_the_file_says_what_it_is(exported: tuple[FewShotClassifier, Exported]) -> None:
    classifier, file = exported
    session = session_of(file)
    told = session.get_modelmeta().custom_metadata_map
    assert told["use"] == USE
    assert json.loads(told["classes"]) == ["dermatofibroma", "melanoma", "naevus"] == list(file.classes)
    assert json.loads(told["labelled_images"]) == [4, 4, 4]
    assert [model["name"] for model in json.loads(told["models"])] == list(classifier.models_)
    (asked,), (given,) = session.get_inputs(), session.get_outputs()
    assert (asked.name, asked.type, asked.shape) == (
        "images",
        "tensor(uint8)",
        ["images", "height", "width", 3],
    )
    assert (given.name, given.type, given.shape) == ("probabilities", "tensor(float)", ["images", 3])
    onnx.checker.check_model(str(file.path), full_check=True)


def test_no_folder_of_this_machine_is_in_a_file(
    exported: tuple[FewShotClassifier, Exported], program: tuple[FewShotClassifier, Exported]
) -> None:
    for _, file in (exported, program):
        data = file.path.read_bytes()
        assert file.size == len(data)
        for trace in (
            str(Path(__file__).parents[2]),
            str(Path(torch.__file__).parent),
            "abomed.classify",
            ".py",
        ):
            assert trace.encode() not in data


def test_a_program_of_torch_gives_the_same(program: tuple[FewShotClassifier, Exported]) -> None:
    classifier, file = program
    notes = {module.NOTES: ""}
    loaded = torch.export.load(str(file.path), extra_files=notes).module()
    asked, _ = draw_images(3, 7, seed=5, side=file.side)
    for count in (1, 2, 21):
        seen = loaded(torch.from_numpy(asked[:count])).numpy()
        np.testing.assert_allclose(seen, classifier.predict_proba(asked[:count]), rtol=0, atol=EXACT)
    told = json.loads(notes[module.NOTES])
    assert told["use"] == USE
    (model,) = json.loads(told["models"])
    assert model["card"] == classifier.fitted_models_[0].card.model_dump(mode="json")
    assert model["card"]["data"]["licence"]


ELSEWHERE = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "abomed":
            raise ImportError("there is no abomed here")
sys.meta_path.insert(0, Absent())
import numpy as np, onnxruntime, torch
images = np.load(sys.argv[1])
session = onnxruntime.InferenceSession(sys.argv[2], providers=["CPUExecutionProvider"])
(first,) = session.run(None, {"images": images})
second = torch.export.load(sys.argv[3]).module()(torch.from_numpy(images)).numpy()
np.savez(sys.argv[4], first=first, second=second)
assert not any(name.split(".")[0] == "abomed" for name in sys.modules)
"""


@pytest.mark.parametrize("exported", ["product"], indirect=True)
def test_a_machine_without_abomed_runs_both(
    exported: tuple[FewShotClassifier, Exported], program: tuple[FewShotClassifier, Exported], tmp_path: Path
) -> None:
    (onnx_one, onnx_file), (torch_one, torch_file) = exported, program
    asked, _ = draw_images(3, 2, seed=8, side=128)
    np.save(tmp_path / "images.npy", asked)
    files = (tmp_path / "images.npy", onnx_file.path, torch_file.path, tmp_path / "answers.npz")
    result = subprocess.run(
        [sys.executable, "-c", ELSEWHERE, *map(str, files)],
        check=False,
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert result.returncode == 0, result.stderr
    with np.load(tmp_path / "answers.npz") as given:
        np.testing.assert_allclose(given["first"], onnx_one.predict_proba(asked), rtol=0, atol=EXACT)
        np.testing.assert_allclose(given["second"], torch_one.predict_proba(asked), rtol=0, atol=EXACT)


# --- what is refused


def test_a_wrong_file_is_never_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right = module._run_torch
    monkeypatch.setattr(module, "_run_torch", lambda data, pictures: right(data, pictures) + 1e-3)
    with pytest.raises(NumericalError, match="other answers"):
        export(fitted(small_model()), tmp_path / "classifier.pt2")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("name", "format"), [("a.onnx", "torch"), ("a.pt2", "onnx"), ("a.bin", None), ("a", None)]
)
def test_the_suffix_must_tell_the_format(name: str, format: str | None, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"suffix|not clear"):
        export(fitted(small_model()), tmp_path / name, format)  # type: ignore[arg-type]


def test_onnx_needs_its_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    there = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name == "onnxruntime" else there(name, *rest)
    )
    with pytest.raises(MissingExtraError, match="onnxruntime") as caught:
        export(fitted(small_model()), tmp_path / "a.onnx")
    assert caught.value.right == 'pip install "abomed[export]"'

"""Features without a network: what they are, what scales them, and the head against scikit-learn."""

from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from torch import Tensor

from abomed.config.bilevel import InnerSettings
from abomed.config.data import PackSettings
from abomed.config.episodes import EpisodeSpec
from abomed.config.run import RunConfig
from abomed.config.synthetic import SyntheticSettings
from abomed.config.train import EvaluateSettings
from abomed.data.pack import write_pack
from abomed.data.packed import Pack, open_pack
from abomed.data.splits import Split
from abomed.data.synthetic_source import synthetic_manifest
from abomed.engine import baselines
from abomed.engine.assess import STREAM, TrainedRun, pool_interval, restrict
from abomed.episodes import Episodes, draw_episodes
from abomed.errors import ConfigError, DataError
from abomed.models import create_backbone
from abomed.models.backbone import Features

CLASSES = ("even_chromatin", "mitotic_figures", "vacuolated", "gland_rings")
SPEC = EpisodeSpec(ways=3, shots=2, queries=3, disjoint="groups")


@pytest.fixture(scope="module")
def pack(tmp_path_factory: pytest.TempPathFactory) -> Pack:
    settings = SyntheticSettings(size=32, images_per_class=16, groups_per_class=4, classes=CLASSES)
    out = tmp_path_factory.mktemp("pack") / "tiny.safetensors"
    write_pack(synthetic_manifest(settings), out, pack=PackSettings(size=32))
    return open_pack(out)


@pytest.fixture
def episodes(pack: Pack) -> Episodes:
    return draw_episodes(restrict(pack, CLASSES), SPEC, seed=3, stream=STREAM, count=12)


def test_mean_colour_is_the_mean_of_each_channel(pack: Pack) -> None:
    found = baselines.mean_colour_features(pack)
    slow = [[pack.take(torch.tensor([i]))[0, c].numpy().mean() / 255 for c in range(3)] for i in range(64)]
    assert found.shape == (64, 3)
    np.testing.assert_allclose(found.numpy(), slow, rtol=1e-6)


def test_size_doubles_by_the_same_step_at_every_size(pack: Pack) -> None:
    pack.sizes[:3] = torch.tensor([[50, 40], [100, 40], [200, 80]])
    found = baselines.size_features(pack)[:3]
    step = float(np.log(2))
    torch.testing.assert_close(found[1] - found[0], torch.tensor([step, 0.0]))
    torch.testing.assert_close(found[2] - found[1], torch.tensor([step, step]))
    pack.sizes[:3] = 32


def test_raw_pixels_are_what_a_backbone_is_shown(pack: Pack) -> None:
    found = baselines.raw_pixel_features(pack, side=16)
    assert found.shape == (64, 3 * 16 * 16)
    assert float(found.min()) >= 0
    assert float(found.max()) <= 1
    # A mean over the centre agrees with the packed image's own centre, whatever the resampling.
    centre = pack.take(torch.arange(64))[:, :, 2:30, 2:30].float().mean((2, 3)) / 255
    torch.testing.assert_close(found.view(64, 3, -1).mean(2), centre, atol=0.02, rtol=0)


def test_standardised_by_the_support_set_alone() -> None:
    generator = torch.Generator().manual_seed(0)
    support = torch.randn(2, 6, 4, generator=generator) * 5 + 3
    query = torch.randn(2, 9, 4, generator=generator)
    support[1, :, 2] = 0.1  # a constant whose mean is not exact in binary
    found = baselines.standardise(Features(support, query))
    expected = torch.tensor([[1.0, 1, 1, 1], [1, 1, 0, 1]])
    torch.testing.assert_close(found.support.mean(1), torch.zeros(2, 4), atol=1e-6, rtol=0)
    torch.testing.assert_close(found.support.square().mean(1), expected)
    assert bool((found.query[1, :, 2] == 0).all())
    moved = baselines.standardise(Features(support, torch.cat([query[:, :1], 100 + query[:, 1:]], dim=1)))
    assert torch.equal(moved.query[:, 0], found.query[:, 0])


def test_answers_equal_scikit_learn_task_by_task(pack: Pack, episodes: Episodes) -> None:
    inner = InnerSettings(tolerance=1e-7, max_steps=3000)
    features = baselines.raw_pixel_features(pack, side=4).double()
    found = baselines.answer_from_features(features, episodes, inner)
    for task in range(len(episodes)):
        slow = _slow_logits(features, episodes, task, inner)
        np.testing.assert_allclose(found[task].numpy(), slow, atol=1e-4)


def _slow_logits(features: Tensor, episodes: Episodes, task: int, inner: InnerSettings) -> np.ndarray:
    """Standardise, scale and fit one task; the bias is a penalised column of ones."""
    support = features[episodes.support[task].flatten()].numpy()
    query = features[episodes.query[task].flatten()].numpy()
    mean, spread = support.mean(axis=0), support.std(axis=0)
    support, query = (support - mean) / spread, (query - mean) / spread
    factor = np.sqrt(inner.feature_norm / (support**2).sum(axis=1).mean())
    support = np.hstack([support * factor, np.ones((len(support), 1))])
    query = np.hstack([query * factor, np.ones((len(query), 1))])
    labels = np.repeat(np.arange(3), episodes.spec.shots)
    model = LogisticRegression(
        C=1 / (len(support) * inner.ridge), fit_intercept=False, tol=1e-10, max_iter=5000
    )
    return np.asarray(model.fit(support, labels).decision_function(query))


def test_features_that_say_nothing_reach_chance(pack: Pack, episodes: Episodes) -> None:
    found = _assess(torch.full((len(pack), 2), 0.3), pack)
    assert found.tasks.mean == pytest.approx(1 / 3)
    assert found.episode_hash == episodes.hash


def test_features_that_are_the_class_reach_everything(pack: Pack) -> None:
    found = _assess(torch.nn.functional.one_hot(pack.labels).float(), pack)
    assert found.tasks.mean == 1.0
    assert found.classes == tuple(sorted(CLASSES))
    assert bool((found.scores.recall == 1).all())


def test_features_of_another_pack_are_refused(pack: Pack) -> None:
    with pytest.raises(DataError, match="not those of this pack"):
        _assess(torch.zeros(3, 2), pack)


def _assess(features: Tensor, pack: Pack) -> baselines.Assessment:
    return baselines.assess_features(features, pack, CLASSES, SPEC, InnerSettings(), tasks=12, seed=3)


@pytest.fixture
def run() -> TrainedRun:
    config = RunConfig.model_validate(
        {"episodes": {"shots": 2}, "model": {"image_size": 16}, "train": {"seed": 1}}
    )
    backbone = create_backbone("cnn4", image_size=16, seed=1)
    with torch.no_grad():  # something else than the untrained one
        backbone.body.blocks[0].conv.weight.mul_(-1)
    return TrainedRun(config, Split("all", (), CLASSES), "synthetic", backbone, 7)


SETTINGS = EvaluateSettings(tasks=12, shots=(2,), queries=3, disjoint="groups", evaluation_seed=3)


def test_everybody_answers_the_same_tasks(pack: Pack, run: TrainedRun, episodes: Episodes) -> None:
    features = {"mean colour": baselines.mean_colour_features(pack)}
    found = baselines.compare_with_baselines(run, pack, SETTINGS, features, torch.device("cpu"))
    assert list(found.rows) == ["untrained", "mean colour", "trained"]
    assert {row.episode_hash for row in found.rows.values()} == {episodes.hash, found.episodes.hash}
    assert len({episodes.hash, found.episodes.hash}) == 1
    assert found.gain is not None
    assert found.gain.over == "groups"
    assert found.gain.mean == pytest.approx(found.trained.tasks.mean - found.untrained.tasks.mean)


def test_a_comparison_is_of_one_kind_of_task(pack: Pack, run: TrainedRun) -> None:
    several = SETTINGS.model_copy(update={"shots": (1, 5)})
    with pytest.raises(ConfigError, match="one kind of task"):
        baselines.compare_with_baselines(run, pack, several, {}, torch.device("cpu"))


def test_one_patient_per_class_has_no_interval(pack: Pack, episodes: Episodes, tmp_path: Path) -> None:
    lonely = open_pack(pack.path)
    lonely.groups = lonely.labels.clone()
    assert pool_interval(torch.ones(12, 9), episodes, lonely) is None

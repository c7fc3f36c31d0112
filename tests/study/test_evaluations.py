"""Tests of a cell: many adaptations of one head are the ones that a run would be given each by itself."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from abomed.config.bilevel import InnerSettings
from abomed.config.study import EvaluationSpec
from abomed.config.train import EvaluateSettings
from abomed.data.packed import open_pack
from abomed.engine.assess import assess, load_run
from abomed.errors import ConfigError
from abomed.study.adaptation import assess_adaptations
from abomed.study.address import plan_cell
from abomed.study.cell import Job, run_job
from abomed.study.evaluations import test_weights as weigh
from abomed.study.store import StudyFolder
from tests.study.made_up import made_up_cells

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def run(pack: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("adaptations")
    cell = made_up_cells(label="ours")[0]
    StudyFolder(out).prepare()
    assert (
        run_job(Job(cell.model_dump(mode="json"), str(out), {"synthetic": str(pack)}, "cpu")).state
        == "finished"
    )
    (folder,) = (out / "runs").iterdir()
    return folder


def test_features_are_computed_once_and_every_answer_is_assess_own(run: Path, pack: Path) -> None:
    trained, opened = load_run(run), open_pack(pack)
    settings = EvaluateSettings(tasks=30, shots=(3,), queries=4)
    base = trained.config.inner.model_dump()
    inners = [
        InnerSettings.model_validate({**base, "steps": "paper", "adapt_steps": k, "lr_adapt": b, "momentum": m})
        for k in (10, 50) for b in (0.001, 0.01) for m in (0.5, 0.9)
    ]  # fmt: skip
    together = assess_adaptations(trained, opened, settings, inners, CPU)
    for inner, found in zip(inners, together, strict=True):
        config = trained.config.model_copy(update={"inner": inner})
        (alone,) = assess(replace(trained, config=config), opened, settings, CPU)
        assert found.episode_hash == alone.episode_hash
        assert torch.equal(found.scores.correct, alone.scores.correct)
        assert found.to_json() == alone.to_json()
    assert len({row.tasks.mean for row in together}) > 1


def test_a_grid_of_adaptations_gives_a_row_each(run: Path, pack: Path) -> None:
    cell = made_up_cells(label="ours")[0]
    grid = tuple(EvaluationSpec(name=f"k {k}", tasks=4, queries=2, inner={"steps": "paper", "adapt_steps": k})
                 for k in (1, 2, 3))  # fmt: skip
    packs = {"synthetic": open_pack(pack)}
    plan = plan_cell(cell.model_copy(update={"evaluations": grid}), packs)
    rows = weigh(plan, run, {}, packs, CPU, lambda *_: None, lambda: False)
    assert [row["evaluation"] for row in rows] == ["k 1", "k 2", "k 3"]
    assert {row["at"] for row in rows} == {8}
    wrong = EvaluationSpec(name="x", tasks=4, inner={"adapt_step": 3})
    plan = plan_cell(cell.model_copy(update={"evaluations": (wrong,)}), packs)
    with pytest.raises(ConfigError, match="does not have"):
        weigh(plan, run, {}, packs, CPU, lambda *_: None, lambda: False)

"""What makes a cell another cell, and what does not."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from abomed.config.study import CellSpec, EvaluationSpec
from abomed.data.packed import open_pack
from abomed.engine.environment import describe_environment
from abomed.study import address
from abomed.study.address import Plan, content_digest, describe_data, find_known, plan_cell
from abomed.study.estimate import Estimator, work_of
from tests.oracles.engine import CLASSES, make_pack
from tests.study.made_up import made_up_cells


@pytest.fixture(scope="module")
def packs(pack: Path) -> dict[str, Any]:
    return {"synthetic": open_pack(pack)}


def _cell(**fields: Any) -> CellSpec:
    return made_up_cells(label="ours", seed=0)[0].model_copy(update=fields)


def _body(plan: Plan, packs: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {
        "version": address.VERSION, "state": "finished", "key": plan.key, "spec_key": plan.spec_key,
        "training_key": plan.training_key, "config": plan.recorded, "data": describe_data(plan, packs),
        "spec": plan.cell.model_dump(mode="json", exclude_none=True), "finished": "2026-01-01",
        "error": None, **fields,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("fields", "training", "whole"),
    [
        ({"label": "other"}, True, True),
        (
            {"settings": {**_cell().settings, "train": {**_cell().settings["train"], "log_every": 3}}},
            True,
            True,
        ),
        ({"evaluations": (EvaluationSpec(name="x"),)}, True, False),
        ({"evaluations": (EvaluationSpec(name="images", at=(4,)),)}, False, False),
        ({"seed": 1}, False, False),
        ({"shots": 1}, False, False),
        ({"split": "leave-classes-out:amber+blue+red"}, False, False),
        ({"split_disjoint": "groups"}, False, False),
        ({"method": "protonet"}, False, False),
        ({"augment": "medraug"}, False, False),
        ({"settings": {**_cell().settings, "inner": {"penalty": 2.0}}}, False, False),
    ],
)
def test_keys_follow_what_decides_the_numbers(
    packs: dict[str, Any], fields: dict[str, Any], training: bool, whole: bool
) -> None:
    plan, other = plan_cell(_cell(), packs), plan_cell(_cell(**fields), packs)
    assert (other.training_key == plan.training_key) is training
    assert (other.key == plan.key) is whole


def test_one_pixel_is_another_pack(pack: Path, tmp_path: Path) -> None:
    same = make_pack(tmp_path / "same", CLASSES)
    assert content_digest(open_pack(same)) == content_digest(open_pack(pack))
    fewer = make_pack(tmp_path / "fewer", CLASSES[:7])
    assert content_digest(open_pack(fewer)) != content_digest(open_pack(pack))


def test_a_setting_that_is_new_today_counts_as_its_default(packs: dict[str, Any]) -> None:
    """A result from before there was `tolerance` is found; with another value than the default it is not."""
    plan = plan_cell(_cell(), packs)
    older = {section: dict(values) for section, values in plan.recorded.items()}
    del older["inner"]["tolerance"]
    kept = _body(plan, packs, config=older, key="0" * 64, training_key="1" * 64)
    assert find_known([kept], plan) is kept
    other = plan_cell(_cell(settings={**_cell().settings, "inner": {"tolerance": 1e-3}}), packs)
    assert find_known([{**kept, "spec_key": other.spec_key}], other) is None


def test_a_cell_is_known_when_every_test_is(packs: dict[str, Any]) -> None:
    plan = plan_cell(_cell(), packs)
    part = plan_cell(_cell(evaluations=plan.cell.evaluations[:1]), packs)
    assert find_known([_body(plan, packs)], part) is not None
    assert find_known([_body(part, packs)], plan) is None
    rest = plan_cell(_cell(evaluations=plan.cell.evaluations[1:]), packs)
    assert find_known([_body(part, packs), _body(rest, packs)], plan) is not None


def test_a_failure_is_known_until_it_is_to_be_tried_again(packs: dict[str, Any]) -> None:
    plan = plan_cell(_cell(), packs)
    failed = _body(plan, packs, state="failed", error={"message": "x"})
    assert find_known([failed], plan) is failed
    assert find_known([failed], plan, retry=True) is None
    assert find_known([failed, _body(plan, packs)], plan, retry=True) is not None


def test_results_of_another_version_are_computed_anew(packs: dict[str, Any]) -> None:
    plan = plan_cell(_cell(), packs)
    assert find_known([_body(plan, packs, key="0" * 64, version=0)], plan) is None


def test_estimates_follow_what_cells_took(packs: dict[str, Any]) -> None:
    plan, longer = plan_cell(_cell(), packs), plan_cell(_cell(iterations=16), packs)
    estimator = Estimator("cpu")
    assert estimator.basis == "from arithmetic, on one processor core"
    body = _body(plan, packs, seconds={"train": 3.0, "evaluate": 1.0}, environment=describe_environment())
    estimator.learn(body, plan.cell, plan.config)
    assert estimator.seconds(plan.cell, plan.config) == pytest.approx(4.0)
    ratio = work_of(longer.cell, longer.config).total / work_of(plan.cell, plan.config).total
    assert 1 < ratio < 2
    assert estimator.seconds(longer.cell, longer.config) == pytest.approx(4.0 * ratio)
    assert estimator.basis == "from 1 finished cells on one processor core"
    assert Estimator("cuda").basis == "from arithmetic, on one H200"
    maml = replace(plan, config=plan_cell(_cell(method="maml"), packs).config)
    assert work_of(plan.cell, maml.config).train > work_of(plan.cell, plan.config).train

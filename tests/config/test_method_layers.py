"""Methods as a layer of a configuration: their presets, their sections, and what a record of a run holds of them."""

import pytest

from abomed.config.run import RunConfig, describe_preset, load_run_config
from abomed.errors import ConfigError


def test_a_method_brings_its_preset_on_default_and_below_one_that_is_named() -> None:
    """The method may be named by any layer."""
    own = load_run_config(flags={"train": {"method": "tra-maml"}})
    assert (own.outer.lr_outer, own.train.iterations, own.train.task_batch) == (1e-4, 5000, 4)
    assert (own.model.normalisation, own.episodes.queries) == ("episode", 15)
    assert load_run_config(environment={"ABOMED_TRAIN_METHOD": "tra-maml"}) == own
    tiny = load_run_config("tiny", flags={"train": {"method": "tra-maml"}})
    assert (tiny.outer.lr_outer, tiny.train.iterations, tiny.train.task_batch) == (1e-4, 90, 8)
    equal = load_run_config("default", flags={"train": {"method": "tra-maml"}})
    assert (equal.outer.lr_outer, equal.train.iterations, equal.train.task_batch) == (1e-3, 400, 32)
    flags = {"train": {"method": "tra-maml", "iterations": 7}, "tra_maml": {"width": "0.8"}}
    typed = load_run_config(flags=flags)
    assert (typed.train.iterations, typed.train.task_batch, typed.tra_maml.width) == (7, 4, 0.8)
    assert load_run_config(None, flags={"train": {"method": "tra-maml"}}).train.iterations == 400
    assert describe_preset("auto", "tra-maml") == "tra-maml on default"
    assert describe_preset("tiny", "tra-maml") == "tiny on tra-maml"
    assert describe_preset("auto", "abo-med") == "default"


def test_an_estimator_belongs_to_abo_med() -> None:
    flags = {"train": {"method": "maml"}, "estimator": {"hypergradient": "itd"}}
    with pytest.raises(ConfigError) as raised:
        load_run_config(flags=flags)
    assert str(raised.value).splitlines()[-1] == (
        "  found: estimator.hypergradient = 'itd' is a way of training abo-med; the method is 'maml'"
    )


def test_a_record_holds_what_is_used_and_reads_back() -> None:
    plain = load_run_config()
    names = {"episodes", "model", "baseline", "medraug", "mixing", "inner", "outer", "train"}
    record = plain.model_dump(exclude=plain.unused())
    assert record.keys() == names, "as before there were other methods"
    assert record["outer"].keys() == {
        "optimiser", "lr_outer", "weight_decay", "outer_momentum", "schedule", "clip_norm",
    }  # fmt: skip
    flags = {
        "train": {"method": "maml++"},
        "maml_plus": {"steps": 3},
        "comparison": {"adapt_steps": 30},
        "outer": {"optimiser": "rahgd", "radius": 2.0},
    }
    config = load_run_config(flags=flags)
    record = config.model_dump(exclude=config.unused())
    assert record.keys() == {*names, "maml_plus", "comparison"}
    assert RunConfig.model_validate(record) == config

"""Points of a search as Optuna keeps them, and what becomes of a trial there."""

import json
from typing import TYPE_CHECKING, Any

from abomed.config.search import Point
from abomed.config.space import Choices, Dimension, Value

if TYPE_CHECKING:
    from optuna import Study
    from optuna.trial import FrozenTrial, Trial

_LIST = "list:"  # begins a value that Optuna cannot hold


def propose(trial: "Trial", space: dict[str, Dimension]) -> dict[str, Any]:
    """The trial's point: as laid out, or as the sampler proposes; coded."""
    coded: dict[str, Any] = {}
    for name, each in space.items():
        if isinstance(each, Choices):
            coded[name] = trial.suggest_categorical(name, [_code(value) for value in each.values])
        elif each.whole:
            coded[name] = trial.suggest_int(name, int(each.low), int(each.high), log=each.log)
        else:
            coded[name] = trial.suggest_float(name, each.low, each.high, log=each.log)
    return coded


def finish(study: "Study", number: int, value: float | None, *, pruned: bool = False) -> bool:
    """Tell the storage; False where another worker has finished the trial, as happens to one given up for dead."""
    from optuna.trial import TrialState

    state = TrialState.PRUNED if pruned else TrialState.FAIL if value is None else TrialState.COMPLETE
    try:
        study.tell(number, None if pruned else value, state=state)
    except ValueError:
        if study.get_trials(deepcopy=False)[number].state.is_finished():
            return False
        raise
    return True


def is_void(trial: "FrozenTrial") -> bool:
    return trial.state.name == "FAIL" and "void" in trial.user_attrs


def point_of(trial: "FrozenTrial") -> Point:
    """The settings of a trial, as far as they are known."""
    return decode(trial.params or trial.system_attrs.get("fixed_params", {}))


def key_of(trial: "FrozenTrial") -> str:
    return coded_key(trial.params or trial.system_attrs.get("fixed_params", {}))


def open_trial(study: "Study", frozen: "FrozenTrial") -> "Trial":
    from optuna.trial import Trial

    return Trial(study, frozen._trial_id)


def encode(point: Point) -> dict[str, Any]:
    return {name: _code(value) for name, value in point.items()}


def _code(value: Value) -> Any:
    return f"{_LIST}{json.dumps(value)}" if isinstance(value, tuple | list) else value


def decode(coded: dict[str, Any]) -> Point:
    return {
        name: tuple(json.loads(value.removeprefix(_LIST)))
        if isinstance(value, str) and value.startswith(_LIST)
        else value
        for name, value in coded.items()
    }


def coded_key(coded: dict[str, Any]) -> str:
    return json.dumps(coded, sort_keys=True)

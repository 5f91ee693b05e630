"""Where to try next: a pure function of the space, the seed, the trial's number and what is known of other trials."""

from __future__ import annotations

import hashlib
import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import FrozenTrial, TrialState, create_trial
from torch import Tensor

from ebclab.data.hashing import hash_words, unit_interval
from ebclab.sweeps.space.parameter import Parameter, rounded
from ebclab.sweeps.space.space import Space
from ebclab.sweeps.trial import Trial

Search = Literal["tpe", "random", "grid"]
Point = Mapping[str, Any]

STARTUP = 8  # points of known worth before TPE takes over from random ones


def suggest(
    space: Space,
    search: Search,
    *,
    seed: int,
    number: int,
    trials: Sequence[Trial],
    default: Point | None,
    earlier: Sequence[tuple[Point, float]] = (),
) -> dict[str, Any]:
    """Return the point of trial ``number``.

    Args:
        space: Where to search.
        search: tpe: where good trials lie denser than others, after a few random ones; random: anywhere; grid: the
            grid's points in turn.
        seed: Of the sweep.
        number: The trial's place in the order of proposals, from 0.
        trials: What is known of the others, in any order; those that confirm do not count.
        default: Point of trial 0, unless the search is a grid; None makes it a trial as any other.
        earlier: Points of the box and their objectives, from a sweep before this one.

    Raises:
        IndexError: The grid has no such place.
    """
    if search == "grid":
        return space.grid_point(number)
    if number == 0 and default is not None:
        return dict(default)
    if search == "tpe":
        told = list(_told(space, trials, earlier, number))
        if sum(trial.state.is_finished() for trial in told) >= STARTUP:
            return _most_promising(space, told, int(_bits(seed, number, "tpe")) % 2**32)
    shares = {name: float(unit_interval(_bits(seed, number, name))) for name in space.by_name}
    return {name: parameter.at(shares[name]) for name, parameter in space.by_name.items()}


def _bits(seed: int, number: int, name: str) -> Tensor:
    """Return 64 mixed bits for one number of a trial."""
    word = int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little", signed=True)
    return hash_words(seed, number, word)


def _told(
    space: Space, trials: Sequence[Trial], earlier: Sequence[tuple[Point, float]], number: int
) -> Iterator[FrozenTrial]:
    """Yield what TPE learns from, oldest first.

    It prefers finished trials by objective, then stopped ones by epochs done and objective, then those without a value.
    Of trials that are not over it knows only where they are, and keeps away. A trial that failed tells nothing of its
    settings, unless it ran out of memory.
    """
    distributions = {name: _distribution(parameter) for name, parameter in space.by_name.items()}

    def tell(point: Point, state: TrialState, **value: Any) -> FrozenTrial:
        params = {name: _to_optuna(parameter, point[name]) for name, parameter in space.by_name.items()}
        return create_trial(state=state, params=params, distributions=distributions, **value)

    for point, objective in earlier:
        yield tell(point, TrialState.COMPLETE, value=objective)
    others = [trial for trial in trials if trial.kind == "search" and trial.number != number]
    for trial in sorted(others, key=lambda trial: trial.number):
        last = trial.last if trial.last and math.isfinite(trial.last.objective) else None
        if not trial.is_over:
            yield tell(trial.point, TrialState.RUNNING)
        elif trial.state == "finished" and last:
            yield tell(trial.point, TrialState.COMPLETE, value=last.objective)
        elif trial.state == "stopped" and last:
            # TPE reads the last of the values only.
            yield tell(trial.point, TrialState.PRUNED, intermediate_values={trial.epochs_done: last.objective})
        elif trial.state != "failed" or "out of memory" in trial.reason.lower():
            yield tell(trial.point, TrialState.PRUNED)


def _most_promising(space: Space, told: list[FrozenTrial], seed: int) -> dict[str, Any]:
    """Return the point that TPE proposes after ``told``."""
    with _quiet_optuna():
        sampler = optuna.samplers.TPESampler(n_startup_trials=1, multivariate=True, constant_liar=True, seed=seed)
        study = optuna.create_study(direction="maximize", sampler=sampler)
        study.add_trials(told)
        params = study.ask({name: _distribution(parameter) for name, parameter in space.by_name.items()}).params
    return {name: _from_optuna(parameter, params[name]) for name, parameter in space.by_name.items()}


def _distribution(parameter: Parameter) -> BaseDistribution:
    """Return the range as optuna knows it; levels are their places, so that no value is rounded or mistaken."""
    if parameter.kind == "choice":
        return CategoricalDistribution(range(len(parameter.levels)))
    if parameter.kind == "quantised":
        return IntDistribution(0, len(parameter.levels) - 1)
    if parameter.kind == "int":
        return IntDistribution(int(parameter.low), int(parameter.high), log=parameter.log)
    return FloatDistribution(parameter.low, parameter.high, log=parameter.kind == "loguniform")


def _to_optuna(parameter: Parameter, value: Any) -> Any:
    return parameter.levels.index(value) if parameter.levels else value


def _from_optuna(parameter: Parameter, value: Any) -> Any:
    return parameter.levels[value] if parameter.levels else parameter.find(rounded(value))


@contextmanager
def _quiet_optuna() -> Iterator[None]:
    """Keep optuna from announcing the study; what others do with its log stays as it was."""
    logger = logging.getLogger("optuna")
    level = logger.level
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.setLevel(level)

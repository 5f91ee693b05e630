"""The search: suggest the next point, a pure function of space, seed, number of the trial and the other trials."""

from __future__ import annotations

import hashlib
import logging
import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import FrozenTrial, TrialState, create_trial

from ebclab.sweeps.log import Trial
from ebclab.sweeps.request import Search
from ebclab.sweeps.space.space import Parameter, Point, Space, rounded

if TYPE_CHECKING:
    from torch import Tensor

STARTUP = 8  # points with a value before TPE takes over from random points


def suggest(
    space: Space,
    search: Search,
    *,
    seed: int,
    number: int,
    trials: Sequence[Trial],
    default: Point | None,
    earlier: Sequence[tuple[Point, float]] = (),
) -> Point:
    """Return the point of trial ``number``, its place in the order of proposals, from 0.

    tpe: a few random points, then where good trials are denser than others; random: anywhere; grid: the points of the
    grid in turn. ``default`` is the point of trial 0, unless the search is a grid; None treats it like any other.
    ``earlier`` are points and their objectives from an earlier sweep. Confirming trials do not count.
    """
    from ebclab.data.hashing import unit_interval  # here and below: reports import this file, and no torch

    if search == "grid":
        return space.grid_point(number)
    if number == 0 and default is not None:
        return dict(default)
    if search == "tpe":
        known = list(_known_trials(space, trials, earlier, number))
        if sum(trial.state.is_finished() for trial in known) >= STARTUP:
            return _most_promising(space, known, int(_bits(seed, number, "tpe")) % 2**32)
    shares = {name: float(unit_interval(_bits(seed, number, name))) for name in space.by_name}
    return {name: parameter.at(shares[name]) for name, parameter in space.by_name.items()}


def _bits(seed: int, number: int, name: str) -> Tensor:
    """Return 64 hashed bits for one random number of a trial."""
    from ebclab.data.hashing import hash_words

    word = int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little", signed=True)
    return hash_words(seed, number, word)


def _known_trials(
    space: Space, trials: Sequence[Trial], earlier: Sequence[tuple[Point, float]], number: int
) -> Iterator[FrozenTrial]:
    """Yield the trials that TPE learns from, oldest first.

    TPE prefers finished trials by objective, then stopped ones by epochs done and objective, then those without a
    value. It keeps away from the points of trials that are not over. A failed trial says nothing about its settings,
    unless it ran out of memory.
    """
    distributions = {name: _distribution(parameter) for name, parameter in space.by_name.items()}

    def frozen(point: Point, state: TrialState, **value: Any) -> FrozenTrial:
        params = {name: _to_optuna(parameter, point[name]) for name, parameter in space.by_name.items()}
        return create_trial(state=state, params=params, distributions=distributions, **value)

    for point, objective in earlier:
        yield frozen(point, TrialState.COMPLETE, value=objective)
    others = [trial for trial in trials if trial.kind == "search" and trial.number != number]
    for trial in sorted(others, key=lambda trial: trial.number):
        is_measured = math.isfinite(trial.value)
        if not trial.is_over:
            yield frozen(trial.point, TrialState.RUNNING)
        elif trial.state == "finished" and is_measured:
            yield frozen(trial.point, TrialState.COMPLETE, value=trial.value)
        elif trial.state == "stopped" and is_measured:
            # TPE reads the last of the values only.
            yield frozen(trial.point, TrialState.PRUNED, intermediate_values={trial.epochs_done: trial.value})
        elif trial.state != "failed" or "out of memory" in trial.reason.lower():
            yield frozen(trial.point, TrialState.PRUNED)


def _most_promising(space: Space, known: list[FrozenTrial], seed: int) -> Point:
    """Return the point that TPE proposes after the trials ``known``."""
    sampler = optuna.samplers.TPESampler(n_startup_trials=1, multivariate=True, constant_liar=True, seed=seed)
    study = new_study(sampler=sampler)
    study.add_trials(known)
    params = study.ask({name: _distribution(parameter) for name, parameter in space.by_name.items()}).params
    return {name: _from_optuna(parameter, params[name]) for name, parameter in space.by_name.items()}


def _distribution(parameter: Parameter) -> BaseDistribution:
    """Return the range as optuna's distribution; a level is its index, so that no value is rounded.

    A range with a value beside it is searched by its shares, of which that value has some of its own.
    """
    if parameter.also is not None:
        return FloatDistribution(0.0, 1.0)
    if parameter.kind == "choice":
        return CategoricalDistribution(range(len(parameter.levels)))
    if parameter.kind == "quantised":
        return IntDistribution(0, len(parameter.levels) - 1)
    if parameter.kind == "int":
        return IntDistribution(int(parameter.low), int(parameter.high), log=parameter.log)
    return FloatDistribution(parameter.low, parameter.high, log=parameter.kind == "loguniform")


def _to_optuna(parameter: Parameter, value: Any) -> Any:
    if parameter.also is not None:
        return parameter.share_of(value)
    return parameter.levels.index(value) if parameter.levels else value


def _from_optuna(parameter: Parameter, value: Any) -> Any:
    if parameter.also is not None:
        return parameter.at(value)
    return parameter.levels[value] if parameter.levels else parameter.find(rounded(value))


def new_study(**options: Any) -> optuna.Study:
    """Return a new study that maximises, without optuna's log message about that."""
    logger = logging.getLogger("optuna")
    level = logger.level
    logger.setLevel(logging.WARNING)
    try:
        return optuna.create_study(direction="maximize", **options)
    finally:
        logger.setLevel(level)

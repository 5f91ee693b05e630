"""Compare trials of different lengths by their objectives after the same number of epochs."""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import FrozenTrial, create_trial

from ebclab.sweeps.display import short_names
from ebclab.sweeps.log import Trial
from ebclab.sweeps.policies.suggest import new_study
from ebclab.sweeps.space.space import Parameter, Point, Space, is_number

LEAST_TRIALS = 8
"""Minimum number of trials for which an importance is computed."""
MOST_TRIALS = 150
"""Maximum number of trials for fANOVA, which takes 1 s with 150 trials and 20 s with 1,000; more are thinned evenly."""
_NUM_TREES = 16


@dataclass(frozen=True)
class Footing:
    """Trials that can be compared after the same number of epochs."""

    epoch: int  # number of epochs: the last one that at least half of the measured trials reached
    trials: tuple[Trial, ...]  # the trials that reached it, in the order of their proposal
    values: tuple[float, ...]  # the objective of each trial after this epoch

    def thinned(self) -> Footing:
        """Return at most ``MOST_TRIALS`` of the trials, evenly spaced in the order of their proposal."""
        count = len(self.trials)
        if count <= MOST_TRIALS:
            return self
        kept = [place * count // MOST_TRIALS for place in range(MOST_TRIALS)]
        return Footing(self.epoch, tuple(self.trials[i] for i in kept), tuple(self.values[i] for i in kept))


def footing(space: Space, trials: Sequence[Trial]) -> Footing:
    """Return the comparable trials; those outside the space or with a non-finite objective are excluded."""
    inside = [trial for trial in trials if is_inside(space, trial) and trial.curve]
    lengths = sorted((trial.epochs_done for trial in inside), reverse=True)
    epoch = lengths[(len(lengths) - 1) // 2] if lengths else 0
    kept = [trial for trial in inside if epoch in trial.curve and math.isfinite(trial.curve[epoch].objective)]
    return Footing(epoch, tuple(kept), tuple(trial.curve[epoch].objective for trial in kept))


def is_inside(space: Space, trial: Trial) -> bool:
    """Return whether the point of a trial is inside the search space."""
    return all(parameter.find(trial.point.get(name)) is not None for name, parameter in space.by_name.items())


def labels(space: Space) -> dict[str, str]:
    """Return a label for every parameter in plots; a parameter with ``times`` is plotted as its factor."""
    return {
        name: as_text(word) + (" (factor)" if space.by_name[name].times else "")
        for name, word in short_names(list(space.by_name)).items()
    }


def as_text(value: object) -> str:
    """Return a value as text without markup, since plots interpret some HTML tags."""
    text = f"{value:.4g}" if isinstance(value, float) else str(value)
    return html.escape(text, quote=False)


def frozen(space: Space, point: Point, names: Mapping[str, str] | None = None, **facts: Any) -> FrozenTrial:
    """Return a trial at a point of the space as optuna takes it, with other ``names`` of the settings if given."""
    named = {name if names is None else names[name]: parameter for name, parameter in space.by_name.items()}
    return create_trial(
        params={name: _as_optuna_value(parameter, point[parameter.name]) for name, parameter in named.items()},
        distributions={name: _as_distribution(parameter) for name, parameter in named.items()},
        **facts,
    )


def study_of(space: Space, compared: Footing) -> optuna.Study:
    """Return the compared trials as an optuna study, for its plots."""
    study, names = new_study(study_name="sweep"), labels(space)
    pairs = zip(compared.trials, compared.values, strict=True)
    study.add_trials([frozen(space, trial.point, names, value=value) for trial, value in pairs])
    return study


def importance(space: Space, compared: Footing) -> dict[str, float]:
    """Return the share of the objective's variance that each setting alone explains (fANOVA), normalized to sum to 1.

    The variance is that over random draws: trees split the shares of a range, not its values, of which those of a log
    range would weigh as on a linear scale. The result is empty if there are fewer than ``LEAST_TRIALS`` trials, if all
    objectives are equal, or if no tree can split the trials.
    """
    if len(compared.trials) < LEAST_TRIALS or len(set(compared.values)) < 2:
        return {}
    from optuna.importance import FanovaImportanceEvaluator, get_param_importances  # scikit-learn and pandas: seconds

    kinds: dict[str, BaseDistribution] = {name: FloatDistribution(0, 1) for name in space.by_name}
    kinds |= {p.name: CategoricalDistribution(range(len(p.levels))) for p in space.parameters if p.choices}
    study = new_study()
    for trial, value in zip(compared.trials, compared.values, strict=True):
        shares = {name: _share(parameter, trial.point[name]) for name, parameter in space.by_name.items()}
        study.add_trial(create_trial(value=value, params=shares, distributions=kinds))
    evaluator = FanovaImportanceEvaluator(n_trees=_NUM_TREES, max_depth=_NUM_TREES, seed=0)
    try:
        found = get_param_importances(study, evaluator=evaluator)
    except RuntimeError:  # no tree could split the trials
        return {}
    return {name: float(share) for name, share in found.items()}


def _share(parameter: Parameter, value: Any) -> float:
    """Return the share of a range at which a value lies; of a choice, its number."""
    inside = parameter.find(value)
    return parameter.levels.index(inside) if parameter.choices else parameter.share_of(inside)


def why_no_importance(compared: Footing) -> str:
    """Return the reason why no importance was computed."""
    num_trials = len(compared.trials)
    if num_trials < LEAST_TRIALS:
        return f"Importance and heat map need at least {LEAST_TRIALS} comparable trials; there are {num_trials}."
    return "All comparable trials measured the same: no setting explains any difference."


def _as_distribution(parameter: Parameter) -> BaseDistribution:
    """Return a range as optuna's distribution."""
    if parameter.kind == "choice":
        return CategoricalDistribution([_as_optuna_value(parameter, choice) for choice in parameter.choices])
    if parameter.kind == "int":
        return IntDistribution(int(parameter.low), int(parameter.high), log=parameter.log)
    low, high = min(parameter.ends), max(parameter.ends)
    return FloatDistribution(low, high, log=parameter.kind == "loguniform" and low > 0)


def _as_optuna_value(parameter: Parameter, value: Any) -> Any:
    """Return a value in its range as optuna takes it: a number, or text."""
    inside = parameter.find(value)
    return inside if is_number(inside) else as_text(inside)

"""Compare trials of different lengths by their objectives after the same number of epochs."""

from __future__ import annotations

import hashlib
import html
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

from ebclab.sweeps.display import short_names
from ebclab.sweeps.log import Trial
from ebclab.sweeps.space.space import Space

LEAST_TRIALS = 8
"""Minimum number of trials for which an importance is computed."""
MOST_TRIALS = 150
"""Maximum number of trials for fANOVA, which takes 1 s with 150 trials and 20 s with 1,000; more are thinned evenly."""
_NUM_TREES = 16


@dataclass(frozen=True)
class Footing:
    """Trials that can be compared after the same number of epochs, at most ``MOST_TRIALS``."""

    epoch: int  # number of epochs: the last one that at least half of the measured trials reached
    trials: tuple[Trial, ...]  # the trials that reached it, in the order of their proposal
    values: tuple[float, ...]  # the objective of each trial after this epoch


def footing(space: Space, trials: Sequence[Trial]) -> Footing:
    """Return the comparable trials, thinned; those outside the space or with a non-finite objective are excluded."""
    inside = [trial for trial in trials if space.holds(trial.point) and trial.curve]
    lengths = sorted((trial.epochs_done for trial in inside), reverse=True)
    epoch = lengths[(len(lengths) - 1) // 2] if lengths else 0
    kept = [trial for trial in inside if epoch in trial.curve and math.isfinite(trial.curve[epoch].objective)]
    most = min(len(kept), MOST_TRIALS)
    even = [kept[place * len(kept) // most] for place in range(most)]
    return Footing(epoch, tuple(even), tuple(trial.curve[epoch].objective for trial in even))


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


def importance(space: Space, compared: Footing) -> dict[str, float]:
    """Return the share of the objective's variance that each setting alone explains (fANOVA), normalized to sum to 1.

    The variance is that over random draws: trees split the shares of a range, not its values, of which those of a log
    range would weigh as on a linear scale. The result is empty if there are fewer than ``LEAST_TRIALS`` trials, if all
    their objectives are equal, or if no tree can split them.
    """
    if len(compared.trials) < LEAST_TRIALS or len(set(compared.values)) < 2:
        return {}
    from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution
    from optuna.importance import FanovaImportanceEvaluator, get_param_importances  # scikit-learn and pandas: seconds
    from optuna.trial import create_trial

    from ebclab.sweeps.policies.suggest import new_study

    kinds: dict[str, BaseDistribution] = {name: FloatDistribution(0, 1) for name in space.by_name}
    kinds |= {p.name: CategoricalDistribution(range(len(p.levels))) for p in space.parameters if p.choices}
    study = new_study()
    for shares, value in zip(_shares(space, compared), compared.values, strict=True):
        study.add_trial(create_trial(value=value, params=shares, distributions=kinds))
    evaluator = FanovaImportanceEvaluator(n_trees=_NUM_TREES, max_depth=_NUM_TREES, seed=0)
    try:
        found = get_param_importances(study, evaluator=evaluator)
    except RuntimeError:  # no tree could split the trials
        return {}
    return {name: float(share) for name, share in found.items()}


def importance_digest(space: Space, compared: Footing, found: Mapping[str, float]) -> str:
    """Return a hash of an importance and of all that it follows from: the trials, the settings of fANOVA, versions."""
    versions = [version(name) for name in ("optuna", "scikit-learn", "numpy")]
    ranges = [(parameter.name, len(parameter.choices)) for parameter in space.parameters]
    given = [versions, LEAST_TRIALS, _NUM_TREES, ranges, [*_shares(space, compared)], list(compared.values)]
    return hashlib.sha256(json.dumps([given, dict(found)]).encode()).hexdigest()


def _shares(space: Space, compared: Footing) -> Iterator[dict[str, Any]]:
    for trial in compared.trials:
        yield {name: parameter.place_of(trial.point[name]) for name, parameter in space.by_name.items()}


def why_no_importance(compared: Footing) -> str:
    """Return the reason why no importance was computed."""
    num_trials = len(compared.trials)
    if num_trials < LEAST_TRIALS:
        return f"Importance and heat map need at least {LEAST_TRIALS} comparable trials; there are {num_trials}."
    return "All comparable trials measured the same: no setting explains any difference."

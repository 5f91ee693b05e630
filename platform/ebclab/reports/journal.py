"""The trials of sweeps as a journal of Optuna, for optuna-dashboard."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FrozenTrial, TrialState, create_trial

from ebclab.errors import RunError
from ebclab.reports.comparable import as_text
from ebclab.reports.reading import read_sweep
from ebclab.storage import atomic
from ebclab.sweeps.log import Trial
from ebclab.sweeps.policies.suggest import new_study
from ebclab.sweeps.space.space import Parameter, Space, is_number


def write_journal(folders: Sequence[str | Path], to: Path) -> list[str]:
    """Write a study for each sweep, with its search trials and their curves; return what was left out, a line each.

    Trials that were stopped early are pruned ones, those that failed or diverged failed ones; a trial that has not
    ended, or whose settings are outside of the space, is left out.
    """
    left_out = []
    with tempfile.TemporaryDirectory() as aside:
        path = Path(aside) / "journal"
        storage = optuna.storages.JournalStorage(JournalFileBackend(str(path)))
        for record in map(read_sweep, folders):
            space, trials = record.plan.space, record.log.of_kind("search")
            kept = [trial for trial in trials if trial.is_over and space.holds(trial.point)]
            if len(kept) < len(trials):
                left_out.append(f"{record.name}: {len(trials) - len(kept)} of {len(trials)} trials were left out")
            study = new_study(study_name=str(record.folder.path), storage=storage)
            study.add_trials([_frozen(space, trial) for trial in kept])
        try:
            atomic.write_bytes(to, path.read_bytes())
        except OSError as error:
            raise RunError(f"--optuna: cannot be written, got {to}: {error.strerror}; choose another file") from error
    return left_out


def _frozen(space: Space, trial: Trial) -> FrozenTrial:
    states = {"finished": TrialState.COMPLETE, "stopped": TrialState.PRUNED}
    state = TrialState.FAIL if not trial.curve else states.get(trial.state, TrialState.FAIL)
    return create_trial(
        params={name: _as_optuna_value(parameter, trial.point[name]) for name, parameter in space.by_name.items()},
        distributions={name: _as_distribution(parameter) for name, parameter in space.by_name.items()},
        state=state,
        value=None if state == TrialState.FAIL else trial.value,
        intermediate_values=trial.objectives,
        user_attrs={"trial": trial.id, "seconds": round(trial.seconds, 3), "reason": trial.reason},
    )


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

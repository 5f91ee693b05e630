"""What a sweep found: the winner with its interval, its test score, what early stopping saved; files to take along."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from torch.utils.tensorboard import SummaryWriter
from torch.utils.tensorboard.summary import hparams

from ebclab.config import to_yaml
from ebclab.errors import StoreError, TrainingError, UserError
from ebclab.runs.evaluate import evaluate_run
from ebclab.storage import atomic
from ebclab.sweeps.display.live_table import SweepDisplay
from ebclab.sweeps.folder import SweepFolder
from ebclab.sweeps.log import SweepLog, finite
from ebclab.sweeps.plan import SweepPlan, trial_config
from ebclab.sweeps.proposals import ConfirmProposals, mean_and_interval, ranked
from ebclab.sweeps.trial import Trial
from energy_contrast.method import Method


def conclude(
    folder: SweepFolder,
    plan: SweepPlan,
    log: SweepLog,
    confirmed: ConfirmProposals,
    methods: Mapping[str, type[Method]],
    display: SweepDisplay,
) -> dict[str, Any]:
    """Write best.yaml, the TensorBoard table and, last, result.json; return what that says.

    Args:
        folder: The sweep's folder.
        plan: What the sweep is.
        log: Its log, when nothing is left to train.
        confirmed: The settings that were run again.
        methods: Methods by name.
        display: Told while the test set is read.

    Raises:
        TrainingError: No trial measured anything.
        StoreError: The store that holds the sweep refuses, or has not answered for long.
    """
    trials = log.of_kind("search")
    order = ranked(trials)
    if not order:
        reasons = Counter(trial.reason for trial in trials if trial.reason)
        why = "; ".join(f"{reason} ({count} times)" for reason, count in reasons.most_common(3)) or "nothing was run"
        raise TrainingError(f"{folder.address}: no trial measured anything: {why}; see {folder.log.name} there")
    candidates = _candidates(confirmed, log)
    winner = _winner(candidates, order)
    best = trial_config(plan.config, winner["settings"], seed=plan.config.seed, epochs=plan.config.training.epochs)
    atomic.write_text(folder.best, to_yaml(best))
    _write_tensorboard(folder, plan, trials)
    result = {
        "format": 1,
        "path": folder.address,
        "method": plan.config.method_name,
        "dataset": plan.config.data.name,
        "objective": plan.config.evaluation.objective,
        "trials": dict(Counter(trial.state for trial in trials)),
        "winner": winner,
        "candidates": candidates,
        "test": _test(folder, winner, log, methods, display) if candidates else None,
        "saved": saved_by_stopping(trials),
        "seconds": round(sum(trial.seconds for trial in log.trials.values()), 1),
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    atomic.write_json(folder.result, finite(result))
    return result


def saved_by_stopping(trials: Sequence[Trial]) -> dict[str, float]:
    """Return what stopped trials would have cost more, at the seconds an epoch that each of them had needed."""
    stopped = [trial for trial in trials if trial.state == "stopped" and trial.epochs_done]
    seconds = sum(trial.seconds / trial.epochs_done * (trial.epochs - trial.epochs_done) for trial in stopped)
    return {
        "trials": len(stopped),
        "epochs": sum(trial.epochs - trial.epochs_done for trial in stopped),
        "seconds": round(seconds, 1),
        "seconds_spent": round(sum(trial.seconds for trial in trials), 1),
    }


def _candidates(confirmed: ConfirmProposals, log: SweepLog) -> list[dict[str, Any]]:
    """Return every confirmed set of settings with its mean and interval over seeds, best mean first."""
    found = [
        {
            "trial": source,
            "settings": confirmed.settings[source],
            "seeds": list(by_seed),
            "values": list(by_seed.values()),
            "seeds_asked": confirmed.num_seeds,
            **mean_and_interval(list(by_seed.values()), is_rate=confirmed.is_rate),
        }
        for source, by_seed in confirmed.results(log).items()
        if by_seed
    ]
    return sorted(found, key=lambda entry: (len(entry["values"]), entry["mean"]), reverse=True)


def _winner(candidates: Sequence[dict[str, Any]], order: Sequence[Trial]) -> dict[str, Any]:
    """Return the best confirmed settings, the starting ones included; without any, the best trial as it is."""
    if candidates:
        return candidates[0]
    best = order[0]
    value = best.last.objective if best.last else None
    return {"trial": best.id, "settings": best.settings, "seeds": [best.seed], "values": [value], "seeds_asked": 0}


def _test(
    folder: SweepFolder,
    winner: dict[str, Any],
    log: SweepLog,
    methods: Mapping[str, type[Method]],
    display: SweepDisplay,
) -> dict[str, Any] | None:
    """Read the test set once, for the winner's confirming runs; what was read before is not read again.

    Raises:
        StoreError: The store that holds them refuses, or has not answered for long.
    """
    known = log.last_event("tested")
    if known and known["trial"] == winner["trial"] and known["seeds"] == winner["seeds"]:
        return dict(known["scores"])
    rows: dict[str, list[float]] = {}
    for seed in winner["seeds"]:
        display.note(f"reading the test set for the winner, seed {seed}")
        run = folder.run(f"confirm-{winner['trial']}-seed{seed}")
        try:
            scores = next(iter(evaluate_run(run, methods=methods).rows.values()))
        except StoreError:  # nothing is known about the run; the same command asks again
            raise
        except UserError as error:
            display.note(f"no test score: {error}")
            log.append("not_tested", trial=winner["trial"], reason=str(error))
            return None
        for name, score in scores.items():
            rows.setdefault(name, []).append(score.value)
    found = {name: {"values": values, **mean_and_interval(values, is_rate=True)} for name, values in rows.items()}
    log.append("tested", trial=winner["trial"], seeds=winner["seeds"], scores=found)
    return found


def _write_tensorboard(folder: SweepFolder, plan: SweepPlan, trials: Sequence[Trial]) -> None:
    """Write every trial's settings and objective, as TensorBoard's HParams page shows them."""
    objective = plan.config.evaluation.objective
    for trial in trials:
        if trial.last is None:
            continue
        plain = {name: v if isinstance(v, bool | int | float | str) else str(v) for name, v in trial.settings.items()}
        with SummaryWriter(str(folder.path / "tensorboard" / trial.id)) as writer:
            for summary in hparams(plain, {objective: trial.last.objective}):  # type: ignore[no-untyped-call]
                writer.file_writer.add_summary(summary)
            for epoch, point in trial.curve.items():
                writer.add_scalar(objective, point.objective, epoch)

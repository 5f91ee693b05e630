"""The end of a sweep: choose the winner, read the test set once for it, write best.yaml and result.json."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from torch.utils.tensorboard import SummaryWriter
from torch.utils.tensorboard.summary import hparams

from ebclab.config import to_yaml
from ebclab.errors import StoreError, TrainingError, UserError
from ebclab.runs.evaluate import evaluate_run
from ebclab.storage import atomic
from ebclab.sweeps.display.live_table import SweepDisplay
from ebclab.sweeps.folder import SweepFolder
from ebclab.sweeps.log import SweepLog
from ebclab.sweeps.plan import SweepPlan, trial_config
from ebclab.sweeps.proposals import confirmed_settings, confirming_run, mean_and_interval, ranked
from ebclab.sweeps.results import ConfirmedSettings, SeedScores, StoppingSavings, SweepResult, WinnerTest
from ebclab.sweeps.trial import Trial
from energy_contrast.method import Method


def conclude(
    folder: SweepFolder,
    plan: SweepPlan,
    log: SweepLog,
    methods: Mapping[str, type[Method]],
    display: SweepDisplay,
) -> SweepResult:
    """Write best.yaml, the TensorBoard pages and, last, result.json; return the result.

    Args:
        folder: The sweep's folder.
        plan: The sweep's plan.
        log: The sweep's log, when nothing is left to train.
        methods: Methods by name.
        display: Shows a line while the test set is read.

    Raises:
        TrainingError: No trial measured anything.
        StoreError: The store that holds the sweep refuses, or has not answered for long.
    """
    trials = log.of_kind("search")
    best_first = ranked(trials)
    if not best_first:
        reasons = Counter(trial.reason for trial in trials if trial.reason)
        why = "; ".join(f"{reason} ({count} times)" for reason, count in reasons.most_common(3)) or "nothing was run"
        raise TrainingError(f"{folder.address}: no trial measured anything: {why}; see {folder.log.name} there")
    candidates = confirmed_settings(plan, log)
    winner = candidates[0] if candidates else ConfirmedSettings.of_trial(best_first[0])
    best = trial_config(plan.config, winner.settings, seed=plan.config.seed, epochs=plan.config.training.epochs)
    atomic.write_text(folder.best, to_yaml(best))
    _write_tensorboard(folder, plan, trials)
    result = SweepResult(
        path=folder.address,
        method=plan.config.method_name,
        dataset=plan.config.data.name,
        objective=plan.config.evaluation.objective,
        trials=dict(Counter(trial.state for trial in trials)),
        winner=winner,
        candidates=tuple(candidates),
        test=_winner_test(folder, winner, log, methods, display) if candidates else None,
        saved=StoppingSavings.of(trials),
        seconds=round(sum(trial.seconds for trial in log.trials.values()), 1),
        finished=datetime.now(UTC).isoformat(timespec="seconds"),
    )
    result.write(folder.result)
    return result


def _winner_test(
    folder: SweepFolder,
    winner: ConfirmedSettings,
    log: SweepLog,
    methods: Mapping[str, type[Method]],
    display: SweepDisplay,
) -> dict[str, SeedScores] | None:
    """Read the test set with the winner's confirming runs, unless the log has their scores already.

    Returns:
        Scores by probe; None when a run cannot be evaluated.

    Raises:
        StoreError: The store that holds the runs refuses, or has not answered for long.
    """
    known = WinnerTest.newest(log)
    if known and known.trial == winner.source and known.seeds == winner.seeds:
        return known.scores
    values: dict[str, list[float]] = {}
    for seed in winner.seeds:
        display.note(f"reading the test set for the winner, seed {seed}")
        run = folder.run(confirming_run(winner.source, seed))
        try:
            scores = next(iter(evaluate_run(run, methods=methods).rows.values()))
        except StoreError:  # nothing is known about the run; the same command tries again
            raise
        except UserError as error:
            display.note(f"no test score: {error}")
            log.append("not_tested", trial=winner.source, reason=str(error))
            return None
        for name, score in scores.items():
            values.setdefault(name, []).append(score.value)
    measured = {
        name: SeedScores(values=tuple(by_seed), **mean_and_interval(by_seed, is_rate=True)._asdict())
        for name, by_seed in values.items()
    }
    WinnerTest(winner.source, winner.seeds, measured).write(log)
    return measured


def _write_tensorboard(folder: SweepFolder, plan: SweepPlan, trials: Sequence[Trial]) -> None:
    """Write every trial's settings and objective for TensorBoard's HParams page, but for those that are there.

    The end of a file's name says how far the trial had come; it is given when the file is whole.
    """
    objective = plan.config.evaluation.objective
    for trial in trials:
        if trial.last is None:
            continue
        place, end = folder.path / "tensorboard" / trial.id, f".generation-{trial.generation}-epoch-{trial.epochs_done}"
        before = list(place.glob("events.*"))
        if any(path.name.endswith(end) for path in before):
            continue
        for path in before:
            path.unlink()
        plain = {name: v if isinstance(v, bool | int | float | str) else str(v) for name, v in trial.settings.items()}
        with SummaryWriter(str(place)) as writer:
            for summary in hparams(plain, {objective: trial.last.objective}):  # type: ignore[no-untyped-call]
                writer.file_writer.add_summary(summary)
            for epoch, point in trial.curve.items():
                writer.add_scalar(objective, point.objective, epoch)
        for path in place.glob("events.*"):
            path.rename(f"{path}{end}")

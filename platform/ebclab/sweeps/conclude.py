"""The end of a sweep: choose the winner, test it and the starting settings, write best.yaml and result.json."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any

from torch.utils.tensorboard import SummaryWriter
from torch.utils.tensorboard.summary import hparams

from ebclab.config import to_yaml
from ebclab.config.addresses import OWN
from ebclab.data.sources.load import load_both
from ebclab.errors import EbclabError, StoreError, TrainingError, UserError
from ebclab.evaluation.comparison import Measurements
from ebclab.evaluation.progress import in_lines
from ebclab.formatting import clock, count
from ebclab.runs.evaluate import evaluate_run
from ebclab.runs.jobs import Each, Kept, one_by_one
from ebclab.runs.measured_references import try_references
from ebclab.runs.references import Protocol
from ebclab.storage import atomic
from ebclab.sweeps.folder import SweepFolder
from ebclab.sweeps.log import SweepLog, Trial
from ebclab.sweeps.plan import SweepPlan, trial_config
from ebclab.sweeps.preflight import SweepLaunch
from ebclab.sweeps.results import (
    ConfirmedSettings,
    RunTest,
    SeedScores,
    SettingsTest,
    StoppingSavings,
    SweepFindings,
    SweepResult,
    confirming_run,
    distinct,
    readings_of_test_set,
)


def conclude(
    launch: SweepLaunch,
    log: SweepLog,
    probes: Sequence[str] = ("knn", "linear"),
    *,
    references: bool = True,
    each: Each = one_by_one,
) -> SweepResult:
    """Write best.yaml, the TensorBoard pages and, last, result.json; return the result.

    ``probes`` are measured on the test set; without any, it is not read. ``references``: so are raw pixels and the
    untrained encoder. ``each`` does the readings.
    """
    folder, plan, note = launch.folder, launch.plan, launch.display.note
    found = SweepFindings(plan, log)
    trials, candidates = found.search, found.confirmed
    if not found.order:
        reasons = Counter(trial.reason for trial in trials if trial.reason)
        why = "; ".join(f"{reason} ({num} times)" for reason, num in reasons.most_common(3)) or "nothing was run"
        raise TrainingError(
            f"{folder.address}: no trial measured anything: {why}; see {folder.log.name} there, and delete the sweep "
            "before the command is repeated, since failed trials are not trained again"
        )
    if repeats := len(trials) - len(distinct(trials)):
        note(f"{repeats} of {count(len(trials), 'trial')} repeated the settings of another one")
    winner = candidates[0] if candidates else ConfirmedSettings.of_trial(found.order[0])
    best = trial_config(plan.config, winner.settings, seed=plan.config.seed, epochs=plan.config.training.epochs)
    atomic.write_text(folder.best, to_yaml(best))
    _write_tensorboard(folder, plan, trials)
    place = found.start_place or 0  # 0: it is the winner
    if probes:
        wanted = (
            candidates if plan.tested == "all" else [candidates[at] for at in dict.fromkeys((0, place)) if candidates]
        )
        limit = _read_test_set(launch, log, wanted, len(candidates), probes, each)
        if references and next(SettingsTest.all_in(log), None) is not None:
            protocols = [(Protocol(plan.config, limit, probe), plan.confirming_seeds) for probe in probes]
            try_references(folder.references, protocols, note, each)
    test, of_start = (found.test, found.test_of_start) if probes else (None, None)
    result = SweepResult(
        path=folder.address,
        method=plan.config.method_name,
        dataset=plan.config.data.name,
        objective=plan.config.evaluation.objective,
        trials=dict(Counter(trial.state for trial in trials)),
        winner=winner,
        candidates=tuple(candidates),
        test=test,
        gain=found.differences[place] if candidates else None,
        test_of_start=of_start,
        test_gain=found.test_gain if test and of_start else None,
        test_readings=len(readings_of_test_set(log)),
        saved=StoppingSavings.of(trials),
        seconds=round(sum(trial.seconds for trial in log.trials.values()), 1),
        finished=datetime.now(UTC).isoformat(timespec="seconds"),
    )
    result.write(folder.result)
    return result


def _tested(folder: SweepFolder, options: Mapping[str, Any], is_here: bool, name: str) -> dict[str, RunTest]:
    """Return what the probes measure of a run on the test set; a disk elsewhere cannot hold copies of all runs."""
    try:
        scores = next(iter(evaluate_run(folder.run(name), **options).rows.values()))
    finally:
        if not is_here:
            folder.run(name).of("reader").drop_copy()
    return {probe: RunTest(score.value, score.answers) for probe, score in scores.items()}


def _read_test_set(
    launch: SweepLaunch,
    log: SweepLog,
    wanted: Sequence[ConfirmedSettings],
    compared: int,
    probes: Sequence[str],
    each: Each,
) -> int:
    """Evaluate those confirming runs of some settings on the test set whose scores are not in the log yet.

    The log names the runs before they read the test set, and has each score as soon as it is known. Settings of which a
    run cannot be evaluated stay untested. The number of labelled images is returned, 0 for all of those that the plan
    leaves to training and selection.
    """
    folder, note, limit = launch.folder, launch.display.note, SettingsTest.limit_in(log, launch.plan)

    def say_untested(source: str, reason: str) -> None:
        note(f"no test score: {reason}")
        log.append("not_tested", trial=source, reason=reason)

    runs: dict[str, tuple[str, int]] = {}
    tested = {entry.source: SettingsTest.of_runs(log, entry.source) for entry in wanted}
    for source, seeds in ((entry.source, entry.seeds) for entry in wanted):
        new = {confirming_run(source, seed): (source, seed) for seed in seeds if seed not in tested[source]}
        if gone := [name for name in new if not folder.run(name).newest_checkpoint()]:
            say_untested(source, f"{folder.run(gone[0]).address}: no checkpoint is left")
        elif new and launch.plan.config.data.name.startswith(OWN):
            run = folder.run(next(iter(new))).address
            remedy = f"measure its runs with ebclab.evaluate({run!r}, images=(train, test))"
            say_untested(source, f"its images were given from Python; {remedy}")
        else:
            runs |= new
    if runs:
        log.append("test_read", runs=list(runs))
        note(f"reading the test set with {count(len(runs), 'run')}")
    is_here = each is one_by_one
    options = {
        "only": probes,
        "train_limit": limit,
        "methods": launch.methods,
        "load": Kept(load_both),
        "must_have_test": True,
        **({"on_progress": in_lines(note)} if is_here else {}),  # only what is done here shows its progress
    }
    started, untested = time.monotonic(), set[str]()
    for done, (name, outcome) in enumerate(each(partial(_tested, folder, options, is_here), list(runs)), start=1):
        source, seed = runs[name]
        if isinstance(outcome, StoreError):  # the run itself may be fine; the same command tries again
            raise outcome
        if isinstance(outcome, EbclabError):
            if source not in untested:
                remedy = f"when that is mended, delete {folder.address_of(folder.result)} and repeat the command"
                say_untested(source, f"{outcome}; {remedy}")
            untested.add(source)
            continue
        tested[source][seed] = outcome
        _require_same_images(tested[source], folder.address)
        by_probe = {probe: Measurements.of((seed,), (of.value,), (of.answers,)) for probe, of in outcome.items()}
        scores = {probe: SeedScores.of(measured, compared) for probe, measured in by_probe.items()}
        SettingsTest(source, (seed,), scores, limit).write(log)
        left = clock((time.monotonic() - started) / done * (len(runs) - done))
        more = f", about {left} left" if done < len(runs) else ""
        note(f"{done} of {len(runs)} read: {source}, seed {seed}{more}")
    return limit


def _require_same_images(runs: Mapping[int, Mapping[str, RunTest]], where: str) -> None:
    """Refuse test scores of some settings, by seed and by probe, that are not of the same images."""
    tests = [(probe, test.answers) for run in runs.values() for probe, test in run.items()]
    images = {(probe, answers.images) for probe, answers in tests if answers is not None}
    if len(images) > len({probe for probe, _ in images}):
        raise UserError(
            f"{where}: the test images are not those that earlier runs of the same settings were tested on; restore "
            "them, or choose another --name"
        )


def _write_tensorboard(folder: SweepFolder, plan: SweepPlan, trials: Sequence[Trial]) -> None:
    """Write every trial's settings and objective for TensorBoard's HParams page, unless they exist already.

    The suffix of a file says how far the trial had come; the file gets its name once it is complete.
    """
    objective = plan.config.evaluation.objective
    for trial in trials:
        if trial.last is None:
            continue
        place, end = folder.own("tensorboard", trial.id), f".generation-{trial.generation}-epoch-{trial.epochs_done}"
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

"""Train one turn of a trial in a process of Ray Tune: an ordinary run whose listener reports to the sweep."""

from __future__ import annotations

import errno
import json
import logging
import math
import time
import traceback
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from ray import tune

from ebclab.cluster.switches import set_ray_switches
from ebclab.cluster.versions import Origin
from ebclab.config import ExperimentConfig
from ebclab.config.encoder import InitConfig
from ebclab.data.holdout import Split
from ebclab.errors import DivergedError, EbclabError, InterruptedRunError, RunError, StoreError, UserError, VersionError
from ebclab.hardware import resolve_device, set_threads
from ebclab.runs.death import watched
from ebclab.runs.folder import ERROR, NEEDED, RunFolder
from ebclab.runs.initial_weights import InitialWeights, kept_weights
from ebclab.runs.metrics_log import LogEvents
from ebclab.runs.resume import EarlierLaunches, write_settings
from ebclab.storage import atomic
from ebclab.storage.lease import LIFETIME
from ebclab.storage.mirror import Syncer
from ebclab.storage.object_store import Store
from ebclab.sweeps.folder import SweepFolder
from ebclab.sweeps.plan import trial_config
from ebclab.sweeps.scheduler import Turn
from ebclab.training.display import Listener
from ebclab.training.rank import train_rank
from ebclab.training.setup import RunSpec, prepare
from energy_contrast.method import Method

_log = logging.getLogger("ebclab.storage")

_FULL = (errno.ENOSPC, errno.EDQUOT)
_CLOSE_SECONDS = 600.0  # Tune waits as long, at the end of a sweep ten seconds
_LOCK_SECONDS = 30.0  # the process of a killed sweep may hold a run folder a little longer


@dataclass(frozen=True)
class TrialSetup:
    """What all trials of a sweep share."""

    folder: SweepFolder
    config: ExperimentConfig  # settings that are not searched
    methods: Mapping[str, type[Method]]
    images: Split | None  # images of all trials; None where the workers of a trial load their own
    threads: int  # CPU threads of a trial
    gpus: float  # share of a GPU that a trial has
    command: tuple[str, ...]  # the command line of the user
    origin: Origin  # versions where the sweep was launched; every machine must run the same
    weights: Path | None = None  # file of the encoders' initial weights; None means random weights


def run_turn(config: Mapping[str, Any], setup: TrialSetup) -> None:
    """Train a trial until it is over or its turn ends; the last report says how it ended.

    ``config`` is {"turn": a ``Turn`` as plain values}.
    """
    set_ray_switches()  # those that Tune reads in this process, which on another machine has not inherited them
    turn = Turn(**config["turn"])
    run = setup.folder.run(turn.run_name, "user" if setup.config.resources.workers else "worker")
    state, reason, answers = "finished", "", ""
    try:
        setup.origin.require_same_here()
        _train(run, turn, setup)
        with suppress(RunError):  # damaged: the trial has finished all the same, and intervals are then over seeds only
            if turn.confirms:
                there = run.pull() if setup.config.resources.workers else run  # workers may have been elsewhere
                found = there.read_answers()
                answers = json.dumps(found.to_mapping()) if found else ""  # Tune takes mappings in a report apart
    except InterruptedRunError as error:
        state, reason = "interrupted", str(error)
    except VersionError as error:
        state, reason = "refused", str(error)
    except StoreError:  # not the trial's fault: Tune reports a death, and the trial resumes later
        raise
    except DivergedError as error:
        state, reason = "diverged", str(error).splitlines()[0]
    except Exception as error:
        state, reason = _failure(run, error)
    finally:
        run.drop_copy()
    tune.report({"outcome": state, "reason": reason, "answers": answers})


class _Closing:
    """Part of Tune's class around ``run_turn``: a trial that is ended closes its folder, loggers and workers first.

    Where its process is not used again, Tune would end it at once, and the reservation of a trial's workers could stay.
    """

    def cleanup(self) -> None:
        from ebclab.cluster.train_internals import get_session  # imported late: it takes a second

        try:
            if session := get_session():
                session.finish(timeout=_CLOSE_SECONDS)
        finally:
            super().cleanup()  # type: ignore[misc]


run_turn.__mixins__ = (_Closing,)  # type: ignore[attr-defined]


def _failure(run: RunFolder, error: Exception) -> tuple[str, str]:
    """Return how a turn with this error ends, and why; recorded, so that only this trial ends.

    A full disk ends the sweep: its trials would fail one after the other, and be lost.
    """
    if any(isinstance(each, OSError) and each.errno in _FULL for each in (error, error.__cause__)):
        return "refused", str(error)
    atomic.make_folder(run.path)
    atomic.write_text(run.path / ERROR, traceback.format_exc())
    with suppress(RunError):  # perhaps the store is what failed; the reason is in the sweep's log too
        run.send(ERROR)
    return "failed", _reason(error)


def _train(run: RunFolder, turn: Turn, setup: TrialSetup) -> None:
    config = trial_config(setup.config, turn.settings, seed=turn.seed, epochs=turn.epochs, confirms=turn.confirms)
    report = TurnReport(run, config.evaluation.objective, turn.measured)
    with ExitStack() as stack:
        stack.enter_context(_off_the_console())
        syncer = _claim_patiently(stack, run)  # pulls the run: no other process writes into it from here on
        stack.enter_context(LogEvents(run.metrics, active=not config.resources.workers))
        if not config.resources.workers:
            stack.enter_context(watched(run.ray))
        earlier = EarlierLaunches(run, setup.methods)
        config = as_recorded(config, earlier)
        state = earlier.state_of(config)
        if state == "finished":
            report.replay()
            return
        weights = None
        if setup.weights is not None and state == "new":
            weights = _initial_weights(setup.weights, setup.folder, config.init)
        write_settings(run, config, syncer)
        spec = RunSpec(run, config, setup.methods[config.method_name], None, setup.command, weights, syncer.token)
        if config.resources.workers:
            from ebclab.training.ray_train.launch import launch

            launch(spec, report)
            return
        name = config.resources.device
        if name == "auto" and not setup.gpus:
            name = "cpu"  # Ray hides no GPU from a process that has reserved none
        device = resolve_device(name, deterministic=config.resources.deterministic)
        if device.type == "cuda" and 0 < setup.gpus < 1:
            torch.cuda.set_per_process_memory_fraction(setup.gpus)
        set_threads(setup.threads)
        spec = replace(spec, images=setup.images)
        prepared = prepare(config, device, setup.images, spec.method_class, weights=weights)
        train_rank(spec, prepared, report, run.stop, syncer)


def as_recorded(config: ExperimentConfig, earlier: EarlierLaunches) -> ExperimentConfig:
    """Return a trial's settings with what its run folder alone records: its images, and whose weights it copied."""
    if earlier.config is not None:
        copied = earlier.config.training.copied_weights
        config = replace(config, training=replace(config.training, copied_weights=copied))
    return earlier.completed(config)


def _initial_weights(weights: Path, folder: SweepFolder, init: InitConfig) -> InitialWeights:
    """Return the initial weights; those in a store are downloaded once per machine, and if the copy is bad."""
    if folder.remote is None:
        return kept_weights(weights, init)
    copy, store = folder.remote.of("worker").cache / weights.name, Store(folder.remote)
    there = store.stored(weights.name)
    changed = there.changed.timestamp() if there is not None and there.changed is not None else math.inf
    if copy.exists() and changed <= copy.stat().st_mtime:
        try:
            return kept_weights(copy, init)
        except UserError as error:
            _log.warning("%s; this machine's copy is fetched again", error)
    store.download(weights.name, copy)
    return kept_weights(copy, init, f"{store.address}: {weights.name}")


@contextmanager
def _off_the_console() -> Iterator[None]:
    """Keep warnings off the console; a trial's warnings are in its run folder."""
    log = logging.getLogger("ebclab")
    before = log.propagate
    log.propagate = False
    try:
        yield
    finally:
        log.propagate = before


def _claim_patiently(stack: ExitStack, run: RunFolder) -> Syncer:
    """Claim the run folder until ``stack`` is closed, waiting for a moment while a dying process still holds it."""
    give_up = time.monotonic() + (_LOCK_SECONDS if run.remote is None else LIFETIME + _LOCK_SECONDS)
    while True:
        try:
            return stack.enter_context(run.claim(NEEDED))
        except RunError as error:
            if isinstance(error, StoreError) or time.monotonic() > give_up:
                raise
            time.sleep(0.2 if run.remote is None else 3.0)


class TurnReport(Listener):
    """The listener of a trial: it reports the scores of every epoch to the sweep, which maximises ``objective``.

    A turn may end inside a report, where Tune raises SystemExit. Everything of the epoch is on disk by then.
    """

    def __init__(self, run: RunFolder, objective: str, measured: int = 0) -> None:
        self._run, self._objective = run, objective
        self._reported = max(0, measured - 1)  # the newest is reported again: the sweep may not have decided on it

    def start(self, step: int, num_steps: int, epochs: int) -> None:
        """Report what earlier turns measured: the sweep may have died before it received it."""
        self.replay()

    def on_epoch(self, step: int, epoch: int, metrics: dict[str, float]) -> None:
        """Report the end of an epoch, once."""
        if self._objective in metrics and epoch > self._reported:
            self._reported = epoch
            tune.report({"epoch": epoch, "objective": metrics[self._objective], "metrics": metrics})

    def replay(self) -> None:
        """Report the epochs in the run's log, from the newest one on that the sweep has measured."""
        metrics: dict[str, float] = {}
        for record in self._run.metrics.records():
            # nan and infinity are written as text
            values = {n: v for n, v in record.items() if isinstance(v, float) or v in ("nan", "inf", "-inf")}
            measured = {name: float(value) for name, value in values.items()}
            if record["kind"] == "train":
                metrics = measured
            elif record["kind"] == "epoch":
                self.on_epoch(record["step"], record.get("epoch", 0), metrics | measured)


def _reason(error: Exception) -> str:
    """Return one line that says why a trial failed."""
    text = str(error).strip().splitlines()[0] if str(error).strip() else "no text"
    if isinstance(error, MemoryError | torch.OutOfMemoryError) or "out of memory" in text or "can't allocate" in text:
        return f"out of memory: {text}"
    return text if isinstance(error, EbclabError) else f"{type(error).__name__}: {text}"

"""The phases of a sweep, search and confirmation: each is displayed, timed, and stopped on request."""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from ebclab.background import logged
from ebclab.cluster.draining import Notices
from ebclab.errors import InterruptedRunError, VersionError
from ebclab.formatting import count
from ebclab.runs.folder import RunFolder
from ebclab.runs.stop_request import StopFlag, stop_on_signals
from ebclab.sweeps.display.live_table import SweepDisplay
from ebclab.sweeps.folder import SweepFolder
from ebclab.sweeps.log import SweepLog
from ebclab.sweeps.plan import SweepPlan
from ebclab.sweeps.proposals import ConfirmProposals, SearchProposals
from ebclab.sweeps.ray_tune.clone import clone_run
from ebclab.sweeps.ray_tune.trial_worker import TrialSetup
from ebclab.sweeps.ray_tune.tuner import run_sweep_trials
from ebclab.sweeps.resources import TrialResources
from ebclab.sweeps.scheduler import SweepScheduler


@dataclass
class Phase:
    """One phase of a sweep: trials that are trained together."""

    folder: SweepFolder
    plan: SweepPlan
    log: SweepLog
    resources: TrialResources  # resources of each trial
    display: SweepDisplay  # shows progress
    proposals: SearchProposals | ConfirmProposals  # proposes the trials
    seconds: float | None = None  # time limit of the phase from now on; None means no limit
    scheduler: SweepScheduler = field(init=False)
    _stop: StopFlag = field(init=False, default_factory=StopFlag)
    _open: ExitStack = field(init=False, default_factory=ExitStack)
    _notices: Notices = field(init=False, default_factory=Notices)
    _began: float = field(init=False, default_factory=time.monotonic)
    _over_time: bool = field(init=False, default=False)
    _asked: set[str] = field(init=False, default_factory=set)  # ids of trials that were asked to stop

    def __post_init__(self) -> None:
        self.scheduler = SweepScheduler(
            self.log,
            self.proposals,
            self.plan.rules,
            self.plan.population,
            concurrent=self.resources.concurrent,
            failures_allowed=self.plan.config.resources.max_failures,
            stop=self._stop,
            clone=partial(clone_run, self.folder, self.plan),
        )

    def begin(self) -> None:
        """Display the phase and listen for requests to stop it, unless it has no work left."""
        scheduler = self.scheduler
        if scheduler.is_over:
            return
        for trial in scheduler.trials:
            if not trial.is_over:
                self._run(trial.id).stop.clear()
        total = len(scheduler.trials) + self.proposals.left(scheduler.trials)
        name = f"{self.folder.path.name}, {self.proposals.kind}"
        self.display.start(name, self.plan.config.evaluation.objective, total)
        self._open.callback(self.display.stop)
        self._open.callback(lambda: self.display.show(scheduler.trials))
        self._open.enter_context(stop_on_signals(self._stop))

    def end(self) -> None:
        """Stop listening and displaying."""
        self._open.close()

    @property
    def was_stopped(self) -> bool:
        """Whether no phase may follow: someone asked to stop, a machine refused, or the log cannot be written."""
        asked = self._stop.is_set and not self._over_time
        return asked or bool(self.scheduler.refusal) or self.log.failure is not None

    def require_not_stopped(self) -> None:
        """Raise what stopped the phase, if anything did."""
        scheduler = self.scheduler
        if self.log.failure is not None:
            raise self.log.failure
        if scheduler.refusal:
            raise VersionError(scheduler.refusal)
        if self.was_stopped:
            left = sum(not trial.is_over for trial in scheduler.trials) + self.proposals.left(scheduler.trials)
            raise InterruptedRunError(
                f"stopped with {count(left, 'trial')} to go; everything is saved in {self.folder.address}; "
                "the same command resumes from there"
            )

    def on_step(self) -> None:
        """Display the progress of the phase, and ask its trials to save or to stop."""
        self.display.show(self.scheduler.trials)
        self._notices.tell(self._save_before)
        elapsed = time.monotonic() - self._began
        if self.seconds is not None and elapsed > self.seconds and not self._stop.is_set:
            self._over_time = True
            self.display.note("the time for the search is over: running trials save and stop")
            self._stop.set()
        if self.log.failure is not None:
            self._stop.set()
        if self._stop.is_set:
            for trial_id in set(self.scheduler.active) - self._asked:
                with logged():
                    self._run(trial_id).stop.set()
                    self._asked.add(trial_id)

    def _save_before(self, machines: list[str]) -> None:
        """Ask running trials to save before machines are taken away."""
        self.display.note(f"{', '.join(machines)} will be taken away: running trials save at their next log step")
        for trial_id in self.scheduler.active:
            with logged():
                self._run(trial_id).save_now.set()

    def _run(self, trial_id: str) -> RunFolder:
        return self.folder.run(self.log.trials[trial_id].run_name)


class Phases:
    """The phases of a sweep, one after the other; processes of trials are reused by the next phase.

    Args:
        phases: At least one; each is made when the one before it is over.
    """

    def __init__(self, phases: Iterable[Phase]) -> None:
        self._following = iter(phases)
        self._phase = next(self._following)

    @property
    def scheduler(self) -> SweepScheduler:
        """The scheduler of the present phase, or of the last one."""
        return self._phase.scheduler

    def go_on(self) -> None:
        """Begin the next phase if the present one is over."""
        while self.scheduler.is_over and not self._phase.was_stopped:
            following = next(self._following, None)
            if following is None:
                return
            self._phase.end()
            if self._phase.was_stopped:  # a request came before the next phase was made
                return
            self._phase = following
            following.begin()

    def on_step(self) -> None:
        """Display the progress of the present phase, and ask its trials to save or to stop."""
        self._phase.on_step()

    def run(self, setup: TrialSetup, resources: TrialResources, storage: Path) -> None:
        """Train all trials that are not over.

        Args:
            setup: Shared by all trials.
            resources: Resources of each trial.
            storage: Folder that Ray Tune may write to.
        """
        self._phase.begin()
        try:
            self.go_on()
            if not self.scheduler.is_over:
                run_sweep_trials(self, setup, resources, storage)
        finally:
            self._phase.end()
        self._phase.require_not_stopped()

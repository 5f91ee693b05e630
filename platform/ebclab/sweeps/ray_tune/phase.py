"""Trains one phase of a sweep, search or confirmation: shows it, times it, and stops it when somebody asks."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from functools import partial

from ebclab.background import logged
from ebclab.cluster.draining import Notices
from ebclab.errors import InterruptedRunError, VersionError
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
    """One phase of a sweep: trials that are trained together.

    Attributes:
        folder: The sweep's folder.
        plan: The sweep's plan.
        log: The sweep's log.
        setup: What all trials share.
        resources: What each trial gets.
        display: Shows progress.
        proposals: Proposes the trials.
        seconds: Time limit of the phase from now on; None means no limit.
    """

    folder: SweepFolder
    plan: SweepPlan
    log: SweepLog
    setup: TrialSetup
    resources: TrialResources
    display: SweepDisplay
    proposals: SearchProposals | ConfirmProposals
    seconds: float | None = None
    _stop: StopFlag = field(init=False, default_factory=StopFlag)
    _notices: Notices = field(init=False, default_factory=Notices)
    _began: float = field(init=False, default_factory=time.monotonic)
    _over_time: bool = field(init=False, default=False)
    _asked: set[str] = field(init=False, default_factory=set)  # ids of trials that were asked to stop
    _scheduler: SweepScheduler = field(init=False)

    def __post_init__(self) -> None:
        self._scheduler = SweepScheduler(
            self.log,
            self.proposals,
            self.plan.rules,
            self.plan.population,
            concurrent=self.resources.concurrent,
            failures_allowed=self.plan.config.resources.max_failures,
            stop=self._stop,
            clone=partial(clone_run, self.folder, self.plan),
        )

    def run(self) -> None:
        """Train all trials that are not over.

        Raises:
            InterruptedRunError: Somebody asked to stop.
            VersionError: A machine that came runs other versions; everything is saved.
        """
        scheduler = self._scheduler
        if scheduler.is_over:
            return
        for trial in scheduler.trials:
            if not trial.is_over:
                self._run(trial.id).stop.clear()
        total = len(scheduler.trials) + self.proposals.left(scheduler.trials)
        name = f"{self.folder.path.name}, {self.proposals.kind}"
        self.display.start(name, self.plan.config.evaluation.objective, total)
        try:
            with stop_on_signals(self._stop):
                run_sweep_trials(scheduler, self.setup, self.resources, self.folder.path / ".ray", self._on_step)
        finally:
            self.display.show(scheduler.trials)
            self.display.stop()
        if self.log.failure is not None:
            raise self.log.failure
        if scheduler.refusal:
            raise VersionError(scheduler.refusal)
        if self._stop.is_set and not self._over_time:
            left = sum(not trial.is_over for trial in scheduler.trials) + self.proposals.left(scheduler.trials)
            raise InterruptedRunError(
                f"stopped with {left} trials to go; everything is saved in {self.folder.address}; "
                "the same command goes on from there"
            )

    def _on_step(self) -> None:
        self.display.show(self._scheduler.trials)
        if machines := self._notices.new():
            self.display.note(f"{', '.join(machines)} will be taken away: running trials save at their next log step")
            for trial_id in self._scheduler.active:
                with logged():
                    self._run(trial_id).save_now.set()
        elapsed = time.monotonic() - self._began
        if self.seconds is not None and elapsed > self.seconds and not self._stop.is_set:
            self._over_time = True
            self.display.note("the time for the search is over: running trials save and stop")
            self._stop.set()
        if self.log.failure is not None:
            self._stop.set()
        if self._stop.is_set:
            for trial_id in set(self._scheduler.active) - self._asked:
                with logged():
                    self._run(trial_id).stop.set()
                    self._asked.add(trial_id)

    def _run(self, trial_id: str) -> RunFolder:
        return self.folder.run(self.log.trials[trial_id].run_name)

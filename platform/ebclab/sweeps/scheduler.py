"""Proposes the trials of a sweep, and decides which one trains next and when it ends, from the log alone.

A trial trains in turns. A turn ends when the trial is over, when the trial has to wait for others (population based
training), or when someone stops the sweep. The next turn continues from the run folder. So a resumed sweep needs no
further state: the scheduler gives turns to the trials that are unfinished according to the log.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ebclab.config.recipes import fitting_warmup
from ebclab.evaluation.answers import Answers
from ebclab.runs.stop_request import Stop
from ebclab.sweeps.log import Kind, SweepLog, Trial
from ebclab.sweeps.plan import WARMUP, SweepPlan
from ebclab.sweeps.policies.population import at_exchange, exploit
from ebclab.sweeps.policies.stopping import decide
from ebclab.sweeps.results import confirming_run, to_confirm
from ebclab.sweeps.space.space import Point, Settings


class SearchProposals:
    """Proposes the trials of the search, each from what the trials before it measured.

    The best point of an earlier sweep, whose points and objectives are ``earlier``, is tried first.
    """

    kind: Kind = "search"

    def __init__(self, plan: SweepPlan, earlier: Sequence[tuple[Point, float]] = ()) -> None:
        self._plan, self._earlier = plan, earlier
        self._first = max(earlier, key=lambda pair: pair[1])[0] if earlier else plan.space.point_of(plan.start)

    def includes(self, trial: Trial) -> bool:
        """Return True: every trial of the search belongs to this phase."""
        return True

    def left(self, trials: Sequence[Trial]) -> int:
        """Return how many trials are still to be proposed: none once the existing ones use up the search's time."""
        budget = self._plan.search_seconds
        if budget and _seconds_in_the_end(trials) >= budget:
            return 0
        return self._plan.trials - len(trials)

    def propose(self, trials: Sequence[Trial]) -> Trial:
        """Return the next trial."""
        from ebclab.sweeps.policies.suggest import suggest  # imports optuna, which the processes of trials do not need

        plan, number = self._plan, self._next_number(trials)
        point = suggest(
            plan.space,
            plan.search,
            seed=plan.config.seed,
            number=number,
            trials=trials,
            default=self._first,
            earlier=self._earlier,
        )
        settings = plan.space.settings(point)
        return Trial(f"{number:04d}", "search", number, point, settings, plan.config.seed, plan.epochs)

    def _next_number(self, trials: Sequence[Trial]) -> int:
        """Return a free number: one more than the largest, or for a grid the smallest that is missing."""
        taken = {trial.number for trial in trials}
        if self._plan.search == "grid":
            return next(number for number in range(len(taken) + 1) if number not in taken)
        return max(taken, default=-1) + 1


def _seconds_in_the_end(trials: Sequence[Trial]) -> float:
    """Return the total training time of all trials if no running trial stops early.

    It is extrapolated from a trial's own pace or, before its first epoch, from the mean pace of the others; it is
    infinite while trials are running and no pace is known yet.
    """
    paces = [trial.seconds / trial.epochs_done for trial in trials if trial.epochs_done]
    usual = sum(paces) / len(paces) if paces else math.inf

    def whole(trial: Trial) -> float:
        pace = trial.seconds / trial.epochs_done if trial.epochs_done else usual
        return trial.seconds if trial.is_over else max(trial.seconds, pace * trial.epochs)

    return sum(map(whole, trials))


class ConfirmProposals:
    """Proposes the confirming trials: the best settings and the starting ones, at full budget with several seeds."""

    kind: Kind = "confirm"

    def __init__(self, plan: SweepPlan, log: SweepLog) -> None:
        self._settings, self._epochs = to_confirm(plan, log), plan.config.training.epochs
        self._wanted = {
            confirming_run(source, seed): (rank, source, seed)
            for rank, source in enumerate(self._settings)
            for seed in plan.confirming_seeds
        }

    def includes(self, trial: Trial) -> bool:
        """Return whether a confirming trial has settings that are still among the best."""
        return trial.id in self._wanted

    def left(self, trials: Sequence[Trial]) -> int:
        """Return how many trials are still to be proposed."""
        return len(self._wanted) - len(trials)

    def propose(self, trials: Sequence[Trial]) -> Trial:
        """Return the next trial."""
        known = {trial.id for trial in trials}
        name = next(name for name in self._wanted if name not in known)
        rank, source, seed = self._wanted[name]
        return Trial(name, "confirm", rank, {}, self._settings[source], seed, self._epochs)


@dataclass(frozen=True)
class Turn:
    """A turn of a trial: what a worker needs to train it."""

    trial: str  # id of the trial
    run_name: str  # name of its run folder
    settings: Settings
    seed: int  # seed of the run
    epochs: int  # budget of the run
    confirms: bool = False  # the run confirms settings; the search has ended
    measured: int = 0  # newest epoch that the sweep has a measurement of


class SweepScheduler:
    """Schedules the trials of one phase of a sweep, search or confirmation.

    Args:
        stop: Set when the sweep is to end early.
        clone: Makes a trial's next run folder from the newest checkpoint of another trial, and returns the trial's new
            point and settings.

    Attributes:
        active: Ids of the trials that have a turn now.
        refusal: Why a worker refused to train at all, which ends the sweep; empty if none did.
    """

    def __init__(
        self,
        log: SweepLog,
        plan: SweepPlan,
        proposals: SearchProposals | ConfirmProposals,
        *,
        concurrent: int,
        stop: Stop,
        clone: Callable[[Trial, Trial], tuple[Point, Settings]],
    ) -> None:
        self._log, self._plan, self._proposals = log, plan, proposals
        self._is_population = plan.rules.scheduler == "pbt" and proposals.kind == "search"
        self._concurrent, self.stop, self._clone = concurrent, stop, clone
        self.active, self.refusal = set[str](), ""
        self._seconds_before: dict[str, float] = {}

    @property
    def trials(self) -> list[Trial]:
        return [trial for trial in self._log.of_kind(self._proposals.kind) if self._proposals.includes(trial)]

    @property
    def left(self) -> int:
        """Number of trials that are still to be proposed."""
        return self._proposals.left(self.trials)

    @property
    def is_over(self) -> bool:
        """Whether no trial has a turn and none will get one."""
        if self.active:
            return False
        return self.stop.is_set or (self.left == 0 and all(trial.is_over for trial in self.trials))

    def next_turn(self) -> Turn | None:
        """Return the next turn and mark its trial as active; None while no trial can have a turn."""
        if self.stop.is_set or len(self.active) >= self._concurrent:
            return None
        trial = self._next_trial()
        if trial is None:
            return None
        self.active.add(trial.id)
        self._seconds_before[trial.id] = trial.seconds
        self._log.append("running", trial=trial.id)
        confirms = trial.kind == "confirm"
        measured = trial.epochs_done
        return Turn(trial.id, trial.run_name, trial.settings, trial.seed, trial.epochs, confirms, measured)

    def on_epoch(self, trial_id: str, epoch: int, objective: float, seconds: float, metrics: dict[str, float]) -> bool:
        """Log a measurement, ``seconds`` after the turn began, and return whether the trial's turn ends here.

        In a population it ends if others have yet to arrive, or if the trial continues from the weights of another.
        """
        trial = self._log.trials[trial_id]
        if epoch not in trial.curve:
            total = round(self._seconds_before[trial_id] + seconds, 3)
            self._log.append("epoch", trial=trial_id, epoch=epoch, objective=objective, seconds=total, metrics=metrics)
        if epoch < trial.epochs_done:  # reported and decided on before
            return False
        whole = self._plan.config
        usual = fitting_warmup(whole.optimizer.warmup_epochs, whole.training.epochs, trial.epochs)
        warmup = trial.settings.get(WARMUP, usual)
        if reason := decide(trial, self.trials, self._plan.rules, warmup_epochs=warmup):
            state = "diverged" if reason.startswith("diverged") else "stopped"
            self._log.append("ended", trial=trial_id, state=state, reason=reason, seconds=trial.seconds)
            return True
        if not self._is_population:
            return False
        if self._must_wait(trial):
            self._log.append("waiting", trial=trial_id)
        else:
            self._exchange()  # the trial is the last to arrive
        return trial.state == "waiting"

    def on_outcome(
        self, trial_id: str, state: str, reason: str, seconds: float, answers: Answers | None = None
    ) -> None:
        """Log how a turn ended: finished, diverged, failed, interrupted, or "refused", which ends the whole sweep.

        ``answers`` say which held-out images the finished run classifies correctly; logged only for confirming trials.
        """
        if state == "refused":
            self.refusal = reason
            self.stop.set()
            self._log.append("waiting", trial=trial_id)
        elif not self._log.trials[trial_id].is_over:
            total = round(self._seconds_before[trial_id] + seconds, 3)
            if answers is not None and self._log.trials[trial_id].kind == "confirm":
                self._log.append("answered", trial=trial_id, **answers.to_mapping())
            self._log.append("ended", trial=trial_id, state=state, reason=reason, seconds=total)

    def on_death(self, trial_id: str, reason: str, *, preempted: bool = False) -> None:
        """Handle the death of a trial's process: continue the trial from its last checkpoint, or end it as failed.

        If its machine was taken away (``preempted``), that counts as no failure of the trial.
        """
        if self._log.trials[trial_id].is_over:
            return
        mine = [record for record in self._log.events if record["event"] == "restarted" and record["trial"] == trial_id]
        most = self._plan.config.resources.max_failures
        if preempted or sum(not record.get("preempted") for record in mine) < most:
            self._log.append("restarted", trial=trial_id, reason=reason, **({"preempted": True} if preempted else {}))
            self._log.append("waiting", trial=trial_id)
            return
        allowed = f", {most} restarts allowed" if most else ""
        seconds = self._log.trials[trial_id].seconds
        self._log.append("ended", trial=trial_id, state="failed", reason=f"{reason}{allowed}", seconds=seconds)

    def on_turn_over(self, trial_id: str) -> None:
        """End a trial's turn; a process that ended without an outcome counts as dead."""
        if self._log.trials[trial_id].state == "running":
            self.on_death(trial_id, "its process ended without reporting an outcome")
        self.active.discard(trial_id)

    def _next_trial(self) -> Trial | None:
        """Return the trial to train next: the one furthest behind among those that can continue, otherwise a new one.

        In population based training, all trials are proposed first.
        """
        may_grow = self.left > 0
        if self._is_population:
            self._exchange()
        ready = [
            trial
            for trial in self.trials
            if trial.state in ("waiting", "interrupted")
            and trial.id not in self.active
            and not (self._is_population and self._must_wait(trial))
        ]
        if ready and not (may_grow and self._is_population):
            return min(ready, key=lambda trial: (trial.epochs_done, trial.number))
        return self._log.propose(self._proposals.propose(self.trials)) if may_grow else None

    def _exchange(self) -> None:
        """Decide for each trial at the end of an interval whether it continues from the weights of a better trial.

        All trials of the population have arrived by then, and none continues before all decisions are made.
        """
        rules = self._plan.population
        for trial in self.trials:
            epoch = trial.epochs_done
            is_due = at_exchange(trial, rules.interval_epochs) and trial.exchanged != epoch
            if trial.is_over or not is_due or self._must_wait(trial):
                continue
            level = [other for other in self.trials if other.epochs_done == epoch]  # with checkpoints of the same epoch
            donor = exploit(trial, level, rules.quantile)
            if donor is None:
                self._log.append("exchanged", trial=trial.id, epoch=epoch)
                continue
            point, settings = self._clone(trial, donor)
            self._log.append(
                "cloned",
                trial=trial.id,
                generation=trial.generation + 1,
                donor=donor.run_name,
                epoch=epoch,
                point=point,
                settings=settings,
            )

    def _must_wait(self, trial: Trial) -> bool:
        """Return whether a trial is at the end of an interval that others have yet to reach."""
        if not at_exchange(trial, self._plan.population.interval_epochs):
            return False
        is_behind = (other.epochs_done < trial.epochs_done and not other.is_over for other in self.trials)
        return self.left > 0 or any(is_behind)

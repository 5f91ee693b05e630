"""What a sweep does next and what becomes of its trials: decisions on the log alone, with no word about Ray.

A trial is trained in turns. A turn begins with an ``Turn`` and ends when the trial is over, when it has to wait for
others (population based training), or when somebody stops the sweep; the next turn goes on from the run folder. So a
resumed sweep needs nothing of its own: it gives orders for what the log calls unfinished.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from ebclab.runs.stop_request import Stop
from ebclab.sweeps.log import SweepLog
from ebclab.sweeps.plan import Population
from ebclab.sweeps.policies.population import exploit, must_wait
from ebclab.sweeps.policies.stopping import StopRules, decide
from ebclab.sweeps.trial import Kind, Trial


@dataclass(frozen=True)
class Turn:
    """One turn of a trial.

    Attributes:
        trial: Id of the trial.
        run_name: Name of its run folder.
        settings: Searched settings by dotted key.
        seed: Seed of the run.
        epochs: Budget of the run.
    """

    trial: str
    run_name: str
    settings: dict[str, Any]
    seed: int
    epochs: int

    def to_json(self) -> str:
        """Return the order as text."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Turn:
        """Return the order that ``to_json`` made ``text`` of."""
        return cls(**json.loads(text))


class Proposals(Protocol):
    """Where a phase of a sweep takes its trials from."""

    kind: Kind

    def includes(self, trial: Trial) -> bool:
        """Return whether ``trial``, of this kind, belongs to the phase."""

    def left(self, trials: Sequence[Trial]) -> int:
        """Return how many are still to be proposed, given those of the phase that have been."""

    def propose(self, trials: Sequence[Trial]) -> Trial:
        """Return the next one."""


class SweepScheduler:
    """One phase of a sweep, search or confirmation.

    Args:
        log: The sweep's log.
        proposals: The phase's trials.
        rules: When trials are stopped.
        population: How trials take over from each other, under population based training.
        concurrent: Trials that train at once, at most.
        failures_allowed: How often a trial whose process died is begun again.
        stop: Set when the sweep shall end early.
        clone: Makes a trial's next run folder from another trial's newest checkpoint, and returns the trial's new point
            and settings.
    """

    def __init__(
        self,
        log: SweepLog,
        proposals: Proposals,
        rules: StopRules,
        population: Population,
        *,
        concurrent: int,
        failures_allowed: int,
        stop: Stop,
        clone: Callable[[Trial, Trial], tuple[dict[str, Any], dict[str, Any]]],
    ) -> None:
        self._log, self._proposals, self._rules, self._population = log, proposals, rules, population
        self._is_population = rules.scheduler == "pbt" and proposals.kind == "search"
        self._concurrent, self._failures_allowed, self.stop, self._clone = concurrent, failures_allowed, stop, clone
        self.active, self.refusal = set[str](), ""
        self._seconds_before: dict[str, float] = {}

    @property
    def trials(self) -> list[Trial]:
        """The phase's trials so far."""
        return [trial for trial in self._log.of_kind(self._proposals.kind) if self._proposals.includes(trial)]

    @property
    def is_over(self) -> bool:
        """There is nothing left to order, and nothing in work."""
        if self.active:
            return False
        trials = self.trials
        return self.stop.is_set or (self._proposals.left(trials) == 0 and all(trial.is_over for trial in trials))

    def next_turn(self) -> Turn | None:
        """Return the next turn, which is then in work, or None while there is none to give."""
        if self.stop.is_set or len(self.active) >= self._concurrent:
            return None
        trial = self._next_trial()
        if trial is None:
            return None
        self.active.add(trial.id)
        self._seconds_before[trial.id] = trial.seconds
        self._log.append("running", trial=trial.id)
        return Turn(trial.id, trial.run_name, trial.settings, trial.seed, trial.epochs)

    def on_epoch(self, trial_id: str, epoch: int, objective: float, seconds: float, metrics: dict[str, float]) -> bool:
        """Take in a measurement and return whether the trial's turn ends here.

        Args:
            trial_id: The trial.
            epoch: Epochs done.
            objective: The value that the sweep maximises.
            seconds: Duration of this turn so far.
            metrics: Everything else that was measured.
        """
        trial = self._log.trials[trial_id]
        if epoch not in trial.curve:
            total = round(self._seconds_before[trial_id] + seconds, 3)
            self._log.append("epoch", trial=trial_id, epoch=epoch, objective=objective, seconds=total, metrics=metrics)
        if epoch < trial.epochs_done:  # told before, and decided then
            return False
        if reason := decide(trial, self._others(trial), self._rules):
            state = "diverged" if reason.startswith("diverged") else "stopped"
            self._log.append("ended", trial=trial_id, state=state, reason=reason, seconds=trial.seconds)
            return True
        return self._is_population and self._population_turn(trial)

    def on_outcome(self, trial_id: str, state: str, reason: str, seconds: float) -> None:
        """Take in how a turn ended: finished, diverged, failed, interrupted, or refused, which ends the course."""
        if state == "refused":
            self.refusal = reason
            self.stop.set()
            self._log.append("waiting", trial=trial_id)
        elif not self._log.trials[trial_id].is_over:
            total = round(self._seconds_before[trial_id] + seconds, 3)
            self._log.append("ended", trial=trial_id, state=state, reason=reason, seconds=total)

    def on_death(self, trial_id: str, reason: str) -> None:
        """Take in that a trial's process died: it is begun again from its last checkpoint, or given up."""
        if self._log.trials[trial_id].is_over:
            return
        restarts = sum(record["event"] == "restarted" and record["trial"] == trial_id for record in self._log.events)
        if restarts < self._failures_allowed:
            self._log.append("restarted", trial=trial_id, reason=reason)
            self._log.append("waiting", trial=trial_id)
            return
        allowed = f", {self._failures_allowed} restarts allowed" if self._failures_allowed else ""
        seconds = self._log.trials[trial_id].seconds
        self._log.append("ended", trial=trial_id, state="failed", reason=f"{reason}{allowed}", seconds=seconds)

    def on_turn_over(self, trial_id: str) -> None:
        """Take in that nothing works for a trial any more; one that left without a word counts as dead."""
        if self._log.trials[trial_id].state == "running":
            self.on_death(trial_id, "its turn ended without a word")
        self.active.discard(trial_id)

    def _next_trial(self) -> Trial | None:
        """Return what to train next: what was begun and may go on, the one furthest behind first; else a new one.

        A population is brought to full strength first.
        """
        may_grow = self._proposals.left(self.trials) > 0
        if self._is_population:
            self._exchange()
        ready = [trial for trial in self.trials if self._may_go_on(trial)]
        if ready and not (may_grow and self._is_population):
            return min(ready, key=lambda trial: (trial.epochs_done, trial.number))
        return self._new_trial() if may_grow else None

    def _may_go_on(self, trial: Trial) -> bool:
        if trial.state not in ("waiting", "interrupted") or trial.id in self.active:
            return False
        return not (self._is_population and self._must_wait(trial))

    def _new_trial(self) -> Trial:
        trial = self._proposals.propose(self.trials)
        self._log.append(
            "trial",
            trial=trial.id,
            kind=trial.kind,
            number=trial.number,
            point=trial.point,
            settings=trial.settings,
            seed=trial.seed,
            epochs=trial.epochs,
        )
        return self._log.trials[trial.id]

    def _population_turn(self, trial: Trial) -> bool:
        """Let a trial wait for those behind, or, when it is the last to arrive, let all exchange; return if it ends."""
        if self._must_wait(trial):
            self._log.append("waiting", trial=trial.id)
            return True
        self._exchange()
        return trial.state == "waiting"

    def _exchange(self) -> None:
        """Decide, once for each trial at the end of an interval, whether it goes on from a better one's weights.

        All of a population are there when this happens: nobody leaves before it has been decided for everybody.
        """
        rules = self._population
        for trial in self.trials:
            epoch = trial.epochs_done
            if trial.is_over or trial.exchanged == epoch or not self._at_exchange(trial) or self._must_wait(trial):
                continue
            abreast = [other for other in self.trials if other.epochs_done == epoch]  # their checkpoints are, too
            donor = exploit(trial, abreast, interval_epochs=rules.interval_epochs, quantile=rules.quantile)
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

    def _at_exchange(self, trial: Trial) -> bool:
        return 0 < trial.epochs_done < trial.epochs and trial.epochs_done % self._population.interval_epochs == 0

    def _must_wait(self, trial: Trial) -> bool:
        unborn = self._proposals.left(self.trials) > 0
        interval = self._population.interval_epochs
        return self._at_exchange(trial) and (unborn or must_wait(trial, self.trials, interval_epochs=interval))

    def _others(self, trial: Trial) -> list[Trial]:
        return [other for other in self.trials if other.id != trial.id]

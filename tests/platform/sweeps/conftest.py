"""Sweeps without Ray or networks: a trial's objective is a formula, and the machine that trains it can die anywhere."""

import json
import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ebclab.runs.stop_request import StopFlag
from ebclab.sweeps.log import SweepLog, Trial
from ebclab.sweeps.plan import SweepPlan
from ebclab.sweeps.policies.population import explore
from ebclab.sweeps.scheduler import SearchProposals, SweepScheduler, Turn

SPACE = {"optimizer.learning_rate": {"loguniform": [1e-5, 0.1]}, "method.temperature": {"uniform": [0.1, 1.0]}}


class KilledError(Exception):
    """The driver's process is gone."""


class MortalLog(SweepLog):
    """A log whose process is killed right after it has written ``lifetime`` events."""

    def __init__(self, path: Path, lifetime: float) -> None:
        super().__init__(path)
        self._lifetime = lifetime

    def append(self, event: str, **values: Any) -> None:
        super().append(event, **values)
        self._lifetime -= 1
        if self._lifetime <= 0:
            raise KilledError


@dataclass
class Run:
    """A run folder: what has been learnt, in how many epochs, and what was measured since the folder was made."""

    skill: float = 0.0
    epochs: int = 0
    measured: dict[int, float] = field(default_factory=dict)

    def train(self, settings: dict[str, Any]) -> None:
        """One epoch: what is not known yet shrinks, fastest near a learning rate of 0.01."""
        self.epochs += 1
        rate = 0.5 * math.exp(-((math.log10(settings["optimizer.learning_rate"]) + 2) ** 2))
        self.skill += (1 - self.skill) * rate
        self.measured[self.epochs] = self.skill - 0.01 * settings["method.temperature"]


class Machine:
    """Trains the turns of a sweep scheduler, each until the scheduler ends it; run folders survive kills.

    ``faults`` holds, by trial and epoch, what goes wrong there, each once: failed, diverged or death.
    """

    def __init__(self, log: Path, *, concurrent: int = 1, seed: int = 0, **faults: Any) -> None:
        self.log, self.concurrent, self.faults = log, concurrent, faults.get("faults", {})
        self.runs: dict[str, Run] = {}
        self.stop = StopFlag()
        self.most_at_once = 0
        self._random = random.Random(seed)

    def work(self, plan: SweepPlan, lifetime: float = math.inf) -> dict[str, Trial]:
        """Train until the scheduler is over, or die after ``lifetime`` events; return the trials of the log on disk."""
        asked: Any = {"concurrent": self.concurrent, "stop": self.stop, "clone": partial(self._clone, plan)}
        scheduler = SweepScheduler(MortalLog(self.log, lifetime), plan, SearchProposals(plan), **asked)
        turns: dict[str, Iterator[None]] = {}
        while not scheduler.is_over:
            while (turn := scheduler.next_turn()) is not None:
                assert turn.trial not in turns
                turns[turn.trial] = self._turn(scheduler, turn)
                self.most_at_once = max(self.most_at_once, len(turns))
            assert turns, "no turn is active and none is given"
            name = self._random.choice(sorted(turns))
            if next(turns[name], "over") == "over":
                del turns[name]
                scheduler.on_turn_over(name)
        assert scheduler.next_turn() is None
        return SweepLog(self.log).trials

    def events(self, *names: str) -> list[dict[str, Any]]:
        """The log's events, all or those with these names."""
        lines = self.log.read_text(encoding="utf-8").splitlines()
        return [event for event in map(json.loads, lines) if not names or event["event"] in names]

    def _turn(self, scheduler: SweepScheduler, turn: Turn) -> Iterator[None]:
        run = self.runs.setdefault(turn.run_name, Run())
        for epoch, value in list(run.measured.items()):  # the driver may have died before it heard of them
            if scheduler.on_epoch(turn.trial, epoch, value, 0.0, {}):
                return
        seconds = 0.0
        while run.epochs < turn.epochs:
            if self.stop.is_set:
                return scheduler.on_outcome(turn.trial, "interrupted", "told to stop", seconds)
            faults = self.faults.get((turn.trial, run.epochs + 1))
            if faults:
                fault = faults.pop(0)
                if fault == "death":
                    return scheduler.on_death(turn.trial, "its process died")
                return scheduler.on_outcome(turn.trial, fault, "made up", seconds)
            run.train(turn.settings)
            seconds += 1.0
            yield
            if scheduler.on_epoch(turn.trial, run.epochs, run.measured[run.epochs], seconds, {}):
                return
        scheduler.on_outcome(turn.trial, "finished", "", seconds)

    def _clone(self, plan: SweepPlan, trial: Trial, donor: Trial) -> tuple[dict[str, Any], dict[str, Any]]:
        weights = self.runs[donor.run_name]
        self.runs[f"{trial.id}-g{trial.generation + 1}"] = Run(weights.skill, weights.epochs)
        facts: dict[str, Any] = {"seed": plan.config.seed, "trial_id": trial.id, "epoch": trial.epochs_done}
        point = explore(donor.point, plan.space, resample_rate=plan.population.resample_rate, **facts)
        return point, plan.space.settings(point)


@pytest.fixture
def machine(tmp_path: Path) -> Callable[..., Machine]:
    """Make a machine with a log of its own."""

    def make(name: str = "trials", **options: Any) -> Machine:
        return Machine(tmp_path / f"{name}.jsonl", **options)

    return make


@pytest.fixture
def killed() -> type[KilledError]:
    """What a machine raises when its driver is killed."""
    return KilledError

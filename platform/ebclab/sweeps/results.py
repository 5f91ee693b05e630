"""What a sweep found: its best trials, confirmed settings, test scores, savings of early stopping, result.json."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, Self

from ebclab.config.names import is_folder_name
from ebclab.config.yaml_text import JsonObject
from ebclab.errors import RunError
from ebclab.evaluation.answers import Answers
from ebclab.evaluation.comparison import Measurements, difference, mean_and_interval
from ebclab.evaluation.objectives import SHARES
from ebclab.interval import Interval
from ebclab.storage import atomic
from ebclab.storage.reading import read_json, typed, with_checksum
from ebclab.sweeps.log import SweepLog, Trial, finite
from ebclab.sweeps.plan import SweepPlan
from ebclab.sweeps.space.space import Settings

_FORMAT = 1
_NO_RESULT = "not the result of a sweep"
_WAY_OUT = "delete the file and resume the sweep, which writes it again"
BASELINE = "baseline"
"""``source`` of the starting settings, in place of the id of a search trial."""


@dataclass(frozen=True, kw_only=True)
class SeedScores(Interval):
    """Scores of some settings over seeds, of one probe on the test set or of the objective: their mean, and each."""

    values: tuple[float, ...]  # one score per seed
    # which images each run classifies correctly; empty if read from result.json
    answers: tuple[Answers, ...] = field(default=(), compare=False, repr=False)

    @classmethod
    def of(cls, measured: Measurements, compared: int, *, is_rate: bool = True, **more: Any) -> Self:
        """Return the scores of runs; the intervals of all ``compared`` settings hold simultaneously."""
        found = mean_and_interval(measured, compared, is_rate=is_rate).as_mean()
        values, answers = tuple(measured.by_seed.values()), tuple(measured.answers.values())
        return cls(values=values, answers=answers, **found, **more)

    def to_mapping(self) -> JsonObject:
        """Return the scores as plain values, without the answers to single images."""
        return {"values": list(self.values), **self.as_mean()}


@dataclass(frozen=True, kw_only=True)
class ConfirmedSettings(SeedScores):
    """Settings that were run again with other seeds, and the objectives of these runs.

    If a sweep confirmed nothing, they are those of a search trial with its one value, and ``seeds_asked`` is 0.
    """

    source: str  # id of the search trial that the settings come from, or ``baseline``
    settings: Settings
    seeds: tuple[int, ...]  # seeds of the runs that finished, each with one of ``values``
    seeds_asked: int  # number of seeds that the plan asks for; 0 if nothing was confirmed

    def __post_init__(self) -> None:
        if not is_folder_name(self.source):
            raise ValueError(f"not the id of a trial, got {self.source!r}")
        if not self.values or len(self.seeds) != len(self.values):
            raise ValueError(f"{self.source}: {len(self.seeds)} seeds and {len(self.values)} values")

    @classmethod
    def of_trial(cls, trial: Trial) -> ConfirmedSettings:
        """Return the settings of a search trial that has measured something, unconfirmed."""
        value, settings = trial.value, dict(trial.settings)
        return cls(source=trial.id, settings=settings, seeds=(trial.seed,), values=(value,), seeds_asked=0, mean=value)

    @property
    def measured(self) -> Measurements:
        return self.measured_by(self)

    def measured_by(self, scores: SeedScores) -> Measurements:
        """Return other scores of the runs, such as those of a probe, with their seeds."""
        return Measurements.of(self.seeds, scores.values, scores.answers)

    @property
    def is_confirmed(self) -> bool:
        return self.seeds_asked > 0

    def is_start(self, plan: SweepPlan) -> bool:
        """Return whether these are the settings that the search started from."""
        return self.settings == plan.start

    def in_words(self, plan: SweepPlan) -> str:
        """Return a name for users: ``trial 0003``, or ``the starting settings``."""
        if self.source == BASELINE:
            return "the starting settings"
        return f"trial {self.source}" + (", the starting settings" if self.is_start(plan) else "")

    def to_mapping(self) -> JsonObject:
        """Return an entry of result.json; unconfirmed settings have no mean there."""
        return {
            "trial": self.source,
            "settings": self.settings,
            "seeds": list(self.seeds),
            "values": list(self.values),
            "seeds_asked": self.seeds_asked,
            **(self.as_mean() if self.is_confirmed else {}),
        }


class RunTest(NamedTuple):
    """What a probe measured of a run on the test set."""

    value: float
    answers: Answers | None  # None: not known, as in logs of older versions


@dataclass(frozen=True)
class SettingsTest:
    """The event in a sweep's log that holds the test scores of some settings."""

    trial: str  # source of the settings that were tested
    seeds: tuple[int, ...]  # seeds of their runs
    scores: dict[str, SeedScores]  # test scores by probe
    # labelled training images of the probes; 0: all, as older versions used whatever the plan said
    train_limit: int = 0

    def __post_init__(self) -> None:
        for probe, each in self.scores.items():
            if len(each.values) != len(self.seeds) or len(each.answers) not in (0, len(self.seeds)):
                numbers = f"{len(self.seeds)} seeds, {len(each.values)} values, {len(each.answers)} answers"
                raise ValueError(f"scores.{probe}: one of each per run, got {numbers}")

    @classmethod
    def known(cls, log: SweepLog, entry: ConfirmedSettings, compared: int) -> dict[str, SeedScores] | None:
        """Return the test scores of the runs behind ``entry``; None if one of them has not been tested.

        Intervals depend on the number of settings that the sweep ``compared``.
        """
        tested = cls.measured(log, entry.source, entry.seeds)
        return None if tested is None else {probe: SeedScores.of(each, compared) for probe, each in tested.items()}

    @classmethod
    def measured(cls, log: SweepLog, source: str, seeds: Sequence[int]) -> dict[str, Measurements] | None:
        """Return the tests of the runs of settings with these seeds, by the probes that measured all of them.

        None if one of the runs has not been tested.
        """
        tested = cls.of_runs(log, source)
        if not tested.keys() >= set(seeds):
            return None
        runs = [tested[seed] for seed in seeds]
        probes = [probe for probe in runs[0] if all(probe in run for run in runs)]
        values = {probe: [run[probe].value for run in runs] for probe in probes}
        return {probe: Measurements.of(seeds, values[probe], [run[probe].answers for run in runs]) for probe in probes}

    @classmethod
    def of_runs(cls, log: SweepLog, source: str) -> dict[int, dict[str, RunTest]]:
        """Return the newest test of each run of the settings ``source``: by seed and by probe."""
        runs: dict[int, dict[str, RunTest]] = {}
        for found in (found for found in cls.all_in(log) if found.trial == source):
            for place, seed in enumerate(found.seeds):
                runs.setdefault(
                    seed,
                    {
                        probe: RunTest(each.values[place], each.answers[place] if each.answers else None)
                        for probe, each in found.scores.items()
                    },
                )
        return runs

    @classmethod
    def all_in(cls, log: SweepLog) -> Iterator[SettingsTest]:
        """Yield the tests in a sweep's log, newest first."""
        for event in (event for event in reversed(log.events) if event["event"] == "tested"):
            try:
                yield typed(event, cls)
            except ValueError as error:
                remedy = "restore the file, or delete that line"
                raise RunError(f"{log.where}: its event `tested` cannot be read, got {error}; {remedy}") from error

    @classmethod
    def limit_in(cls, log: SweepLog, plan: SweepPlan) -> int:
        """Return ``train_limit`` of a sweep: that of the tests in its log, so that all agree, or of the plan."""
        return next((found.train_limit for found in cls.all_in(log)), plan.config.data.train_limit)

    def write(self, log: SweepLog) -> None:
        """Append the event to the sweep's log."""
        scores = {
            name: score.to_mapping() | {"answers": [each.to_mapping() for each in score.answers]}
            for name, score in self.scores.items()
        }
        log.append("tested", trial=self.trial, seeds=list(self.seeds), scores=scores, train_limit=self.train_limit)


def readings_of_test_set(log: SweepLog) -> list[list[str]]:
    """Return the runs of each reading of the test set by a sweep, oldest first.

    Logs of older versions have no event ``test_read``, and only record the scores after the reading.
    """
    readings: list[list[str]] = []
    listed: set[str] = set()
    for event in log.events:
        if event["event"] == "test_read":
            readings.append(event.get("runs", []))
            listed.update(readings[-1])
        elif event["event"] == "tested":
            runs = [f"confirm-{event.get('trial')}-seed{seed}" for seed in event.get("seeds", [])]
            readings += [runs] if listed.isdisjoint(runs) else []
    return readings


def confirming_run(source: str, seed: int) -> str:
    """Return the id, and the name of the run folder, of the trial that confirms settings with a seed."""
    return f"confirm-{source}-seed{seed}"


def ranked(trials: Sequence[Trial]) -> list[Trial]:
    """Return the trials that measured anything, best first: finished ones, then the others by epochs done.

    Those that measured no number come last. Interrupted trials are included, those that diverged or failed are not.
    """
    measured = [trial for trial in trials if trial.last is not None and not trial.is_lost]

    def merit(trial: Trial) -> tuple[bool, int, float, int]:
        if math.isnan(trial.value):
            return False, 0, -math.inf, -trial.number
        return trial.state == "finished", trial.epochs_done, trial.value, -trial.number

    return sorted(measured, key=merit, reverse=True)


def distinct(trials: Sequence[Trial], most: int | None = None) -> list[Trial]:
    """Return the first trials whose settings differ, ``most`` or all: a search of few choices may repeat some."""
    kept: list[Trial] = []
    for trial in trials:
        if len(kept) == most:
            break
        if all(trial.settings != other.settings for other in kept):
            kept.append(trial)
    return kept


def to_confirm(plan: SweepPlan, log: SweepLog) -> dict[str, Settings]:
    """Return the settings to confirm, the best of the search and the starting ones, by source."""
    chosen = distinct(ranked(log.of_kind("search")), plan.top)
    settings = {trial.id: dict(trial.settings) for trial in chosen}
    if plan.baseline and chosen and plan.start not in settings.values():
        settings[BASELINE] = plan.start
    return settings


@dataclass(frozen=True)
class SweepFindings:
    """What a sweep has found according to its log, computed when it is asked for."""

    plan: SweepPlan
    log: SweepLog

    @cached_property
    def search(self) -> list[Trial]:
        return self.log.of_kind("search")

    @cached_property
    def order(self) -> list[Trial]:
        """The search trials with measurements, best first; diverged and failed ones are excluded."""
        return ranked(self.search)

    @cached_property
    def confirmed(self) -> list[ConfirmedSettings]:
        """The confirmed settings, the winner first: those with most finished seeds, then with the best mean.

        Runs whose last objective is not a number are left out.
        """
        settings, done = to_confirm(self.plan, self.log), dict[str, list[Trial]]()
        for source in settings:
            runs = (self.log.trials.get(confirming_run(source, seed)) for seed in self.plan.confirming_seeds)
            if good := [run for run in runs if run and run.state == "finished" and math.isfinite(run.value)]:
                done[source] = good
        confirmed = [
            ConfirmedSettings.of(
                Measurements.of([run.seed for run in runs], [run.value for run in runs], [run.answers for run in runs]),
                len(done),
                is_rate=self.plan.config.evaluation.objective in SHARES,
                source=source,
                settings=settings[source],
                seeds=tuple(run.seed for run in runs),
                seeds_asked=self.plan.seeds,
            )
            for source, runs in done.items()
        ]
        return sorted(confirmed, key=lambda entry: (len(entry.values), entry.mean), reverse=True)

    @cached_property
    def differences(self) -> list[Interval | None]:
        """The difference between the winner and each of the confirmed settings; None for the winner itself."""
        gaps = [difference(self.confirmed[0].measured, e.measured, len(self.confirmed)) for e in self.confirmed[1:]]
        return [None, *gaps] if self.confirmed else []

    @cached_property
    def start_place(self) -> int | None:
        """Index in ``confirmed`` of the settings that the search started from; None if they were not confirmed."""
        return next((place for place, entry in enumerate(self.confirmed) if entry.is_start(self.plan)), None)

    @cached_property
    def test(self) -> dict[str, SeedScores] | None:
        """The winner's test scores by probe; None if the test set was not read."""
        return SettingsTest.known(self.log, self.confirmed[0], len(self.confirmed)) if self.confirmed else None

    @cached_property
    def test_of_start(self) -> dict[str, SeedScores] | None:
        """The test scores of the starting settings by probe; None if they were not tested, or won."""
        place = self.start_place
        return SettingsTest.known(self.log, self.confirmed[place], len(self.confirmed)) if place else None

    @cached_property
    def test_gain(self) -> dict[str, Interval]:
        """Gain of the winner over the starting settings on the test set, by probe."""
        if self.start_place is None or self.test is None or self.test_of_start is None:
            return {}
        winner, start = self.confirmed[0], self.confirmed[self.start_place]
        return {
            probe: difference(winner.measured_by(score), start.measured_by(other), len(self.confirmed))
            for probe, score in self.test.items()
            if (other := self.test_of_start.get(probe))
        }


@dataclass(frozen=True)
class StoppingSavings:
    """Training that early stopping saved."""

    trials: int  # number of trials that were stopped
    epochs: int  # epochs that they did not train
    seconds: float  # training time that these epochs would have taken at each trial's own pace
    seconds_spent: float  # training time of all trials of the search

    @classmethod
    def of(cls, trials: Sequence[Trial]) -> StoppingSavings:
        """Return the savings among the ``trials`` of a search."""
        stopped = [trial for trial in trials if trial.state == "stopped" and trial.epochs_done]
        seconds = sum(trial.seconds / trial.epochs_done * (trial.epochs - trial.epochs_done) for trial in stopped)
        return cls(
            trials=len(stopped),
            epochs=sum(trial.epochs - trial.epochs_done for trial in stopped),
            seconds=round(seconds, 1),
            seconds_spent=round(sum(trial.seconds for trial in trials), 1),
        )


@dataclass(frozen=True, kw_only=True)
class SweepResult:
    """The result of a finished sweep: the content of its result.json.

    Entries of the file can also be read by key: ``result["winner"]["mean"]``.
    """

    path: str  # folder of the sweep, or its address in an object store
    method: str
    dataset: str
    objective: str
    trials: dict[str, int]  # number of trials of the search by state
    winner: ConfirmedSettings  # the best confirmed settings; if nothing was confirmed, the best trial of the search
    candidates: tuple[ConfirmedSettings, ...]  # all confirmed settings, best first
    test: dict[str, SeedScores] | None  # test scores of the winner by probe; None if the test set was not read
    # how much better the winner is than the starting settings; None if these won or were not confirmed
    gain: Interval | None = None
    # test scores of the starting settings by probe; None if they were not tested
    test_of_start: dict[str, SeedScores] | None = None
    # how much better the winner is on the test set, by probe; None if they were not tested
    test_gain: dict[str, Interval] | None = None
    test_readings: int | None = None  # how often the test set has been read
    saved: StoppingSavings
    seconds: float  # training time of all trials, confirming runs included
    finished: str  # when the sweep finished, UTC, as ISO 8601

    def __getitem__(self, key: str) -> Any:
        """Return the entry ``key`` of result.json as plain values."""
        return self.to_mapping()[key]

    def to_mapping(self) -> JsonObject:
        """Return the content of result.json as plain values."""
        return {
            "format": _FORMAT,
            **vars(self),
            "winner": self.winner.to_mapping(),
            "candidates": [entry.to_mapping() for entry in self.candidates],
            "test": plain_scores(self.test),
            "gain": None if self.gain is None else self.gain.as_difference(),
            "test_of_start": plain_scores(self.test_of_start),
            "test_gain": None
            if self.test_gain is None
            else {name: gap.as_difference() for name, gap in self.test_gain.items()},
            "saved": asdict(self.saved),
        }

    @classmethod
    def of_mapping(cls, content: object, where: str) -> SweepResult:
        """Return the result that ``to_mapping`` turned into ``content``; messages call its file ``where``."""
        if isinstance(content, Mapping):
            content = dict(content)
            if "winner" in content:
                content["winner"] = _by_field(content["winner"])
            if isinstance(content.get("candidates"), list):
                content["candidates"] = [_by_field(entry) for entry in content["candidates"]]
        try:
            return typed(content, cls)
        except ValueError as error:
            raise RunError(f"{where}: {_NO_RESULT}, got {error}; {_WAY_OUT}") from error

    def write(self, path: Path) -> None:
        """Write the file at ``path`` atomically, with a checksum; numbers that JSON does not have become text."""
        atomic.write_json(path, with_checksum(finite(self.to_mapping())))

    @classmethod
    def read(cls, path: Path, where: str = "") -> SweepResult:
        """Return the result in the file at ``path``; messages call it ``where``."""
        content = read_json(path, where, what=_NO_RESULT, remedy=_WAY_OUT)
        return cls.of_mapping(content, where or str(path))


def plain_scores(scores: Mapping[str, SeedScores] | None) -> JsonObject | None:
    """Return test scores by probe as plain values."""
    return None if scores is None else {name: score.to_mapping() for name, score in scores.items()}


def _by_field(entry: object) -> object:
    """Return an entry of result.json by the names of the fields of ``ConfirmedSettings``."""
    if not isinstance(entry, Mapping):
        return entry
    fields = {"source" if key == "trial" else key: value for key, value in entry.items()}
    values = fields.get("values")
    return {"mean": values[0], **fields} if isinstance(values, list) and values else fields

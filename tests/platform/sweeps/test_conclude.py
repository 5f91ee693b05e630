"""What a sweep says it found: who wins, what stopping saved, files that can be used again, one look at the test set."""

from __future__ import annotations

import itertools
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import ebclab
from ebclab.config import compose, load_yaml_file, parse_yaml
from ebclab.errors import StoreError, TrainingError
from ebclab.evaluation.answers import Answers, table_of
from ebclab.evaluation.intervals import score_of
from ebclab.evaluation.seeds_and_images import difference_interval, mean_interval
from ebclab.runs.folder import RunFolder
from ebclab.storage.checksum import with_checksum
from ebclab.storage.typed_json import typed
from ebclab.sweeps import conclude as conclusion
from ebclab.sweeps.conclude import conclude
from ebclab.sweeps.display.live_table import SweepDisplay
from ebclab.sweeps.folder import SweepFolder
from ebclab.sweeps.log import SweepLog
from ebclab.sweeps.plan import SweepPlan, trial_config
from ebclab.sweeps.results import SeedScores, SettingsTest, SweepResult, readings_of_test_set
from ebclab.sweeps.space.check import own_settings
from ebclab.training.listener import Listener
from energy_contrast.catalog import METHODS

Plans = Callable[..., SweepPlan]


class Remembering(SweepDisplay):
    """A display that remembers what it was told."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


class Sweep:
    """A sweep's folder with a log that is written by hand."""

    def __init__(self, path: Path, plan: SweepPlan) -> None:
        self.folder, self.plan = SweepFolder(path), plan
        self.folder.trials.mkdir(parents=True)
        self.log = SweepLog(self.folder.log)
        self.display = Remembering()

    def add(self, name: str, *values: float, state: str = "finished", reason: str = "", **changes: Any) -> None:
        """Add a trial that measured ``values``, one second an epoch."""
        rate = 0.001 * (1 + len(self.log.trials))
        settings = {"optimizer.learning_rate": rate, "method.temperature": 0.5}
        facts = {"kind": "search", "number": len(self.log.trials), "point": settings, "settings": settings, "seed": 0}
        self.log.append("trial", trial=name, epochs=6, **{**facts, **changes})
        for epoch, value in enumerate(values, start=1):
            self.log.append("epoch", trial=name, epoch=epoch, objective=value, seconds=float(epoch), metrics={})
        self.log.append("ended", trial=name, state=state, reason=reason, seconds=float(len(values)))

    def confirm(self, source: str, **by_seed: float) -> None:
        """Add confirming trials of ``source``, seed by seed."""
        for seed, value in by_seed.items():
            self.add(f"confirm-{source}-{seed}", value, kind="confirm", seed=int(seed.removeprefix("seed")))

    def conclude(self) -> SweepResult:
        return conclude(self.folder, self.plan, self.log, METHODS, self.display)


@pytest.fixture
def sweep(tmp_path: Path, sweep_plan: Plans) -> Sweep:
    """Three finished trials, of which 0001 is the best, and one that was stopped."""
    made = Sweep(tmp_path / "mine", sweep_plan(trials=4, top=2, seeds=3, baseline=False))
    made.add("0000", 0.5, 0.6)
    made.add("0001", 0.6, 0.9)
    made.add("0002", 0.6, 0.7)
    made.add("0003", 0.99, state="stopped", reason="rung 1")
    return made


@pytest.fixture
def no_test_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail as soon as anybody reads the test set."""

    def refuse(*args: Any, **options: Any) -> None:
        raise AssertionError("the test set was read")

    monkeypatch.setattr(conclusion, "evaluate_run", refuse)
    monkeypatch.setattr("ebclab.runs.evaluate.load_both", refuse)


def test_without_confirmation_the_best_finished_trial_wins_and_nobody_reads_the_test_set(
    sweep: Sweep, no_test_set: None
) -> None:
    sweep.plan = replace(sweep.plan, top=0)
    result = sweep.conclude()
    assert (result.winner.source, result.winner.values) == ("0001", (0.9,))
    assert (result.test, result.candidates) == (None, ())
    assert result.trials == {"finished": 3, "stopped": 1}
    assert result.saved.epochs == 5
    assert json.loads(sweep.folder.result.read_text()) == with_checksum(result.to_mapping())
    assert "mean" not in result["winner"]  # of one search trial there is none
    assert sweep.display.notes == []


def test_when_every_confirming_run_failed_the_search_decides_and_nobody_reads_the_test_set(
    sweep: Sweep, no_test_set: None
) -> None:
    sweep.add("confirm-0001-seed1", 0.9, kind="confirm", seed=1, state="failed", reason="no disk")
    result = sweep.conclude()
    assert (result.winner.source, result.candidates, result.test) == ("0001", (), None)


def test_the_highest_mean_wins_and_fewer_seeds_rank_after(sweep: Sweep) -> None:
    sweep.plan = replace(sweep.plan, top=3)
    sweep.confirm("0001", seed1=0.99, seed2=0.98)  # the best mean, of two seeds only
    sweep.confirm("0002", seed1=0.5, seed2=0.9, seed3=0.7)
    sweep.confirm("0000", seed1=0.71, seed2=0.71, seed3=0.71)
    result = sweep.conclude()
    assert [entry.source for entry in result.candidates] == ["0000", "0002", "0001"]
    assert [entry.mean for entry in result.candidates] == pytest.approx([0.71, 0.7, 0.985])
    assert result.winner == result.candidates[0]
    assert (result.winner.seeds, result.winner.seeds_asked) == ((1, 2, 3), 3)
    assert result.test is None  # there are no run folders to test
    assert "no test score" in sweep.display.notes[-1]
    assert sweep.log.last_event("not_tested") is not None
    assert result.test_readings == 0


def test_a_store_that_is_away_when_the_test_set_is_read_ends_the_sweep_without_a_result(
    sweep: Sweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*args: Any, **options: Any) -> None:
        raise StoreError("s3://runs/x: the store has not answered for 600 s")

    FakeEvaluation(monkeypatch)
    monkeypatch.setattr(conclusion, "evaluate_run", away)
    sweep.confirm("0001", seed1=0.7)
    with pytest.raises(StoreError, match="has not answered"):
        sweep.conclude()
    assert not sweep.folder.result.exists()
    assert sweep.log.last_event("not_tested") is None


def test_the_settings_of_the_winner_are_a_file_that_a_run_takes_back(sweep: Sweep, no_test_set: None) -> None:
    sweep.plan = replace(sweep.plan, top=0)
    sweep.conclude()
    settings = sweep.log.trials["0001"].settings
    expected = trial_config(sweep.plan.config, settings, seed=0, epochs=6)
    assert expected.optimizer.learning_rate == settings["optimizer.learning_rate"] == 0.002
    assert compose("simclr", config=load_yaml_file(sweep.folder.best)) == expected
    assert parse_yaml(sweep.folder.best.read_text(), where="best.yaml") == expected


def test_a_sweep_in_which_nothing_was_measured_names_the_reasons(sweep_plan: Plans, tmp_path: Path) -> None:
    made = Sweep(tmp_path / "mine", sweep_plan(trials=4))
    with pytest.raises(TrainingError, match=r"mine: no trial measured anything: nothing was run; see .*trials\.jsonl"):
        made.conclude()
    for number, reason in enumerate(["out of memory: 8 GiB", "no such file", "out of memory: 8 GiB"]):
        made.add(f"{number:04d}", state="failed", reason=reason)
    with pytest.raises(TrainingError, match=r"out of memory: 8 GiB \(2 times\); no such file \(1 times\); see"):
        made.conclude()
    assert not made.folder.result.exists()
    assert not made.folder.best.exists()


def test_every_measured_trial_has_a_page_in_tensorboard(sweep: Sweep, no_test_set: None) -> None:
    sweep.plan = replace(sweep.plan, top=0)
    sweep.add("0004", state="failed", reason="early")
    sweep.conclude()
    pages = sorted(path.name for path in (sweep.folder.path / "tensorboard").iterdir())
    assert pages == ["0000", "0001", "0002", "0003"]


def test_a_page_in_tensorboard_is_written_once_and_anew_when_the_trial_has_gone_on(
    sweep: Sweep, no_test_set: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep.plan = replace(sweep.plan, top=0)
    sweep.add("0004", 0.5, state="interrupted")
    sweep.conclude()
    pages = sweep.folder.path / "tensorboard"
    first = {*pages.rglob("events.*")}
    sweep.log.append("epoch", trial="0004", epoch=2, objective=0.25, seconds=2.0, metrics={})
    sweep.log.append("ended", trial="0004", state="finished", reason="", seconds=2.0)
    sweep.conclude()
    second = {*pages.rglob("events.*")}
    assert sorted(path.parent.name for path in second) == ["0000", "0001", "0002", "0003", "0004"]
    assert {path.parent.name for path in second - first} == {"0004"}
    read = EventAccumulator(str(pages / "0004")).Reload()
    assert [(point.step, point.value) for point in read.Scalars("holdout_knn")] == [(1, 0.5), (2, 0.25)]
    monkeypatch.setattr(conclusion, "SummaryWriter", lambda place: 1 / 0)  # a page that is there is left alone
    sweep.conclude()


def test_the_test_set_is_read_once_for_every_seed_of_the_winner(sweep: Sweep) -> None:
    sweep.plan = replace(sweep.plan, top=1, seeds=2)
    sweep.confirm("0001", seed1=0.8, seed2=0.9)
    config = trial_config(sweep.plan.config, sweep.log.trials["0001"].settings, seed=1, epochs=1)
    runs = [sweep.folder.trials / f"confirm-0001-seed{seed}" for seed in (1, 2)]
    ebclab.pretrain(config, runs=runs[0].parent, name=runs[0].name, display=Listener())
    shutil.copytree(runs[0], runs[1])
    test = sweep.conclude().test
    assert test is not None
    for name in ("knn", "linear"):
        scores = [json.loads((run / "evaluation.json").read_text())["rows"] for run in runs]
        values = [next(iter(rows.values()))[name]["value"] for rows in scores]
        assert list(test[name].values) == values
        assert test[name].mean == pytest.approx(fmean(values))
    for run in runs:
        shutil.rmtree(run)
    assert sweep.conclude().test == test
    assert sum("reading the test set" in note for note in sweep.display.notes) == 2
    (read,) = [event for event in sweep.log.events if event["event"] == "test_read"]
    (tested,) = [event for event in sweep.log.events if event["event"] == "tested"]
    assert read["runs"] == ["confirm-0001-seed1", "confirm-0001-seed2"]
    assert sweep.log.events.index(read) < sweep.log.events.index(tested)
    for name in ("knn", "linear"):  # both runs are one: they agree on every image, and the images alone set the width
        right = table_of([typed(one, Answers) for one in tested["scores"][name]["answers"]])
        assert right.mean(axis=1).tolist() == pytest.approx(list(test[name].values))
        assert (test[name].low, test[name].high) == pytest.approx(mean_interval(right, 0.05))
        assert test[name].images == right.shape[1]


class FakeEvaluation:
    """Stands in for the test set: each run answers ten images right but as many as its seed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.read: list[str] = []
        monkeypatch.setattr(conclusion, "evaluate_run", self)
        monkeypatch.setattr(conclusion, "try_references", lambda *given: None)
        monkeypatch.setattr(RunFolder, "newest_checkpoint", lambda run: "there")

    def __call__(self, run: Any, **options: Any) -> Any:
        self.read.append(run.path.name)
        wrong = int(run.path.name[-1]) + 3 * ("baseline" in run.path.name)
        right = torch.arange(10)[None] >= wrong
        return SimpleNamespace(rows={"simclr": {"knn": score_of("knn", right, torch.arange(10), detail="")}})


def test_the_starting_settings_are_tested_too_so_that_the_gain_is_known_there(
    sweep: Sweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = FakeEvaluation(monkeypatch)
    sweep.plan = replace(sweep.plan, top=2, seeds=2, baseline=True)
    sweep.confirm("0001", seed1=0.9, seed2=0.8)
    sweep.confirm("0002", seed1=0.8, seed2=0.8)
    start = own_settings(sweep.plan.space, sweep.plan.config)
    for seed, value in ((1, 0.7), (2, 0.7)):
        sweep.add(f"confirm-baseline-seed{seed}", value, kind="confirm", seed=seed, settings=start)
    result = sweep.conclude()
    assert fake.read == [f"confirm-{source}-seed{seed}" for source in ("0001", "baseline") for seed in (1, 2)]
    assert result.test is not None
    assert result.test_of_start is not None
    assert result.test_gain is not None
    assert result.gain is not None
    assert (result.test["knn"].mean, result.test_of_start["knn"].mean) == pytest.approx((0.85, 0.55))
    table = np.zeros((2, 10))
    for row, seed in zip(table, (1, 2), strict=True):  # right where the start is not: three images at each seed
        row[seed : seed + 3] = 1.0
    expected = difference_interval(table, np.zeros_like(table), 0.05 / 3)  # three settings, three differences
    assert (result.test_gain["knn"].low, result.test_gain["knn"].high) == pytest.approx(expected)
    assert result.gain.mean == pytest.approx(0.15)
    assert result.test_readings == 1
    assert SweepResult.read(sweep.folder.result) == result


@pytest.mark.parametrize("tested", ["winner", "all"])
def test_starting_settings_that_win_have_no_gain_over_themselves(
    sweep: Sweep, monkeypatch: pytest.MonkeyPatch, tested: str
) -> None:
    fake = FakeEvaluation(monkeypatch)
    sweep.plan = replace(sweep.plan, top=1, seeds=2, baseline=True, tested=tested)
    sweep.confirm("0001", seed1=0.7, seed2=0.6)
    start = own_settings(sweep.plan.space, sweep.plan.config)
    for seed, value in ((1, 0.9), (2, 0.8)):
        sweep.add(f"confirm-baseline-seed{seed}", value, kind="confirm", seed=seed, settings=start)
    result = sweep.conclude()
    assert [entry.source for entry in result.candidates] == ["baseline", "0001"]
    assert (result.gain, result.test_of_start, result.test_gain) == (None, None, None)
    assert result.test is not None
    assert result.test["knn"].mean == pytest.approx(0.55)
    sources = ("baseline", "0001") if tested == "all" else ("baseline",)
    assert fake.read == [f"confirm-{source}-seed{seed}" for source in sources for seed in (1, 2)]


def test_a_grown_sweep_reads_the_test_set_again_and_counts_it(sweep: Sweep, monkeypatch: pytest.MonkeyPatch) -> None:
    FakeEvaluation(monkeypatch)
    sweep.plan = replace(sweep.plan, top=1, seeds=2)
    sweep.confirm("0001", seed1=0.9, seed2=0.8)
    assert sweep.conclude().test_readings == 1
    assert sweep.conclude().test_readings == 1  # nothing new: nothing is read
    sweep.plan = replace(sweep.plan, seeds=3)
    sweep.confirm("0001", seed3=0.7)
    result = sweep.conclude()
    assert result.test_readings == 2
    assert readings_of_test_set(SweepLog(sweep.log.path)) == [
        ["confirm-0001-seed1", "confirm-0001-seed2"],
        ["confirm-0001-seed1", "confirm-0001-seed2", "confirm-0001-seed3"],
    ]


def test_a_reading_is_written_down_before_it_begins(sweep: Sweep, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(*args: Any, **options: Any) -> None:
        raise KeyboardInterrupt

    FakeEvaluation(monkeypatch)
    monkeypatch.setattr(conclusion, "evaluate_run", killed)
    sweep.plan = replace(sweep.plan, top=1, seeds=1)
    sweep.confirm("0001", seed1=0.9)
    with pytest.raises(KeyboardInterrupt):
        sweep.conclude()
    assert readings_of_test_set(SweepLog(sweep.log.path)) == [["confirm-0001-seed1"]]


@pytest.mark.parametrize("is_old", [False, True])
def test_probes_have_the_labelled_images_and_the_kind_that_are_asked_for(
    sweep: Sweep, monkeypatch: pytest.MonkeyPatch, is_old: bool
) -> None:
    """Tests of an older version had all images; a sweep that has one goes on so, and all of its tests agree."""
    asked: list[dict[str, Any]] = []
    fake = FakeEvaluation(monkeypatch)

    def remembered(run: Any, **options: Any) -> Any:
        asked.append(options)
        return fake(run, **options)

    monkeypatch.setattr(conclusion, "evaluate_run", remembered)
    config = replace(sweep.plan.config, data=replace(sweep.plan.config.data, train_limit=150))
    sweep.plan = replace(sweep.plan, config=config, top=1, seeds=1)
    sweep.confirm("0001", seed1=0.9)
    if is_old:
        SettingsTest("0002", (1,), {"knn": SeedScores.of((1,), (0.5,), (), 1)}).write(sweep.log)
    for _ in range(2):
        conclude(sweep.folder, sweep.plan, sweep.log, METHODS, sweep.display, ("knn",), references=False)
    assert [(each["only"], each["train_limit"]) for each in asked] == [(("knn",), 0 if is_old else 150)]


def test_the_reading_of_the_test_set_says_how_far_it_is(sweep: Sweep, monkeypatch: pytest.MonkeyPatch) -> None:
    FakeEvaluation(monkeypatch)
    clock = itertools.count(0, 10)
    monkeypatch.setattr(conclusion.time, "monotonic", lambda: next(clock))
    sweep.plan = replace(sweep.plan, top=1, seeds=3)
    sweep.confirm("0001", seed1=0.9, seed2=0.9, seed3=0.9)
    conclude(sweep.folder, sweep.plan, sweep.log, METHODS, sweep.display, references=False)
    assert next(note for note in sweep.display.notes if "reading" in note).endswith("run 1 of 3: 0001, seed 1")
    assert "left" in sweep.display.notes[-1]
    assert "run 3 of 3: 0001, seed 3, about 0:" in sweep.display.notes[-1]

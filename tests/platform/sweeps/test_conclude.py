"""What a sweep says it found: who wins, what stopping saved, files that can be used again, one look at the test set."""

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
from made_up_trials import Remembering, launch_of, made_up_trial, write
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import ebclab
from ebclab.config import compose, load_yaml_file, parse_yaml
from ebclab.errors import RunError, StoreError, TrainingError, UserError
from ebclab.evaluation.answers import Answers, score_of, table_of
from ebclab.evaluation.comparison import Measurements
from ebclab.evaluation.seeds_and_images import difference_interval, mean_interval
from ebclab.runs.folder import RunFolder
from ebclab.runs.jobs import Each, one_by_one
from ebclab.storage.reading import typed, with_checksum
from ebclab.sweeps import conclude as conclusion
from ebclab.sweeps.conclude import conclude
from ebclab.sweeps.folder import SweepFolder
from ebclab.sweeps.log import SweepLog
from ebclab.sweeps.plan import SweepPlan, trial_config
from ebclab.sweeps.results import BASELINE, SeedScores, SettingsTest, SweepResult, readings_of_test_set
from ebclab.sweeps.space.space import own_settings
from ebclab.training.display import Listener

Plans = Callable[..., SweepPlan]


class Sweep:
    """A sweep's folder with a log that is written by hand."""

    def __init__(self, path: Path, plan: SweepPlan) -> None:
        self.folder, self.plan = SweepFolder(path), plan
        self.folder.trials.mkdir(parents=True)
        self.log = SweepLog(self.folder.log)
        self.display = Remembering()
        self.each: Each = one_by_one

    def add(self, name: str, *values: float, state: str = "finished", reason: str = "", **changes: Any) -> None:
        """Add a trial that measured ``values``, one second an epoch."""
        rate = 0.001 * (1 + len(self.log.trials))
        settings = {"optimizer.learning_rate": rate, "method.temperature": 0.5}
        facts = {"number": len(self.log.trials), "point": settings, "settings": settings, "epochs": 6}
        write(self.log, made_up_trial(name, values, state=state, reason=reason, **facts | changes))

    def confirm(self, source: str, *values: float, first_seed: int = 1) -> None:
        """Add confirming trials of ``source``, one for each seed."""
        changes = {"settings": own_settings(self.plan.space, self.plan.config)} if source == BASELINE else {}
        for seed, value in enumerate(values, start=first_seed):
            self.add(f"confirm-{source}-seed{seed}", value, kind="confirm", seed=seed, **changes)

    def conclude(self, *probes: str, **changes: Any) -> SweepResult:
        """Change the plan and end the sweep."""
        self.plan = replace(self.plan, **changes)
        launch = launch_of(self.folder, self.plan, self.display)
        return conclude(launch, self.log, probes or ("knn", "linear"), each=self.each)


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


class FakeEvaluation:
    """Stands in for the test set: each run answers ten images right but as many as its seed."""

    def __init__(self) -> None:
        self.read: list[str] = []
        self.options: list[dict[str, Any]] = []
        self.error: BaseException | None = None
        self.images = torch.arange(10)

    def __call__(self, run: Any, **options: Any) -> Any:
        if self.error:
            raise self.error
        self.read.append(run.path.name)
        self.options.append(options)
        wrong = int(run.path.name[-1]) + 3 * ("baseline" in run.path.name)
        right = torch.arange(10)[None] >= wrong
        return SimpleNamespace(rows={"simclr": {"knn": score_of("knn", right, self.images, detail="")}})


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeEvaluation:
    made = FakeEvaluation()
    monkeypatch.setattr(conclusion, "evaluate_run", made)
    monkeypatch.setattr(conclusion, "try_references", lambda *given: None)
    monkeypatch.setattr(RunFolder, "newest_checkpoint", lambda run: "there")
    return made


@pytest.mark.parametrize("top", [0, 2])
def test_without_confirmed_settings_the_best_finished_trial_wins_untested(sweep, no_test_set, top):
    if top:
        sweep.add("confirm-0001-seed1", 0.9, kind="confirm", seed=1, state="failed", reason="no disk")
    result = sweep.conclude(top=top)
    assert (result.winner.source, result.winner.values) == ("0001", (0.9,))
    assert (result.test, result.candidates) == (None, ())
    assert result.trials == {"finished": 3, "stopped": 1}
    assert result.saved.epochs == 5
    assert json.loads(sweep.folder.result.read_text()) == with_checksum(result.to_mapping())
    assert "mean" not in result["winner"]  # of one search trial there is none
    assert sweep.display.notes == []


def test_the_highest_mean_wins_and_fewer_seeds_rank_after(sweep: Sweep) -> None:
    sweep.confirm("0001", 0.99, 0.98)  # the best mean, of two seeds only
    sweep.confirm("0002", 0.5, 0.9, 0.7)
    sweep.confirm("0000", 0.71, 0.71, 0.71)
    result = sweep.conclude(top=3)
    assert [entry.source for entry in result.candidates] == ["0000", "0002", "0001"]
    assert [entry.mean for entry in result.candidates] == pytest.approx([0.71, 0.7, 0.985])
    assert result.winner == result.candidates[0]
    assert (result.winner.seeds, result.winner.seeds_asked) == ((1, 2, 3), 3)
    assert result.test is None  # there are no run folders to test
    assert "no test score" in sweep.display.notes[-1]
    assert sweep.log.last_event("not_tested") is not None
    assert result.test_readings == 0


@pytest.mark.parametrize("error", [StoreError("away"), KeyboardInterrupt()])
def test_a_reading_that_breaks_off_is_in_the_log_and_there_is_no_result(sweep, fake, error):
    fake.error = error
    sweep.confirm("0001", 0.7)
    with pytest.raises(type(error)):
        sweep.conclude()
    assert not sweep.folder.result.exists()
    assert sweep.log.last_event("not_tested") is None
    assert readings_of_test_set(SweepLog(sweep.log.path)) == [["confirm-0001-seed1"]]


def test_the_settings_of_the_winner_are_a_file_that_a_run_takes_back(sweep: Sweep, no_test_set: None) -> None:
    sweep.conclude(top=0)
    settings = sweep.log.trials["0001"].settings
    expected = trial_config(sweep.plan.config, settings, seed=0, epochs=6)
    assert expected.optimizer.learning_rate == settings["optimizer.learning_rate"] == 0.002
    assert compose("simclr", config=load_yaml_file(sweep.folder.best)) == expected
    assert parse_yaml(sweep.folder.best.read_text(), where="best.yaml") == expected


def test_a_sweep_in_which_nothing_was_measured_names_the_reasons(sweep_plan: Plans, tmp_path: Path) -> None:
    made = Sweep(tmp_path / "mine", sweep_plan(trials=4))
    with pytest.raises(TrainingError, match=r"mine: no trial measured anything: nothing was run; see .*and delete"):
        made.conclude()
    for number, reason in enumerate(["out of memory: 8 GiB", "no such file", "out of memory: 8 GiB"]):
        made.add(f"{number:04d}", state="failed", reason=reason)
    with pytest.raises(TrainingError, match=r"out of memory: 8 GiB \(2 times\); no such file \(1 times\); see"):
        made.conclude()
    assert not made.folder.result.exists()
    assert not made.folder.best.exists()


def test_trials_that_repeat_settings_are_counted(sweep: Sweep, no_test_set: None) -> None:
    sweep.conclude(top=0)
    assert not any("repeated" in note for note in sweep.display.notes)
    for name in ("0004", "0005"):
        sweep.add(name, 0.5, settings=sweep.log.trials["0001"].settings)
    sweep.conclude(top=0)
    assert "2 of 6 trials repeated the settings of another one" in sweep.display.notes


def test_a_measured_trial_has_a_page_in_tensorboard_for_its_newest_epoch(sweep, no_test_set, monkeypatch):
    sweep.add("0004", 0.5, state="interrupted")
    sweep.add("0005", state="failed", reason="early")
    sweep.conclude(top=0)
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
    sweep.confirm("0001", 0.8, 0.9)
    config = trial_config(sweep.plan.config, sweep.log.trials["0001"].settings, seed=1, epochs=1)
    runs = [sweep.folder.trials / f"confirm-0001-seed{seed}" for seed in (1, 2)]
    ebclab.pretrain(config, runs=runs[0].parent, name=runs[0].name, display=Listener())
    shutil.copytree(runs[0], runs[1])
    test = sweep.conclude(top=1, seeds=2).test
    rows = [next(iter(json.loads((run / "evaluation.json").read_text())["rows"].values())) for run in runs]
    for name in ("knn", "linear"):
        values = [row[name]["value"] for row in rows]
        assert list(test[name].values) == values
        assert test[name].mean == pytest.approx(fmean(values))
    for run in runs:
        shutil.rmtree(run)
    assert sweep.conclude().test == test
    assert sum(" of 2 read: " in note for note in sweep.display.notes) == 2
    (read,) = [event for event in sweep.log.events if event["event"] == "test_read"]
    first, second = [event for event in sweep.log.events if event["event"] == "tested"]
    assert read["runs"] == ["confirm-0001-seed1", "confirm-0001-seed2"]
    assert sweep.log.events.index(read) < sweep.log.events.index(first)
    for name in ("knn", "linear"):  # both runs are one: they agree on every image, and the images alone set the width
        answers = [one for tested in (first, second) for one in tested["scores"][name]["answers"]]
        right = table_of([typed(one, Answers) for one in answers])
        assert right.mean(axis=1).tolist() == pytest.approx(list(test[name].values))
        assert (test[name].low, test[name].high) == pytest.approx(mean_interval(right, 0.05))
        assert test[name].images == right.shape[1]


def test_the_starting_settings_are_tested_too_so_that_the_gain_is_known_there(sweep, fake):
    sweep.confirm("0001", 0.9, 0.8)
    sweep.confirm("0002", 0.8, 0.8)
    sweep.confirm(BASELINE, 0.7, 0.7)
    result = sweep.conclude(top=2, seeds=2, baseline=True)
    assert fake.read == [f"confirm-{source}-seed{seed}" for source in ("0001", "baseline") for seed in (1, 2)]
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
def test_starting_settings_that_win_have_no_gain_over_themselves(sweep, fake, tested):
    sweep.confirm("0001", 0.7, 0.6)
    sweep.confirm(BASELINE, 0.9, 0.8)
    result = sweep.conclude(top=1, seeds=2, baseline=True, tested=tested)
    assert [entry.source for entry in result.candidates] == ["baseline", "0001"]
    assert (result.gain, result.test_of_start, result.test_gain) == (None, None, None)
    assert result.test["knn"].mean == pytest.approx(0.55)
    sources = ("baseline", "0001") if tested == "all" else ("baseline",)
    assert fake.read == [f"confirm-{source}-seed{seed}" for source in sources for seed in (1, 2)]


def test_a_grown_sweep_reads_the_test_set_with_its_new_runs_alone_and_counts_it(sweep, fake):
    sweep.confirm("0001", 0.9, 0.8)
    before = sweep.conclude(top=1, seeds=2)
    assert before.test_readings == 1
    assert sweep.conclude().test_readings == 1  # nothing new: nothing is read
    sweep.confirm("0001", 0.7, first_seed=3)
    grown = sweep.conclude(seeds=3)
    assert grown.test_readings == 2
    assert readings_of_test_set(SweepLog(sweep.log.path)) == [
        ["confirm-0001-seed1", "confirm-0001-seed2"],
        ["confirm-0001-seed3"],
    ]
    assert grown.test["knn"].values[:2] == before.test["knn"].values
    assert grown.test["knn"].values[2] == 0.7  # three of ten images wrong
    assert len(grown.test["knn"].answers) == 3


def test_runs_of_other_test_images_are_no_mean_with_earlier_ones(sweep: Sweep, fake: FakeEvaluation) -> None:
    sweep.confirm("0001", 0.9, 0.8)
    before = sweep.conclude("knn", top=1, seeds=2)
    sweep.folder.result.unlink()
    sweep.confirm("0001", 0.7, first_seed=3)
    fake.images = torch.arange(1, 11)
    with pytest.raises(UserError, match=r"mine: the test images are not those .*; restore them, or choose another --n"):
        sweep.conclude("knn", seeds=3)
    assert not sweep.folder.result.exists()
    fake.images = torch.arange(10)
    grown = sweep.conclude("knn")
    assert grown.test["knn"].values[:2] == before.test["knn"].values


@pytest.mark.parametrize("is_old", [False, True])
def test_probes_have_the_labelled_images_and_the_kind_that_are_asked_for(sweep, fake, is_old):
    """Tests of an older version had all images; a sweep that has one goes on so, and all of its tests agree."""
    config = replace(sweep.plan.config, data=replace(sweep.plan.config.data, train_limit=150))
    sweep.confirm("0001", 0.9)
    if is_old:
        SettingsTest("0002", (1,), {"knn": SeedScores.of(Measurements.of((1,), (0.5,), ()), 1)}).write(sweep.log)
    for _ in range(2):
        sweep.conclude("knn", config=config, top=1, seeds=1)
    assert [(each["only"], each["train_limit"]) for each in fake.options] == [(("knn",), 0 if is_old else 150)]


def test_a_reading_that_is_cut_short_keeps_the_runs_that_it_has_read(sweep: Sweep, fake: FakeEvaluation) -> None:
    sweep.confirm("0001", 0.9, 0.8, 0.7)

    def last_first_and_then_cut_short(function: Any, jobs: Any, /) -> Any:
        yield jobs[-1], function(jobs[-1])
        raise KeyboardInterrupt

    sweep.each = last_first_and_then_cut_short
    with pytest.raises(KeyboardInterrupt):
        sweep.conclude(top=1, seeds=3)
    sweep.each = one_by_one
    result = sweep.conclude()
    assert fake.read == [f"confirm-0001-seed{seed}" for seed in (3, 1, 2)]
    assert result.test["knn"].values == (0.9, 0.8, 0.7)  # as many of ten images wrong as the seed


def test_no_copy_of_a_run_stays_where_a_cluster_has_read_it(sweep, fake, tmp_path, monkeypatch):
    copies = {name: tmp_path / name for name in ("user", "reader")}
    for path in copies.values():
        (path / "checkpoints").mkdir(parents=True)
    sweep.confirm("0001", 0.9)

    def copy_of(folder: SweepFolder, name: str, role: str = "user") -> Any:
        copy: Any = SimpleNamespace(
            path=copies[role] if role == "reader" else folder.path / name,
            remote="s3://bucket",
            of=lambda other: copy_of(folder, name, other),
            newest_checkpoint=lambda: "there",
            drop_copy=lambda: RunFolder.drop_copy(copy),
        )
        return copy

    monkeypatch.setattr(SweepFolder, "run", copy_of)
    sweep.each = lambda function, jobs, /: one_by_one(function, jobs)
    assert sweep.conclude(top=1, seeds=1).test is not None
    assert [path.name for path in copies.values() if path.exists()] == ["user"]


def test_images_given_from_python_have_no_test_set_and_the_way_to_measure_is_said(sweep, no_test_set, monkeypatch):
    monkeypatch.setattr(RunFolder, "newest_checkpoint", lambda run: "there")
    sweep.confirm("0001", 0.9)
    config = replace(sweep.plan.config, data=replace(sweep.plan.config.data, name="own:mine"))
    assert sweep.conclude(top=1, seeds=1, config=config).test is None
    run = sweep.folder.run("confirm-0001-seed1").address
    said = f"its images were given from Python; measure its runs with ebclab.evaluate({run!r}, images=(train, test))"
    assert sweep.display.notes == [f"no test score: {said}"]
    assert sweep.log.last_event("not_tested")["reason"] == said


def test_a_run_that_cannot_be_read_leaves_its_settings_untested_and_others_tested(sweep, fake):
    sweep.confirm("0001", 0.9, 0.8)
    sweep.confirm("baseline", 0.8, 0.7)

    def with_two_damaged(function: Any, jobs: Any, /) -> Any:
        for job in reversed(jobs):
            yield job, (RunError(f"{job}: damaged") if "0001" in job else function(job))

    sweep.each = with_two_damaged
    result = sweep.conclude(top=1, seeds=2, baseline=True)
    assert (result.test, result.test_of_start is None) == (None, False)
    remedy = f"when that is mended, delete {sweep.folder.result} and repeat the command"
    assert [note for note in sweep.display.notes if "damaged" in note] == [
        f"no test score: confirm-0001-seed2: damaged; {remedy}"
    ]


def test_the_reading_of_the_test_set_says_how_far_it_is(sweep, fake, monkeypatch):
    clock = itertools.count(0, 10)
    monkeypatch.setattr(conclusion.time, "monotonic", lambda: next(clock))
    sweep.confirm("0001", 0.9, 0.9, 0.9)
    sweep.conclude(top=1, seeds=3)
    assert sweep.display.notes == [
        "reading the test set with 3 runs",
        "1 of 3 read: 0001, seed 1, about 0:20 left",  # one took ten seconds
        "2 of 3 read: 0001, seed 2, about 0:10 left",  # two took twenty
        "3 of 3 read: 0001, seed 3",
    ]

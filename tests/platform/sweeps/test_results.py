"""The typed result of a sweep: the words, the mapping on disk in both directions, and files that are no result."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
from made_up_trials import made_up_trial

from ebclab.errors import RunError
from ebclab.evaluation.comparison import Measurements
from ebclab.sweeps.log import SweepLog, Trial, finite
from ebclab.sweeps.results import (
    BASELINE,
    ConfirmedSettings,
    SeedScores,
    SettingsTest,
    StoppingSavings,
    SweepResult,
    readings_of_test_set,
)
from ebclab.sweeps.space.space import own_settings

SETTINGS = {"optimizer.learning_rate": 0.01, "method.temperature": 0.5}
CONFIRMED: dict[str, Any] = {"trial": "0002", "settings": SETTINGS, "seeds": [1, 2], "values": [0.6, 0.8]}
CONFIRMED |= {"seeds_asked": 2, "mean": 0.7, "std": 0.1, "low": 0.0, "high": 1.0, "images": 141}
UNCONFIRMED: dict[str, Any] = {"trial": "0001", "settings": SETTINGS, "seeds": [0], "values": [0.9], "seeds_asked": 0}
SCORES: dict[str, Any] = {"values": [0.5], "mean": 0.5, "std": None, "low": None, "high": None, "images": None}
UNTESTED: dict[str, Any] = dict.fromkeys(("test", "gain", "test_of_start", "test_gain", "test_readings"))
GAIN: dict[str, Any] = {"mean": 0.1, "low": -0.1, "high": 0.3, "images": 141, "open": ""}
OPEN: dict[str, Any] = {"mean": 0.1, "low": None, "high": None, "images": None, "open": "one seed"}
RESULT: dict[str, Any] = {"format": 1, "path": "/sweeps/mine", "method": "simclr", "dataset": "digits"}
RESULT |= {"objective": "holdout_knn", "trials": {"finished": 3, "stopped": 1}}
RESULT |= {"winner": CONFIRMED, "candidates": [CONFIRMED], "test": {"knn": SCORES}, "gain": GAIN}
RESULT |= {"test_of_start": {"knn": SCORES}, "test_gain": {"knn": OPEN}, "test_readings": 1}
RESULT |= {"saved": {"trials": 1, "epochs": 5, "seconds": 5.0, "seconds_spent": 7.0}, "seconds": 19.0}
RESULT |= {"finished": "2026-11-20T12:00:00+00:00"}


@pytest.mark.parametrize("changes", [{}, {"winner": UNCONFIRMED, "candidates": [], **UNTESTED}])
def test_a_result_is_the_same_mapping_before_and_after(changes: dict[str, Any]) -> None:
    content = RESULT | changes
    result = SweepResult.of_mapping(content, "result.json")
    assert json.dumps(result.to_mapping()) == json.dumps(content)
    assert SweepResult.of_mapping(result.to_mapping(), "result.json") == result


def test_a_result_has_fields_with_types_and_its_entries_by_key_and_no_others():
    result = SweepResult.of_mapping(RESULT, "result.json")
    assert result.winner == result.candidates[0]
    assert (result.winner.source, result.winner.seeds, result.winner.values) == ("0002", (1, 2), (0.6, 0.8))
    assert (result["winner"]["mean"], result["winner"]["settings"]) == (0.7, SETTINGS)
    with pytest.raises(KeyError):
        result["runner_up"]
    assert SweepResult.of_mapping(RESULT | {"weather": "fair"}, "r") == SweepResult.of_mapping(RESULT, "r")


def test_an_unconfirmed_winner_has_its_one_value_as_mean() -> None:
    content = RESULT | {"winner": UNCONFIRMED, "candidates": []}
    winner = SweepResult.of_mapping(content, "result.json").winner
    assert (winner.mean, winner.low, winner.is_confirmed) == (0.9, None, False)
    assert ConfirmedSettings.of_trial(made_up_trial("0001", [0.4, 0.9], settings=SETTINGS)) == winner
    without_number = finite(content | {"winner": UNCONFIRMED | {"values": [-math.inf]}})
    assert without_number["winner"]["values"] == ["-inf"]
    assert SweepResult.of_mapping(without_number, "result.json").winner.mean == -math.inf


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"winner": "0003"}, "winner: "),
        ({"winner": CONFIRMED | {"values": []}}, "2 seeds and 0 values"),
        ({"winner": CONFIRMED | {"trial": "../../precious"}}, "not the id of a trial, got '../../precious'"),
        ({"candidates": [CONFIRMED | {"seeds": ["first"]}]}, "candidates.0.seeds.0: "),
        ({"candidates": None}, "candidates: "),
        ({"trials": [3]}, "trials: "),
        ({"test": {"knn": {"values": [0.5]}}}, "test.knn.mean: Field required, got nothing"),
        ({"seconds": "an hour"}, "got 'an hour'"),
    ],
)
def test_what_is_no_result_is_one_sentence_with_the_file_and_the_field(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(RunError) as raised:
        SweepResult.of_mapping(RESULT | changes, "s3://b/result.json")
    text = str(raised.value)
    assert text.startswith("s3://b/result.json: not the result of a sweep, got ")
    assert said in text
    assert text.endswith("; delete the file and resume the sweep, which writes it again")
    assert "\n" not in text


def test_settings_are_named_by_their_trial_and_as_the_start_where_they_are(sweep_plan):
    plan = sweep_plan()
    start = own_settings(plan.space, plan.config)

    def named(source: str, settings: dict[str, Any]) -> str:
        entry = ConfirmedSettings(source=source, settings=settings, seeds=(1,), values=(0.5,), seeds_asked=1, mean=0.5)
        return entry.in_words(plan)

    assert named("0003", {**start, "method.temperature": 0.9}) == "trial 0003"
    assert named("0000", start) == "trial 0000, the starting settings"
    assert named(BASELINE, start) == "the starting settings"


def run_with(*seeds: int) -> ConfirmedSettings:
    values = tuple(0.5 for _ in seeds)
    return ConfirmedSettings(source="0002", settings={}, seeds=seeds, values=values, seeds_asked=2, mean=0.5)


def test_a_damaged_event_of_a_test_is_one_sentence(tmp_path: Path) -> None:
    log = SweepLog(tmp_path / "trials.jsonl")
    assert SettingsTest.known(log, run_with(1), 3) is None
    log.append("tested", trial="0002")
    with pytest.raises(RunError, match=rf"{log.path}: its event `tested` cannot be read, got seeds: Field required"):
        SettingsTest.known(log, run_with(1), 3)


def test_a_test_without_a_value_for_each_run_is_damaged(tmp_path: Path) -> None:
    log = SweepLog(tmp_path / "trials.jsonl")
    log.append("tested", trial="0002", seeds=[1, 2], scores={"knn": {"values": [0.4], "mean": 0.4}})
    with pytest.raises(RunError, match="one of each per run, got 2 seeds, 1 values, 0 answers"):
        SettingsTest.known(log, run_with(1, 2), 1)


def test_the_newest_test_of_a_run_counts(tmp_path: Path) -> None:
    log = SweepLog(tmp_path / "trials.jsonl")
    for values in ({1: 0.25, 2: 0.5}, {2: 0.75, 3: 1.0}):
        scores = SeedScores.of(Measurements.of(list(values), list(values.values()), ()), 1)
        SettingsTest("0002", tuple(values), {"knn": scores}).write(log)
    known = SettingsTest.known(log, run_with(1, 2, 3), 1)
    assert known["knn"].values == (0.25, 0.75, 1.0)
    assert SettingsTest.known(log, run_with(1, 4), 1) is None


def test_test_scores_that_an_older_version_wrote_have_an_interval_over_seeds_only(tmp_path: Path) -> None:
    log = SweepLog(tmp_path / "trials.jsonl")
    old = {"values": [0.4, 0.6], "mean": 0.5, "std": 0.1414, "low": 0.0, "high": 1.0}
    log.append("tested", trial="0002", seeds=[1, 2], scores={"knn": old})
    scores = SettingsTest.known(log, run_with(1, 2), 1)
    assert (scores["knn"].images, scores["knn"].answers) == (None, ())
    half = math.tan(0.475 * math.pi) * 0.1  # Student's with one degree of freedom; |a - b| / 2
    assert (scores["knn"].low, scores["knn"].high) == (max(0.0, 0.5 - half), min(1.0, 0.5 + half))
    assert readings_of_test_set(log) == [["confirm-0002-seed1", "confirm-0002-seed2"]]


def test_every_reading_of_the_test_set_counts_also_one_that_a_kill_cut_short(tmp_path: Path) -> None:
    log = SweepLog(tmp_path / "trials.jsonl")
    assert readings_of_test_set(log) == []
    log.append("test_read", runs=["confirm-0002-seed1"])  # killed here
    log.append("test_read", runs=["confirm-0002-seed1"])
    SettingsTest("0002", (1,), {}).write(log)
    log.append("test_read", runs=["confirm-0001-seed1", "confirm-0001-seed2"])
    SettingsTest("0001", (1, 2), {}).write(log)
    assert readings_of_test_set(SweepLog(log.path)) == [
        ["confirm-0002-seed1"],
        ["confirm-0002-seed1"],
        ["confirm-0001-seed1", "confirm-0001-seed2"],
    ]


def stopped_at(epochs_done: int, epochs: int, seconds: float, state: str = "stopped") -> Trial:
    return made_up_trial("a", [0.5] * epochs_done, epochs=epochs, state=state, seconds=seconds)


def test_a_stopped_trial_saved_the_epochs_it_did_not_train_at_its_own_seconds_an_epoch() -> None:
    trials = [
        stopped_at(2, 10, 6.0),  # 3 s an epoch, 8 epochs left: 24 s
        stopped_at(1, 10, 0.5),  # 0.5 s an epoch, 9 epochs left: 4.5 s
        stopped_at(0, 10, 1.0),  # never measured: nothing is known of it
        stopped_at(10, 10, 20.0, "finished"),
        stopped_at(5, 10, 7.0, "failed"),  # cut short, but not by the sweep's decision
        stopped_at(5, 10, 7.0, "diverged"),
    ]
    assert StoppingSavings.of(trials) == StoppingSavings(trials=2, epochs=17, seconds=28.5, seconds_spent=41.5)
    assert StoppingSavings.of([]) == StoppingSavings(0, 0, 0, 0)

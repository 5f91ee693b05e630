"""Trials of unequal length are compared after equal epochs, and importance finds the setting that matters."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.storages.journal import JournalFileBackend

from ebclab.errors import RunError
from ebclab.reports.comparable import LEAST_TRIALS, MOST_TRIALS, Footing, as_text, footing, importance
from ebclab.reports.document import write_journal
from ebclab.reports.plots import thinned
from ebclab.reports.reading import read_sweep
from ebclab.reports.sweep_plots import _axis as plot_axis
from ebclab.sweeps.log import Epoch, Trial
from ebclab.sweeps.policies.suggest import suggest
from ebclab.sweeps.space.space import parse_space


def test_trials_are_compared_at_the_last_epoch_that_half_of_them_reached(sweep_folder: Callable[..., Any]) -> None:
    folder = sweep_folder()
    for number, epochs in enumerate((4, 3, 3, 1, 1)):
        folder.search(number, [0.1 * epoch + number for epoch in range(epochs)])
    folder.search(5, [0.9] * 3, point={"method.temperature": "hot"})  # no place in the space
    found = footing(folder.plan.space, read_sweep(folder.path).search)
    assert (found.epoch, [trial.id for trial in found.trials]) == (3, ["0000", "0001", "0002"])
    assert found.values == pytest.approx((0.2, 1.2, 2.2))


@pytest.mark.parametrize("lengths", [(5,), (4, 2), (4, 3, 1, 1), (4, 3, 2, 1), (3, 3, 2, 1, 1, 1), (4, 4, 4, 1, 1)])
def test_exactly_half_of_the_trials_are_enough_to_be_compared(sweep_folder, lengths):
    folder = sweep_folder()
    for number, epochs in enumerate(lengths):
        folder.search(number, [0.5] * epochs)
    found = footing(folder.plan.space, read_sweep(folder.path).search)
    reached = {epoch: sum(length >= epoch for length in lengths) for epoch in range(1, max(lengths) + 1)}
    assert found.epoch == max(epoch for epoch, count in reached.items() if count >= len(lengths) / 2)
    assert len(found.trials) == reached[found.epoch]


def test_the_only_setting_that_matters_gets_nearly_all_importance(sweep_folder: Callable[..., Any]) -> None:
    folder = sweep_folder()
    for number in range(40):
        folder.search(number, [0.0])
    trials = read_sweep(folder.path).search
    for trial in trials:
        trial.curve[1] = Epoch(trial.point["method.temperature"], 1.0)
    shares = importance(folder.plan.space, footing(folder.plan.space, trials))
    assert sum(shares.values()) == pytest.approx(1)
    assert shares["method.temperature"] > 0.9


@pytest.mark.parametrize("kind", ["uniform", "loguniform"])
def test_off_beside_a_range_counts_among_what_matters(kind: str) -> None:
    space = parse_space({"parameters": {"x": {kind: [0.1, 0.9], "also": 0}, "y": {"uniform": [0, 1]}}}, "s")
    draws = [suggest(space, "random", seed=0, number=n, trials=[], default=None) for n in range(40)]
    trials = tuple(Trial(f"{n:04}", "search", n, point, point, 0, 1) for n, point in enumerate(draws))
    compared = Footing(1, trials, tuple(float(point["x"] == 0) for point in draws))
    assert importance(space, compared)["x"] > 0.9
    assert plot_axis(space.by_name["x"]) == {"type": "linear"}  # a log scale has no place for 0


@pytest.mark.parametrize(("low", "ticks"), [(1e-4, 1), (1e-3, 1), (0.02, "D2")])
def test_a_log_axis_of_less_than_two_decades_has_ticks_between_them(low: float, ticks: object) -> None:
    space = parse_space({"parameters": {"x": {"loguniform": [low, 0.1]}}}, "s")
    assert plot_axis(space.by_name["x"])["dtick"] == ticks


@pytest.mark.parametrize(
    ("range_of_x", "is_low"),
    [
        ({"loguniform": [0.0001, 1]}, lambda x: x < 0.01),
        ({"int": [1, 1024], "log": True}, lambda x: x < 32),
        ({"int": [1, 10]}, lambda x: x <= 5),
        ({"quantised": [0, 0.9, 0.1]}, lambda x: x < 0.45),
        ({"choice": [10, 20, 30, 1000]}, lambda x: x < 25),
    ],
)
def test_settings_that_move_the_score_alike_over_draws_share_alike(range_of_x, is_low):
    space = parse_space({"parameters": {"x": range_of_x, "y": {"uniform": [0, 1]}}}, "s")
    draws = [suggest(space, "random", seed=0, number=n, trials=[], default=None) for n in range(100)]
    trials = tuple(Trial(f"{n:04}", "search", n, point, point, 0, 1) for n, point in enumerate(draws))
    compared = Footing(1, trials, tuple(float(is_low(point["x"])) + (point["y"] < 0.5) for point in draws))
    assert importance(space, compared)["x"] == pytest.approx(0.5, abs=0.1)  # both halve the draws


def test_too_few_or_equal_trials_have_no_importance(sweep_folder: Callable[..., Any]) -> None:
    folder = sweep_folder()
    for number in range(LEAST_TRIALS + 1):
        folder.search(number, [0.5])
    trials = read_sweep(folder.path).search
    assert importance(folder.plan.space, footing(folder.plan.space, trials)) == {}
    for trial in trials:
        trial.curve[1] = Epoch(trial.number / 10, 1.0)
    assert importance(folder.plan.space, footing(folder.plan.space, trials[: LEAST_TRIALS - 1])) == {}


def test_many_trials_are_thinned_evenly_and_long_curves_keep_both_ends(sweep_folder: Callable[..., Any]) -> None:
    folder = sweep_folder()
    for number in range(MOST_TRIALS * 2):
        folder.search(number, [0.5])
    thin = footing(folder.plan.space, read_sweep(folder.path).search).thinned()
    assert [trial.number for trial in thin.trials] == list(range(0, MOST_TRIALS * 2, 2))
    points = thinned(range(997), 50)
    assert (len(points), points[0], points[-1]) == (50, 0, 996)
    assert thinned(range(5), 50) == [*range(5)]


def test_text_in_a_plot_is_no_markup() -> None:
    assert as_text("<b>&</b>") == "&lt;b&gt;&amp;&lt;/b&gt;"


def test_optuna_reads_the_trials_of_a_sweep_from_its_journal(sweep_folder: Callable[..., Any], tmp_path: Path) -> None:
    folder = sweep_folder("first")
    folder.search(0, [0.5, 0.6])
    folder.search(1, [0.4], "stopped", "below the median")
    folder.search(2, [], "failed", "out of memory")
    folder.search(3, [0.7], "running")
    left_out = write_journal([folder.path], tmp_path / "journal.log")
    assert left_out == ["first: 1 of 4 trials were left out"]
    storage = optuna.storages.JournalStorage(JournalFileBackend(str(tmp_path / "journal.log")))
    (study,) = optuna.get_all_study_names(storage)
    trials = optuna.load_study(study_name=study, storage=storage).trials
    assert [trial.state.name for trial in trials] == ["COMPLETE", "PRUNED", "FAIL"]
    assert [trial.intermediate_values for trial in trials] == [{1: 0.5, 2: 0.6}, {1: 0.4}, {}]
    assert [trial.value for trial in trials] == [0.6, 0.4, None]
    assert [trial.params for trial in trials] == [folder.log.trials[f"{number:04d}"].point for number in range(3)]
    assert trials[2].user_attrs["reason"] == "out of memory"
    with pytest.raises(RunError, match=r"--optuna: cannot be written, got .*no such.*; choose another file"):
        write_journal([folder.path], tmp_path / "no such" / "journal.log")

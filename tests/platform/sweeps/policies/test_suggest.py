import logging
import math
import statistics
from dataclasses import replace
from typing import Any

import pytest
from made_up_trials import made_up_trial

from ebclab.sweeps.log import Epoch, State, Trial
from ebclab.sweeps.policies.suggest import STARTUP, suggest
from ebclab.sweeps.space.space import Space, parse_space

EVERY_KIND = {
    "a.derived": {"uniform": [0.05, 1.0], "times": "a.scale"},
    "a.scale": {"loguniform": [0.01, 0.2]},
    "a.count": {"int": [1, 20]},
    "a.size": {"int": [256, 65536], "log": True},
    "a.share": {"quantised": [0.1, 0.7, 0.2]},
    "a.word": {"choice": ["x", True, 3]},
    "a.target": {"uniform": [0.1, 0.9], "also": 0.0},
}
LINE = {"x": {"uniform": [0, 1]}}
BEST = 0.3


def space_of(parameters: dict[str, Any]) -> Space:
    return parse_space({"parameters": parameters}, "s.yaml")


def trial(number: int, point: dict[str, Any], objective: float | None = None, state: State = "finished") -> Trial:
    """Return a trial of two epochs whose objective at the last is ``objective``, or one without any."""
    values = [] if objective is None else [objective - 1, objective]
    return made_up_trial(f"{number:04}", values, point=point, epochs=2, state=state)


def on_a_line(state: State = "finished", count: int = 30) -> list[Trial]:
    """Return trials evenly spread over [0, 1], whose objective falls with the distance from ``BEST``."""
    points = [(i + 0.5) / count for i in range(count)]
    return [trial(i, {"x": x}, -abs(x - BEST), state) for i, x in enumerate(points)]


def tpe(trials: list[Trial], count: int = 40, first: int = 100, **other: Any) -> list[float]:
    """Return what TPE proposes for each of ``count`` numbers that all know the same ``trials``."""
    space = space_of(LINE)
    numbers = range(first, first + count)
    return [
        suggest(space, "tpe", seed=1, number=number, trials=trials, default=None, **other)["x"] for number in numbers
    ]


def median_distance(values: list[float], place: float = BEST) -> float:
    return statistics.median(abs(value - place) for value in values)


@pytest.mark.parametrize("search", ["tpe", "random"])
def test_the_first_trial_is_the_default(search):
    default = {"x": 0.123}
    assert suggest(space_of(LINE), search, seed=0, number=0, trials=[], default=default) == default
    assert suggest(space_of(LINE), search, seed=0, number=1, trials=[], default=default) != default


def test_a_grid_is_walked_in_turn_and_ends():
    space = space_of(EVERY_KIND)
    walked = [suggest(space, "grid", seed=0, number=i, trials=[], default={"x": 0.1}) for i in range(space.grid_size)]
    assert walked == [space.grid_point(i) for i in range(space.grid_size)]
    with pytest.raises(IndexError):
        suggest(space, "grid", seed=0, number=space.grid_size, trials=[], default=None)


def draws(name: str, count: int, seed: int = 0) -> list[float]:
    space = space_of({"x": {"uniform": [0, 1]}, "y": {"uniform": [0, 1]}})
    return [suggest(space, "random", seed=seed, number=i, trials=[], default=None)[name] for i in range(count)]


def test_random_points_are_uniform_and_one_parameter_more_leaves_those_of_the_others_as_they_were():
    count = 1000
    ordered = sorted(draws("x", count))
    distance = max(max(abs(x - i / count), abs(x - (i + 1) / count)) for i, x in enumerate(ordered))
    assert distance < 1.63 / math.sqrt(count)  # Kolmogorov and Smirnov at one per cent
    x = draws("x", 20)
    assert [suggest(space_of(LINE), "random", seed=0, number=i, trials=[], default=None)["x"] for i in range(20)] == x


@pytest.mark.parametrize("other", [("y", 0), ("x", 1)])
def test_random_points_of_different_parameters_and_seeds_do_not_correlate(other):
    count = 1000
    assert abs(statistics.correlation(draws("x", count), draws(other[0], count, other[1]))) < 3 / math.sqrt(count)


@pytest.mark.parametrize("search", ["tpe", "random"])
def test_suggestions_lie_in_the_box_whatever_the_kind_of_range(search):
    space = space_of(EVERY_KIND)
    trials: list[Trial] = []
    for number in range(25):
        point = suggest(space, search, seed=3, number=number, trials=trials, default=None)
        expected = {name: value if value == "x" else pytest.approx(value, rel=1e-11) for name, value in point.items()}
        assert space.point_of(space.settings(point)) == expected
        trials.append(trial(number, point, point["a.share"]))


def test_a_suggestion_depends_on_what_is_known_and_not_on_its_order():
    trials = on_a_line()
    assert tpe(trials, 5) == tpe(trials[::-1], 5)
    assert tpe(trials, 5) == tpe(trials, 5)
    assert tpe(trials, 5) != tpe(trials[:-10], 5)


def test_tpe_begins_at_random():
    trials = on_a_line()[: STARTUP - 1]
    running = [trial(50, {"x": 0.5}, state="running"), trial(51, {"x": 0.5}, state="failed")]
    numbers = range(100, 105)
    randomly = [suggest(space_of(LINE), "random", seed=1, number=i, trials=[], default=None)["x"] for i in numbers]
    assert tpe(trials + running, 5) == randomly
    assert tpe([*trials, trial(52, {"x": 0.5}, 0.0)], 5) != randomly


@pytest.mark.parametrize("state", ["finished", "stopped"])
def test_tpe_comes_closer_to_the_best_than_random_points(state):
    assert median_distance(tpe(on_a_line(state))) < 0.5 * median_distance(draws("x", 40))


@pytest.mark.parametrize(("best", "least", "most"), [(0.0, 0.9, 1.0), (0.12, 0.0, 0.2), (0.3, 0.0, 0.0)])
def test_tpe_tells_off_from_small_values(best, least, most):
    space = space_of({"x": {"uniform": [0.1, 0.9], "also": 0.0}})
    points = [0.0 if i % 4 == 0 else 0.1 + 0.8 * i / 40 for i in range(40)]
    known = [trial(i, {"x": x}, -abs(x - best) - ((x == 0) != (best == 0))) for i, x in enumerate(points)]
    found = [suggest(space, "tpe", seed=1, number=i, trials=known, default=None)["x"] for i in range(100, 130)]
    assert all(x == 0 or 0.1 <= x <= 0.9 for x in found)
    assert least <= sum(x == 0 for x in found) / len(found) <= most


def test_tpe_prefers_finished_trials_to_stopped_ones_that_promised_more():
    stopped = [replace(one, number=one.number + 30) for one in on_a_line("stopped")]  # best at 0.3
    finished = [trial(i, {"x": x}, -10.0) for i, x in enumerate([0.78, 0.79, 0.8, 0.81, 0.82])]
    assert median_distance(tpe(finished + stopped), 0.8) < median_distance(tpe(finished + stopped), BEST)


def flat_with_a_cliff(state: State, reason: str = "", objective: float | None = None) -> list[Trial]:
    """Return trials on [0, 1]: those above 0.5 in ``state``, the others equally good."""
    places = [(i, (i + 0.5) / 30) for i in range(30)]
    return [
        trial(i, {"x": x}, 0.5) if x < 0.5 else replace(trial(i, {"x": x}, objective, state), reason=reason)
        for i, x in places
    ]


def test_tpe_avoids_where_trials_diverged_and_keeps_away_from_those_that_still_run():
    beyond = [x > 0.5 for x in tpe(flat_with_a_cliff("diverged"))]
    beyond_unknown = [x > 0.5 for x in tpe(flat_with_a_cliff("failed", "disk full"))]
    assert sum(beyond) < 0.15 * len(beyond)
    assert sum(beyond_unknown) > 2 * sum(beyond)
    assert median_distance(tpe(on_a_line() + RUNNING)) > 1.5 * median_distance(tpe(on_a_line()))


RUNNING = [trial(50 + i, {"x": BEST + 0.001 * i}, state="running") for i in range(10)]


CLIFF = flat_with_a_cliff("failed", "disk full")


@pytest.mark.parametrize(
    ("known", "like"),
    [
        # of a stopped trial the last measurement counts
        ([replace(one, curve={**one.curve, 1: Epoch(5.0, 1.0)}) for one in on_a_line("stopped")], on_a_line("stopped")),
        # running out of memory, or measuring no number, is like diverging; any other failure says nothing
        (flat_with_a_cliff("failed", "CUDA out of memory. Tried to allocate 2 GiB"), flat_with_a_cliff("diverged")),
        *(
            (flat_with_a_cliff(state, objective=bad), flat_with_a_cliff("diverged"))
            for state in ("finished", "stopped")
            for bad in (math.nan, None)
        ),
        (CLIFF, [one for one in CLIFF if one.state != "failed"]),
        # trials that will run are like running ones
        *(
            ([*on_a_line(), *(replace(one, state=state) for one in RUNNING)], on_a_line() + RUNNING)
            for state in ("waiting", "interrupted")
        ),
        # confirming trials, and the trial itself, say nothing
        ([*on_a_line(), replace(trial(7, {"x": 0.9}, 9.0), kind="confirm"), trial(100, {"x": 0.9}, 9.0)], on_a_line()),
    ],
)
def test_what_trials_teach(known, like):
    assert tpe(known, 1) == tpe(like, 1)


def test_an_earlier_sweep_teaches_as_trials_of_this_one_would():
    earlier = [(one.point, -abs(one.point["x"] - BEST)) for one in on_a_line()]
    assert tpe([], 5, earlier=earlier) == tpe(on_a_line(), 5)


def test_optuna_says_nothing_and_its_log_level_stays_as_it_was(caplog):
    with caplog.at_level(logging.INFO, logger="optuna"):
        tpe(on_a_line(), 1)
        assert (caplog.messages, logging.getLogger("optuna").level) == ([], logging.INFO)

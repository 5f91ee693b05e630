"""Who stops when: against Ray Tune's own schedulers, the papers' rules as slow loops, and limits."""

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import partial
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

import pytest
from made_up_trials import made_up_trial

from ebclab.reports.plots import ENDS, ending
from ebclab.sweeps.log import Epoch, Trial
from ebclab.sweeps.policies.stopping import REASONS, StopRules, asha, collapsed, decide, diverged, median, plateau
from ebclab.sweeps.request import Scheduler, SweepRequest

Curve = dict[int, float]
ASHA = {"grace_epochs": 1, "reduction_factor": 3, "max_epochs": 27}


@dataclass(frozen=True)
class RayTrial:
    """As much of a Ray trial as its schedulers read."""

    trial_id: int


def stops_like_rays(
    num_trials: int, epochs: int, ours: Callable[[Curve, list[Curve]], str | None], theirs: Callable[[], Any]
) -> int:
    """Tell both rules the same values, each trial's epochs in order and the trials mixed; return how many they stop."""
    stops = 0
    for seed in range(40):
        rng, rays = random.Random(seed), theirs()
        curves: list[Curve] = [{} for _ in range(num_trials)]
        over: set[int] = set()
        turns = [number for number in range(num_trials) for _ in range(epochs)]
        rng.shuffle(turns)
        for number in turns:
            value = rng.random()
            if number in over:
                continue
            epoch = len(curves[number]) + 1
            curves[number][epoch] = value
            reason = ours(curves[number], curves[:number] + curves[number + 1 :])
            assert (reason is not None) == rays(number, epoch, value), (seed, number, epoch)
            if reason:
                over.add(number)
        stops += len(over)
    return stops


@pytest.mark.parametrize(("grace", "factor"), [(1, 3), (1, 2), (2, 3), (1, 4), (3, 2), (12, 3)])
def test_asha_stops_the_same_trials_as_ray_tunes_own(grace: int, factor: int) -> None:
    from ray.tune.schedulers.async_hyperband import _Bracket

    def theirs() -> Callable[[int, int, float], bool]:
        bracket = _Bracket(grace, 12, factor, 0)  # with max_t at the budget, Ray has a rung in the last epoch too
        return lambda number, epoch, value: epoch < 12 and bracket.on_result(RayTrial(number), epoch, value) == "STOP"

    rule = partial(asha, grace_epochs=grace, reduction_factor=factor, max_epochs=12)
    assert (stops_like_rays(15, 12, rule, theirs) > 0) == (grace < 12)


def test_the_median_rule_stops_the_same_trials_as_ray_tunes_own() -> None:
    from ray.tune.schedulers import MedianStoppingRule

    nobody_waits = SimpleNamespace(get_live_trials=list)

    def theirs() -> Callable[[int, int, float], bool]:
        rule = MedianStoppingRule("epoch", "score", "max", grace_period=1, min_samples_required=3)
        names = [RayTrial(number) for number in range(9)]
        return lambda number, epoch, value: (
            rule.on_trial_result(nobody_waits, names[number], {"epoch": epoch, "score": value}) == "STOP"
        )

    assert stops_like_rays(9, 6, partial(median, grace_epochs=1, min_others=3), theirs) > 0


LOW = dict.fromkeys(range(1, 9), 0.1)
SOME = [{2: 0.9, 4: 0.9, 6: 0.9}]
ALL = [dict.fromkeys(range(1, 28), 0.9)]
TENTHS = [{1: value / 10} for value in range(10)]  # 0.0 ... 0.9: nine thirds between ten, the bound lies at 0.6


@pytest.mark.parametrize(
    ("own", "others", "reason"),
    [
        ({1: 0.6}, TENTHS, None),
        ({1: 0.599}, TENTHS, "rung 1: 0.599 is below 0.6, the best third of 10 others"),
        ({1: 0.6, 2: 0.1}, [{1: 0.5, 2: 0.9}], None),  # 2 is no rung
        ({1: 0.6, 2: 0.1, 3: 0.1}, [{1: 0.5, 3: 0.9}], "rung 3: 0.1 is below 0.9, the only other"),
        ({1: 0.6, 2: 0.1, 3: 0.1, 4: 0.1}, ALL, None),  # its rung is behind it
        ({3: 0.1}, [{1: 0.9, 2: 0.9}], None),  # nobody has been there
        # restarted or not, the log holds all epochs up to 5 and then 8: rungs 1 and 3 are past, 9 is next
        (dict.fromkeys(range(1, 6), 0.1), ALL, None),
        (LOW, ALL, None),
        ({**LOW, 9: 0.1}, ALL, "rung 9: 0.1 is below 0.9, the only other"),
        # a rung is judged in the first epoch measured after it
        ({2: 0.1}, SOME, "rung 1: 0.1 is below 0.9, the only other"),
        ({2: 0.9, 4: 0.1}, SOME, "rung 3: 0.1 is below 0.9, the only other"),
        ({2: 0.9, 4: 0.9, 6: 0.1}, SOME, None),  # no rung between 4 and 6
        # the first, an equal one, one beside no number, and the last epoch
        ({1: 0.0}, [], None),
        ({}, [{1: 1.0}], None),
        ({1: 0.5}, [{1: 0.5}] * 7, None),
        ({1: 0.5}, [{1: math.nan}], None),
        ({27: 0.0}, [{27: 1.0}], None),
    ],
)
def test_asha_judges_once_at_each_rung_by_values_of_the_same_epoch(own, others, reason):
    assert asha(own, others, **ASHA) == reason


@pytest.mark.parametrize(("grace", "factor"), [(0, 3), (1, 1)])
def test_rungs_that_would_never_rise_are_refused(grace: int, factor: int) -> None:
    with pytest.raises(ValueError, match="rungs do not rise"):
        asha({1: 0.5}, [], grace_epochs=grace, reduction_factor=factor, max_epochs=9)


def test_the_median_rule_compares_the_best_with_means_of_those_that_came_so_far() -> None:
    # means 0.3, 0.5, 0.7; one behind
    others = [{1: 0.2, 2: 0.4}, {1: 0.4, 2: 0.6, 3: 0.9}, {1: 0.6, 2: 0.8}, {1: 0.99}]
    assert median({1: 0.5, 2: 0.1}, others, grace_epochs=1, min_others=3) is None
    reason = "epoch 2: its best, 0.49, is below 0.5, the median of 3 others"
    assert median({1: 0.49, 2: 0.1}, others, grace_epochs=1, min_others=3) == reason
    assert median({1: 0.49, 2: 0.1}, others, grace_epochs=3, min_others=3) is None
    assert median({1: 0.49, 2: 0.1}, others, grace_epochs=1, min_others=4) is None
    assert median({}, [], grace_epochs=0, min_others=0) is None


def test_a_plateau_is_a_window_whose_best_gains_no_more_than_asked() -> None:
    own = {1: 0.5, 2: 0.75, 3: 0.625, 4: 0.75}
    assert plateau(own, patience_epochs=2, min_change=0.0) == "no gain in 2 epochs: 0.75 after 0.75"
    assert plateau(own, patience_epochs=3, min_change=0.0) is None  # 0.75 after 0.5
    assert plateau(own, patience_epochs=3, min_change=0.25) is not None
    assert plateau(own, patience_epochs=4, min_change=1.0) is None  # nothing before the window
    assert plateau(own, patience_epochs=0, min_change=1.0) is None
    assert plateau({2: 0.5, 8: 0.5}, patience_epochs=6, min_change=0.0) is not None  # epochs count, not measurements


@pytest.mark.parametrize("name", ["effective_rank", "embedding_spread"])
def test_a_collapse_must_last(name: str) -> None:
    limits = {"min_effective_rank": 1.5, "min_spread": 1.5, "patience_epochs": 3}
    healthy, sick = {name: 1.5}, {name: 1.0}
    assert collapsed({1: sick, 2: sick}, **limits) is None
    assert collapsed({1: sick, 2: sick, 3: sick}, **limits) == f"collapsed: {name} 1, below 1.5 for 3 epochs"
    assert collapsed({1: sick, 2: healthy, 3: sick, 4: sick}, **limits) is None
    assert collapsed({1: sick, 2: sick, 3: sick, 4: healthy}, **limits) is None
    assert collapsed({1: healthy, 3: sick, 4: sick}, **limits) is not None  # epoch 2 was not measured
    assert collapsed({1: {}, 2: {}, 3: {}, 4: {"info_nce": 0.0}}, **limits) is None
    in_warmup = dict.fromkeys(range(1, 5), sick)
    assert collapsed(in_warmup, **limits, after=2) is None
    assert collapsed({**in_warmup, 5: sick}, **limits, after=2) == f"collapsed: {name} 1, below 1.5 for 3 epochs"
    assert collapsed({1: sick, 2: sick, 3: sick}, min_effective_rank=0, min_spread=0, patience_epochs=1) is None


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_metric_that_is_no_finite_number_has_diverged(value: float) -> None:
    assert diverged({1: {"info_nce": value}}, max_energy_ratio=0) == f"diverged: info_nce is {value} after epoch 1"
    assert diverged({1: {"info_nce": value}, 2: {"info_nce": 1.0}}, max_energy_ratio=0) is None  # it went on


@pytest.mark.parametrize("name", ["energy_data", "energy_chains", "energy_gap"])
def test_energies_are_judged_by_the_trials_own_first_epochs(name: str) -> None:
    def judge(*values: float) -> str | None:
        return diverged({at: {name: value} for at, value in enumerate(values, start=1)}, max_energy_ratio=100)

    assert judge(5.0, -20.0, 2000.0) is None
    assert judge(5.0, -20.0, 2001.0) == f"diverged: {name} 2e+03, over 100 times the 20 of the start"
    assert judge(5.0, -20.0, -2001.0) is not None
    assert judge(0.0, 1e-6, 100.0) is None  # below a nat nothing is large
    assert judge(0.0, 1e-6, 101.0) is not None
    assert judge(1.0, 1e9) is None  # the first two set the scale
    assert judge(5.0, -20.0, 1e9, 3.0) is None
    assert diverged({1: {name: 1.0}, 2: {name: 1.0}, 3: {name: 1e9}}, max_energy_ratio=0) is None


def test_a_sweep_stops_for_the_first_reason_in_the_stated_order() -> None:
    bad = made_up_trial("1", [0.5, 0.1, 0.1])
    for point in bad.curve.values():
        point.metrics.update(effective_rank=1.0, energy_gap=1.0)
    good = [made_up_trial(name, [0.9, 0.9, 0.9]) for name in "234"]
    rules = StopRules(grace_epochs=3, plateau_epochs=2)
    assert decide(bad, good, rules) == "collapsed: effective_rank 1, below 1.5 for 3 epochs"
    bad.curve[3].metrics["energy_gap"] = 1e9
    assert str(decide(bad, good, rules)).startswith("diverged: energy_gap")
    bad.curve[3].metrics.update(energy_gap=1.0, effective_rank=9.0)
    assert str(decide(bad, good, rules)).startswith("rung 3")
    assert str(decide(bad, good, StopRules("median", grace_epochs=3, plateau_epochs=2))).startswith("epoch 3: its best")
    for scheduler in ("pbt", "none"):
        assert str(decide(bad, good, StopRules(scheduler, plateau_epochs=2))).startswith("no gain")
        assert decide(bad, good, StopRules(scheduler)) is None


def test_the_objective_itself_may_diverge() -> None:
    assert decide(made_up_trial("1", [0.5, math.nan]), [], StopRules()) == "diverged: objective is nan after epoch 2"


def test_confirming_trials_neither_stop_for_a_comparison_nor_take_part_in_one() -> None:
    rules = StopRules(grace_epochs=2, plateau_epochs=1)
    good = [made_up_trial("2", [0.9, 0.9]), made_up_trial("3", [0.9, 0.9])]
    confirming = made_up_trial("c", [0.1, 0.1], kind="confirm")
    assert decide(confirming, good, rules) is None
    confirming.curve[2].metrics["info_nce"] = math.nan
    assert decide(confirming, good, rules) is not None
    better = [made_up_trial("c", [0.9, 0.9], kind="confirm")]
    assert decide(made_up_trial("1", [0.1, 0.2]), good, rules) is not None
    assert decide(made_up_trial("1", [0.1, 0.2]), better, rules) is None


def test_a_trial_is_no_rival_of_itself_and_finishes_in_its_last_epoch() -> None:
    own = made_up_trial("1", [0.1])
    assert decide(own, [own, made_up_trial("1", [0.9])], StopRules(grace_epochs=1)) is None
    last = made_up_trial("1", [0.1, math.nan], epochs=2)
    assert decide(last, [made_up_trial("2", [0.9, 0.9])], StopRules(grace_epochs=2)) is None


@pytest.mark.parametrize("scheduler", ["asha", "median"])
def test_a_decision_made_again_knows_what_was_known_when_the_epoch_was_measured(scheduler: Any) -> None:
    rules = StopRules(scheduler=scheduler, grace_epochs=1, min_others=1)
    own = made_up_trial("0", [])
    own.curve[1] = Epoch(0.5, 1.0, place=1)
    before, after = made_up_trial("1", []), made_up_trial("2", [])
    before.curve[1], after.curve[1] = Epoch(0.4, 1.0, place=0), Epoch(0.9, 1.0, place=2)
    assert decide(own, [before, after], rules) is None
    before.curve[1] = Epoch(0.6, 1.0, place=0)
    assert decide(own, [before, after], rules) is not None


class Watched(Trial):
    """A trial that counts how often its curve is asked for."""

    asked = 0

    def objectives_by(self, place: int) -> dict[int, float]:
        Watched.asked += 1
        return super().objectives_by(place)


@pytest.mark.parametrize(("scheduler", "epochs_that_compare"), [("asha", 2), ("median", 6), ("pbt", 0), ("none", 0)])
def test_curves_of_others_are_read_only_where_they_are_compared(scheduler: Any, epochs_that_compare: int) -> None:
    # Of 9 epochs, asha compares at 3 and (factor 2) 6; median from 3 on; the last epoch ends the trial anyway.
    other = Watched("1", "search", 1, {}, {}, 0, 9, curve={epoch: Epoch(0.0, 1.0) for epoch in range(1, 10)})
    rules = StopRules(scheduler=scheduler, grace_epochs=3, reduction_factor=2, min_others=1)
    Watched.asked = 0
    for epochs_done in range(1, 10):
        decide(made_up_trial("0", [0.5] * epochs_done, epochs=9), [other], rules)
    assert Watched.asked == epochs_that_compare


def test_without_a_number_comparison_begins_after_a_fifth_of_the_budget() -> None:
    assert [StopRules().grace(epochs) for epochs in (1, 4, 10, 200)] == [1, 1, 2, 40]
    assert StopRules(grace_epochs=3).grace(200) == 3


BAD, GOOD = made_up_trial("1", [0.5, 0.1, 0.1]), [made_up_trial(name, [0.9, 0.9, 0.9]) for name in "234"]
OF_RULES = {  # settings of each rule by how a page names its end, and rules by which BAD ends so among GOOD
    "below the others at a rung": (("grace_epochs", "reduction_factor"), StopRules("asha", grace_epochs=3)),
    "below the median": (("grace_epochs", "min_others"), StopRules("median", grace_epochs=3)),
    "no gain": (("plateau_epochs", "plateau_min_change"), StopRules("none", plateau_epochs=2)),
}
OF_HEALTH = {"min_effective_rank", "min_spread", "collapse_epochs", "max_energy_ratio"}
STOP_NONE = {"pbt", "none"}
DOCS = (Path(__file__).parents[4] / "docs" / "sweeps.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("end", OF_RULES)
def test_a_page_knows_by_which_rule_a_trial_ended_and_that_such_rules_may_end_a_healthy_one(end: str) -> None:
    _, rules = OF_RULES[end]
    reason = str(decide(BAD, GOOD, rules))
    assert any(reason.startswith(start) for start in REASONS), f"REASONS in policies/stopping.py knows none: {reason}"
    assert ending(replace(BAD, state="stopped", reason=reason)) == end
    assert set(REASONS.values()) <= set(ENDS), "ENDS in reports/plots.py must have the look of each"
    untried = set(REASONS.values()) - {*OF_RULES, "collapsed", "diverged"}
    assert not untried, f"OF_RULES in this file lacks {untried}"
    assert rules.stops_early, "StopRules.stops_early must say so"


@pytest.mark.parametrize("name", [field.name for field in fields(StopRules)])
def test_a_setting_of_stopping_belongs_to_a_rule_and_is_in_the_docs(name: str) -> None:
    known = {"scheduler", *OF_HEALTH, *chain.from_iterable(names for names, _ in OF_RULES.values())}
    assert name in known, f"{name}: add its rule to OF_RULES in this file, which tries it"
    assert f"{'--' if name == 'scheduler' else '`'}{name}" in DOCS, f"{name}: docs/sweeps.md must say what it does"


@pytest.mark.parametrize("scheduler", get_args(Scheduler))
def test_a_scheduler_is_tried_and_told(scheduler: str) -> None:
    tried = {rules.scheduler for _, rules in OF_RULES.values()}
    helps = [next(each for each in fields(kind) if each.name == "scheduler") for kind in (StopRules, SweepRequest)]
    missing = {
        "OF_RULES or STOP_NONE in this file": scheduler in tried | STOP_NONE,
        "docs/sweeps.md": scheduler == "none" or f"--scheduler {scheduler}" in DOCS,
        "the help of StopRules.scheduler": f"{scheduler}:" in helps[0].metadata["doc"],
        "the help of SweepRequest.scheduler": scheduler in helps[1].metadata["doc"],
    }
    lacking = [place for place, is_there in missing.items() if not is_there]
    assert not lacking, f"still to come: {'; '.join(lacking)}"

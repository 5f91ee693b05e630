"""Where trials come from: the search in its order, and the best settings again with other seeds."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from ebclab.evaluation.answers import Answers
from ebclab.evaluation.seeds_and_images import mean_interval
from ebclab.sweeps.log import SweepLog
from ebclab.sweeps.plan import SweepPlan
from ebclab.sweeps.proposals import (
    ConfirmProposals,
    SearchProposals,
    confirmed_settings,
    ranked,
)
from ebclab.sweeps.results import BASELINE
from ebclab.sweeps.space.check import own_settings
from ebclab.sweeps.trial import Epoch, State, Trial

Plans = Callable[..., SweepPlan]
OWN = {"optimizer.learning_rate": 0.06, "method.temperature": 0.2}


def trial(number: int, objective: float, *, state: State = "finished", epochs_done: int = 4, **changes: Any) -> Trial:
    curve = {epoch: Epoch(objective, float(epoch)) for epoch in range(1, epochs_done + 1)}
    settings = {"optimizer.learning_rate": 0.001 * (number + 1), "method.temperature": 0.5}
    facts: dict[str, Any] = {"kind": "search", "number": number, "point": settings, "settings": settings, "seed": 0}
    return Trial(**{"id": f"{number:04d}", "epochs": 4, "state": state, "curve": curve, **facts, **changes})


def write(log: SweepLog, *trials: Trial) -> SweepLog:
    for one in trials:
        facts = {name: getattr(one, name) for name in ("kind", "number", "point", "settings", "seed", "epochs")}
        log.append("trial", trial=one.id, **facts)
        for epoch, point in one.curve.items():
            log.append("epoch", trial=one.id, epoch=epoch, objective=point.objective, seconds=1.0, metrics={})
        if one.answers is not None:
            log.append("answered", trial=one.id, **one.answers.to_mapping())
        if one.is_over:
            log.append("ended", trial=one.id, state=one.state, reason="", seconds=1.0)
    return log


@pytest.fixture
def log(tmp_path: Path) -> SweepLog:
    """A log of four finished trials; 2 is the best, then 0, 3, 1."""
    values = [0.7, 0.5, 0.9, 0.6]
    return write(SweepLog(tmp_path / "trials.jsonl"), *(trial(number, value) for number, value in enumerate(values)))


def proposed(proposals: ConfirmProposals | SearchProposals) -> list[Trial]:
    found: list[Trial] = []
    while proposals.left(found):
        found.append(proposals.propose(found))
    return found


def test_finished_trials_rank_by_their_last_value_and_above_all_stopped_ones() -> None:
    trials = [
        trial(0, 0.5),
        trial(1, 0.6),
        trial(2, 0.9, state="stopped", epochs_done=1),
        trial(3, 0.1, state="stopped", epochs_done=3),
        trial(4, 0.2, state="stopped", epochs_done=3),
    ]
    assert [one.number for one in ranked(trials)] == [1, 0, 4, 3, 2]
    assert [one.number for one in ranked(trials[::-1])] == [1, 0, 4, 3, 2]


def test_a_finished_trial_that_measured_no_number_ranks_below_all_others() -> None:
    trials = [trial(0, math.nan), trial(1, 0.1, state="stopped", epochs_done=1), trial(2, 0.5)]
    assert [one.number for one in ranked(trials)] == [2, 1, 0]


def test_settings_that_the_search_tried_again_are_confirmed_once(tmp_path: Path, sweep_plan: Plans) -> None:
    values = [0.9, 0.8, 0.7, 0.6]
    trials = [trial(number, value) for number, value in enumerate(values)]
    trials[1].settings = dict(trials[0].settings)
    log = write(SweepLog(tmp_path / "again.jsonl"), *trials)
    proposals = ConfirmProposals(sweep_plan(top=3, seeds=2, baseline=False), log)
    assert list(proposals.settings) == ["0000", "0002", "0003"]


def test_of_equal_trials_the_first_ranks_first_whatever_the_order() -> None:
    trials = [trial(number, 0.5) for number in range(4)]
    assert [one.number for one in ranked(trials[::-1])] == [0, 1, 2, 3]


def test_trials_without_a_value_and_those_that_failed_or_diverged_have_no_rank() -> None:
    states: tuple[State, ...] = ("failed", "diverged")
    assert ranked([trial(0, 0.5, epochs_done=0), *(trial(1, 0.9, state=state) for state in states)]) == []


def test_trials_that_the_end_of_the_time_interrupted_rank_among_the_stopped_ones() -> None:
    trials = [trial(0, 0.1), trial(1, 0.9, state="interrupted", epochs_done=3), trial(2, 0.5, state="stopped")]
    assert [one.number for one in ranked(trials)] == [0, 2, 1]


@pytest.mark.parametrize("bad", [math.nan, -math.inf])
def test_a_value_that_is_no_number_ranks_last(bad: float) -> None:
    trials = [trial(0, bad), trial(1, 0.5), trial(2, bad), trial(3, 0.9), trial(4, bad), trial(5, 0.7)]
    for rotation in range(len(trials)):
        order = [one.number for one in ranked(trials[rotation:] + trials[:rotation])]
        assert order[:3] == [3, 5, 1]


def test_the_search_begins_with_the_runs_own_settings(sweep_plan: Plans) -> None:
    plan = sweep_plan(trials=3, search="random")
    first, *others = proposed(SearchProposals(plan))
    assert (first.id, first.point, first.settings) == ("0000", OWN, OWN)
    assert [one.id for one in others] == ["0001", "0002"]
    assert all((one.kind, one.seed, one.epochs, one.state) == ("search", 0, 6, "waiting") for one in [first, *others])


def test_after_an_earlier_sweep_the_search_begins_with_its_best_point(sweep_plan: Plans) -> None:
    points = [{"optimizer.learning_rate": 10.0**-power, "method.temperature": 0.25} for power in (2, 3, 4)]
    earlier = list(zip(points, [0.2, 0.9, 0.3], strict=True))
    assert SearchProposals(sweep_plan(trials=3), earlier).propose([]).point == points[1]


def test_a_trial_whose_line_was_lost_leaves_its_number_and_takes_nobody_elses(sweep_plan: Plans) -> None:
    proposals = SearchProposals(sweep_plan(trials=5, search="random"))
    trials = [one for one in proposed(proposals) if one.number != 2]
    assert proposals.left(trials) == 1
    assert proposals.propose(trials).id not in {one.id for one in trials}


def test_the_best_and_the_starting_settings_are_run_with_seeds_the_search_did_not_use(
    sweep_plan: Plans, log: SweepLog
) -> None:
    plan = sweep_plan("seed=7", trials=4, epochs=4, top=2, seeds=2)
    trials = proposed(ConfirmProposals(plan, log))
    assert [(one.id, one.seed, one.number) for one in trials] == [
        ("confirm-0002-seed8", 8, 0),
        ("confirm-0002-seed9", 9, 0),
        ("confirm-0000-seed8", 8, 1),
        ("confirm-0000-seed9", 9, 1),
        (f"confirm-{BASELINE}-seed8", 8, 2),
        (f"confirm-{BASELINE}-seed9", 9, 2),
    ]
    assert {(one.kind, one.epochs) for one in trials} == {("confirm", 6)}  # the full budget
    assert trials[0].settings == log.trials["0002"].settings
    assert trials[4].settings == OWN == own_settings(plan.space, plan.config)


def test_the_starting_settings_are_not_run_twice_when_they_are_among_the_best(sweep_plan: Plans, log: SweepLog) -> None:
    plan = sweep_plan(trials=5, top=2, seeds=1)
    write(log, trial(4, 0.8, settings=OWN, point=OWN))
    assert list(ConfirmProposals(plan, log).settings) == ["0002", "0004"]
    assert list(ConfirmProposals(replace(plan, top=1), log).settings) == ["0002", BASELINE]


@pytest.mark.parametrize("changes", [{"top": 0}, {"top": 0, "baseline": True, "seeds": 3}])
def test_nothing_is_confirmed_when_nothing_is_asked_for(
    sweep_plan: Plans, log: SweepLog, changes: dict[str, Any]
) -> None:
    proposals = ConfirmProposals(sweep_plan(trials=4, **changes), log)
    assert proposed(proposals) == []
    assert proposals.results(log) == {}


def test_without_the_baseline_only_the_best_are_confirmed(sweep_plan: Plans, log: SweepLog) -> None:
    plan = sweep_plan(trials=4, top=1, seeds=2, baseline=False)
    assert [one.id for one in proposed(ConfirmProposals(plan, log))] == ["confirm-0002-seed1", "confirm-0002-seed2"]


def test_when_the_search_grows_confirmed_runs_keep_their_names_and_those_of_worse_settings_no_longer_count(
    sweep_plan: Plans, log: SweepLog
) -> None:
    plan = sweep_plan(trials=4, top=2, seeds=1, baseline=False)
    before = proposed(ConfirmProposals(plan, log))
    write(log, *(replace(one, state="finished", curve={6: Epoch(0.8, 1.0)}) for one in before))
    write(log, trial(4, 0.95))
    grown = ConfirmProposals(replace(plan, trials=5), log)
    assert [one.id for one in proposed(grown)] == ["confirm-0004-seed1", "confirm-0002-seed1"]
    done = [one for one in log.of_kind("confirm") if grown.includes(one)]
    assert [one.id for one in done] == ["confirm-0002-seed1"]
    assert grown.left(done) == 1
    assert grown.propose(done).id == "confirm-0004-seed1"
    found = {source: [one.seed for one in trials] for source, trials in grown.results(log).items()}
    assert found == {"0004": [], "0002": [1]}


def test_only_finished_confirming_runs_give_a_result(sweep_plan: Plans, log: SweepLog) -> None:
    plan = sweep_plan(trials=4, top=1, seeds=3, baseline=False)
    proposals = ConfirmProposals(plan, log)
    states: list[State] = ["finished", "stopped", "failed"]
    runs = zip(proposed(proposals), states, strict=True)
    write(log, *(replace(one, state=state, curve={5: Epoch(0.9, 1.0), 6: Epoch(0.8, 2.0)}) for one, state in runs))
    assert [one.seed for one in proposals.results(log)["0002"]] == [1]
    (confirmed,) = confirmed_settings(plan, log)
    assert (confirmed.source, confirmed.seeds, confirmed.values, confirmed.seeds_asked) == ("0002", (1,), (0.8,), 3)
    assert confirmed.settings == log.trials["0002"].settings


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_confirming_run_that_ended_in_no_number_is_none_of_the_seeds(
    sweep_plan: Plans, log: SweepLog, bad: float
) -> None:
    plan = sweep_plan(trials=4, top=1, seeds=3, baseline=False)
    for one, value in zip(proposed(ConfirmProposals(plan, log)), (0.8, bad, 0.9), strict=True):
        write(log, replace(one, state="finished", curve={6: Epoch(value, 1.0)}))
    (confirmed,) = confirmed_settings(plan, log)
    assert (confirmed.seeds, confirmed.values) == ((1, 3), (0.8, 0.9))


def test_confirmed_settings_have_the_intervals_of_all_that_were_compared(sweep_plan: Plans, log: SweepLog) -> None:
    """Three sets of settings: each mean misses with a third of 5 %, over the seeds and the images of its answers."""
    plan = sweep_plan(trials=4, top=2, seeds=2)
    draw = torch.Generator().manual_seed(0)
    tables: dict[str, list[torch.Tensor]] = {}
    for one in proposed(ConfirmProposals(plan, log)):
        right = torch.rand(1, 50, generator=draw) < 0.8
        tables.setdefault(one.id.split("-")[1], []).append(right)
        last = Epoch(right.double().mean().item(), 1.0)
        answers = Answers.of(right, torch.arange(50))
        write(log, replace(one, state="finished", curve={6: last}, answers=answers))
    for entry in confirmed_settings(plan, log):
        expected = mean_interval(torch.cat(tables[entry.source]).double().numpy(), 0.05 / 3)
        assert (entry.low, entry.high) == pytest.approx(expected, abs=1e-12)
        assert (entry.images, len(entry.answers)) == (50, 2)

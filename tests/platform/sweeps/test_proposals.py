"""Where trials come from: the search in its order, and the best settings again with other seeds."""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from made_up_trials import made_up_trial, write

from ebclab.evaluation.answers import Answers
from ebclab.evaluation.seeds_and_images import mean_interval
from ebclab.sweeps.log import Epoch, State, SweepLog, Trial
from ebclab.sweeps.plan import SweepPlan
from ebclab.sweeps.results import BASELINE, confirmed_settings, ranked, to_confirm
from ebclab.sweeps.scheduler import ConfirmProposals, SearchProposals
from ebclab.sweeps.space.check import own_settings

Plans = Callable[..., SweepPlan]
OWN = {"optimizer.learning_rate": 0.06, "method.temperature": 0.2}


def trial(number: int, objective: float, *, state: State = "finished", epochs_done: int = 4, **changes: Any) -> Trial:
    settings = {"optimizer.learning_rate": 0.001 * (number + 1), "method.temperature": 0.5}
    facts = {"epochs": 4, "state": state, "point": settings, "settings": settings}
    return made_up_trial(f"{number:04d}", [objective] * epochs_done, **facts | changes)


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


@pytest.mark.parametrize(
    ("trials", "expected"),
    [
        # finished ones first, then the others by epochs done, interrupted ones among them
        (
            [
                trial(0, 0.5),
                trial(1, 0.6),
                trial(2, 0.9, state="stopped", epochs_done=1),
                trial(3, 0.1, state="interrupted", epochs_done=3),
                trial(4, 0.2, state="stopped", epochs_done=3),
            ],
            [1, 0, 4, 3, 2],
        ),
        ([trial(0, math.nan), trial(1, 0.1, state="stopped", epochs_done=1), trial(2, 0.5)], [2, 1, 0]),
        ([trial(0, -math.inf), trial(1, 0.5), trial(2, -math.inf), trial(3, 0.9)], [3, 1, 0, 2]),
        ([trial(0, math.nan), trial(1, 0.5), trial(2, math.nan), trial(3, 0.9)], [3, 1, 0, 2]),
        ([trial(number, 0.5) for number in range(4)], [0, 1, 2, 3]),  # of equal trials the first
        ([trial(0, 0.5, epochs_done=0), trial(1, 0.9, state="failed"), trial(2, 0.9, state="diverged")], []),
    ],
)
def test_trials_rank_the_same_in_whatever_order_they_come(trials: list[Trial], expected: list[int]) -> None:
    for rotation in range(len(trials)):
        order = trials[rotation:] + trials[:rotation]
        assert [[one.number for one in ranked(each)] for each in (order, order[::-1])] == [expected] * 2


def test_settings_that_the_search_tried_again_are_confirmed_once(tmp_path: Path, sweep_plan: Plans) -> None:
    values = [0.9, 0.8, 0.7, 0.6]
    trials = [trial(number, value) for number, value in enumerate(values)]
    trials[1].settings = dict(trials[0].settings)
    log = write(SweepLog(tmp_path / "again.jsonl"), *trials)
    assert list(to_confirm(sweep_plan(top=3, seeds=2, baseline=False), log)) == ["0000", "0002", "0003"]


def test_the_search_begins_with_the_runs_own_settings_or_the_best_point_of_an_earlier_sweep(sweep_plan):
    plan = sweep_plan(trials=3, search="random")
    first, *others = proposed(SearchProposals(plan))
    assert (first.id, first.point, first.settings) == ("0000", OWN, OWN)
    assert [one.id for one in others] == ["0001", "0002"]
    assert all((one.kind, one.seed, one.epochs, one.state) == ("search", 0, 6, "waiting") for one in [first, *others])
    points = [{"optimizer.learning_rate": 10.0**-power, "method.temperature": 0.25} for power in (2, 3, 4)]
    earlier = list(zip(points, [0.2, 0.9, 0.3], strict=True))
    assert SearchProposals(sweep_plan(trials=3), earlier).propose([]).point == points[1]


def test_a_trial_whose_line_was_lost_leaves_its_number_and_takes_nobody_elses(sweep_plan: Plans) -> None:
    proposals = SearchProposals(sweep_plan(trials=5, search="random"))
    trials = [one for one in proposed(proposals) if one.number != 2]
    assert proposals.left(trials) == 1
    assert proposals.propose(trials).id not in {one.id for one in trials}


def test_the_best_and_the_starting_settings_are_run_with_seeds_the_search_did_not_use(sweep_plan, log):
    plan = sweep_plan("seed=7", trials=4, epochs=4, top=2, seeds=2)
    trials = proposed(ConfirmProposals(plan, log))
    by_number = [(number, source, seed) for number, source in enumerate(("0002", "0000", BASELINE)) for seed in (8, 9)]
    expected = [(f"confirm-{source}-seed{seed}", seed, number) for number, source, seed in by_number]
    assert [(one.id, one.seed, one.number) for one in trials] == expected
    assert {(one.kind, one.epochs) for one in trials} == {("confirm", 6)}  # the full budget
    assert trials[0].settings == log.trials["0002"].settings
    assert trials[4].settings == OWN == own_settings(plan.space, plan.config)


def test_the_starting_settings_are_not_run_twice_when_they_are_among_the_best(sweep_plan: Plans, log: SweepLog) -> None:
    plan = sweep_plan(trials=5, top=2, seeds=1)
    write(log, trial(4, 0.8, settings=OWN, point=OWN))
    assert list(to_confirm(plan, log)) == ["0002", "0004"]
    assert list(to_confirm(replace(plan, top=1), log)) == ["0002", BASELINE]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"top": 0}, []),
        ({"top": 0, "baseline": True, "seeds": 3}, []),
        ({"top": 1, "seeds": 2, "baseline": False}, ["confirm-0002-seed1", "confirm-0002-seed2"]),
    ],
)
def test_only_what_is_asked_for_is_confirmed(sweep_plan, log, changes, expected):
    assert [one.id for one in proposed(ConfirmProposals(sweep_plan(trials=4, **changes), log))] == expected


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
    (confirmed,) = confirmed_settings(replace(plan, trials=5), log)
    assert (confirmed.source, confirmed.seeds) == ("0002", (1,))


@pytest.mark.parametrize(
    ("states", "values", "seeds"),
    [
        (("finished", "stopped", "failed"), (0.8, 0.8, 0.8), (1,)),
        *((("finished",) * 3, (0.8, bad, 0.9), (1, 3)) for bad in (math.nan, math.inf)),
    ],
)
def test_only_runs_that_finished_with_a_number_confirm_settings(sweep_plan, log, states, values, seeds):
    plan = sweep_plan(trials=4, top=1, seeds=3, baseline=False)
    for one, state, value in zip(proposed(ConfirmProposals(plan, log)), states, values, strict=True):
        write(log, replace(one, state=state, curve={5: Epoch(0.5, 1.0), 6: Epoch(value, 2.0)}))
    (confirmed,) = confirmed_settings(plan, log)
    assert (confirmed.source, confirmed.seeds, confirmed.seeds_asked) == ("0002", seeds, 3)
    assert confirmed.values == tuple(values[seed - 1] for seed in seeds)
    assert confirmed.settings == log.trials["0002"].settings


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

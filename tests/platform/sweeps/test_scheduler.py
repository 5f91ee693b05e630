"""A sweep's decisions without Ray: every trial ends, nothing ends the sweep, a killed driver loses nothing.

Where trials come from: the search in its order, and the best settings again with other seeds. Of a population: who
waits, who takes over from whom, and that nobody waits for ever.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from made_up_trials import made_up_trial, write

from ebclab.evaluation.answers import Answers
from ebclab.evaluation.seeds_and_images import mean_interval
from ebclab.runs.stop_request import StopFlag
from ebclab.sweeps.log import Epoch, State, SweepLog, Trial
from ebclab.sweeps.plan import SweepPlan
from ebclab.sweeps.policies.stopping import decide
from ebclab.sweeps.results import BASELINE, SweepFindings, ranked, to_confirm
from ebclab.sweeps.scheduler import ConfirmProposals, SearchProposals, SweepScheduler, Turn
from ebclab.sweeps.space.space import own_settings

Plans = Callable[..., SweepPlan]
Machines = Callable[..., Any]


def told(trials: dict[str, Trial]) -> dict[str, tuple[Any, ...]]:
    """All that a sweep decided, without what the clock said."""
    return {
        name: (one.point, one.settings, one.state, one.reason, one.objectives, one.generation, one.exchanged)
        for name, one in trials.items()
    }


def alone(plan: SweepPlan, log: SweepLog) -> SweepScheduler:
    """A scheduler of one trial at a time."""
    return SweepScheduler(
        log, plan, SearchProposals(plan), concurrent=1, stop=StopFlag(), clone=lambda trial, donor: ({}, {})
    )


@pytest.mark.parametrize("concurrent", [1, 3, 20])
@pytest.mark.parametrize("scheduler", ["asha", "median", "none", "pbt"])
def test_all_trials_end_and_no_more_train_at_once_than_allowed(sweep_plan, machine, scheduler, concurrent):
    box = machine(concurrent=concurrent)
    trials = box.work(sweep_plan(scheduler=scheduler, trials=9, rules=["reduction_factor=2"]))
    assert list(trials) == [f"{number:04d}" for number in range(9)]
    assert {trial.state for trial in trials.values()} <= {"finished", "stopped"}
    assert all(trial.epochs_done == 6 for trial in trials.values() if trial.state == "finished")
    assert box.most_at_once == min(concurrent, 9)


@pytest.mark.parametrize("concurrent", [1, 2, 8, 16])
@pytest.mark.parametrize("scheduler", ["asha", "none"])
def test_a_search_for_a_budget_of_seconds_takes_them_however_many_trials_train_at_once(
    sweep_plan: Plans, machine: Machines, scheduler: str, concurrent: int
) -> None:
    """Trials of at most six epochs, a second each: 16 at once had taken 38 s of 12."""
    plan = replace(sweep_plan(scheduler=scheduler, trials=100), search_seconds=12.0)
    trials = machine(concurrent=concurrent).work(plan)
    assert 12.0 <= sum(trial.seconds for trial in trials.values()) < 12.0 + 6.0
    assert all(trial.is_over for trial in trials.values())


@pytest.mark.parametrize("scheduler", ["asha", "median"])
def test_a_trial_is_stopped_exactly_when_the_rules_say_so_of_what_was_known_then(sweep_plan, machine, scheduler):
    plan = sweep_plan(scheduler=scheduler, search="random", trials=12, rules=["reduction_factor=2"])
    box = machine(concurrent=4)
    box.work(plan)
    known: dict[str, Trial] = {}
    expected: dict[str, str] = {}
    for event in box.events("trial", "epoch"):  # the log read again, and every measurement judged by hand
        name = event["trial"]
        if event["event"] == "trial":
            known[name] = Trial(name, "search", event["number"], {}, {}, 0, event["epochs"])
            continue
        known[name].curve[event["epoch"]] = Epoch(event["objective"], 0.0)
        assert name not in expected
        if reason := decide(known[name], [other for other in known.values() if other.id != name], plan.rules):
            expected[name] = reason
    stops = {event["trial"]: event["reason"] for event in box.events("ended") if event["state"] == "stopped"}
    assert stops == expected
    assert len(stops) >= 3


@pytest.mark.parametrize(("space", "last"), [({}, 4), ({"optimizer.warmup_epochs": {"uniform": [0.0, 2.0]}}, 5)])
def test_epochs_of_the_warmup_are_no_collapse(sweep_plan, tmp_path, space, last):
    """As in a run: the setting of the sweep, or the trial's own where it is searched, here 1.5 epochs."""
    own = f"optimizer.warmup_epochs={1.5 if space else 1}"
    plan = sweep_plan(own, trials=1, scheduler="none", **({"space": space} if space else {}))
    log = SweepLog(tmp_path / "trials.jsonl")
    begun = alone(plan, log)
    turn = begun.next_turn()
    ends = [begun.on_epoch(turn.trial, epoch, 0.5, 1.0, {"effective_rank": 1.0}) for epoch in range(1, last + 1)]
    assert ends == [False] * (last - 1) + [True]
    assert log.trials[turn.trial].reason == "collapsed: effective_rank 1, below 1.5 for 3 epochs"


@pytest.mark.parametrize("torn", [False, True])
@pytest.mark.parametrize(("scheduler", "trials"), [("asha", 10), ("median", 6), ("none", 5), ("pbt", 5)], ids=str)
def test_a_driver_killed_after_any_event_ends_with_the_trials_of_an_undisturbed_one(
    sweep_plan: Plans, machine: Machines, killed: type[Exception], scheduler: str, trials: int, torn: bool
) -> None:
    rules = ["reduction_factor=2", "min_others=1"]
    plan = sweep_plan(scheduler=scheduler, trials=trials, epochs=5, interval_epochs=2, rules=rules)
    undisturbed = machine("undisturbed")
    expected = told(undisturbed.work(plan))
    for lifetime in range(1, len(undisturbed.events()) + 1):
        box = machine(f"killed-{lifetime}")
        with pytest.raises(killed):
            box.work(plan, lifetime)
        if torn:  # the last line was only half on disk
            box.log.write_bytes(box.log.read_bytes()[:-9])
        assert told(box.work(plan)) == expected, lifetime


def test_a_driver_killed_again_and_again_with_trials_side_by_side_still_ends_every_trial(sweep_plan, machine, killed):
    plan, box = sweep_plan(trials=8, scheduler="none", search="random"), machine(concurrent=3)
    lives, trials = 0, None
    while trials is None and lives < 60:
        lives += 1
        with suppress(killed):
            trials = box.work(plan, lifetime=6)
    assert lives > 10
    assert told(trials) == told(machine("undisturbed", concurrent=3, seed=1).work(plan))


@pytest.mark.parametrize("num_deaths", [1, 2, 3])
def test_a_trial_whose_process_dies_is_begun_again_twice_and_then_given_up(sweep_plan, machine, num_deaths):
    box = machine(faults={("0001", epoch): ["death"] for epoch in range(2, 2 + num_deaths)})
    trials = box.work(sweep_plan("resources.max_failures=2", trials=4, scheduler="none"))
    assert len(box.events("restarted")) == min(num_deaths, 2)
    states = ["finished"] * 4
    if num_deaths > 2:
        states[1] = "failed"
        assert trials["0001"].reason == "its process died, 2 restarts allowed"
        assert trials["0001"].epochs_done == trials["0001"].seconds == 3
    assert [trial.state for trial in trials.values()] == states


def test_machines_that_are_taken_away_use_up_no_restart(sweep_plan: Plans, machine: Machines) -> None:
    """On spot machines a long trial was given up after its fourth preemption."""
    log = SweepLog(machine().log)
    scheduler = alone(sweep_plan("resources.max_failures=1", trials=1), log)
    for preempted, state in [*((each, "waiting") for each in (True, True, False, True, True)), (False, "failed")]:
        turn = scheduler.next_turn()
        scheduler.on_death(turn.trial, "it died", preempted=preempted)
        scheduler.on_turn_over(turn.trial)
        assert log.trials[turn.trial].state == state
    assert log.trials["0000"].reason == "it died, 1 restarts allowed"


def test_a_death_after_the_end_changes_nothing(sweep_plan: Plans, machine: Machines) -> None:
    log = SweepLog(machine().log)
    scheduler = alone(sweep_plan(trials=1), log)
    turn = scheduler.next_turn()
    scheduler.on_outcome(turn.trial, "finished", "", 1.0)
    scheduler.on_death(turn.trial, "its process died")
    scheduler.on_turn_over(turn.trial)
    assert log.trials[turn.trial].state == "finished"
    assert scheduler.is_over


@pytest.mark.parametrize("scheduler", ["asha", "pbt"])
def test_trials_that_fail_or_diverge_are_recorded_and_the_sweep_goes_on(sweep_plan, machine, scheduler):
    every = {(f"{number:04d}", 1): ["failed"] for number in range(6)}
    lost = machine("lost", faults=every).work(sweep_plan(trials=6, scheduler=scheduler, search="random"))
    assert [trial.state for trial in lost.values()] == ["failed"] * 6
    faults = {("0000", 1): ["failed"], ("0001", 2): ["diverged"], ("0002", 6): ["failed"]}
    trials = machine(concurrent=2, faults=faults).work(sweep_plan(trials=6, scheduler=scheduler, search="random"))
    assert (trials["0000"].state, trials["0000"].reason) == ("failed", "made up")
    assert trials["0001"].state == "diverged"
    assert len(trials) == 6
    assert all(trial.is_over for trial in trials.values())


def test_after_the_stop_flag_nothing_is_ordered_and_the_course_is_over_when_nothing_is_in_work(sweep_plan, machine):
    box = machine(concurrent=2)
    plan = sweep_plan(trials=5, scheduler="none")
    box.stop.set()
    assert box.work(plan) == {}
    box.stop.is_set = False
    original = box._turn

    def turn_then_stop(scheduler: Any, turn: Turn) -> Any:
        if turn.trial == "0002":
            box.stop.set()
        assert not (box.stop.is_set and turn.trial > "0002")
        return original(scheduler, turn)

    box._turn = turn_then_stop
    trials = box.work(plan)
    assert sorted(trials) == ["0000", "0001", "0002"]
    assert "interrupted" in {trial.state for trial in trials.values()}
    box.stop.is_set, box._turn = False, original
    assert [trial.state for trial in box.work(plan).values()] == ["finished"] * 5


def test_a_sweep_that_is_over_grows_when_more_trials_are_asked_for(sweep_plan: Plans, machine: Machines) -> None:
    small, box = sweep_plan(trials=4, search="random", scheduler="none"), machine(concurrent=2)
    before = told(box.work(small))
    after = told(box.work(replace(small, trials=7)))
    assert len(after) == 7
    assert {name: after[name] for name in before} == before
    assert after == told(machine("at once").work(replace(small, trials=7)))


INTERVAL = 2


@pytest.fixture
def population(sweep_plan: Plans) -> SweepPlan:
    """Eight members, eight epochs, an exchange after every second."""
    return sweep_plan("training.epochs=8", scheduler="pbt", trials=8, interval_epochs=INTERVAL)


def _standings(box: Any) -> Iterator[tuple[dict[str, Any], dict[str, dict[int, float]], set[str]]]:
    """Yield every event with what all members had measured before it, and who was over by then."""
    curves: dict[str, dict[int, float]] = {}
    over: set[str] = set()
    for event in box.events():
        yield event, curves, over
        if event["event"] == "trial":
            curves[event["trial"]] = {}
        elif event["event"] == "epoch":
            curves[event["trial"]][event["epoch"]] = event["objective"]
        elif event["event"] == "ended":
            over.add(event["trial"])


@pytest.mark.parametrize("concurrent", [1, 3, 8])
def test_no_member_passes_the_end_of_an_interval_before_all_others_have_reached_it(population, machine, concurrent):
    box = machine(concurrent=concurrent, faults={("0003", 2): ["failed"], ("0005", 3): ["death"]})
    box.work(population)
    for event, curves, over in _standings(box):
        if event["event"] == "epoch":
            passed = (event["epoch"] - 1) // INTERVAL * INTERVAL
            behind = [name for name in curves if name not in over and max(curves[name], default=0) < passed]
            assert passed == 0 or len(curves) == 8
            assert behind == [], event


@pytest.mark.parametrize("concurrent", [1, 3, 8])
def test_at_each_exchange_the_worst_quarter_goes_on_from_the_best_quarter_once(population, machine, concurrent):
    box = machine(concurrent=concurrent, seed=concurrent)
    trials = box.work(population)
    clones: dict[int, list[str]] = {}
    for event, curves, _ in _standings(box):
        if event["event"] != "cloned":
            continue
        turn = sorted(curves, key=lambda name: curves[name][event["epoch"]])
        assert event["trial"] in turn[:2]
        assert event["donor"].split("-g")[0] in turn[-2:]
        clones.setdefault(event["epoch"], []).append(event["trial"])
    assert sorted(clones) == [2, 4, 6]  # not after the last epoch
    assert [len(set(names)) for names in clones.values()] == [2, 2, 2]
    assert [len(names) for names in clones.values()] == [2, 2, 2]
    assert len(box.events("running")) <= 8 * 4  # nobody is called before all are there
    generations = [trial.generation for trial in trials.values()]
    assert sum(generations) == 6
    assert {trial.state for trial in trials.values()} == {"finished"}
    assert all(sorted(trial.curve) == list(range(1, 9)) for trial in trials.values())


def test_who_trains_when_does_not_matter(population: SweepPlan, machine: Machines) -> None:
    ends = []
    for concurrent, seed in [(1, 0), (3, 0), (3, 1), (8, 2)]:
        trials = machine(f"{concurrent}-{seed}", concurrent=concurrent, seed=seed).work(population)
        ends.append({name: (one.point, one.objectives, one.generation) for name, one in trials.items()})
    assert ends == ends[:1] * 4


def test_a_clone_begins_from_the_donors_weights_with_settings_near_the_donors(population, machine):
    box = machine(concurrent=8)
    trials = box.work(replace(population, population=replace(population.population, resample_rate=0.0)))
    seen = 0
    points: dict[str, dict[str, float]] = {}
    for event, curves, _ in _standings(box):
        if event["event"] == "trial":
            points[event["trial"]] = event["point"]
        if event["event"] != "cloned":
            continue
        seen += 1
        donor, epoch = event["donor"].split("-g")[0], event["epoch"]
        for parameter in population.space.parameters:
            old = points[donor][parameter.name]
            reachable = [min(max(old * factor, parameter.low), parameter.high) for factor in (0.8, 1.25)]
            assert event["point"][parameter.name] == pytest.approx(
                min(reachable, key=lambda v: abs(v - event["point"][parameter.name]))
            )
        points[event["trial"]] = event["point"]
        last = trials[event["trial"]]
        if last.exchanged == epoch:  # its last clone: what it learnt next began at the donor's value
            assert last.objectives[epoch + 1] > curves[donor][epoch] - 0.01
    assert seen == 6


@pytest.mark.parametrize("concurrent", [1, 4])
@pytest.mark.parametrize("fault", ["failed", "diverged", "death"])
def test_nobody_waits_for_a_member_that_ended_before_the_exchange(population, machine, fault, concurrent):
    faults = {("0002", 3): [fault] * 4, ("0007", 2): [fault] * 4, ("0000", 8): [fault] * 4}
    box = machine(concurrent=concurrent, faults=faults)
    trials = box.work(population)
    ended = "failed" if fault == "death" else fault
    assert [name for name, trial in trials.items() if trial.state == ended] == ["0000", "0002", "0007"]
    assert sum(trial.state == "finished" for trial in trials.values()) == 5
    assert {event["epoch"] for event in box.events("cloned")} == {2, 4, 6}


def test_members_that_join_a_population_that_is_over_train_for_their_whole_budget(population, machine):
    box = machine(concurrent=2)
    before = box.work(population)
    after = box.work(replace(population, trials=12))
    assert len(after) == 12
    assert {name: after[name] for name in before} == before
    for trial in after.values():
        assert trial.state == "finished"
        assert sorted(trial.curve) == list(range(1, 9))


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
    (confirmed,) = SweepFindings(replace(plan, trials=5), log).confirmed
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
    (confirmed,) = SweepFindings(plan, log).confirmed
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
    for entry in SweepFindings(plan, log).confirmed:
        expected = mean_interval(torch.cat(tables[entry.source]).double().numpy(), 0.05 / 3)
        assert (entry.low, entry.high) == pytest.approx(expected, abs=1e-12)
        assert (entry.images, len(entry.answers)) == (50, 2)

"""Population based training without Ray: who waits, who takes over from whom, and that nobody waits for ever."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from ebclab.sweeps.plan import SweepPlan

Plans = Callable[..., SweepPlan]
Machines = Callable[..., Any]
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
def test_no_member_passes_the_end_of_an_interval_before_all_others_have_reached_it(
    population: SweepPlan, machine: Machines, concurrent: int
) -> None:
    box = machine(concurrent=concurrent, faults={("0003", 2): ["failed"], ("0005", 3): ["death"]})
    box.work(population)
    for event, curves, over in _standings(box):
        if event["event"] == "epoch":
            passed = (event["epoch"] - 1) // INTERVAL * INTERVAL
            behind = [name for name in curves if name not in over and max(curves[name], default=0) < passed]
            assert passed == 0 or len(curves) == 8
            assert behind == [], event


@pytest.mark.parametrize("concurrent", [1, 3, 8])
def test_at_each_exchange_the_worst_quarter_goes_on_from_the_best_quarter_once(
    population: SweepPlan, machine: Machines, concurrent: int
) -> None:
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


def test_a_clone_begins_from_the_donors_weights_with_settings_near_the_donors(
    population: SweepPlan, machine: Machines
) -> None:
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
def test_nobody_waits_for_a_member_that_ended_before_the_exchange(
    population: SweepPlan, machine: Machines, fault: str, concurrent: int
) -> None:
    faults = {("0002", 3): [fault] * 4, ("0007", 2): [fault] * 4, ("0000", 8): [fault] * 4}
    box = machine(concurrent=concurrent, faults=faults)
    trials = box.work(population)
    ended = "failed" if fault == "death" else fault
    assert [name for name, trial in trials.items() if trial.state == ended] == ["0000", "0002", "0007"]
    assert sum(trial.state == "finished" for trial in trials.values()) == 5
    assert {event["epoch"] for event in box.events("cloned")} == {2, 4, 6}


def test_members_that_join_a_population_that_is_over_train_for_their_whole_budget(
    population: SweepPlan, machine: Machines
) -> None:
    box = machine(concurrent=2)
    before = box.work(population)
    after = box.work(replace(population, trials=12))
    assert len(after) == 12
    assert {name: after[name] for name in before} == before
    for trial in after.values():
        assert trial.state == "finished"
        assert sorted(trial.curve) == list(range(1, 9))

"""What a new sweep may learn from an earlier one, and when it may not."""

import math
import shutil
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from made_up_trials import made_up_trial, write

from ebclab.config import compose
from ebclab.errors import InterruptedRunError, RunError, UserError
from ebclab.sweeps.display import SweepDisplay
from ebclab.sweeps.folder import SweepFolder
from ebclab.sweeps.log import SweepLog
from ebclab.sweeps.plan import SweepPlan, write_plan
from ebclab.sweeps.preflight import SweepLaunch
from ebclab.sweeps.ray_tune import phase
from ebclab.sweeps.resources import TrialResources
from ebclab.sweeps.sweep import earlier_results
from ebclab.sweeps.sweep import sweep as run_sweep

Plans = Callable[..., SweepPlan]


def sweep(path: Path, plan: SweepPlan, *told: tuple[dict[str, Any], float, str], kind: str = "search") -> Path:
    """Write the folder of a sweep whose trials had these settings, last values and states."""
    folder = SweepFolder(path)
    folder.trials.mkdir(parents=True)
    write_plan(folder.plan, plan)
    write(
        SweepLog(folder.log),
        *(
            made_up_trial(f"{number:04d}", [0.01, value], kind=kind, state=state, point=settings, settings=settings)
            for number, (settings, value, state) in enumerate(told)
        ),
    )
    return path


def at(learning_rate: float, temperature: float) -> dict[str, float]:
    return {"optimizer.learning_rate": learning_rate, "method.temperature": temperature}


LR = {"optimizer.learning_rate": {"loguniform": [1e-3, 0.1]}}
TOLD = (at(0.01, 0.2), 0.5, "finished")
DECAY = {"optimizer.weight_decay": {"uniform": [0.0, 1.0], "times": "optimizer.learning_rate"}}


@pytest.mark.parametrize(
    ("before", "told", "space", "expected"),
    [
        # the last values of finished trials
        (
            {},
            [
                (at(0.01, number / 10 + 0.2), number / 10, state)
                for number, state in enumerate(["finished", "stopped", "failed", "diverged", "finished"])
            ],
            None,
            [(at(0.01, 0.2), 0.0), (at(0.01, 4 / 10 + 0.2), 0.4)],
        ),
        ({}, [(at(0.01, 0.3), math.nan, "finished"), TOLD], None, [(at(0.01, 0.2), 0.5)]),
        # without points outside the new space
        (
            {},
            [(at(0.01, 0.95), 0.9, "finished"), TOLD],
            {**LR, "method.temperature": {"uniform": [0.1, 0.5]}},
            [(at(0.01, 0.2), 0.5)],
        ),
        # a setting that was not searched has the value it ran with, and a derived one becomes its factor
        (
            {"overrides": ["method.temperature=0.3"], "space": LR},
            [({"optimizer.learning_rate": 0.01}, 0.5, "finished")],
            None,
            [(at(0.01, 0.3), 0.5)],
        ),
        (
            {"overrides": ["optimizer.weight_decay=0.005"]},
            [(at(0.02, 0.2), 0.5, "finished")],
            {**LR, **DECAY},
            [({"optimizer.learning_rate": 0.02, "optimizer.weight_decay": pytest.approx(0.25)}, 0.5)],
        ),
        (
            {"overrides": ["method.temperature=0.3"], "space": LR},
            [({"optimizer.learning_rate": 0.01}, 0.5, "finished")],
            {"method.temperature": {"uniform": [0.15, 0.25]}},
            "has no finished trial inside this space",
        ),
        ({"kind": "confirm"}, [TOLD], None, "has no finished trial inside this space; leave it out or widen the space"),
    ],
)
def test_an_earlier_sweep_teaches_its_finished_trials_within_the_new_space(
    sweep_plan: Plans, tmp_path: Path, before: dict[str, Any], told: list[Any], space: Any, expected: Any
) -> None:
    plan = sweep_plan(*before.get("overrides", ()), space=before.get("space"))
    old = sweep(tmp_path / "old", plan, *told, kind=before.get("kind", "search"))
    with pytest.raises(RunError, match=expected) if isinstance(expected, str) else nullcontext():
        assert earlier_results(old, sweep_plan(space=space)) == expected


@pytest.mark.parametrize(
    ("override", "line"),
    [
        ("evaluation.objective=effective_rank", "evaluation.objective: effective_rank there, holdout_knn here"),
        ("data.train_limit=64", "data.train_limit: 64 there, 128 here"),
        ("data.holdout_rate=0.2", "data.holdout_rate: 0.2 there, 0.1 here"),
        ("data.name=fashion-mnist", "data.name: fashion-mnist there, digits here"),
        ("evaluation.knn_neighbours=1", "evaluation.knn_neighbours: 1 there, 20 here"),
        ("encoder.width=8", "encoder.width: 8 there, 4 here"),
    ],
)
def test_values_that_cannot_be_compared_are_refused(sweep_plan, tmp_path, override, line):
    old = sweep(tmp_path / "old", sweep_plan(override), (at(0.01, 0.2), 0.5, "finished"))
    with pytest.raises(UserError) as caught:
        earlier_results(old, sweep_plan())
    assert str(caught.value).splitlines()[0].startswith(f"--warm-start: {old} measured something else")
    assert str(caught.value).splitlines()[1:] == [f"  {line}"]


def test_all_differences_come_at_once(sweep_plan: Plans, tmp_path: Path) -> None:
    before = sweep_plan("data.holdout_rate=0.2", "evaluation.objective=effective_rank", epochs=3)
    before = replace(before, config=replace(before.config, method_name="moco", method=compose("moco").method))
    with pytest.raises(UserError) as caught:
        earlier_results(sweep(tmp_path / "old", before, (at(0.01, 0.2), 0.5, "finished")), sweep_plan())
    assert str(caught.value).splitlines()[1:] == [
        "  evaluation.objective: effective_rank there, holdout_knn here",
        "  data.holdout_rate: 0.2 there, 0.1 here",
        "  method.name: moco there, simclr here",
        "  --epochs: 3 there, 6 here",
    ]


def test_the_earlier_sweep_is_only_read(sweep_plan: Plans, tmp_path: Path) -> None:
    old = SweepFolder(sweep(tmp_path / "old", sweep_plan(), (at(0.01, 0.2), 0.5, "finished")))
    with old.log.open("ab") as file:
        file.write(b'{"event": "ep')  # its driver is writing at this moment
    before = old.log.read_bytes()
    assert len(earlier_results(old.path, sweep_plan())) == 1
    assert old.log.read_bytes() == before


def test_a_sweep_that_goes_on_knows_what_it_knew_when_it_started(sweep_plan, tmp_path, monkeypatch):
    """The earlier sweep has grown when the command is repeated, and is gone when the sweep is resumed."""
    plan, old = sweep_plan(), sweep(tmp_path / "old", sweep_plan(), (at(0.01, 0.2), 0.5, "finished"))
    learnt: list[Any] = []

    def killed(launch: SweepLaunch) -> None:
        learnt.append(launch.warm_start)
        launch.folder.path.mkdir(exist_ok=True)
        write_plan(launch.folder.plan, plan)
        phase.write_start(launch, launch.folder.read_log(), TrialResources(1, 0.0, 0.0, 1, worker_gpus=2.0))
        raise KeyboardInterrupt

    def run(**options: Any) -> None:
        with pytest.raises(InterruptedRunError):
            run_sweep(plan, sweeps=tmp_path, name="new", display=SweepDisplay(), **options)

    monkeypatch.setattr(phase, "trained_sweep", killed)
    run(warm_start=old)
    started = SweepFolder(tmp_path / "new").read_log().last_event("started") or {}
    assert started["gpus_per_trial"] == 2.0  # what a report charges
    shutil.rmtree(old)
    sweep(old, sweep_plan(), (at(0.01, 0.2), 0.5, "finished"), (at(0.02, 0.3), 0.9, "finished"))
    run(warm_start=old)
    shutil.rmtree(old)
    run(resume=True)
    assert learnt == [(str(old), [(at(0.01, 0.2), 0.5)])] * 3


def test_a_sweep_that_learns_from_another_when_it_is_resumed_goes_on_knowing_that(sweep_plan, tmp_path, monkeypatch):
    plan, old = sweep_plan(), sweep(tmp_path / "old", sweep_plan(), (at(0.01, 0.2), 0.5, "finished"))
    new, learnt = sweep(tmp_path / "new", plan, (at(0.02, 0.3), 0.4, "finished")), list[Any]()

    def killed(launch: SweepLaunch) -> None:
        learnt.append(launch.warm_start)
        phase.write_start(launch, launch.folder.read_log(), TrialResources(1, 0.0, 0.0, 1))
        raise KeyboardInterrupt

    monkeypatch.setattr(phase, "trained_sweep", killed)
    for options in ({}, {"warm_start": old}, {"resume": True}, {"resume": True}):
        with pytest.raises(InterruptedRunError):
            run_sweep(plan, sweeps=new.parent, name=new.name, display=SweepDisplay(), **options)
    assert learnt == [(None, ())] + [(str(old), [(at(0.01, 0.2), 0.5)])] * 3
    assert sum("earlier" in event for event in SweepFolder(new).read_log().events) == 1

"""What Tune tells of a trial's end, and what the scheduler hears of it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from ray.core.generated.common_pb2 import ActorDiedErrorContext, NodeDeathInfo
from ray.exceptions import ActorDiedError

from ebclab.sweeps.ray_tune.phase import _Judge
from ebclab.sweeps.scheduler import Turn


@pytest.mark.parametrize(
    ("node", "heard"),
    [
        (NodeDeathInfo.AUTOSCALER_DRAIN_PREEMPTED, ("0001", "its machine was taken away", {"preempted": True})),
        (NodeDeathInfo.UNEXPECTED_TERMINATION, ("0001", "the node is dead", {})),
        (None, ("0001", "its process died", {})),
    ],
)
def test_a_machine_that_was_taken_away_is_told_from_a_process_that_died(
    node: int | None, heard: tuple[Any, ...]
) -> None:
    died = ActorDiedErrorContext(
        actor_id=bytes(16), error_message="the node is dead", node_death_info=NodeDeathInfo(reason=node)
    )
    turn = Turn("0001", "0001", {}, 0, 3)
    trial = SimpleNamespace(
        config={"turn": vars(turn)}, get_pickled_error=lambda: None if node is None else ActorDiedError(died)
    )
    told: list[tuple[Any, ...]] = []
    scheduler = SimpleNamespace(
        on_death=lambda trial, reason, **more: told.append((trial, reason, more)), on_turn_over=told.append
    )
    phases: Any = SimpleNamespace(scheduler=scheduler)
    judged: Any = trial
    _Judge(phases).on_trial_error(None, judged)
    assert told == [heard, "0001"]

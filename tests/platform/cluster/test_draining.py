"""Machines that will be taken away are told until somebody has acted on it."""

from __future__ import annotations

from typing import Any

import pytest
import ray

from ebclab.cluster import draining


@pytest.fixture
def notices(monkeypatch: pytest.MonkeyPatch) -> draining.Notices:
    """Notices of a cluster in which machine a is draining, asked without a pause."""
    monkeypatch.setattr(draining, "_PAUSE", 0.0)
    monkeypatch.setattr(ray._private.state.state, "get_draining_nodes", lambda: {"id-a": 0})
    monkeypatch.setattr(ray, "nodes", lambda: [{"NodeID": "id-a", "NodeManagerHostname": "a"}])
    return draining.Notices()


def test_a_machine_is_new_until_somebody_has_acted_on_it(notices: draining.Notices) -> None:
    told: list[list[str]] = []

    def fail(machines: list[str]) -> None:
        told.append(machines)
        raise OSError(28, "No space left on device")

    for _ in range(2):
        with pytest.raises(OSError, match="No space"):
            notices.tell(fail)
    notices.tell(told.append)
    notices.tell(told.append)
    assert told == [["a"]] * 3


def test_a_notice_outlives_a_question_that_failed(notices: draining.Notices, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> Any:
        raise RuntimeError("GCS: deadline exceeded")

    told: list[list[str]] = []
    with monkeypatch.context() as patch:
        patch.setattr(ray, "nodes", fail)
        with pytest.raises(RuntimeError, match="deadline exceeded"):
            notices.tell(told.append)
    notices.tell(told.append)
    assert told == [["a"]]

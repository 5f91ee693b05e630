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


def test_a_machine_is_new_until_somebody_has_acted_on_it(
    notices: draining.Notices, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[list[str]] = []

    def fail(*machines: list[str]) -> Any:
        told.extend(machines)
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(ray, "nodes", fail)  # a question that failed
        with pytest.raises(OSError, match="No space"):
            notices.tell(told.append)
    assert told == []
    for _ in range(2):
        with pytest.raises(OSError, match="No space"):
            notices.tell(fail)
    notices.tell(told.append)
    notices.tell(told.append)
    assert told == [["a"]] * 3

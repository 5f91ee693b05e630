"""Ray's workers in this suite are forked, with the environment that they asked for; one that needs another is not."""

from __future__ import annotations

import os
import signal
import sys
from typing import Any


def _look(variable: str) -> dict[str, Any]:
    """What a worker is like before its first task."""
    return {
        "torch": "torch" in sys.modules,
        "variable": os.environ.get(variable),
        "own group": os.getpgid(0) == os.getpid(),
        "ctrl-c": signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, []),
        "script": os.path.basename(sys.argv[0]),
        "random": os.urandom(8),
    }


def test_a_worker_is_forked_and_is_otherwise_as_it_was_asked_for(cluster: str) -> None:
    import ray

    found = []
    for value in ("one", "two"):
        task = ray.remote(_look).options(runtime_env={"env_vars": {"A_TEST": value}})
        found.append(ray.get(task.remote("A_TEST")))
    assert [each["torch"] for each in found] == [True, True]
    assert [each["variable"] for each in found] == ["one", "two"]
    assert all(each["own group"] and each["script"] == "default_worker.py" for each in found)
    usual = ray.get(ray.remote(_look).options(runtime_env={"env_vars": {"ARROW_TEST": "1"}}).remote("ARROW_TEST"))
    assert (usual["torch"], usual["variable"]) == (
        False,
        "1",
    )  # may have been read before the fork, so it is not forked
    assert all(each["ctrl-c"] == usual["ctrl-c"] and each["script"] == usual["script"] for each in found)

"""Ray's workers in this suite are forked, with the environment that they asked for; one that needs another is not."""

import atexit
import os
import signal
import sys
from pathlib import Path
from typing import Any

from tests.support.waiting import until


def _look(variable: str, left: Path) -> tuple[bool, str | None, float, dict[str, Any]]:
    """Whether a worker was forked, a variable, a number from numpy, and what is alike however a worker was started."""
    forked = "torch" in sys.modules
    import numpy

    atexit.register(left.touch)
    alike = {
        "script": os.path.basename(sys.argv[0]),
        "folder": os.getcwd(),
        "leads its group": os.getpgid(0) == os.getpid(),
        "blocked": signal.pthread_sigmask(signal.SIG_BLOCK, []),
        "children": signal.getsignal(signal.SIGCHLD),
        "interrupt": signal.getsignal(signal.SIGINT),
        "outputs": [os.path.basename(os.readlink(f"/proc/self/fd/{number}")).split("-")[0] for number in (0, 1, 2)],
    }
    os.umask(umask := os.umask(0))
    return forked, os.environ.get(variable), numpy.random.random(), alike | {"umask": umask}


def test_a_worker_is_forked_and_is_otherwise_as_it_was_asked_for(cluster: str, tmp_path: Path) -> None:
    import ray

    class Actor:
        def look(self, variable: str, left: Path) -> tuple[bool, str | None, float, dict[str, Any]]:
            return _look(variable, left)

    found = []
    for name, value in (("A_TEST", "one"), ("A_TEST", "two"), ("ARROW_TEST", "three")):
        actor = ray.remote(Actor).options(runtime_env={"env_vars": {name: value}}, num_cpus=0).remote()
        found.append(ray.get(actor.look.remote(name, tmp_path / value)))
        actor.__ray_terminate__.remote()
    forked, variables, numbers, alike = zip(*found, strict=True)
    assert forked == (True, True, False)  # a variable of Arrow's may have been read before the fork
    assert variables == ("one", "two", "three")
    assert len(set(numbers)) == 3
    assert alike[0] == alike[1] == alike[2]
    until(lambda: len(list(tmp_path.iterdir())) >= 3, 120)  # exit functions of each

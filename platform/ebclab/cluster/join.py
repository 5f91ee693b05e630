"""Being part of a cluster of Ray, for as long as its head answers."""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import ray
from ray._private import services
from ray.exceptions import RayError

from ebclab.background import repeating
from ebclab.cluster.address import require_answer, who_answers
from ebclab.cluster.switches import environment_of_nodes
from ebclab.errors import TrainingError, UserError


@contextmanager
def cluster_session(address: str, display: Showing) -> Iterator[Head]:
    """Be part of a cluster, or of one on this machine alone when ``address`` is "local"; end when its head is lost.

    Raises:
        UserError: Nobody answers there, or another version of Ray or Python does, or the cluster wants another token.
    """
    here_before = ray.is_initialized()
    if not here_before:
        _join(address)
    with watched_head(ray.get_runtime_context().gcs_address, display) as head:
        try:
            yield head
        finally:
            if not here_before:
                ray.shutdown()


def _join(address: str) -> None:
    _require_answer(address)
    where = f"resources.address: {address}" if address != "local" else "Ray on this machine"
    try:
        # A local instance has no dashboard: nothing listens for commands on any port but Ray's own, with its token.
        dashboard = False if address == "local" else None
        told = None if address == "local" else environment_of_nodes()
        quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
        ray.init(address=address, include_dashboard=dashboard, runtime_env=told, **quiet)
    except (ConnectionError, ValueError, RuntimeError, RayError) as error:
        reason = " ".join(str(error).split())
        if "Version mismatch" in reason:
            raise UserError(f"{where}: {reason}; install the cluster's versions here") from error
        raise UserError(f"{where}: no cluster answers, got {reason}; start one or leave the address out") from error


def _require_answer(address: str) -> None:
    """Refuse an address where no cluster lets this process in; "auto" is the one that Ray finds on this machine."""
    if address != "auto":
        require_answer(address)
    elif found := services.canonicalize_bootstrap_address("auto"):  # None is for ray.init to refuse
        require_answer(found, discovered=True)


def cluster_size() -> tuple[float, float]:
    """Return the CPUs and GPUs that the joined cluster has, or may grow to."""
    limit = ray._private.state.state.get_max_resources_from_cluster_config() or {}
    cpus, gpus = (max(sum(node.get(unit, 0) for node in nodes()), limit.get(unit, 0)) for unit in ("CPU", "GPU"))
    return cpus, gpus


def nodes() -> list[dict[str, float]]:
    """Return what each living node of the joined cluster has, by the name of the resource."""
    return [node["Resources"] for node in ray.nodes() if node["Alive"]]  # type: ignore[no-untyped-call]


_LOOK = 2.0  # seconds between looks

_PATIENCE = 30.0  # seconds; Ray's own are 60


class Showing(Protocol):
    """What is on the screen."""

    def stop(self) -> None: ...


class Head:
    """The head of a cluster, as it was when this process joined it.

    Args:
        address: HOST:PORT of its GCS.
    """

    def __init__(self, address: str) -> None:
        self._address = address
        self._known = who_answers(address)
        self._heard = time.monotonic()

    def loss(self, *, patience: float = _PATIENCE) -> str:
        """Return in one sentence that the head is gone; nothing while it may be there.

        Args:
            patience: Seconds for which it may be silent.
        """
        found, now = who_answers(self._address), time.monotonic()
        if found is None:
            silent = now - self._heard
            return self._sentence(f"has not answered for {silent:.0f} s") if silent >= patience else ""
        self._heard = now
        if self._known and found and found != self._known:
            return self._sentence("is another one than before")
        self._known = self._known or found
        return ""

    def lost(self) -> TrainingError | None:
        """Return the error to raise when Ray has failed because the head is gone; None when it is still there."""
        sentence = self.loss(patience=0)
        return TrainingError(sentence) if sentence else None

    def _sentence(self, what: str) -> str:
        return (
            f"the cluster's head at {self._address} {what}; what was saved is kept: "
            "once the cluster is up, the same command goes on from there"
        )


@contextmanager
def watched_head(address: str, display: Showing) -> Iterator[Head]:
    """Yield the head at ``address``; end this process with a sentence and exit code 1 as soon as it is lost.

    Args:
        address: HOST:PORT of its GCS.
        display: What is on the screen then.
    """
    head = Head(address)

    def look() -> None:
        if sentence := head.loss():
            display.stop()
            print(f"error: {sentence}", file=sys.stderr, flush=True)
            os._exit(TrainingError.exit_code)  # Ray would, half a minute later; locks and leases end as in a kill

    with repeating(look, _LOOK):
        yield head


def head_of_this_machine(way_out: str) -> str:
    """Return the address of the head once it has let this process in.

    Args:
        way_out: What to do when no node of a cluster runs here.

    Raises:
        UserError: No node runs here, or the head does not answer or does not let this process in.
    """
    named = os.environ.get("RAY_ADDRESS") or "auto"
    address = named if named != "auto" else services.canonicalize_bootstrap_address("auto")
    if address is None:
        raise UserError(f"no cluster runs on this machine; {way_out}")
    require_answer(address, discovered=True)
    return address

"""Joins a Ray cluster, tells which of its machines are drained, and ends this process if its head is lost."""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Any, Protocol

import ray
from ray._private import services
from ray.exceptions import RayError

from ebclab.background import handle_sigterm, repeating
from ebclab.cluster.address import require_answer, send_token, who_answers
from ebclab.cluster.local_instance import fewest_processes, on_loopback, private_instance, read_token_settings
from ebclab.cluster.switches import environment_of_nodes
from ebclab.config.addresses import cluster_problem
from ebclab.errors import TrainingError, UserError
from ebclab.formatting import without_credentials
from ebclab.hardware import usable_processors
from ebclab.terminal import say


@contextmanager
def cluster_session(address: str, display: _Showing) -> Iterator[Head]:
    """Join a cluster, or start one on this machine only if ``address`` is "local"; leave it at exit.

    If the cluster's head is lost in the meantime, this process exits with a message.
    """
    with ExitStack() as joined:
        if not ray.is_initialized():
            joined.enter_context(_joined(address, display))
        with watched_head(joined_address(), display) as head:
            try:
                yield head
            finally:
                joined.close()


@contextmanager
def _joined(address: str, display: _Showing) -> Iterator[None]:
    require_cluster(address)
    is_own = address == "local"
    there = "that runs here" if address == "auto" else f"at {without_credentials(address)}"
    display.note("starting Ray on this machine" if is_own else f"joining the cluster {there}")
    with private_instance() if is_own else nullcontext() as folder:
        try:
            with _patience(display) if is_own else nullcontext():
                _init(address, folder)
            yield
        finally:
            ray.shutdown()


_LONG_SECONDS = 10.0  # a start takes two to five on processors that are free


@contextmanager
def _patience(display: _Showing) -> Iterator[None]:
    """Say so if the start of Ray in this block takes long."""
    text = f"Ray is still starting after {_LONG_SECONDS:.0f} s; other programs may keep the processors busy"
    timer = threading.Timer(_LONG_SECONDS, display.note, [text])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


@contextmanager
def joined_as_child(address: str, *, private: bool) -> Iterator[None]:
    """Join what the process that started this one has joined; ``private``: an instance of its own on this machine."""
    with on_loopback() if private else nullcontext():
        _init(address, None)
    try:
        yield
    finally:
        ray.shutdown()


def _init(address: str, folder: Path | None) -> None:
    """Have Ray join a cluster, or start an instance in a folder."""
    where = f"resources.address: {address}" if address != "local" else "Ray on this machine"
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    if folder is None:
        options |= {"runtime_env": environment_of_nodes()}
    else:
        options |= {"include_dashboard": False, "_temp_dir": str(folder), "num_cpus": usable_processors()}
    try:
        with ExitStack() as start:
            start.enter_context(_own_sigterm())
            if folder is not None:
                start.enter_context(on_loopback())
                start.enter_context(fewest_processes())
            ray.init(address=address, **options)
    except (ConnectionError, ValueError, RuntimeError, RayError) as error:
        reason = " ".join(str(error).split())
        if "Version mismatch" in reason:
            raise UserError(f"{where}: {reason}; install the cluster's versions here") from error
        raise UserError(
            f"{where}: no cluster answers, got {reason.rstrip('.')}; start one or leave the address out"
        ) from error
    except OSError as error:
        if "AF_UNIX" not in str(error):
            raise
        raise UserError(
            f"{where}: did not start, since the paths of its sockets are too long, got {folder}; "
            "set RAY_TMPDIR to a folder of yours with a short path, such as /tmp"
        ) from error
    except Exception as error:
        if type(error) is not Exception:  # Ray raises a bare Exception if its own processes did not start within 30 s
            raise
        raise UserError(
            f"{where}: did not start, got {' '.join(str(error).split())} "
            "Other programs may keep the processors busy: end them, or try again when they have ended"
        ) from error


@contextmanager
def _own_sigterm() -> Iterator[None]:
    """Undo what Ray does to SIGTERM in this block: it then interrupts, as Ctrl-C does, unless the user handles it."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        handle_sigterm(signal.default_int_handler if before is signal.SIG_DFL else before)


def require_cluster(address: str) -> None:
    """Refuse an address where no cluster admits this process, or that only a file names.

    "auto" is the cluster that Ray finds on this machine. Nothing is asked if this process has joined one already.
    """
    if ray.is_initialized():
        return
    if problem := cluster_problem(address):
        raise UserError(f"resources.address: {problem}")
    if address != "auto":
        require_answer(address)
    elif local := _found_here():
        require_answer(local, discovered=True)
    else:
        raise UserError(
            "resources.address: no cluster runs on this machine, got auto; start one with `ray start --head`, "
            "or unset RAY_ADDRESS to use this machine alone"
        )


def _found_here() -> str | None:
    """Return the address of a cluster on this machine; None if there is none."""
    try:
        return services.canonicalize_bootstrap_address("auto")
    except ConnectionError:  # raised only if RAY_ADDRESS is auto
        return None


def joined_address() -> str:
    """Return the address of the instance that this process has joined."""
    address: str = ray.get_runtime_context().gcs_address
    return address


def cluster_size() -> tuple[float, float]:
    """Return the numbers of CPUs and GPUs that the joined cluster has, or may grow to."""
    limit = ray._private.state.state.get_max_resources_from_cluster_config() or {}
    cpus, gpus = (max(sum(node.get(unit, 0) for node in nodes()), limit.get(unit, 0)) for unit in ("CPU", "GPU"))
    return cpus, gpus


def nodes() -> list[dict[str, float]]:
    """Return the resources, by name, of each live node of the joined cluster."""
    return [node["Resources"] for node in ray.nodes() if node["Alive"]]  # type: ignore[no-untyped-call]


def nodes_to_come(most: int) -> list[dict[str, float]]:
    """Return the resources of the nodes to which the joined cluster may grow; empty if no limit was reported."""
    growth = ray._private.state.state.get_cluster_config()
    kinds = growth.node_group_configs if growth else ()
    return [dict(kind.resources) for kind in kinds for _ in range(min(kind.max_count, most))]


_POLL_SECONDS = 2.0
_PATIENCE = 30.0  # seconds without a response until the head is considered lost; Ray waits 60


class _Showing(Protocol):
    """A display that says what happens, and can be stopped before a message is printed."""

    def note(self, text: str) -> None: ...

    def stop(self) -> None: ...


class Head:
    """The head of a cluster, identified by the id that the cluster had when this process joined it."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._id = who_answers(address)
        self._heard = time.monotonic()

    def loss(self, *, patience: float = _PATIENCE) -> str:
        """Return a message if the head is lost; empty while it may still be alive."""
        answer, now = who_answers(self._address), time.monotonic()
        if answer is None:
            silent = now - self._heard
            return self._sentence(f"has not answered for {silent:.0f} s") if silent >= patience else ""
        self._heard = now
        if self._id and answer and answer != self._id:
            return self._sentence("is another one than before")
        self._id = self._id or answer
        return ""

    def lost(self) -> TrainingError | None:
        """Return the error to raise if Ray failed because the head is lost; None if the head still responds."""
        sentence = self.loss(patience=0)
        return TrainingError(sentence) if sentence else None

    def _sentence(self, what: str) -> str:
        return (
            f"the cluster's head at {self._address} {what}; what was saved is kept: "
            "once the cluster is up, the same command resumes from there"
        )


@contextmanager
def watched_head(address: str, display: _Showing) -> Iterator[Head]:
    """Yield the head at ``address``; end this process with a message and exit code 1 if the head is lost."""
    head, over = Head(address), threading.Event()

    def poll() -> None:
        if (sentence := head.loss()) and not over.is_set():
            display.stop()
            say(f"error: {sentence}", err=True)
            os._exit(TrainingError.exit_code)  # as Ray would half a minute later; locks and leases end as after a kill

    with repeating(poll, _POLL_SECONDS):
        try:
            yield head
        finally:
            over.set()


def head_of_this_machine(remedy: str) -> str:
    """Return the address of the head of this machine's cluster; from now on Ray sends it the token."""
    named = os.environ.get("RAY_ADDRESS") or "auto"
    address = named if named != "auto" else _found_here()
    if address is None or address == "local":
        raise UserError(f"no cluster runs on this machine; {remedy}")
    require_answer(address, discovered=True)
    send_token(os.environ)
    read_token_settings()
    return address


class Notices:
    """Machines of the joined cluster that are being drained, each reported once.

    Ray drains a node after ``ray drain-node``, on request of its autoscaler, and if its own processes receive
    SIGTERM.
    """

    def __init__(self) -> None:
        self._known: set[str] = set()
        self._polled = 0.0

    def tell(self, act: Callable[[list[str]], None]) -> None:
        """Call ``act`` with the names of draining machines that are new; they are until it has returned.

        Queries Ray at most every 2 s.
        """
        if time.monotonic() - self._polled < _POLL_SECONDS:
            return
        self._polled = time.monotonic()
        if draining := set(ray._private.state.state.get_draining_nodes()) - self._known:
            nodes = ray.nodes()  # type: ignore[no-untyped-call]
            names = {node["NodeID"]: node["NodeManagerHostname"] for node in nodes}
            act(sorted(names.get(node, node) for node in draining))
            self._known |= draining


def on_drain(act: Callable[[list[str]], None]) -> AbstractContextManager[None]:
    """Call ``act`` in a background thread with the names of machines that start to drain; errors do not end that."""
    notices = Notices()
    return repeating(lambda: notices.tell(act), _POLL_SECONDS)

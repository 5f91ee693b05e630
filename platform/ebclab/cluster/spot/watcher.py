"""A spot machine that will be taken away tells the head, so that what trains on it saves first."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TypeVar

from ray._private import services
from ray._raylet import GcsClient  # type: ignore[attr-defined]
from ray.core.generated import autoscaler_pb2, gcs_pb2
from ray.exceptions import RayError

from ebclab.cluster.address import require_answer
from ebclab.cluster.join import head_of_this_machine
from ebclab.cluster.spot.metadata import Notice, await_notice, find_cloud
from ebclab.errors import EbclabError, UnreachableError, UserError
from ebclab.storage.remote import cache_folder

_ANSWER_SECONDS = 5.0
_START_SECONDS = 30.0  # for a node that has just been started to be known to its head
_END_SECONDS = 10.0  # for an older watcher to end
_LEAST_SECONDS = 5.0  # a notice that comes late still gives what trains this long
T = TypeVar("T")


def watch(say: Callable[[str], None], node_address: str = "") -> None:
    """Wait until the cloud announces that it takes this machine away, and drain the nodes that run on it.

    Args:
        say: Told what happens, in sentences.
        node_address: The node's, as ``ray start --node-ip-address`` was given; found out when empty.

    Raises:
        UserError: This is no machine of a cloud, no node runs here, or the head does not let this process in.
        EbclabError: The head did not answer before the machine's end.
    """
    head = head_of_this_machine("call this after `ray start`")
    found = node_address or services.get_node_ip_address(head)  # type: ignore[no-untyped-call]
    address = str(services.resolve_ip_for_localhost(found))  # as `ray start` does
    cloud, is_spot = find_cloud(os.environ)
    with _instead_of_others():
        if not is_spot:
            say(f"{cloud.name} does not take this machine away for others; there is nothing to watch")
            return
        _patiently(lambda: _nodes_here(head, address), time.time() + _START_SECONDS, say)
        say(f"watching for {cloud.name}'s notice to take {address} away")
        notice = await_notice(cloud, say)
        until = max(notice.deadline, time.time() + _LEAST_SECONDS)
        nodes = _patiently(lambda: _drain(head, address, notice, until), until, say)
    when = datetime.fromtimestamp(until, UTC).isoformat(timespec="seconds")
    say(f"{notice.what} at {when}: node {', '.join(node[:6] for node in nodes)} drains, what trains there saves")


def _drain(head: str, address: str, notice: Notice, until: float) -> list[str]:
    """Tell the head that the nodes at ``address`` end at ``until``; return their ids."""
    nodes = _nodes_here(head, address)
    reason = autoscaler_pb2.DrainNodeReason.Value("DRAIN_NODE_REASON_PREEMPTION")  # type: ignore[attr-defined]
    client = GcsClient(address=head)
    for node in nodes:
        taken, why = client.drain_node(node, reason, notice.what, int(until * 1000), timeout=_ANSWER_SECONDS)
        if not taken:
            raise EbclabError(f"the head at {head} does not drain node {node}, got {why}")
    return nodes


def _nodes_here(head: str, address: str) -> list[str]:
    """Return the ids of the living nodes at ``address``.

    Raises:
        UserError: There is none, or the head does not let this process in.
    """
    require_answer(head, discovered=True)  # Ray's client would wait, and end the process
    nodes = GcsClient(address=head).get_all_node_info(timeout=_ANSWER_SECONDS)
    alive = gcs_pb2.GcsNodeInfo.ALIVE  # type: ignore[attr-defined]
    found = {node.hex(): info.node_manager_address for node, info in nodes.items() if info.state == alive}
    here = [node for node, place in found.items() if place == address]
    if not here:
        others = ", ".join(sorted(set(found.values()))) or "no nodes"
        raise UserError(f"no node at {address}, the cluster at {head} has {others}; name this one's: --node-ip-address")
    return here


def _patiently(work: Callable[[], T], until: float, say: Callable[[str], None]) -> T:
    """Return what ``work`` returns, trying again until a time; say once why it is tried again.

    Raises:
        EbclabError: It has failed to the end; the text is that of the last failure.
    """
    told = False
    while True:
        try:
            return work()
        except RayError as error:
            failure: EbclabError = UnreachableError(f"the head does not answer, got {' '.join(str(error).split())}")
        except UserError as error:
            failure = error
        if time.time() > until:
            raise failure
        if not told:
            say(f"{failure}; trying again")
        told = True
        time.sleep(1.0)


@contextmanager
def _instead_of_others() -> Iterator[None]:
    """End an older watcher of this user on this machine, and keep its place.

    Raises:
        UserError: It does not end, or the place cannot be written.
    """
    path = cache_folder() / f"watch-{socket.gethostname()}"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        place = path.open("a+", encoding="utf-8")
    except OSError as error:
        raise UserError(f"{path}: cannot be written, got {error.strerror}; set EBCLAB_COPIES to a folder") from error
    with place:
        give_up = time.monotonic() + _END_SECONDS
        while True:
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(place, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            place.seek(0)
            older = place.read()
            if time.monotonic() > give_up:
                raise UserError(f"another `ebclab cluster watch` does not end, got process {older}; end it first")
            if older.isdigit():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(older), signal.SIGTERM)
            time.sleep(0.1)
        place.truncate(0)
        place.write(str(os.getpid()))
        place.flush()
        yield

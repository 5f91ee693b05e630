"""Waits on a spot machine for its preemption notice and drains its nodes, so that runs on them save first."""

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
from pathlib import Path
from typing import TypeVar

from ray._private import services
from ray._raylet import GcsClient  # type: ignore[attr-defined]
from ray.core.generated import autoscaler_pb2, gcs_pb2
from ray.exceptions import RayError

from ebclab.cluster.address import require_answer
from ebclab.cluster.join import head_of_this_machine
from ebclab.cluster.spot.metadata import Notice, await_notice, find_cloud
from ebclab.errors import EbclabError, UnreachableError, UserError
from ebclab.regular_file import read_regular
from ebclab.storage.lock import held
from ebclab.storage.remote import cache_folder

_ANSWER_SECONDS = 5.0
_START_SECONDS = 30.0  # until the head knows a node that has just been started
_END_SECONDS = 10.0  # until an older watcher has ended
_LONGEST_ID = 20  # digits
_LEAST_SECONDS = 5.0  # even after a late notice, runs get this long to save
T = TypeVar("T")


def watch(say: Callable[[str], None], node_address: str = "") -> None:
    """Wait until the cloud announces that it takes this machine away, and drain the nodes that run on it.

    Args:
        say: Called with a message about each event.
        node_address: Address of the node, as given to ``ray start --node-ip-address``; if empty, Ray determines it.
    """
    head = head_of_this_machine("call this after `ray start`")
    named = node_address or services.get_node_ip_address(head)  # type: ignore[no-untyped-call]
    address = str(services.resolve_ip_for_localhost(named))  # as `ray start` does
    cloud, is_spot = find_cloud(os.environ)
    with _sole_watcher():
        if not is_spot:
            say(f"{cloud.name} does not take this machine away for others; there is nothing to watch")
            return
        _retried(lambda: _nodes_here(head, address), time.time() + _START_SECONDS, say)
        say(f"watching for {cloud.name}'s notice to take {address} away")
        notice = await_notice(cloud, say)
        until = max(notice.deadline, time.time() + _LEAST_SECONDS)
        nodes = _retried(lambda: _drain(head, address, notice, until), until, say)
    when = datetime.fromtimestamp(until, UTC).isoformat(timespec="seconds")
    say(f"{notice.what} at {when}: node {', '.join(node[:6] for node in nodes)} drains, what trains there saves")


def _drain(head: str, address: str, notice: Notice, until: float) -> list[str]:
    """Request the head to drain the nodes at ``address`` with the deadline ``until``; return their ids."""
    nodes = _nodes_here(head, address)
    reason = autoscaler_pb2.DrainNodeReason.Value("DRAIN_NODE_REASON_PREEMPTION")  # type: ignore[attr-defined]
    client = GcsClient(address=head)
    for node in nodes:
        taken, why = client.drain_node(node, reason, notice.what, int(until * 1000), timeout=_ANSWER_SECONDS)
        if not taken:
            raise EbclabError(f"the head at {head} does not drain node {node}, got {why}")
    return nodes


def _nodes_here(head: str, address: str) -> list[str]:
    """Return the ids of the living nodes at ``address``."""
    require_answer(head, discovered=True)  # without this, Ray's client would wait and then end the process
    nodes = GcsClient(address=head).get_all_node_info(timeout=_ANSWER_SECONDS)
    alive = gcs_pb2.GcsNodeInfo.ALIVE  # type: ignore[attr-defined]
    addresses = {node.hex(): info.node_manager_address for node, info in nodes.items() if info.state == alive}
    here = [node for node, where in addresses.items() if where == address]
    if not here:
        others = ", ".join(sorted(set(addresses.values()))) or "no nodes"
        raise UserError(f"no node at {address}, the cluster at {head} has {others}; name this one's: --node-ip-address")
    return here


def _retried(work: Callable[[], T], until: float, say: Callable[[str], None]) -> T:
    """Return the result of ``work``, which is retried after failures until ``until``; the first one is reported."""
    is_said = False
    while True:
        try:
            return work()
        except RayError as error:
            failure: EbclabError = UnreachableError(f"the head does not answer, got {' '.join(str(error).split())}")
        except UserError as error:
            failure = error
        if time.time() > until:
            raise failure
        if not is_said:
            say(f"{failure}; trying again")
        is_said = True
        time.sleep(1.0)


@contextmanager
def _sole_watcher() -> Iterator[None]:
    """Terminate an older watcher of this user on this machine, and hold the lock that only one watcher can hold."""
    path = cache_folder() / f"watch-{socket.gethostname()}"
    give_up = time.monotonic() + _END_SECONDS
    with contextlib.ExitStack() as stack:
        while True:
            try:
                descriptor = stack.enter_context(held(path, fcntl.LOCK_EX | fcntl.LOCK_NB))
                break
            except BlockingIOError:
                _end_older(path, is_too_late=time.monotonic() > give_up)
            except OSError as error:
                raise UserError(
                    f"{path}: cannot be written, got {error.strerror}; set EBCLAB_COPIES to a folder"
                ) from error
            time.sleep(0.1)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, str(os.getpid()).encode(), 0)
        yield


def _end_older(path: Path, *, is_too_late: bool) -> None:
    """Terminate the watcher that has written its process id into the lock file."""
    with contextlib.suppress(OSError):
        older = read_regular(path, _LONGEST_ID).decode("ascii", "replace")
        if is_too_late:
            raise UserError(f"another `ebclab cluster watch` does not end, got process {older}; end it first")
        if older.isdecimal() and int(older) > 1:  # 0 would be this process and its kin
            os.kill(int(older), signal.SIGTERM)

"""Waits on a spot machine for its preemption notice and drains its nodes, so that runs on them save first.

The notices come from the metadata services of Amazon and Google. Requests go directly, whatever proxy is set: a proxy
cannot reach a machine's own service.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit

from ray._private import services
from ray._raylet import GcsClient  # type: ignore[attr-defined]
from ray.core.generated import autoscaler_pb2, gcs_pb2
from ray.exceptions import RayError

from ebclab.cluster.address import require_answer
from ebclab.cluster.join import head_of_this_machine
from ebclab.errors import EbclabError, MetadataError, UnreachableError, UserError
from ebclab.regular_file import read_regular
from ebclab.storage.lock import held
from ebclab.storage.object_store import cache_folder
from ebclab.storage.reading import foreign_json_value

AMAZONS_ADDRESS = "AWS_EC2_METADATA_SERVICE_ENDPOINT"
"""Environment variable, known to Amazon's own tools, with the URL of a substitute such as http://127.0.0.1:1338/."""
GOOGLES_ADDRESS = "GCE_METADATA_HOST"
"""Environment variable, known to Google's own tools, with the HOST or HOST:PORT of a substitute."""

_USUAL = "169.254.169.254"  # link-local address of the service in both clouds
_ANSWER_SECONDS = 2.0
_MOST_BYTES = 1 << 16
_PAUSE = 2.0  # seconds between polls; Google's notice comes 30 seconds before the end
_TRIES = 3
_AMAZONS_SECONDS, _GOOGLES_SECONDS = 120.0, 30.0  # from a notice until the machine is taken away
_AMAZONS_ACTIONS = ("terminate", "stop", "hibernate")
_TOKEN_SECONDS = "21600"  # the maximum that Amazon allows

_HEAD_SECONDS = 5.0  # for an answer of the head
_START_SECONDS = 30.0  # until the head knows a node that has just been started
_END_SECONDS = 10.0  # until an older watcher has ended
_LONGEST_ID = 20  # digits
_LEAST_SECONDS = 5.0  # even after a late notice, runs get this long to save
T = TypeVar("T")


@dataclass(frozen=True)
class Notice:
    """The announcement that a machine will be taken away."""

    what: str  # description of the event
    deadline: float  # time of the event, in seconds since 1970


class Amazon:
    """Amazon's metadata service in its second version (IMDSv2), in which each request carries a token.

    Its methods, and those of ``Google``, raise a MetadataError if the service does not respond properly.
    """

    name = "Amazon"

    def __init__(self, environment: Mapping[str, str]) -> None:
        named = environment.get(AMAZONS_ADDRESS) or f"http://{_USUAL}"
        url = urlsplit(named)
        if url.scheme != "http" or not url.netloc:
            raise UserError(f"{AMAZONS_ADDRESS}: no http address, got {named}; write http://HOST:PORT, or unset it")
        self._host, self._base, self._token = url.netloc, url.path.rstrip("/"), ""

    def is_spot(self) -> bool:
        """Return False if the service reports that this is not a spot machine."""
        return self._get("instance-life-cycle") != "on-demand"

    def notice(self) -> Notice | None:
        """Return the preemption notice, or None if there is none."""
        text = self._get("spot/instance-action")
        if text is None:
            return None
        try:
            announced = foreign_json_value(text.encode())
            action, at = announced["action"], announced.get("time")
        except (ValueError, KeyError, TypeError):
            action = at = None
        if action not in _AMAZONS_ACTIONS:
            raise MetadataError(f"{self._host}: no notice that Amazon's documentation knows, got {text[:200]!r}")
        return Notice(f"Amazon will {action} this machine", _seconds(at, time.time() + _AMAZONS_SECONDS))

    def _get(self, name: str) -> str | None:
        """Return the entry of the service with this name, or None if there is none."""
        status = 401
        for _ in range(2):  # a token that has expired is refused with 401
            self._token = self._token or self._new_token()
            status, text, _ = self._ask("GET", f"meta-data/{name}", {"X-aws-ec2-metadata-token": self._token})
            if status in (200, 404):
                return text if status == 200 else None
            self._token = ""
            if status != 401:
                break
        raise MetadataError(f"{self._host}: not as Amazon's metadata service answers, got status {status} for {name}")

    def _new_token(self) -> str:
        status, text, _ = self._ask("PUT", "api/token", {"X-aws-ec2-metadata-token-ttl-seconds": _TOKEN_SECONDS})
        if status != 200 or not (text and text.isascii() and text.isprintable()):
            raise MetadataError(f"{self._host}: not Amazon's metadata service, got status {status} for a token")
        return text

    def _ask(self, method: str, name: str, headers: dict[str, str]) -> tuple[int, str, str]:
        return _ask(self._host, method, f"{self._base}/latest/{name}", headers)


class Google:
    """Google's metadata service."""

    name = "Google"

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._host = environment.get(GOOGLES_ADDRESS) or _USUAL

    def is_spot(self) -> bool:
        """Return False if the service reports that this is not a spot machine."""
        return self._get("scheduling/preemptible") != "FALSE"

    def notice(self) -> Notice | None:
        """Return the preemption notice, or None if there is none."""
        text = self._get("preempted")
        if text not in ("TRUE", "FALSE"):
            raise MetadataError(f"{self._host}: neither TRUE nor FALSE, as Google's documentation says, got {text!r}")
        return None if text == "FALSE" else Notice("Google will end this machine", time.time() + _GOOGLES_SECONDS)

    def _get(self, name: str) -> str:
        path = f"/computeMetadata/v1/instance/{name}"
        status, text, flavor = _ask(self._host, "GET", path, {"Metadata-Flavor": "Google"})
        if status != 200 or flavor != "Google":
            raise MetadataError(f"{self._host}: not Google's metadata service, got status {status} for {name}")
        return text[:200]


Cloud = Amazon | Google


def find_cloud(environment: Mapping[str, str]) -> tuple[Cloud, bool]:
    """Return the cloud to which this machine belongs, and whether this is a spot machine."""
    failures: list[str] = []
    for number in range(_TRIES):
        time.sleep(_PAUSE if number else 0)
        failures = []
        for cloud in (Amazon(environment), Google(environment)):
            try:
                return cloud, cloud.is_spot()
            except MetadataError as error:
                failures.append(f"{cloud.name}: {error}")
    raise UserError(f"no machine of Amazon or Google, got {'; '.join(failures)}; there is nothing to watch here")


def await_notice(cloud: Cloud, say: Callable[[str], None]) -> Notice:
    """Wait for the cloud's notice and return it."""
    answered = True
    while True:
        try:
            notice = cloud.notice()
        except MetadataError as error:
            if answered:
                say(f"{error}; asking on")
            answered = False
        else:
            if not answered:
                say(f"{cloud.name}'s metadata service answers again")
            answered = True
            if notice is not None:
                return notice
        time.sleep(_PAUSE)


def _ask(host: str, method: str, path: str, headers: dict[str, str]) -> tuple[int, str, str]:
    """Return status, text and Metadata-Flavor header of a response; the last identifies Google's service."""
    try:
        connection = HTTPConnection(host, timeout=_ANSWER_SECONDS)
        try:
            connection.request(method, path, headers=headers)
            answer = connection.getresponse()
            text = answer.read(_MOST_BYTES).decode("utf-8", "replace").strip()
            return answer.status, text, answer.getheader("Metadata-Flavor", "")
        finally:
            connection.close()
    except (OSError, HTTPException) as error:
        raise MetadataError(f"{host}: no metadata service answers, got {error or type(error).__name__}") from error


def _seconds(text: object, otherwise: float) -> float:
    """Return a time such as 2026-01-31T08:22:00Z in seconds since 1970, or ``otherwise`` if ``text`` is not a time."""
    try:
        moment = datetime.fromisoformat(str(text))
    except ValueError:
        return otherwise
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def watch(say: Callable[[str], None], node_address: str = "") -> None:
    """Wait until the cloud announces that it takes this machine away, and drain the nodes that run on it.

    Args:
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
        taken, why = client.drain_node(node, reason, notice.what, int(until * 1000), timeout=_HEAD_SECONDS)
        if not taken:
            raise EbclabError(f"the head at {head} does not drain node {node}, got {why}")
    return nodes


def _nodes_here(head: str, address: str) -> list[str]:
    """Return the ids of the living nodes at ``address``."""
    require_answer(head, discovered=True)  # without this, Ray's client would wait and then end the process
    nodes = GcsClient(address=head).get_all_node_info(timeout=_HEAD_SECONDS)
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

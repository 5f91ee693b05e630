"""Client of a cluster's job server: Ray's client with short timeouts and one-line error messages."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import socket
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import ray
import requests
from ray.exceptions import AuthenticationError
from ray.job_submission import JobSubmissionClient
from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection
from urllib3.connectionpool import HTTPConnectionPool

from ebclab.cluster.address import MODE, sends_token, token_source
from ebclab.cluster.jobs import JobState
from ebclab.cluster.socket_owner import stranger
from ebclab.cluster.switches import SWITCHES
from ebclab.config.names import did_you_mean
from ebclab.errors import EbclabError, UnreachableError, UserError

_WAIT_SECONDS = (5.0, 60.0)  # connect and read timeouts: the server itself may wait for a busy head node
_STOP_SECONDS = 600
_LONGEST_QUOTE = 500  # characters of an answer in a message
_CHATTY = ("ray.dashboard.modules", "ray._private.authentication", "ray._private.runtime_env")


class Cluster:
    """The jobs of one cluster."""

    def __init__(self, address: str) -> None:
        self.address = address
        for name in list(logging.Logger.manager.loggerDict):
            if name.startswith(_CHATTY):
                logging.getLogger(name).setLevel(logging.ERROR)
        os.environ["RAY_API_SERVER_ADDRESS"] = address  # Ray's client prefers this variable to its argument
        with self._readable_errors():
            self._client = _Client(address)
            self._require_version(self._client.server_version())

    def submit(
        self, job_id: str, command: str, packages: Sequence[Path], variables: Mapping[str, str] | None = None
    ) -> None:
        """Upload the packages that the cluster does not have yet, and start a job.

        Args:
            packages: Folders that come first on the import path of the job's processes on all nodes.
            variables: Environment variables of the job's processes; visible to everyone who can see the job.
        """
        everywhere = {
            **SWITCHES,
            "RAY_JOB_STOP_WAIT_TIME_S": str(_STOP_SECONDS),  # Ray's 3 s are too short to save
            **(variables or {}),
        }
        environment = {"py_modules": [str(package) for package in packages], "env_vars": everywhere}
        with self._readable_errors():
            self._client.submit_job(entrypoint=command, submission_id=job_id, runtime_env=environment)

    def state(self, job_id: str) -> JobState:
        """Return the state of a job."""
        with self._readable_errors(job_id):
            info = self._client.get_job_info(job_id)
            state = _state(info)
        if not info.submission_id:
            raise UserError(
                f"no job that was submitted, got {job_id}, a program on the cluster; see ebclab submit --list"
            )
        return state

    def all_jobs(self) -> list[JobState]:
        """Return all submitted jobs, the newest first."""
        with self._readable_errors():
            jobs = [_state(job) for job in self._client.list_jobs() if job.submission_id]
        return sorted(jobs, key=lambda job: job.started or 0.0, reverse=True)

    def stop(self, job_id: str) -> bool:
        """Request a job to save and stop; return whether it was running.

        Its processes receive SIGTERM, and SIGKILL ten minutes later if they still run.
        """
        with self._readable_errors(job_id):
            return bool(self._client.stop_job(job_id))

    async def log(self, job_id: str) -> AsyncIterator[str]:
        """Yield a job's log from its beginning, and its further output until it ends."""
        with self._readable_errors(job_id):
            async for text in self._client.tail_job_logs(job_id):
                yield text

    def _require_version(self, there: str) -> None:
        here = ray.__version__
        if there.split(".")[:2] != here.split(".")[:2]:
            raise UserError(
                f"{self.address}: the cluster runs Ray {there}, got {here} here; "
                f"install ray=={there} here, or {here} on the cluster"
            )

    @contextmanager
    def _readable_errors(self, job_id: str = "") -> Iterator[None]:
        """Convert errors of Ray's client into errors of this package with one-line messages."""
        try:
            yield
        except AuthenticationError as error:
            raise UserError(self._about_token()) from error
        except _RedirectedError as error:
            raise UserError(
                f"{self.address}: the server redirects, and nothing is sent to another address than yours, "
                f"got {str(error)[:_LONGEST_QUOTE]!r}; --address names another one"
            ) from error
        except (
            requests.ConnectionError,
            requests.Timeout,
            ConnectionError,
            aiohttp.ClientError,
            TimeoutError,
        ) as error:
            raise UnreachableError(
                f"{self.address}: no job server answers; is the cluster up, and does `ray dashboard cluster.yaml` run? "
                "--address names another one"
            ) from error
        except (requests.RequestException, LookupError, TypeError, ValueError, ArithmeticError) as error:
            raise UserError(  # an answer of another form than Ray's, or none
                f"{self.address}: what answers there is not a Ray job server; --address names another one"
            ) from error
        except RuntimeError as error:
            raise self._about_refusal(str(error), job_id) from error

    def _about_token(self) -> str:
        source = token_source(os.environ)
        remedy = "put the cluster's into ~/.ray/auth_token, or name its file in RAY_AUTH_TOKEN_PATH"
        if not source.is_set:
            return f"{self.address}: the cluster asks for a token, got none; {remedy}"
        if not sends_token(os.environ, unasked=True):
            mode = os.environ.get(MODE, "")
            return f"{self.address}: the cluster asks for a token, got {MODE}={mode}; set it to token"
        return f"{self.address}: the cluster refuses the token from {source.name}; {remedy}"

    def _about_refusal(self, text: str, job_id: str) -> EbclabError:
        if "WebSocket" in text:
            return UnreachableError(f"{self.address}: the connection broke")
        if "404" in text and "Version check" in text:
            return UserError(f"{self.address}: what answers there is not a Ray job server; --address names another one")
        if job_id and ("404" in text or "does not exist" in text):
            names = [job.id for job in self.all_jobs()]
            return UserError(f"no such job on {self.address}, got {job_id}; {did_you_mean(job_id, names)}")
        if "already exists" in text:
            return UserError(f"--name: taken by another job of {self.address}; choose another name, or leave it out")
        if "No available agent" in text:  # Ray has waited for it already
            return EbclabError(
                f"{self.address}: the head node cannot start jobs yet, got no answer of its agent; repeat the command "
                "in a minute, or read dashboard_agent.log in Ray's logs there: another Ray on that machine may hold "
                "its port (`ray start --dashboard-agent-listen-port` sets one)"
            )
        lines = [line.strip(" .") for line in text.splitlines() if line.strip(" .")]
        reason = re.sub(r"^Request failed with status code \d+: ", "", lines[-1]) if lines else "no reason"
        return EbclabError(f"{self.address}: the job server refuses, got {reason[:_LONGEST_QUOTE]}")


class _Client(JobSubmissionClient):
    """Ray's client with timeouts, which shows the token only to a server that has proved whose it is.

    All requests of Ray's client pass through ``_do_request``, except the one of ``tail_job_logs``; the headers that Ray
    makes are not used.
    """

    def __init__(self, address: str) -> None:
        source = token_source(os.environ)
        self._token = source.read() if sends_token(os.environ, unasked=True) else None
        asked = sends_token(os.environ) or urlsplit(address).scheme == "https"
        self._proof = partial(_require_own_server, address) if self._token and not asked else None
        self._session = requests.Session()
        if self._token:
            self._session.auth = self._bearer  # replaces what requests would take from ~/.netrc
        if self._proof:
            self._session.trust_env = False  # a proxy would be what proves itself
            self._session.mount("http://", _ProvingAdapter(self._proof))
        super().__init__(address)

    def _bearer(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        request.headers["Authorization"] = f"Bearer {self._token}"
        return request

    def _do_request(
        self, method: str, endpoint: str, *, data: bytes | None = None, json_data: Any = None, **arguments: Any
    ) -> requests.Response:
        arguments = {"timeout": _WAIT_SECONDS, "data": data, "json": json_data, **arguments}
        response = self._session.request(method, self._address + endpoint, allow_redirects=False, **arguments)
        if response.is_redirect:
            raise _RedirectedError(response.headers["Location"])
        if response.status_code in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
            raise AuthenticationError(response.reason)
        return response

    async def tail_job_logs(self, job_id: str) -> AsyncIterator[str]:
        """Yield a job's log as Ray's client does."""
        headers = {"Authorization": f"Bearer {self._token}"} if self._token else {}
        connector = _ProvingConnector(self._proof) if self._proof else None
        redirects = aiohttp.TraceConfig()
        redirects.on_request_redirect.append(_refuse_redirect)
        async with (
            aiohttp.ClientSession(headers=headers, connector=connector, trace_configs=[redirects]) as session,
            session.ws_connect(f"{self._address}/api/jobs/{job_id}/logs/tail") as log,
        ):
            async for message in log:
                if message.type == aiohttp.WSMsgType.TEXT:
                    yield message.data
                elif message.type == aiohttp.WSMsgType.ERROR:
                    raise RuntimeError(f"WebSocket error: {log.exception()}")
            if log.close_code == aiohttp.WSCloseCode.ABNORMAL_CLOSURE:
                raise RuntimeError("WebSocket closed unexpectedly")

    def server_version(self) -> str:
        """Return the version of Ray on the cluster."""
        return str(self._do_request("GET", "/api/version").json()["ray_version"])


class _RedirectedError(Exception):
    """The server names another address, to which nothing is sent."""


async def _refuse_redirect(session: object, context: object, redirect: aiohttp.TraceRequestRedirectParams) -> None:
    raise _RedirectedError(redirect.response.headers.get("Location", ""))


Proof = Callable[[socket.socket], None]
"""Raises an error unless a connection leads to a process of this user; called before anything is sent over it."""


def _require_own_server(address: str, connection: socket.socket) -> None:
    """Refuse a connection unless a process of this user is at its other end."""
    if other := stranger(connection):
        raise UserError(
            f"{address}: not shown to be a server of yours, so neither the token nor anything else was sent, "
            f"got {other}; open the tunnel (`ray dashboard cluster.yaml`), write an https address, or set {MODE}=token "
            f"to send the token to any server that answers, {MODE}=disabled to send none"
        )


class _ProvingAdapter(HTTPAdapter):
    """Makes connections for ``requests`` that are proved before they are used."""

    def __init__(self, proof: Proof) -> None:
        self._proof = proof
        super().__init__()

    def init_poolmanager(self, *arguments: Any, **options: Any) -> None:
        """Have connections made by a class of ours."""
        super().init_poolmanager(*arguments, **options)
        proof = self._proof

        class Connection(HTTPConnection):
            def connect(self) -> None:
                super().connect()
                proof(self.sock)

        class Pool(HTTPConnectionPool):
            ConnectionCls = Connection

        self.poolmanager.pool_classes_by_scheme = {"http": Pool}


class _ProvingConnector(aiohttp.TCPConnector):
    """Makes connections for ``aiohttp`` that are proved before they are used."""

    def __init__(self, proof: Proof) -> None:
        self._proof = proof
        super().__init__()

    async def connect(self, *arguments: Any, **options: Any) -> aiohttp.connector.Connection:
        """Connect, and refuse a connection that is not proved."""
        connection = await super().connect(*arguments, **options)
        transport = connection.transport
        try:
            if transport is None:
                raise aiohttp.ClientConnectionError
            await asyncio.to_thread(self._proof, transport.get_extra_info("socket"))
        except BaseException:
            connection.close()
            raise
        return connection


def _state(job: Any) -> JobState:
    """Convert Ray's description of a job."""
    return JobState(
        id=job.submission_id,
        status=job.status.value,
        command=job.entrypoint,
        message=job.message or "",
        exit_code=job.driver_exit_code,
        started=_seconds(job.start_time),
        ended=_seconds(job.end_time),
    )


def _seconds(milliseconds: int | None) -> float | None:
    """Return a time since 1970; 0 and None are none."""
    if not milliseconds:
        return None
    datetime.fromtimestamp(milliseconds / 1000, UTC)
    return milliseconds / 1000

"""Client of a cluster's job server: Ray's client with short timeouts and one-line error messages."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import aiohttp
import ray
import requests
from ray.exceptions import AuthenticationError
from ray.job_submission import JobSubmissionClient

from ebclab.cluster.jobs import JobState
from ebclab.cluster.switches import SWITCHES
from ebclab.cluster.token import MODE, sends_token, token_source
from ebclab.config.names import did_you_mean
from ebclab.errors import EbclabError, UnreachableError, UserError

_WAIT_SECONDS = (5.0, 60.0)  # connect and read timeouts: the server itself may wait for a busy head node
_STOP_SECONDS = 600
_CHATTY = ("ray.dashboard.modules", "ray._private.authentication", "ray._private.runtime_env")


class Cluster:
    """The jobs of one cluster.

    Args:
        address: http address of its job server.

    Raises:
        UnreachableError: No server responds there.
        UserError: The token is missing or wrong, or the cluster runs another version of Ray.
    """

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
            job_id: Its name.
            command: What the head node runs.
            packages: Folders that come first on the import path of the job's processes on all nodes.
            variables: Environment variables of the job's processes; visible to everyone who can see the job.

        Raises:
            UserError: The name is taken.
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
        """Return the state of a job.

        Raises:
            UserError: There is no such job.
        """
        with self._readable_errors(job_id):
            info = self._client.get_job_info(job_id)
        if not info.submission_id:
            raise UserError(
                f"no job that was submitted, got {job_id}, a program on the cluster; see ebclab submit --list"
            )
        return _state(info)

    def all_jobs(self) -> list[JobState]:
        """Return all submitted jobs, the newest first."""
        with self._readable_errors():
            jobs = [_state(job) for job in self._client.list_jobs() if job.submission_id]
        return sorted(jobs, key=lambda job: job.started or 0.0, reverse=True)

    def stop(self, job_id: str) -> bool:
        """Request a job to save and stop; return whether it was running.

        Its processes receive SIGTERM, and SIGKILL ten minutes later if they still run.

        Raises:
            UserError: There is no such job.
        """
        with self._readable_errors(job_id):
            asked: bool = self._client.stop_job(job_id)
            return asked

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
            raise UserError(self._about_token(str(error))) from error
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
        except (requests.RequestException, KeyError) as error:
            raise UserError(
                f"{self.address}: what answers there is no job server of Ray; --address names another one"
            ) from error
        except RuntimeError as error:
            raise self._about_refusal(str(error), job_id) from error

    def _about_token(self, text: str) -> str:
        source = token_source(os.environ)
        if "RAY_AUTH_TOKEN_PATH is set" in text:
            return f"{source.name}: cannot be read or is empty; it must name the file with the cluster's token"
        remedy = "put the cluster's into ~/.ray/auth_token, or name its file in RAY_AUTH_TOKEN_PATH"
        if not source.is_set:
            return f"{self.address}: the cluster asks for a token, got none; {remedy}"
        if not sends_token(os.environ):
            mode = os.environ.get(MODE, "")
            return f"{self.address}: the cluster asks for a token, got {MODE}={mode}; set it to token"
        return f"{self.address}: the cluster refuses the token from {source.name}; {remedy}"

    def _about_refusal(self, text: str, job_id: str) -> EbclabError:
        if "WebSocket" in text:
            return UnreachableError(f"{self.address}: the connection broke")
        if "404" in text and "Version check" in text:
            return UserError(f"{self.address}: what answers there is no job server of Ray; --address names another one")
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
        return EbclabError(f"{self.address}: the job server refuses, got {reason}")


class _Client(JobSubmissionClient):
    """Ray's client with timeouts; without them, it waits forever."""

    def _do_request(self, method: str, endpoint: str, **arguments: Any) -> requests.Response:
        arguments.setdefault("timeout", _WAIT_SECONDS)
        response: requests.Response = super()._do_request(method, endpoint, **arguments)
        return response

    def server_version(self) -> str:
        """Return the version of Ray on the cluster."""
        version: str = self._do_request("GET", "/api/version").json()["ray_version"]
        return version


def _state(job: Any) -> JobState:
    """Convert Ray's description of a job."""
    return JobState(
        id=job.submission_id,
        status=job.status.value,
        command=job.entrypoint,
        message=job.message or "",
        exit_code=job.driver_exit_code,
        started=job.start_time / 1000 if job.start_time else None,
        ended=job.end_time / 1000 if job.end_time else None,
    )

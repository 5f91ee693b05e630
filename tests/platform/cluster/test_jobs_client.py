"""What a job server answers, in sentences: a server on loopback that says what it is told to say."""

import asyncio
import http.server
import json
import logging
import os
import pwd
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
import ray

from ebclab.cluster import socket_owner
from ebclab.cluster.jobs_client import Cluster
from ebclab.errors import EbclabError, UnreachableError, UserError

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")

Answer = tuple[int, Any]
ABOUT = {"type": "SUBMISSION", "entrypoint": "x", "start_time": 1000, "end_time": 3000, "metadata": {}}
JOBS = [
    ABOUT | {"submission_id": "first", "status": "SUCCEEDED", "driver_exit_code": 0},
    ABOUT | {"submission_id": "second", "status": "FAILED", "driver_exit_code": 2, "start_time": 2000},
    ABOUT | {"type": "DRIVER", "job_id": "03000000", "status": "RUNNING"},
]


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("RAY_API_SERVER_ADDRESS", "")
    for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH", "RAY_ADDRESS"):
        monkeypatch.delenv(name, raising=False)


class Server:
    """Answers by method and path; keeps what was asked."""

    def __init__(self) -> None:
        self.answers: dict[str, Answer] = {
            "GET /api/version": (200, {"ray_version": ray.__version__, "version": "4"}),
            "GET /api/jobs/": (200, JOBS),
            "GET /api/jobs/second": (200, JOBS[1]),
        }
        self.asked: list[tuple[str, bytes]] = []
        self.tokens: list[str | None] = []
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                outer.asked.append((f"{self.command} {self.path}", body))
                outer.tokens.append(self.headers.get("Authorization"))
                status, value = outer.answers.get(f"{self.command} {self.path}", (404, "does not exist"))
                text = value if isinstance(value, str) else json.dumps(value)
                self.send_response(status)
                if status == 302:
                    self.send_header("Location", text)
                self.end_headers()
                self.wfile.write(text.encode())

            do_GET = do_POST = do_PUT = answer  # noqa: N815

            def log_message(self, *arguments: Any) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.close()


def test_where_nobody_listens_is_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(UnreachableError, match=rf"http://127.0.0.1:{port}: no job server answers; is the cluster up"):
        Cluster(f"http://127.0.0.1:{port}")


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        ((404, "nothing here"), "what answers there is not a Ray job server"),
        ((200, "<html>"), "what answers there is not a Ray job server"),
        ((200, {"else": 1}), "what answers there is not a Ray job server"),
        ((502, "bad gateway"), "what answers there is not a Ray job server"),
        (
            (200, {"ray_version": "2.9.1"}),
            f"the cluster runs Ray 2.9.1, got {ray.__version__} here; install ray==2.9.1",
        ),
        ((401, "Unauthorized"), "the cluster asks for a token, got none; put the cluster's into ~/.ray/auth_token"),
    ],
)
def test_what_is_no_fitting_job_server_is_told_in_a_sentence(server: Server, answer: Answer, sentence: str) -> None:
    server.answers["GET /api/version"] = answer
    with pytest.raises(UserError) as caught:
        Cluster(server.address)
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


def _by_log(cluster: Cluster) -> None:
    async def read() -> None:
        async for _ in cluster.log("second"):
            pass

    asyncio.run(read())


WAYS: dict[str, Callable[[Cluster], object]] = {
    "list": lambda cluster: cluster.all_jobs(),
    "state": lambda cluster: cluster.state("second"),
    "stop": lambda cluster: cluster.stop("second"),
    "log": _by_log,
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("mode", "own", "sent"),
    [
        *((None, True, True), ("token", True, True), ("disabled", True, False)),
        *(("token", False, True), (None, False, False)),
    ],
)
def test_the_token_is_sent_to_ones_own_server_or_when_asked(server, monkeypatch, way, mode, own, sent):
    if mode:
        monkeypatch.setenv("RAY_AUTH_MODE", mode)
    monkeypatch.setenv("RAY_AUTH_TOKEN", "hush")
    server.answers["POST /api/jobs/second/stop"] = (200, {"stopped": True})
    cluster = Cluster(server.address)
    if not own:  # from here on another user's process listens there
        monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
        cluster = Cluster(server.address) if mode else cluster
    before = len(server.asked)
    expected = EbclabError if way == "log" or (not own and not mode) else None
    with pytest.raises(expected) if expected else nullcontext() as refusal:
        WAYS[way](cluster)
    told = server.tokens[before:]
    if own or mode:
        assert told == ["Bearer hush" if sent else None]
    else:
        assert told == []
        assert f"got user {pwd.getpwuid(os.getuid()).pw_name}; open the tunnel" in str(refusal.value)


def test_a_server_that_was_never_proved_gets_no_request(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_AUTH_TOKEN", "hush")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")  # a proxy would be what proves itself
    Cluster(server.address)
    before = len(server.asked)
    monkeypatch.setattr(socket_owner, "_TABLES", ())
    with pytest.raises(UserError, match="got someone: this system does not list whose the sockets are; open the tun"):
        Cluster(server.address)
    assert len(server.asked) == before
    monkeypatch.setattr(
        socket_owner, "_ends", lambda connection: ((ip_address("10.0.0.1"), 1), (ip_address("10.0.0.2"), 1))
    )
    with pytest.raises(UserError, match="got another machine; "):
        Cluster(server.address)
    assert len(server.asked) == before


def test_without_a_token_no_server_need_prove_itself(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket_owner, "_TABLES", ())
    assert len(Cluster(server.address).all_jobs()) == 2
    assert set(server.tokens) == {None}


@pytest.mark.parametrize("way", ["version", *WAYS])
def test_a_redirect_is_not_followed(server: Server, monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    monkeypatch.setenv("RAY_AUTH_TOKEN", "hush")
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    paths = {"list": "GET /api/jobs/", "state": "GET /api/jobs/second", "stop": "POST /api/jobs/second/stop"}
    paths |= {"version": "GET /api/version", "log": "GET /api/jobs/second/logs/tail"}
    other = Server()
    try:
        cluster = None if way == "version" else Cluster(server.address)
        server.answers[paths[way]] = (302, f"{other.address}/x")
        with pytest.raises(UserError, match="the server redirects, and nothing is sent to another address than yours"):
            WAYS[way](cluster) if cluster else Cluster(server.address)
        assert other.asked == []
    finally:
        other.close()


ODD: list[Any] = ["<html>", [], {}, None, 7, {"else": 1}, [None], [[]], "NaN"]
ODD += [[{"status": "x"}], [ABOUT | {"status": "?"}]]
ODD += [[ABOUT | {"submission_id": "a", "status": "FAILED", "start_time": 10**30}], [ABOUT | {"unknown": 1}]]


@pytest.mark.parametrize("answer", ODD, ids=lambda answer: str(answer)[:30])
@pytest.mark.parametrize("way", ["list", "state", "stop"])
def test_an_odd_answer_is_a_sentence_or_a_value(server: Server, way: str, answer: Any) -> None:
    cluster = Cluster(server.address)
    for path in ("GET /api/jobs/", "GET /api/jobs/second", "POST /api/jobs/second/stop"):
        server.answers[path] = (200, answer)
    said = ""
    try:
        WAYS[way](cluster)
    except EbclabError as error:
        said = str(error)
    assert "\n" not in said
    assert len(said) < 700


def test_submitted_jobs_of_the_given_address_are_listed_newest_first(server, monkeypatch):
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    monkeypatch.setenv("RAY_API_SERVER_ADDRESS", "http://127.0.0.1:1")
    jobs = Cluster(server.address).all_jobs()
    assert [(job.id, job.status, job.exit_code) for job in jobs] == [("second", "FAILED", 2), ("first", "SUCCEEDED", 0)]
    assert (jobs[0].started, jobs[0].ended) == (2.0, 3.0)


def test_an_unknown_job_is_answered_with_the_nearest_and_a_program_is_none(server: Server) -> None:
    server.answers["GET /api/jobs/03000000"] = (200, JOBS[2])
    cluster = Cluster(server.address)
    for ask in (cluster.state, cluster.stop):
        with pytest.raises(UserError, match=r"no such job on .*, got secnd; did you mean second\?"):
            ask("secnd")
    with pytest.raises(UserError, match="no job that was submitted, got 03000000"):
        cluster.state("03000000")


def test_a_name_that_is_taken_and_a_server_that_cannot_are_told_by_their_reason(server: Server, tmp_path: Path) -> None:
    package = tmp_path / "package"
    package.mkdir()
    (package / "a.py").write_text("")
    cluster = Cluster(server.address)
    assert not [path for path, _ in server.asked if path.startswith("PUT")]

    def submit() -> None:
        cluster.submit("second", "x", [package])

    server.answers |= dict.fromkeys(_upload_paths(server, submit), (200, ""))
    server.answers["POST /api/jobs/"] = (400, "Traceback\nValueError: Job with submission_id second already exists.")
    with pytest.raises(UserError, match="--name: taken by another job of"):
        submit()
    server.answers["POST /api/jobs/"] = (500, "No available agent to submit job, please try again later.")
    with pytest.raises(EbclabError, match=r"cannot start jobs yet, got no answer of its agent; repeat the command"):
        submit()
    server.answers["POST /api/jobs/"] = (500, "Traceback\nRuntimeError: No room for a job.")
    with pytest.raises(EbclabError, match=r"the job server refuses, got RuntimeError: No room for a job$"):
        submit()
    server.answers["POST /api/jobs/"] = (200, {"job_id": "second", "submission_id": "second"})
    submit()
    request = json.loads([body for path, body in server.asked if path == "POST /api/jobs/"][-1])
    (uri,) = request["runtime_env"]["py_modules"]
    assert uri.startswith("gcs://_ray_pkg_")
    variables = request["runtime_env"]["env_vars"]
    assert int(variables["RAY_JOB_STOP_WAIT_TIME_S"]) >= 60  # a run needs time to save; Ray's own default is 3 s
    assert not [name for name in variables if "TOKEN" in name or "SECRET" in name]
    assert "working_dir" not in request["runtime_env"]


def _upload_paths(server: Server, submit: Callable[[], None]) -> list[str]:
    """Return where the client wants to put its packages, by letting it fail once."""
    with pytest.raises(EbclabError):
        submit()
    return [path for path, _ in server.asked if path.startswith("PUT")]


def test_ray_s_client_says_nothing_by_itself(server, tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(logging.getLogger("ray"), "propagate", True)
    (tmp_path / "package").mkdir()
    with caplog.at_level(logging.INFO):
        cluster = Cluster(server.address)
        cluster.all_jobs()
        with pytest.raises(EbclabError):
            cluster.submit("third", "x", [tmp_path / "package"])
    assert [record for record in caplog.records if record.name.startswith("ray")] == []

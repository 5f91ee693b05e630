"""What is said when a cluster does not let this process in: by a stand-in that checks tokens as Ray's head does."""

import http.server
import os
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest

from ebclab.cluster.address import require_answer, who_answers
from ebclab.errors import UserError

TOKEN = "0123456789abcdef" * 4


class _Head(grpc.GenericRpcHandler):
    """Answers the question after the cluster's id, and nothing else, to those who send the token."""

    def __init__(self, token: str | None) -> None:
        self._token = token
        self.asked, self.name = 0, b""
        self.sent: list[str | None] = []

    def service(self, details: Any) -> Any:
        if details.method != "/ray.rpc.NodeInfoGcsService/GetClusterId":
            return None
        sent = dict(details.invocation_metadata).get("authorization")

        def answer(request: bytes, context: Any) -> bytes:
            self.asked += 1
            self.sent.append(sent)
            if self._token and sent != f"Bearer {self._token}":
                context.abort(grpc.StatusCode.UNAUTHENTICATED, "InvalidAuthToken")
            return self.name

        return grpc.unary_unary_rpc_method_handler(answer)


@pytest.fixture
def head() -> Iterator[Callable[[str | None], tuple[str, _Head]]]:
    """Return a function that starts a head with a token, or with none, and returns its address."""
    servers = []

    def start(token: str | None) -> tuple[str, _Head]:
        handler = _Head(token)
        server = grpc.server(ThreadPoolExecutor(1), handlers=[handler])
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        servers.append(server)
        return f"127.0.0.1:{port}", handler

    yield start
    for server in servers:
        server.stop(0).wait()


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home without a token, and no variable that names one."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def _keep(home: Path, token: str) -> Path:
    path = home / ".ray" / "auth_token"
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"{token}\n")
    return path


def _refusal(address: str, **arguments: Any) -> str:
    with pytest.raises(UserError) as raised:
        require_answer(address, **arguments)
    assert "\n" not in str(raised.value)
    assert TOKEN not in str(raised.value)
    return str(raised.value)


def test_the_right_token_enters_from_each_of_rays_three_places(head, home, monkeypatch):
    address, handler = head(TOKEN)
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    path = _keep(home, TOKEN)
    require_answer(address)
    path.rename(home / "elsewhere")
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(home / "elsewhere"))
    require_answer(address)
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", "/nowhere")
    monkeypatch.setenv("RAY_AUTH_TOKEN", TOKEN)
    require_answer(address)
    assert handler.asked == 3


def test_who_sends_no_token_or_a_wrong_one_is_told_at_once_what_is_missing(head, home, monkeypatch):
    address, handler = head(TOKEN)
    copy = "copy the head's ~/.ray/auth_token to this machine, to the same place (chmod 600)"
    assert _refusal(address).endswith(f"wants a token, got none; set RAY_AUTH_MODE=token, and {copy}")
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    assert f"wants a token, got none in ~/.ray/auth_token; {copy}" in _refusal(address)
    _keep(home, "f" * 64)
    assert _refusal(address) == (
        f"resources.address: the cluster at {address} has another token than the one in ~/.ray/auth_token; {copy}"
    )
    assert handler.asked == 3  # once each time: Ray would ask for 20 seconds
    monkeypatch.delenv("RAY_AUTH_MODE")
    _keep(home, TOKEN)
    assert _refusal(address).endswith("wants a token, got none; set RAY_AUTH_MODE=token")


def test_to_a_cluster_found_on_this_machine_a_token_is_sent_unasked_unless_it_is_switched_off(head, home, monkeypatch):
    address, _ = head(TOKEN)
    _keep(home, TOKEN)
    require_answer(address, discovered=True)
    (home / ".ray" / "auth_token").unlink()
    assert "wants a token, got none in ~/.ray/auth_token; copy" in _refusal(address, discovered=True)
    _keep(home, TOKEN)
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    assert _refusal(address, discovered=True).endswith("set RAY_AUTH_MODE=token")


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="/proc lists no sockets here")
def test_a_cluster_of_another_user_that_ray_found_gets_the_token_if_asked(head, home, monkeypatch):
    """Ray takes for a cluster what the command line of any user's process says."""
    address, handler = head(None)
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    require_answer(address, discovered=True)
    _keep(home, TOKEN)
    refusal = _refusal(address, discovered=True)
    assert f"{address} is not shown to be yours, so the token was not sent, got user " in refusal
    for mode in ("disabled", "token"):
        monkeypatch.setenv("RAY_AUTH_MODE", mode)
        require_answer(address, discovered=True)
    assert handler.sent == [None, None, f"Bearer {TOKEN}"]


def test_a_port_that_speaks_something_else_is_no_cluster(home: Path) -> None:
    with http.server.HTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            refusal = _refusal(f"127.0.0.1:{server.server_port}")
        finally:
            server.shutdown()
            thread.join()
    assert f"what answers is not a Ray cluster, got 127.0.0.1:{server.server_port}" in refusal
    assert refusal.endswith("write the head's GCS port, usually 6379 (8265 is the dashboard's)")


def test_who_answers_is_the_cluster_nobody_or_unknown(head, home, monkeypatch):
    address, handler = head(TOKEN)
    handler.name = b"one"
    assert who_answers(address) == b""  # it wants a token, so somebody is there
    path = _keep(home, TOKEN)
    assert who_answers(address) == b""
    assert handler.sent == [None, None]  # the address is one that the user has named, without asking for the token
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    assert who_answers(address) == b"one"
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", "/nowhere")
    assert who_answers(address) == b""
    path.unlink()
    assert who_answers("127.0.0.1:9") is None


@pytest.mark.parametrize(
    "address", ["head", ":6379", "head:", "head:65536", "head:99999999999", "head:²", "http://h:80"]
)
def test_what_is_no_address_is_refused_before_anybody_is_asked(address: str) -> None:
    assert f"not an address of a Ray cluster, got {address}; write HOST:PORT" in _refusal(address)


def test_a_name_that_no_host_can_have_is_one_where_nobody_answers() -> None:
    for name in ("gpu..example.org", f"{'long' * 20}.org"):
        assert f"resources.address: no cluster answers, got {name}:6379 (" in _refusal(f"{name}:6379")


def test_a_head_that_ended_and_that_only_ray_s_record_names_is_told_from_an_address_of_the_user(monkeypatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "auto")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound but not listening: a connection is refused
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        assert f"got auto, by Ray's record on this machine {address} (" in _refusal(address, discovered=True)
        assert f"got {address} (" in _refusal(address)
        monkeypatch.setenv("RAY_ADDRESS", address)
        assert f"got {address} (" in _refusal(address, discovered=True)

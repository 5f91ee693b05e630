"""A store and ways to it, for tests on Ray and others, and a browser."""

from __future__ import annotations

import contextlib
import json
import logging
import socket
import threading
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
import two_ranks
from browsing import CHROMIUM
from faults import Machines

ALLOW_ALL = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "s3:*", "Resource": "*"}]}


class S3(NamedTuple):
    """A server with the bucket ``sets`` and a user."""

    url: str
    key: str
    secret: str

    def query(self) -> str:
        return f"endpoint_override={self.url.removeprefix('http://')}&scheme=http"


def _start_store() -> tuple[Callable[[], None], S3]:
    import boto3
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    url = f"http://{host}:{port}"
    for path, content in (("reset-auth", b"inf"), ("reset", b"")):  # what an earlier server of this process has left
        _post(f"{url}/moto-api/{path}", content)
    owner = {"endpoint_url": url, "region_name": "us-east-1", "aws_access_key_id": "o", "aws_secret_access_key": "o"}
    iam = boto3.client("iam", **owner)
    iam.create_user(UserName="user")
    iam.put_user_policy(UserName="user", PolicyName="all", PolicyDocument=json.dumps(ALLOW_ALL))
    made = iam.create_access_key(UserName="user")["AccessKey"]
    boto3.client("s3", **owner).create_bucket(Bucket="sets")
    _post(f"{url}/moto-api/reset-auth", b"0")  # from now on every request must be signed

    def stop() -> None:
        _post(f"{url}/moto-api/reset-auth", b"inf")  # Amazon as other tests of this process play it takes no keys
        server.stop()

    return stop, S3(url, made["AccessKeyId"], made["SecretAccessKey"])


def _post(url: str, content: bytes) -> None:
    urllib.request.urlopen(urllib.request.Request(url, content, {"Content-Type": "text/plain"})).close()


@pytest.fixture(scope="module")
def store() -> Iterator[S3]:
    """The server; this process has the user's keys and no other way to find any."""
    from ebclab.storage import object_store as opened

    stop, store = _start_store()
    opened._place.cache_clear()  # an earlier server of this process had the same buckets
    with pytest.MonkeyPatch.context() as patch:
        for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL_S3", "AWS_REGION"):
            patch.delenv(name, raising=False)
        patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        patch.setenv("AWS_ENDPOINT_URL", store.url)
        patch.setenv("AWS_ACCESS_KEY_ID", store.key)
        patch.setenv("AWS_SECRET_ACCESS_KEY", store.secret)
        yield store
    stop()


@pytest.fixture(scope="module")
def copies(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where this machine's copies lie; asked for before the cluster, whose workers must know it."""
    folder = tmp_path_factory.mktemp("copies")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EBCLAB_COPIES", str(folder))
        yield folder


class Door:
    """A port that leads to another one while it is open; shut, nobody answers there."""

    def __init__(self, to: int) -> None:
        self._to = to
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port: int = free.getsockname()[1]
        self._lines: list[socket.socket] = []
        self._listener: socket.socket | None = None
        self.open()

    def open(self) -> None:
        """Let callers through."""
        self._listener = socket.create_server(("127.0.0.1", self.port))
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def shut(self) -> None:
        """Hang up, and answer no more."""
        if self._listener is not None:
            self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
        for line in self._lines:
            with contextlib.suppress(OSError):
                line.shutdown(socket.SHUT_RDWR)
        self._lines.clear()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                caller, _ = listener.accept()
            except OSError:
                return
            called = socket.create_connection(("127.0.0.1", self._to))
            self._lines += [caller, called]
            for source, target in ((caller, called), (called, caller)):
                threading.Thread(target=_pass_on, args=(source, target), daemon=True).start()


def _pass_on(source: socket.socket, target: socket.socket) -> None:
    with source, target, contextlib.suppress(OSError):
        while data := source.recv(1 << 16):
            target.sendall(data)


@pytest.fixture
def door(store: S3) -> Iterator[Door]:
    """A way to the store that can be shut."""
    door = Door(int(store.url.rpartition(":")[2]))
    yield door
    door.shut()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Chromium, driven by playwright."""
    playwright = pytest.importorskip("playwright.sync_api", reason="no playwright; run make install")
    with playwright.sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture(scope="module")
def machines(full_waits: bool) -> Iterator[Machines]:
    """A cluster for the tests of a file, none of which has machines before it asks for some."""
    made = Machines(full_waits)
    yield made
    made.end()


@pytest.fixture(scope="session")
def undisturbed_weights(run_ranks: Callable[[str, int], list[Any]]) -> dict[str, torch.Tensor]:
    """The final weights of two workers that nothing happened to: two ranks without Ray, who train the same bits."""
    weights: dict[str, torch.Tensor] = run_ranks(two_ranks.__file__, 2)[0]
    return weights

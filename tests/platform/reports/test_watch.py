"""Pages that are served while their runs continue: who gets them, and when they are drawn again."""

import fcntl
import http.client
import shutil
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pages import Page

from ebclab.cli import main
from ebclab.document.document import Document
from ebclab.reports import watch
from ebclab.reports.report import document_of
from ebclab.reports.watch import PageServer, WatchedPage

pytestmark = pytest.mark.usefixtures("_without_plots_of_settings")


@contextmanager
def served(*places: Path | str) -> Iterator[tuple[PageServer, list[int]]]:
    """A server for the page of sweeps, and how often each page was drawn."""
    drawn: list[int] = []

    def draw() -> Document:
        drawn.append(len(drawn))
        return document_of(*places)

    with PageServer(WatchedPage(draw, [*map(str, places)])) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server, drawn
        finally:
            server.shutdown()
            thread.join()


def ask(
    server: PageServer, method: str = "GET", path: str | None = None, **headers: str
) -> tuple[int, dict[str, str], str]:
    """Status, headers and content of an answer."""
    line = http.client.HTTPConnection(*server.server_address, timeout=30)
    line.request(method, path or server.path, headers=headers)
    answer = line.getresponse()
    found = answer.status, dict(answer.headers), answer.read().decode()
    line.close()
    return found


def test_a_page_is_drawn_again_only_after_its_records_changed(sweep_folder: Callable[..., Any]) -> None:
    one, other = sweep_folder("one"), sweep_folder("two")
    one.search(0, [0.4, 0.5])
    with served(one.path, other.path) as (server, drawn):
        first = ask(server)
        assert ask(server)[1]["ETag"] == ask(server, "HEAD")[1]["ETag"] == first[1]["ETag"]
        assert (first[0], len(drawn)) == (200, 1)
        (other.path / ".hidden").touch()
        assert ask(server, "HEAD")[1]["ETag"] == first[1]["ETag"]
        other.search(0, [0.4, 0.75])
        status, said, content = ask(server, "HEAD")
        assert (status, content, len(drawn)) == (200, "", 2)
        assert said["ETag"] != first[1]["ETag"]
        status, headers, content = ask(server)
        assert (headers["ETag"], len(content.encode())) == (said["ETag"], int(said["Content-Length"]))
        assert "75.0%" in Page(content).words
        assert "75.0%" not in Page(first[2]).words
        with (one.path / ".lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            assert "This sweep is running" in Page(ask(server)[2]).words
        assert "nothing works on it now" in Page(ask(server)[2]).words
    assert not {path.name for path in one.path.iterdir()} & {"report.html", "report.csv", "report.json"}


def test_a_served_page_asks_its_own_server_alone_and_a_written_one_no_one(sweep_folder: Callable[..., Any]) -> None:
    folder = sweep_folder()
    with served(folder.path) as (server, _):
        _, headers, content = ask(server)
    head = content[: content.index("<title>")]
    assert f"data-version={headers['ETag']}" in head
    assert "default-src 'none'" in head
    assert "connect-src 'self';" in head
    assert "ebclab report" in Page(content).words
    assert "without --watch writes this page" in Page(content).words
    assert main(["report", str(folder.path)]) == 0
    written = (folder.path / "report.html").read_text()
    assert "connect-src" not in written[: written.index("<title>")]
    assert "data-version=" not in written


ASKED = [
    ("GET", None, "evil.example", 403),
    ("GET", None, "127.0.0.1.evil.example:80", 403),
    ("HEAD", None, "evil.example", 403),
    ("GET", None, "", 403),
    ("GET", "/", "localhost", 404),
    ("GET", "/report.html", "127.0.0.1", 404),
    ("GET", "/../../../../etc/passwd", "127.0.0.1", 404),
    ("POST", None, "localhost", 501),
    ("PUT", None, "localhost", 501),
    ("DELETE", None, "localhost", 501),
    ("OPTIONS", None, "localhost", 501),
    ("GET", None, "LOCALHOST:99", 200),  # through a tunnel from another port
    ("HEAD", None, "127.0.0.1", 200),
]


def test_only_this_machines_name_the_page_itself_and_reading_are_answered(sweep_folder: Callable[..., Any]) -> None:
    with served(sweep_folder().path) as (server, _):
        assert server.server_address[0] == "127.0.0.1"
        for method, path, host, status in ASKED:
            got, headers, content = ask(server, method, path, Host=host)
            assert (got, "simclr on" in content) == (status, status == 200 and method == "GET"), (method, path, host)
            assert "Access-Control-Allow-Origin" not in headers


def test_a_request_without_a_host_is_refused(sweep_folder: Callable[..., Any]) -> None:
    with served(sweep_folder().path) as (server, _), socket.create_connection(server.server_address) as line:
        line.sendall(f"GET {server.path} HTTP/1.0\r\n\r\n".encode())
        assert line.recv(100).startswith(b"HTTP/1.0 403 ")


def test_an_idle_connection_holds_up_no_other(sweep_folder: Callable[..., Any]) -> None:
    with served(sweep_folder().path) as (server, _), socket.create_connection(server.server_address):
        assert ask(server, "HEAD")[0] == 200


def test_a_folder_that_vanishes_leaves_the_last_page_which_says_so(sweep_folder, tmp_path):
    folder = sweep_folder()
    folder.search(0, [0.4, 0.75])
    with served(folder.path) as (server, drawn):
        folder.path.rename(tmp_path / "away")
        words = Page(ask(server)[2]).words
        assert "75.0%" in words
        assert "Shown is what was known at " in words
        assert f"{folder.path}: no run, sweep or comparison here" in words
        assert ask(server)[1]["ETag"] == ask(server)[1]["ETag"]
        assert len(drawn) == 2
        (tmp_path / "away").rename(folder.path)
        assert "Shown is what was known at " not in Page(ask(server)[2]).words
        (folder.path / "sweep.yaml").write_text("[")
        assert "Shown is what was known at " in Page(ask(server)[2]).words


def test_a_sweep_in_a_store_is_watched_there(sweep_folder: Callable[..., Any], bucket: str) -> None:
    folder = sweep_folder()
    with served(f"{bucket}/{folder.path.name}") as (server, drawn):
        assert "75.0%" not in Page(ask(server)[2]).words
        folder.search(0, [0.4, 0.75])
        assert "75.0%" in Page(ask(server)[2]).words
        ask(server)
        assert len(drawn) == 2
        shutil.rmtree(folder.path)
        assert "Shown is what was known at " in Page(ask(server)[2]).words


def test_ctrl_c_ends_the_command_with_exit_code_0(sweep_folder, monkeypatch, capsys):
    def interrupted(server: PageServer) -> None:
        time.sleep(0)
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(watch.PageServer, "serve_forever", interrupted)
    assert main(["report", str(sweep_folder().path), "--watch"]) == 0
    said = capsys.readouterr()
    assert said.out.startswith("report: http://127.0.0.1:")
    assert said.out.endswith("it looks for changes every 5 seconds; Ctrl-C ends it\n")
    assert said.err == ""


def test_a_port_in_use_is_a_sentence(sweep_folder: Callable[..., Any], capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert main(["report", str(sweep_folder().path), "--watch", "--port", port]) == 2
    error = " ".join(capsys.readouterr().err.split())
    assert error == (
        f"error: --port: cannot be used, got {port}: Address already in use; leave it out, and the system chooses one"
    )

"""A page that is served on this machine alone and kept up to date while its runs continue."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from socketserver import ThreadingTCPServer
from threading import Lock

from ebclab.document.document import Document, Remark
from ebclab.document.html import as_page
from ebclab.errors import EbclabError, UserError
from ebclab.storage.kinds import COMPARISON
from ebclab.storage.object_store import Store
from ebclab.storage.workspace import Workspace

LOOK_SECONDS = 5
"""Seconds between two looks of an open page for something new."""

_HERE = "127.0.0.1"
_FILES = "`ebclab report` without --watch writes this page and all of its numbers to files."


class WatchedPage:
    """The newest page about some folders, drawn again only after their records have changed.

    Args:
        draw: Reads the folders and returns the document.
        places: Folders or addresses of what it is about.
    """

    def __init__(self, draw: Callable[[], Document], places: Sequence[str]) -> None:
        self._draw, self._places, self._lock = draw, places, Lock()
        self._seen = _records(places)
        self._drawn, self._at = draw(), datetime.now(UTC)
        self._show(self._drawn)

    def newest(self) -> tuple[str, bytes]:
        """Return the version of the page and its content; the last one with a remark if it cannot be drawn again."""
        with self._lock:
            seen = _records(self._places)
            if seen != self._seen:
                self._seen = seen
                try:
                    self._drawn, self._at = self._draw(), datetime.now(UTC)
                    self._show(self._drawn)
                except (EbclabError, OSError) as error:
                    head, *others = self._drawn.sections
                    last = Remark(f"Shown is what was known at {self._at:%H:%M:%S} UTC: {error}", "warning")
                    self._show(replace(self._drawn, sections=(replace(head, blocks=(last, *head.blocks)), *others)))
            return self._version, self._content

    def _show(self, document: Document) -> None:
        self._version = secrets.token_hex(8)
        page = as_page(replace(document, files=_FILES), version=self._version, look_seconds=LOOK_SECONDS)
        self._content = page.encode()


def _records(places: Sequence[str]) -> Hashable:
    """Return something that differs after a file directly in one of the folders, or its state, has changed."""
    return tuple(_record(Workspace.at(place)) for place in places)


def _record(folder: Workspace) -> Hashable:
    try:
        known: dict[str, tuple[int, object]]
        if folder.remote is not None:
            known = {name: (stored.num_bytes, stored.changed) for name, stored in Store(folder.remote).names().items()}
        else:
            known = {entry.name: _size_and_time(entry) for entry in os.scandir(folder.path) if entry.is_file()}
        files = frozenset((name, stat) for name, stat in known.items() if "/." not in f"/{name}")
        if folder.remote is None and COMPARISON.settings in known:
            inside = folder.own(COMPARISON.inside)
            sweeps = sorted(path for path in inside.iterdir() if path.is_dir()) if inside.is_dir() else []
            return folder.is_held, files, tuple(_record(Workspace(path)) for path in sweeps)
        return folder.is_held, files
    except (EbclabError, OSError) as error:
        return str(error)


def _size_and_time(entry: os.DirEntry[str]) -> tuple[int, int]:
    stat = entry.stat()
    return stat.st_size, stat.st_mtime_ns


class PageServer(ThreadingTCPServer):
    """Serves one page under one address that cannot be guessed, to programs of this machine.

    Args:
        port: Port on the loopback interface; 0 lets the system choose.

    Raises:
        UserError: The port cannot be used.
    """

    allow_reuse_address = True
    daemon_threads = True

    def __init__(self, page: WatchedPage, port: int = 0) -> None:
        self.page, self.path = page, f"/{secrets.token_urlsafe(16)}"
        try:
            super().__init__((_HERE, port), _Answer)
        except OSError as error:
            raise UserError(
                f"--port: cannot be used, got {port}: {error.strerror}; leave it out, and the system chooses one"
            ) from error

    @property
    def address(self) -> str:
        return f"http://{_HERE}:{self.server_address[1]}{self.path}"


class _Answer(BaseHTTPRequestHandler):
    """Answers GET and HEAD for the page's path.

    The name in the request must be this machine's: a page of someone else's may have a name that leads here.
    """

    server: PageServer
    server_version, sys_version = "ebclab", ""
    timeout = 30  # seconds that an open connection may be silent

    def do_GET(self) -> None:
        self._answer()

    def do_HEAD(self) -> None:
        self._answer()

    def _answer(self) -> None:
        if self.headers.get("Host", "").partition(":")[0].lower() not in (_HERE, "localhost"):
            return self.send_error(HTTPStatus.FORBIDDEN)
        if self.path != self.server.path:
            return self.send_error(HTTPStatus.NOT_FOUND)
        version, content = self.server.page.newest()
        self.send_response(HTTPStatus.OK)
        for name, value in (
            ("Content-Type", "text/html; charset=utf-8"),
            ("Content-Length", str(len(content))),
            ("ETag", f'"{version}"'),
            ("Cache-Control", "no-store"),
            ("X-Content-Type-Options", "nosniff"),
            ("X-Frame-Options", "DENY"),
            ("Referrer-Policy", "no-referrer"),
        ):
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing: requests are no news."""

"""Whose process is at the other end of a connection on this machine, by the system's table of sockets."""

from __future__ import annotations

import ipaddress
import os
import pwd
import socket
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_LISTENS = 0x0A
_NO_INODE = 0  # of a connection that no process has accepted yet, and of one that is closed; its user means nothing
_UNKNOWN_USER = 65_534  # how a container's table shows every user that the container does not know
_ACCEPT_SECONDS = 5.0  # in which a process of this user must accept a connection

_IP = ipaddress.IPv4Address | ipaddress.IPv6Address
Endpoint = tuple[_IP, int]


@dataclass(frozen=True)
class SocketEntry:
    """One line of the table."""

    local: Endpoint  # address and port of this socket
    remote: Endpoint  # those of its peer
    state: int  # number of its state, as the kernel counts
    user: int  # number of the user whose process opened or accepted it
    inode: int  # 0 if it belongs to no process


def parse_sockets(text: str) -> list[SocketEntry]:
    """Return the entries of /proc/net/tcp or /proc/net/tcp6; lines of another form, such as the first, are skipped."""
    entries = []
    for line in text.splitlines():
        words = line.split()
        with suppress(ValueError, IndexError):
            local, remote = _endpoint(words[1]), _endpoint(words[2])
            entries.append(SocketEntry(local, remote, int(words[3], 16), int(words[7]), int(words[9])))
    return entries


def _endpoint(text: str) -> Endpoint:
    """Return the address and port that the kernel writes as words of 32 bits in its own byte order."""
    host, port = text.split(":")
    words = [int(host[start : start + 8], 16).to_bytes(4, sys.byteorder) for start in range(0, len(host), 8)]
    return _plain(ipaddress.ip_address(b"".join(words))), int(port, 16)


def _plain(address: _IP) -> _IP:
    """Return an IPv4 address that is written within IPv6 as itself."""
    return getattr(address, "ipv4_mapped", None) or address


def owners(entries: Iterable[SocketEntry], server: Endpoint, client: Endpoint) -> tuple[int | None, set[int]]:
    """Return who has accepted a connection, and who listens where it was made.

    Args:
        server: The end of the connection that listens.

    Returns:
        The user whose process has accepted it, None if none has yet; and the users that listen on the server's port,
        at its address or at all addresses.
    """
    accepted, listening = None, set()
    for entry in entries:
        if entry.state == _LISTENS:
            if entry.local[1] == server[1] and (entry.local[0] == server[0] or entry.local[0].is_unspecified):
                listening.add(entry.user)
        elif (entry.local, entry.remote) == (server, client) and entry.inode != _NO_INODE:
            accepted = entry.user
    return accepted, listening


def stranger(connection: socket.socket) -> str:
    """Return who but this user may be at the other end of a connection; empty if it is this user's own process.

    A connection is judged by the process that has accepted it, so that no one can take the place of the one who was
    looked at.
    """
    server, client = _ends(connection)
    if server[0] != client[0] and not server[0].is_loopback:
        return "another machine"
    give_up = time.monotonic() + _ACCEPT_SECONDS
    while True:
        try:
            entries = [entry for table in _TABLES if table.exists() for entry in parse_sockets(table.read_text())]
        except OSError:
            entries = []
        if not entries:
            return "someone: this system does not list whose the sockets are"
        accepted, listening = owners(entries, server, client)
        everyone = listening if accepted is None else listening | {accepted}
        if others := {user for user in everyone if user != os.geteuid() or user == _UNKNOWN_USER}:
            return " and ".join(map(_named, sorted(others)))
        if accepted is not None:
            return ""
        if time.monotonic() > give_up:
            return "someone: no process has accepted the connection"
        time.sleep(0.01)


def _ends(connection: socket.socket) -> tuple[Endpoint, Endpoint]:
    """Return the far and the near end of a connection."""
    far, near = (
        (_plain(ipaddress.ip_address(name[0].partition("%")[0])), int(name[1]))
        for name in (connection.getpeername(), connection.getsockname())
    )
    return far, near


def _named(user: int) -> str:
    try:
        return f"user {pwd.getpwuid(user).pw_name}"
    except KeyError:
        return f"user {user}"

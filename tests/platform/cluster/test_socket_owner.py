"""Whose process is at the other end of a connection, from the table of sockets."""

import os
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import ip_address

import pytest

from ebclab.cluster import socket_owner
from ebclab.cluster.socket_owner import owners, parse_sockets, stranger

NOBODY = 65534
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the table is Linux's")

# As Linux prints them: 127.0.0.1:8265, 0.0.0.0:8265, [::1]:8265, [::]:8265, [::ffff:127.0.0.1]:8265, on little-endian
ONE, ANY = "0100007F:2049", "00000000:2049"
ONE6, ANY6 = "00000000000000000000000001000000:2049", "0" * 32 + ":2049"
MAPPED = "0000000000000000FFFF00000100007F:2049"
CLIENT, NONE = "0100007F:C001", "00000000:0000"
CLIENT6 = "00000000000000000000000001000000:C001"


def table(*rows: tuple[str, str, str, int, int]) -> str:
    head = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
    return head + "".join(
        f"   {number}: {local} {remote} {state} 00000000:00000000 00:00000000 00000000 {user:5} 0 {inode} 1 0 10 0\n"
        for number, (local, remote, state, user, inode) in enumerate(rows)
    )


@pytest.mark.skipif(sys.byteorder != "little", reason="the rows are of a little-endian machine")
@pytest.mark.parametrize(
    ("rows", "accepted", "listening"),
    [
        ([(ONE, NONE, "0A", 7, 1), (ONE, CLIENT, "01", 7, 2)], 7, {7}),
        ([(ONE, NONE, "0A", 7, 1), (ONE, CLIENT, "01", 0, 0)], None, {7}),  # not accepted yet
        ([(ANY, NONE, "0A", 7, 1), (ONE, CLIENT, "01", 8, 2)], 8, {7}),
        ([(ANY6, NONE, "0A", 7, 1), (MAPPED, MAPPED[:-4] + "C001", "01", 7, 2)], 7, {7}),
        ([(ONE, NONE, "0A", 7, 1), (ANY, NONE, "0A", 9, 2)], None, {7, 9}),  # two listeners, one at all addresses
        ([(ONE, NONE, "01", 7, 1)], None, set()),  # no listener
        ([("0200007F:2049", NONE, "0A", 7, 1)], None, set()),  # at 127.0.0.2
        ([("0100007F:204A", NONE, "0A", 7, 1)], None, set()),  # on another port
        ([(CLIENT, ONE, "01", 7, 1)], None, set()),  # our own end
    ],
)
def test_owners_are_those_who_listen_and_accepted(rows, accepted, listening):
    server, client = (ip_address("127.0.0.1"), 8265), (ip_address("127.0.0.1"), 0xC001)
    assert owners(parse_sockets(table(*rows)), server, client) == (accepted, listening)


@pytest.mark.skipif(sys.byteorder != "little", reason="the rows are of a little-endian machine")
def test_addresses_of_six_words_are_read_and_odd_lines_passed_over() -> None:
    text = table((ONE6, NONE, "0A", 7, 1), (ONE6, CLIENT6, "01", 7, 2)) + "   9: short\n\n   x: y z\n"
    entries = parse_sockets(text)
    assert [entry.local for entry in entries] == [(ip_address("::1"), 8265)] * 2
    assert owners(entries, (ip_address("::1"), 8265), (ip_address("::1"), 0xC001)) == (7, {7})


@contextmanager
def accepting(host: str, user: int, *, accepts: bool = True) -> Iterator[socket.socket]:
    """A connection to a server that a process of a user opened, and accepts at."""
    reads, writes = os.pipe()
    if (child := os.fork()) == 0:
        try:
            if user != os.getuid():
                os.setgroups([])
                os.setgid(user)
                os.setuid(user)
            server = socket.create_server((host, 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
            os.write(writes, f"{server.getsockname()[1]}\n".encode())
            kept = server.accept() if accepts else ()
            signal.pause()
            os._exit(len(kept))
        finally:
            os._exit(1)  # a child that fails is no second pytest
    os.close(writes)
    try:
        with os.fdopen(reads) as pipe:
            port = int(pipe.readline())
        with socket.create_connection((host, port)) as connection:
            yield connection
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


OWN_ADDRESS = socket.gethostbyname(socket.gethostname())


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", OWN_ADDRESS])
def test_a_server_of_ones_own_is_no_strangers(host: str) -> None:
    with accepting(host, os.geteuid()) as connection:
        assert stranger(connection) == ""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
@pytest.mark.parametrize("accepts", [True, False])
def test_another_users_server_is_named(accepts: bool) -> None:
    """Until somebody accepts a connection, the table gives it to root, who is asking here."""
    with accepting("127.0.0.1", NOBODY, accepts=accepts) as connection:
        assert stranger(connection) == "user nobody"


def test_a_user_whom_the_table_cannot_name_is_not_this_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A container that does not know its user shows everybody as user 65534."""
    monkeypatch.setattr(os, "geteuid", lambda: NOBODY)
    entry = socket_owner.SocketEntry
    with accepting("127.0.0.1", os.getuid()) as connection:
        far, near = socket_owner._ends(connection)
        monkeypatch.setattr(socket_owner, "parse_sockets", lambda text: [entry(far, near, 1, NOBODY, 7)])
        assert stranger(connection) == "user nobody"


def test_another_machine_is_never_this_users() -> None:
    class Far:
        getpeername = staticmethod(lambda: ("192.0.2.2", 8265))
        getsockname = staticmethod(lambda: ("192.0.2.3", 40000))

    assert stranger(Far()) == "another machine"  # type: ignore[arg-type]


def test_a_connection_that_nobody_accepts_proves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket_owner, "_ACCEPT_SECONDS", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as connection:
        assert stranger(connection) == "someone: no process has accepted the connection"

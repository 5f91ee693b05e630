"""Checks that a Ray cluster responds at an address and admits this process, before Ray tries to join it.

Ray itself retries for 20 to 60 seconds, prints a line each second, and then does not report the cause. Here is also the
token that authenticates this process at a cluster.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from pathlib import Path

from ebclab.cluster.socket_owner import stranger
from ebclab.errors import UserError

MODE = "RAY_AUTH_MODE"
"""Environment variable that Ray reads when it is imported; with the value "token", Ray sends the token."""

COPY_TOKEN = "copy the head's ~/.ray/auth_token to this machine, to the same place (chmod 600)"
"""Advice if the token is missing or wrong."""

TOKEN, TOKEN_PATH = "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"
"""Environment variables with the token, and with the path of its file."""


@dataclass(frozen=True)
class TokenSource:
    """The place from which Ray takes this user's token."""

    name: str  # name of the place in messages
    text: str = ""  # the token; empty if it is in a file
    file: Path | None = None  # the file; None if the token is in an environment variable
    required: bool = False  # whether the user has named the file, so that it must contain a token

    @property
    def is_set(self) -> bool:
        """Whether the environment variable is set, the default file exists, or the user has named a file."""
        return self.required or self.file is None or self.file.is_file()

    def read(self) -> str | None:
        """Return the token, or None if there is none."""
        if self.file is None:
            return self.text
        readable = self.file.is_file() and os.access(self.file, os.R_OK)
        token = self.file.read_text(encoding="utf-8").strip() if readable else ""
        if self.required and not token:
            raise UserError(
                f"{TOKEN_PATH}: no file with a token, got {self.file}; {COPY_TOKEN}, and unset the variable"
            )
        return token or None


def token_source(environment: Mapping[str, str]) -> TokenSource:
    """Return the first source, in Ray's search order, that the environment names; else Ray's default file."""
    if token := environment.get(TOKEN, "").strip():
        return TokenSource(TOKEN, text=token)
    if path := environment.get(TOKEN_PATH):
        return TokenSource(f"{TOKEN_PATH} ({path})", file=Path(path), required=True)
    home = Path(environment.get("HOME") or Path.home())
    return TokenSource("~/.ray/auth_token", file=home / ".ray" / "auth_token")


def sends_token(environment: Mapping[str, str], *, unasked: bool = False) -> bool:
    """Return whether a token is sent; ``unasked`` says whether it is if RAY_AUTH_MODE is not set."""
    return environment.get(MODE, "token" if unasked else "").lower() == "token"


def send_token(environment: MutableMapping[str, str]) -> None:
    """Have Ray's client send the user's token if there is one; clusters without authentication ignore it.

    Ray reads the mode when it is imported. A value of RAY_AUTH_MODE that the user has set is kept.
    """
    if token_source(environment).is_set:
        environment.setdefault(MODE, "token")


_ANSWER_SECONDS = 5.0
_LAST_PORT = 65_535
_ID_REQUEST = "/ray.rpc.NodeInfoGcsService/GetClusterId"  # Ray's first request; an empty message is valid


def require_answer(address: str, *, discovered: bool = False) -> None:
    """Refuse an address where no cluster responds, or where the cluster does not admit this process.

    Args:
        discovered: Ray discovered the address on this machine, where any user may have left it. Without RAY_AUTH_MODE
            the token is then sent if the server is a process of this user.
    """
    if address == "local":
        return
    host, _, port = address.rpartition(":")
    if not host or not re.fullmatch("[0-9]{1,5}", port) or int(port) > _LAST_PORT or "/" in host:
        raise UserError(
            f"resources.address: not an address of a Ray cluster, got {address}; "
            "write HOST:PORT (the head's GCS port, usually 6379), auto, or nothing for this machine alone"
        )
    try:
        connection = socket.create_connection((host.strip("[]"), int(port)), timeout=_ANSWER_SECONDS)
    except (OSError, UnicodeError) as error:  # UnicodeError: an invalid host name
        is_recorded = discovered and os.environ.get("RAY_ADDRESS") != address
        got = f"auto, by Ray's record on this machine {address}" if is_recorded else address
        raise UserError(
            f"resources.address: no cluster answers, got {got} ({error}); "
            "check RAY_ADDRESS and that the cluster is up, or leave it out to use this machine alone"
        ) from error
    source, is_sent = token_source(os.environ), sends_token(os.environ, unasked=discovered)
    token = source.read() if is_sent else None
    with connection:
        if token and not sends_token(os.environ) and (other := stranger(connection)):
            raise UserError(
                f"resources.address: the cluster at {address} is not shown to be yours, so the token was not sent, "
                f"got {other}; set {MODE}=token to send it there, or {MODE}=disabled to send none"
            )
    _require_entry(address, source, token, is_sent)


def _require_entry(address: str, source: TokenSource, token: str | None, is_sent: bool) -> None:
    """Request the cluster's id, as Ray would, and refuse a cluster that does not admit this process."""
    import grpc

    try:
        _ask(address, token)
    except grpc.RpcError as error:
        code = error.code()
        if code == grpc.StatusCode.UNAUTHENTICATED:
            raise UserError(_refused(address, token, source, is_sent)) from None
        raise UserError(
            f"resources.address: what answers is not a Ray cluster, got {address} ({code.name.lower()}); "
            "write the head's GCS port, usually 6379 (8265 is the dashboard's)"
        ) from None


def _ask(address: str, token: str | None) -> bytes:
    """Return the cluster's response to the request for its id."""
    import grpc

    metadata = [("authorization", f"Bearer {token}")] if token else []
    with grpc.insecure_channel(address, options=[("grpc.enable_http_proxy", 0)]) as channel:
        answer: bytes = channel.unary_unary(_ID_REQUEST)(b"", timeout=_ANSWER_SECONDS, metadata=metadata)
    return answer


def who_answers(address: str) -> bytes | None:
    """Return the id of the cluster at an address, which differs from that of a later cluster on the same port.

    Returns:
        The id; None if nothing listens there; empty bytes if something listens but does not return an id.
    """
    import grpc

    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_ANSWER_SECONDS).close()
        token = token_source(os.environ).read() if sends_token(os.environ) else None  # Ray sets the mode when it joins
        return _ask(address, token)
    except OSError:
        return None
    except (grpc.RpcError, UserError):
        return b""


def _refused(address: str, token: str | None, source: TokenSource, is_sent: bool) -> str:
    """Return a message why a cluster that requires a token refuses this process, with a remedy."""
    where = f"resources.address: the cluster at {address}"
    if token:
        return f"{where} has another token than the one in {source.name}; {COPY_TOKEN}"
    if is_sent:
        return f"{where} wants a token, got none in {source.name}; {COPY_TOKEN}"
    remedy = f"set {MODE}=token"
    return f"{where} wants a token, got none; {remedy if source.is_set else f'{remedy}, and {COPY_TOKEN}'}"

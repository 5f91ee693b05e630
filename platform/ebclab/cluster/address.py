"""Whether a Ray cluster answers where the user says, and lets this process in.

Ray itself tries for 20 seconds to a minute, prints a line each second, and then cannot say what was wrong.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path

from ebclab.errors import UserError

_ANSWER_SECONDS = 5.0
_WHO_ARE_YOU = "/ray.rpc.NodeInfoGcsService/GetClusterId"  # what Ray asks first; an empty message is a valid question
_COPY = "copy the head's ~/.ray/auth_token to this machine, to the same place (chmod 600)"


def require_answer(address: str, *, found: bool = False) -> None:
    """Refuse an address where no cluster answers, or one that does not let this process in.

    Args:
        address: "local", or HOST:PORT.
        found: Ray found the address on this machine; there it sends a token without being told to.

    Raises:
        UserError: It is no address, nobody listens there, or what does is no Ray cluster or wants another token.
    """
    if address == "local":
        return
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or "/" in host:
        raise UserError(
            f"resources.address: not an address of a Ray cluster, got {address}; "
            "write HOST:PORT (the head's GCS port, usually 6379), auto, or nothing for this machine alone"
        )
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_ANSWER_SECONDS).close()
    except OSError as error:
        raise UserError(
            f"resources.address: no cluster answers, got {address} ({error}); "
            "check RAY_ADDRESS and that the cluster is up, or leave it out to use this machine alone"
        ) from error
    _require_entry(address, found)


def _require_entry(address: str, found: bool) -> None:
    """Ask the cluster which it is, as Ray would, and refuse one that does not answer this process.

    Raises:
        UserError: It wants a token, or another one, or it is no Ray cluster.
    """
    import grpc

    token, source = find_token(unasked=found)
    try:
        _ask(address, token)
    except grpc.RpcError as error:
        code = error.code()
        if code == grpc.StatusCode.UNAUTHENTICATED:
            raise UserError(_refused(address, token, source)) from None
        raise UserError(
            f"resources.address: what answers is no Ray cluster, got {address} ({code.name.lower()}); "
            "write the head's GCS port, usually 6379 (8265 is the dashboard's)"
        ) from None


def _ask(address: str, token: str | None) -> bytes:
    """Return the answer in which a cluster says which it is."""
    import grpc

    metadata = [("authorization", f"Bearer {token}")] if token else []
    with grpc.insecure_channel(address, options=[("grpc.enable_http_proxy", 0)]) as channel:
        answer: bytes = channel.unary_unary(_WHO_ARE_YOU)(b"", timeout=_ANSWER_SECONDS, metadata=metadata)
    return answer


def who_answers(address: str) -> bytes | None:
    """Return which cluster this process has joined there: bytes that no other one has, not even on the same port.

    Args:
        address: HOST:PORT.

    Returns:
        None when nobody listens there; nothing when somebody does who does not say.
    """
    import grpc

    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_ANSWER_SECONDS).close()
        return _ask(address, find_token(unasked=True)[0])
    except OSError:
        return None
    except (grpc.RpcError, UserError):
        return b""


def find_token(*, unasked: bool = False) -> tuple[str | None, str]:
    """Return the token that Ray would send from here, or None, and where it comes from or ought to.

    Args:
        unasked: A token is sent although RAY_AUTH_MODE is not set.

    Raises:
        UserError: RAY_AUTH_TOKEN_PATH names a file that cannot be read or is empty.
    """
    if os.environ.get("RAY_AUTH_MODE", "token" if unasked else "").lower() != "token":
        return None, "RAY_AUTH_MODE"
    if token := os.environ.get("RAY_AUTH_TOKEN", "").strip():
        return token, "RAY_AUTH_TOKEN"
    if named := os.environ.get("RAY_AUTH_TOKEN_PATH"):
        path = Path(named)
        if not (path.is_file() and os.access(path, os.R_OK) and path.read_text(encoding="utf-8").strip()):
            raise UserError(f"RAY_AUTH_TOKEN_PATH: no file with a token, got {named}; {_COPY}, and unset the variable")
    else:
        path = Path.home() / ".ray" / "auth_token"
    token = path.read_text(encoding="utf-8").strip() if path.is_file() and os.access(path, os.R_OK) else ""
    return token or None, str(path)


def _refused(address: str, token: str | None, source: str) -> str:
    """Return in one sentence why a cluster that wants a token lets this process not in, and the way out."""
    where = f"resources.address: the cluster at {address}"
    if token:
        return f"{where} has another token than the one in {source}; {_COPY}"
    if source == "RAY_AUTH_MODE":
        known = (Path.home() / ".ray" / "auth_token").is_file()
        return f"{where} wants a token, got none; set RAY_AUTH_MODE=token" + ("" if known else f", and {_COPY}")
    return f"{where} wants a token, got none in {source}; {_COPY}"

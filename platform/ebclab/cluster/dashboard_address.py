"""Where the job server of a cluster is, and whether a token is sent to it."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from pathlib import Path
from urllib.parse import urlsplit

from ebclab.config.addresses import credentials_problem
from ebclab.errors import UserError

DEFAULT_ADDRESS = "http://127.0.0.1:8265"
"""This end of the tunnel that ``ray dashboard cluster.yaml`` makes, and the job server itself on a head node."""

_ASKED = ("RAY_API_SERVER_ADDRESS", "RAY_ADDRESS")
_LOOPBACK = ("127.0.0.1", "localhost", "::1")


def choose_address(asked: str | None, environment: Mapping[str, str]) -> str:
    """Return the http address of the job server: what was ``asked`` for, else the environment's, else the tunnel's.

    Args:
        asked: What the user wrote after ``--address``, if anything.
        environment: Environment variables. Of RAY_ADDRESS only an http address counts: a GCS address has no job server.

    Raises:
        UserError: It is no http address.
    """
    named = {"--address": asked} | {
        name: value for name in _ASKED if "://" in (value := environment.get(name, "")) or name != "RAY_ADDRESS"
    }
    where, address = next(((where, text) for where, text in named.items() if text), ("", DEFAULT_ADDRESS))
    if problem := credentials_problem(address):
        raise UserError(f"{where}: {problem}")
    text = (address if "://" in address else f"http://{address}").rstrip("/")
    if not _is_http(text):
        raise UserError(
            f"{where}: not the address of a job server, got {address}; write http://HOST:PORT, or leave it out: "
            f"`ray dashboard cluster.yaml` brings the cluster's to {DEFAULT_ADDRESS}"
        )
    return text


def _is_http(text: str) -> bool:
    try:
        parts = urlsplit(text)
        return (
            parts.scheme in ("http", "https") and bool(parts.hostname) and (":" not in parts.netloc or parts.port != 0)
        )
    except ValueError:  # a port that is no number
        return False


def token_source(environment: Mapping[str, str]) -> str | None:
    """Return where Ray finds this user's token, in its own order of search; None when there is none."""
    if environment.get("RAY_AUTH_TOKEN"):
        return "RAY_AUTH_TOKEN"
    if path := environment.get("RAY_AUTH_TOKEN_PATH"):
        return f"RAY_AUTH_TOKEN_PATH ({path})"
    file = Path(environment.get("HOME") or Path.home()) / ".ray" / "auth_token"
    return "~/.ray/auth_token" if file.is_file() else None


def send_token(environment: MutableMapping[str, str]) -> None:
    """Have Ray's client send the user's token when there is one: clusters without authentication ignore it.

    Must happen before Ray is imported. RAY_AUTH_MODE stays as the user has set it.
    """
    if token_source(environment):
        environment.setdefault("RAY_AUTH_MODE", "token")


def plain_text_warning(address: str, environment: Mapping[str, str]) -> str | None:
    """Return a warning when the token would cross a network readable for all, else None."""
    parts = urlsplit(address)
    if parts.scheme == "https" or parts.hostname in _LOOPBACK or not token_source(environment):
        return None
    return f"the token goes to {parts.hostname} unencrypted; use https or the tunnel of `ray dashboard cluster.yaml`"

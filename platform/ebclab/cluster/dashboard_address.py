"""The http address of a cluster's job server, which is also that of its dashboard."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

from ebclab.cluster.token import sends_token, token_source
from ebclab.config.addresses import credentials_problem, is_address
from ebclab.errors import UserError

DEFAULT_ADDRESS = "http://127.0.0.1:8265"
"""The local end of the tunnel that ``ray dashboard cluster.yaml`` opens; on a head node, the job server itself."""

_ASKED = ("RAY_API_SERVER_ADDRESS", "RAY_ADDRESS")
_LOOPBACK = ("127.0.0.1", "localhost", "::1")


def choose_address(asked: str | None, environment: Mapping[str, str]) -> str:
    """Return the http address of the job server: ``asked``, else from the environment, else that of the tunnel.

    Args:
        asked: The value of ``--address``; None if omitted.
        environment: Environment variables. RAY_ADDRESS is used only if it is a URL; a GCS address has no
            job server.
    """
    named = {"--address": asked} | {
        name: value for name in _ASKED if is_address(value := environment.get(name, "")) or name != "RAY_ADDRESS"
    }
    where, address = next(((where, text) for where, text in named.items() if text), ("", DEFAULT_ADDRESS))
    if problem := credentials_problem(address):
        raise UserError(f"{where}: {problem}")
    text = (address if is_address(address) else f"http://{address}").rstrip("/")
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
    except ValueError:  # the port is not a number
        return False


def plain_text_warning(address: str, environment: Mapping[str, str]) -> str | None:
    """Return a warning if the token will be sent unencrypted over a network, else None."""
    parts = urlsplit(address)
    if parts.scheme == "https" or parts.hostname in _LOOPBACK:
        return None
    if not sends_token(environment) or not token_source(environment).is_set:
        return None
    return f"the token goes to {parts.hostname} unencrypted; use https or the tunnel of `ray dashboard cluster.yaml`"

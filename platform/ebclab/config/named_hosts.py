"""Decides which hosts may be contacted: those that the user has named, never one that only a file names.

Settings, runs, sweeps and comparisons may be someone else's, and the host that an address names is sent this user's
credentials. Addresses of stores and of Ray clusters (``ray://HOST:PORT``) are treated alike.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from urllib.parse import parse_qsl

from ebclab.config.addresses import credentials_problem, shortened

STORES = "EBCLAB_STORES"
"""Environment variable: hosts that addresses in files may name, e.g. ``http://localhost:9000,minio.example.org``.

Without ``http://``, a host is reached through https. While a command runs, it also holds what the user has named in
that command, so that worker processes decide as the command does.
"""

_USUAL_HOSTS = {"s3": "amazonaws.com", "gs": "storage.googleapis.com", "gcs": "storage.googleapis.com"}
"""Hosts of the stores whose addresses name none; addresses of all other kinds begin with a host."""

_HARMLESS = {"region", "allow_bucket_creation", "allow_bucket_deletion", "allow_delayed_open", "retry_limit_seconds"}
"""Options of an address that neither name a host nor change how it is reached."""

_PLAIN = re.compile(r"[A-Za-z0-9._-]*")
_ADDRESS = re.compile(r"(?<![\w.+-])[A-Za-z][\w.+-]*+://[^\s'\"]*")


def hosts_of(address: str) -> list[str]:
    """Return what an address says about how it is reached; empty for a path, or a bucket at Amazon or Google.

    Returns:
        ``http://HOST:PORT`` for each host; ``NAME=VALUE`` for each option that is not known to be harmless.
    """
    kind, separator, rest = address.partition("://")
    if not separator or kind in ("file", "local"):
        return []
    place, _, query = rest.partition("?")
    authority = place.partition("/")[0]
    options = parse_qsl(query, keep_blank_values=True)
    if kind not in _USUAL_HOSTS:  # an address of fsspec may contain further addresses
        begin = [f"{kind}://{place if kind.startswith('fsspec') else authority}"]
        return begin + [f"{name}={value}" for name, value in options]
    schemes = [value for name, value in options if name == "scheme"]
    hosts = [value.rpartition("://") for name, value in options if name == "endpoint_override"]
    found = [f"{own}://{host}" for scheme, _, host in hosts for own in ([scheme] if scheme else schemes or ["https"])]
    if not hosts:
        found = [f"{scheme}://{_USUAL_HOSTS[kind]}" for scheme in schemes if scheme != "https"]
    if not _PLAIN.fullmatch(authority.removeprefix("anonymous@")):
        found.append(f"{kind}://{authority}")
    others = [pair for pair in options if pair[0] not in ("scheme", "endpoint_override")]
    return found + [f"{n}={value}" for n, value in others if n not in _HARMLESS or not _PLAIN.fullmatch(value)]


def name_hosts(*texts: object) -> None:
    """Allow this process, and those that it starts, to contact the hosts of the addresses in ``texts``.

    Args:
        texts: What the user wrote: words of a command line, or arguments of a Python function. Never a file's content.
    """
    clean = [str(text) for text in texts if credentials_problem(str(text)) is None]  # others are refused later
    found = [host for text in clean for address in _ADDRESS.findall(text) for host in hosts_of(address)]
    if new := [host for host in dict.fromkeys(found) if host not in _named()]:
        os.environ[STORES] = ",".join([*filter(None, [os.environ.get(STORES)]), *new])


@contextmanager
def named_hosts(words: Iterable[str]) -> Iterator[None]:
    """Allow the hosts in the words of a command line until the block ends."""
    before = os.environ.get(STORES)
    name_hosts(*words)
    try:
        yield
    finally:
        os.environ.pop(STORES, None)
        if before is not None:
            os.environ[STORES] = before


def host_problem(address: str) -> str | None:
    """Return why an address must not be opened: a host or option in it that the user has not named; else None."""
    unnamed = _unnamed(address)
    if not unnamed:
        return None
    path, listed = shortened(ascii(address.partition("?")[0])), shlex.quote(ascii(",".join(unnamed))[1:-1])
    return (
        f"a file alone does not choose which host gets your credentials, or how, got {listed} in {path}; "
        f"if you know it, write the address on the command line, or set {STORES}={listed}"
    )


def cluster_problem(address: str, where: str = "a file") -> str | None:
    """Return why a Ray cluster must not be contacted: the user has not named it; else None.

    Args:
        address: HOST:PORT, or "local" or "auto" for an instance on this machine.
    """
    if address in ("local", "auto") or not _unnamed(f"ray://{address}"):
        return None
    return (
        f"{where} names a cluster, got {address}, and a file alone does not choose who is asked; "
        f"set RAY_ADDRESS={address}, or --set resources.address=null to use this machine alone"
    )


def _unnamed(address: str) -> list[str]:
    named = _named()
    return [host for host in hosts_of(address) if host.rstrip("/") not in named]


def _named() -> set[str]:
    """Return what the user has named, in the form of ``hosts_of``."""
    listed = [host.strip().rstrip("/") for host in os.environ.get(STORES, "").split(",")]
    named = {host if "://" in host or "=" in host else f"https://{host}" for host in listed if host}
    return named | {f"ray://{address}" for address in [os.environ.get("RAY_ADDRESS")] if address}

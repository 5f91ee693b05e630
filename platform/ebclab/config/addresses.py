"""Addresses of stores and locations of datasets: syntax, the check for credentials, and which hosts they may name.

Addresses are written into run folders and shown, so they must not hold secrets.

Settings, runs, sweeps and comparisons may be someone else's, and the host that an address names is sent this user's
credentials. So only hosts that the user has named are contacted, never one that only a file names. Addresses of stores
and of Ray clusters (``ray://HOST:PORT``) are treated alike.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import parse_qsl, quote, unquote

from ebclab.errors import UserError
from ebclab.formatting import without_credentials

LONGEST_SHOWN = 80
"""Characters of a value that a message shows."""

FOLDER = "folder:"
PARQUET = "parquet:"
WEBDATASET = "webdataset:"
ARROW = "arrow:"
PUBLISHED = (
    *("voc:", "imagenet:", "imagenet100:", "flowers102:", "caltech101:", "sun397:"),
    *("tiny-imagenet:", "stl10:", "stl10-unlabelled:"),
)
"""Prefixes of ``data.name`` for datasets in their published layout."""

LOCATIONS = (FOLDER, PARQUET, WEBDATASET, ARROW, *PUBLISHED)
"""Prefixes of ``data.name`` for datasets named by their location."""

LONGEST = 4096
"""Most characters of a setting, a path or an address: Linux opens no longer path, and no other setting is longer."""

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")

OWN = "own:"
"""Prefix of ``data.name`` for images that were passed from Python."""


def is_address(path: str) -> bool:
    """Return whether ``path`` is an address, such as s3://bucket/folder, instead of a path on this disk."""
    return "://" in path


def expanded(path: str) -> Path:
    """Return the path with ~ replaced by a home folder; ~NAME of an unknown user is kept, as in a shell."""
    return Path(os.path.expanduser(path))


def absolute(path: str) -> Path:
    """Return the expanded path from the root of the disk; refuse a relative one where the working folder is gone."""
    try:
        return expanded(path).absolute()
    except FileNotFoundError:
        raise UserError(
            f"the folder that this process runs in was removed, got the relative path {path}; give an absolute one, "
            "or change to another folder"
        ) from None


def with_absolute_path(name: str) -> str:
    """Return a dataset's name with an absolute path, if it is named by a location on this disk."""
    kind, colon, path = name.partition(":")
    is_local = name.startswith(LOCATIONS) and path and not is_address(path)
    return f"{kind}{colon}{absolute(path)}" if is_local else name


def form_problem(address: str) -> str | None:
    """Return why a path or address is invalid because of its length or a control character in it; None if it is valid.

    Of an address, no more is shown than its kind, since the rest may hold credentials.
    """
    kind, _, rest = address.partition("://")
    shown = f"{ascii(kind[:60])[1:-1]}{'...' if rest or len(kind) > 60 else ''}"
    if len(address) > LONGEST:
        return f"a path or address of more than {LONGEST:,} characters, got {len(address):,}: {shown}; shorten it"
    if found := _CONTROL.search(address):
        return f"a control character in a path or address, got {found[0]!r} in {shown}; leave it out"
    return None


def path_problem(address: str) -> str | None:
    """Return why an address is invalid because of an empty name, ``.`` or ``..`` in it; None if it is valid.

    Args:
        address: What the user wrote; a path on this disk is always valid.
    """
    scheme, separator, rest = address.partition("://")
    path, mark, options = rest.partition("?")
    if not separator:
        return None
    if not {".", ".."}.isdisjoint(unquote(path).split("/")):
        return f"a folder called . or .., which a store has not, got {shortened(address)}; write the folder's address"
    if "//" not in path.strip("/"):
        return None
    single = f"{scheme}://{re.sub('/+', '/', path)}{mark}{options}"
    return f"two slashes side by side, got {shortened(address)}; write {shortened(single)}"


def as_uri(address: str) -> str:
    """Return an address with all characters escaped that a URI cannot hold; existing escapes such as %20 are kept."""
    path, mark, options = address.partition("?")
    return quote(re.sub("%(?![0-9A-Fa-f]{2})", "%25", path), safe="%/:@!$&'()*+,;=") + mark + options


def in_address(name: str) -> str:
    """Return a name for use in an address, with the characters escaped that would start an escape or the options."""
    return re.sub(r"%(?=[0-9A-Fa-f]{2})|\?", lambda found: quote(found[0]), name)


def folder_problem(path: str) -> str | None:
    """Return why ``path`` cannot be the folder that holds datasets; None if it can be a path on a disk."""
    if (problem := form_problem(path)) or not is_address(path):
        return problem
    return credentials_problem(path) or (
        f"datasets are read from a folder on a disk, got {shortened(path)}; "
        f"a set that `ebclab data prepare` wrote is read from a store by data.name={PARQUET}{shortened(path)}"
    )


def shortened(text: str, longest: int = LONGEST_SHOWN) -> str:
    """Return a text for a message, without credentials and cut to ``longest`` characters."""
    text = without_credentials(text)
    return text if len(text) <= longest else f"{text[: longest - 3]}..."


def credentials_problem(address: str) -> str | None:
    """Return a problem if an address holds credentials, without repeating them; else None.

    Args:
        address: What the user wrote, perhaps after ``parquet:`` or ``--runs=``.
    """
    shown = without_credentials(address)
    if shown == address:
        return None
    return (
        f"an address is written into run folders and must hold no credentials, got {shortened(shown)}; "
        "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or use a profile or a role"
    )


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
    if address in ("local", "auto", os.environ.get("RAY_ADDRESS")) or not _unnamed(f"ray://{address}"):
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

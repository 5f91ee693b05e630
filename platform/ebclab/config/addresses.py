"""How addresses of stores and locations of datasets are written, and the check that they hold no credentials.

Addresses are written into run folders and shown, so they may hold no secret.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from urllib.parse import quote, unquote

_PASSWORD = re.compile(r"(?<=://)[^?@\s]*:[^?\s]*@|(?<=://)[^/?@\s]*:[^@\s]*@")
"""A name and a password before the host. A secret may hold slashes and @, and a question mark where no host has one."""

_SECRET_OPTION = re.compile(
    r"(?i)(?<=[?&])([^=&?\s]*(?:key|secret|token|password|signature|credential)[^=&?\s]*)=[^&\s'\"]+"
)
"""An option after the question mark whose name says that its value is a secret."""

FOLDER = "folder:"
PARQUET = "parquet:"
WEBDATASET = "webdataset:"
ARROW = "arrow:"
PHOTOGRAPHS = ("voc:", "imagenet:", "imagenet100:", "flowers102:", "caltech101:", "sun397:")
"""How ``data.name`` begins when it names a set as published whose images are photographs of all sizes."""

PUBLISHED = (*PHOTOGRAPHS, "tiny-imagenet:", "stl10:", "stl10-unlabelled:")
"""How it begins when it names a set in the layout in which it was published."""

LOCATIONS = (FOLDER, PARQUET, WEBDATASET, ARROW, *PUBLISHED)
"""How it begins when it names images by their location."""

OWN = "own:"
"""How ``data.name`` begins when a run was given images from Python."""


def is_address(path: str) -> bool:
    """Return whether ``path`` is an address, such as s3://bucket/folder, and no path on this disk."""
    return "://" in path


def expanded(path: str) -> Path:
    """Return the path with ~ replaced by a home; the ~NAME of nobody stays as it is, as in a shell."""
    return Path(os.path.expanduser(path))


def path_problem(address: str) -> str | None:
    """Return why a store cannot have an address with an empty name, ``.`` or ``..`` in it; None when it has none.

    Args:
        address: What the user wrote; a path on this disk has no problem.
    """
    scheme, separator, rest = address.partition("://")
    path, mark, options = rest.partition("?")
    if not separator:
        return None
    if not {".", ".."}.isdisjoint(unquote(path).split("/")):
        return f"a folder called . or .., which a store has not, got {address}; write the address of the folder meant"
    if "//" not in path.strip("/"):
        return None
    return f"two slashes side by side, got {address}; write {scheme}://{re.sub('/+', '/', path)}{mark}{options}"


def as_uri(address: str) -> str:
    """Return an address in which whatever a URI cannot hold is escaped; an escape such as %20 stays one."""
    path, mark, options = address.partition("?")
    return quote(re.sub("%(?![0-9A-Fa-f]{2})", "%25", path), safe="%/:@!$&'()*+,;=") + mark + options


def in_address(name: str) -> str:
    """Return a name as it stands in an address: what would be an escape there, or begin the options, is escaped."""
    return re.sub(r"%(?=[0-9A-Fa-f]{2})|\?", lambda found: quote(found[0]), name)


def folder_problem(path: str) -> str | None:
    """Return why ``path`` cannot be the folder that holds datasets; None when it is a path on a disk.

    Args:
        path: What the user wrote.
    """
    if not is_address(path):
        return None
    return credentials_problem(path) or (
        f"datasets are read from a folder on a disk, got {path}; "
        f"a set that `ebclab data prepare` wrote is read from a store by data.name={PARQUET}{path}"
    )


def without_credentials(text: str) -> str:
    """Return text with *** in place of every name and password, key or token in the addresses that it holds."""
    return _SECRET_OPTION.sub(r"\1=***", _PASSWORD.sub("***@", text))


def credentials_problem(address: str) -> str | None:
    """Return a problem when an address holds credentials, which it does not repeat; else None.

    Args:
        address: What the user wrote, perhaps after ``parquet:`` or ``--runs=``.
    """
    shown = without_credentials(address)
    if shown == address:
        return None
    return (
        f"an address is written into run folders and must hold no credentials, got {shown}; "
        "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or use a profile or a role"
    )

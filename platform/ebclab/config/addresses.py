"""Syntax of addresses of stores and locations of datasets, and the check that they hold no credentials.

Addresses are written into run folders and shown, so they must not hold secrets.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from urllib.parse import quote, unquote

_WORD = re.compile(r"\S+")
_SECRET_OPTION = re.compile(
    r"(?i)(?<=[?&])(?=[^=&?\s]*(?:key|secret|token|password|signature|credential))([^=&?\s]*+)=[^&\s'\"]+"
)
"""An option after the question mark whose name suggests that its value is a secret."""

LONGEST_SHOWN = 80
"""Characters of a value that a message shows."""

FOLDER = "folder:"
PARQUET = "parquet:"
WEBDATASET = "webdataset:"
ARROW = "arrow:"
PHOTOGRAPHS = ("voc:", "imagenet:", "imagenet100:", "flowers102:", "caltech101:", "sun397:")
"""Prefixes of ``data.name`` for published datasets of photographs of different sizes."""

PUBLISHED = (*PHOTOGRAPHS, "tiny-imagenet:", "stl10:", "stl10-unlabelled:")
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


def without_credentials(text: str) -> str:
    """Return text in which *** replaces all names and passwords, keys and tokens in addresses."""
    return _SECRET_OPTION.sub(r"\1=***", _WORD.sub(lambda word: _without_passwords(word[0]), text))


def _without_passwords(word: str) -> str:
    """Return a word in which *** replaces names and passwords before hosts, in time linear in its length.

    A name contains neither ``@`` nor ``?``. The password may contain slashes, ``@`` and question marks: it ends at the
    last ``@`` before the options, or at the first one if that is after a question mark, in which case the name contains
    no slash.
    """
    shown, done, at, options = "", 0, -1, -1
    start = word.find("://") + 3
    while start > 2:
        if at < start and (at := word.find("@", start)) < 0:
            break
        if options < start and (options := word.find("?", start)) < 0:
            options = len(word)
        colon = word.find(":", start, min(at, options))
        if colon >= 0 and at > options and "/" in word[start:colon]:
            colon = -1
        if colon >= 0:
            shown += f"{word[done:start]}***@"
            done = (word.rfind("@", at, options) if at < options else at) + 1
        start = word.find("://", max(start, done)) + 3
    return shown + word[done:]


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

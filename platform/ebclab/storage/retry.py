"""Retries requests with exponential backoff while a store does not respond."""

from __future__ import annotations

import errno
import logging
import os
import re
import time
from collections.abc import Callable
from typing import TypeVar

from ebclab.errors import StoreError, UserError

PATIENCE = "EBCLAB_STORAGE_PATIENCE"
"""Environment variable with the number of seconds for which a request is retried; default: 600."""

_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 15.0  # seconds
_LASTING = re.compile(
    r"ACCESS_DENIED|NO_SUCH_BUCKET|INVALID_ACCESS_KEY|SIGNATURE_DOES_NOT_MATCH|EXPIRED_TOKEN|INVALID_CLIENT_TOKEN"
    r"|HTTP response code 40[13]|HTTP status 40[13]|PERMISSION_DENIED|UNAUTHENTICATED|bucket does not exist",
    re.IGNORECASE,
)
"""Permanent errors of stores, which are not retried."""

_OF_A_DISK = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT), "free some space"),
    **dict.fromkeys((errno.EROFS, errno.EACCES, errno.EPERM), "check its permissions"),
    **dict.fromkeys((errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.ELOOP, errno.EINVAL), "check the path"),
}
"""Permanent errors of this machine's disks, which are not retried either, and their remedies."""

_log = logging.getLogger("ebclab.storage")
T = TypeVar("T")


def patience_seconds() -> float:
    """Return the number of seconds for which a request is retried."""
    text = os.environ.get(PATIENCE, "600")
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < float("inf"):
        raise UserError(f"{PATIENCE}: not a number of seconds, got {text!r}; write 600, or unset it")
    return seconds


def is_refusal(error: Exception) -> bool:
    """Return whether a store has refused a request permanently, e.g. for lack of permissions."""
    return _LASTING.search(" ".join(str(error).split())) is not None


def with_retries(work: Callable[[], T], where: str, *, seconds: float | None = None) -> T:
    """Return the result of ``work``, which is retried for ``seconds`` (None: ``patience_seconds``) without an answer.

    A FileNotFoundError is raised as it is.

    Raises:
        StoreError: The store refuses access or does not respond within that time, or a local disk cannot be written.
    """
    import pyarrow as pa

    allowed = patience_seconds() if seconds is None else seconds
    started, pause = time.monotonic(), _FIRST_PAUSE
    while True:
        try:
            return work()
        except FileNotFoundError:
            raise
        except (OSError, pa.ArrowException) as error:
            reason = " ".join(str(error).split())
            if is_refusal(error):
                raise StoreError(
                    f"{where}: the store refuses, got {reason}; check credentials and permissions"
                ) from error
            if isinstance(error, OSError) and error.errno in _OF_A_DISK:
                raise StoreError(
                    f"{where}: a disk cannot be written to, got {reason}; {_OF_A_DISK[error.errno]}"
                ) from error
            waited = time.monotonic() - started
            if waited + pause > allowed:
                raise StoreError(
                    f"{where}: the store has not answered for {waited:.0f} s, got {reason}; "
                    f"the same command resumes from there once it does ({PATIENCE} allows {allowed:g} s)"
                ) from error
            _log.warning("%s: the store does not answer, trying again in %.1f s (%s)", where, pause, reason)
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

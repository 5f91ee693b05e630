"""Tells of every request to a store before it is made: the files of runs go through ``Store``, leases do not."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from ebclab.storage.object_store import Store
from ebclab.storage.swap import LocalFile

_LOOKS: dict[type, tuple[str, ...]] = {
    Store: ("names", "stored", "read", "download"),
    LocalFile: ("read", "changed", "now"),
}
_CHANGES: dict[type, tuple[str, ...]] = {Store: ("upload", "write", "delete"), LocalFile: ("write", "delete")}


@contextmanager
def before_requests(tell: Callable[[str], object], *, only_changes: bool = False) -> Iterator[None]:
    """Call ``tell`` before every request to a store on this disk, with its kind and the file's name.

    Args:
        tell: What it raises comes in place of the request.
        only_changes: Leave out requests that only look.
    """
    patches = []
    for each in [_CHANGES] if only_changes else [_LOOKS, _CHANGES]:
        for owner, kinds in each.items():
            patches += [mock.patch.object(owner, kind, _told(kind, getattr(owner, kind), tell)) for kind in kinds]
    for patch in patches:
        patch.start()
    try:
        yield
    finally:
        for patch in patches:
            patch.stop()


def _told(kind: str, own: Callable[..., Any], tell: Callable[[str], object]) -> Callable[..., Any]:
    def call(store: Any, *given: Any, **options: Any) -> Any:
        if isinstance(store, LocalFile):
            name = store.path.rpartition("/")[2]
        else:
            name = given[1] if kind == "upload" else given[0] if given else ""
        tell(f"{kind} {name}".strip())
        return own(store, *given, **options)

    return call


class Dead(BaseException):
    """The process is dead."""


@contextmanager
def killed_before_change(number: int) -> Iterator[list[str]]:
    """Kill the process before a request that changes the store, and before every later one.

    Args:
        number: Of the request, from 0.

    Yields:
        The requests that were made; the block ends without an error when the process is killed.
    """
    made: list[str] = []

    def tell(request: str) -> None:
        if len(made) == number:
            raise Dead
        made.append(request)

    with before_requests(tell, only_changes=True):
        try:
            yield made
        except Dead:
            return

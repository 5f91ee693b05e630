"""How jobs that do not depend on each other are done: one after the other here, or on the machines of a cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, TypeVar

from ebclab.errors import EbclabError

Job = TypeVar("Job")
Result = TypeVar("Result")


class Each(Protocol):
    """Does jobs; yields each with its result or its error, in the order in which they end."""

    def __call__(
        self, function: Callable[[Job], Result], jobs: Sequence[Job], /
    ) -> Iterator[tuple[Job, Result | EbclabError]]: ...


def one_by_one(function: Callable[[Job], Result], jobs: Sequence[Job], /) -> Iterator[tuple[Job, Result | EbclabError]]:
    """Do jobs in this process, in their order."""
    for job in jobs:
        try:
            yield job, function(job)
        except EbclabError as error:
            yield job, error

"""How jobs that do not depend on each other are done: one after the other here, or on the machines of a cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Generic, Protocol, TypeVar

from ebclab.errors import EbclabError, UserError

Job = TypeVar("Job")
Result = TypeVar("Result")


class Each(Protocol):
    """Does jobs; yields each with its result or a user's error, in the order in which they end.

    A job whose process died is a TrainingError. All other errors are raised.
    """

    def __call__(
        self, function: Callable[[Job], Result], jobs: Sequence[Job], /
    ) -> Iterator[tuple[Job, Result | EbclabError]]: ...


def one_by_one(function: Callable[[Job], Result], jobs: Sequence[Job], /) -> Iterator[tuple[Job, Result | EbclabError]]:
    """Do jobs in this process, in their order."""
    for job in jobs:
        try:
            yield job, function(job)
        except UserError as error:
            yield job, error


class Kept(Generic[Result]):
    """Calls a function once for equal arguments; a copy in another process calls its own, once for many jobs."""

    def __init__(self, function: Callable[..., Result]) -> None:
        self._function, self._results = function, dict[Any, Result]()

    def __call__(self, *given: Any, **options: Any) -> Result:
        """Return the result."""
        key = given, frozenset(options.items())
        if key not in self._results:
            self._results[key] = self._function(*given, **options)
        return self._results[key]

    def __reduce__(self) -> tuple[type[Kept[Result]], tuple[Callable[..., Result]]]:
        """Return how pickle makes one in another process: without results."""
        return type(self), (self._function,)

"""The ranks of a run and the few things they do together; one process is rank 0 of 1 and talks to nobody."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from torch import Tensor, nn
from torch import distributed as dist

from ebclab.errors import DivergedError, EbclabError, InterruptedRunError, UserError

T = TypeVar("T")

_BY_EXIT_CODE: dict[int, type[EbclabError]] = {
    error.exit_code: error for error in (DivergedError, UserError, InterruptedRunError)
}


@dataclass(frozen=True)
class Ranks:
    """Which of how many equal processes this one is.

    More than one need torch's default process group, with a backend for CPU tensors beside that of a GPU.

    Attributes:
        rank: Number of this process, from 0. Rank 0 writes the run folder.
        world_size: How many there are.
    """

    rank: int = 0
    world_size: int = 1

    @classmethod
    def of_process_group(cls) -> Ranks:
        """Return what torch's default process group, which must exist, says about this process."""
        return cls(dist.get_rank(), dist.get_world_size())

    @property
    def alone(self) -> bool:
        """There is one rank only."""
        return self.world_size == 1

    def mean(self, value: Tensor) -> Tensor:
        """Return the mean of ``value`` over the ranks, the same bits on each of them."""
        if self.alone:
            return value
        total = value.clone()
        dist.all_reduce(total)
        return total / self.world_size

    def gather(self, value: T) -> list[T]:
        """Return the plain value of every rank, in order; each rank waits for all others."""
        if self.alone:
            return [value]
        values: list[T | None] = [None] * self.world_size
        dist.all_gather_object(values, value)
        return values  # type: ignore[return-value]

    def together(self, work: Callable[[], T]) -> T:
        """Do ``work`` and wait until all ranks have done theirs; what ebclab refuses on one, all refuse.

        Without this, a rank that stops with a sentence for the user would leave the others waiting for it in their
        next exchange. Errors that are not ebclab's pass at once: they end the process, which ends the others.

        Raises:
            EbclabError: ``work`` raised one on some rank; it is the first such rank's.
        """
        found: tuple[int, str] | None = None
        own: EbclabError | None = None
        try:
            result = work()
        except EbclabError as error:
            own, found = error, (error.exit_code, str(error))
        wrong = [other for other in self.gather(found) if other is not None]
        if own is not None:
            raise own
        if wrong:
            raise raised_elsewhere(*wrong[0])
        return result

    def of_first(self, work: Callable[[], T]) -> T:
        """Do ``work`` on rank 0 alone and return what it found there on every rank: plain values and CPU tensors.

        Raises:
            EbclabError: ``work`` raised one.
        """
        if self.alone:
            return work()
        found = [self.together(lambda: work() if self.rank == 0 else None)]
        dist.broadcast_object_list(found, src=0)
        return found[0]  # type: ignore[return-value]

    def shared(self, method: nn.Module) -> nn.Module:
        """Return ``method`` as a module whose gradients are means over the ranks; itself when there is one rank.

        Buffers are left alone: methods keep them equal by themselves, and copying rank 0's memories to all ranks
        each step would cost more than the step.
        """
        if self.alone:
            return method
        with warnings.catch_warnings():  # torch 2.14 has a second name for this switch, older ones do not
            warnings.filterwarnings("ignore", "`broadcast_buffers` is deprecated", FutureWarning)
            return nn.parallel.DistributedDataParallel(method, broadcast_buffers=False)


ALONE = Ranks()
"""The only rank of a run in one process."""


def raised_elsewhere(exit_code: int, text: str) -> EbclabError:
    """Return an error of another process as an error of this one: the same sentence, the same exit code."""
    return _BY_EXIT_CODE[exit_code](text)

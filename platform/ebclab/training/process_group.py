"""The ranks of a run and their collective operations; a run in one process has rank 0 alone and exchanges nothing."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeVar, get_args

from torch import Tensor, nn
from torch import distributed as dist

from ebclab import errors
from ebclab.errors import EbclabError

T = TypeVar("T")

ErrorKind = Literal[
    "DivergedError", "TrainingError", "VersionError", "StoreError", "UserError", "InterruptedRunError", "EbclabError"
]
"""Error classes that processes of a run tell each other, narrower ones first: what follows depends on them."""


@dataclass(frozen=True)
class Ranks:
    """This process among the processes of a run.

    Several processes need torch's default process group, with a backend for CPU tensors beside that of a GPU.
    """

    rank: int = 0  # number of this process, from 0. Rank 0 writes the run folder
    world_size: int = 1  # number of processes

    @classmethod
    def of_process_group(cls) -> Ranks:
        """Return this process's place in torch's default process group, which must exist."""
        return cls(dist.get_rank(), dist.get_world_size())

    @property
    def alone(self) -> bool:
        return self.world_size == 1

    def mean(self, value: Tensor) -> Tensor:
        """Return the mean of ``value`` over the ranks, the same bits on each of them."""
        if self.alone:
            return value
        total = value.clone()
        dist.all_reduce(total)
        return total / self.world_size

    def gather(self, value: T) -> list[T]:
        """Return the plain values of all ranks, in order; every rank waits for the others."""
        if self.alone:
            return [value]
        values: list[T | None] = [None] * self.world_size
        dist.all_gather_object(values, value)
        return values  # type: ignore[return-value]

    def may_have_lost_another(self, error: BaseException) -> bool:
        """Return whether an error may only say that another rank has gone, which gloo and NCCL do by RuntimeErrors."""
        cause = error.__cause__
        in_code = isinstance(cause, NotImplementedError | RecursionError)
        return not self.alone and isinstance(cause, RuntimeError) and not in_code

    def together(self, work: Callable[[], T]) -> T:
        """Do ``work`` and wait until all ranks have done theirs; an error on one rank is raised on all.

        Otherwise, a rank that stops with an error for the user would leave the others waiting in their next collective
        operation. Other errors are raised at once: they end this process, and with it the others.
        """
        own: EbclabError | OSError | None = None
        try:
            result = work()
        except (EbclabError, OSError) as error:
            own = error
        plain = None if own is None else (kind_of(own), str(own))
        told = [error for error in self.gather(plain) if error is not None]
        if own is not None:
            raise own
        for kind, text in told:
            raise raised_elsewhere(kind, text)
        return result

    def of_first(self, work: Callable[[], T]) -> T:
        """Do ``work`` on rank 0 alone and return its result on every rank: plain values and CPU tensors."""
        if self.alone:
            return work()
        result = [self.together(lambda: work() if self.rank == 0 else None)]
        dist.broadcast_object_list(result, src=0)
        return result[0]  # type: ignore[return-value]

    def shared(self, method: nn.Module) -> nn.Module:
        """Return ``method`` as a module whose gradients are means over the ranks; with one rank, ``method`` itself.

        Buffers are not broadcast from rank 0: methods keep them equal, and broadcasting large ones in every step would
        take longer than the step.
        """
        if self.alone:
            return method
        with warnings.catch_warnings():  # torch 2.14 has a second name for this switch, older ones do not
            warnings.filterwarnings("ignore", "`broadcast_buffers` is deprecated", FutureWarning)
            return nn.parallel.DistributedDataParallel(method, broadcast_buffers=False)


ALONE = Ranks()
"""The one rank of a run in one process."""


def kind_of(error: EbclabError | OSError) -> ErrorKind:
    """Return the narrowest shared class that fits an error; of the system, TrainingError."""
    if isinstance(error, OSError):
        return "TrainingError"
    kind: ErrorKind = next(kind for kind in get_args(ErrorKind) if isinstance(error, getattr(errors, kind)))
    return kind


def raised_elsewhere(kind: ErrorKind, text: str) -> EbclabError:
    """Return the error of another process as one of this process, with the same sentence and exit code."""
    error: EbclabError = getattr(errors, kind)(text)
    return error

"""How images reach the training loop, resident or streamed: pure decisions on plain values."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal, NamedTuple

from ebclab.errors import DataError, UserError

Delivery = Literal["resident", "stream"]

RESIDENT_SHARE = 0.5
"""Share of the free memory of a device that resident images may take; the rest is the network's and the views'."""


class Choice(NamedTuple):
    """A delivery and, in one sentence, why."""

    delivery: Delivery
    reason: str


def choose_delivery(
    asked: Literal["auto", "resident", "stream"],
    *,
    name: str,
    needed_bytes: int,
    free_bytes: int,
    workers: int,
    num_proposals: Callable[[], int] = lambda: 0,
) -> Choice:
    """Return how a dataset is delivered.

    Args:
        asked: The setting ``data.delivery``.
        name: The setting ``data.name``.
        needed_bytes: Bytes of all images as they would lie in memory, of all copies that share the device.
        free_bytes: Bytes that are free on the device.
        workers: Ray Train workers; 0 means a run in one process without Ray.
        num_proposals: Returns how many views of other images the method wants with each batch; called only when the
            answer matters.

    Raises:
        DataError: Streaming was asked for and cannot be done.
    """
    if asked == "stream":
        if obstacle := _obstacle(name, workers, num_proposals):
            raise DataError(f"data.delivery: {obstacle}")
        return Choice("stream", "delivery stream: as asked")
    if asked == "resident":
        return Choice("resident", "delivery resident: as asked")
    sizes = f"{_size(needed_bytes)} of images, {_size(free_bytes)} free"
    if needed_bytes <= RESIDENT_SHARE * free_bytes:
        return Choice("resident", f"delivery resident: the set fits ({sizes})")
    if obstacle := _obstacle(name, workers, num_proposals):
        return Choice("resident", f"delivery resident: the set is large ({sizes}), but {obstacle}")
    return Choice("stream", f"delivery stream: the set is too large ({sizes})")


def _size(num_bytes: int) -> str:
    return f"{num_bytes / 1e9:,.1f} GB" if num_bytes >= 1e9 else f"{num_bytes / 1e6:,.1f} MB"


def _obstacle(name: str, workers: int, num_proposals: Callable[[], int]) -> str:
    """Return why a dataset cannot be streamed; empty when it can."""
    if not name.startswith(("folder:", "parquet:")):
        return (
            f"a dataset of the catalogue is not streamed from its own files, got {name}; "
            f"run `ebclab data prepare {name} --to DIR` and set data.name=parquet:DIR"
        )
    if wanted := num_proposals():
        return (
            f"this method wants views of other images with each batch, got {wanted} a batch, and a stream "
            "cannot look them up; set data.delivery=resident"
        )
    if workers == 0:
        return "a stream needs Ray, got resources.workers=0; set resources.workers to 1 or more"
    return ""


def cpu_reservation(cpus: float, workers: int, *, streamed: bool) -> float:
    """Return the CPUs that each worker reserves; fractions are allowed.

    With a stream one CPU stays free for Ray Data, whose tasks would never start otherwise; without, all are shared out.

    Args:
        cpus: CPUs of the cluster.
        workers: Ray Train workers, at least 1.
        streamed: Whether Ray Data delivers the images.

    Raises:
        UserError: Less than one CPU would be left for Ray Data.
    """
    kept = 1 if streamed else 0
    each = (cpus - kept) / workers
    if each <= 0:
        raise UserError(
            f"resources.workers: {workers} x more than 0 CPUs for the workers + {kept} for Ray Data exceed the "
            f"cluster's CPUs, got {cpus:g}; add CPUs or set data.delivery=resident"
        )
    return float(int(each)) if each >= 1 else math.floor(each * 10_000) / 10_000  # Ray counts ten thousandths


def fed_workers(cpus: float, reserved: float, *, streamed: bool) -> int:
    """Return how many workers a cluster can feed when each reserves ``reserved`` CPUs: one CPU is Ray Data's.

    Args:
        cpus: CPUs of the cluster.
        reserved: CPUs of each worker, more than 0.
        streamed: Whether Ray Data delivers the images.
    """
    return max(0, math.floor((cpus - (1 if streamed else 0)) / reserved + 1e-9))


def require_cpus(cpus: float, workers: int, reserved: float, *, streamed: bool) -> None:
    """Refuse a reservation that the cluster cannot hold.

    Args:
        cpus: CPUs of the cluster.
        workers: Ray Train workers.
        reserved: CPUs that each of them reserves.
        streamed: Whether Ray Data delivers the images and needs one CPU of its own.

    Raises:
        UserError: With the sum.
    """
    needed = workers * reserved + (1 if streamed else 0)
    if needed > cpus + 1e-9:
        data = " + 1 for Ray Data" if streamed else ""
        raise UserError(
            f"resources.workers: the cluster has too few CPUs, got {cpus:g} for {workers} workers x {reserved:g}{data} "
            f"= {needed:g}; use fewer workers or reserve fewer CPUs for each"
        )

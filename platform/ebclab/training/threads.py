"""The one place that sets how many CPU threads torch uses."""

from __future__ import annotations

import os

import torch


def set_threads(count: int) -> int:
    """Give torch ``count`` threads, or one per core this process may use when ``count`` is 0.

    Args:
        count: Threads.

    Returns:
        The number of threads in force.
    """
    threads = count or len(os.sched_getaffinity(0))
    torch.set_num_threads(threads)
    return threads

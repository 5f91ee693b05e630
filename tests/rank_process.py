"""Ranks of tests: each line on stdin names a file, a number of ranks and a folder; each is answered with exit codes.

A rank saves what ``be_a_rank(rank, num_ranks)`` of the file returns. Ranks are forked from this process, which has
imported what they all need and has started no thread.
"""

from __future__ import annotations

import datetime
import json
import os
import runpy
import signal
import sys
from pathlib import Path
from typing import NoReturn

import pytest  # noqa: F401  # test files import it
import torch
import torch._dynamo  # what a rank that trains imports, a second and more, is imported once
import torch.distributed as dist
import torch.nn.parallel

import energy_contrast.catalog  # noqa: F401

sys.path.append(str(Path(__file__).with_name("support")))

LIMIT = 200
"""Seconds after which a rank is ended."""


def main() -> None:
    sys.path.append(str(Path(__file__).with_name("support")))  # as pytest does
    torch.set_num_threads(1)
    with os.fdopen(os.dup(1), "w") as answers:
        os.dup2(2, 1)  # what ranks print is no answer
        for line in sys.stdin:
            file, num_ranks, folder = json.loads(line)
            ranks = [_fork(file, rank, num_ranks, Path(folder)) for rank in range(num_ranks)]
            codes = [os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) for process in ranks]
            print(json.dumps(codes), file=answers, flush=True)


def _fork(file: str, rank: int, num_ranks: int, folder: Path) -> int:
    process = os.fork()
    if process == 0:
        try:
            signal.alarm(LIMIT)
            _be_a_rank(file, rank, num_ranks, folder)
        except BaseException:
            sys.excepthook(*sys.exc_info())  # type: ignore[arg-type]
        os._exit(1)
    return process


def _be_a_rank(file: str, rank: int, num_ranks: int, folder: Path) -> NoReturn:
    dist.init_process_group(
        "gloo",
        init_method=f"file://{folder / 'rendezvous'}",
        rank=rank,
        world_size=num_ranks,
        timeout=datetime.timedelta(seconds=60),
    )
    found = runpy.run_path(file)["be_a_rank"](rank, num_ranks)
    dist.barrier()  # nobody leaves while another still talks to it; a message that waits keeps gloo's thread busy
    torch.save(found, folder / f"rank-{rank}.pt")
    os._exit(0)  # gloo's threads, torn down with the interpreter, now and then abort a process that has done its work


if __name__ == "__main__":
    main()

"""One rank of a test: ``rank_process.py FILE RANK NUM_RANKS FOLDER`` saves what ``be_a_rank`` of FILE returns."""

from __future__ import annotations

import datetime
import os
import runpy
import sys
from pathlib import Path

import torch
import torch.distributed as dist


def main(file: str, rank: int, num_ranks: int, folder: Path) -> None:
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{folder / 'rendezvous'}",
        rank=rank,
        world_size=num_ranks,
        timeout=datetime.timedelta(seconds=60),
    )
    torch.save(runpy.run_path(file)["be_a_rank"](rank, num_ranks), folder / f"rank-{rank}.pt")
    dist.barrier()  # nobody leaves while another still talks to it
    os._exit(0)  # gloo's threads, torn down with the interpreter, now and then abort a process that has done its work


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]))

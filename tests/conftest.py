"""Shared test set-up: one torch thread, so that parallel test runs do not fight for cores."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def run_ranks(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, int], list[Any]]:
    """Return a function that runs ``be_a_rank(rank, num_ranks)`` of a test file in as many processes on gloo."""
    script = Path(__file__).with_name("rank_process.py")

    def run(file: str, num_ranks: int) -> list[Any]:
        folder = tmp_path_factory.mktemp("ranks")
        command = [sys.executable, str(script), file]
        processes = [
            subprocess.Popen(
                [*command, str(rank), str(num_ranks), str(folder)],
                env={**os.environ, "OMP_NUM_THREADS": "1"},
            )
            for rank in range(num_ranks)
        ]
        try:
            assert [process.wait(timeout=200) for process in processes] == [0] * num_ranks
        finally:
            for process in processes:
                process.kill()
                process.wait()
        return [torch.load(folder / f"rank-{rank}.pt", weights_only=True) for rank in range(num_ranks)]

    return run

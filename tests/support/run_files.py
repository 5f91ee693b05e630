"""What a run has logged and learnt, read from its folder while another process may still write there; free ports."""

import json
import re
import socket
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from ebclab.runs import checkpoint
from ebclab.runs.summary import RunSummary

CHECKPOINT_FILES = [
    name.replace("<name>", "buffer")
    for name in re.findall(r"^    (\S+[.]\S+)  ", str(checkpoint.__doc__), re.MULTILINE)
]
"""Files of a ``last`` checkpoint with one memory, as the docstring of runs/checkpoint.py lists them."""


def summary_of(**facts: Any) -> RunSummary:
    """Return the summary of a finished run of SimCLR on digits with these facts."""
    usual: dict[str, Any] = {
        "method": "simclr",
        "dataset": "digits",
        "seed": 0,
        "epochs": 2,
        "steps": 8,
        "batch_size": 16,
        "train_images": 32,
        "holdout_images": 0,
        "scores": {},
        "best": None,
        "metrics": None,
        "images_per_second": None,
        "seconds": 6.0,
        "parameters": 1,
        "checkpoint": None,
        "finished": "2026-11-20T12:34:56+00:00",
    }
    return RunSummary(**usual | facts)


def records(run: Path, **having: Any) -> list[dict[str, Any]]:
    """Return the whole lines of a run's log that have these entries; none if there is no log."""
    log = run / "metrics.jsonl"
    lines = log.read_text(encoding="utf-8").splitlines() if log.exists() else []
    found = [json.loads(line) for line in lines if line.endswith("}")]
    return [record for record in found if having.items() <= record.items()]


def last_step(run: Path) -> int:
    """Return the last training step that a run has logged."""
    return max((record["step"] for record in records(run, kind="train")), default=0)


def weights(run: Path) -> dict[str, torch.Tensor]:
    """Return the weights of a run's newest checkpoint."""
    return load_file(sorted((run / "checkpoints").glob("last-*"))[-1] / "model.safetensors")


def same_bits(run: Path, wanted: dict[str, torch.Tensor]) -> bool:
    """Return whether the newest weights of a run are equal to these, bit for bit."""
    found = weights(run)
    return found.keys() == wanted.keys() and all(torch.equal(tensor, wanted[name]) for name, tensor in found.items())


def free_ports(count: int) -> list[int]:
    """Return ports that nobody listens on."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [each.getsockname()[1] for each in sockets]

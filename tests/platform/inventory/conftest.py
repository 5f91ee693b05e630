"""Folders of runs that nobody trained, and one that another process works in."""

import fcntl
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from run_files import summary_of

from ebclab.config import compose, to_yaml


def new_run(folder: Path, epochs_done: int | None, *, result: bool = False) -> None:
    """A run of six epochs with a held-out score of 0.75 after ``epochs_done``."""
    folder.mkdir(parents=True)
    config = compose("flatclr", overrides=["training.epochs=6", "data.name=cifar10"])
    (folder / "config.yaml").write_text(to_yaml(config))
    if epochs_done is not None:
        checkpoint = folder / "checkpoints" / "last-0000000010"
        checkpoint.mkdir(parents=True)
        facts = {"epochs_done": epochs_done, "scores": {"holdout_knn": 0.75}}
        (checkpoint / "manifest.json").write_text(json.dumps({"facts": facts}))
    if result:
        facts = {"method": "flatclr", "dataset": "cifar10", "epochs": epochs_done or 0, "steps": 10}
        summary = summary_of(**facts, scores={"holdout_knn": 0.75})
        (folder / "result.json").write_text(json.dumps(summary.to_mapping()))


@contextmanager
def worked_in(folder: Path) -> Iterator[None]:
    """Hold the lock of a run or sweep, as a process does that works in it."""
    with (folder / ".lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield

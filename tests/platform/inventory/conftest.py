"""Folders of runs that nobody trained, and one that another process works in."""

import fcntl
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ebclab.config import compose, to_yaml
from ebclab.runs.summary import RunSummary


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
        summary = RunSummary(
            method="flatclr",
            dataset="cifar10",
            seed=0,
            epochs=epochs_done or 0,
            steps=10,
            batch_size=4,
            train_images=40,
            holdout_images=4,
            scores={"holdout_knn": 0.75},
            best=None,
            metrics=None,
            images_per_second=None,
            seconds=1.0,
            parameters=1,
            checkpoint=None,
            finished="2026-11-20T12:00:00+00:00",
        )
        (folder / "result.json").write_text(json.dumps(summary.to_mapping()))


@contextmanager
def worked_in(folder: Path) -> Iterator[None]:
    """Hold the lock of a run or sweep, as a process does that works in it."""
    with (folder / ".lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield

"""What rank 0 alone meets in the run folder or finds out about the run ends both ranks with the same sentence."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from small_runs import At, one_folder, train_as

from ebclab.config import compose
from ebclab.errors import DivergedError, TrainingError
from ebclab.runs.folder import RunFolder
from ebclab.training import rank as training_rank
from ebclab.training.process_group import Ranks
from ebclab.training.setup import split_own

PIXELS = torch.randint(256, (99, 1, 8, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
TINY = [
    *("data.train_limit=72", "training.batch_size=32", "resources.threads=1", "training.log_every=1"),
    *("training.epochs=2", "encoder.width=4"),
]
WATCHED = ["method.buffer_size=64", "method.num_steps=2", "encoder.batch_norm=none", "views.normalisation=half"]
CASES: dict[str, tuple[str, list[str], int, str]] = {
    "no labels": ("simclr", ["evaluation.monitor=[classification]"], 0, "classification needs labels"),
    "events elsewhere": ("simclr", [], 0, "a folder of ebclab belongs here, got a symbolic link"),
    "gone within an epoch": ("simclr", [], 1, "the folder was removed, renamed or replaced"),
    "gone at its end": ("simclr", [], 2, "the folder was removed, renamed or replaced"),
    "gone while health is watched": ("ebclr", WATCHED, 2, "the folder was removed, renamed or replaced"),
    "stopped": ("simclr", ["training.health=stop", "optimizer.learning_rate=1e6"], 0, "times that of their start"),
}
"""Method, settings, the step after which the run folder is renamed (0: never), and what the sentence holds."""


def run(name: str, folder: Path, ranks: Ranks) -> list[str]:
    """Train one of ``CASES`` and return the kind of its end, and its sentence."""
    method, overrides, step, _ = CASES[name]
    config = compose(method, overrides=[*TINY, *overrides])
    images = split_own(config.data, PIXELS) if name == "no labels" else None
    place = RunFolder.at(folder / "run")
    if name == "events elsewhere" and ranks.rank == 0:
        place.path.mkdir(parents=True)
        (place.path / "tensorboard").symlink_to(folder)
    moving = At(step, lambda: place.path.rename(place.path.with_name("moved")))
    _, error = train_as(ranks, place, config, moving, images)
    if error is None:
        return ["done", ""]
    kind = "diverged" if isinstance(error, DivergedError) else "failed"
    return [kind if isinstance(error, TrainingError) else "refused", str(error)]


def be_a_rank(rank: int, num_ranks: int) -> dict[str, list[str]]:
    """Train every case as one of ``num_ranks`` processes."""
    training_rank.FIRST_STEP = 0
    with one_folder() as folder:
        return {name: run(name, folder / name, Ranks.of_process_group()) for name in CASES}


@pytest.fixture(scope="module")
def both(run_ranks: Callable[[str, int], list[Any]]) -> list[dict[str, list[str]]]:
    """Return how each case ended on each of two ranks."""
    return run_ranks(__file__, 2)


@pytest.mark.parametrize("name", CASES)
def test_both_ranks_end_with_the_sentence_of_the_first(both: list[dict[str, list[str]]], name: str) -> None:
    zero, one = (found[name] for found in both)
    assert one == zero
    assert zero[0] == {"no labels": "refused", "events elsewhere": "refused", "stopped": "diverged"}.get(name, "failed")
    assert CASES[name][3] in zero[1]

"""A folder of somebody's own images, of mixed sizes, and nothing said but its name."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from ebclab.cli.pretrain import PretrainOptions
from ebclab.config import load_yaml_file
from ebclab.errors import DataError

from .conftest import Ebclab


def test_a_folder_is_trained_on_with_what_suits_it_which_is_said_and_recorded(ebclab: Ebclab) -> None:
    random = np.random.default_rng(0)
    for number in range(24):
        place = Path("photos", "ab"[number % 2])
        place.mkdir(parents=True, exist_ok=True)
        pixels = random.integers(0, 256, (14 + number % 3, 12, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(place / f"{number}.png")
    command = ["pretrain", "simclr", "--dataset", "folder:photos", "--epochs", "1", "--set", "encoder.width=4"]
    done = ebclab(*command, "--set", "optimizer.warmup_epochs=0").ok
    first, _, images, *_ = done.err.splitlines()
    assert first == (
        "24 images of 12 pixels on their shorter side; chosen for them: data.resize=12, views.recipe=flatclr-cifar, "
        "encoder.name=small, training.batch_size=8; --set changes any of it"
    )
    assert images.startswith("folder-photos: 24 images of 2 classes, ")
    assert "are left out of each epoch" in images
    run = Path("runs/simclr-folder-photos-seed0")
    recorded = load_yaml_file(run / "config.yaml")
    assert (recorded["data"]["resize"], recorded["views"]["recipe"]) == (12, "flatclr-cifar")
    assert "next: ebclab export" in done.out
    assert "no test part" in done.out
    for again in ([*command, "--set", "optimizer.warmup_epochs=0"], [*command[:-2], "--resume"]):
        repeated = ebclab(*again).ok
        assert "nothing was trained" in repeated.out


def test_a_command_for_a_cluster_is_checked_without_the_images() -> None:
    options = PretrainOptions("simclr", dataset="folder:/on/the/cluster")
    assert options.settings(look=False).views.recipe == "none"
    with pytest.raises(DataError, match="no such folder"):
        options.settings()

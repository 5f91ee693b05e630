"""Every method learns something: its encoder beats itself before training, on real digits, and nothing is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

import ebclab
from ebclab.training import rank
from ebclab.training.display import Listener
from energy_contrast.catalog import METHODS

MARGIN = 0.02
"""Share of the 355 test images that kNN gets right beyond what it gets right before training: seven images.

Seen with the seeds, epochs and widths below, in points: simclr 11.0, flatclr 10.1, dcl 10.1, dhel 7.6, sogclr 14.6,
vicreg 7.3, barlow 4.2, lejepa 8.7, supervised 13.5, jem 7.9, ebclr 8.2, vem-langevin 4.8, vem-svgd 7.3;
moco 4.8, 4.2, 4.8, simsiam 2.8, 7.6, 3.9, vem-image 3.1, 3.4, 5.1 with seeds 0, 1, 2; byol 3.9.
"""

SEEDS = dict.fromkeys(METHODS, 2) | {"simsiam": 1}
"""Untrained encoders of seeds 0, 1, 2: 92.1, 88.2, 90.1 %; of half the width, of seed 2: 78.0 %. With seed 2, simsiam
gains 3.9 or 1.7, by the processor."""
EPOCHS = dict.fromkeys(METHODS, 5) | {
    "vicreg": 6,
    "sogclr": 10,
    "lejepa": 10,
    "barlow": 10,
    "vem-svgd": 10,
    "vem-langevin": 10,
    "moco": 20,
    "byol": 20,
    "vem-image": 30,
    "simsiam": 30,
}
"""The recipe: 200."""

AS_WIDE_AS_THE_RECIPE = ("moco", "byol", "vem-image", "simsiam")
"""The others have an encoder of half the width, which has more to learn."""

FASTER: dict[str, list[str]] = {
    "vem-image": ["training.batch_size=64", "method.num_steps=2"],
    "simsiam": ["training.batch_size=64", "optimizer.learning_rate=0.006"],
    "lejepa": ["method.num_slices=64"],
    "barlow": ["method.redundancy_weight=0.04"],
}
"""Where they depart from the recipe, since with it they take long: simsiam needs 80 epochs, vem-image 40; an epoch of
lejepa with 1,024 slices takes a processor's second. With it barlow gains 1.7 points in 20 epochs, with these 5.4."""


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_training_lifts_the_test_knn_above_that_of_the_untrained_encoder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    monkeypatch.setattr(rank, "FIRST_STEP", 100)
    settings = [
        f"training.epochs={EPOCHS[method]}",
        f"seed={SEEDS[method]}",
        "resources.threads=1",
        "evaluation.knn_every=0",
    ]
    width = [] if method in AS_WIDE_AS_THE_RECIPE else ["encoder.width=8"]
    config = ebclab.compose(method, recipe="digits-demo", overrides=[*settings, *width, *FASTER.get(method, [])])
    run = ebclab.pretrain(config, runs=tmp_path, name="run", display=Listener())
    assert run.result["health"] == []
    rows = ebclab.evaluate(run.path, only=["knn"], references=True).rows
    trained, untrained = (rows[name]["knn"].value for name in (method, "untrained encoder"))
    assert trained - untrained >= MARGIN, f"test kNN {trained:.3f}, untrained {untrained:.3f}"

"""Every method learns something: its encoder beats itself before training, on real digits, by a stated margin."""

from __future__ import annotations

from pathlib import Path

import pytest

import ebclab
from ebclab.training.display import SilentDisplay
from energy_contrast.catalog import METHODS

EPOCHS = 20
"""An eighth to a half of what the recipe asks for; a minute and a half for all methods on one thread."""

MARGINS: dict[str, float] = {
    "simclr": 0.03,
}


def test_every_method_has_a_margin() -> None:
    assert MARGINS.keys() == METHODS.keys()


@pytest.mark.slow
@pytest.mark.parametrize("method", MARGINS)
def test_training_lifts_the_test_knn_above_that_of_the_untrained_encoder(tmp_path: Path, method: str) -> None:
    settings = [f"training.epochs={EPOCHS}", "resources.threads=1", "evaluation.knn_every=0", "seed=0"]
    config = ebclab.compose(method, recipe="digits-demo", overrides=settings)
    run = ebclab.pretrain(config, runs=tmp_path, name="run", display=SilentDisplay())
    rows = ebclab.evaluate(run.path, only=["knn"], references=True).rows
    trained, untrained = (rows[name]["knn"].value for name in (method, "untrained encoder"))
    assert trained - untrained >= MARGINS[method], f"test kNN {trained:.3f}, untrained {untrained:.3f}"

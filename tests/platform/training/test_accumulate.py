"""``training.accumulate``: which runs may have it, and what passes the network then."""

from pathlib import Path
from typing import Any

import pytest
import torch

import ebclab
from ebclab.config import compose
from ebclab.errors import ConfigError
from ebclab.training import setup
from ebclab.training.display import Listener
from energy_contrast.catalog import METHODS
from energy_contrast.contrastive.simclr import Simclr
from energy_contrast.method import Method, StepOutput

CHAINS = "cannot pass a batch in chunks: its chains move through the network within a step, all of a batch at once, got"
UNEVEN = "images of a batch of 32 that each worker and batch norm group has, got"


class Own(Method):
    """A method that says nothing of chunks."""

    Config = Simclr.Config

    def forward(self, *_: Any) -> StepOutput:
        raise NotImplementedError


@pytest.mark.parametrize(
    ("method", "chunks", "workers", "refusal"),
    [
        ("ebclr", 2, 1, f"ebclr {CHAINS} 2; use 1, and a smaller training.batch_size"),
        ("jem", 4, 1, f"jem {CHAINS} 4; use 1, and a smaller training.batch_size"),
        ("vem-image", 2, 1, f"vem-image {CHAINS} 2; use 1, and a smaller training.batch_size"),
        ("own", 2, 1, "own cannot pass a batch in chunks: its forward is not known to call its encoders by encode"),
        ("simclr", 3, 1, f"must divide the 32 {UNEVEN} 3; use 2"),
        ("simclr", 32, 2, f"must divide the 16 {UNEVEN} 32; use 16"),
        ("moco", 8, 2, f"must divide the 4 {UNEVEN} 8; use 4"),
    ],
)
def test_what_cannot_pass_in_chunks_is_refused_with_its_reason(method, chunks, workers, refusal):
    methods = {**METHODS, "own": Own}
    settings = ["encoder.width=2", "training.batch_size=32", f"training.accumulate={chunks}"]
    config = compose(method, overrides=settings, methods=methods)
    built = setup.build_method(config, methods[method], 1, torch.device("cpu"), num_classes=2)
    with pytest.raises(ConfigError) as refused:
        setup.require_parts(config, built, workers)
    (line,) = refused.value.problems
    assert line.startswith(f"training.accumulate: {refusal}")


def test_a_run_passes_its_batches_in_chunks(tmp_path: Path) -> None:
    passed: set[tuple[int, bool]] = set()

    class Watched(Simclr):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            self.encoder.register_forward_hook(lambda module, inputs, _: passed.add((len(inputs[0]), module.training)))

    small = ["data.train_limit=96", "training.batch_size=32", "training.epochs=1", "encoder.width=2"]
    many = ["training.accumulate=4", "training.precision=bfloat16", "resources.threads=1", "evaluation.knn_every=0"]
    config = compose("simclr", overrides=[*small, *many])
    ebclab.pretrain(config, runs=tmp_path, name="run", method=Watched, display=Listener())
    assert {size for size, training in passed if training} == {2 * 32 // 4}

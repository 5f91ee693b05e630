"""What a run in a store says of itself: its address, never the copy that happens to lie on this machine."""

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from small_runs import train_as
from torch import Tensor

from ebclab.config import compose
from ebclab.errors import DivergedError, RunError
from ebclab.runs import checkpoint
from ebclab.runs.folder import RunFolder
from ebclab.storage.object_store import RemoteFolder
from ebclab.training.process_group import ALONE, Ranks
from ebclab.training.restore import continue_or_start
from ebclab.training.setup import Prepared
from energy_contrast.energy_based.vem_bank import VemLangevin


@pytest.fixture
def run(remote: RemoteFolder) -> RunFolder:
    """A run in a store."""
    return RunFolder(remote.cache, remote)


@dataclass(frozen=True)
class Seeing(Ranks):
    """A rank whose neighbour sees another checkpoint."""

    others: tuple[Any, ...] = field(default=())

    def gather(self, value: Any) -> list[Any]:
        return [value, *self.others]


@pytest.mark.parametrize(
    ("digest", "state", "others", "said"),
    [
        ("b", {}, (), "the training images are not those the run began with, got digest a, expected b"),
        ("a", None, (), "the checkpoint at step 4 lacks state.pt; it cannot be continued"),
        ("a", {}, ((2, "a"),), "the workers do not see the same checkpoint and images, got (step, digest) [(4, 'a'),"),
    ],
)
def test_a_checkpoint_that_cannot_be_continued_is_refused_by_address(run, monkeypatch, digest, state, others, said):
    found = checkpoint.Checkpoint(4, {"data_digest": digest}, {"w": torch.ones(1)}, state, {})
    monkeypatch.setattr(RunFolder, "load", lambda run: found)
    monkeypatch.setattr(Seeing, "together", lambda self, work: work())
    training = SimpleNamespace(ranks=Seeing(others=others))
    prepared = cast(Prepared, SimpleNamespace(training=training, facts=SimpleNamespace(data_digest="a")))
    with pytest.raises(RunError) as caught:
        continue_or_start(run, prepared)
    assert str(caught.value).startswith(f"{run.address}: {said}")
    assert str(run.path) not in str(caught.value)


def test_a_run_that_diverged_names_its_last_good_checkpoint_in_the_store(run, monkeypatch):
    def measured(method: VemLangevin, query: Tensor, moved: Tensor) -> dict[str, Tensor]:
        return {"bank_cosine": query.new_tensor(next(cosines))}

    cosines = iter([1.0, 1.0, 1.0, torch.nan])  # the fourth step is in the second epoch of two
    monkeypatch.setattr(VemLangevin, "_measure_bank", measured)
    tiny = ["data.train_limit=72", "training.batch_size=32", "training.log_every=1", "training.epochs=2"]
    plain = ["evaluation.knn_every=0", "method.bank_size=32", "training.health=none", "views.normalisation=half"]
    config = compose("vem-langevin", overrides=[*tiny, *plain, "encoder.batch_norm=none", "resources.threads=1"])
    _, error = train_as(ALONE, run, config)
    assert isinstance(error, DivergedError)
    assert f"the last good checkpoint is {run.address}/checkpoints/last-0000000002\n" in str(error)
    assert str(run.path) not in str(error)

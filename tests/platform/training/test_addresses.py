"""What a run in a store says of itself: its address, never the copy that happens to lie on this machine."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from ebclab.config import compose
from ebclab.errors import DivergedError, RunError
from ebclab.runs import checkpoint
from ebclab.runs.folder import NEEDED, RunFolder
from ebclab.runs.stop_request import StopFlag
from ebclab.storage.remote import COPIES, RemoteFolder
from ebclab.training.listener import Listener
from ebclab.training.process_group import Ranks
from ebclab.training.rank import DeviceAssignment, RunSpec, train_rank
from ebclab.training.restore import continue_or_start
from ebclab.training.setup import Prepared, prepare
from energy_contrast.energy_based.vem_bank import VemLangevin


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunFolder:
    """A run in a store, which is a folder."""
    monkeypatch.setenv(COPIES, str(tmp_path / "copies"))
    (tmp_path / "store").mkdir()
    remote = RemoteFolder(f"file://{tmp_path}/store", "run")
    return RunFolder(remote.cache, remote)


@dataclass(frozen=True)
class Seeing(Ranks):
    """A rank whose neighbour sees another checkpoint."""

    others: tuple[Any, ...] = field(default=())

    def gather(self, value: Any) -> list[Any]:
        return [value, *self.others]


def _refusal(run: RunFolder, *, digest: str = "a", state: dict[str, Any] | None = None, others: Any = ()) -> str:
    checkpoint.save(
        run.checkpoints, "last", checkpoint.Checkpoint(4, {"data_digest": digest}, {"w": torch.ones(1)}, state, {})
    )
    training = SimpleNamespace(ranks=Seeing(others=others))
    with pytest.raises(RunError) as caught:
        continue_or_start(run, cast(Prepared, SimpleNamespace(training=training, facts={"data_digest": "a"})))
    assert str(run.path) not in str(caught.value)
    return str(caught.value)


def test_a_checkpoint_of_other_images_is_refused_by_address(run: RunFolder) -> None:
    assert _refusal(run, digest="b", state={}).startswith(f"{run.address}: the training images are not those")


def test_a_checkpoint_without_a_state_is_refused_by_address(run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    stateless = checkpoint.Checkpoint(4, {"data_digest": "a"}, {}, None, {})
    monkeypatch.setattr(RunFolder, "load", lambda run: stateless)
    assert _refusal(run).startswith(f"{run.address}: the checkpoint at step 4 lacks state.pt")


def test_workers_that_see_different_checkpoints_are_refused_by_address(
    run: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Seeing, "together", lambda self, work: work())
    refusal = _refusal(run, state={}, others=((2, "a"),))
    assert refusal.startswith(f"{run.address}: the workers do not see the same checkpoint")


@pytest.mark.usefixtures("nan_in_the_fourth_step")
def test_a_run_that_diverged_names_its_last_good_checkpoint_in_the_store(run: RunFolder) -> None:
    tiny = ["data.train_limit=72", "training.batch_size=32", "training.log_every=1", "training.epochs=2"]
    plain = ["evaluation.knn_every=0", "method.bank_size=32", "training.health=none", "views.normalisation=half"]
    config = compose("vem-langevin", overrides=[*tiny, *plain, "encoder.batch_norm=none", "resources.threads=1"])
    cpu = torch.device("cpu")
    prepared = prepare(config, cpu, None, VemLangevin)
    spec = RunSpec(run, config, VemLangevin, None, ())
    with pytest.raises(DivergedError) as caught, run.claim(NEEDED) as syncer:
        train_rank(spec, prepared, DeviceAssignment(cpu, 1), Listener(), StopFlag(), syncer)
    assert f"the last good checkpoint is {run.address}/checkpoints/last-0000000002\n" in str(caught.value)
    assert str(run.path) not in str(caught.value)

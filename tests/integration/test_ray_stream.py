"""Streamed runs on Ray Train: they finish, go on where they stopped, and refuse what cannot be read."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from run_files import records

import ebclab
from ebclab.data.preparing.write_parquet import prepare_dataset
from ebclab.data.sources.load import load_split
from ebclab.errors import DataError, UserError
from ebclab.runs.folder import RunFolder
from ebclab.training.display import Listener
from ebclab.training.pretrain import RunResult
from energy_contrast.contrastive.simclr import Simclr
from energy_contrast.method import Method, Progress

pytestmark = pytest.mark.slow


def _pretrain(
    runs: Path,
    dataset: str,
    epochs: int,
    *settings: str,
    method: type[Method] | None = None,
    key: str = "simclr",
    extend: int | None = None,
) -> RunResult:
    overrides = [
        f"data.name={dataset}",
        "data.delivery=stream",
        "views.recipe=digits",
        "training.batch_size=32",
        f"training.epochs={epochs}",
        "resources.workers=2",
        *settings,
    ]
    config = ebclab.compose(key, overrides=overrides)
    return ebclab.pretrain(config, runs=runs, name="run", method=method, extend=extend, display=Listener())


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A prepared set."""
    folder = tmp_path_factory.mktemp("digits")
    prepare_dataset({"train": load_split("digits", None, "train")}, folder / "set")
    return f"parquet:{folder / 'set'}"


FEW = ("data.train_limit=320", "data.holdout_rate=0.2", "optimizer.schedule=constant")


def test_runs_that_go_on_at_the_next_epoch_by_command_or_after_a_worker_s_death_end_alike(
    cluster: str, digits: str, tmp_path: Path
) -> None:
    first = _pretrain(tmp_path, digits, 2, *FEW)
    steps_per_epoch = first.result["train_images"] // 32
    assert first.result["train_images"] + first.result["holdout_images"] == 320
    assert first.result["steps"] == 2 * steps_per_epoch
    more = _pretrain(tmp_path, digits, 2, *FEW, extend=3)
    digest = RunFolder(more.path).read_config().data.digest
    assert digest.startswith("stream-")  # recorded by the worker of rank 0, and known to the second launch
    assert more.result["steps"] == 3 * steps_per_epoch
    assert more.result["scores"]["holdout_knn"] > 0.5  # ten classes: chance is 0.1
    marker = tmp_path / "killed"

    class Mortal(Simclr):
        def after_step(self, progress: Progress) -> None:
            if progress.step == 14 and torch.distributed.get_rank() == 1 and not marker.exists():
                marker.touch()
                os.kill(os.getpid(), signal.SIGKILL)

    elastic = ["resources.workers=1", "resources.max_workers=2"]
    done = _pretrain(tmp_path / "other", digits, 3, *FEW, *elastic, method=Mortal)
    assert 7 <= steps_per_epoch <= 9  # the death lies within the second epoch
    (started,), (resumed,) = (records(done.path, event=name) for name in ("started", "resumed"))
    assert (started["ranks"], resumed["ranks"], resumed["step"]) == (2, 2, steps_per_epoch)
    assert done.result["steps"] == 3 * steps_per_epoch
    for run in (more, done):
        assert [record["epoch"] for record in records(run.path, kind="epoch")] == [1, 2, 3]
    assert done.result["scores"]["holdout_knn"] == more.result["scores"]["holdout_knn"]


def test_a_damaged_image_that_one_worker_meets_ends_the_run_with_its_name(cluster: str, tmp_path: Path) -> None:
    folder = tmp_path / "images"
    folder.mkdir()
    generator = np.random.default_rng(0)
    for number in range(128):
        Image.fromarray(generator.integers(0, 256, (8, 8), dtype=np.uint8)).save(folder / f"{number:03}.png")
    (folder / "100.png").write_bytes(b"not a picture")
    few = ["evaluation.knn_bank_limit=1", "evaluation.knn_every=0", "data.holdout_rate=0", "data.colour=grey"]
    with pytest.raises((DataError, UserError), match=r"100\.png: not a readable image.*data\.skip_corrupt=true"):
        _pretrain(tmp_path, f"folder:{folder}", 1, *few)


def test_a_streamed_run_whose_energies_go_wrong_gets_its_weights_back_and_goes_on(
    cluster: str, digits: str, tmp_path: Path
) -> None:
    ill = [
        *FEW,
        *("training.log_every=1", "views.normalisation=half", "encoder.batch_norm=none"),
        *("method.buffer_size=64", "method.num_steps=2"),
        *("method.sigma_min=20", "method.sigma_max=20"),  # pixel range: chains leave it with the first step
    ]
    healed = _pretrain(tmp_path, digits, 2, *ill, key="ebclr")
    steps_per_epoch = healed.result["train_images"] // 32
    event = healed.result["health"][0]
    assert (event["action"], event["step"], event["to_step"]) == ("roll_back", steps_per_epoch, steps_per_epoch)
    assert event["step_scale"] == 0.25
    assert healed.result["steps"] == 2 * steps_per_epoch

"""Monitors during training: what the log says of them, what they cost, and that they change no weight."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small_runs import Notes, saved_in, untimed
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import ebclab
from ebclab.cli import main
from ebclab.errors import DataError
from ebclab.training.pretrain import RunResult

TINY = [
    *("data.train_limit=300", "training.batch_size=32", "training.epochs=3", "resources.threads=1"),
    "encoder.width=4",
]
ALL = "evaluation.monitor=[classification,geometry,information,calibration,few-labels,out-of-distribution,robustness]"


def _run(folder: Path, name: str, *settings: str, display: Notes | None = None, **given: Any) -> RunResult:
    config = ebclab.compose("simclr", overrides=[*TINY, *settings])
    return ebclab.pretrain(config, runs=folder, name=name, display=display or Notes(), **given)


def test_monitors_change_no_weight_and_no_number_and_say_what_they_took(tmp_path, capsys):
    shown = Notes()
    plain = _run(tmp_path, "plain")
    watched = _run(tmp_path, "watched", ALL, "evaluation.monitor_every=2", display=shown)
    ours, theirs = saved_in(plain.path).model, saved_in(watched.path).model
    assert all(torch.equal(value, theirs[name]) for name, value in ours.items())
    assert untimed(plain.path, "train") == untimed(watched.path, "train")
    before, after = untimed(plain.path, "epoch"), untimed(watched.path, "epoch")
    assert after[0] == before[0]  # monitors have their turn after every second epoch, and after the last
    for scores, more in zip(before[1:], after[1:], strict=True):
        assert more.items() >= scores.items()
        assert {"holdout_nll", "holdout_uniformity", "holdout_pgd", "monitor_seconds"} <= more.keys() - scores.keys()
    assert (plain.summary.monitor_seconds, plain.summary.best) == (0.0, watched.summary.best)
    total = sum(each.get("monitor_seconds", 0) for each in after)
    assert watched.summary.monitor_seconds == pytest.approx(total, abs=0.02)
    assert watched.summary.scores["holdout_nll"] == after[-1]["holdout_nll"]
    assert [line for line in shown.lines if line.startswith("monitors take")] == [
        line for line in shown.lines if "geometry" in line
    ]
    board = EventAccumulator(str(watched.path / "tensorboard")).Reload()
    assert {"holdout/knn", "holdout/nll", "holdout/monitor_seconds"} <= set(board.Tags()["scalars"])
    assert main(["pretrain", "simclr", "--runs", str(tmp_path), "--name", "watched", "--resume"]) == 0
    assert ", of which monitors " in capsys.readouterr().out


def test_the_best_checkpoint_is_that_of_the_objective_that_a_monitor_measures(tmp_path: Path) -> None:
    run = _run(tmp_path, "run", "evaluation.objective=minus_holdout_nll")
    values = [each["minus_holdout_nll"] for each in untimed(run.path, "epoch")]
    assert values == [-each["holdout_nll"] for each in untimed(run.path, "epoch")]
    best = run.summary.best
    assert (best.objective, best.value, best.epoch) == ("minus_holdout_nll", max(values), int(np.argmax(values)) + 1)


@pytest.mark.parametrize("monitor", ["calibration", "robustness", "few-labels", "out-of-distribution"])
def test_a_monitor_of_too_few_images_is_refused_before_the_first_step(tmp_path: Path, monitor: str) -> None:
    few = ["evaluation.knn_bank_limit=8", "evaluation.knn_neighbours=5"]  # of ten classes
    with pytest.raises(DataError, match=f"monitor {monitor}, which looks at 8 images that are trained on"):
        _run(tmp_path, "run", f"evaluation.monitor=[{monitor}]", *few)
    assert not list((tmp_path / "run" / "checkpoints").iterdir())
    assert not (tmp_path / "run" / "metrics.jsonl").exists()


def test_a_monitor_that_needs_labels_is_refused_before_the_first_step(tmp_path: Path) -> None:
    images = np.random.default_rng(0).integers(0, 255, (120, 8, 8), dtype=np.uint8)
    with pytest.raises(DataError, match=r"calibration needs labels of two classes, got \d+ images without"):
        _run(tmp_path, "run", "evaluation.monitor=[calibration]", "evaluation.objective=effective_rank", images=images)
    assert not (tmp_path / "run" / "result.json").exists()

"""What a run counts from launch to launch: its seconds, and its best checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.utils.tensorboard import SummaryWriter

from ebclab.config import compose
from ebclab.config.sections import TrainingConfig
from ebclab.runs import checkpoint
from ebclab.runs.folder import RunFolder
from ebclab.runs.stop_request import StopFlag
from ebclab.training import recorder as recorder_module
from ebclab.training.display import SilentDisplay
from ebclab.training.loop import Training
from ebclab.training.recorder import Recorder
from energy_contrast.method import Batch, Method, StepOutput


class Still(Method):
    """Learns nothing."""

    def forward(self, batch: Batch, generator: torch.Generator) -> StepOutput:
        raise AssertionError("no step is made here")


class NoImages:
    """Two batches an epoch, which nobody asks for."""

    num_batches = 2

    def batch(self, epoch: int, position: int) -> Batch:
        raise AssertionError("no step is made here")


class Launch:
    """One launch of a run of five epochs whose scores are given.

    Attributes:
        recorder: Its recorder.
        scores: What held-out images say of the next epochs.
        clock: Seconds since some moment.
    """

    def __init__(self, folder: Path, writer: SummaryWriter, clock: list[float], scores: list[float]) -> None:
        run = RunFolder(folder)
        method = Still(None, nn.Linear(2, 1))
        training = Training(
            method=method,
            optimizer=torch.optim.SGD(method.parameters(), lr=0.1),
            generator=torch.Generator(),
            data=NoImages(),
            learning_rate=lambda step: 0.1,
            config=TrainingConfig(),
        )
        config = compose("simclr", overrides=["training.epochs=5", "evaluation.knn_every=1"])
        self.scores, self.clock = iter(scores), clock
        self.recorder = Recorder(
            run=run,
            config=config,
            training=training,
            facts={},
            score=lambda: {"holdout_knn": next(self.scores)},
            display=SilentDisplay(),
            stop=StopFlag(),
            writer=writer,
            best={},
        )
        found = run.load()
        if found is not None:
            training.step = found.step
            self.recorder.restore(found)

    def epoch(self, seconds: float) -> None:
        """Let an epoch end after so many seconds."""
        self.clock[0] += seconds
        training = self.recorder.training
        training.step += 2
        self.recorder.on_epoch(training.step, training.step // 2)

    @property
    def epochs(self) -> list[tuple[int, float]]:
        """Epoch and seconds of every epoch's record so far."""
        return [(r["epoch"], r["seconds"]) for r in self.recorder.run.metrics.records() if r["kind"] == "epoch"]

    @property
    def best(self) -> list[str]:
        """The best checkpoints on disk."""
        return [path.name for path in self.recorder.run.checkpoints.glob("best-*")]


@pytest.fixture
def launch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Launch]]:
    """Launch one and the same run, again and again."""
    clock = [1000.0]
    monkeypatch.setattr(recorder_module, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    (tmp_path / "run").mkdir()
    with ExitStack() as stack:

        def again(*scores: float) -> Launch:
            writer = stack.enter_context(SummaryWriter(str(tmp_path / "run" / "tensorboard")))
            clock[0] += 500  # between launches nobody trains
            return Launch(tmp_path / "run", writer, clock, list(scores))

        yield again


def test_the_seconds_of_a_run_are_those_of_all_its_launches(launch: Callable[..., Launch]) -> None:
    launch(0.5).epoch(40)
    launch(0.5).epoch(7)
    third = launch(0.5)
    third.epoch(1)
    assert third.epochs == [(1, 40), (2, 47), (3, 48)]
    assert third.recorder.seconds == 48


def test_only_a_higher_score_is_a_new_best_and_a_resumed_run_remembers_it(launch: Callable[..., Launch]) -> None:
    first = launch(0.7, 0.7)
    first.epoch(1)
    first.epoch(1)
    assert first.best == ["best-0000000002"]  # of equal ones the first
    for score, step, value in ((0.6, 2, 0.7), (0.7, 2, 0.7), (0.8, 10, 0.8)):
        resumed = launch(score)
        resumed.epoch(1)
        assert resumed.best == [f"best-{step:010d}"]
        expected = {"objective": "holdout_knn", "value": value, "epoch": step // 2, "step": step}
        assert resumed.recorder.best == expected
    assert checkpoint.newest_step(resumed.recorder.run.checkpoints) == 10

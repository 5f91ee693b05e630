"""State of a method that no checkpoint holds: every kind is named once, and what a checkpoint holds is not."""

import math
from collections import deque
from pathlib import Path

import torch
from small_runs import Notes, records_of, small_config, small_images
from torch import Tensor, nn

import ebclab
from energy_contrast.contrastive.simclr import Simclr, SimclrConfig
from energy_contrast.method import Draw, Progress


class Meter(nn.Module):
    """A part of a method that counts."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = 0


class Forgetful(Simclr):
    """SimCLR that keeps something of every kind, some of it where a checkpoint finds it."""

    def __init__(self, config: SimclrConfig, encoder: nn.Module) -> None:
        super().__init__(config, encoder)
        self.scale, self.history, self.recent = 1.0, list[float](), deque([0, 0], maxlen=2)
        self.drift = torch.zeros(2)
        self.average = torch.zeros(3)
        self.best = {"loss": [9.0]}
        self.started = False
        self.meter = Meter()
        self.weights = list(encoder.parameters())
        self.names, self.given = ("a", "b"), torch.ones(2)
        self.register_buffer("kept", torch.zeros(()))
        self.handed_on: Tensor | None = None
        self.constants = [math.nan, 10**5000, range(10**15), b"bytes", print]
        self.constants.append(self.constants)
        with torch.inference_mode():
            self.measured = torch.ones(2)

    def start(self, draw: Draw) -> None:
        self.started = True

    def after_step(self, progress: Progress) -> None:
        self.handed_on = torch.ones(2)
        self.scale *= 0.9
        self.history.append(self.scale)
        self.recent.append(progress.step)
        self.drift += 1
        self.average = 0.5 * self.average
        self.best["loss"][0] -= 1.0
        self.meter.seen += 1
        self.kept += 1
        self.handed_on = None


LOST = ["scale", "history", "recent", "drift", "average", "best", "started", "meter.seen"]


def test_a_run_names_what_a_resume_would_lose_once_and_says_what_to_do(tmp_path: Path) -> None:
    notes = Notes()
    config = small_config("training.epochs=3")
    run = ebclab.pretrain(config, images=small_images(), method=Forgetful, runs=tmp_path, name="run", display=notes)
    (event,) = records_of(run.path, "event", "warning")
    assert event["step"] == 2  # the first checkpoint
    said, got, remedy = event["text"].replace("; ", ", got ").split(", got ")
    assert said.startswith("Forgetful: training changes attributes that are in no checkpoint, ")
    assert sorted(got.split(", ")) == sorted(LOST)
    assert remedy == "keep what steps remember in a buffer (register_buffer) or in memories"
    assert notes.lines.count(f"warning: {event['text']}") == 1

"""Steps that are recorded once and sent again: what a CUDA graph would do, but for the graph itself."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from pretended_device import NAME, PretendedDevice

from ebclab.config import ExperimentConfig
from ebclab.errors import UserError
from ebclab.runs import checkpoint
from ebclab.training.display import Listener
from ebclab.training.loop import Training, train_step
from ebclab.training.pretrain import pretrain
from ebclab.training.setup import prepare, split_own
from energy_contrast.catalog import METHODS

from .conftest import Killed

NUM_STEPS, LOG_EVERY = 7, 5  # the last step of an epoch is logged, and none of the tests gets there
REPLAYED = {4, 6}  # the first three are made as they are, and the fifth is logged


def prepared(config: ExperimentConfig, device: torch.device, method: str) -> Training:
    """Return a run that is ready to train, on numbers in place of images."""
    pixels = torch.randint(0, 256, (NUM_STEPS * 8, 1, 8, 8), dtype=torch.uint8, generator=torch.Generator())
    images = torch.utils.data.TensorDataset(pixels, torch.arange(len(pixels)) % 3)
    made = prepare(config, device, split_own(config.data, images), METHODS[method])
    made.training.method.start(made.draw)
    made.training.method.train()
    return made.training


@pytest.fixture
def run(tiny: Callable[..., ExperimentConfig], device: torch.device) -> Callable[..., Training]:
    """Return a function that prepares a run on the device: method, further settings."""

    def make(method: str, *overrides: str) -> Training:
        constant = ["method.momentum_schedule=constant"] if method == "byol" else []
        whole = ("data.holdout_rate=0", "data.train_limit=0", "optimizer.warmup_epochs=1")
        config = tiny(method, NAME, *whole, f"training.log_every={LOG_EVERY}", *constant, *overrides)
        return prepared(config, device, method)

    return make


def assert_close(one: Training, other: Training) -> None:
    expected, found = ({name: value.cpu() for name, value in each.method.state_dict().items()} for each in (one, other))
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6)
    assert torch.equal(other.generator.get_state(), one.generator.get_state())


@pytest.mark.parametrize("method", METHODS)
def test_recorded_steps_have_the_numbers_of_those_made_one_by_one(
    method: str, run: Callable[..., Training], pretended: PretendedDevice
) -> None:
    """Weights, memories and draws too; the optimizer, which is one operation in a recording, rounds otherwise."""
    plain, recorded = run(method), run(method, "training.compile=graph")
    for step in range(1, NUM_STEPS):
        expected = {name: value.item() for name, value in train_step(plain).items()}
        with pretended.counting() as (operations, waits):
            metrics = train_step(recorded)
        assert operations["replay"] == (step in REPLAYED)
        assert step == LOG_EVERY or step == 1 or not waits
        assert {name: value.item() for name, value in metrics.items()} == pytest.approx(expected, rel=2e-5, abs=1e-6)
    assert_close(plain, recorded)


@pytest.mark.parametrize("name", ["adam", "adamw"])
def test_optimizers_that_count_their_steps_count_recorded_ones(name: str, run: Callable[..., Training]) -> None:
    plain, recorded = (
        run("simclr", f"optimizer.name={name}"),
        run("simclr", f"optimizer.name={name}", "training.compile=graph"),
    )
    for _ in range(1, NUM_STEPS):
        train_step(plain)
        train_step(recorded)
    assert_close(plain, recorded)
    counts = {float(values["step"]) for values in recorded.optimizer.state.values()}
    assert counts == {NUM_STEPS - 1}


def test_memory_that_moves_between_recorded_steps_is_recorded_anew(run: Callable[..., Training]) -> None:
    plain, recorded = run("moco"), run("moco", "training.compile=graph")
    for step in range(1, NUM_STEPS):
        if step == LOG_EVERY:
            for training in (plain, recorded):
                training.method.queue = training.method.queue.clone()
        train_step(plain)
        train_step(recorded)
    assert_close(plain, recorded)


def test_a_step_that_looks_at_the_device_is_refused_in_a_sentence(
    run: Callable[..., Training], monkeypatch: pytest.MonkeyPatch
) -> None:
    forward = METHODS["simclr"].forward

    def looks(method: Any, batch: Any, generator: Any) -> Any:
        output = forward(method, batch, generator)
        assert output.loss.item() > 0
        return output

    monkeypatch.setattr(METHODS["simclr"], "forward", looks)
    training = run("simclr", "training.compile=graph")
    for _ in range(3):
        train_step(training)
    with pytest.raises(
        UserError, match=r"training.compile: a step cannot be recorded, got graph \(_local_scalar_dense"
    ):
        train_step(training)


def test_a_generator_that_was_not_registered_is_refused(
    run: Callable[..., Training], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pretended_device.Recording.register_generator_state", lambda *_: None)
    training = run("moco", "training.compile=graph")
    for _ in range(3):
        train_step(training)
    with pytest.raises(UserError, match="a generator that is not registered"):
        train_step(training)


@pytest.mark.parametrize(
    ("method", "overrides", "reason"),
    [
        ("byol", ["method.momentum_schedule=cosine"], "method.momentum_schedule: cosine changes it every step"),
        ("vem-svgd", ["method.bank_schedule=cosine"], "method.bank_schedule: cosine changes it every step"),
        ("ebclr", ["method.buffer_device=cpu"], "method.buffer_device: images go to the device and back"),
        ("flatclr", ["method.ess_target=0.4", "method.ess_target_end=0.2"], "method.ess_target_end: the target is"),
        ("simclr", ["optimizer.weight_decay_end=0.1"], "optimizer.weight_decay_end: gives each step a number"),
        ("simclr", ["optimizer.name=lars"], "optimizer.name: lars computes its rates on the host"),
        ("simclr", ["training.accumulate=2"], "training.accumulate: a pass that is repeated for its gradient was not"),
    ],
)
def test_what_cannot_be_recorded_is_made_as_it_is(
    method: str, overrides: list[str], reason: str, run: Callable[..., Training]
) -> None:
    training = run(method, "training.compile=graph", *overrides)
    assert training.captured is None
    assert training.not_captured.startswith(reason)


class Notes(Listener):
    """A display that keeps what it is told."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def note(self, text: str) -> None:
        self.told.append(text)


def test_a_run_says_and_records_whether_its_steps_are_recorded(
    tiny: Callable[..., ExperimentConfig], tmp_path: Path
) -> None:
    for where, said in ((NAME, "one graph"), ("cpu", "eager: torch has no graphs for cpu")):
        display = Notes()
        config = tiny("simclr", where, "training.compile=graph", "training.epochs=1")
        run = pretrain(config, runs=tmp_path, name=where, display=display)
        assert json.loads((run.path / "environment.json").read_text())["steps"] == said
        warned = [text for text in display.told if "training.compile" in text]
        expected = "training.compile=graph: torch has no graphs for cpu; steps run eagerly"
        assert warned == ([] if where == NAME else [expected])


@pytest.mark.parametrize("method", ["ebclr"])
def test_a_run_of_recorded_steps_that_is_killed_ends_in_the_bits_of_one_that_is_not(
    method: str, tiny: Callable[..., ExperimentConfig], kills_at: Any, tmp_path: Path
) -> None:
    config = tiny(method, NAME, "training.compile=graph", "data.train_limit=54", "training.average_weights=0.9")
    whole = pretrain(config, runs=tmp_path, name="whole", display=Listener())
    with pytest.raises(Killed):
        pretrain(config, runs=tmp_path, name="killed", display=kills_at(whole.summary.steps // 2 + 1))
    killed = pretrain(config, runs=tmp_path, name="killed", display=Listener())
    one, other = (checkpoint.load(each.path / "checkpoints") for each in (whole, killed))
    assert one is not None
    assert other is not None
    assert [name for name in one.model if not torch.equal(one.model[name], other.model[name])] == []

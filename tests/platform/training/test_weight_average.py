"""The average of weights: its closed form, what it holds, and that a run scores, saves and exports it."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from small_runs import saved_in
from torch import Tensor, nn

import ebclab
from ebclab.config import compose
from ebclab.export.run import export_run
from ebclab.runs.folder import RunFolder
from ebclab.runs.trained_encoder import load_trained_encoder
from ebclab.training import rank
from ebclab.training.display import Listener
from ebclab.training.weight_average import WeightAverage, trained
from energy_contrast.catalog import METHODS
from energy_contrast.method import Batch, Method, StepOutput
from energy_contrast.networks import build_encoder


class Parts(Method):
    """One part of each kind."""

    def __init__(self) -> None:
        super().__init__(None, nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)))
        self.copy = nn.Linear(2, 2).requires_grad_(False)
        self.temperature = nn.Parameter(torch.ones(()))
        self.register_buffer("queue", torch.ones(3))

    def forward(self, batch: Batch, generator: torch.Generator) -> StepOutput:
        raise NotImplementedError


@pytest.mark.parametrize("decay", [0.5, 0.999])
def test_the_average_is_its_closed_form_and_initial_weights_have_no_part(decay, monkeypatch):
    method = Parts()
    average, seen = WeightAverage(method, decay), list[dict[str, Tensor]]()
    for step in range(1, 6):
        if step == 3:  # a part may put other tensors in place of its own
            method.encoder[0].weight.data, method.encoder[1].running_mean = torch.empty(2, 2), torch.empty(2)
        for value in trained(method).values():
            value.normal_()
        seen.append({name: value.double() for name, value in trained(method).items()})
        with monkeypatch.context() as patch:
            patch.setattr(method, "state_dict", None)  # no step lists the weights, which takes long
            average.update(step)
        if step == 1:
            torch.testing.assert_close(average.tensors, trained(method), rtol=0, atol=0)
    total = sum(decay ** (5 - k) for k in range(1, 6))
    for name, value in average.tensors.items():
        expected = sum(decay ** (5 - k) * seen[k - 1][name] for k in range(1, 6)) / total
        torch.testing.assert_close(value.double(), expected, rtol=1e-5, atol=1e-6)
    learns = [f"encoder.0.{name}" for name in ("weight", "bias")] + [f"encoder.1.{name}" for name in ("weight", "bias")]
    assert set(average.tensors) == {"temperature", *learns, "encoder.1.running_mean", "encoder.1.running_var"}


def test_weights_come_back_to_the_bit_after_code_that_fails() -> None:
    method = Parts()
    average = WeightAverage(method, 0.9)
    nn.init.ones_(method.encoder[0].weight)
    before = {name: value.clone() for name, value in method.state_dict().items()}
    place = method.encoder[0].weight.data_ptr()

    @average.in_place()
    def fail() -> None:
        torch.testing.assert_close(trained(method), average.tensors, rtol=0, atol=0)
        assert not torch.equal(method.encoder[0].weight, before["encoder.0.weight"])
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    torch.testing.assert_close(dict(method.state_dict()), before, rtol=0, atol=0)
    assert method.encoder[0].weight.data_ptr() == place


@pytest.mark.parametrize("name", METHODS)
def test_momentum_encoders_and_memories_of_a_method_stay_its_own(name: str) -> None:
    kind = METHODS[name]
    method = kind(kind.Config(), build_encoder("small", in_channels=1, width=4), *((3,) if kind.needs_labels else ()))
    learns = {name for name, weight in method.named_parameters() if weight.requires_grad}
    names, buffers = set(trained(method)), {name for name, _ in method.named_buffers()}
    assert names >= learns
    assert {name.rpartition(".")[2] for name in names & buffers} <= {"running_mean", "running_var"}
    assert not [name for name in names if name.startswith(("target_", "key_"))]


class Seen:
    """What callbacks see of the encoder, epoch for epoch."""

    every_epochs = 1

    def __init__(self) -> None:
        self.encoders: list[dict[str, Tensor]] = []

    def measure(self, run: Any) -> None:
        self.encoders.append({name: value.clone() for name, value in run.encoder.state_dict().items()})


def test_a_run_scores_saves_and_exports_the_average(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scored, measure = list[dict[str, Tensor]](), rank.holdout_scores

    def scores(encoder: nn.Module, *given: Any, **options: Any) -> Any:
        scored.append({name: value.clone() for name, value in encoder.state_dict().items()})
        return measure(encoder, *given, **options)

    monkeypatch.setattr(rank, "holdout_scores", scores)
    small = ["data.train_limit=96", "training.batch_size=16", "training.epochs=2", "resources.threads=1"]
    config = compose("simclr", overrides=[*small, "encoder.width=4", "training.average_weights=0.9"])
    seen = Seen()
    run = ebclab.pretrain(config, runs=tmp_path, name="run", display=Listener(), callbacks=[seen]).path
    for kind in ("last", "best"):
        read = load_trained_encoder(RunFolder.at(run), kind)  # what evaluation reads
        at = read.epochs_done - 1
        for found in (read.encoder.state_dict(), scored[at]):
            torch.testing.assert_close(dict(found), seen.encoders[at], rtol=0, atol=0)
    last = saved_in(run)
    name = next(name for name in last.state["weights"] if name.startswith("encoder.") and name.endswith("weight"))
    assert not torch.equal(last.state["weights"][name], last.model[name])
    assert json.loads((run / "result.json").read_text())["average_weights"] == 0.9
    folder, _ = export_run(run, tmp_path / "out")
    assert "are an average over steps of decay 0.9" in (folder / "README.md").read_text()

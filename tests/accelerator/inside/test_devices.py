"""Which device a run gets, and what torch is asked about it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from ebclab import hardware
from ebclab.config import ExperimentConfig
from ebclab.errors import UserError
from ebclab.hardware import resolve_device, to_device
from ebclab.runs.environment import describe_environment
from ebclab.training.setup import prepare
from energy_contrast.catalog import METHODS

NO_GPU = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")


def test_a_device_that_a_package_has_registered_may_be_named(device: torch.device) -> None:
    assert resolve_device("pretended").type == device.type
    assert describe_environment(device, 1, 1, ())["device"] == "a CPU in disguise"


@NO_GPU
def test_auto_takes_a_device_beside_the_cpu() -> None:
    assert resolve_device("auto").type == "pretended"


@NO_GPU
@pytest.mark.parametrize("name", ["cuda", "xpu", "hpu", "mps", "gpu"])
def test_a_device_that_torch_does_not_have_is_refused_with_those_that_it_has(name: str) -> None:
    message = f"resources.device: torch has no such device here, got {name}; it has pretended, cpu; use one of these"
    with pytest.raises(UserError, match=message):
        resolve_device(name)


@NO_GPU
def test_a_device_without_float64_is_refused_and_never_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    zeros = torch.zeros

    def without_float64(*size: Any, **options: Any) -> torch.Tensor:
        if options.get("device") == "pretended" and options.get("dtype") == torch.float64:
            raise TypeError("no float64 here")
        return zeros(*size, **options)

    monkeypatch.setattr(hardware.torch, "zeros", without_float64)
    assert resolve_device("auto").type == "cpu"
    with pytest.raises(UserError, match=r"float64, which it does not have, got pretended; use cpu"):
        resolve_device("pretended")


@pytest.mark.parametrize(
    ("precision", "tells", "answer"),
    [
        ("bfloat16", "is_bf16_supported", False),
        ("bfloat16", "get_amp_supported_dtype", [torch.float16]),
        ("float16", "get_amp_supported_dtype", [torch.bfloat16]),
    ],
)
def test_a_device_without_a_precision_is_refused_it(
    precision: str,
    tells: str,
    answer: Any,
    tiny: Callable[..., ExperimentConfig],
    device: torch.device,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = tiny("simclr", "pretended", f"training.precision={precision}")
    monkeypatch.setattr(torch.get_device_module(device), tells, lambda: answer, raising=False)
    message = rf"training\.precision: pretended has no {precision} here, got {precision}; use float32"
    with pytest.raises(UserError, match=message):
        prepare(config, device, None, METHODS["simclr"])


def test_what_goes_to_a_device_is_pinned_first_and_what_stays_is_not_copied(device: torch.device) -> None:
    sent, strided = torch.arange(6), torch.arange(6).view(2, 3).T
    assert to_device(sent, torch.device("cpu")) is sent
    for tensor in (sent, strided):
        arrived = to_device(tensor, device)
        assert arrived.device == device
        assert arrived.stride() == tensor.stride()
        assert torch.equal(arrived.cpu(), tensor)

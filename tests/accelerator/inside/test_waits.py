"""Between log steps the host never waits for the device; at a log step once for the numbers, and for eigenvalues."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
import torch
from pretended_device import MixedDevicesError, PretendedDevice

from ebclab.config import ExperimentConfig
from ebclab.training.loop import train
from ebclab.training.setup import prepare, split_own
from energy_contrast.catalog import METHODS

COLOURED = (
    *("views.recipe=flatclr-cifar", "views.jitter_rate=0.8", "views.blur_kernel_size=3", "views.blur_rate=0.5"),
    *("views.solarise_rate=0.3", "views.noise_std=0.1", "views.grayscale_rate=0.3", "training.epochs=1"),
    *("data.holdout_rate=0", "data.train_limit=0", "training.log_every=4"),
)
NUM_STEPS, LOG_STEPS = 6, {1, 4, 6}
TRANSFER, EIGENVALUES = "_to_copy to the host", "_linalg_eigh"


class Watching:
    """An observer that notes what the host waited for in each step."""

    def __init__(self, waits: Counter[str]) -> None:
        self._waits = waits
        self.by_step: list[Counter[str]] = []

    def on_step(self, step: int) -> None:
        """Nothing."""

    def should_stop(self) -> bool:
        self.by_step.append(Counter(self._waits))
        self._waits.clear()
        return False

    def on_log(self, step: int, epoch: int, metrics: dict[str, float]) -> None:
        """Nothing."""

    def on_epoch(self, step: int, epochs_done: int) -> None:
        self.should_stop()

    def on_stop(self, step: int) -> None:
        """Nothing."""


def watched(pretended: PretendedDevice, config: ExperimentConfig, method: str) -> list[Counter[str]]:
    pixels = torch.randint(0, 256, (6 * 8, 3, 8, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(len(pixels)) % 3
    images = torch.utils.data.TensorDataset(pixels, labels)
    training = prepare(config, pretended.device, split_own(config.data, images), METHODS[method])
    training.training.method.start(training.draw)
    with pretended.counting() as (_, waits):
        observer = Watching(waits)
        assert train(training.training, observer)
    assert len(observer.by_step) == NUM_STEPS
    return observer.by_step


@pytest.mark.parametrize("method", METHODS)
def test_no_step_waits_but_those_that_are_logged(
    method: str, tiny: Callable[..., ExperimentConfig], pretended: PretendedDevice
) -> None:
    by_step = watched(pretended, tiny(method, "pretended", *COLOURED), method)
    assert {step: dict(waits) for step, waits in enumerate(by_step, start=1) if step not in LOG_STEPS} == {
        step: {} for step in range(1, NUM_STEPS + 1) if step not in LOG_STEPS
    }
    for step in LOG_STEPS - {1}:  # the first one sends the constants of views
        waits = by_step[step - 1]
        assert waits.pop(TRANSFER) == 1
        assert waits.keys() <= {EIGENVALUES}


def test_a_wait_in_a_step_would_be_seen(
    tiny: Callable[..., ExperimentConfig], pretended: PretendedDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    forward = METHODS["simclr"].forward

    def looks(method, batch, generator):  # type: ignore[no-untyped-def]
        output = forward(method, batch, generator)
        assert output.loss.item() > 0
        return output

    monkeypatch.setattr(METHODS["simclr"], "forward", looks)
    by_step = watched(pretended, tiny("simclr", "pretended", *COLOURED), "simclr")
    assert by_step[1] == {"_local_scalar_dense to the host": 1}


def test_mixed_devices_are_refused_as_a_gpu_does(device: torch.device) -> None:
    on_device, on_cpu = torch.ones(2, device=device), torch.ones(2)
    with pytest.raises(MixedDevicesError, match=r"add: on pretended, with tensors on the CPU of shape \(2,\)"):
        on_device + on_cpu
    assert (on_device + torch.tensor(2.0)).tolist() == [3, 3]  # one number of the CPU is a number

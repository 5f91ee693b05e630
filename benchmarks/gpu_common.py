"""What all measurements on a GPU share: methods, variants of their numbers, and how a step is timed."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import NamedTuple

import torch

from ebclab.config import ExperimentConfig, compose
from ebclab.data.image_set import ImageSet, channel_statistics
from ebclab.training.loop import Training, train_step
from ebclab.training.setup import Prepared, prepare, split_own
from energy_contrast.catalog import METHODS

PACKAGES = ("torch", "torchvision")
CPU = torch.device("cpu")
BFLOAT16, COMPILED = "training.precision=bfloat16", "training.compile=default"
CAPTURED = "training.compile=graph"
VARIANTS = {
    "float32": [],
    "float32, compiled": [COMPILED],
    "bfloat16": [BFLOAT16],
    "bfloat16, compiled": [BFLOAT16, COMPILED],
    "float32, captured": [CAPTURED],
    "bfloat16, captured": [BFLOAT16, CAPTURED],
}
FIRST_LAYER = ["method.chain_gradient=first-layer", "method.num_inner_steps=5"]
CHAINS_TOO = [BFLOAT16, "method.chain_precision=bfloat16"]
OWN_VARIANTS = {  # "variant; what else": beside SimCLR's step in that variant
    "ebclr": {
        "bfloat16; chains too": CHAINS_TOO,
        "bfloat16, compiled; chains too": [*CHAINS_TOO, COMPILED],
        "bfloat16, captured; chains too": [*CHAINS_TOO, CAPTURED],
        "float32; first-layer chains": FIRST_LAYER,
        "bfloat16, captured; first-layer chains, too": [*CHAINS_TOO, CAPTURED, *FIRST_LAYER],
    },
    "vem-svgd": {"float32; linear kernel": ["method.kernel=linear"]},
}
RECIPES = {"ebclr": "ebclr-as-released"}  # of the others: cifar10-resnet18
TINY = ["encoder.width=4"]
TINY_MEMORY = {
    **{name: ["method.bank_size=64"] for name in ("vem-langevin", "vem-svgd", "vem-image")},
    "ebclr": ["method.buffer_size=64"],
    "moco": ["method.queue_size=64"],
}


class Setting(NamedTuple):
    """Where measurements are made, and how large they are."""

    device: torch.device
    tiny: bool

    @property
    def name(self) -> str:
        """The device, as a page names it."""
        return torch.cuda.get_device_name() if self.device.type == "cuda" else "CPU"

    def config(self, method: str, overrides: list[str], recipe: str = "") -> ExperimentConfig:
        """Return a CIFAR-10 run of a method; ``overrides`` come last."""
        small = [*TINY, *TINY_MEMORY.get(method, [])] if self.tiny else []
        recipe = recipe or RECIPES.get(method, "cifar10-resnet18")
        return compose(method, recipe=recipe, overrides=[*small, *overrides])

    def prepare(self, method: str, overrides: list[str], count: int, device: torch.device | None = None) -> Prepared:
        """Return a run of a method on noise, its memories filled."""
        config = self.config(method, ["evaluation.knn_every=0", *overrides])
        config = replace(config, resources=replace(config.resources, deterministic=False))
        prepared = prepare(config, device or self.device, split_own(config.data, random_images(count)), METHODS[method])
        prepared.training.method.start(prepared.draw)
        return prepared

    def synchronise(self) -> None:
        """Wait for the device."""
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def restart_peak_memory(self) -> None:
        """Free what torch holds in reserve, and let ``peak_memory`` begin anew."""
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()

    def peak_memory(self) -> float:
        """Return the most GiB of the device that tensors took since ``restart_peak_memory``; nan on a CPU."""
        return torch.cuda.max_memory_allocated() / 2**30 if self.device.type == "cuda" else float("nan")


def random_images(count: int) -> ImageSet:
    """Return CIFAR-shaped noise: throughput and agreement do not depend on what the pixels show."""
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (count, 3, 32, 32), dtype=torch.uint8, generator=generator)
    labels = torch.randint(0, 10, (count,), generator=generator)
    mean, std = channel_statistics(images)
    names = tuple(str(number) for number in range(10))
    return ImageSet("noise", images, labels, torch.arange(count), names, mean, std)


def timed_rate(setting: Setting, training: Training, batch_size: int, steps: int) -> float:
    """Return images per second over ``steps`` steps, views included."""
    setting.synchronise()
    start = time.perf_counter()
    for _ in range(steps):
        train_step(training)
    setting.synchronise()
    return batch_size * steps / (time.perf_counter() - start)

"""What a method says of the passes of a step and of what it keeps is what a step does and leaves."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from small_methods import NUM_CLASSES, SMALL, draw_images, small_method
from torch import Tensor, nn

from energy_contrast.catalog import METHODS
from energy_contrast.costs import default_costs
from energy_contrast.method import Batch, Method, Progress

from .test_parity import CONTROLLED, MOMENTUM

CASES: dict[str, tuple[str, dict[str, Any]]] = {
    **{name: (name, SMALL.get(name, {})) for name in METHODS},
    "simclr, controlled": ("simclr", CONTROLLED),
    "supervised, supcon": ("supervised", {"objective": "supcon"}),
    "lejepa, three views": ("lejepa", {**SMALL["lejepa"], "num_views": 3}),
    "moco, symmetric": ("moco", {**SMALL["moco"], "symmetric": True}),
    "ebclr, first layer": (
        "ebclr",
        {"buffer_size": 40, "num_steps": 4, "chain_gradient": "first-layer", "num_inner_steps": 2},
    ),
    "ebclr, bytes": ("ebclr", {**SMALL["ebclr"], "buffer_dtype": "uint8"}),
    "jem, flat minima, first layer": (
        "jem",
        {**SMALL["jem"], "variant": "sada", "chain_gradient": "first-layer", "num_inner_steps": 3},
    ),
    "vem-langevin, shared keys, momentum": (
        "vem-langevin",
        {**SMALL["vem-langevin"], "key_encoder": "shared", **MOMENTUM},
    ),
    "vem-image, shared keys": ("vem-image", {**SMALL["vem-image"], "key_encoder": "shared"}),
}
SIZE = 16  # of a batch, and of the training set
SHAPE = (1, 8, 8)


def build(case: str) -> Method:
    method = small_method(*CASES[case])
    method.diagnosing = False
    method.start(draw_images)
    return method


def stepped(case: str) -> tuple[Method, dict[str, float]]:
    """Return a method after a step, and how many images passed its encoder's first stage for each image of the batch.

    That stage lies behind what chains may go through alone.
    """
    method, counted = build(case), {"forward": 0.0, "backward": 0.0}

    def came_back(gradient: Tensor) -> None:
        counted["backward"] += len(gradient) / SIZE

    def passed(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        counted["forward"] += len(output) / SIZE
        if output.requires_grad:
            output.register_hook(came_back)

    for name, part in method.named_modules():
        if name.endswith("encoder.layer1"):
            part.register_forward_hook(passed)
    generator = torch.Generator().manual_seed(1)
    views = draw_images(method.num_views * SIZE, generator).unflatten(0, (method.num_views, SIZE))
    rows, proposals = torch.arange(SIZE), draw_images(method.num_proposals(SIZE), generator)
    method(Batch(views, rows % NUM_CLASSES, rows, proposals), generator).loss.backward()
    method.after_step(Progress(1, 10, 0))
    return method, counted


@pytest.mark.parametrize("case", CASES)
def test_a_step_goes_through_the_encoder_and_keeps_beside_networks_as_much_as_its_method_says(case: str) -> None:
    """What it keeps is all that is in a checkpoint but weights and the statistics of batch norm."""
    method, counted = stepped(case)
    assert counted == method.passes(method.config)._asdict()
    networks = {name for name, _ in method.named_parameters()}
    for path, part in method.named_modules():
        if "BatchNorm" in type(part).__name__:
            networks |= {f"{path}.{name}" for name, _ in part.named_buffers()}
    kept = [value for name, value in method.state_dict().items() if name not in networks]
    saved = [item for memory in method.memories.values() for item in memory.state_dict().items()]
    kept += [value for name, value in saved if name != "bounds"]  # two settings, which a checkpoint repeats
    assert method.kept_bytes(SHAPE, SIZE) == sum(value.nbytes for value in kept)


def test_the_methods_with_a_slow_network_have_one_copy_of_the_encoder() -> None:
    shape, num_images = (3, 32, 32), 50_000
    costs = {name: default_costs(method, shape, num_images) for name, method in METHODS.items()}
    copies = {name for name in METHODS if costs[name].num_copies}
    assert copies == {"moco", "byol", "vem-langevin", "vem-svgd", "vem-image"}
    assert max(cost.num_copies for cost in costs.values()) == 1
    assert costs["ebclr"].kept_bytes == 50_000 * (3 * 32 * 32 * 4 + 4) + 4  # a float32 image, its count; step_scale
    assert costs["moco"].kept_bytes == 4096 * 128 * 4 + 8  # the queue, and its pointer
    assert costs["sogclr"].kept_bytes == 50_000 * 8

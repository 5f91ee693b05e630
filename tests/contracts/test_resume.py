"""A method that continues from saved bytes ends in the same bits, for every method of the catalogue."""

from __future__ import annotations

import io
from typing import Any

import pytest
import torch
from safetensors.torch import load, save
from small_methods import NUM_CLASSES, SMALL, draw_images, small_method
from torch import Tensor

from ebclab.training.lost_state import lost_at_a_resume, outside_checkpoints
from energy_contrast.catalog import METHODS
from energy_contrast.method import Batch, Method, Progress

from .test_parity import CONTROLLED, MOMENTUM

BATCH_SIZE = 16
NUM_STEPS = 4

CASES: dict[str, tuple[str, dict[str, Any]]] = {
    **{name: (name, SMALL.get(name, {})) for name in METHODS},
    "supervised, supcon, controlled": ("supervised", {"objective": "supcon", **CONTROLLED}),
    "flatclr, controlled": ("flatclr", {**CONTROLLED, "ess_target_end": 0.2}),
    "dhel, controlled": ("dhel", CONTROLLED),
    "moco, symmetric, small queue, controlled": ("moco", {"symmetric": True, "queue_size": 44, **CONTROLLED}),
    "vem-langevin, momentum": ("vem-langevin", {**SMALL["vem-langevin"], **MOMENTUM}),
    "jem, flat minima": ("jem", {**SMALL["jem"], "variant": "sada"}),
    "ebclr, bytes": ("ebclr", {**SMALL["ebclr"], "buffer_dtype": "uint8", "uniform_rate": 0.5}),
}


class Training:
    """A method, its optimizer and its generator, which know nothing of each other's past but their state."""

    def __init__(self, case: str, seed: int) -> None:
        self.method = small_method(*CASES[case], seed=seed)
        learning = [p for p in self.method.parameters() if p.requires_grad]
        self.optimizer = torch.optim.AdamW(learning, lr=0.01)
        self.generator = torch.Generator().manual_seed(seed)

    def run(self, start: int, stop: int) -> None:
        for step in range(start, stop):
            self.method.diagnosing = step % 2 == 0
            output = self.method(make_batch(self.method, step), self.generator)
            self.optimizer.zero_grad()
            output.loss.backward()
            self.optimizer.step()
            self.method.after_step(Progress(step + 1, NUM_STEPS, 0))

    def to_bytes(self) -> tuple[bytes, dict[str, bytes], bytes]:
        rest = io.BytesIO()
        torch.save({"optimizer": self.optimizer.state_dict(), "generator": self.generator.get_state()}, rest)
        memories = {name: save(memory.state_dict()) for name, memory in self.method.memories.items()}
        return save(contiguous(self.method.state_dict())), memories, rest.getvalue()

    def load_bytes(self, model: bytes, memories: dict[str, bytes], rest: bytes) -> None:
        self.method.load_state_dict(load(model))
        for name, content in memories.items():
            self.method.memories[name].load_state_dict(load(content))
        state = torch.load(io.BytesIO(rest), weights_only=True)
        self.optimizer.load_state_dict(state["optimizer"])
        self.generator.set_state(state["generator"])


def contiguous(state: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: value.contiguous() for name, value in state.items()}


def make_batch(method: Method, step: int) -> Batch:
    generator = torch.Generator().manual_seed(100 + step)
    views = draw_images(method.num_views * BATCH_SIZE, generator).unflatten(0, (method.num_views, BATCH_SIZE))
    index = torch.randperm(1000, generator=generator)[:BATCH_SIZE]
    return Batch(views, index % NUM_CLASSES, index, draw_images(method.num_proposals(BATCH_SIZE), generator))


@pytest.mark.parametrize("case", CASES)
def test_steps_saved_and_continued_elsewhere_twice_are_all_steps(case: str) -> None:
    undisturbed, first, second, third = (Training(case, seed) for seed in (0, 0, 1, 2))
    built = outside_checkpoints(undisturbed.method)
    undisturbed.method.start(draw_images)
    undisturbed.run(0, NUM_STEPS)
    assert lost_at_a_resume(undisturbed.method, built) == ""
    first.method.start(draw_images)
    first.run(0, 1)
    second.load_bytes(*first.to_bytes())
    second.run(1, 3)  # a queue of 40 has been written over
    third.load_bytes(*second.to_bytes())
    third.run(3, NUM_STEPS)
    assert third.to_bytes() == undisturbed.to_bytes()
    assert len({each.to_bytes()[0] for each in (first, second, third)}) == 3

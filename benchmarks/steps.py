"""What a training step of every method costs beside SimCLR's, in numbers that no busy machine changes.

    python benchmarks/steps.py

One step of every method of the catalogue with its default settings: ResNet-18 with the CIFAR stem, 3x32x32 pixels,
float32 in NHWC order, on the CPU, without diagnostics, and without batch norm where a method must see images alone.
Counted are

- images: how many pass forward through a network, for each image of the batch; views are images;
- arithmetic: floating-point operations of matrix products and convolutions, forward and backward;
- for backward: the most memory that is kept at a time for backward passes, but for weights and views: those of the
  loss, and of a method with a sampler those of each of its moves, until the move is made;
- state: weights, buffers and memories, without the optimizer's;
- operations: what torch dispatches, the smallest kernels and those that only make a view alike, in ``forward``, in
  ``backward`` and in ``after_step``. Where a network is small, these are what a GPU waits for.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from page import write_page
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from ebclab.config import compose
from ebclab.training.setup import build_method
from energy_contrast.catalog import METHODS
from energy_contrast.method import Batch, Method, PixelRange, Progress

CPU = torch.device("cpu")
SHAPE = (3, 32, 32)
MIB = 2**20


class OperationCount(TorchDispatchMode):
    """Counts what torch dispatches within it, and the arithmetic of matrix products and convolutions."""

    def __init__(self) -> None:
        super().__init__()
        self.number, self.flops = 0, 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.number += 1
        output = function(*args, **(kwargs or {}))
        if function._overloadpacket in flop_registry:
            self.flops += flop_registry[function._overloadpacket](*args, **(kwargs or {}), out_val=output)
        return output


class KeptBytes:
    """The memory that autograd keeps for backward passes: what of it lives now, and the most that did at a time.

    Args:
        known: Addresses of memory that is there anyway.
    """

    def __init__(self, known: set[int]) -> None:
        self._known, self._uses, self._now, self.most = known, Counter[int](), 0, 0

    def keep(self, value: Tensor) -> Kept:
        """Take a tensor that a graph keeps; what is returned lives as long as the graph."""
        storage = value.untyped_storage()
        address = storage.data_ptr()
        if address not in self._known:
            self._uses[address] += 1
            self._now += storage.nbytes() if self._uses[address] == 1 else 0
            self.most = max(self.most, self._now)
        return Kept(value, self)

    def let_go(self, value: Tensor) -> None:
        """Take note that a graph is gone which kept a tensor."""
        storage = value.untyped_storage()
        address = storage.data_ptr()
        if address not in self._known:
            self._uses[address] -= 1
            self._now -= storage.nbytes() if self._uses[address] == 0 else 0


class Kept:
    """A tensor that a graph keeps; it tells when it is let go."""

    def __init__(self, value: Tensor, kept: KeptBytes) -> None:
        self.value, self._kept = value, kept

    def __del__(self) -> None:
        self._kept.let_go(self.value)


@dataclass(frozen=True)
class Cost:
    """What one step took.

    Attributes:
        images: Passed forward, for each image of the batch.
        flops: Of matrix products and convolutions.
        saved_bytes: Kept for backward passes, the most at a time.
        state_bytes: Of weights, buffers and memories.
        forward: Operations in ``forward``.
        backward: Operations in ``backward``.
        after: Operations in ``after_step``.
    """

    images: float
    flops: int
    saved_bytes: int
    state_bytes: int
    forward: int
    backward: int
    after: int


def build(name: str, batch_size: int) -> tuple[Method, Callable[[], Batch]]:
    """Return a method that has been started, and what draws its batches."""
    overrides = [f"training.batch_size={batch_size}", "training.channels_last=true"]
    overrides += ["data.name=cifar10", "encoder.name=resnet18"]
    config = compose(name, overrides=overrides)
    if METHODS[name].requirements(config.method, batch_size).images_alone:
        config = compose(name, overrides=[*overrides, "encoder.batch_norm=none"])
    method = build_method(config, METHODS[name], 3, CPU, num_classes=10).train()
    method.pixel_range = PixelRange((-2.0,) * 3, (2.0,) * 3)
    method.diagnosing = False
    method.start(lambda count, generator: torch.randn(count, *SHAPE, generator=generator))
    generator = torch.Generator().manual_seed(0)

    def draw() -> Batch:
        views = torch.randn(method.num_views * batch_size, *SHAPE, generator=generator)
        views = views.contiguous(memory_format=torch.channels_last).unflatten(0, (method.num_views, -1))
        proposals = torch.randn(method.num_proposals(batch_size), *SHAPE, generator=generator)
        return Batch(views, torch.arange(batch_size) % 10, torch.arange(batch_size), proposals)

    return method, draw


def measure(name: str, batch_size: int) -> Cost:
    """Return what the third step of a method costs: the first may fill memories, the second tells what is kept."""
    method, draw = build(name, batch_size)
    generator = torch.Generator().manual_seed(1)
    method(draw(), generator).loss.backward()
    method.after_step(Progress(1, 10, 0))
    images, saved_bytes = measure_kept(method, draw(), generator)
    method.zero_grad(set_to_none=True)
    batch = draw()
    with OperationCount() as forward:
        loss = method(batch, generator).loss
    with OperationCount() as backward:
        loss.backward()
    with OperationCount() as after:
        method.after_step(Progress(3, 10, 0))
    flops, state = forward.flops + backward.flops, state_bytes(method)
    return Cost(images / batch_size, flops, saved_bytes, state, forward.number, backward.number, after.number)


def measure_kept(method: Method, batch: Batch, generator: torch.Generator) -> tuple[int, int]:
    """Return how many images a step passes forward, and the bytes that are kept for backward passes meanwhile."""
    images = 0
    kept = KeptBytes({value.untyped_storage().data_ptr() for value in (*method.state_dict().values(), batch.views)})

    def count(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        nonlocal images
        images += len(inputs[0])

    stems = [module for part, module in method.named_modules() if part.endswith("encoder.conv1")]
    handles = [stem.register_forward_pre_hook(count) for stem in stems]
    with torch.autograd.graph.saved_tensors_hooks(kept.keep, lambda each: each.value):
        loss = method(batch, generator).loss
    loss.backward()
    method.after_step(Progress(2, 10, 0))
    for handle in handles:
        handle.remove()
    return images, kept.most


def state_bytes(method: Method) -> int:
    """Return the bytes of a method's weights, buffers and memories."""
    memories = [value for memory in method.memories.values() for value in memory.state_dict().values()]
    return sum(value.nbytes for value in (*method.state_dict().values(), *memories))


def table(batch_size: int) -> str:
    """Measure all methods and return the markdown table."""
    lines = [
        f"| {batch_size} images a batch | images | arithmetic | for backward, MiB | state, MiB | forward | backward "
        "| after | operations, of SimCLR's |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    peer: Cost | None = None
    for name in METHODS:
        cost = measure(name, batch_size)
        peer = peer or cost
        operations = (cost.forward + cost.backward + cost.after) / (peer.forward + peer.backward + peer.after)
        cells = [
            name,
            f"{cost.images:.3g}",
            f"{cost.flops / peer.flops:.2f}x",
            f"{cost.saved_bytes / MIB:.0f}",
            f"{cost.state_bytes / MIB:.0f}",
            *map(str, (cost.forward, cost.backward, cost.after)),
            f"{operations:.1f}x",
        ]
        lines.append(f"| {' | '.join(cells)} |")
        print(lines[-1], flush=True)
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch-size", type=int, default=16, help="images a step")
    batch_size = parser.parse_args().batch_size
    torch.set_num_threads(1)
    command = f"`python benchmarks/steps.py --batch-size {batch_size}`"
    write_page("steps", "A step of every method, counted", command, ("torch",), table(batch_size))


if __name__ == "__main__":
    main()

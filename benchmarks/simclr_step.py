"""One SimCLR step with a ResNet-18 on CIFAR-sized images, beside lightly's modules.

    python benchmarks/simclr_step.py

A step is forward, loss, backward and an SGD update on ready views. lightly's contestant is its documented pattern:
torchvision's ResNet-18 with a CIFAR stem, SimCLRProjectionHead, NTXentLoss, the two views through the network one
after the other, NCHW. Contestants take turns in one process on one thread; time is CPU time.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from page import write_page
from torch import Tensor, nn

from ebclab.config import compose
from ebclab.training.loop import autocast
from ebclab.training.setup import build_method
from energy_contrast.catalog import METHODS
from energy_contrast.method import Batch

Step = Callable[[Tensor], None]  # takes views (2, B, 3, 32, 32)
CPU = torch.device("cpu")


def ours(*, channels_last: bool, precision: str = "float32") -> Step:
    overrides = [f"training.channels_last={channels_last}", f"training.precision={precision}"]
    config = compose("simclr", recipe="cifar10-resnet18", overrides=overrides)
    method = build_method(config, METHODS["simclr"], 3, CPU).train()
    optimizer = torch.optim.SGD(method.parameters(), lr=0.06, momentum=0.9)
    generator = torch.Generator()
    method.diagnosing = False

    def step(views: Tensor) -> None:
        if channels_last:
            views = views.flatten(0, 1).contiguous(memory_format=torch.channels_last).unflatten(0, (2, -1))
        unused = torch.empty(0)
        with autocast(CPU, precision):
            output = method(Batch(views, unused, unused, unused), generator)
        optimizer.zero_grad(set_to_none=True)
        output.loss.backward()
        optimizer.step()

    return step


def lightly_modules() -> Step:
    from lightly.loss import NTXentLoss
    from lightly.models.modules import SimCLRProjectionHead
    from torchvision.models import resnet18

    backbone = resnet18()
    backbone.conv1 = nn.Conv2d(3, 64, 3, 1, 1, bias=False)
    backbone.maxpool = nn.Identity()
    backbone.fc = nn.Identity()
    model = nn.Sequential(backbone, SimCLRProjectionHead(512, 512, 128))
    criterion = NTXentLoss(temperature=0.2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.06, momentum=0.9)

    def step(views: Tensor) -> None:
        loss = criterion(model(views[0]), model(views[1]))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()

    return step


CONTESTANTS: dict[str, Callable[[], Step]] = {
    "lightly, float32": lightly_modules,
    "ebclab, float32": lambda: ours(channels_last=False),
    "ebclab, float32, channels-last": lambda: ours(channels_last=True),
    "ebclab, bfloat16, channels-last": lambda: ours(channels_last=True, precision="bfloat16"),
}


def measure(batch_size: int, rounds: int) -> dict[str, list[float]]:
    """Return the CPU seconds of each contestant's step in each round, after one round of warm-up."""
    steps = {name: make() for name, make in CONTESTANTS.items()}
    views = torch.randn(2, batch_size, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    for number in range(-1, rounds):
        for name, step in steps.items():
            start = time.process_time()
            step(views)
            if number >= 0:
                seconds[name].append(time.process_time() - start)
    return seconds


def table(seconds: dict[str, list[float]], batch_size: int) -> str:
    """Return the markdown table."""
    peer = statistics.median(next(iter(seconds.values())))
    lines = ["| contestant | seconds a step, median | fastest to slowest | img/s | of lightly's time |"]
    lines.append("|---|---|---|---|---|")
    for name, values in seconds.items():
        median = statistics.median(values)
        spread = f"{min(values):.2f} to {max(values):.2f}"
        lines.append(f"| {name} | {median:.2f} | {spread} | {batch_size / median:.1f} | {median / peer:.2f}x |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch-size", type=int, default=32, help="images a step")
    parser.add_argument("--rounds", type=int, default=7, help="timed rounds of each contestant")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    seconds = measure(arguments.batch_size, arguments.rounds)
    command = f"`python benchmarks/simclr_step.py --batch-size {arguments.batch_size} --rounds {arguments.rounds}`"
    title = "SimCLR step, ResNet-18, CIFAR-sized images, one CPU thread"
    write_page("simclr_step", title, command, ("torch", "torchvision", "lightly"), table(seconds, arguments.batch_size))


if __name__ == "__main__":
    main()

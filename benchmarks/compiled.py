"""What `training.compile` buys: training steps and chain steps, as they are and compiled.

    python benchmarks/compiled.py

A step is forward, loss, backward and an SGD update on ready views, without diagnostics, on one thread; time is CPU
time, contestants take turns. "encoder alone" compiles the encoder and not the sampler's step around it. All begin with
the same weights and draws: the last column is the largest relative difference of the loss over three steps.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import NamedTuple

import torch
from page import write_page

from ebclab.config import compose
from ebclab.training.setup import build_method
from energy_contrast.catalog import METHODS
from energy_contrast.method import Batch, Method, PixelRange, Progress

CPU = torch.device("cpu")
WAYS: dict[str, Callable[[Method], None]] = {
    "plain": lambda method: None,
    "encoder alone": lambda method: method.encoder.compile(),
    "all": lambda method: method.compile_parts(),
}
BUFFER = ["method.buffer_size=512"]
YOPO = ["method.chain_gradient=first-layer", "method.num_inner_steps=5"]
CASES: dict[str, tuple[str, list[str]]] = {
    "simclr": ("simclr", []),
    "ebclr": ("ebclr", BUFFER),
    "ebclr, first layer": ("ebclr", [*BUFFER, *YOPO]),
    "vem-langevin": ("vem-langevin", []),
    "vem-svgd": ("vem-svgd", []),
}


class Scene(NamedTuple):
    """Images and the network that sees them."""

    title: str
    recipe: str
    shape: tuple[int, int, int, int]
    overrides: list[str]
    cases: list[str]


class Found(NamedTuple):
    """What one way of one method took."""

    seconds: list[float]
    losses: list[float]


class Contestant:
    """One method, run in one way."""

    def __init__(self, scene: Scene, case: str, way: str) -> None:
        name, overrides = CASES[case]
        channels = scene.shape[1]
        config = compose(name, recipe=scene.recipe, overrides=[*scene.overrides, *overrides])
        self.method = build_method(config, METHODS[name], channels, CPU, num_classes=10).train()
        self.method.pixel_range = PixelRange((-2.0,) * channels, (2.0,) * channels)
        self.method.diagnosing = False
        self.method.start(lambda count, generator: torch.randn(count, *scene.shape[1:], generator=generator))
        WAYS[way](self.method)
        self.optimizer = torch.optim.SGD([p for p in self.method.parameters() if p.requires_grad], lr=0.01)
        self.generator = torch.Generator().manual_seed(0)
        draw = torch.Generator().manual_seed(1)
        views = torch.randn(2 * scene.shape[0], *scene.shape[1:], generator=draw)
        views = views.contiguous(memory_format=torch.channels_last).unflatten(0, (2, -1))
        proposals = torch.randn(self.method.num_proposals(scene.shape[0]), *scene.shape[1:], generator=draw)
        self.batch = Batch(views, torch.empty(0), torch.empty(0), proposals)

    def step(self) -> float:
        """Make one optimizer step and return its loss."""
        output = self.method(self.batch, self.generator)
        self.optimizer.zero_grad(set_to_none=True)
        output.loss.backward()
        self.optimizer.step()
        self.method.after_step(Progress(1, 1000, 0))
        return output.loss.item()


def measure(scene: Scene, case: str, rounds: int) -> dict[str, Found]:
    """Return what each way took after its first three steps, which compile."""
    torch.compiler.reset()
    contestants = {way: Contestant(scene, case, way) for way in WAYS}
    found = {}
    for way, contestant in contestants.items():
        found[way] = Found([], [contestant.step() for _ in range(3)])
    for _ in range(rounds):
        for way, contestant in contestants.items():
            start = time.process_time()
            contestant.step()
            found[way].seconds.append(time.process_time() - start)
    return found


def table(scene: Scene, rounds: int) -> str:
    """Measure all methods and return the markdown table."""
    lines = [
        f"| {scene.title} | compiled | ms a step, median | range | of plain | loss off by |",
        "|---|---|---|---|---|---|",
    ]
    for case in scene.cases:
        found = measure(scene, case, rounds)
        plain = found["plain"]
        for way, one in found.items():
            if case == "simclr" and way == "all":
                continue  # the encoder is all there is
            median, peer = statistics.median(one.seconds), statistics.median(plain.seconds)
            spread = f"{1000 * min(one.seconds):.0f} to {1000 * max(one.seconds):.0f}"
            off = max(abs(a - b) / abs(b) for a, b in zip(one.losses, plain.losses, strict=True))
            cells = [case, way, f"{1000 * median:.0f}", spread, f"{median / peer:.2f}x", f"{off:.0e}"]
            lines.append(f"| {' | '.join(cells)} |")
            print(lines[-1], flush=True)
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15, help="timed rounds of each contestant")
    parser.add_argument("--scenes", nargs="+", default=["digits", "cifar"], choices=["digits", "cifar"])
    asked = parser.parse_args()
    torch.set_num_threads(1)
    plain = ["encoder.batch_norm=none", "encoder.activation=leaky_relu"]  # EBCLR's encoder
    scenes = {
        "digits": Scene("small encoder, 128 images of 1x8x8", "digits-demo", (128, 1, 8, 8), [], list(CASES)),
        "cifar": Scene(
            "ResNet-18, 8 images of 3x32x32", "cifar10-resnet18", (8, 3, 32, 32), plain, ["ebclr", "vem-langevin"]
        ),
    }
    rounds = {"digits": 2 * asked.rounds, "cifar": max(3, asked.rounds // 3)}
    tables = [table(scenes[name], rounds[name]) for name in asked.scenes]
    command = f"`python benchmarks/compiled.py --rounds {asked.rounds} --scenes {' '.join(asked.scenes)}`"
    write_page("compiled", "What compilation buys, one CPU thread", command, ("torch",), "\n\n".join(tables))


if __name__ == "__main__":
    main()

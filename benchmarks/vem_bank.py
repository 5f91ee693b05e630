"""What VEM's bank costs: an update of the bank alone, and a training step beside SimCLR's.

    python benchmarks/vem_bank.py

First table: what updates make of a bank. M = 1,024 random particles move ten times in each of 60 iterations among
fresh queries (N = 256, P = 128, ten clusters). A useful bank lies near queries and is not made anew every iteration.

Second: the time of one update, ten moves of the whole bank with their noise. Third and fourth: training steps, that is
forward, loss, backward and an SGD update on ready views, without diagnostics. SimCLR and VEM with shared keys pass the
same images through the same network, so that the bank is all that differs; with a momentum key network, VEM's default,
half of the images need no gradient. One thread; time is CPU time; contestants take turns.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from page import write_page

from ebclab.config import compose
from ebclab.training.setup import build_method
from energy_contrast.catalog import METHODS
from energy_contrast.diagnostics import effective_rank
from energy_contrast.method import Batch, Progress
from energy_contrast.samplers import Sampler, feature_langevin, svgd

CPU = torch.device("cpu")
NUM_MOVES = 10
SAMPLERS: dict[str, Sampler] = {
    "Langevin": feature_langevin(temperature=0.02),
    "SVGD, linear kernel": svgd(temperature=0.02),
    "SVGD, rbf kernel": svgd(temperature=0.02, kernel="rbf"),
}
UPDATES: dict[str, Sampler] = {
    "Langevin, printed, alpha 1": feature_langevin(temperature=0.02, step_size=1.0, update="printed"),
    **{
        f"Langevin, calibrated, alpha {alpha:g}, epsilon {epsilon:g}": feature_langevin(
            temperature=0.02, step_size=alpha, noise_intensity=epsilon
        )
        for alpha in (1.0, 0.1, 0.01)
        for epsilon in (0.1, 0.03, 0.01)
    },
    **{
        f"SVGD, {kernel} kernel, {word}, alpha 1": svgd(temperature=0.02, kernel=kernel, update=word)
        for kernel in ("linear", "rbf")
        for word in ("printed", "calibrated")
    },
    **{
        f"Langevin, calibrated, alpha {alpha:g}, epsilon {epsilon:.2g}, momentum 0.9": feature_langevin(
            temperature=0.02, step_size=alpha, noise_intensity=epsilon, momentum=0.9
        )
        for alpha, epsilon in ((0.01, 0.03), (0.001, 0.03 * 10**0.5))
    },
    "SVGD, rbf kernel, calibrated, alpha 0.1, momentum 0.9": svgd(
        temperature=0.02, step_size=0.1, kernel="rbf", momentum=0.9
    ),
}
SHARED = ["method.key_encoder=shared"]
STEPS: dict[str, tuple[str, list[str]]] = {
    "vem-langevin, shared keys": ("vem-langevin", SHARED),
    "vem-langevin, shared keys, one move": ("vem-langevin", [*SHARED, "method.num_steps=1"]),
    "vem-svgd, linear kernel, shared keys": ("vem-svgd", [*SHARED, "method.kernel=linear"]),
    "vem-langevin": ("vem-langevin", []),
    "vem-svgd, linear kernel": ("vem-svgd", ["method.kernel=linear"]),
    "vem-svgd": ("vem-svgd", []),
}


def measure(contestants: Mapping[str, Callable[[], Any]], rounds: int) -> dict[str, list[float]]:
    """Return the CPU seconds of each contestant in each round, after two rounds of warm-up."""
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    for number in range(-2, rounds):
        for name, run in contestants.items():
            start = time.process_time()
            run()
            if number >= 0:
                seconds[name].append(time.process_time() - start)
    return seconds


def bank_table() -> str:
    """Let banks move among clustered queries and return the markdown table."""
    lines = [
        "| update | cosine with the nearest query | with itself one iteration before | effective rank of the bank |",
        "|---|---|---|---|",
    ]
    for name, sampler in UPDATES.items():
        generator = torch.Generator().manual_seed(0)
        centres = F.normalize(torch.randn(10, 128, generator=generator), dim=1)
        bank = F.normalize(torch.randn(1024, 128, generator=generator), dim=1)
        kept, velocity = [], None
        for _ in range(60):
            own = torch.randn(256, 128, generator=generator) / 128**0.5
            queries = F.normalize(centres[torch.randint(10, (256,), generator=generator)] + 0.5 * own, dim=1)
            state = sampler.init(bank)._replace(velocity=velocity)
            for _ in range(NUM_MOVES):
                state, _ = sampler.step(state, queries, torch.randn(bank.shape, generator=generator))
            kept.append((state.position * bank).sum(dim=1).mean().item())
            bank, velocity = state.position, state.velocity
        near = (bank @ queries.T).amax(dim=1).mean().item()
        lines.append(f"| {name} | {near:.2f} | {statistics.mean(kept):.3f} | {effective_rank(bank).item():.0f} |")
    return "\n".join(lines)


def update(sampler: Sampler, bank_size: int, batch_size: int, *, compiled: bool) -> Callable[[], Any]:
    """Return ten moves of a bank, noise included."""
    generator = torch.Generator().manual_seed(0)
    bank, queries = (F.normalize(torch.randn(n, 128, generator=generator), dim=1) for n in (bank_size, batch_size))
    step = torch.compile(sampler.step, fullgraph=True) if compiled else sampler.step
    is_noisy = sampler is SAMPLERS["Langevin"]

    def run() -> None:
        state = sampler.init(bank)
        for _ in range(NUM_MOVES):
            noise = torch.randn(bank.shape, generator=generator) if is_noisy else bank
            state, _ = step(state, queries, noise)

    return run


def training_step(name: str, recipe: str, overrides: list[str], views: torch.Tensor) -> Callable[[], Any]:
    """Return one optimizer step of a method on ready views (2, B, C, H, W)."""
    method = build_method(compose(name, recipe=recipe, overrides=overrides), METHODS[name], views.shape[2], CPU).train()
    optimizer = torch.optim.SGD([p for p in method.parameters() if p.requires_grad], lr=0.06, momentum=0.9)
    generator, unused = torch.Generator().manual_seed(0), torch.empty(0)
    method.diagnosing = False
    views = views.flatten(0, 1).contiguous(memory_format=torch.channels_last).unflatten(0, (2, -1))

    def run() -> None:
        output = method(Batch(views, unused, unused, unused), generator)
        optimizer.zero_grad(set_to_none=True)
        output.loss.backward()
        optimizer.step()
        method.after_step(Progress(1, 1000, 0))

    return run


def update_table(rounds: int) -> str:
    """Measure updates of the bank and return the markdown table."""
    lines = ["| bank update, ten moves, 128 dimensions | M | N | eager, ms | compiled, ms |", "|---|---|---|---|---|"]
    for bank_size, batch_size in ((4096, 256), (1024, 128)):
        for name, sampler in SAMPLERS.items():
            contestants = {
                word: update(sampler, bank_size, batch_size, compiled=word == "compiled")
                for word in ("eager", "compiled")
            }
            found = measure(contestants, 3 if "rbf" in name else rounds)
            times = " | ".join(f"{1000 * statistics.median(found[word]):.0f}" for word in ("eager", "compiled"))
            lines.append(f"| {name} | {bank_size} | {batch_size} | {times} |")
    return "\n".join(lines)


def step_table(title: str, recipe: str, views: torch.Tensor, bank_size: int, rounds: int) -> str:
    """Measure training steps and return the markdown table."""
    contestants = {"simclr": training_step("simclr", recipe, [], views)}
    for label, (name, overrides) in STEPS.items():
        settings = [*overrides, f"method.bank_size={bank_size}"]
        contestants[f"{label}, M = {bank_size}"] = training_step(name, recipe, settings, views)
    found = measure(contestants, rounds)
    peer = statistics.median(found["simclr"])
    lines = [f"| {title} | ms a step, median | fastest to slowest | of SimCLR's time |", "|---|---|---|---|"]
    for label, values in found.items():
        median, spread = statistics.median(values), f"{1000 * min(values):.0f} to {1000 * max(values):.0f}"
        lines.append(f"| {label} | {1000 * median:.0f} | {spread} | {median / peer:.2f}x |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch-size", type=int, default=32, help="images a step of the ResNet-18")
    parser.add_argument("--rounds", type=int, default=7, help="timed rounds of each contestant")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    digits = torch.randn(2, 128, 1, 8, 8, generator=generator)
    pictures = torch.randn(2, arguments.batch_size, 3, 32, 32, generator=generator)
    tables = [
        bank_table(),
        update_table(arguments.rounds),
        step_table("small encoder, 128 images of 1x8x8", "digits-demo", digits, 512, 3 * arguments.rounds),
        step_table(
            f"ResNet-18, {len(pictures[0])} images of 3x32x32", "cifar10-resnet18", pictures, 4096, arguments.rounds
        ),
    ]
    command = f"`python benchmarks/vem_bank.py --batch-size {arguments.batch_size} --rounds {arguments.rounds}`"
    write_page("vem_bank", "VEM's bank, one CPU thread", command, ("torch",), "\n\n".join(tables))


if __name__ == "__main__":
    main()

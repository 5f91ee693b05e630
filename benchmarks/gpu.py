"""What a GPU must show: the CPU's numbers, the speed of every method, and EBCLR's published curve on CIFAR-10.

    python benchmarks/gpu.py check
    python benchmarks/gpu.py throughput --batch-size 128 --variants float32 bfloat16
    python benchmarks/gpu.py curve ebclr --epochs 10 20 50 100 --data-root DIR
    python benchmarks/gpu.py accumulate --batch-size 4096 --parts 1 4 16 64 --steps 2
    python benchmarks/gpu.py share --trials 4                # trials on one GPU, one after the other and at once
    python benchmarks/gpu.py check --device cpu --tiny       # only shows that it runs

Needs no Ray. `check` exits with code 1 when a comparison fails. Timings synchronise the device; views are made there
and count. A method runs with the recipe in `RECIPES`. `curve` reads the test set after each of the epochs named, as the
paper's curve does; nothing is chosen by it. A row is printed as soon as it is known.
"""

from __future__ import annotations

import argparse
import math
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import torch
from gpu_common import BFLOAT16, CAPTURED, COMPILED, CPU, OWN_VARIANTS, VARIANTS, Setting, random_images, timed_rate
from page import write_page

from ebclab.data.preprocessing import preprocessing_for
from ebclab.data.views.pipeline import make_views
from ebclab.training.loop import train_step
from energy_contrast.catalog import METHODS

PACKAGES = ("torch", "torchvision")
ROUNDING = 2.0**-11  # of a number in TF32, which convolutions in float32 are computed in on a GPU
PAPER = {
    10: 66.0,
    100: 77.3,
}  # EBCLR, CIFAR-10, batch 128: linear accuracy in per cent by epoch; the first one from a plot


def numbers_of(method: str, variants: Sequence[str]) -> dict[str, list[str]]:
    """Return the settings of the variants named and of a method's own; compiled ones only if one is named."""
    own = OWN_VARIANTS.get(method, {})
    compiled = any(COMPILED in VARIANTS[name] for name in variants)
    kept = {name: each for name, each in own.items() if compiled or COMPILED not in each}
    return {name: VARIANTS[name] for name in variants} | kept


def check(setting: Setting, methods: Sequence[str], variants: Sequence[str]) -> int:
    """Compare the device with the CPU: views, and steps of methods. Return how many comparisons failed."""
    failures = compare_views(setting)
    for method in methods:
        size = [f"training.batch_size={16 if setting.tiny else 64}"]
        reference = first_losses(setting, method, size, CPU)
        moved = apart(first_losses(setting, method, size, CPU, moved=ROUNDING), reference)
        for name, overrides in numbers_of(method, variants).items():
            if "chain_gradient" in str(overrides) or "kernel" in str(overrides):
                continue  # another algorithm, with other numbers
            what = f"{method}, {name}: first three steps, relative"
            try:
                found = first_losses(setting, method, [*size, *overrides], setting.device)
            except RuntimeError as error:  # the others are still worth knowing
                failures += report(f"{what}: {str(error).splitlines()[0]}", math.nan, 0.0)
                continue
            bound = max(0.05, 8 * moved) if BFLOAT16 in overrides else max(2e-3, moved)
            failures += report(what, apart(found, reference), bound)
    return failures


def apart(losses: Sequence[float], others: Sequence[float]) -> float:
    """Return the largest relative difference of losses."""
    return max(abs(a - b) / max(abs(b), 1e-9) for a, b in zip(losses, others, strict=True))


def compare_views(setting: Setting) -> int:
    """Compare views of random images; return 1 when they differ."""
    images = random_images(256)
    config = setting.config("simclr", [])
    preprocessing = preprocessing_for(config.views, images)
    on_cpu, on_device = (
        make_views(images.images.to(d), images.keys.to(d), config.views, preprocessing, seed=1, epoch=2).cpu()
        for d in (CPU, setting.device)
    )
    return report("views, largest difference", (on_cpu - on_device).abs().max().item(), 1e-3)


def first_losses(
    setting: Setting, method: str, overrides: list[str], device: torch.device, *, moved: float = 0.0
) -> list[float]:
    """Return InfoNCE, or the loss, of the first three steps, from the CPU's weights, memories and draws.

    ``moved``: relative size of noise on the weights; what it changes, rounding alone may change.
    """
    count = 64 if setting.tiny else 2048
    training = setting.prepare(method, overrides, count, device).training
    start = setting.prepare(
        method, [text for text in overrides if text not in (COMPILED, CAPTURED)], count, CPU
    ).training.method
    training.method.load_state_dict(start.state_dict())
    for name, memory in start.memories.items():
        training.method.memories[name].load_state_dict(memory.state_dict())
    noise = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weight in training.method.parameters() if moved else ():
            weight.mul_(1 + moved * torch.randn(weight.shape, generator=noise).to(device))
    training.generator = torch.Generator().manual_seed(0)  # methods draw where their generator is
    steps = [train_step(training) for _ in range(3)]
    return [step.get("info_nce", step["loss"]).item() for step in steps]


def report(what: str, value: float, bound: float) -> int:
    """Print one comparison and return 1 when it fails, as one without a number does."""
    good = value <= bound
    print(f"{'ok  ' if good else 'FAIL'} {what}: {value:.2e} (bound {bound:.0e})", flush=True)
    return int(not good)


def throughput(setting: Setting, batch_size: int, steps: int, methods: list[str], variants: Sequence[str]) -> str:
    """Return the table of images per second, step time beside SimCLR's and peak memory, of methods and variants."""
    lines = [
        "| method | numbers | img/s, median | range | step, of SimCLR's | GiB at most |",
        "|---|---|---|---|---|---|",
    ]
    simclr: dict[str, float] = {}
    for method in methods:
        for name, overrides in numbers_of(method, variants).items():
            setting.restart_peak_memory()
            torch.compiler.reset()
            size = [f"training.batch_size={batch_size}"]
            try:
                count = 4 * batch_size if setting.tiny else 20_000
                training = setting.prepare(method, [*size, *overrides], count).training
                rates = [timed_rate(setting, training, batch_size, steps) for _ in range(6)][1:]  # the first warms up
            except RuntimeError as error:  # the others are still worth knowing
                lines.append(f"| {method} | {name} | {str(error).splitlines()[0]} | | | |")
                print(lines[-1], flush=True)
                continue
            rate = statistics.median(rates)
            beside = simclr.setdefault(name, rate) if name in VARIANTS else simclr.get(name.split(";")[0])
            cells = [
                method,
                name,
                f"{rate:,.0f}",
                f"{min(rates):,.0f} to {max(rates):,.0f}",
                f"{beside / rate:.2f}x" if beside else "",
            ]
            lines.append(f"| {' | '.join(cells)} | {setting.peak_memory():.1f} |")
            print(lines[-1], flush=True)
    return "\n".join(lines)


def accumulate(setting: Setting, batch_size: int, steps: int, parts: Sequence[int]) -> str:
    """Return the table of speed and peak memory of SimCLR by the number of parts of its batch."""
    lines = ["| parts | images each | img/s, median | range | GiB at most |", "|---|---|---|---|---|"]
    for count in parts:
        setting.restart_peak_memory()
        size = [f"training.batch_size={batch_size}", f"training.accumulate={count}", BFLOAT16]
        training = setting.prepare("simclr", size, 2 * batch_size).training
        rates = [timed_rate(setting, training, batch_size, steps) for _ in range(4)][1:]
        speed = f"{statistics.median(rates):,.0f} | {min(rates):,.0f} to {max(rates):,.0f}"
        lines.append(f"| {count} | {batch_size // count:,} | {speed} | {setting.peak_memory():.1f} |")
        print(lines[-1], flush=True)
    return "\n".join(lines)


def curve(setting: Setting, asked: argparse.Namespace) -> str:
    """Pretrain on CIFAR-10, stop at each of the epochs asked for, and return the table of test scores."""
    from ebclab.runs.evaluate import evaluate_run
    from ebclab.training.pretrain import pretrain

    small = ["data.train_limit=200", "training.batch_size=16", "evaluation.knn_bank_limit=100"] if setting.tiny else []
    common = [*small, f"data.root={asked.data_root}", f"resources.device={setting.device.type}", *asked.set]
    lines = ["| epoch | seconds, all | img/s | test kNN % | test linear % | the paper's |", "|---|---|---|---|---|---|"]
    first, *later = sorted(asked.epochs)
    config = setting.config(asked.method, [*common, f"training.epochs={first}"], asked.recipe)
    for epochs in (first, *later):
        extend = epochs if epochs > first else None
        run = pretrain(config, runs=asked.runs, name=f"gpu-{asked.method}", extend=extend)
        only = ["knn"] if setting.tiny else ["knn", "linear"]
        scores = evaluate_run(run.path, only=only).rows[asked.method]
        values = [f"{100 * scores[name].value:.2f}" if name in scores else "" for name in ("knn", "linear")]
        paper = f"{PAPER[epochs]}" if asked.method == "ebclr" and epochs in PAPER else ""
        speed = run.result["images_per_second"] or {"mean": float("nan")}
        cells = [str(epochs), f"{run.result['seconds']:.0f}", f"{speed['mean']:,.0f}", *values, paper]
        lines.append(f"| {' | '.join(cells)} |")
        print(lines[-1], flush=True)
    return "\n".join(lines)


def trial(setting: Setting, batch_size: int, steps: int) -> float:
    """Return img/s of a trial, alone in its process."""
    training = setting.prepare("simclr", [f"training.batch_size={batch_size}"], 8 * batch_size).training
    timed_rate(setting, training, batch_size, 1)
    return timed_rate(setting, training, batch_size, steps)


def share(asked: argparse.Namespace) -> str:
    """Return the table of trials that have the GPU one after the other, and at once; starts of processes count."""
    command = [sys.executable, __file__, "trial", "--device", asked.device, "--steps", str(asked.steps)]
    command += ["--batch-size", str(asked.batch_size), *(["--tiny"] if asked.tiny else [])]
    lines = ["| trials | seconds | img/s of each |", "|---|---|---|"]
    for title, together in (("one after the other", 1), ("at once", asked.trials)):
        start, rates = time.perf_counter(), []
        for _ in range(0, asked.trials, together):
            running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(together)]
            rates += [each.communicate()[0].strip() for each in running]
            if any(each.returncode for each in running):
                raise SystemExit("error: a trial failed")
        lines.append(f"| {asked.trials}, {title} | {time.perf_counter() - start:.1f} | {', '.join(rates)} |")
        print(lines[-1], flush=True)
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["check", "throughput", "accumulate", "curve", "share", "trial"])
    parser.add_argument("method", nargs="?", default="ebclr", choices=[*METHODS], help="of curve")
    parser.add_argument("--trials", type=int, default=4, help="of share")
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--tiny", action="store_true", help="small networks and memories; no page is written")
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--parts", type=int, nargs="+", default=[1, 4, 16, 64], help="of accumulate")
    parser.add_argument("--steps", type=int, default=20, help="steps of one timed interval")
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(METHODS), help="not of curve")
    parser.add_argument("--variants", nargs="+", default=list(VARIANTS), choices=list(VARIANTS), help="not of curve")
    parser.add_argument("--recipe", default="", help="of curve; empty: the method's own")
    parser.add_argument("--epochs", type=int, nargs="+", default=[10])
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="of curve")
    parser.add_argument("--data-root", default="data")
    parser.add_argument("--runs", type=Path, default=Path("runs"))
    asked = parser.parse_args()
    if asked.device == "cuda" and not torch.cuda.is_available():
        print("error: no CUDA GPU is visible to torch here", file=sys.stderr)
        return 2
    setting = Setting(torch.device(asked.device), asked.tiny)
    if asked.what == "trial":
        print(f"{trial(setting, asked.batch_size, asked.steps):.1f}")
        return 0
    if asked.what == "check":
        return min(check(setting, asked.methods, asked.variants), 1)
    if asked.what == "throughput":
        methods = ["simclr", *(name for name in asked.methods if name != "simclr")]
        table, page = throughput(setting, asked.batch_size, asked.steps, methods, asked.variants), "gpu_throughput"
        title = "ResNet-18 on CIFAR-sized images, views included"
    elif asked.what == "accumulate":
        table, page = accumulate(setting, asked.batch_size, asked.steps, asked.parts), "gpu_accumulate"
        title = f"SimCLR, ResNet-18, batch size {asked.batch_size:,} in parts, bfloat16"
    elif asked.what == "share":
        table, page, title = share(asked), "gpu_share", "SimCLR trials on one GPU"
    else:
        table, page = curve(setting, asked), f"gpu_curve_{asked.method}"
        title = f"CIFAR-10 by epoch: {asked.method}"
    if not asked.tiny:
        command = f"`python benchmarks/gpu.py {' '.join(sys.argv[1:])}` on one {setting.name}"
        write_page(page, title, command, PACKAGES, table)
    return 0


if __name__ == "__main__":
    sys.exit(main())

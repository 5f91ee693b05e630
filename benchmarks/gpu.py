"""What a GPU must show: the same numbers as the CPU, throughput of every method, and a CIFAR-10 curve.

    python benchmarks/gpu.py check
    python benchmarks/gpu.py throughput --batch-size 512
    python benchmarks/gpu.py curve simclr --epochs 20 --data-root DIR

Needs torch, the packages that settings, data and evaluation import, and no Ray. ``check`` exits with code 1 when a
comparison fails. Timings synchronise the device; views are made on it and count.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from dataclasses import replace
from pathlib import Path

import torch
from page import write_page

from ebclab.config import ExperimentConfig, compose
from ebclab.data.image_set import ImageSet, channel_statistics
from ebclab.data.preprocessing import preprocessing_for
from ebclab.data.views import make_views
from ebclab.training.loop import train_step
from ebclab.training.prepare import prepare
from energy_contrast.catalog import METHODS

PACKAGES = ("torch", "torchvision")
VARIANTS = {
    "float32": ["training.precision=float32"],
    "bfloat16": ["training.precision=bfloat16"],
    "bfloat16, compiled": ["training.precision=bfloat16", "training.compile=true"],
}


def random_images(count: int) -> ImageSet:
    """Return CIFAR-shaped noise: throughput and agreement do not depend on what the pixels show."""
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (count, 3, 32, 32), dtype=torch.uint8, generator=generator)
    labels = torch.randint(0, 10, (count,), generator=generator)
    mean, std = channel_statistics(images)
    names = tuple(str(number) for number in range(10))
    return ImageSet("noise", images, labels, torch.arange(count), names, mean, std)


def settings(method: str, overrides: list[str]) -> ExperimentConfig:
    """Return the CIFAR-10 recipe of ``method`` without anything that needs labels or files."""
    return compose(method, recipe="cifar10-resnet18", overrides=["evaluation.knn_every=0", *overrides])


def check() -> int:
    """Compare GPU with CPU: views, a float32 step and a bfloat16 step. Return how many comparisons failed."""
    failures = 0
    images = random_images(2048)
    config = settings("simclr", ["training.batch_size=64"])
    preprocessing = preprocessing_for(config.views, images)
    keys = images.keys[:256]
    on_cpu, on_gpu = (
        make_views(images.images[:256].to(d), keys.to(d), config.views, preprocessing, seed=1, epoch=2).cpu()
        for d in ("cpu", "cuda")
    )
    failures += report("views, largest difference", (on_cpu - on_gpu).abs().max().item(), 1e-3)
    for method in METHODS:
        exact, approximate = ["training.batch_size=64"], ["training.batch_size=64", "training.precision=bfloat16"]
        reference = first_losses(method, exact, torch.device("cpu"))
        for name, overrides, bound in (("float32", exact, 1e-3), ("bfloat16", approximate, 0.05)):
            found = first_losses(method, overrides, torch.device("cuda"))
            worst = max(abs(a - b) / max(abs(b), 1e-9) for a, b in zip(found, reference, strict=True))
            failures += report(f"{method}, {name}, info_nce of three steps, relative", worst, bound)
    return failures


def first_losses(method: str, overrides: list[str], device: torch.device) -> list[float]:
    """Return InfoNCE of the first three steps on ``device``."""
    training = prepare(settings(method, overrides), device, random_images(2048), METHODS[method]).training
    return [train_step(training)["info_nce"].item() for _ in range(3)]


def report(what: str, value: float, bound: float) -> int:
    """Print one comparison and return 1 when it fails."""
    print(f"{'ok  ' if value <= bound else 'FAIL'} {what}: {value:.2e} (bound {bound:.0e})", flush=True)
    return int(value > bound)


def throughput(batch_size: int, steps: int) -> str:
    """Return the table of images per second and peak memory of every method and precision."""
    lines = ["| method | precision | img/s, median | spread | GiB at most |", "|---|---|---|---|---|"]
    for method in METHODS:
        for name, overrides in VARIANTS.items():
            config = settings(method, [f"training.batch_size={batch_size}", *overrides])
            config = replace(config, resources=replace(config.resources, deterministic=False))
            torch.cuda.reset_peak_memory_stats()
            training = prepare(config, torch.device("cuda"), random_images(20_000), METHODS[method]).training
            rates = [timed_rate(training, batch_size, steps) for _ in range(6)][1:]  # the first one warms up
            memory = torch.cuda.max_memory_allocated() / 2**30
            spread = f"{min(rates):,.0f} to {max(rates):,.0f}"
            lines.append(f"| {method} | {name} | {statistics.median(rates):,.0f} | {spread} | {memory:.1f} |")
            print(lines[-1], flush=True)
    return "\n".join(lines)


def timed_rate(training: object, batch_size: int, steps: int) -> float:
    """Return images per second over ``steps`` steps, views included."""
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(steps):
        train_step(training)  # type: ignore[arg-type]
    torch.cuda.synchronize()
    return batch_size * steps / (time.perf_counter() - start)


def curve(method: str, epochs: int, data_root: str, runs: Path) -> str:
    """Pretrain on CIFAR-10 and return the table of held-out kNN by epoch, with the test scores below."""
    from ebclab.training.evaluate_run import evaluate_run
    from ebclab.training.pretrain import pretrain
    from ebclab.training.run_folder import RunFolder

    overrides = [f"data.root={data_root}", f"training.epochs={epochs}", "training.precision=bfloat16"]
    run = pretrain(compose(method, recipe="cifar10-resnet18", overrides=overrides), runs=runs, name=f"gpu-{method}")
    records = [r for r in RunFolder(run.path).metrics.records() if r["kind"] == "epoch"]
    lines = ["| epoch | seconds | held-out kNN |", "|---|---|---|"]
    lines += [f"| {r['epoch']} | {r['seconds']:.0f} | {100 * r['holdout_knn']:.1f} % |" for r in records]
    scores = evaluate_run(run.path).rows[method]
    lines += [
        "",
        *(f"Test set, {name}: {100 * s.value:.2f} % [{s.low:.4f}, {s.high:.4f}]" for name, s in scores.items()),
    ]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["check", "throughput", "curve"])
    parser.add_argument("method", nargs="?", default="simclr", choices=list(METHODS))
    parser.add_argument("--batch-size", type=int, default=512)
    parser.add_argument("--steps", type=int, default=20, help="steps of one timed interval")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--data-root", default="data")
    parser.add_argument("--runs", type=Path, default=Path("runs"))
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        print("error: no CUDA GPU is visible to torch here", file=sys.stderr)
        return 2
    if arguments.what == "check":
        return min(check(), 1)
    device = torch.cuda.get_device_name()
    if arguments.what == "throughput":
        table = throughput(arguments.batch_size, arguments.steps)
        command = f"`python benchmarks/gpu.py throughput --batch-size {arguments.batch_size}` on one {device}"
        write_page("gpu_throughput", "ResNet-18 on CIFAR-sized images, views included", command, PACKAGES, table)
    else:
        table = curve(arguments.method, arguments.epochs, arguments.data_root, arguments.runs)
        command = f"`python benchmarks/gpu.py curve {arguments.method} --epochs {arguments.epochs}` on one {device}"
        title = f"CIFAR-10 by epoch: {arguments.method}"
        write_page(f"gpu_curve_{arguments.method}", title, command, PACKAGES, table)
    return 0


if __name__ == "__main__":
    sys.exit(main())

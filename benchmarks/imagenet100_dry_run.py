"""The recipe for ImageNet-100 on a made-up set of its layout: streamed to two workers, killed, resumed, the same bits.

    python benchmarks/imagenet100_dry_run.py

A hundred classes of two noisy photographs each lie in the published folders. Every encoder trains twice with the
recipe's settings but for size: images of 40 pixels, views of 32 in place of 224, which would take a processor hours,
few keys, two epochs, float32. The second time, a worker is killed within the second epoch. Both runs must end with the
same weights.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import signal
import tempfile
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from page import write_page
from PIL import Image
from safetensors.torch import load_file

import ebclab
from ebclab.data.sources.layouts import classes_of_imagenet100
from ebclab.training.display import Listener
from energy_contrast.contrastive.moco import Moco
from energy_contrast.method import Method, Progress

ENCODERS = ("resnet18", "resnet50", "timm/vit_small_patch16_224")
SMALL = [
    *("data.resize=40", "views.image_size=32", "views.blur_kernel_size=3", "training.precision=float32"),
    *("training.batch_size=40", "training.epochs=2", "method.queue_size=80", "evaluation.knn_every=0"),
    *("data.delivery=stream", "resources.workers=2", "resources.threads=1", "optimizer.warmup_epochs=1"),
]
PER_CLASS = 2
KILL_AFTER = 6  # of four or five steps an epoch


class Outcome(NamedTuple):
    """What came of one encoder."""

    encoder: str
    steps: int
    resumed_at: int
    equal: bool


def write_set(root: Path) -> None:
    """Write training and validation images of a hundred classes in the published layout."""
    random = np.random.default_rng(0)
    for wnid in classes_of_imagenet100():
        colour = random.integers(0, 256, 3)
        files = [f"train/{wnid}/{wnid}_{number}.JPEG" for number in range(PER_CLASS)]
        for file in [*files, f"val/{wnid}/ILSVRC2012_val_{wnid[1:]}.JPEG"]:
            height, width = random.integers(80, 120, 2)
            pixels = np.clip(colour + random.normal(0, 40, (height, width, 3)), 0, 255).astype(np.uint8)
            buffer = io.BytesIO()
            Image.fromarray(pixels).save(buffer, "JPEG")
            (root / file).parent.mkdir(parents=True, exist_ok=True)
            (root / file).write_bytes(buffer.getvalue())


def mortal(marker: Path) -> type[Method]:
    """Return MoCo whose second worker dies once, after a step within the second epoch."""

    class MortalMoco(Moco):
        def after_step(self, progress: Progress) -> None:
            super().after_step(progress)
            if progress.step == KILL_AFTER and torch.distributed.get_rank() == 1 and not marker.exists():
                marker.touch()
                os.kill(os.getpid(), signal.SIGKILL)

    return MortalMoco


def train_twice(encoder: str, data: Path, runs: Path) -> Outcome:
    """Train with and without a death, and compare the last weights."""
    own = [f"encoder.name={encoder}", f"data.name=imagenet100:{data}"]
    if encoder.startswith("timm/"):
        own.append("encoder.stem=cifar")  # timm's networks have their own first layers
    config = ebclab.compose("moco", "imagenet100-resnet18", overrides=[*own, *SMALL])
    short, weights, steps = encoder.split("/")[-1], [], 0
    for name, method in ((f"{short}-undisturbed", Moco), (f"{short}-killed", mortal(runs / f"{short}.killed"))):
        done = ebclab.pretrain(config, runs=runs, name=name, method=method, display=Listener())
        weights.append(load_file(sorted((done.path / "checkpoints").glob("last-*"))[-1] / "model.safetensors"))
        steps = done.result["steps"]
    log = (runs / f"{short}-killed" / "metrics.jsonl").read_text(encoding="utf-8")
    (resumed,) = [record for record in map(json.loads, log.splitlines()) if record.get("event") == "resumed"]
    equal = weights[0].keys() == weights[1].keys() and all(
        torch.equal(value, weights[1][name]) for name, value in weights[0].items()
    )
    return Outcome(encoder, steps, resumed["step"], equal)


def table_of(outcomes: list[Outcome]) -> str:
    """Return the outcomes as a markdown table."""
    lines = ["| encoder | steps | killed after | went on after | same weights to the bit |", "|---|---|---|---|---|"]
    for each in outcomes:
        told = "yes" if each.equal else "**no**"
        lines.append(f"| {each.encoder} | {each.steps} | {KILL_AFTER} | {each.resumed_at} | {told} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--encoder", choices=ENCODERS, action="append", help="only these")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        write_set(Path(folder, "set"))
        encoders = asked.encoder or ENCODERS
        outcomes = [train_twice(encoder, Path(folder, "set"), Path(folder, "runs")) for encoder in encoders]
    write_page(
        "imagenet100_dry_run",
        "The recipe for ImageNet-100 on a made-up set",
        "`python benchmarks/imagenet100_dry_run.py`",
        ("ebclab", "torch", "ray", "timm"),
        table_of(outcomes),
    )


if __name__ == "__main__":
    main()

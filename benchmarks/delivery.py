"""Images per second that reach a training loop with two views each, on two cores.

    python benchmarks/delivery.py --data-root PATH

Contestants, in turn, round after round in one process, on the same images with the same view recipe: resident delivery,
a stream with views made in the worker, a stream with views made in Ray Data's tasks, and torch's DataLoader with
lightly's transform in two processes (left out where lightly is not installed). A round is one epoch, or what fits into
``--seconds``, after an epoch of warm-up in which processes start. The consumer only counts.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import platform
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

import torch

from ebclab.config import ExperimentConfig, compose
from ebclab.config.sections import USUAL_VIEWS
from ebclab.data.delivery.resident import ResidentData
from ebclab.data.image_set import ImageSet
from ebclab.data.preparing.write_parquet import prepare_dataset
from ebclab.data.preprocessing import preprocessing_for
from ebclab.data.sources.load import load_split
from ebclab.data.views.pipeline import ViewSettings

RESULTS = Path(__file__).parent / "results" / "delivery.md"
NOTES = "## Notes"  # this heading and what follows it is kept when the table is written anew
BATCH = 256
CORES = 2

Epoch = Callable[[], Iterator[int]]  # one epoch; yields the images of each batch


def resident(config: ExperimentConfig, images: ImageSet) -> Epoch:
    settings = ViewSettings(config.views, preprocessing_for(config.views, images), 0, BATCH)
    return in_epochs(ResidentData(images, settings))


def streamed(config: ExperimentConfig, views_on: str, folder: Path) -> Epoch:
    from ebclab.data.delivery.ray_data.driver import plan_stream
    from ebclab.data.delivery.ray_data.pipeline import build_dataset
    from ebclab.data.delivery.ray_data.worker import StreamedData

    overrides = [f"data.name=parquet:{folder}", f"data.views_on={views_on}", "data.holdout_rate=0.0"]
    overrides += [f"views.recipe={config.views.recipe}", "evaluation.knn_bank_limit=1"]
    stream = plan_stream(compose("simclr", overrides=overrides), num_views=2)
    (shard,) = build_dataset(stream.plan, first_epoch=0).streaming_split(1, equal=True)
    return in_epochs(StreamedData(shard, stream.plan.settings, num_images=len(stream.plan.train)))


def in_epochs(data: Any) -> Epoch:
    epochs = iter(range(1 << 30))

    def run() -> Iterator[int]:
        epoch = next(epochs)
        for position in range(data.num_batches):
            yield data.batch(epoch, position).views.shape[1]

    return run


class LightlyViews(torch.utils.data.Dataset[list[torch.Tensor]]):
    """The images with lightly's SimCLR transform, set to the recipe's numbers."""

    def __init__(self, config: ExperimentConfig, images: ImageSet) -> None:
        from lightly.transforms import SimCLRTransform
        from torchvision.transforms.v2.functional import to_pil_image

        v = config.views
        self.pictures = [to_pil_image(image) for image in images.images]
        self.transform = SimCLRTransform(
            input_size=images.images.shape[-1],
            cj_prob=v.jitter_rate,
            cj_strength=1.0,
            cj_bright=v.brightness,
            cj_contrast=v.contrast,
            cj_sat=v.saturation,
            cj_hue=v.hue,
            min_scale=v.crop_scale_min,
            random_gray_scale=v.grayscale_rate,
            gaussian_blur=0.0,
            hf_prob=v.flip_rate,
            normalize={"mean": list(images.mean), "std": list(images.std)},
        )

    def __len__(self) -> int:
        return len(self.pictures)

    def __getitem__(self, row: int) -> list[torch.Tensor]:
        return list(self.transform(self.pictures[row]))


def lightly(config: ExperimentConfig, images: ImageSet) -> Epoch:
    loader = torch.utils.data.DataLoader(
        LightlyViews(config, images.rows(torch.arange(min(len(images), 10_000)))),
        batch_size=BATCH,
        shuffle=True,
        drop_last=True,
        num_workers=CORES,
        persistent_workers=True,
        multiprocessing_context="fork",
    )
    next(iter(loader))  # its processes start here, before Ray has threads that a fork would break
    return lambda: (batch[0].shape[0] for batch in loader)


class Pace(NamedTuple):
    """How fast an epoch is delivered."""

    rate: float  # images per second, the first batch included
    first: float  # seconds until the first batch


def pace(epoch: Epoch, seconds: float) -> Pace:
    """Return the pace of one epoch, cut off after ``seconds``."""
    start, count, first = time.perf_counter(), 0, 0.0
    batches = epoch()
    for images in batches:
        first = first or time.perf_counter() - start
        count += images
        if time.perf_counter() - start > seconds:
            break
    elapsed = time.perf_counter() - start
    for _ in batches:  # a stream ends its epoch before the next begins
        pass
    return Pace(count / elapsed, first)


def measure(contestants: dict[str, Epoch], rounds: int, seconds: float) -> dict[str, list[Pace]]:
    """Return the pace of each contestant in each round, after one round in which processes start."""
    paces: dict[str, list[Pace]] = {name: [] for name in contestants}
    for number in range(-1, rounds):
        for name, epoch in contestants.items():
            found = pace(epoch, seconds)
            if number >= 0:
                paces[name].append(found)
    return paces


def table(paces: dict[str, list[Pace]]) -> str:
    """Return the markdown table."""
    lines = ["| contestant | img/s, median | slowest to fastest round | first batch after, s |", "|---|---|---|---|"]
    for name, found in paces.items():
        rates, firsts = [each.rate for each in found], [each.first for each in found]
        ends = f"{min(rates):,.0f} to {max(rates):,.0f}"
        lines.append(f"| {name} | {statistics.median(rates):,.0f} | {ends} | {statistics.median(firsts):.2f} |")
    return "\n".join(lines)


def circumstances(arguments: argparse.Namespace) -> str:
    """Return command, date, machine and versions as a markdown list."""
    found = {distribution.metadata["Name"] for distribution in importlib.metadata.distributions()}
    packages = [name for name in ("torch", "ray", "pyarrow", "lightly") if name in found]
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in packages)
    options = f"--dataset {arguments.dataset} --rounds {arguments.rounds}"
    options += "" if arguments.images is None else f" --images {arguments.images}"
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=RESULTS.parent, capture_output=True, text=True, check=False
    ).stdout.strip()
    return "\n".join(
        [
            f"- command: `python benchmarks/delivery.py {options}`",
            f"- {CORES} cores, one torch thread a process, batches of {BATCH}, two views an image, CPU",
            f"- date: {date.today()}; commit: {commit or 'none'}",
            f"- versions: Python {platform.python_version()}, {versions}",
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", default="fashion-mnist")
    parser.add_argument("--data-root", default=None)
    parser.add_argument("--images", type=int, help="the first so many alone")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=10.0)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    config = compose("simclr", overrides=[f"views.recipe={USUAL_VIEWS[arguments.dataset]}"])
    images = load_split(arguments.dataset, arguments.data_root, "train")
    images = images.rows(torch.arange(min(arguments.images or len(images), len(images))))
    contestants = {"resident": resident(config, images)}
    try:
        contestants["torch DataLoader with lightly's transform, 2 processes"] = lightly(config, images)
    except ImportError as error:
        print(f"left out: lightly ({error})")
    with tempfile.TemporaryDirectory() as place:
        import ray

        folder = Path(place) / "set"
        prepare_dataset({"train": images}, folder, progress=lambda line: None)
        ray.init("local", num_cpus=CORES, include_dashboard=False, log_to_driver=False)
        contestants["streamed, views in the worker"] = streamed(config, "worker", folder)
        contestants["streamed, views in the pipeline"] = streamed(config, "pipeline", folder)
        paces = measure(contestants, arguments.rounds, arguments.seconds)
        ray.shutdown()
    part = "" if arguments.images is None else ", the first images"
    heading = f"## {arguments.dataset}{part}: {len(images):,} images of {'x'.join(map(str, images.images.shape[1:]))}"
    section = f"{heading}\n\n{circumstances(arguments)}\n\n{table(paces)}\n"
    print(section)
    write(section, heading)


def write(section: str, heading: str) -> None:
    """Put the section of one dataset into the page, in place of the one before."""
    page = RESULTS.read_text() if RESULTS.exists() else "# Images per second that reach a training loop\n\n"
    parts = page.split("\n## ")
    kept = [part for part in parts[1:] if f"## {part}".split(":")[0] != heading.split(":")[0]]
    notes = [part for part in kept if f"## {part}".startswith(NOTES)]
    others = [part for part in kept if part not in notes]
    RESULTS.parent.mkdir(exist_ok=True)
    sections = [section.removeprefix("## "), *others, *notes]
    RESULTS.write_text("\n## ".join([parts[0].rstrip() + "\n", *(part.strip() + "\n" for part in sections)]))


if __name__ == "__main__":
    main()

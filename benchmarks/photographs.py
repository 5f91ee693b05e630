"""Images a second from photographs on a disk to batches of two float views, on this machine's processors.

    python benchmarks/photographs.py --data-root PATH

Makes 2,000 JPEG files of 320 to 800 pixels a side (photographs_set.py), and lets everyone read a part of them in
epochs of batches of 64: decode, crop, flip, jitter, gray, blur, normalise, with the numbers of the recipe
simclr-imagenet. Each contestant has a process of its own and two cores; Ray's share them. What counts is processor
seconds an image, of the process with all its children, since the clock depends on who else uses the machine. The first
epoch is not counted.

Ours scale the central square to 8/7 of the view first (``data.resize``), as a run on a folder must; the others cut
views out of the whole photograph. lightly blurs by three box filters of Pillow, on bytes; the others by the Gaussian.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import torch
from delivery import Epoch, in_epochs
from page import write_page
from photographs_set import make_photographs

from ebclab.cli import main as ebclab
from ebclab.config import ExperimentConfig, compose

BATCH, CORES, MEAN, STD = 64, 2, [0.5] * 3, [0.25] * 3
PLACE = "EBCLAB_PHOTOGRAPHS"  # variable by which processes of contestants find the photographs
STORE = "EBCLAB_PHOTOGRAPHS_STORE"  # and by which they find the server of S3's protocol, host and port
BUCKET = "photographs"
SECONDS = 600  # that a contestant has
NEVER = {"processors": [float("inf")]}
SLOW = 128  # images of an epoch of contestants that need 50 ms and more an image


def settings(name: str, size: int, images: int, *more: str) -> ExperimentConfig:
    blur = f"views.blur_kernel_size={size // 10 | 1}"
    overrides = [f"data.name={name}", "views.recipe=simclr-imagenet", f"views.image_size={size}", blur]
    overrides += [f"data.train_limit={images}", "data.holdout_rate=0.0", "evaluation.knn_bank_limit=1"]
    overrides += [f"training.batch_size={BATCH}", *more]
    return compose("simclr", overrides=overrides)


def ours(kind: str, views_on: str, size: int, images: int) -> Epoch:
    """Return our stream from the folder, decoded in full or reduced, or from a prepared set."""
    import ray

    from ebclab.data.delivery.ray_data.driver import plan_stream
    from ebclab.data.delivery.ray_data.pipeline import build_dataset
    from ebclab.data.delivery.ray_data.worker import StreamedData

    place, on = Path(os.environ[PLACE]), f"data.views_on={views_on}"
    if kind in ("full", "reduced"):
        resize = [f"data.resize={side_of(size)}", f"data.decoding={kind}"]
        config = settings(f"folder:{place}/photographs", size, images, on, *resize)
    elif kind == "store":
        address = f"s3://{BUCKET}/jpeg?endpoint_override={os.environ[STORE]}&scheme=http"
        config = settings(f"parquet:{address}", size, images, on)
    else:
        config = settings(f"parquet:{place}/{kind}", size, images, on)
    ray.init("local", num_cpus=CORES, include_dashboard=False, log_to_driver=False)
    plan = plan_stream(config, num_views=2).plan
    (shard,) = build_dataset(plan, first_epoch=0).streaming_split(1, equal=True)
    data = StreamedData(shard, plan.settings, num_images=len(plan.train))
    return in_epochs(data)


def alone(kind: str, size: int, images: int) -> Epoch:
    """Return what a stream's task and its worker do with a block, one after the other in this process, without Ray."""
    from ebclab.data.photograph import Reading
    from ebclab.data.preprocessing import Preprocessing
    from ebclab.data.sources.image_source import read_rows
    from ebclab.data.sources.load import open_source
    from ebclab.data.views.pipeline import make_views

    place = Path(os.environ[PLACE])
    resize = [f"data.resize={side_of(size)}", f"data.decoding={kind}"]
    name = f"parquet:{place}/{kind}" if kind in ("pixels", "jpeg") else f"folder:{place}/photographs"
    config = settings(name, size, images, *(resize if kind in ("full", "reduced") else []))
    source = open_source(name, "train", Reading.of(config.data))
    index, preprocessing = source.index.at(torch.arange(images)), Preprocessing(size, tuple(MEAN), tuple(STD))
    epochs = iter(range(1 << 30))

    def run() -> Iterator[int]:
        epoch, pixels = next(epochs), read_rows(source, index).images
        for rows in torch.arange(images).split(BATCH):
            keys = index.keys[rows]
            views = make_views(pixels[rows], keys, config.views, preprocessing, seed=0, epoch=epoch, num_views=2)
            yield views.shape[1]

    return run


def side_of(size: int) -> int:
    """Return the side to which photographs are scaled for views of ``size`` pixels."""
    return size * 8 // 7


def torchvision_views(size: int) -> Callable[[Any], Any]:
    from torchvision.transforms import v2

    return v2.Compose(
        [
            v2.RandomResizedCrop(size, scale=(0.08, 1.0), antialias=True),
            v2.RandomHorizontalFlip(),
            v2.RandomApply([v2.ColorJitter(0.8, 0.8, 0.8, 0.2)], p=0.8),
            v2.RandomGrayscale(0.2),
            v2.RandomApply([v2.GaussianBlur(size // 10 | 1, (0.1, 2.0))], p=0.5),
            v2.ToImage(),
            v2.ToDtype(torch.float32, scale=True),
            v2.Normalize(MEAN, STD),
        ]
    )


def twice(view: Callable[[Any], Any], picture: Any) -> list[Any]:
    return [view(picture), view(picture)]


def lightly_views(size: int) -> Callable[[Any], Any]:
    from lightly.transforms import SimCLRTransform

    jitter = {"cj_bright": 0.8, "cj_contrast": 0.8, "cj_sat": 0.8, "cj_hue": 0.2, "cj_strength": 1.0}
    normalize = {"mean": MEAN, "std": STD}
    transform: Callable[[Any], Any] = SimCLRTransform(input_size=size, **jitter, normalize=normalize)
    return transform


def loader(views: Callable[[Any], Any], images: int, processes: int = CORES) -> Epoch:
    """Return torchvision's ImageFolder in torch's DataLoader."""
    from torchvision.datasets import ImageFolder

    folder = ImageFolder(f"{os.environ[PLACE]}/photographs", transform=views)
    chosen = torch.randperm(len(folder), generator=torch.Generator().manual_seed(0))[:images].tolist()
    batches = torch.utils.data.DataLoader(
        torch.utils.data.Subset(folder, chosen),
        batch_size=BATCH,
        shuffle=True,
        drop_last=True,
        num_workers=processes,
        persistent_workers=processes > 0,
    )
    return lambda: (views[0].shape[0] for views, _ in batches)


def ray_read_images(size: int, images: int, *, from_store: bool = False) -> Epoch:
    """Return Ray Data's own reader of images with torchvision's views made in its tasks."""
    import ray
    from pyarrow.fs import LocalFileSystem, S3FileSystem

    ray.init("local", num_cpus=CORES, include_dashboard=False, log_to_driver=False)
    ray.data.DataContext.get_current().enable_progress_bars = False
    root = Path(os.environ[PLACE])
    paths = sorted(map(str, (root / "photographs").rglob("*.jpg")))
    filesystem = LocalFileSystem()
    if from_store:
        paths = [f"{BUCKET}/{Path(path).relative_to(root)}" for path in paths]
        filesystem = S3FileSystem(endpoint_override=os.environ[STORE], scheme="http")
    chosen = torch.randperm(len(paths), generator=torch.Generator().manual_seed(0))[:images].tolist()
    side = (side_of(size), side_of(size))
    data = ray.data.read_images([paths[row] for row in chosen], size=side, mode="RGB", filesystem=filesystem)
    dataset = data.map_batches(partial(_ray_views, size), batch_size=BATCH)

    def run() -> Iterator[int]:
        for batch in dataset.iter_torch_batches(batch_size=BATCH, drop_last=True):
            yield len(batch["first"])

    return run


def _ray_views(size: int, batch: dict[str, Any]) -> dict[str, Any]:
    torch.set_num_threads(1)
    view = torchvision_views(size)
    pictures = [torch.from_numpy(image.copy()).permute(2, 0, 1) for image in batch["image"]]
    return {name: torch.stack([view(each) for each in pictures]).numpy() for name in ("first", "second")}


CONTESTANTS: dict[str, Callable[[int, int], Epoch]] = {
    "ebclab, prepared, pixels": partial(ours, "pixels", "worker"),
    "ImageFolder, DataLoader, lightly's SimCLRTransform": lambda size, images: loader(lightly_views(size), images),
    "ebclab, folder": partial(ours, "full", "worker"),
    "ImageFolder, DataLoader, torchvision.transforms.v2": lambda size, images: loader(
        partial(twice, torchvision_views(size)), min(images, SLOW)
    ),
    "Ray Data read_images, torchvision.transforms.v2": lambda size, images: ray_read_images(size, min(images, SLOW)),
    "ebclab, folder, data.decoding=reduced": partial(ours, "reduced", "worker"),
    "ebclab, prepared, pixels, views in Ray's tasks": partial(ours, "pixels", "pipeline"),
    "ebclab, prepared, JPEG": partial(ours, "jpeg", "worker"),
    "ebclab, prepared, JPEG, from S3": partial(ours, "store", "worker"),
    "Ray Data read_images from S3, torchvision.transforms.v2": lambda size, images: ray_read_images(
        size, min(images, SLOW), from_store=True
    ),
}


ALONE: dict[str, Callable[[int, int], Epoch]] = {
    "ebclab, folder": partial(alone, "full"),
    "ebclab, folder, data.decoding=reduced": partial(alone, "reduced"),
    "ebclab, prepared, pixels": partial(alone, "pixels"),
    "lightly's SimCLRTransform, ImageFolder": lambda size, images: loader(lightly_views(size), images, 0),
    "torchvision.transforms.v2, ImageFolder": lambda size, images: loader(
        partial(twice, torchvision_views(size)), BATCH, 0
    ),
}
"""The same work in one process: nothing is started, sent or waited for."""


def measure_alone(size: int, images: int, rounds: int) -> dict[str, dict[str, list[float]]]:
    """Return what ``measure`` returns of each that works in one process; they take turns."""
    torch.set_num_threads(1)
    epochs = {name: make(size, images) for name, make in ALONE.items()}
    found: dict[str, dict[str, list[float]]] = {name: {"processors": [], "clock": []} for name in epochs}
    for number in range(rounds + 1):
        for name, epoch in epochs.items():
            start, used, count = time.perf_counter(), time.process_time(), sum(epoch())
            if number:
                found[name]["processors"].append(1000 * (time.process_time() - used) / count)
                found[name]["clock"].append(1000 * (time.perf_counter() - start) / count)
    return found


def processor_seconds() -> float:
    """Return what this process, its descendants, and those of them that have ended have used."""
    used: dict[int, float] = {}
    parents: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        number = int(path.parent.name)
        parents[number], used[number] = int(fields[1]), sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    ours, found = {os.getpid()}, 0
    while len(ours) > found:
        found = len(ours)
        ours |= {number for number, parent in parents.items() if parent in ours}
    return sum(used.get(number, 0.0) for number in ours)


def measure(name: str, size: int, images: int, rounds: int) -> dict[str, list[float]]:
    """Return milliseconds of processors, and of the clock, an image in each epoch after the first."""
    torch.set_num_threads(1)
    epoch = CONTESTANTS[name](size, images)
    found: dict[str, list[float]] = {"processors": [], "clock": []}
    for number in range(rounds + 1):
        start, used, count = time.perf_counter(), processor_seconds(), sum(epoch())
        if number:
            found["processors"].append(1000 * (processor_seconds() - used) / count)
            found["clock"].append(1000 * (time.perf_counter() - start) / count)
    return found


def in_a_process(name: str, numbers: list[str]) -> dict[str, list[float]] | None:
    """Return what ``measure`` returns, from a process of its own; None when it does not end in time."""
    command = [sys.executable, __file__, "--only", name, *numbers]
    try:
        output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, timeout=SECONDS).stdout
    except subprocess.TimeoutExpired:
        return None
    found: dict[str, list[float]] = json.loads(output.splitlines()[-1])
    print(name, found, file=sys.stderr)
    return found


@contextmanager
def store_of(place: Path) -> Iterator[None]:
    """Have a server of S3's protocol that holds the photographs and the set prepared as JPEG; contestants find it."""
    import boto3
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    keys = dict.fromkeys(("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"), "any")
    os.environ |= {STORE: f"{host}:{port}", "EBCLAB_STORES": f"http://{host}:{port}", "AWS_REGION": "us-east-1"}
    os.environ |= {"AWS_EC2_METADATA_DISABLED": "true", **keys}
    client = boto3.client("s3", endpoint_url=f"http://{host}:{port}", region_name="us-east-1")
    client.create_bucket(Bucket=BUCKET)
    for file in [path for name in ("photographs", "jpeg") for path in (place / name).rglob("*") if path.is_file()]:
        client.upload_file(str(file), BUCKET, str(file.relative_to(place)))
    try:
        yield
    finally:
        server.stop()


def prepare(place: Path, form: str, size: int, count: int) -> dict[str, list[float]]:
    """Make a prepared set of the photographs; return what it took an image."""
    start, used = time.perf_counter(), processor_seconds()
    resize = ["--resize", str(side_of(size)), "--store", form]
    if code := ebclab(["data", "prepare", f"folder:{place}/photographs", "--to", str(place / form), *resize]):
        sys.exit(code)
    spent = processor_seconds() - used, time.perf_counter() - start
    return {name: [1000 * seconds / count] for name, seconds in zip(("processors", "clock"), spent, strict=True)}


def table(found: dict[str, dict[str, list[float]] | None]) -> str:
    """Return the markdown table; the last column compares with the best of the others."""
    peers = [each["processors"] for name, each in found.items() if each and not name.startswith("ebclab")]
    best = min((statistics.median(each) for each in peers), default=float("nan"))
    lines = [
        "| contestant | processor ms an image, median | least to most | images a processor second | times the best "
        "peer's | images/s by the clock |",
        "|---|---|---|---|---|---|",
    ]
    for name, each in sorted(found.items(), key=lambda item: statistics.median((item[1] or NEVER)["processors"])):
        if each is None:
            lines.append(f"| {name} | did not end in time | | | | |")
            continue
        spent = statistics.median(each["processors"])
        spread = f"{min(each['processors']):.1f} to {max(each['processors']):.1f}"
        ratio = "" if name.endswith("once") else f"{best / spent:.2f}x"
        clock = 1000 / statistics.median(each["clock"])
        lines.append(f"| {name} | {spent:.1f} | {spread} | {1000 / spent:.0f} | {ratio} | {clock:.0f} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-root", default=None, help="folder that holds CIFAR-10")
    parser.add_argument("--photographs", type=int, default=2000, help="how many are made")
    parser.add_argument("--images", type=int, default=1000, help="of an epoch")
    parser.add_argument("--size", type=int, default=224, help="of a view, pixels")
    parser.add_argument("--rounds", type=int, default=3, help="epochs that count")
    parser.add_argument("--alone", action="store_true", help="measure what needs one process alone: a quick look")
    parser.add_argument("--folder", default="", help="keeps photographs, sets and what was measured, for a second call")
    parser.add_argument("--only", default="", help="measure one contestant in the folder of $EBCLAB_PHOTOGRAPHS")
    arguments = parser.parse_args()
    if arguments.only:
        print(json.dumps(measure(arguments.only, arguments.size, arguments.images, arguments.rounds)))
        return
    names = list(CONTESTANTS)
    try:
        lightly_views(arguments.size)
    except ImportError as error:
        names = [name for name in names if "lightly" not in name]
        ALONE.pop("lightly's SimCLRTransform, ImageFolder")
        print(f"left out: lightly ({error})", file=sys.stderr)
    numbers = ["--size", str(arguments.size), "--images", str(arguments.images), "--rounds", str(arguments.rounds)]
    with tempfile.TemporaryDirectory() as temporary:
        place = Path(arguments.folder or temporary)
        os.environ[PLACE] = str(place)
        if not (place / "photographs").exists():
            make_photographs(place / "photographs", arguments.photographs, arguments.data_root)
        kept = place / f"measured-{'-'.join(numbers)}.json"
        found = json.loads(kept.read_text()) if kept.exists() else {}
        for form in ("pixels",) if arguments.alone else ("pixels", "jpeg"):
            name = f"ebclab data prepare --store {form}, once"
            found[name] = found.get(name) or prepare(place, form, arguments.size, arguments.photographs)
            kept.write_text(json.dumps(found))
        if arguments.alone:
            found |= measure_alone(arguments.size, arguments.images, arguments.rounds)
        with nullcontext() if arguments.alone else store_of(place):
            for name in [] if arguments.alone else names:
                if name not in found:
                    found[name] = in_a_process(name, numbers)
                    kept.write_text(json.dumps(found))
    words = [*numbers, *(["--alone"] if arguments.alone else [])]
    command = f"`python benchmarks/photographs.py --photographs {arguments.photographs} {' '.join(words)}`"
    where = "one process" if arguments.alone else "two cores"
    title = f"Photographs to two views of {arguments.size} pixels, {where}"
    packages = ("torch", "torchvision", "pillow", "ray", "lightly", "pyarrow")
    page = f"photographs{'_alone' * arguments.alone}{f'_{arguments.size}' * (arguments.size != 224)}"
    write_page(page, title, command, packages, table(found))


if __name__ == "__main__":
    main()

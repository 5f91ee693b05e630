"""Seconds of each group of an evaluation card, and what cached features save a linear probe.

    python benchmarks/card.py --data-root PATH                     # ResNet-18 on 50,000 + 10,000 images of CIFAR-10
    python benchmarks/card.py --data-root PATH --only all --train-limit 2000 --test-limit 1000

The encoder has random weights unless ``--run`` names one: what a card costs hardly depends on them. Features and the
linear classifier are computed first, in rows of their own; each group is then measured with both at hand. Images from
outside are the rotated half of the test images, and MNIST, to which the encoder is also transferred. A cell is the
time of a single measurement; nothing is kept. Below: an epoch of SGD on a linear layer with cached features, and with
the frozen encoder run anew on each batch, which is how probes are often written; the median of three, in turns.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple, get_args

import torch
from page import write_page
from torch import nn

from ebclab.card.card import GroupResult
from ebclab.card.groups import GROUPS
from ebclab.card.images import MeasuredSet, named_set, outside_set
from ebclab.card.measure import chosen_groups, measure_group
from ebclab.card.measuring import CardOptions, FeatureStore, Measuring, Part
from ebclab.card.subject import Subject, open_subject
from ebclab.config.encoder import EncoderConfig
from ebclab.config.sections import EvaluationConfig
from ebclab.data.holdout import limit
from ebclab.data.preprocessing import Preprocessing
from ebclab.encoders.build import new_encoder
from ebclab.evaluation.features import frozen
from ebclab.evaluation.progress import silent

BATCH = 256  # of the linear probe


class Row(NamedTuple):
    """One piece of work."""

    title: str
    wall: float  # seconds
    processor: float  # seconds, of all threads
    note: str = ""


def timed(title: str, work: Callable[[], object], device: torch.device) -> tuple[Row, object]:
    began, spent = time.monotonic(), time.process_time()
    found = work()
    if device.type == "cuda":
        torch.cuda.synchronize()
    row = Row(title, time.monotonic() - began, time.process_time() - spent)
    print(f"{row.title}: {row.wall:.1f} s", file=sys.stderr, flush=True)
    return row, found


def random_encoder(name: str, side: int, channels: int) -> Subject:
    """Return an encoder of ours with random weights of seed 0, for images of CIFAR-10's statistics."""
    config = EncoderConfig(name=name)
    torch.manual_seed(0)
    encoder = new_encoder(config, channels, side).eval()
    preprocessing = Preprocessing(side, (0.5,) * channels, (0.25,) * channels)
    return Subject(
        f"{name}, random weights",
        name,
        encoder,
        preprocessing,
        channels,
        "random weights of seed 0",
        f"random {name}",
        random_weights=lambda seed: new_encoder(config, channels, side).eval(),
    )


def measuring_of(options: argparse.Namespace, device: torch.device) -> Measuring:
    subject = (
        open_subject(options.run) if options.run else random_encoder(options.encoder, options.side, options.channels)
    )

    def limited(name: str) -> MeasuredSet:
        whole = named_set(name, subject, options.data_root)
        parts = limit(whole.train, options.train_limit), limit(whole.test, options.test_limit)
        return replace(whole, train=parts[0], test=parts[1])

    measured = limited(options.dataset)
    given = ["rotated", *([f"far={options.other}"] if options.other else [])]
    outside = [outside_set(each, subject, measured, options.data_root) for each in given]
    return Measuring(
        subject,
        measured,
        CardOptions(
            EvaluationConfig(),
            seeds=options.seeds,
            attacked_images=options.attacked,
            fine_tuning_epochs=options.fine_tuning_epochs,
        ),
        FeatureStore(None),
        device=device,
        on_progress=silent,
        others=(limited(options.other),) if options.other else (),
        outside=tuple(replace(each, outside=limit(each.outside, options.test_limit)) for each in outside),
    )


def card_rows(measuring: Measuring, groups: list[str]) -> list[Row]:
    """Return what features, the classifier and each group took."""
    device, rows = measuring.device, []
    for part in get_args(Part):
        images = measuring.images_of(part)
        fresh = {name: each for name, each in images.items() if measuring.store.known(name, len(each)) is None}
        if fresh:
            row, _ = timed(
                f"features: {part}", lambda found=fresh: [measuring.features(x) for x in found.values()], device
            )
            rows.append(row._replace(note=f"{sum(map(len, fresh.values())):,} images"))
    row, _ = timed("linear classifier", lambda: measuring.classifier, device)
    rows.append(row._replace(note="six penalties"))
    for name in groups:
        row, result = timed(name, lambda group=name: measure_group(group, "", measuring), device)
        problem = result.problem if isinstance(result, GroupResult) else ""
        rows.append(row._replace(note=problem))
    return rows


def probe_rows(measuring: Measuring, count: int) -> list[Row]:
    """Return an epoch of a linear probe on cached features, and one that runs the encoder on each batch."""
    device, images = measuring.device, limit(measuring.measured.train, count)
    encoder, preprocessing = measuring.subject.encoder.to(device), measuring.subject.preprocessing
    features, labels = measuring.features(images).to(device), images.labels.to(device)

    def epoch(embed: Callable[[slice], torch.Tensor]) -> None:
        torch.manual_seed(0)
        head = nn.Linear(features.shape[1], measuring.measured.num_classes).to(device)
        optimizer = torch.optim.SGD(head.parameters(), lr=0.1, momentum=0.9)
        for start in range(0, len(images), BATCH):
            rows = slice(start, start + BATCH)
            loss = nn.functional.cross_entropy(head(embed(rows)), labels[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    def encoded(rows: slice) -> torch.Tensor:
        with frozen(encoder), torch.no_grad():
            found: torch.Tensor = encoder(preprocessing(images.images[rows].to(device))).float()
        return found

    ways = {
        "linear probe, one epoch, cached features": lambda: epoch(lambda rows: features[rows]),
        "linear probe, one epoch, encoder run on each batch": lambda: epoch(encoded),
    }
    times: dict[str, list[Row]] = {title: [] for title in ways}
    for _ in range(4):
        for title, way in ways.items():
            times[title].append(timed(title, way, device)[0])
    rows = []
    for title, found in times.items():
        walls, processors = ([each[place] for each in found[1:]] for place in (1, 2))  # the first warms up
        rows.append(Row(title, statistics.median(walls), statistics.median(processors), f"{len(images):,} images"))
    faster = rows[1].wall / rows[0].wall
    return [rows[0], rows[1]._replace(note=f"{rows[1].note}; {faster:.0f} times as long")]


def table(rows: list[Row]) -> str:
    head = "| work | seconds | processor seconds | |\n|---|---|---|---|\n"
    total = Row("all of the card", sum(row.wall for row in rows), sum(row.processor for row in rows))
    return head + "\n".join(f"| {r.title} | {r.wall:,.2f} | {r.processor:,.2f} | {r.note} |" for r in [*rows, total])


def main() -> None:
    parser = argparse.ArgumentParser(prog=Path(__file__).name, description=__doc__.partition("\n")[0])
    parser.add_argument("--data-root", help="folder that holds datasets")
    parser.add_argument("--dataset", default="cifar10", help="what is measured on")
    parser.add_argument("--other", default="mnist", help="transferred to, and far from it; empty: none")
    parser.add_argument("--encoder", default="resnet18", help="one of our own encoders, with random weights")
    parser.add_argument("--run", help="a run, in place of random weights")
    parser.add_argument("--side", type=int, default=32, help="pixels that the encoder takes")
    parser.add_argument("--channels", type=int, default=3, help="channels that it takes")
    parser.add_argument("--only", default="", help="groups separated by commas, or all; without it the quick ones")
    parser.add_argument("--train-limit", type=int, default=0, help="training images; 0: all")
    parser.add_argument("--test-limit", type=int, default=0, help="test images; 0: all")
    parser.add_argument("--attacked", type=int, default=CardOptions.attacked_images, help="images that are attacked")
    parser.add_argument("--fine-tuning-epochs", type=int, default=CardOptions.fine_tuning_epochs)
    parser.add_argument("--seeds", type=int, default=CardOptions.seeds)
    parser.add_argument("--probe-images", type=int, default=2_048, help="images of an epoch of the linear probe")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--threads", type=int, default=0, help="threads; 0: torch's choice")
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    measuring = measuring_of(options, torch.device(options.device))
    groups = chosen_groups([name for name in options.only.split(",") if name])
    rows = card_rows(measuring, [name for name in GROUPS if name in groups])
    data = measuring.measured
    title = (
        f"The card of {measuring.subject.label} on {len(data.train):,} + {len(data.test):,} images of {data.name}, "
        f"{options.device}, {torch.get_num_threads()} threads"
    )
    probes = "\n".join(
        f"| {r.title} | {r.wall:,.3f} | {r.processor:,.3f} | {r.note} |"
        for r in probe_rows(measuring, options.probe_images)
    )
    words = ["PATH" if word == options.data_root else word for word in sys.argv[1:]]
    command = f"`python benchmarks/{' '.join([Path(__file__).name, *words])}`"
    write_page("card", title, command, ("torch", "scikit-learn", "ebclab"), f"{table(rows)}\n{probes}")


if __name__ == "__main__":
    main()

"""Seconds from a command to the test accuracies of an encoder, beside lightly and plain torchvision.

    python benchmarks/end_to_end.py --data-root DIR [--epochs N] [--rounds N] [--precision float32 bfloat16]

SimCLR, 10,000 images of CIFAR-10, the small encoder, Adam, batches of 256; then kNN and a linear classifier with all
50,000 labelled images as neighbours or for training, on the 10,000 test images. Every contestant runs as processes of
its own, in turn, on all processors. The peers are the loops that their documentation shows: images as PIL files of
torchvision's CIFAR10, random views by DataLoader's workers, the two views through the network together, kNN by
lightly's ``knn_predict`` or the same in torch, scikit-learn's logistic regression on standardised features. bfloat16 is
torch's autocast, for training and features of peers, for training alone of ours, as ``training.precision`` has it.
"""

from __future__ import annotations

import argparse
import functools
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from page import write_page
from torch import Tensor, nn

IMAGES, BATCH, TEMPERATURE, LEARNING_RATE = 10_000, 256, 0.1, 0.002
NEIGHBOURS, VOTE = 20, 0.1
MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)
EBCLAB = shutil.which("ebclab", path=str(Path(sys.executable).parent)) or "ebclab"


class Outcome(NamedTuple):
    """What a contestant took and what its encoder scores."""

    total: float  # seconds from the first command to the last number
    training: float  # seconds of the epochs alone
    knn: float  # share of the test images
    linear: float


class Asked(NamedTuple):
    """What a contestant is to do."""

    data_root: str
    epochs: int
    workers: int  # of the peers' DataLoader alone
    precision: str
    seed: int


def ours(asked: Asked) -> Outcome:
    """Run ``ebclab pretrain`` and ``ebclab evaluate``."""
    with tempfile.TemporaryDirectory() as folder:
        same = {"training.epochs": asked.epochs, "data.holdout_rate": 0, "evaluation.knn_every": 0}
        same |= {"data.root": asked.data_root, "training.precision": asked.precision, "seed": asked.seed}
        settings = [word for name, value in same.items() for word in ("--set", f"{name}={value}")]
        train = [
            EBCLAB,
            "pretrain",
            "simclr",
            "--recipe",
            "cifar10-small",
            "--name",
            "run",
            "--runs",
            folder,
            *settings,
        ]
        began = time.perf_counter()
        subprocess.run(train, check=True, capture_output=True)
        evaluate = [EBCLAB, "evaluate", f"{folder}/run", "--only", "knn,linear", "--json"]
        printed = subprocess.run(evaluate, check=True, capture_output=True, text=True).stdout
        total = time.perf_counter() - began
        seconds = json.loads((Path(folder) / "run" / "result.json").read_text())["seconds"]
    (row,) = json.loads(printed)["rows"].values()
    return Outcome(total, seconds, row["knn"]["value"], row["linear"]["value"])


def peer(name: str, asked: Asked) -> Outcome:
    """Run a peer's loop in a process of its own."""
    words = [word for key, value in asked._asdict().items() for word in (f"--{key.replace('_', '-')}", f"{value}")]
    began = time.perf_counter()
    ended = subprocess.run(
        [sys.executable, __file__, "--peer", name, *words], check=True, capture_output=True, text=True
    )
    return Outcome(time.perf_counter() - began, *json.loads(ended.stdout.splitlines()[-1]))


# What a peer's process does


def small_network() -> nn.Sequential:
    """Return the small encoder of width 32 with a strided stem, from torchvision's blocks."""
    from torchvision.models.resnet import BasicBlock

    def halved(before: int, after: int) -> BasicBlock:
        shortcut = nn.Sequential(nn.Conv2d(before, after, 1, 2, bias=False), nn.BatchNorm2d(after))
        return BasicBlock(before, after, 2, shortcut)

    stem = [nn.Conv2d(3, 32, 3, 2, 1, bias=False), nn.BatchNorm2d(32), nn.ReLU(inplace=True)]
    network = nn.Sequential(
        *stem, BasicBlock(32, 32), halved(32, 64), halved(64, 128), nn.AdaptiveAvgPool2d(2), nn.Flatten()
    )
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
    return network


def normalised() -> list[Callable[[Any], Any]]:
    """Return the transforms that every image ends with."""
    from torchvision import transforms

    return [transforms.ToTensor(), transforms.Normalize(MEAN, STD)]


def lightly_parts() -> tuple[
    Callable[[Any], Any], nn.Module, Callable[[Tensor, Tensor], Tensor], Callable[..., Tensor]
]:
    """Return lightly's two views of an image, projection head, loss and kNN."""
    from lightly.loss import NTXentLoss
    from lightly.models.modules import SimCLRProjectionHead
    from lightly.transforms import SimCLRTransform
    from lightly.utils.benchmarking import knn_predict

    views = SimCLRTransform(
        input_size=32,
        cj_strength=0.5,
        min_scale=0.45,
        gaussian_blur=0.0,
        normalize={"mean": list(MEAN), "std": list(STD)},
    )
    head = SimCLRProjectionHead(512, 512, 128, batch_norm=False)

    def predict(features: Tensor, bank: Tensor, labels: Tensor) -> Tensor:
        return knn_predict(features, bank.t(), labels, 10, NEIGHBOURS, VOTE)[:, 0]

    return views, head, NTXentLoss(temperature=TEMPERATURE), predict


def torchvision_parts() -> tuple[
    Callable[[Any], Any], nn.Module, Callable[[Tensor, Tensor], Tensor], Callable[..., Tensor]
]:
    """Return the same from torchvision and torch alone."""
    from torchvision import transforms

    one = transforms.Compose(
        [
            transforms.RandomResizedCrop(32, (0.45, 1.0)),
            transforms.RandomHorizontalFlip(),
            transforms.RandomApply([transforms.ColorJitter(0.4, 0.4, 0.4, 0.1)], 0.8),
            transforms.RandomGrayscale(0.2),
            *normalised(),
        ]
    )
    head = nn.Sequential(nn.Linear(512, 512), nn.ReLU(inplace=True), nn.Linear(512, 128))

    def loss(first: Tensor, second: Tensor) -> Tensor:
        both = nn.functional.normalize(torch.cat([first, second]), dim=1)
        logits = both @ both.t() / TEMPERATURE
        logits.fill_diagonal_(-torch.inf)
        return nn.functional.cross_entropy(logits, torch.arange(len(both)).roll(len(first)))

    def predict(features: Tensor, bank: Tensor, labels: Tensor) -> Tensor:
        nearest, places = (features @ bank.t()).topk(NEIGHBOURS)
        votes = torch.zeros(len(features), 10).scatter_add_(1, labels[places], (nearest / VOTE).exp())
        return votes.argmax(1)

    return (lambda image: [one(image), one(image)]), head, loss, predict


PARTS = {"lightly": lightly_parts, "torchvision": torchvision_parts}


def train_and_measure(name: str, asked: Asked) -> tuple[float, float, float]:
    """Return the seconds of training, and kNN and linear accuracy."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.preprocessing import StandardScaler
    from torch.utils.data import DataLoader, Subset
    from torchvision import transforms
    from torchvision.datasets import CIFAR10

    class Cifar(CIFAR10):
        def _check_integrity(self) -> bool:  # so that files with other checksums are read, such as a rebuilt set
            return True

    torch.manual_seed(asked.seed)
    lower = functools.partial(torch.autocast, "cpu", torch.bfloat16, enabled=asked.precision == "bfloat16")
    views, head, criterion, predict = PARTS[name]()
    network = small_network()
    weights = [*network.parameters(), *head.parameters()]
    optimizer = torch.optim.Adam(weights, LEARNING_RATE, weight_decay=1e-6)
    images = Subset(Cifar(asked.data_root, transform=views), range(IMAGES))
    loader = DataLoader(
        images, BATCH, shuffle=True, drop_last=True, num_workers=asked.workers, persistent_workers=asked.workers > 0
    )
    steps = asked.epochs * len(loader)
    warm = torch.optim.lr_scheduler.LinearLR(optimizer, 1 / len(loader), total_iters=len(loader))
    cosine = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, max(1, steps - len(loader)))
    schedule = torch.optim.lr_scheduler.SequentialLR(optimizer, [warm, cosine], [len(loader)])
    began = time.perf_counter()
    for _ in range(asked.epochs):
        for (first, second), *_ in loader:
            with lower():
                one, other = head(network(torch.cat([first, second]))).chunk(2)
            loss = criterion(one.float(), other.float())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    training = time.perf_counter() - began

    network.eval()
    plain = transforms.Compose(normalised())

    def features(train: bool) -> tuple[Tensor, Tensor]:
        loaded = DataLoader(Cifar(asked.data_root, train=train, transform=plain), 512, num_workers=asked.workers)
        with torch.no_grad(), lower():
            found = [(network(batch).float(), labels) for batch, labels in loaded]
        return torch.cat([each for each, _ in found]), torch.cat([labels for _, labels in found])

    (bank, bank_labels), (test, test_labels) = features(True), features(False)
    near, far = nn.functional.normalize(test), nn.functional.normalize(bank)
    predicted = torch.cat([predict(batch, far, bank_labels) for batch in near.split(500)])
    knn = (predicted == test_labels).float().mean().item()
    scale = StandardScaler().fit(bank.numpy())
    probe = LogisticRegression(max_iter=1000).fit(scale.transform(bank.numpy()), bank_labels.numpy())
    return training, knn, float(probe.score(scale.transform(test.numpy()), test_labels.numpy()))


def table(outcomes: dict[str, list[Outcome]]) -> str:
    """Return the markdown table."""
    columns = ("contestant", "seconds, median", "fastest to slowest", "training", "all else", "of lightly's")
    heads = [*columns, "kNN, %", "linear, %"]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for name, each in outcomes.items():
        totals = [outcome.total for outcome in each]
        middle = {key: statistics.median(getattr(outcome, key) for outcome in each) for key in Outcome._fields}
        cells = [name, f"{middle['total']:.0f}", f"{min(totals):.0f} to {max(totals):.0f}", f"{middle['training']:.0f}"]
        lightly = statistics.median(each.total for each in outcomes[f"lightly, {name.split(', ')[1]}"])
        rest = statistics.median(outcome.total - outcome.training for outcome in each)
        cells += [f"{rest:.0f}", f"{middle['total'] / lightly:.2f}x"]
        cells += [f"{100 * middle['knn']:.1f}", f"{100 * middle['linear']:.1f}"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-root", required=True, help="folder with cifar-10-batches-py")
    parser.add_argument("--epochs", type=int, default=8, help="epochs of training")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each contestant")
    parser.add_argument("--workers", type=int, default=2, help="workers of the peers' DataLoader")
    parser.add_argument("--precision", nargs="+", choices=["float32", "bfloat16"], default=["float32"], help="of each")
    parser.add_argument("--seed", type=int, default=0, help="of the first round; each next has the next")
    parser.add_argument("--peer", choices=[*PARTS], help="run this one alone and print its numbers")
    asked = parser.parse_args()
    one = functools.partial(Asked, asked.data_root, asked.epochs, asked.workers)
    if asked.peer:
        print(json.dumps(train_and_measure(asked.peer, one(asked.precision[0], asked.seed))))
        return
    contestants = [(name, precision) for precision in asked.precision for name in ("lightly", "torchvision", "ebclab")]
    outcomes = {f"{name}, {precision}": list[Outcome]() for name, precision in contestants}
    for seed in range(asked.seed, asked.seed + asked.rounds):
        for name, precision in contestants:
            todo = one(precision, seed)
            found = ours(todo) if name == "ebclab" else peer(name, todo)
            outcomes[f"{name}, {precision}"].append(found)
            print(name, precision, found, file=sys.stderr)
    command = f"`python benchmarks/end_to_end.py --data-root DIR --epochs {asked.epochs} --rounds {asked.rounds} "
    command += f"--workers {asked.workers} --precision {' '.join(asked.precision)}`"
    packages = ("ebclab", "torch", "torchvision", "lightly", "scikit-learn")
    title = "From a command to test accuracies, SimCLR on 10,000 images of CIFAR-10"
    write_page("end_to_end", title, command, packages, table(outcomes))


if __name__ == "__main__":
    main()

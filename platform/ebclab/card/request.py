"""The options of ``ebclab evaluate`` for a card."""

from __future__ import annotations

from dataclasses import MISSING, dataclass
from importlib.util import find_spec
from typing import Literal

from ebclab.config.options import DATA_ROOT, option, option_problems
from ebclab.evaluation.protocols import FINE_TUNING, PROTOCOLS
from ebclab.formatting import how_to_install


def names_in(text: str) -> tuple[str, ...]:
    """Return names that are separated by commas."""
    return tuple(part.strip() for part in text.split(",") if part.strip())


@dataclass(frozen=True, kw_only=True)
class GroupOptions:
    """What the groups of a card read of its options: saved results depend on these."""

    seeds: int = option(3, "Number of seeds for protocols that are random.", panel="Protocols of groups", minimum=1)
    attacked_images: int = option(1_000, "Number of test images to attack; 0: all.", flag="--attacked", minimum=0)
    autoattack: bool = option(False, "Also run AutoAttack, which costs more than all other attacks together.")
    pairs: int = option(4, "Number of nearest and of farthest pairs of views to show.", minimum=1, maximum=50)
    fine_tuning: str = option(
        "simclr", "Fine-tuning protocol; `ebclab show --protocols` lists them.", choices=FINE_TUNING
    )
    fine_tuning_epochs: int = option(
        0, "Epochs of fine-tuning on the labelled images; 0: as many as the protocol says.", minimum=0
    )
    bins: int = option(15, "Bins of calibration errors, beside those with 15 and 20.", minimum=1, maximum=1_000)


@dataclass(frozen=True)
class ProbeRequest:
    """What is measured of which encoders, by single probes too."""

    encoders: tuple[str, ...] = option(
        MISSING,
        "Runs (name, folder or s3://bucket/runs/name), exports, timm/NAME; the first is compared with all others.",
        metavar="ENCODER...",
        is_argument=True,
        is_place_of_results=True,
    )
    datasets: tuple[str, ...] = option(
        (),
        "Dataset to measure on instead of the run's own; repeat it to also measure transfer.",
        flag="--dataset",
        panel="Images",
    )
    only: tuple[str, ...] = option(
        (),
        "Groups of the card, separated by commas, or all; `ebclab show --card` lists them. Single probes "
        "(knn, linear, top5, ebclr-knn) are printed, without a card.",
        metavar="NAMES",
        read=names_in,
        panel="Measured",
        text="",
    )
    protocol: str | None = option(
        None, "Linear probe protocol; `ebclab show --protocols` lists them.", choices=PROTOCOLS
    )
    checkpoint: Literal["last", "best"] = option("last", "Checkpoint of runs: last, or best by the run's objective.")
    references: bool = option(False, "Also measure raw pixels and the untrained encoder.")
    data_root: str | None = option(None, DATA_ROOT, panel="Images")


@dataclass(frozen=True)
class CardRequest(GroupOptions, ProbeRequest):
    """What to measure for a card."""

    outside: tuple[str, ...] = option(
        (),
        "Out-of-distribution images: a dataset, or `rotated` or `inverted` (half of the test images).",
        flag="--ood",
        metavar="[near=|far=]NAME",
        panel="Images",
    )
    train_limit: int = option(0, "Number of training images to use, chosen by hash; 0: all.", minimum=0)
    test_limit: int = option(0, "Number of test images to use, chosen by hash; 0: all.", minimum=0)
    size: int = option(
        0,
        "Side that the largest central squares of images are scaled to; 0: the encoder's own.",
        minimum=0,
        maximum=1_024,
    )
    resampling: Literal["", "bilinear", "bicubic"] = option(
        "", "How images are scaled: bilinear or bicubic; by default as the encoder's own were."
    )
    workers: int = option(
        0,
        "0: this process; W: distribute the groups over W Ray workers.",
        metavar="W",
        panel="Resources",
        minimum=0,
    )
    to: str | None = option(
        None,
        "Folder for the page; default: that of a single run, else ./cards.",
        metavar="DIR",
        panel="Results",
        is_place_of_results=True,
    )
    features: str | None = option(
        None,
        "Instead of a card, write features, labels and files of all images: FILE.npz or FILE.parquet.",
        metavar="FILE",
        is_place_of_results=True,
    )

    @property
    def scaling(self) -> tuple[int, Literal["bilinear", "bicubic"]] | None:
        """Side and resampling of images that are not scaled as the encoder's own were; None if they are."""
        return (self.size, self.resampling or "bilinear") if self.size or self.resampling else None

    def problems(self) -> list[str]:
        """Return what is wrong, one line each, apart from the names of groups."""
        problems = option_problems(self)
        if self.autoattack and find_spec("pyautoattack") is None:
            problems.append(f"--autoattack: pyautoattack is not installed; run {how_to_install('attack')}")
        if self.workers and find_spec("ray") is None:
            problems.append(
                f"--workers: Ray is not installed, got {self.workers}; run {how_to_install('ray')}, or leave it out"
            )
        return problems


@dataclass(frozen=True)
class SearchRequest:
    """Arguments and options of ``ebclab search``."""

    encoder: str = option(
        MISSING,
        "Run (name, folder or address), export, or timm/NAME.",
        metavar="ENCODER",
        is_argument=True,
        is_place_of_results=True,
    )
    images: tuple[str, ...] = option(MISSING, "Image files.", metavar="IMAGE...", is_argument=True)
    dataset: str | None = option(None, "Where to search instead of the run's own images.", panel="Images")
    data_root: str | None = option(None, DATA_ROOT)
    count: int = option(12, "Number of images to find for each.", minimum=1, maximum=1_000, panel="Results")
    checkpoint: Literal["last", "best"] = option("last", "Checkpoint of a run: last, or best by its objective.")
    to: str = option("search.html", "Page to write.", metavar="FILE", is_place_of_results=True)

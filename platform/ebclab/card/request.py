"""The options of ``ebclab evaluate`` for a card, and their validation."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from typing import cast, get_args

from ebclab.card.measure import chosen_groups
from ebclab.card.measuring import MOST_PAIRS, CardOptions
from ebclab.data.photograph import Resampling
from ebclab.errors import UserError
from ebclab.evaluation.protocols import FINE_TUNING, PROTOCOLS, look_up

MOST_BINS, MOST_SIDE = 1_000, 1_024


@dataclass(frozen=True)
class CardRequest:
    """What to measure.

    Attributes:
        encoders: Runs (folders or addresses), exported folders, or timm/NAME.
        datasets: Names of datasets: the first is evaluated on, the others are for transfer. Empty means the run's own.
        outside: Values of ``--ood``, see ``outside_set``.
        only: Names of groups, or "all"; empty means the quick ones.
        seeds: Number of random seeds of a protocol.
        protocol: Linear probe protocol; None means the run's setting.
        checkpoint: "last" or "best", of runs.
        references: Also measure raw pixels and, for runs, the untrained encoder.
        data_root: Folder that contains datasets; None means the run's own, or the default.
        to: Folder of the page; None means ``card`` (or ``card-<dataset>``) in the run folder for a single run, else
            ``cards`` in the current folder.
        attacked_images: Number of test images that are attacked; 0 means all.
        autoattack: Also run AutoAttack, which costs more than all other attacks together.
        pairs: Number of pairs of views that are shown at each end of a ranking.
        fine_tuning_epochs: Epochs over the labelled images when all weights are trained; 0 means the protocol's.
        fine_tuning: Protocol by which all weights are trained.
        bins: Bins of calibration errors and of the reliability diagram, beside those with 15 and 20.
        train_limit: Training images of each dataset that are used, chosen by hash; 0 means all.
        test_limit: Test images of each dataset that are used, chosen by hash; 0 means all.
        size: Side that images are scaled to, pixels; 0 means the encoder's own, unless ``resampling`` is given.
        resampling: How images are scaled: bilinear or bicubic; empty means as the encoder's own were.
        workers: 0 measures in this process, without Ray; 1 or more distributes the groups over that many Ray workers.
    """

    encoders: tuple[str, ...]
    datasets: tuple[str, ...] = ()
    outside: tuple[str, ...] = ()
    only: tuple[str, ...] = ()
    seeds: int = CardOptions.seeds
    protocol: str | None = None
    checkpoint: str = "last"
    references: bool = False
    data_root: str | None = None
    to: str | None = None
    attacked_images: int = CardOptions.attacked_images
    autoattack: bool = False
    fine_tuning_epochs: int = CardOptions.fine_tuning_epochs
    pairs: int = CardOptions.pairs
    fine_tuning: str = CardOptions.fine_tuning
    bins: int = CardOptions.bins
    train_limit: int = 0
    test_limit: int = 0
    size: int = 0
    resampling: str = ""
    workers: int = 0

    @property
    def scaling(self) -> tuple[int, Resampling] | None:
        """Side and resampling of images that are not scaled as the encoder's own were; None if they are."""
        return (self.size, cast(Resampling, self.resampling or "bilinear")) if self.size or self.resampling else None

    def groups(self) -> tuple[str, ...]:
        """Validate the request and return the groups to measure.

        Raises:
            UserError: The request is invalid; lists every problem, one per line.
        """
        problems = [
            f"{option}: must be at least {fewest}, got {count}"
            if fewest
            else f"{option}: must not be negative, got {count}"
            for option, fewest, count in (
                ("--seeds", 1, self.seeds),
                ("--pairs", 1, self.pairs),
                ("--fine-tuning-epochs", 0, self.fine_tuning_epochs),
                ("--bins", 1, self.bins),
                ("--attacked", 0, self.attacked_images),
                ("--train-limit", 0, self.train_limit),
                ("--test-limit", 0, self.test_limit),
                ("--size", 0, self.size),
                ("--workers", 0, self.workers),
            )
            if count < fewest
        ]
        problems += [
            f"{option}: must be at most {most:,}, got {count}"
            for option, most, count in (
                ("--bins", MOST_BINS, self.bins),
                ("--pairs", MOST_PAIRS, self.pairs),
                ("--size", MOST_SIDE, self.size),
            )
            if count > most
        ]
        if self.autoattack and find_spec("pyautoattack") is None:
            problems.append("--autoattack: pyautoattack is not installed; pip install 'ebclab[attack]'")
        if self.workers and find_spec("ray") is None:
            problems.append(f"--workers: Ray is not installed, got {self.workers}; pip install ray, or leave it out")
        chosen: list[str] = []
        for check in (
            self._protocol,
            self._fine_tuning,
            self._resampling,
            lambda: chosen.extend(chosen_groups(self.only)),
        ):
            try:
                check()
            except UserError as error:
                problems.append(str(error))
        if problems:
            raise UserError("\n".join(problems))
        return tuple(chosen)

    def _protocol(self) -> None:
        if self.protocol is not None:
            look_up("--protocol", "protocol", self.protocol, PROTOCOLS)

    def _fine_tuning(self) -> None:
        look_up("--fine-tuning", "protocol", self.fine_tuning, FINE_TUNING)

    def _resampling(self) -> None:
        if self.resampling:
            look_up("--resampling", "resampling", self.resampling, dict.fromkeys(get_args(Resampling)))

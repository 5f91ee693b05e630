"""The card of one encoder on one dataset, and the results of its groups: metrics, tables, plots and pictures.

The results of each group are saved as soon as they are complete.

card/
  groups/<group>.json           results of one group, with a checksum
  groups/<group>.safetensors    contributions of each image to its metrics
  pictures/<group>-<name>.png
  features/                     see ``FeatureStore``
  card.json  card.md  card.html
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from math import exp
from pathlib import Path
from typing import Any, ClassVar, Literal

import torch
from safetensors import SafetensorError
from safetensors.torch import load as from_bytes
from safetensors.torch import save as to_bytes
from torch import Tensor

from ebclab.config.yaml_text import JsonObject
from ebclab.document.document import Picture, Plot, Table
from ebclab.errors import RunError
from ebclab.evaluation.answers import Score, images_key, mean_and_std, score_of, table_of
from ebclab.evaluation.seeds_and_images import Table as ImageTable
from ebclab.evaluation.seeds_and_images import VarianceParts, quantile
from ebclab.interval import Interval
from ebclab.regular_file import read_regular
from ebclab.storage import atomic
from ebclab.storage.own_folder import own_folder
from ebclab.storage.reading import read_json, typed, with_checksum

Unit = Literal["share", "nats", "plain"]
"""How a metric is displayed: a share in [0, 1] as a percentage, nats, or the plain value."""

Better = Literal["higher", "lower", "neither"]

_CHANCE = 0.05
_OF_SCORES = ("name", "value", "num_images", "low", "high", "seeds", "per_seed", "std")
"""Fields that a metric has of a probe's score."""


@dataclass(frozen=True)
class Number:
    """One metric of an encoder."""

    name: str  # key within its group, e.g. "ece-15": letters, digits and hyphens
    title: str  # in standard terms
    value: float  # the mean over seeds if there are several
    protocol: str  # how it was measured, in enough detail to reproduce it
    num_images: int
    better: Better
    unit: Unit = "share"  # how it is displayed
    # 95 % confidence interval over test images, for a fixed encoder and fixed seeds; None if there is none
    low: float | None = None
    high: float | None = None
    seeds: tuple[int, ...] = ()  # of the protocol; empty if it is deterministic
    per_seed: tuple[float, ...] = ()  # the value for each of ``seeds``
    std: float | None = None  # sample standard deviation over ``seeds`` (divisor n - 1); None with fewer than two
    images: str = ""  # short hash of the keys of the images, in their order; empty without ``contributions``
    # (n,) float64, one for each image, with mean ``value``, for paired comparisons of encoders; None if the metric is
    # not a mean over images, even to first order
    contributions: Tensor | None = field(default=None, compare=False, repr=False)
    is_rate: bool = False  # whether every contribution is a rate of correct answers, in [0, 1]

    @property
    def interval(self) -> Interval:
        return Interval(self.value, self.low, self.high)

    __pydantic_config__: ClassVar[dict[str, bool]] = {"arbitrary_types_allowed": True}  # contributions are stored apart


@dataclass(frozen=True)
class Findings:
    """Results of one group for one encoder."""

    numbers: tuple[Number, ...]  # the most important first
    tables: tuple[Table, ...] = ()
    plots: tuple[Plot, ...] = ()
    pictures: tuple[Picture, ...] = ()
    remarks: tuple[str, ...] = ()  # sentences that a reader must not miss, e.g. that gradients are masked


def accuracy(
    name: str,
    title: str,
    right: Tensor,
    keys: Tensor,
    *,
    protocol: str,
    seeds: Sequence[int] = (),
) -> Number:
    """Return an accuracy with its Wilson interval; ``right`` is (n,) bool, or (P, n), a row a seed."""
    return as_number(score_of(name, right.reshape(-1, right.shape[-1]), keys, detail=protocol, seeds=seeds), title)


def as_number(score: Score, title: str) -> Number:
    """Return the score of a probe as a metric of a card."""
    if score.answers is None:
        raise ValueError("a score without answers was read from a file, not measured")
    return Number(
        **{name: getattr(score, name) for name in _OF_SCORES},
        title=title,
        protocol=score.detail,
        better="higher",
        images=score.answers.images,
        contributions=torch.from_numpy(table_of([score.answers])[0]),
        is_rate=True,
    )


def as_score(number: Number) -> Score:
    """Return a metric of a card as the score of a probe, without answers."""
    return Score(**{name: getattr(number, name) for name in _OF_SCORES}, detail=number.protocol)


def mean_over_images(
    name: str,
    title: str,
    contributions: Tensor,
    keys: Tensor,
    *,
    protocol: str,
    better: Better,
    unit: Unit = "share",
    seeds: Sequence[int] = (),
) -> Number:
    """Return a metric that is a mean over images, at least to first order, with its interval over images.

    Contributions are (n,), or (P, n) with one row for each of ``seeds``. For a statistic that is not a mean: its value
    plus its influence function at the image.
    """
    rows = contributions.double().cpu().reshape(-1, contributions.shape[-1])  # (P, n)
    values: list[float] = rows.mean(dim=1).tolist()
    value, std = mean_and_std(values)
    each, count = rows.mean(dim=0), rows.shape[1]
    low, high = interval_of_mean(each.numpy()[None], _CHANCE, better) if count > 1 else (None, None)
    return Number(
        name=name,
        title=title,
        value=value,
        protocol=protocol,
        num_images=count,
        better=better,
        unit=unit,
        low=low,
        high=high,
        seeds=tuple(seeds),
        per_seed=tuple(values) if seeds else (),
        std=std,
        images=images_key(keys),
        contributions=each,
    )


def interval_of_mean(table: ImageTable, chance: float, better: Better) -> tuple[float, float]:
    """Return the interval of the mean of contributions, a row a run; of a single run, over images only.

    ``mean - h`` to ``mean + h``, with h of Student's t over images or of ``seeds_and_images``. Of losses, which are
    better lower and never below 0, ``mean exp(-h / mean)`` to ``mean exp(h / mean)``: that of the mean's logarithm. It
    does not go below 0 either, and of skewed losses it misses the true mean less often.
    """
    runs, images = table.shape
    if runs == 1:
        half = quantile(chance, images - 1) * float(table.std(ddof=1)) / float(images**0.5)
    else:
        half = VarianceParts.of(table).half_width(runs, images, chance)
    mean = float(table.mean())
    if better == "lower" and mean > 0 and float(table.min()) >= 0:
        return mean * exp(-half / mean), mean * exp(half / mean)
    return mean - half, mean + half


def two_samples(value: float, first: Tensor, second: Tensor) -> Tensor:
    """Return contributions (m + n,) to a statistic of two independent samples, e.g. an AUROC.

    ``psi_i = value + (N / m) (first_i - value)`` for the first sample, likewise for the second, with N = m + n: their
    mean is ``value``, and the variance of that mean is ``Var(first) / m + Var(second) / n`` (DeLong et al., 1988).

    Components are (m,) and (n,), with mean ``value`` each.
    """
    total = len(first) + len(second)
    parts = [value + (total / len(each)) * (each.double() - value) for each in (first, second)]
    return torch.cat(parts)


FORMAT = 1
_NAME = re.compile(r"[a-z0-9][a-z0-9-]*")
_LARGEST = 1 << 30  # bytes of one file


@dataclass(frozen=True)
class GroupResult:
    """The outcome of one group."""

    group: str
    key: str  # hash of everything that the findings depend on; with an equal key they need not be measured again
    findings: Findings  # empty if it failed or was skipped
    seconds: float
    problem: str = ""  # why there are no findings; empty if there are
    failed: bool = False  # whether ``problem`` is an unexpected failure rather than a consequence of the request


@dataclass(frozen=True)
class Card:
    """Everything that was measured of one encoder on one dataset."""

    label: str  # name of the encoder in tables
    address: str  # path, address or name of the encoder
    origin: str  # one line about where it comes from
    encoder: str  # SHA-256 of network, weights and preprocessing
    settings: str  # digest of the run's settings without its seed; empty if the encoder is not of a run
    seed: int | None  # None if the encoder is not of a run
    dataset: str
    data: str  # SHA-256 of the dataset's content, see ``MeasuredSet.digest``
    num_train: int
    num_test: int
    environment: Mapping[str, Any]  # versions, machine and device
    results: tuple[GroupResult, ...] = ()  # in the order of the catalogue
    num_repeated: int = 0  # test images that are also training images
    paper: str = ""  # of the run's method; empty if there is none
    tests_held_out: bool = False  # the dataset has no test part: its test images were held out by hash

    @property
    def test_images(self) -> str:
        return f"{'held-out' if self.tests_held_out else 'test'} images"

    def numbers(self, group: str) -> tuple[Number, ...]:
        """Return the metrics of a group; empty if it was not measured."""
        return next((each.findings.numbers for each in self.results if each.group == group), ())

    def to_mapping(self) -> JsonObject:
        """Return the card as plain values, without pixels of pictures, plots, and contributions of images."""
        facts = {name: getattr(self, name) for name in self.__dataclass_fields__ if name != "results"}
        return {**facts, "groups": [_plain(each, whole=False) for each in self.results]}


class CardFolder:
    """The folder of a card on disk."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def features(self) -> Path:
        return own_folder(self.path, "features")

    def write(self, result: GroupResult) -> None:
        """Save the results of a group; the JSON file is written last, so that a result is complete or absent."""
        for folder in (own_folder(self.path, "groups"), own_folder(self.path, "pictures")):
            atomic.make_folder(folder)
        for picture in result.findings.pictures:
            atomic.write_bytes(self._picture(result.group, picture.name), picture.png)
        contributions = {
            number.name: number.contributions for number in result.findings.numbers if number.contributions is not None
        }
        content = to_bytes(contributions)
        atomic.write_bytes(self._group(result.group, ".safetensors"), content)
        plain = {"format": FORMAT, **_plain(result, whole=True), "contributions": hashlib.sha256(content).hexdigest()}
        atomic.write_json(self._group(result.group, ".json"), with_checksum(plain))

    def read(self, group: str, key: str) -> GroupResult | None:
        """Return the saved results of a group; None if there are none, they are damaged, or have another key."""
        try:
            content = read_json(self._group(group, ".json"))
            stored = typed(content, GroupResult)
            if (stored.group, stored.key) != (group, key) or content.get("format") != FORMAT:
                return None
            saved = read_regular(self._group(group, ".safetensors"), _LARGEST)
            if content.get("contributions") != hashlib.sha256(saved).hexdigest():
                return None
            contributions, findings = from_bytes(saved), stored.findings
            pictures = tuple(
                replace(each, png=read_regular(self._picture(group, each.name), _LARGEST)) for each in findings.pictures
            )
        except (OSError, ValueError, RunError, SafetensorError):
            return None
        numbers = tuple(replace(each, contributions=contributions.get(each.name)) for each in findings.numbers)
        return replace(stored, findings=replace(findings, numbers=numbers, pictures=pictures))

    def _group(self, group: str, ending: str) -> Path:
        return own_folder(self.path, "groups") / f"{_checked(group)}{ending}"

    def _picture(self, group: str, name: str) -> Path:
        return own_folder(self.path, "pictures") / f"{_checked(group)}-{_checked(name)}.png"


def _checked(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise ValueError(f"a name of letters, digits and hyphens is needed, got {name!r:.80}")
    return name


def _plain(result: GroupResult, *, whole: bool) -> JsonObject:
    """Return a result as plain values; plots only if ``whole``, pixels and contributions never."""
    findings = result.findings
    numbers = [
        {name: value for name, value in vars(number).items() if name != "contributions"} for number in findings.numbers
    ]
    plain: JsonObject = {
        "numbers": numbers,
        "tables": [asdict(table) for table in findings.tables],
        "pictures": [{"name": each.name, "title": each.title, "note": each.note} for each in findings.pictures],
        "remarks": list(findings.remarks),
    }
    if whole:
        from plotly.utils import PlotlyJSONEncoder

        plain["plots"] = json.loads(json.dumps([vars(each) for each in findings.plots], cls=PlotlyJSONEncoder))
    rest: JsonObject = {"problem": result.problem, "failed": result.failed} if result.problem else {}
    return {"group": result.group, "key": result.key, "seconds": result.seconds, "findings": plain, **rest}

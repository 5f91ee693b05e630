"""The result of a finished run: the content of its result.json, typed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ebclab.config.yaml_text import JsonObject
from ebclab.errors import RunError
from ebclab.optimization.schedules import Extension
from ebclab.storage import atomic
from ebclab.storage.reading import read_json, typed, with_checksum

_FORMAT = 1
_NO_RESULT = "not the result of a run"
_WAY_OUT = "delete the file, and the command that made the run writes it again"


@dataclass(frozen=True)
class BestScore:
    """The best value of the run's objective on held-out images."""

    objective: str  # name of the objective
    value: float  # the value; higher is better
    epoch: int  # epochs done when it was measured
    step: int  # optimizer steps done when it was measured


@dataclass(frozen=True)
class Throughput:
    """Images per second of training."""

    mean: float  # mean over the measured intervals
    std: float  # standard deviation over them

    @classmethod
    def of(cls, rates: Sequence[float]) -> Throughput | None:
        """Return the speed over intervals but the first, which includes one-off costs; None without an interval."""
        counted = rates[1:] or rates
        if not counted:
            return None
        mean = sum(counted) / len(counted)
        return cls(mean, (sum((rate - mean) ** 2 for rate in counted) / len(counted)) ** 0.5)


@dataclass(frozen=True, kw_only=True)
class RunSummary:
    """The result of a finished run."""

    method: str  # name of the method
    dataset: str  # name of the dataset
    seed: int  # seed of the run
    epochs: int  # epochs trained
    steps: int  # optimizer steps trained
    batch_size: int  # images per step
    train_images: int  # number of images trained on
    holdout_images: int  # number of images held out
    average_weights: float = 0.0  # decay of the average of weights that was scored; 0: the last weights were
    scores: dict[str, float]  # newest held-out scores by name; empty if nothing was scored
    # held-out kNN of raw pixels and of the untrained encoder, by name; empty if not measured
    references: dict[str, float] = field(default_factory=dict)
    best: BestScore | None  # best value of the objective; None if nothing was scored
    metrics: dict[str, float] | None  # newest training metrics by name; None if nothing was logged
    # every decision and finding about the run's health, oldest first
    health: list[dict[str, Any]] = field(default_factory=list)
    extensions: list[Extension] = field(default_factory=list)  # every extension of the run to more epochs, oldest first
    images_per_second: Throughput | None  # training speed; None if the run was too short to measure it
    seconds: float  # training time over all launches
    monitor_seconds: float = 0.0  # part of it that was spent in monitors
    parameters: int  # number of parameters of the encoder
    checkpoint: str | None  # newest checkpoint, relative to the run folder; None if there is none
    finished: str  # when the run finished, UTC, as ISO 8601

    def to_mapping(self) -> JsonObject:
        """Return the content of result.json as plain values."""
        return {"format": _FORMAT, **asdict(self)}

    @classmethod
    def of_mapping(cls, content: object, where: str) -> RunSummary:
        """Return the summary that ``to_mapping`` turned into ``content``; messages call its file ``where``.

        Older versions wrote no ``health``, and the key ``holdout_knn`` in place of ``scores``.
        """
        try:
            return typed(_renewed(content) if isinstance(content, Mapping) else content, cls)
        except ValueError as error:
            raise RunError(f"{where}: {_NO_RESULT}, got {error}; {_WAY_OUT}") from error

    def write(self, path: Path) -> None:
        """Write the file at ``path`` atomically, with a checksum of its content."""
        atomic.write_json(path, with_checksum(self.to_mapping()))

    @classmethod
    def read(cls, path: str | Path, where: str) -> RunSummary:
        """Return the summary in the file at ``path``; messages call the file ``where``."""
        content = read_json(path, where, what=_NO_RESULT, remedy=_WAY_OUT)
        return cls.of_mapping(content, where)


def _renewed(content: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return ``content`` with ``scores``: older versions measured one score and called it ``holdout_knn``."""
    if "scores" in content or "holdout_knn" not in content:
        return content
    name = "holdout_knn"
    score, best = content[name], content.get("best")
    renewed = {**content, "scores": {} if score is None else {name: score}}
    if isinstance(best, Mapping) and name in best:
        renewed["best"] = {**best, "objective": name, "value": best[name]}
    return renewed

"""The result of a finished run: the content of its result.json, typed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ebclab.errors import RunError
from ebclab.optimization.schedules import Extension
from ebclab.storage import atomic
from ebclab.storage.checksum import with_checksum
from ebclab.storage.reading import read_json
from ebclab.storage.typed_json import typed

_FORMAT = 1
_NO_RESULT = "not the result of a run"
_WAY_OUT = "delete the file, and the command that made the run writes it again"


@dataclass(frozen=True)
class BestScore:
    """The best value of the run's objective on held-out images.

    Attributes:
        objective: Name of the objective.
        value: The value; higher is better.
        epoch: Epochs done when it was measured.
        step: Optimizer steps done when it was measured.
    """

    objective: str
    value: float
    epoch: int
    step: int


@dataclass(frozen=True)
class Throughput:
    """Images per second of training.

    Attributes:
        mean: Mean over the measured intervals.
        std: Standard deviation over them.
    """

    mean: float
    std: float


@dataclass(frozen=True, kw_only=True)
class RunSummary:
    """The result of a finished run.

    Attributes:
        method: Name of the method.
        dataset: Name of the dataset.
        seed: Seed of the run.
        epochs: Epochs trained.
        steps: Optimizer steps trained.
        batch_size: Images per step.
        train_images: Number of images trained on.
        holdout_images: Number of images held out.
        scores: Newest held-out scores by name; empty if nothing was scored.
        best: Best value of the objective; None if nothing was scored.
        metrics: Newest training metrics by name; None if nothing was logged.
        health: Every decision and finding about the run's health, oldest first.
        extensions: Every extension of the run to more epochs, oldest first.
        images_per_second: Training speed; None if the run was too short to measure it.
        seconds: Training time over all launches.
        monitor_seconds: Part of it that was spent in monitors.
        parameters: Number of parameters of the encoder.
        checkpoint: Newest checkpoint, relative to the run folder; None if there is none.
        finished: When the run finished, UTC, as ISO 8601.
    """

    method: str
    dataset: str
    seed: int
    epochs: int
    steps: int
    batch_size: int
    train_images: int
    holdout_images: int
    scores: dict[str, float]
    best: BestScore | None
    metrics: dict[str, float] | None
    health: list[dict[str, Any]] = field(default_factory=list)
    extensions: list[Extension] = field(default_factory=list)
    images_per_second: Throughput | None
    seconds: float
    monitor_seconds: float = 0.0
    parameters: int
    checkpoint: str | None
    finished: str

    def to_mapping(self) -> dict[str, Any]:
        """Return the content of result.json as plain values."""
        return {"format": _FORMAT, **asdict(self)}

    @classmethod
    def of_mapping(cls, content: object, where: str) -> RunSummary:
        """Return the summary that ``to_mapping`` turned into ``content``.

        Args:
            content: Plain values, also those of older versions: without ``health``, or with the key ``holdout_knn`` in
                place of ``scores``.
            where: Name of the file in messages.
        """
        try:
            return typed(_renewed(content) if isinstance(content, Mapping) else content, cls)
        except ValueError as error:
            raise _not_a_result(where, error) from error

    def write(self, path: Path) -> None:
        """Write the file at ``path`` atomically, with a checksum of its content."""
        atomic.write_json(path, with_checksum(self.to_mapping()))

    @classmethod
    def read(cls, path: Path, where: str) -> RunSummary:
        """Return the summary in the file at ``path``; messages call the file ``where``."""
        content = read_json(path, where, what=_NO_RESULT, way_out=_WAY_OUT)
        return cls.of_mapping(content, where)


def _not_a_result(where: str, error: ValueError) -> RunError:
    return RunError(f"{where}: {_NO_RESULT}, got {error}; {_WAY_OUT}")


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

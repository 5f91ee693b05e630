"""A run read from its folder, finished or not: settings, measurements as tables, events. Writes nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from ebclab.config import load_yaml_file, to_mapping
from ebclab.config.addresses import name_hosts
from ebclab.config.experiment import flat
from ebclab.errors import ConfigError
from ebclab.methods_by_name import Methods
from ebclab.runs.environment import read_environment
from ebclab.runs.folder import ENVIRONMENT, RunFolder
from ebclab.runs.summary import RunSummary, Throughput

Table = dict[str, list[float | None]]
"""Columns of equal length by name, the first of them ``step``; None where a row has no such number."""

_NOT_FINITE = {"nan": float("nan"), "inf": float("inf"), "-inf": float("-inf")}  # strings in the log


@dataclass(frozen=True)
class RunRecord:
    """Everything that the folder of a run says about it."""

    name: str  # name of the run: that of its folder
    folder: RunFolder
    settings: Mapping[str, Any]  # its settings by dotted key
    state: Literal["running", "finished", "unfinished"]  # running, finished, or unfinished if no process trains it now
    summary: RunSummary | None  # result of the finished run; None before
    environment: Mapping[str, Any]  # machine and versions of its first launch; empty if they cannot be read
    metrics: Table  # one row a log step: ``step``, ``epoch`` (from 0), ``seconds`` of training so far, and the metrics
    scores: Table  # one row a scored epoch: ``step``, ``epoch`` (epochs done), ``seconds``, and the held-out scores
    callbacks: Table  # one row a step at which callbacks measured something, with columns CALLBACK/NUMBER
    # starts, resumes, findings and decisions on its health, warnings and failures, oldest first
    events: tuple[Mapping[str, Any], ...]

    @property
    def epochs(self) -> int:
        epochs = self.settings.get("training.epochs")
        return epochs if isinstance(epochs, int) else 0

    @property
    def step(self) -> int:
        """The newest logged step; 0 before the first."""
        return int(max((table["step"][-1] or 0 for table in (self.metrics, self.scores) if table["step"]), default=0))

    @cached_property
    def steps_per_epoch(self) -> float | None:
        """Optimizer steps of an epoch; None if no launch has logged the number of steps."""
        total = next((event["num_steps"] for event in reversed(self.events) if "num_steps" in event), 0)
        return total / self.epochs if total and self.epochs else None

    @property
    def epochs_done(self) -> float:
        """Epochs trained according to the log, with fractions."""
        if self.summary is not None:
            return self.summary.epochs
        return self.step / self.steps_per_epoch if self.steps_per_epoch else 0

    @property
    def seconds(self) -> float | None:
        """Training time over all launches, seconds; None before anything was logged."""
        if self.summary is not None:
            return self.summary.seconds
        known = [table["seconds"][-1] for table in (self.metrics, self.scores) if table.get("seconds")]
        return max((value for value in known if value is not None), default=None)

    @property
    def images_per_second(self) -> Throughput | None:
        """Training speed; of an unfinished run, from its log; None if unknown."""
        if self.summary is not None:
            return self.summary.images_per_second
        return Throughput.of([rate for rate in self.metrics.get("images_per_second", []) if rate is not None])


def open_run(path: str | Path, methods: Methods | None = None) -> RunRecord:
    """Read a run, finished or not, from its folder or its address in an object store.

    Settings of own ``methods`` are completed with present defaults; those of unknown methods are returned as written.

    Raises:
        RunError: There is no run, or a file of it is damaged.
        ConfigError: Its settings are not YAML.
    """
    name_hosts(path)
    run = RunFolder.at(path).of("reader").pull()
    run.require_run()
    is_held = run.is_held
    summary = run.read_result()
    rows: dict[str, dict[int, dict[str, float]]] = {"train": {}, "epoch": {}, "callback": {}}
    events = []
    for record in run.metrics.records():
        if record["kind"] == "event":
            events.append(record)
        else:
            _add(rows[record["kind"]], record)
    return RunRecord(
        name=run.path.name,
        folder=run,
        settings=flat(_settings(run, methods)),
        state="running" if is_held else "unfinished" if summary is None else "finished",
        summary=summary,
        environment=read_environment(run.path / ENVIRONMENT),
        metrics=_table(rows["train"]),
        scores=_table(rows["epoch"]),
        callbacks=_table(rows["callback"]),
        events=tuple(events),
    )


def _settings(run: RunFolder, methods: Methods | None) -> Mapping[str, Any]:
    """Return the settings, completed with present defaults; as written if this version does not know them."""
    try:
        return to_mapping(run.read_config(methods))
    except ConfigError:
        return load_yaml_file(run.config_path, run.address_of(run.config_path))


def _add(rows: dict[int, dict[str, float]], record: Mapping[str, Any]) -> None:
    """Add a measurement; an earlier step than the last one means that the run went back, so later rows are dropped."""
    step = record["step"]
    if rows and step < next(reversed(rows)):
        for later in [known for known in rows if known >= step]:
            del rows[later]
    values = {name: _number(value) for name, value in record.items() if name not in ("kind", "step")}
    rows.setdefault(step, {}).update({name: value for name, value in values.items() if value is not None})


def _number(value: object) -> float | None:
    """Return a number of the log; None for anything else."""
    if isinstance(value, str):
        return _NOT_FINITE.get(value)
    return value if isinstance(value, int | float) else None


def _table(rows: Mapping[int, Mapping[str, float]]) -> Table:
    names = dict.fromkeys(name for row in rows.values() for name in row)
    return {"step": list(rows), **{name: [row.get(name) for row in rows.values()] for name in names}}

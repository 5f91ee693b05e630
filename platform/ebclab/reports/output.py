"""Write a report about sweeps: the page, and the same facts as CSV and JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ebclab.config.addresses import is_address
from ebclab.document.csv import as_csv
from ebclab.document.document import Table
from ebclab.document.html import as_page
from ebclab.errors import UserError
from ebclab.interval import Interval
from ebclab.reports.document import sweeps_document
from ebclab.reports.place import page_place
from ebclab.reports.reading import SweepRecord, read_sweep
from ebclab.reports.sections import SweepContent, lead, section
from ebclab.reports.together import require_one_objective
from ebclab.sweeps.log import finite
from ebclab.sweeps.plan import SweepPlan
from ebclab.sweeps.results import ConfirmedSettings, readings_of_test_set

_COLUMNS = (
    "sweep",
    "trial",
    "kind",
    "rank",
    "state",
    "reason",
    "objective",
    "epochs_done",
    "epochs",
    "seconds",
    "seed",
)


def write_report(
    folders: Sequence[str | Path], to: str | Path | None = None, price: float | None = None
) -> tuple[str, list[str]]:
    """Write the report of one or several sweeps; return the path or address of the page, and notes on unreadable data.

    Args:
        folders: Sweeps, finished or not: folders, or addresses in an object store.
        to: File or address of the page; the CSV and JSON files have the same name with other endings. None means
            report.html in the sweep's folder, or sweeps.html in the current folder for several sweeps.
        price: Price of one GPU-hour, in any currency; None if unknown.
    """
    problems = [] if price is None or price >= 0 else [f"--price-per-gpu-hour: must not be negative, got {price:g}"]
    if problems:
        raise UserError(problems[0])
    unique = list(dict.fromkeys(str(each) if is_address(str(each)) else Path(each).absolute() for each in folders))
    records = [read_sweep(each) for each in unique]
    require_one_objective(records)
    place = page_place(to, [record.folder for record in records], "sweeps.html")
    page = place.path
    parts = [section(record, price) for record in records]
    document = sweeps_document(parts, page.with_suffix(".csv").name, page.with_suffix(".json").name)
    texts = {
        ".csv": _csv(records),
        ".json": json.dumps(finite([_facts(part) for part in parts]), allow_nan=False) + "\n",
        page.suffix: as_page(document),
    }
    return place.write(texts), [note for record in records for note in record.notes]


def _csv(records: Sequence[SweepRecord]) -> str:
    """Return one line per trial; settings that a sweep did not search are empty."""
    names = list(dict.fromkeys(name for record in records for name in record.plan.space.by_name))
    columns = (*_COLUMNS, *names)
    trials = [{"sweep": record.name, **row, **row["settings"]} for record in records for row in trial_rows(record)]
    return as_csv(Table("", columns, tuple(tuple(trial.get(column) for column in columns) for trial in trials)))


def trial_rows(record: SweepRecord) -> list[dict[str, Any]]:
    """Return every trial as plain values, in the order of their proposal, with its last objective."""
    ranks = {trial.id: rank for rank, trial in enumerate(record.order, start=1)}
    return [
        {
            "trial": trial.id,
            "kind": trial.kind,
            "rank": ranks.get(trial.id),
            "state": trial.state,
            "reason": trial.reason,
            "objective": trial.last.objective if trial.last else None,
            "epochs_done": trial.epochs_done,
            "epochs": trial.epochs,
            "seconds": trial.seconds,
            "seed": trial.seed,
            "settings": trial.settings,
        }
        for trial in record.log.trials.values()
    ]


def _facts(part: SweepContent) -> dict[str, Any]:
    """Return everything on the page about a sweep, and all of its curves, as plain values."""
    record = part.record
    curves = {
        trial.id: {
            str(epoch): {"objective": point.objective, "seconds": point.seconds, "metrics": point.metrics}
            for epoch, point in sorted(trial.curve.items())
        }
        for trial in record.log.trials.values()
    }
    return {
        "sweep": record.name,
        "path": record.folder.address,
        "is_finished": record.is_finished,
        "answer": lead(part),
        "facts": part.facts,
        "objective": record.objective,
        "confirmed": [
            _confirmed(entry, gap, record.plan) for entry, gap in zip(part.confirmed, part.differences, strict=True)
        ],
        "test": part.test and {probe: score.to_mapping() for probe, score in part.test.items()},
        "test_of_start": part.test_of_start
        and {probe: score.to_mapping() for probe, score in part.test_of_start.items()},
        "test_gain": {probe: _gap(gap) for probe, gap in part.test_gain.items()},
        "references": [
            {"probe": each.probe, "name": each.name, **each.value.as_mean(), "winner_over_it": _gap(each.difference)}
            for each in part.references
        ],
        "test_readings": readings_of_test_set(record.log),
        "commands": part.commands,
        "importance": part.shares,
        "saved_by_early_stopping": asdict(part.saved),
        "cost": asdict(part.cost) | {"money": part.cost.money},
        "measured": part.measured,
        "notes": list(record.notes),
        "trials": [{**row, "curve": curves[row["trial"]]} for row in trial_rows(record)],
    }


def _confirmed(entry: ConfirmedSettings, gap: Interval | None, plan: SweepPlan) -> dict[str, Any]:
    """Return confirmed settings as plain values, with their difference from the winner."""
    return {
        "source": entry.source,
        "settings": entry.settings,
        "seeds": entry.seeds,
        "values": entry.values,
        "seeds_asked": entry.seeds_asked,
        "mean": entry.mean,
        "low": entry.low,
        "high": entry.high,
        "is_start": entry.is_start(plan),
        "images": entry.images,
        "below_winner": _gap(gap),
    }


def _gap(gap: Interval | None) -> dict[str, Any] | None:
    """Return a difference as plain values."""
    return gap.as_difference() | {"is_noise": gap.is_noise} if gap else None

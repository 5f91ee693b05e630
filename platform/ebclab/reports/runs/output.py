"""Write the page about runs, and the same facts as CSV and JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ebclab.document.csv import as_csv
from ebclab.document.document import CellValue, Table
from ebclab.document.html import as_page
from ebclab.reports.place import page_place
from ebclab.reports.runs.document import runs_document
from ebclab.reports.runs.facts import facts, open_runs
from ebclab.runs.record import RunRecord
from ebclab.sweeps.log import finite

_ORDER = ("step", "epoch", "seconds")


def write_run_report(places: Sequence[str | Path], to: str | Path | None = None) -> str:
    """Write the page about one or several runs; return its path or address.

    Args:
        places: Runs, finished or not: folders, or addresses in an object store.
        to: File or address of the page; the CSV and JSON files have the same name with other endings. None means
            report.html in the run's folder, or runs.html in the current folder for several runs.
    """
    records = open_runs(places)
    place = page_place(to, [record.folder for record in records], "runs.html")
    page = place.path
    document = runs_document(records, page.with_suffix(".csv").name, page.with_suffix(".json").name)
    return place.write(
        {
            ".csv": _csv(records),
            ".json": json.dumps(finite([_plain(record) for record in records]), allow_nan=False) + "\n",
            page.suffix: as_page(document),
        }
    )


def _csv(records: Sequence[RunRecord]) -> str:
    """Return one line per measurement of each run; missing values are empty."""
    tables = [(r.name, kind, getattr(r, kind)) for r in records for kind in ("metrics", "scores", "callbacks")]
    names = dict.fromkeys([*_ORDER, *(name for _, _, table in tables for name in table)])
    rows: list[tuple[CellValue, ...]] = []
    for run, kind, table in tables:
        columns = [table.get(name, [None] * len(table["step"])) for name in names]
        rows += [(run, kind, *values) for values in zip(*columns, strict=True)]
    return as_csv(Table("", ("run", "table", *names), tuple(rows)))


def _plain(record: RunRecord) -> dict[str, Any]:
    """Return everything on the page about a run, and all of its measurements, as plain values."""
    return {
        "run": record.name,
        "path": record.folder.address,
        "state": record.state,
        "facts": facts(record),
        "settings": dict(record.settings),
        "environment": dict(record.environment),
        "summary": record.summary and record.summary.to_mapping(),
        "metrics": record.metrics,
        "scores": record.scores,
        "callbacks": record.callbacks,
        "events": [dict(event) for event in record.events],
    }

"""Write the page about runs, and the same facts as CSV and JSON."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ebclab.formatting import clock, count, csv_table
from ebclab.reports.html import page_frame, templates
from ebclab.reports.place import page_place
from ebclab.reports.runs.curves import MOST_POINTS, curves, is_thinned, look
from ebclab.reports.runs.facts import (
    differing,
    events_in_words,
    facts,
    newest_scores,
    num_apart,
    open_runs,
    score_in_words,
    shown_number,
    speed,
    state_in_words,
)
from ebclab.runs.record import RunRecord
from ebclab.sweeps.log import finite

_ORDER = ("step", "epoch", "seconds")


def write_run_report(places: Sequence[str | Path], to: str | Path | None = None) -> str:
    """Write the page about one or several runs; return its path or address.

    Args:
        places: Runs, finished or not: folders, or addresses in an object store.
        to: File or address of the page; the CSV and JSON files have the same name with other endings. None means
            report.html in the run's folder, or runs.html in the current folder for several runs.

    Raises:
        UserError: A folder is not a run, one of its files is damaged, or the page cannot be written.
    """
    records = open_runs(places)
    place = page_place(to, [record.folder for record in records], "runs.html")
    page = place.path
    return place.write(
        {
            ".csv": _csv(records),
            ".json": json.dumps(finite([_plain(record) for record in records]), allow_nan=False) + "\n",
            page.suffix: _render(records, page.with_suffix(".csv").name, page.with_suffix(".json").name),
        }
    )


def _render(records: Sequence[RunRecord], csv_name: str, json_name: str) -> str:
    newest = [newest_scores(record) for record in records]
    names = list(dict.fromkeys(name for scores in newest for name in scores))
    return (
        templates("ebclab.reports")
        .get_template("runs.html.j2")
        .render(
            records=records,
            facts=[facts(record) for record in records],
            newest=newest,
            scores=names,
            score_in_words=score_in_words,
            shown_number=shown_number,
            speed=speed,
            state_in_words=state_in_words,
            clock=clock,
            differing=differing(records),
            apart=num_apart(records),
            count=count,
            events=[(record.name, events_in_words(record)) for record in records],
            commands=[_command(record) for record in records],
            looks=[look(number) for number in range(len(records))],
            plots=curves(records),
            most_points=MOST_POINTS if is_thinned(records) else 0,
            csv_name=csv_name,
            json_name=json_name,
            **page_frame(),
        )
    )


def _command(record: RunRecord) -> str:
    """Return the command that trains a run with the same settings under another name."""
    folder = record.folder
    settings = str(folder.config_path) if folder.remote is None else (folder.remote / folder.config_path.name).address
    method = str(record.settings.get("method.name", ""))
    return shlex.join(["ebclab", "pretrain", method, "--config", settings, "--name", "ANOTHER"])


def _csv(records: Sequence[RunRecord]) -> str:
    """Return one line per measurement of each run; missing values are empty."""
    tables = [(r.name, kind, getattr(r, kind)) for r in records for kind in ("metrics", "scores", "callbacks")]
    names = dict.fromkeys([*_ORDER, *(name for _, _, table in tables for name in table)])
    rows: list[list[Any]] = [["run", "table", *names]]
    for run, kind, table in tables:
        columns = [table.get(name, [None] * len(table["step"])) for name in names]
        rows += [[run, kind, *values] for values in zip(*columns, strict=True)]
    return csv_table(rows)


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

"""The document of one run, or of several side by side; the same facts as CSV and JSON."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from ebclab.document.document import (
    Block,
    CellValue,
    Command,
    Document,
    Facts,
    Items,
    MarkedTable,
    Plots,
    Remark,
    RichText,
    Section,
    Table,
    numeric,
)
from ebclab.formatting import count
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

_ORDER = ("step", "epoch", "seconds")
_SETTINGS = ("method", "data", "encoder", "seed")


def runs_document(records: Sequence[RunRecord], page: Path) -> Document:
    """Return the document of runs for a page."""
    several = len(records) > 1
    csv_name, json_name = (page.with_suffix(suffix).name for suffix in (".csv", ".json"))
    title = f"{len(records)} runs side by side" if several else records[0].name
    events = [(record.name, events_in_words(record)) for record in records]
    lists = [Items(tuple(lines), name if several else "") for name, lines in events if lines]
    sections = [
        Section(title, tuple(_states(records)), is_head=True),
        Section("Results", (_results(records),)) if several else Section("The run", _run(records[0])),
        Section("Settings that differ", (_differing(records),) if several else ()),
        Section("Curves", tuple(_curves(records, csv_name))),
        Section("Events", tuple(lists)),
        Section("Machines and time", (_machines(records),) if several else ()),
    ]
    files = (
        f"All numbers: {csv_name} (one line a measurement) and {json_name}, beside this page. Times are h:mm:ss of "
        "training, over all launches."
    )
    names = ", ".join(record.name for record in records)
    return Document(names, "report", "runs" if several else "run", tuple(sections), files)


def _states(records: Sequence[RunRecord]) -> Iterator[Block]:
    """Yield what is known of runs that have not finished; of one alone, its facts say that it has."""
    for record in records:
        if record.state == "running":
            log = f"{record.name} is running: shown is its log up to step {record.step}."
            yield Remark(f"{log} Repeat the command to refresh this page, or let --watch do so.", "running")
        elif record.state != "finished":
            goes_on = "The command that made it resumes from its last checkpoint."
            yield Remark(f"{record.name}: {state_in_words(record)}. {goes_on}", "status")


def _name(records: Sequence[RunRecord], number: int) -> RichText:
    return RichText(records[number].name, swatch=look(number).border)


def _run(record: RunRecord) -> tuple[Block, ...]:
    return Facts.of(facts(record)), Command("The same settings again", _command(record))


def _results(records: Sequence[RunRecord]) -> Table:
    """Return the newest scores, speed and time of each run."""
    newest = [newest_scores(record) for record in records]
    scores = list(dict.fromkeys(name for each in newest for name in each))
    rows = []
    for number, (record, known) in enumerate(zip(records, newest, strict=True)):
        told, rate = facts(record), record.images_per_second
        values: list[CellValue] = [
            numeric(shown_number(name, known[name]), known[name] if known[name] == known[name] else "")
            if name in known
            else None
            for name in scores
        ]
        values += [
            numeric(told["epochs"], record.epochs_done),
            numeric(speed(record), rate.mean if rate else ""),
            numeric(told["time"], "" if record.seconds is None else record.seconds),
        ]
        rows.append((_name(records, number), *values, record.state, *(told[name] for name in _SETTINGS)))
    heads = ("run", *map(score_in_words, scores), "epochs", "images a second", "time", "state", *_SETTINGS)
    note = (
        "Click a heading to sort. Scores are the newest ones on held-out training images; runs of one seed each, so "
        "small differences may be chance."
    )
    return MarkedTable("", heads, tuple(rows), note, is_sortable=True)


def _differing(records: Sequence[RunRecord]) -> Block:
    told = differing(records)
    if not told:
        return Remark("None but those above.")
    apart = num_apart(records)
    but = f", except for {count(apart, 'setting')} that not all of these methods have" if apart else ""
    note = (
        f"All others are equal{but}; method, data, encoder, epochs and seed are elsewhere on this page. A dash: the "
        "run has no such setting."
    )
    rows = tuple((key, *(value or "–" for value in values)) for key, values in told.items())
    return Table("", ("setting", *(record.name for record in records)), rows, note)


def _curves(records: Sequence[RunRecord], csv_name: str) -> Iterator[Block]:
    drawn, several = curves(records), len(records) > 1
    if not drawn:
        yield Remark("Nothing was logged yet.")
        return
    yield Plots(tuple(drawn), tuple(_name(records, number) for number in range(len(records))) if several else ())
    hides = "A name above hides and shows its curves. " if several else ""
    thinned = f" Curves are thinned evenly to {MOST_POINTS} points; {csv_name} has all." if is_thinned(records) else ""
    marks = "Losses of different methods do not compare. Red triangles: findings and decisions on the run's health."
    yield Remark(f"{hides}{marks}{thinned}", "note")


def _machines(records: Sequence[RunRecord]) -> Table:
    names = ("state", "time", "machine", "versions", "commit")
    told = [facts(record) for record in records]
    rows: list[tuple[CellValue, ...]] = [
        (record.name, *(each[name] for name in names), RichText(_command(record), is_code=True))
        for record, each in zip(records, told, strict=True)
    ]
    return Table("", ("run", *names, "the same settings again"), tuple(rows))


def _command(record: RunRecord) -> str:
    """Return the command that trains a run with the same settings under another name."""
    folder = record.folder
    settings = str(folder.config_path) if folder.remote is None else (folder.remote / folder.config_path.name).address
    method = str(record.settings.get("method.name", ""))
    return shlex.join(["ebclab", "pretrain", method, "--config", settings, "--name", "ANOTHER"])


def write_run_report(places: Sequence[str | Path], to: str | Path | None = None) -> str:
    """Write the page about one or several runs, as ``report`` does; return its path or address."""
    records = open_runs(places)
    place = page_place(to, [record.folder for record in records], "runs.html")
    return place.write(runs_document(records, place.path), _measurements(records), [_plain(each) for each in records])


def _measurements(records: Sequence[RunRecord]) -> Table:
    """Return a row for each measurement of each run; missing values are empty."""
    tables = [(r.name, kind, getattr(r, kind)) for r in records for kind in ("metrics", "scores", "callbacks")]
    names = dict.fromkeys([*_ORDER, *(name for _, _, table in tables for name in table)])
    rows: list[tuple[CellValue, ...]] = []
    for run, kind, table in tables:
        columns = [table.get(name, [None] * len(table["step"])) for name in names]
        rows += [(run, kind, *values) for values in zip(*columns, strict=True)]
    return Table("", ("run", "table", *names), tuple(rows))


def _plain(record: RunRecord) -> dict[str, object]:
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

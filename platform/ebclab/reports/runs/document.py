"""The document of one run, or of several side by side; the same facts as CSV and JSON.

One plot per logged metric, by epochs, with markers at decisions on a run's health.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import plotly.graph_objects as go

from ebclab.config.yaml_text import JsonObject
from ebclab.document.document import (
    Block,
    CellValue,
    Command,
    Document,
    Facts,
    Items,
    MarkedTable,
    Plot,
    Plots,
    Remark,
    RichText,
    Section,
    Table,
    numeric,
)
from ebclab.formatting import count
from ebclab.reports.comparable import as_text
from ebclab.reports.place import page_place
from ebclab.reports.plots import COLOURS, METRICS, RED, drawable, epoch_ticks, plot, thinned
from ebclab.reports.runs.facts import (
    OF_TIME,
    differing,
    event_in_words,
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
from ebclab.runs.record import Table as RecordedTable

MOST_POINTS = 800
"""Maximum number of points per curve; longer curves are thinned evenly, which the page states."""

_DASHES = {"solid": "solid", "dash": "dashed", "dot": "dotted"}  # names in plotly.js and in CSS
_FEW_POINTS = 40  # curves with at most so many points have markers
_LAST = ("learning_rate", "images_per_second")
_WORDS = METRICS | {
    "info_nce": "InfoNCE",
    "learning_rate": "learning rate",
    "images_per_second": "images a second",
}


def look(number: int) -> tuple[str, str]:
    """Return colour and dash of a run's curves, by its index: seven colours with solid lines, then dashed, dotted."""
    return COLOURS[number % len(COLOURS)], [*_DASHES][number // len(COLOURS) % len(_DASHES)]


def curves(records: Sequence[RunRecord]) -> list[Plot]:
    """Return a plot for each metric that a run logged: loss, held-out scores, diagnostics, callbacks, rates."""
    logged, held_out = _names(record.metrics for record in records), _names(record.scores for record in records)
    own = _names(record.callbacks for record in records)
    first = [name for name in ("loss",) if name in logged]
    others = [name for name in logged if name not in (*first, *_LAST)]
    drawn = [(name, "metrics") for name in first] + [(name, "scores") for name in held_out]
    drawn += [(name, "metrics") for name in others] + [(name, "callbacks") for name in own]
    drawn += [(name, "metrics") for name in _LAST if name in logged]
    return [_curve(records, name, kind) for name, kind in drawn]


def _names(tables: Iterable[RecordedTable]) -> list[str]:
    return [name for name in dict.fromkeys(name for table in tables for name in table) if name not in OF_TIME]


def _curve(records: Sequence[RunRecord], name: str, kind: str) -> Plot:
    figure, by_epochs = go.Figure(), all(record.steps_per_epoch for record in records)
    most = 0.0
    for number, record in enumerate(records):
        table: RecordedTable = getattr(record, kind)
        if name not in table:
            continue
        points = _points(table, name)
        x = {step: step / (record.steps_per_epoch or 1) if by_epochs else step for step in points}
        most = max([most, *x.values()])
        colour, dash = look(number)
        run = as_text(record.name)
        figure.add_scatter(
            x=list(x.values()),
            y=[drawable(value) for value in points.values()],
            text=[f"{run}, step {step:,.0f}" for step in points],
            mode="lines+markers" if len(points) <= _FEW_POINTS else "lines",
            line={"color": colour, "dash": dash, "width": 2},
            marker={"size": 5},
            meta=number,
            hovertemplate="%{text}<br>%{y}<extra></extra>",
        )
        if kind == "metrics" and name not in _LAST:
            _mark(figure, record, points, x, number)
    title = {"title": "epochs", **epoch_ticks(most)} if by_epochs else {"title": "steps"}
    figure.update_xaxes(**title, rangemode="tozero")
    is_share = shown_number(name, 1.0).endswith("%")
    figure.update_yaxes(tickformat=".1%" if is_share else "", nticks=6, **_range(figure, is_share))
    made = plot(_title(name, kind), "", figure, height=285)
    made.figure["layout"]["showlegend"] = False
    made.figure["layout"]["margin"] = {"l": 56, "r": 12, "t": 28, "b": 44}
    return made


def _range(figure: go.Figure, is_share: bool) -> JsonObject:
    """Return the range of an axis: shares stay in [0, 1]; a single value gets margins of 5 % (plotly's default: 1)."""
    values = {value for trace in figure.data for value in trace.y if value is not None}
    shares_only = is_share and all(0 <= value <= 1 for value in values)
    if len(values) != 1:
        return {"autorangeoptions": {"clipmin": 0.0, "clipmax": 1.0}} if shares_only else {}
    (value,) = values
    spread = abs(value) / 20 or 0.05
    low, high = value - spread, value + spread
    return {"range": [max(low, 0.0), min(high, 1.0)] if shares_only else [low, high]}


def _title(name: str, kind: str) -> str:
    if kind == "scores":
        return score_in_words(name)
    return _WORDS.get(name, name.replace("_", " ") if kind == "metrics" else name)


def _points(table: RecordedTable, name: str) -> dict[float, float | None]:
    """Return the values of a metric by step, at most ``MOST_POINTS`` of them, including the last one."""
    points = [(step or 0, value) for step, value in zip(table["step"], table[name], strict=True) if value is not None]
    return dict(thinned(points, MOST_POINTS))


def _mark(
    figure: go.Figure,
    record: RunRecord,
    points: Mapping[float, float | None],
    x: Mapping[float, float],
    number: int,
) -> None:
    """Add markers for findings and decisions on the run's health, each at the last point that was logged by then."""
    marks = []
    for event in record.events:
        before = [step for step in points if step <= event["step"]]
        if event.get("event") == "health" and before:
            marks.append((x[before[-1]], points[before[-1]], as_text(event_in_words(event))))
    if marks:
        figure.add_scatter(
            x=[mark[0] for mark in marks],
            y=[mark[1] for mark in marks],
            text=[mark[2] for mark in marks],
            mode="markers",
            marker={"color": RED, "symbol": "triangle-down", "size": 11},
            meta=number,
            hovertemplate="%{text}<extra></extra>",
        )


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
    colour, dash = look(number)
    return RichText(records[number].name, swatch=f"3px {_DASHES[dash]} {colour}")


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
    tables = (table for each in records for table in (each.metrics, each.scores, each.callbacks))
    is_thinned = any(len(table["step"]) > MOST_POINTS for table in tables)
    hides = "A name above hides and shows its curves. " if several else ""
    thinned = f" Curves are thinned evenly to {MOST_POINTS} points; {csv_name} has all." if is_thinned else ""
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

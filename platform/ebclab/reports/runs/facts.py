"""Facts of runs, settings that differ between them, and events as text, for the page and the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

from rich.cells import cell_len

from ebclab.config.check import shown
from ebclab.document.document import Block, Items, Remark, Table
from ebclab.evaluation.objectives import NUMBERS, OBJECTIVES, SHARES
from ebclab.formatting import clock, count, rate
from ebclab.interval import SHARE
from ebclab.runs.environment import machine_in_words, versions_in_words
from ebclab.runs.record import RunRecord, open_run
from ebclab.runs.references import THE
from ebclab.runs.summary import RunSummary
from ebclab.training.health.policy import in_words, open_findings

_KNN = "holdout_knn"
_NARROWEST = 18  # minimum width in cells of a run's column; runs that do not fit continue in another table below
_BETWEEN = 2
_IN_FACTS = ("method.name", "data.name", "encoder.name", "training.epochs", "training.extended", "seed")
OF_TIME = ("step", "epoch", "seconds", "monitor_seconds")
"""Columns of a log that are no measurements."""
_DECISION = {"action", "reason", "acted"}  # keys of a decision on a run's health
_DIGEST = 12  # digits of a hash that are displayed


def open_runs(places: Sequence[str | Path]) -> list[RunRecord]:
    """Return the runs at these places with unique names: the shortest suffixes of their addresses that differ."""
    records = [open_run(place) for place in places]
    parts = [record.folder.address.partition("?")[0].split("/") for record in records]
    for length in range(1, max(map(len, parts)) + 1):
        names = ["/".join(each[-length:]) for each in parts]
        if len(set(names)) == len(names):
            break
    return [replace(record, name=name) for record, name in zip(records, names, strict=True)]


def facts(record: RunRecord) -> dict[str, str]:
    """Return the facts of a run as text, by heading; empty if unknown."""
    decay, summary = _setting(record, "training.average_weights"), record.summary
    return {
        "state": state_in_words(record),
        "method": _setting(record, "method.name"),
        "data": _setting(record, "data.name") + (f", {count(summary.train_images, 'image')}" if summary else ""),
        "encoder": _setting(record, "encoder.name"),
        "seed": _setting(record, "seed"),
        "epochs": f"{record.epochs_done:.4g} of {record.epochs}",
        "steps": f"{record.step:,}",
        "weights": "" if decay in ("", "0") else f"averaged over steps, decay {decay}",
        **scores(record),
        "references": references_in_words(summary) if summary else "",
        "images a second": speed(record),
        "time": "" if record.seconds is None else clock(record.seconds),
        "machine": machine_in_words(record.environment, "a process"),
        "versions": versions_in_words(record.environment),
        "commit": str(record.environment.get("commit") or ""),
        "health": _health(record),
    }


def state_in_words(record: RunRecord) -> str:
    """Return whether the run is running or finished, or else how it ended, as text."""
    if record.state == "running":
        return "running"
    if record.summary is not None:
        return f"finished {_minute(record.summary.finished)}"
    ends = ("started", "resumed", "stopped", "failed")
    last: Mapping[str, Any] = next((event for event in reversed(record.events) if event.get("event") in ends), {})
    if last.get("event") == "failed":
        return f"unfinished, failed at {last.get('reason', 'an unknown step')}"
    if last.get("event") == "stopped":
        return f"unfinished, stopped at step {last['step']}"
    return f"unfinished, broken off after step {record.step}" if record.step else "unfinished, nothing was logged"


def _minute(iso: str) -> str:
    try:
        return f"{datetime.fromisoformat(iso):%Y-%m-%d %H:%M} UTC"
    except ValueError:
        return iso


def scores(record: RunRecord) -> dict[str, str]:
    """Return the latest held-out scores as text, by display name; the objective comes first, with its best value."""
    newest = newest_scores(record)
    objective = record.settings.get("evaluation.objective", "")
    rows = {}
    for name in sorted(newest, key=lambda name: name != objective):
        rows[score_in_words(name)] = shown_number(name, newest[name])
        values = [value for value in record.scores.get(name, []) if value is not None and value == value]
        if name == objective and values:
            best = max(values)
            epoch = record.scores["epoch"][record.scores[name].index(best)]
            rows[score_in_words(name)] += f" (best {shown_number(name, best)} after {count(epoch or 0, 'epoch')})"
    return rows


def references_in_words(summary: RunSummary) -> str:
    """Return the held-out kNN of raw pixels and the untrained encoder, and which of them the run is not above."""
    known, ours = summary.references, summary.scores.get(_KNN)
    numbers = ", ".join(f"{name} {shown_number(_KNN, value)}" for name, value in known.items())
    above = [THE.get(name, name) for name, value in known.items() if ours is not None and ours <= value]
    return f"{numbers}; the run is not above {' and '.join(above)}" if above else numbers


def newest_scores(record: RunRecord) -> dict[str, float]:
    """Return the latest held-out scores by name; those of result.json if the log has none."""
    found = {}
    for name, column in record.scores.items():
        known = [value for value in column if value is not None]
        if name not in OF_TIME and known:
            found[name] = known[-1]
    return found or (dict(record.summary.scores) if record.summary else {})


def score_in_words(name: str) -> str:
    """Return the display name of a held-out score."""
    if name in OBJECTIVES:
        return OBJECTIVES[name]
    return f"held-out {NUMBERS[name].words}" if name in NUMBERS else name


def shown_number(name: str, value: float) -> str:
    """Return a formatted value of a log: shares in per cent, others with four digits."""
    is_share = name in SHARES or (name in NUMBERS and NUMBERS[name].is_share)
    return SHARE.number(value) if is_share else f"{value:.4g}"


def speed(record: RunRecord) -> str:
    """Return images per second as mean +/- standard deviation; empty if unknown."""
    measured = record.images_per_second
    return rate(measured.mean, measured.std) if measured else ""


def differing(records: Sequence[RunRecord]) -> dict[str, list[str]]:
    """Return the settings in which runs differ, except those among the facts, by key: a value for each run.

    Settings that a run of another method or version does not have are empty there. Settings that only some runs have,
    with equal values, are omitted; ``num_apart`` counts them.
    """
    keys = dict.fromkeys(key for record in records for key in record.settings)
    same_data = len({_setting(record, "data.name") for record in records}) == 1
    rows = {}
    for key in keys:
        if key in _IN_FACTS or (key == "data.digest" and not same_data):
            continue
        if len({_setting(record, key) for record in records if key in record.settings}) > 1:
            values = [_setting(record, key) for record in records]
            rows[key] = [value[:_DIGEST] for value in values] if key.endswith("digest") else values
    return rows


def num_apart(records: Sequence[RunRecord]) -> int:
    """Return the number of settings that only some runs have, with equal values."""
    told = differing(records)
    keys = {key for record in records for key in record.settings} - set(told)
    return sum(any(key not in record.settings for record in records) for key in keys)


def event_in_words(event: Mapping[str, Any]) -> str:
    """Return an event of a run's log as one line; empty for uninformative events, e.g. the first start."""
    kind, at, reason = event.get("event"), f"step {event['step']}: ", str(event.get("reason", ""))
    match kind:
        case "health":
            return in_words(event) if event.keys() >= _DECISION else f"health, {at}{reason}"
        case "warning" | "extended":
            return f"{kind}: {event.get('text', '')}"
        case "started":
            return f"started over, its log had reached step {event['reached']}" if "reached" in event else ""
        case "resumed":
            changes = "; ".join(event.get("environment_changes", ()))
            told = f"{at}resumed, its log had reached step {event.get('reached', event['step'])}"
        case "ranks_changed":
            told, changes = f"{at}{event.get('before')} workers before, {event.get('now')} from here", ""
        case _:
            told, changes = f"{at}{str(kind).replace('_', ' ')}", reason
    return "; ".join(filter(None, (told, changes)))


def events_in_words(record: RunRecord) -> list[str]:
    """Return the events of a run as lines, oldest first, without duplicates."""
    return list(dict.fromkeys(line for line in map(event_in_words, record.events) if line))


def _setting(record: RunRecord, key: str) -> str:
    if key not in record.settings:
        return ""
    value = record.settings[key]
    return f"{value:.6g}" if isinstance(value, float) else value if isinstance(value, str) else shown(value)


def _health(record: RunRecord) -> str:
    """Return what is still wrong with a run, and how many decisions were made about its sampler."""
    events = [event for event in record.events if event.get("event") == "health"]
    made = sum("finding" not in event for event in events)
    return "; ".join([*open_findings(events).values(), *([count(made, "decision")] if made else [])])


def side_by_side(records: Sequence[RunRecord], width: int) -> Iterator[Block]:
    """Yield tables with a column for each run, of facts and of the settings that differ, then the events.

    A line is ``width`` cells wide.
    """
    told = [facts(record) for record in records]
    rows = {name: [each.get(name, "") for each in told] for name in dict.fromkeys(key for each in told for key in each)}
    rows, differences = {name: row for name, row in rows.items() if any(row)}, differing(records)
    label = min(max(map(cell_len, (*rows, *differences))), width // 2)
    at_once = max((width - label) // (_NARROWEST + _BETWEEN), 1)
    for start in range(0, len(records), at_once):
        part = slice(start, start + at_once)
        names = [record.name for record in records[part]]
        yield _table("", names, rows, part)
        if differences:
            yield _table("settings that differ", names, differences, part)
    if apart := num_apart(records):
        yield Remark(f"and {count(apart, 'setting')} that not all of these methods have: config.yaml")
    for record in records:
        if events := events_in_words(record):
            yield Items(tuple(events), f"events of {record.name}")


def _table(title: str, names: Sequence[str], rows: Mapping[str, Sequence[str]], part: slice) -> Table:
    lines = tuple((name, *(text or "-" for text in row[part])) for name, row in rows.items())
    return Table(title, ("run", *names), lines)

"""What a page and a terminal show of a run: facts, settings that differ from other runs, and events in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

from ebclab.config.check import shown
from ebclab.evaluation.monitors.numbers import NUMBERS
from ebclab.evaluation.objectives import OBJECTIVES, SHARES, shown_score
from ebclab.formatting import clock, count
from ebclab.reports.machine import machine_in_words, versions_in_words
from ebclab.runs.record import RunRecord, open_run
from ebclab.training.health.record import in_words

_IN_FACTS = ("method.name", "data.name", "encoder.name", "training.epochs", "training.extended", "seed")
_NO_SCORES = ("step", "epoch", "seconds", "monitor_seconds")
_DECISION = {"action", "reason", "acted"}  # keys of a decision on a run's health
_DIGEST = 12  # digits of a hash that people compare


def open_runs(places: Sequence[str | Path]) -> list[RunRecord]:
    """Return the runs at these places, with names that tell them apart: as much of their addresses as that needs.

    Raises:
        UserError: A place is no run, or a file of it is damaged.
    """
    records = [open_run(place) for place in places]
    parts = [record.folder.address.partition("?")[0].split("/") for record in records]
    for length in range(1, max(map(len, parts)) + 1):
        names = ["/".join(each[-length:]) for each in parts]
        if len(set(names)) == len(names):
            break
    return [replace(record, name=name) for record, name in zip(records, names, strict=True)]


def facts(record: RunRecord) -> dict[str, str]:
    """Return what is told of a run, by heading; empty where nothing is known."""
    rows = {
        "state": state_in_words(record),
        "method": _setting(record, "method.name"),
        "data": _data(record),
        "encoder": _setting(record, "encoder.name"),
        "seed": _setting(record, "seed"),
        "epochs": f"{record.epochs_done:.4g} of {record.epochs}",
        "steps": f"{record.step:,}",
        **scores(record),
        "images a second": speed(record),
        "time": "" if record.seconds is None else clock(record.seconds),
        "machine": machine_in_words(record.environment, "a process"),
        "versions": versions_in_words(record.environment),
        "commit": str(record.environment.get("commit") or ""),
        "health": _health(record),
    }
    return rows


def state_in_words(record: RunRecord) -> str:
    """Return whether the run goes on, has finished, or how it ended before that."""
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
    """Return the newest held-out scores by their names in words; the objective comes first, with its best value."""
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


def newest_scores(record: RunRecord) -> dict[str, float]:
    """Return the newest held-out scores by name; those of result.json where the log has none."""
    found = {}
    for name, column in record.scores.items():
        known = [value for value in column if value is not None]
        if name not in _NO_SCORES and known:
            found[name] = known[-1]
    return found or (dict(record.summary.scores) if record.summary else {})


def score_in_words(name: str) -> str:
    """Return how people call a held-out score."""
    if name in OBJECTIVES:
        return OBJECTIVES[name]
    return f"held-out {NUMBERS[name].words}" if name in NUMBERS else name


def shown_number(name: str, value: float) -> str:
    """Return a number of a log as people read it: shares in per cent, others with four digits."""
    is_share = name in SHARES or (name in NUMBERS and NUMBERS[name].is_share)
    return shown_score("holdout_knn", value) if is_share else f"{value:.4g}"


def speed(record: RunRecord) -> str:
    """Return images a second with their spread; empty when unknown."""
    rate = record.images_per_second
    if rate is None:
        return ""
    return f"{rate.mean:,.0f}" + (f" +/- {rate.std:,.0f}" if round(rate.std) else "")


def differing(records: Sequence[RunRecord]) -> dict[str, list[str]]:
    """Return the settings in which runs differ and that facts do not tell, by key: a value for each run.

    Settings that runs of other methods or versions do not have are empty there; what no two runs have is left out, and
    ``num_apart`` counts it.
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
    """Return how many settings some runs have and others do not, where those that have them agree."""
    told = differing(records)
    keys = {key for record in records for key in record.settings} - set(told)
    return sum(any(key not in record.settings for record in records) for key in keys)


def event_in_words(event: Mapping[str, Any]) -> str:
    """Return an event of a run's log as a line; empty for those that tell nothing, such as the first start."""
    kind, at, reason = event.get("event"), f"step {event['step']}: ", str(event.get("reason", ""))
    match kind:
        case "health":
            return in_words(event) if event.keys() >= _DECISION else f"health, {at}{reason}"
        case "warning" | "extended":
            return f"{kind}: {event.get('text', '')}"
        case "started":
            return f"began anew, its log had reached step {event['reached']}" if "reached" in event else ""
        case "resumed":
            written = event.get("environment_changes")
            changes = "; ".join(map(str, written if isinstance(written, list) else ()))
            told = f"{at}resumed, its log had reached step {event.get('reached', event['step'])}"
        case "ranks_changed":
            told, changes = f"{at}{event.get('before')} workers before, {event.get('now')} from here", ""
        case _:
            told, changes = f"{at}{str(kind).replace('_', ' ')}", reason
    return "; ".join(filter(None, (told, changes)))


def events_in_words(record: RunRecord) -> list[str]:
    """Return what happened to a run beside its training, oldest first; the same line is told once."""
    return list(dict.fromkeys(line for line in map(event_in_words, record.events) if line))


def _setting(record: RunRecord, key: str) -> str:
    if key not in record.settings:
        return ""
    value = record.settings[key]
    return f"{value:.6g}" if isinstance(value, float) else value if isinstance(value, str) else shown(value)


def _data(record: RunRecord) -> str:
    name, summary = _setting(record, "data.name"), record.summary
    return f"{name}, {count(summary.train_images, 'image')}" if summary else name


def _health(record: RunRecord) -> str:
    made = sum(event.get("event") == "health" for event in record.events)
    return count(made, "decision") if made else ""

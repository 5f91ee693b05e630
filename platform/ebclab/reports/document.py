"""The document of one sweep, or of several side by side; the same facts as CSV and JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from ebclab.config.addresses import is_address
from ebclab.config.check import short
from ebclab.document.csv import as_csv
from ebclab.document.document import (
    Block,
    CellValue,
    ColumnHead,
    Command,
    Document,
    Facts,
    MarkedTable,
    Remark,
    RichText,
    Section,
    Table,
    Tiles,
    numeric,
)
from ebclab.document.html import as_page
from ebclab.errors import UserError
from ebclab.evaluation.objectives import difference_format, format_of
from ebclab.formatting import clock, count
from ebclab.interval import POINTS, SHARE, Interval
from ebclab.reports import together
from ebclab.reports.place import page_place
from ebclab.reports.reading import SweepRecord, read_sweep
from ebclab.reports.references import learnt, verdict
from ebclab.reports.sections import Cost, SweepContent, lead, section
from ebclab.reports.together import require_one_objective
from ebclab.sweeps.display.trial_table import short_names
from ebclab.sweeps.log import finite
from ebclab.sweeps.plan import SweepPlan
from ebclab.sweeps.results import ConfirmedSettings, SeedScores, readings_of_test_set
from ebclab.sweeps.trial import Trial

_GAIN = replace(POINTS, unit="")  # below a heading that says points


def sweeps_document(parts: Sequence[SweepContent], csv_name: str, json_name: str) -> Document:
    """Return the document of sweeps; the files of these names lie beside the page."""
    sections = [section for number, part in enumerate(parts, 1) for section in _sweep(part, f"sweep-{number}", parts)]
    if len(parts) > 1:
        sections = [
            Section(f"{len(parts)} sweeps side by side", (), is_head=True),
            Section("Which sweep found more?", tuple(_together([part.record for part in parts]))),
            *sections,
        ]
    title = ", ".join(part.record.title for part in parts)
    files = f"All numbers: {csv_name} (one line a trial) and {json_name} (curves too), beside this page."
    return Document(title, "report", "sweep report", tuple(sections), files)


def _together(records: Sequence[SweepRecord]) -> Iterator[Block]:
    for line in together.disagreements(records):
        yield Remark(f"Not measured alike: {line}. Do not compare the values.", "warning")
    budget = clock(together.budget_of(records))
    heads = ("sweep", "method", f"best after {budget} of training", "trials then", "confirmed mean, 95 %")
    rows = []
    for row in together.rows(records):
        record, gap = row.record, row.to_best
        best = record.shown(row.at_equal_budget) if row.at_equal_budget is not None else "nothing yet"
        mean = format_of(record.objective).interval(row.winner.interval if row.winner else None, "not confirmed")
        against = f"{difference_format(record.objective).number(-gap.mean)}, {gap.verdict}" if gap else ""
        method = record.plan.config.method_name
        rows.append((record.name, method, numeric(best), row.trials_then, numeric(mean), against))
    note = (
        f"Equal budget: the training time of the shortest of these searches, {budget}; trials count in the order of "
        "their proposal. Confirmation is not part of it. Means have the intervals of their own sweep; differences to "
        "the first line hold together for all confirmed settings of these sweeps."
    )
    yield Table("", (*heads, "against the first line"), tuple(rows), note)
    if drawn := together.side_by_side(records):
        yield drawn


def _sweep(part: SweepContent, name: str, parts: Sequence[SweepContent]) -> Iterator[Section]:
    record, plots = part.record, part.plots
    title = f"{record.name}: {record.title}" if len(parts) > 1 else record.title
    yield Section(title, tuple(_head(part)), name, is_head=True)
    yield Section("The sweep", (Facts.of(dict(part.facts)), *(Command(*command) for command in part.commands.items())))
    yield Section("Is the difference real?", tuple(_confirmed(part)))
    if "curves" in plots:
        drawn: list[Block] = [
            plots["curves"],
            _saved(part),
            *([plots["diagnostics"]] if "diagnostics" in plots else []),
        ]
        yield Section("How trials went", tuple(drawn))
        why = [Remark(part.no_importance, "note")] if part.no_importance else []
        settings = [plots[each] for each in ("importance", "slices", "contour", "parallel") if each in plots]
        yield Section("Which settings mattered", (*why, *settings))
        yield Section("What it cost", (*([plots["time"]] if "time" in plots else []), _cost(part.cost)))
    yield Section("Trials", (_trials(part),))
    failures = tuple(
        (len(trials), reason, ", ".join(trial.id for trial in trials[:8]) + (" …" if len(trials) > 8 else ""))
        for reason, trials in part.failures
    )
    yield Section("What went wrong", (Table("", ("trials", "reason", "which"), failures),) if failures else ())
    yield Section("How it was measured", (Facts.of(dict(part.measured)),))


def _head(part: SweepContent) -> Iterator[Block]:
    record = part.record
    if record.is_running:
        log = f"This sweep is running: shown is its log as of {part.facts['Log as of']}."
        yield Remark(f"{log} Repeat the command to refresh this page.", "running")
    elif not record.is_finished:
        left = "This sweep has not concluded and nothing works on it now: shown is what it left."
        yield Remark(f"{left} ebclab sweep … --resume continues it.", "status")
    yield from (Remark(note, "warning") for note in record.notes)
    if part.test:
        yield Remark(learnt(part.references), "lead")
    yield Remark(lead(part), "lead")
    yield Tiles(tuple(_tiles(part)))


def _tiles(part: SweepContent) -> Iterator[tuple[str, str]]:
    record, cost, saved = part.record, part.cost, part.saved
    if part.confirmed:
        winner = part.confirmed[0]
        yield record.shown(winner.mean), f"{record.objective_words}, mean of {count(len(winner.values), 'seed')}"
    elif record.order and record.order[0].last:
        yield record.shown(record.order[0].last.objective), f"{record.objective_words}, one seed"
    yield from ((SHARE.number(score.mean), f"test set, {probe}") for probe, score in (part.test or {}).items())
    yield str(len(record.search)), f"trials of {record.plan.trials}"
    gpus = f", {cost.gpu_hours:.3g} GPU-hours" if cost.used_gpus else ""
    yield clock(3600 * cost.trial_hours), f"of training, h:mm:ss{gpus}"
    if cost.money is not None:
        yield f"{cost.money:,.2f}", f"at {cost.price} a GPU-hour" if cost.used_gpus else "no GPU was used"
    if saved.trials:
        share = saved.seconds / (saved.seconds + saved.seconds_spent)
        yield f"{share:.0%}", "of the search's time saved by early stopping"


def _confirmed(part: SweepContent) -> Iterator[Block]:
    """Yield the confirmed settings, with their differences from the winner, and their scores on the test set."""
    if not part.confirmed:
        return
    record = part.record
    space, form, gain = record.plan.space, format_of(record.objective), difference_format(record.objective)
    rows = []
    for entry, gap in zip(part.confirmed, part.differences, strict=True):
        missing = "one seed" if entry.std is None else "none: all seeds the same"
        rows.append(
            (
                entry.in_words(record.plan),
                numeric(record.shown(entry.mean)),
                numeric(form.ends(entry.low, entry.high) or missing),
                numeric(f"{len(entry.values)}/{entry.seeds_asked}"),
                "winner" if gap is None else f"{gain.interval(-1 * gap)}, {gap.verdict}",
                *(_setting(entry.settings.get(name)) for name in space.by_name),
            )
        )
    heads = ("settings of", "mean", "95 % interval", "seeds", "against the winner")
    yield MarkedTable("", (*heads, *_setting_heads(record)), tuple(rows), part.measured["Intervals"], ("winner",))
    yield Remark(f"Confirmation: {part.measured['Confirmation']}.", "note")
    yield part.plots["confirmed"]
    if part.test:
        yield _tested(part, part.test)
    if part.references:
        yield _over_references(part)


def _tested(part: SweepContent, test: dict[str, SeedScores]) -> Table:
    start = part.test_of_start
    heads = ["probe", "winner, 95 %", *(["starting settings, 95 %", "gain, points, 95 %", ""] if start else [])]
    rows: list[tuple[CellValue, ...]] = []
    for probe, score in test.items():
        row: list[CellValue] = [probe, _score(score)]
        if start:
            gap = part.test_gain.get(probe)
            row += [_score(start[probe]) if probe in start else None]
            row += [numeric(_GAIN.interval(gap)) if gap else None, gap.verdict if gap else None]
        rows.append(tuple(row))
    return Table("On the test set", tuple(heads), tuple(rows), f"Test set: {part.measured['Test set']}.")


def _over_references(part: SweepContent) -> Table:
    rows = tuple(
        (
            each.probe,
            each.name,
            numeric(SHARE.interval(each.value)),
            numeric(_GAIN.interval(each.difference)),
            verdict(each.difference),
        )
        for each in part.references
    )
    note = (
        "Raw pixels and the encoder with the random weights of the same seeds, measured as the winner is: same probe, "
        "labelled images and test images. The intervals of the differences hold together."
    )
    heads = ("probe", "reference", "accuracy, 95 %", "the winner over it, points, 95 %", "the winner is")
    return Table("Was anything learnt?", heads, rows, note)


def _score(score: SeedScores) -> RichText:
    return numeric(SHARE.interval(score.interval) + (", no interval" if score.low is None else ""))


def _saved(part: SweepContent) -> Remark:
    saved = part.saved
    if not saved.trials:
        return Remark("No trial was stopped early.")
    return Remark(
        f"Early stopping ended {saved.trials} of {len(part.record.search)} trials and spared {saved.epochs:,} epochs, "
        f"about {clock(saved.seconds)} of training at each trial's own pace; the search used "
        f"{clock(saved.seconds_spent)}."
    )


def _cost(cost: Cost) -> Table:
    rows = {
        "search": clock(3600 * cost.search_hours),
        "confirmation": clock(3600 * cost.confirm_hours),
        "GPU-hours": f"{cost.gpu_hours:.3g}",
    }
    if cost.money is not None:
        rows[f"cost at {cost.price} a GPU-hour"] = f"{cost.money:,.2f}"
    note = (
        "Training time of trials, one after the other, their scoring included. Idle machines, starting processes and "
        "work lost to kills are not in it."
    ) + ("" if cost.money is not None else " --price-per-gpu-hour adds money.")
    return Table("", ("", ""), tuple((name, numeric(text)) for name, text in rows.items()), note)


def _trials(part: SweepContent) -> Block:
    """Return every trial: those of the search by rank, those without a rank, then the confirming runs."""
    record = part.record
    if not record.log.trials:
        return Remark("No trial has been proposed yet.")
    ranked = {trial.id: trial for trial in record.order}
    trials = list((ranked | {trial.id: trial for trial in record.search} | record.log.trials).values())
    ranks = {name: rank for rank, name in enumerate(ranked, 1)}
    best = part.confirmed[0].source if part.confirmed else next(iter(ranked), "")
    marks = tuple("confirm" if each.kind == "confirm" else "winner" if each.id == best else "" for each in trials)
    heads = ("rank", "trial", "state", record.objective_words, "epochs", "seconds", "seed")
    note = (
        "Click a heading to sort. Rank: finished trials by their last value, then stopped ones by epochs done. "
        "Confirming runs have none. In print, the first 60 lines."
    )
    return MarkedTable(
        "",
        (*heads, *_setting_heads(record), "reason"),
        tuple(_trial(record, trial, ranks.get(trial.id)) for trial in trials),
        note,
        marks,
        is_sortable=True,
        is_filtered=True,
    )


def _trial(record: SweepRecord, trial: Trial, rank: int | None) -> tuple[CellValue, ...]:
    return (
        rank,
        trial.id,
        trial.state,
        numeric(record.shown(trial.last.objective), trial.last.objective) if trial.last else None,
        numeric(f"{trial.epochs_done}/{trial.epochs}", trial.epochs_done),
        numeric(f"{trial.seconds:.1f}", trial.seconds),
        trial.seed,
        *(_setting(trial.settings.get(name)) for name in record.plan.space.by_name),
        trial.reason,
    )


def _setting_heads(record: SweepRecord) -> list[ColumnHead]:
    return [ColumnHead(label, hint=name) for name, label in short_names(list(record.plan.space.by_name)).items()]


def _setting(value: object) -> CellValue:
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return numeric(short(value), value) if is_number else short(value)  # type: ignore[arg-type]


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
_OF_CONFIRMED = ("source", "settings", "seeds", "values", "seeds_asked", "mean", "low", "high")


def write_report(
    folders: Sequence[str | Path], to: str | Path | None = None, price: float | None = None
) -> tuple[str, list[str]]:
    """Write the report of one or several sweeps; return the path or address of the page, and notes on unreadable data.

    The CSV and JSON files have the name of the page, ``to``, with other endings. None means report.html in the sweep's
    folder, or sweeps.html in the current folder for several sweeps.
    """
    if not (price is None or price >= 0):
        raise UserError(f"--price-per-gpu-hour: must not be negative, got {price:g}")
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
            _plain_confirmed(entry, gap, record.plan)
            for entry, gap in zip(part.confirmed, part.differences, strict=True)
        ],
        "test": part.test and {probe: score.to_mapping() for probe, score in part.test.items()},
        "test_of_start": part.test_of_start
        and {probe: score.to_mapping() for probe, score in part.test_of_start.items()},
        "test_gain": {probe: _plain_gap(gap) for probe, gap in part.test_gain.items()},
        "references": [
            {
                "probe": each.probe,
                "name": each.name,
                **each.value.as_mean(),
                "winner_over_it": _plain_gap(each.difference),
            }
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


def _plain_confirmed(entry: ConfirmedSettings, gap: Interval | None, plan: SweepPlan) -> dict[str, Any]:
    """Return confirmed settings as plain values, with their difference from the winner."""
    return {
        **{name: getattr(entry, name) for name in _OF_CONFIRMED},
        "is_start": entry.is_start(plan),
        "images": entry.images,
        "below_winner": _plain_gap(gap),
    }


def _plain_gap(gap: Interval | None) -> dict[str, Any] | None:
    """Return a difference as plain values."""
    return gap.as_difference() | {"is_noise": gap.is_noise} if gap else None

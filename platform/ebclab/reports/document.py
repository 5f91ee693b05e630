"""The document of one sweep, or of several side by side and ranked; the same as CSV and JSON."""

from __future__ import annotations

import math
import shlex
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC
from itertools import chain
from pathlib import Path
from typing import Any

import plotly.graph_objects as go

from ebclab.config import to_mapping
from ebclab.config.check import short
from ebclab.config.experiment import flat
from ebclab.config.sections import CHOOSE_IMAGES
from ebclab.document.document import (
    Block,
    CellValue,
    ColumnHead,
    Command,
    Document,
    Facts,
    MarkedTable,
    Plot,
    Remark,
    RichText,
    Section,
    Table,
    Tiles,
    numeric,
)
from ebclab.errors import UserError
from ebclab.evaluation.comparison import difference, few_seeds, in_words
from ebclab.evaluation.objectives import MEASURED_WITH, difference_format, format_of
from ebclab.formatting import PROBES, clock, count
from ebclab.interval import POINTS, SHARE, Interval
from ebclab.reports import sweep_plots
from ebclab.reports.comparable import as_text, importance_digest, why_no_importance
from ebclab.reports.place import page_place
from ebclab.reports.plots import BLUE, GREEN, GREY, ORANGE, ending, plot
from ebclab.reports.reading import SweepRecord, learnt, read_sweep, verdict
from ebclab.reports.sweep_plots import tick_format
from ebclab.runs.environment import command_in_words, versions_in_words
from ebclab.storage.kinds import RUN, SWEEP
from ebclab.sweeps.display import short_names
from ebclab.sweeps.folder import BEST
from ebclab.sweeps.log import Trial
from ebclab.sweeps.plan import SweepPlan
from ebclab.sweeps.results import (
    BASELINE,
    ConfirmedSettings,
    SeedScores,
    StoppingSavings,
    confirming_run,
    plain_scores,
    readings_of_test_set,
)

MOST_FAILURES = 50


def facts(record: SweepRecord) -> dict[str, str]:
    """Return the header: question, method, data, budget, objective, machines, versions, commit."""
    plan, environment = record.plan, record.environment
    config = plan.config
    confirm = "nothing"
    if plan.top:
        also = " and the starting settings" if plan.baseline else ""
        confirm = f"the best {plan.top}{also}, {plan.seeds} seeds each, {count(config.training.epochs, 'epoch')}"
    search = f"search: {plan.search}, scheduler: {plan.rules.scheduler}"
    gpus = f"{record.gpus_per_trial:g} GPU each" if record.gpus_per_trial else "no GPU"
    return {
        "Question": (
            f"Which settings of {config.method_name} give the best {record.objective_words} on {config.data.name} in "
            f"{count(plan.epochs, 'epoch')}, and are they better than those it starts from?"
        ),
        "Method": f"{config.method_name}, encoder {config.encoder.name}, optimizer {config.optimizer.name}",
        "Data": config.data.name + (f", {config.data.train_limit:,} images of it" if config.data.train_limit else ""),
        "Objective": f"{record.objective_words}, on held-out training images; higher is better",
        "Budget": f"{plan.trials} trials of at most {count(plan.epochs, 'epoch')}; {search}",
        "Confirmation": confirm,
        "At once": f"{record.log.launch.get('concurrent', '?')} trials, {gpus}",
        "Machine": "; ".join(record.machines) or "not written down",
        "Versions": versions_in_words(environment) or "not written down",
        "Commit": str(environment.get("commit") or "not written down"),
        "Trials": ", ".join(f"{n} {state}" for state, n in Counter(t.state for t in record.search).items()) or "none",
        "Log as of": f"{record.read_at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC",
    }


def commands(record: SweepRecord) -> dict[str, str]:
    """Return the commands that rerun the winner and the sweep, by heading."""
    words_by_heading, method = {}, record.plan.config.method_name
    source, seed = _winner_run(record)
    if source is not None:
        # best.yaml exists once the sweep has finished; before, the settings of the run itself are used.
        folder, name = record.folder, BEST if record.is_finished else f"{SWEEP.inside}/{source.run_name}/{RUN.settings}"
        settings = str(folder.path / name) if folder.remote is None else (folder.remote / name).address
        words = ["ebclab", "pretrain", method, "--config", settings, "--seed", str(seed)]
        heading = "The winner, with one of its seeds" if record.confirmed else "The best trial so far"
        words_by_heading[heading] = shlex.join(words)
    if command := command_in_words(record.environment):
        words_by_heading["This sweep"] = command
    return words_by_heading


def _winner_run(record: SweepRecord) -> tuple[Trial | None, int]:
    """Return a trial with the winner's settings, and its seed; without confirmed settings, the best search trial."""
    if record.confirmed:
        seed = record.confirmed[0].seeds[0]
        return record.log.trials[confirming_run(record.confirmed[0].source, seed)], seed
    best = record.order[0] if record.order else None
    return best, best.seed if best else 0


def failures(record: SweepRecord) -> list[tuple[str, list[Trial]]]:
    """Return the most frequent reasons why trials diverged, failed or collapsed, with the trials."""
    by_reason: dict[str, list[Trial]] = {}
    for trial in record.log.trials.values():
        if ending(trial) in ("diverged", "failed", "collapsed"):
            by_reason.setdefault(f"{trial.state}: {trial.reason or 'no reason written down'}", []).append(trial)
    return sorted(by_reason.items(), key=lambda pair: -len(pair[1]))[:MOST_FAILURES]


def lead(record: SweepRecord) -> str:
    """Return a summary of the sweep's result in a few sentences."""
    if not record.confirmed:
        if not record.order:
            return "No trial has measured anything yet." if record.is_running else "No trial measured anything."
        best = record.order[0]
        if math.isnan(best.value):  # numbers go first
            return "No trial measured a number: the objective is nan in all that ended well."
        value = record.shown(best.objectives[best.epochs_done])
        done = "" if best.state == "finished" else f" after {best.epochs_done} of {count(best.epochs, 'epoch')}"
        luck = "One seed, not confirmed: the best of many is mostly luck."
        return f"Best trial so far: {best.id} with {value}{done}. {luck}"
    winner = record.confirmed[0]
    seeds = len(winner.values)
    text = f"Winner: {winner.in_words(record.plan)}, {record.shown(winner.mean)} over {count(seeds, 'seed')}"
    if ends := format_of(record.objective).ends(winner.low, winner.high):
        text += f" (95 %: {ends})"
    text += "."
    if noisy := [
        entry.in_words(record.plan)
        for place, (entry, gap) in enumerate(zip(record.confirmed, record.differences, strict=True))
        if gap and gap.is_noise and place != record.start_place  # the next sentence is about the start
    ]:
        text += f" Within noise of {' and of '.join(noisy)}."
    hint = f"{seeds} seeds are few: read this as a hint (why: below)." if few_seeds(seeds) and seeds > 1 else ""
    return f"{text} {_against_start(record)} {hint}".strip()


def _against_start(record: SweepRecord) -> str:
    """Return a sentence that compares the winner with the settings that the search started from."""
    form = difference_format(record.objective)
    if record.start_place is None:
        pending = record.plan.baseline and not record.is_finished
        return "The starting settings are not confirmed " + ("yet." if pending else "with them: no comparison.")
    gap = record.differences[record.start_place]
    ahead = [entry for entry in record.confirmed if entry.mean > record.confirmed[0].mean]  # with fewer finished runs
    if ahead and (gap is None or gap.mean < 0):
        named = [f"{entry.in_words(record.plan)} ({len(entry.values)} of {entry.seeds_asked})" for entry in ahead]
        return f"Where their runs finished, these score higher: {', '.join(named)}."
    if gap is None:
        return "The search found nothing better than the settings it started from."
    if gap.low is None or gap.high is None:
        why = "one seed says nothing of noise" if gap.open == "one seed" else gap.open
        return f"It is {form.number(gap.mean)} better than {BASELINE_WORDS}; {why}."
    gain = f"{form.number(gap.mean)} (95 %: {form.ends(gap.low, gap.high)})"
    sentence = f"{'Better' if gap.mean > 0 else 'Worse'} than {BASELINE_WORDS} by {gain}."
    if gap.is_noise:
        sentence = f"Its gain over {BASELINE_WORDS}, {gain}, is within noise."
    by_words = defaultdict[str, list[str]](list)
    for probe, each in record.test_gain.items():  # the test images chose nothing, and are usually more
        if words := _otherwise(each, gap):
            by_words[words].append(f"{POINTS.interval(each)} by {PROBES[probe]}")
    return sentence + "".join(f" On the test images {words}: {' and '.join(by)}." for words, by in by_words.items())


def _otherwise(on_test: Interval, held_out: Interval) -> str:
    """Return what a difference on the test images says that the one on held-out images does not; empty if nothing."""
    if on_test.is_noise is None or (on_test.is_noise and held_out.is_noise):
        return ""
    if on_test.is_noise:
        return "that is within noise"
    if held_out.is_noise:
        return "it is beyond noise"
    return "" if (on_test.mean > 0) == (held_out.mean > 0) else "it is the other way round"


BASELINE_WORDS = "the starting settings"


def how_measured(record: SweepRecord) -> dict[str, str]:
    """Return the rows of the table about data split, probes, seeds, stopping and intervals, by heading."""
    plan, config = record.plan, record.plan.config
    score, sizes = config.evaluation, record.split
    split = (
        f"{config.data.holdout_rate:.0%} of the training images, chosen by hash of each image's key, never trained on"
    )
    if sizes:
        split += f": {sizes[1]:,} held out, {sizes[0]:,} trained on"
    limit = score.knn_bank_limit
    bank = f"a bank of {limit:,} training images at most" if limit else "all training images"
    first = config.seed + 1
    return {
        "Split": split,
        "Objective": _objective(record),
        "Probe settings": f"kNN: {score.knn_neighbours} neighbours, temperature {score.knn_temperature:g}, {bank}",
        "When": "after every epoch; a trial's value is that of its last epoch, not the best of all epochs",
        "Seeds": f"the search uses seed {config.seed}"
        + (f"; confirmation {first} to {config.seed + plan.seeds}" if plan.top else ""),
        "Early stopping": f"{_stopping(plan)}; diverged or collapsed trials always end",
        "Ranking": "finished trials by their last value, then stopped ones by epochs done and last value",
        "Confirmation": _same_images(record),
        "Test set": test_set_readings(record),
        "Intervals": _intervals(record.confirmed),
    }


def _stopping(plan: SweepPlan) -> str:
    """Return how the scheduler of a sweep compares its trials."""
    grace = plan.rules.grace(plan.epochs)
    match plan.rules.scheduler:
        case "asha":
            return f"successive halving from epoch {grace}, one in {plan.rules.reduction_factor} continues"
        case "median":
            return f"stopped below the median of the others, from epoch {grace} on"
        case "pbt":
            return (
                f"population: every {plan.population.interval_epochs} epochs the worst continue from the best's "
                "weights; a trial's settings are those it ended with"
            )
        case "none":
            return "none by comparison"


def _same_images(record: SweepRecord) -> str:
    """Return a description of the images used for confirmation, and whether the search used the same ones."""
    config = record.plan.config
    if not record.plan.top:
        return "none"
    if config.data.confirm_rate:
        return (
            f"scored on another {config.data.confirm_rate:.0%} of the training images, chosen by hash, which no trial "
            "was trained on and no search saw"
        )
    return (
        "scored on the same held-out images as the search. The search chose settings that do well on these very "
        "images, so all means but that of the starting settings are somewhat too high; the test set is not touched by "
        "this. --confirm-split keeps images apart that no search sees"
    )


def test_set_readings(record: SweepRecord) -> str:
    """Return a description of how often the test set was read, and for which runs."""
    readings = readings_of_test_set(record.log)
    if not readings:
        return "not read"
    if len(readings) == 1:
        return f"read once, after the choice, for {_by_settings(readings[0])}; nothing was chosen by it"
    each = "; ".join(f"{number}. for {_by_settings(runs)}" for number, runs in enumerate(readings, start=1))
    return (
        f"read {len(readings)} times, because the sweep was resumed: {each}. Nothing was chosen by it here, but "
        "anyone who saw an earlier score before asking for more chose by it"
    )


def _by_settings(runs: Sequence[str]) -> str:
    """Return a description of confirming runs, given by name: their settings and seeds."""
    seeds: dict[str, list[str]] = {}
    for name in runs:
        source, _, seed = name.removeprefix("confirm-").rpartition("-seed")
        seeds.setdefault("the starting settings" if source == BASELINE else f"trial {source}", []).append(seed)
    return " and ".join(f"{source} (seed {', '.join(each)})" for source, each in seeds.items())


def _intervals(confirmed: Sequence[ConfirmedSettings]) -> str:
    """Return a description of the confidence intervals and their statistical model."""
    if not confirmed:
        return "none: nothing is confirmed"
    winner = confirmed[0]
    model = (
        "Two-way table of seeds and images, both drawn at random; runs with the same seed and answers about the same "
        "image are compared with each other."
        if winner.images
        else "Student's interval over seeds; runs with the same seed are compared with each other."
    )
    return f"{in_words(len(confirmed), len(winner.values), winner.images)} {model}"


def _objective(record: SweepRecord) -> str:
    key = record.objective
    words = {
        "holdout_knn": "accuracy of a weighted kNN on frozen embeddings of held-out images",
        "holdout_linear": "accuracy of a linear probe on frozen embeddings of held-out images, protocol "
        + record.plan.config.evaluation.linear_protocol,
        "effective_rank": "entropy of the singular values of held-out embeddings, as a number of dimensions; no labels",
        "alignment_uniformity": "minus (alignment + uniformity) of two views of held-out images; needs no labels",
    }
    return f"{key}: {words.get(key, record.objective_words)}"


@dataclass(frozen=True)
class Cost:
    """Resources that the trials of a sweep used so far; idle machines and lost turns are not in the log."""

    search_hours: float  # total training time of all search trials, in hours
    confirm_hours: float  # total training time of all confirming runs, in hours
    gpus_per_trial: float  # GPUs per trial, or a fraction of one, since the latest start or resume
    price: float | None  # price of one GPU for one hour; None if unknown
    gpu_hours: float  # GPU-hours of all trials; fractions of a GPU count as such

    @classmethod
    def of(cls, record: SweepRecord, price: float | None) -> Cost:
        """Return the cost of a sweep."""
        search, confirm = record.log.of_kind("search"), record.log.of_kind("confirm")
        return cls(
            search_hours=sum(trial.seconds for trial in search) / 3600,
            confirm_hours=sum(trial.seconds for trial in confirm) / 3600,
            gpus_per_trial=record.gpus_per_trial,
            price=price,
            gpu_hours=sum(trial.gpu_seconds for trial in (*search, *confirm)) / 3600,
        )

    @property
    def used_gpus(self) -> bool:
        """Whether trials use GPUs, or used some before the sweep was resumed."""
        return bool(self.gpus_per_trial or self.gpu_hours)

    @property
    def money(self) -> float | None:
        """GPU-hours times the price; None if the price is unknown."""
        return None if self.price is None else self.gpu_hours * self.price


_SHOULD_AGREE = (
    *(f"data.{name}" for name in CHOOSE_IMAGES),
    *(f"evaluation.{name}" for name in chain(*MEASURED_WITH.values())),
    "training.epochs",
)


OTHER_IMAGES = "scored on other images"
"""In place of an interval, where two sweeps were not scored on the same images."""


@dataclass(frozen=True)
class RankedSweep:
    """One of several sweeps."""

    record: SweepRecord
    at_equal_budget: float | None  # best objective within the common budget; None if nothing was measured by then
    trials_then: int  # number of trials within the common budget
    winner: ConfirmedSettings | None  # its best confirmed settings; None if nothing was confirmed
    # difference between the best row's winner and this one; None for the best row and without a winner
    to_best: Interval | None


def disagreements(records: Sequence[SweepRecord]) -> list[str]:
    """Return the settings that must agree for a comparison but do not, with the value of each sweep."""
    settings = [flat(to_mapping(record.plan.config)) for record in records]
    return [
        f"{key}: {', '.join(f'{each[key]} in {r.name}' for r, each in zip(records, settings, strict=True))}"
        for key in _SHOULD_AGREE
        if any(each[key] != settings[0][key] for each in settings)
    ]


def have_same_images(one: SweepRecord, other: SweepRecord) -> bool:
    """Return whether two sweeps are scored on the same images, by their settings and, if both know it, their digest."""
    first, second = one.plan.config.data, other.plan.config.data
    if first.digest and second.digest and first.digest != second.digest:
        return False
    return all(getattr(first, name) == getattr(second, name) for name in CHOOSE_IMAGES)


def budget_of(records: Sequence[SweepRecord]) -> float:
    """Return the common budget: the training time, in seconds, of the shortest search."""
    return min(sum(trial.seconds for trial in record.search) for record in records)


def ranked(records: Sequence[SweepRecord]) -> list[RankedSweep]:
    """Return the sweeps sorted by their winner's mean; then those without a winner by their best at equal budget."""
    budget = budget_of(records)
    winners = [next(iter(record.confirmed), None) for record in records]
    compared = sum(len(record.confirmed) for record in records)
    sure = [(record, winner) for record, winner in zip(records, winners, strict=True) if winner]
    best = max(sure, key=lambda pair: pair[1].mean, default=None)
    sweeps = []
    for record, winner in zip(records, winners, strict=True):
        within = [value for seconds, value in best_so_far(record) if seconds <= budget * (1 + 1e-9)]
        gap = None
        if best and winner and winner is not best[1]:
            gap = difference(best[1].measured, winner.measured, compared)
            if not have_same_images(record, best[0]):
                gap = Interval(gap.mean, open=OTHER_IMAGES)
        sweeps.append(RankedSweep(record, within[-1] if within else None, len(within), winner, gap))

    def merit(row: RankedSweep) -> tuple[bool, float]:
        value = row.winner.mean if row.winner else row.at_equal_budget
        return row.winner is not None, float("-inf") if value is None else value

    return sorted(sweeps, key=merit, reverse=True)


_DASHES = ("solid", "dash", "dot")


def side_by_side(records: Sequence[SweepRecord]) -> Plot | None:
    """Return a plot with a line per sweep: the best objective so far against the cumulative training time."""
    figure = go.Figure()
    colours = [BLUE, ORANGE, GREEN, GREY]
    for place, record in enumerate(records):
        line = [(seconds, best) for seconds, best in best_so_far(record) if best is not None]
        if line:
            figure.add_scatter(
                x=[x for x, _ in line], y=[y for _, y in line], mode="lines+markers", name=as_text(record.name),
                line={"color": colours[place % 4], "shape": "hv", "width": 2.2, "dash": _DASHES[place // 4 % 3]},
            )  # fmt: skip
    if not figure.data:
        return None
    figure.update_xaxes(title="training time of all trials so far, seconds", rangemode="tozero")
    figure.update_yaxes(title=records[0].objective_words, tickformat=tick_format(records[0].objective))
    note = (
        "Trials one after the other in the order of their proposal, as if one ran at a time. One seed a trial: noisy."
    )
    return plot("Best so far against the budget", note, figure)


def best_so_far(record: SweepRecord) -> list[tuple[float, float | None]]:
    """Return, for each search trial, the cumulative training time in seconds and the best objective so far, or None."""
    line: list[tuple[float, float | None]] = []
    seconds, best = 0.0, None
    for trial in record.search:
        seconds += trial.seconds
        if trial.last and not trial.is_lost and math.isfinite(trial.last.objective):
            best = trial.last.objective if best is None else max(best, trial.last.objective)
        line.append((seconds, best))
    return line


_GAIN = replace(POINTS, unit="")  # below a heading that says points


def sweeps_document(records: Sequence[SweepRecord], price: float | None, page: Path) -> Document:
    """Return the document of sweeps for a page; ``price`` is that of one GPU-hour, None if unknown."""
    several = len(records) > 1
    sections = [
        section for number, each in enumerate(records, 1) for section in _sweep(each, price, f"sweep-{number}", several)
    ]
    if several:
        sections = [
            Section(f"{len(records)} sweeps side by side", (), is_head=True),
            Section("Which sweep found more?", tuple(_together(records))),
            *sections,
        ]
    title = ", ".join(record.title for record in records)
    csv_name, json_name = (page.with_suffix(suffix).name for suffix in (".csv", ".json"))
    files = f"All numbers: {csv_name} (one line a trial) and {json_name} (curves too), beside this page."
    return Document(title, "report", "sweep report", tuple(sections), files)


def _together(records: Sequence[SweepRecord]) -> Iterator[Block]:
    for line in disagreements(records):
        yield Remark(f"Not measured alike: {line}. Do not compare the values.", "warning")
    budget = clock(budget_of(records))
    heads = ("sweep", "method", f"best after {budget} of training", "trials then", "confirmed mean, 95 %")
    rows = []
    for row in ranked(records):
        record, gap = row.record, row.to_best
        best = record.shown(row.at_equal_budget) if row.at_equal_budget is not None else "nothing yet"
        mean = format_of(record.objective).interval(row.winner, "not confirmed")
        against = gap.verdict if gap else ""
        if gap and gap.open != OTHER_IMAGES:
            against = f"{difference_format(record.objective).number(-gap.mean)}, {gap.verdict}"
        method = record.plan.config.method_name
        rows.append((record.name, method, numeric(best), row.trials_then, numeric(mean), against))
    note = (
        f"Equal budget: the training time of the shortest of these searches, {budget}; trials count in the order of "
        "their proposal. Confirmation is not part of it. Means have the intervals of their own sweep; differences to "
        "the first line are over the seeds that both have, and hold together for all confirmed settings of these "
        "sweeps."
    )
    yield Table("", (*heads, "against the first line"), tuple(rows), note)
    if drawn := side_by_side(records):
        yield drawn


def _sweep(record: SweepRecord, price: float | None, name: str, several: bool) -> Iterator[Section]:
    cost, measured = Cost.of(record, price), how_measured(record)
    title = f"{record.name}: {record.title}" if several else record.title
    yield Section(title, tuple(_head(record, cost)), name, is_head=True)
    rerun = [Command(*command) for command in commands(record).items()]
    yield Section("The sweep", (Facts.of(facts(record)), *rerun))
    yield Section("Is the difference real?", tuple(_confirmed(record, measured)))
    if curves := sweep_plots.learning_curves(record):
        yield Section("How trials went", _present(curves, _saved(record), sweep_plots.diagnostics(record)))
        drawn = _present(*(draw(record) for draw in sweep_plots.OF_SETTINGS))
        why = _present(None if record.importance else Remark(why_no_importance(record.compared), "note"))
        yield Section("Which settings mattered", (*why, *drawn))
        yield Section("What it cost", _present(sweep_plots.objective_against_time(record), _cost(cost)))
    yield Section("Trials", (_trials(record),))
    rows = tuple(
        (len(trials), reason, ", ".join(trial.id for trial in trials[:8]) + (" …" if len(trials) > 8 else ""))
        for reason, trials in failures(record)
    )
    yield Section("What went wrong", (Table("", ("trials", "reason", "which"), rows),) if rows else ())
    yield Section("How it was measured", (Facts.of(measured),))


def _present(*blocks: Block | None) -> tuple[Block, ...]:
    return tuple(block for block in blocks if block is not None)


def _head(record: SweepRecord, cost: Cost) -> Iterator[Block]:
    if record.is_running:
        log = f"This sweep is running: shown is its log as of {facts(record)['Log as of']}."
        yield Remark(f"{log} Repeat the command to refresh this page, or let --watch do so.", "running")
    elif not record.is_finished:
        left = "This sweep has not concluded and nothing works on it now: shown is what it left."
        yield Remark(f"{left} ebclab sweep … --resume continues it.", "status")
    yield from (Remark(note, "warning") for note in record.log.problems)
    if record.test:
        yield Remark(learnt(record.references), "lead")
    yield Remark(lead(record), "lead")
    yield Tiles(tuple(_tiles(record, cost)))


def _tiles(record: SweepRecord, cost: Cost) -> Iterator[tuple[str, str]]:
    saved = StoppingSavings.of(record.search)
    if record.confirmed:
        winner = record.confirmed[0]
        yield record.shown(winner.mean), f"{record.objective_words}, mean of {count(len(winner.values), 'seed')}"
    elif record.order and record.order[0].last:
        yield record.shown(record.order[0].last.objective), f"{record.objective_words}, one seed"
    yield from (
        (SHARE.number(score.mean), f"test set, {PROBES[probe]}") for probe, score in (record.test or {}).items()
    )
    yield str(len(record.search)), f"trials of {record.plan.trials}"
    gpus = f", {cost.gpu_hours:.3g} GPU-hours" if cost.used_gpus else ""
    yield clock(3600 * (cost.search_hours + cost.confirm_hours)), f"of training, h:mm:ss{gpus}"
    if cost.money is not None:
        yield f"{cost.money:,.2f}", f"at {cost.price} a GPU-hour" if cost.used_gpus else "no GPU was used"
    if saved.seconds:
        share = saved.seconds / (saved.seconds + saved.seconds_spent)
        yield f"{share:.0%}", "of the search's time saved by early stopping"


def _confirmed(record: SweepRecord, measured: Mapping[str, str]) -> Iterator[Block]:
    """Yield the confirmed settings, with their differences from the winner, and their scores on the test set."""
    if not record.confirmed:
        return
    space, form, gain = record.plan.space, format_of(record.objective), difference_format(record.objective)
    rows = []
    for entry, gap in zip(record.confirmed, record.differences, strict=True):
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
    yield MarkedTable("", (*heads, *_setting_heads(record)), tuple(rows), measured["Intervals"], ("winner",))
    yield Remark(f"Confirmation: {measured['Confirmation']}.", "note")
    yield sweep_plots.confirmed_values(record)
    if record.test:
        yield _tested(record, record.test)
    if record.references:
        yield _over_references(record)


def _tested(record: SweepRecord, test: Mapping[str, SeedScores]) -> Table:
    start = record.test_of_start
    heads = ["probe", "winner, 95 %", *(["starting settings, 95 %", "gain, points, 95 %", ""] if start else [])]
    rows: list[tuple[CellValue, ...]] = []
    for probe, score in test.items():
        row: list[CellValue] = [PROBES[probe], _score(score)]
        if start:
            gap = record.test_gain.get(probe)
            row += [_score(start[probe]) if probe in start else None]
            row += [numeric(_GAIN.interval(gap)) if gap else None, gap.verdict if gap else None]
        rows.append(tuple(row))
    return Table("On the test set", tuple(heads), tuple(rows), f"Test set: {test_set_readings(record)}.")


def _over_references(record: SweepRecord) -> Table:
    rows = tuple(
        (
            PROBES[each.probe],
            each.name,
            numeric(SHARE.interval(each.value)),
            numeric(_GAIN.interval(each.difference)),
            verdict(each.difference),
        )
        for each in record.references
    )
    note = (
        "Raw pixels and the encoder with the random weights of the same seeds, measured as the winner is: same probe, "
        "labelled images and test images. The intervals of the differences hold together."
    )
    heads = ("probe", "reference", "accuracy, 95 %", "the winner over it, points, 95 %", "the winner is")
    return Table("Was anything learnt?", heads, rows, note)


def _score(score: SeedScores) -> RichText:
    return numeric(SHARE.interval(score) + (", no interval" if score.low is None else ""))


def _saved(record: SweepRecord) -> Remark:
    saved = StoppingSavings.of(record.search)
    if not saved.trials:
        return Remark("No trial was stopped early.")
    return Remark(
        f"Early stopping ended {saved.trials} of {len(record.search)} trials and spared {saved.epochs:,} epochs, "
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


def _trials(record: SweepRecord) -> Block:
    """Return every trial: those of the search by rank, those without a rank, then the confirming runs."""
    if not record.log.trials:
        return Remark("No trial has been proposed yet.")
    ranked = {trial.id: trial for trial in record.order}
    trials = list((ranked | {trial.id: trial for trial in record.search} | record.log.trials).values())
    ranks = {name: rank for rank, name in enumerate(ranked, 1)}
    best = record.confirmed[0].source if record.confirmed else next(iter(ranked), "")
    marks = tuple("confirm" if each.kind == "confirm" else "winner" if each.id == best else "" for each in trials)
    heads = _setting_heads(record)
    rows = [_trial(record, heads, trial, ranks.get(trial.id)) for trial in trials]
    note = (
        "Click a heading to sort. Rank: finished trials by their last value, then stopped ones by epochs done. "
        "Confirming runs have none. In print, the first 60 lines."
    )
    return MarkedTable(
        "",
        tuple(rows[0]),
        tuple(tuple(row.values()) for row in rows),
        note,
        marks,
        is_sortable=True,
        is_filtered=True,
    )


def _trial(
    record: SweepRecord, heads: Sequence[ColumnHead], trial: Trial, rank: int | None
) -> dict[str | ColumnHead, CellValue]:
    """Return the line of a trial, its cells by their headings; ``_OF_TRIAL`` has what files have of it."""
    last = trial.last
    return {
        "rank": rank,
        "trial": trial.id,
        "state": trial.state,
        record.objective_words: numeric(record.shown(last.objective), last.objective) if last else None,
        "epochs": numeric(f"{trial.epochs_done}/{trial.epochs}", trial.epochs_done),
        "seconds": numeric(f"{trial.seconds:.1f}", trial.seconds),
        "seed": trial.seed,
        **{
            head: _setting(trial.settings.get(name))
            for head, name in zip(heads, record.plan.space.by_name, strict=True)
        },
        "reason": trial.reason,
    }


def _setting_heads(record: SweepRecord) -> list[ColumnHead]:
    return [ColumnHead(label, hint=name) for name, label in short_names(list(record.plan.space.by_name)).items()]


def _setting(value: object) -> CellValue:
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return numeric(short(value), value) if is_number else short(value)  # type: ignore[arg-type]


_OF_CONFIRMED = ("source", "settings", "seeds", "values", "seeds_asked", "mean", "low", "high")


def read_sweeps(folders: Sequence[str | Path]) -> list[SweepRecord]:
    """Read sweeps for one page; refuse those with different objectives."""
    records = [read_sweep(each) for each in folders]
    if len({record.objective for record in records}) > 1:
        each = "".join(f"\n  {record.folder.address}: {record.objective}" for record in records)
        raise UserError(f"report: sweeps with different objectives cannot be on one page; make a page for each:{each}")
    return records


def write_report(folders: Sequence[str | Path], to: str | Path | None = None, price: float | None = None) -> str:
    """Write the page about one or several sweeps, as ``report`` does; return its path or address."""
    records = read_sweeps(folders)
    place = page_place(to, [record.folder for record in records], "sweeps.html")
    document = sweeps_document(records, price, place.path)
    return place.write(document, _all_trials(records), [_numbers(record, price) for record in records])


def _all_trials(records: Sequence[SweepRecord]) -> Table:
    """Return a row for each trial; settings that a sweep did not search are empty."""
    names = list(dict.fromkeys(name for record in records for name in record.plan.space.by_name))
    columns = ("sweep", *_OF_TRIAL, *names)
    trials = [
        {"sweep": record.name, **row, **trial.settings} for record in records for trial, row in _trial_rows(record)
    ]
    return Table("", columns, tuple(tuple(trial.get(column) for column in columns) for trial in trials))


_OF_TRIAL = ("trial", "kind", "rank", "state", "reason", "objective", "epochs_done", "epochs", "seconds", "seed")


def _trial_rows(record: SweepRecord) -> Iterator[tuple[Trial, dict[str, Any]]]:
    """Yield every trial and the same as plain values, in the order of their proposal, with its last objective."""
    ranks = {trial.id: rank for rank, trial in enumerate(record.order, start=1)}
    for trial in record.log.trials.values():
        last = trial.last.objective if trial.last else None
        own = {"trial": trial.id, "rank": ranks.get(trial.id), "objective": last, "settings": trial.settings}
        yield trial, {name: own[name] if name in own else getattr(trial, name) for name in (*_OF_TRIAL, "settings")}


def _curve(trial: Trial) -> dict[str, object]:
    return {
        str(epoch): {"objective": point.objective, "seconds": point.seconds, "metrics": point.metrics}
        for epoch, point in sorted(trial.curve.items())
    }


def _numbers(record: SweepRecord, price: float | None) -> dict[str, object]:
    """Return everything on the page about a sweep, and all of its curves, as plain values."""
    cost = Cost.of(record, price)
    return {
        "sweep": record.name,
        "path": record.folder.address,
        "is_finished": record.is_finished,
        "answer": lead(record),
        "facts": facts(record),
        "objective": record.objective,
        "confirmed": [
            {
                **{name: getattr(entry, name) for name in _OF_CONFIRMED},
                "is_start": entry.is_start(record.plan),
                "images": entry.images,
                "below_winner": _plain_gap(gap),
            }
            for entry, gap in zip(record.confirmed, record.differences, strict=True)
        ],
        "test": plain_scores(record.test),
        "test_of_start": plain_scores(record.test_of_start),
        "test_gain": {probe: _plain_gap(gap) for probe, gap in record.test_gain.items()},
        "references": [
            {
                "probe": each.probe,
                "name": each.name,
                **each.value.as_mean(),
                "winner_over_it": _plain_gap(each.difference),
            }
            for each in record.references
        ],
        "test_readings": readings_of_test_set(record.log),
        "commands": commands(record),
        "importance": record.importance,
        "importance_digest": importance_digest(record.plan.space, record.compared, record.importance),
        "saved_by_early_stopping": asdict(StoppingSavings.of(record.search)),
        "cost": asdict(cost) | {"money": cost.money},
        "measured": how_measured(record),
        "notes": record.log.problems,
        "trials": [{**row, "curve": _curve(trial)} for trial, row in _trial_rows(record)],
    }


def _plain_gap(gap: Interval | None) -> dict[str, object] | None:
    return gap.as_difference() | {"is_noise": gap.is_noise} if gap else None

"""What the document of a sweep says, computed from its folder."""

from __future__ import annotations

import shlex
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC

from ebclab.evaluation.comparison import few_seeds, in_words
from ebclab.evaluation.objectives import difference_format, format_of
from ebclab.formatting import PROBES, count
from ebclab.interval import POINTS, Interval
from ebclab.reports.plots import ending
from ebclab.reports.reading import SweepRecord
from ebclab.runs.environment import command_in_words, versions_in_words
from ebclab.storage.kinds import RUN, SWEEP
from ebclab.sweeps.folder import BEST
from ebclab.sweeps.log import Trial
from ebclab.sweeps.results import BASELINE, ConfirmedSettings, confirming_run, readings_of_test_set

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
        "At once": f"{record.start.get('concurrent', '?')} trials, {gpus}",
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
        e.in_words(record.plan) for e, d in zip(record.confirmed, record.differences, strict=True) if d and d.is_noise
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
    limit, rules = score.knn_bank_limit, plan.rules
    bank = f"a bank of {limit:,} training images at most" if limit else "all training images"
    stop = {
        "asha": f"successive halving from epoch {rules.grace(plan.epochs)}, one in {rules.reduction_factor} continues",
        "median": f"stopped below the median of the others, from epoch {rules.grace(plan.epochs)} on",
        "pbt": f"population: every {plan.population.interval_epochs} epochs the worst continue from the best's "
        "weights; a trial's settings are those it ended with",
        "none": "none by comparison",
    }[rules.scheduler]
    first = config.seed + 1
    return {
        "Split": split,
        "Objective": _objective(record),
        "Probe settings": f"kNN: {score.knn_neighbours} neighbours, temperature {score.knn_temperature:g}, {bank}",
        "When": "after every epoch; a trial's value is that of its last epoch, not the best of all epochs",
        "Seeds": f"the search uses seed {config.seed}"
        + (f"; confirmation {first} to {config.seed + plan.seeds}" if plan.top else ""),
        "Early stopping": f"{stop}; diverged or collapsed trials always end",
        "Ranking": "finished trials by their last value, then stopped ones by epochs done and last value",
        "Confirmation": _same_images(record),
        "Test set": test_set_readings(record),
        "Intervals": _intervals(record.confirmed),
    }


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
    """Resources that the trials of a sweep used."""

    search_hours: float  # total training time of all search trials, in hours
    confirm_hours: float  # total training time of all confirming runs, in hours
    gpus_per_trial: float  # GPUs per trial, or a fraction of one, since the latest start or resume
    price: float | None  # price of one GPU for one hour; None if unknown
    gpu_hours: float  # GPU-hours of all trials; fractions of a GPU count as such

    @property
    def trial_hours(self) -> float:
        return self.search_hours + self.confirm_hours

    @property
    def used_gpus(self) -> bool:
        """Whether trials use GPUs, or used some before the sweep was resumed."""
        return bool(self.gpus_per_trial or self.gpu_hours)

    @property
    def money(self) -> float | None:
        """GPU-hours times the price; None if the price is unknown."""
        return None if self.price is None else self.gpu_hours * self.price


def cost_of(record: SweepRecord, price: float | None) -> Cost:
    """Return the cost of a sweep so far; idle machines and lost turns are not in the log and not included."""
    search, confirm = record.log.of_kind("search"), record.log.of_kind("confirm")
    gpu_hours = sum(trial.gpu_seconds for trial in (*search, *confirm)) / 3600
    return Cost(_hours(search), _hours(confirm), record.gpus_per_trial, price, gpu_hours)


def _hours(trials: Sequence[Trial]) -> float:
    return sum(trial.seconds for trial in trials) / 3600

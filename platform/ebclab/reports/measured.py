"""Describe how the numbers of a sweep were measured."""

from __future__ import annotations

from collections.abc import Sequence

from ebclab.evaluation.comparison import in_words
from ebclab.reports.reading import SweepRecord
from ebclab.sweeps.results import BASELINE, ConfirmedSettings, readings_of_test_set


def how_measured(record: SweepRecord, confirmed: Sequence[ConfirmedSettings]) -> dict[str, str]:
    """Return the rows of the table about data split, probes, seeds, stopping and intervals, by heading.

    Args:
        confirmed: Its confirmed settings, the winner first.
    """
    plan, config = record.plan, record.plan.config
    score, sizes = config.evaluation, record.split
    split = (
        f"{config.data.holdout_rate:.0%} of the training images, chosen by hash of each image's key, never trained on"
    )
    if sizes:
        split += f": {sizes[1]:,} held out, {sizes[0]:,} trained on"
    rules = plan.rules
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
        "Probe settings": f"kNN: {score.knn_neighbours} neighbours, temperature {score.knn_temperature:g}, "
        f"a bank of {score.knn_bank_limit:,} training images at most"
        if score.knn_bank_limit
        else f"kNN: {score.knn_neighbours} neighbours, temperature {score.knn_temperature:g}, all training images",
        "When": "after every epoch; a trial's value is that of its last epoch, not the best of all epochs",
        "Seeds": f"the search uses seed {config.seed}"
        + (f"; confirmation {first} to {config.seed + plan.seeds}" if plan.top else ""),
        "Early stopping": f"{stop}; diverged or collapsed trials always end",
        "Ranking": "finished trials by their last value, then stopped ones by epochs done and last value",
        "Confirmation": _same_images(record),
        "Test set": test_set_readings(record),
        "Intervals": _intervals(confirmed),
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

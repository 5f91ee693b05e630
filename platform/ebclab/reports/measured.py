"""Describe how the numbers of a sweep were measured."""

from __future__ import annotations

from ebclab.reports.reading import SweepRecord
from ebclab.reports.verdict import NOISE_RULE


def how_measured(record: SweepRecord) -> dict[str, str]:
    """Return the rows of the table about data split, probes, seeds, stopping and intervals, by heading."""
    plan, config = record.plan, record.plan.config
    score, sizes = config.evaluation, record.split
    split = (
        f"{config.data.holdout_rate:.0%} of the training images, chosen by hash of each image's key, never trained on"
    )
    if sizes:
        split += f": {sizes[1]:,} held out, {sizes[0]:,} trained on"
    rules = plan.rules
    stop = {
        "asha": f"successive halving from epoch {rules.grace(plan.epochs)} on, one in {rules.reduction_factor} goes on",
        "median": f"stopped below the median of the others, from epoch {rules.grace(plan.epochs)} on",
        "pbt": f"population: every {plan.population.interval_epochs} epochs the worst go on from the best's weights; "
        "a trial's settings are those it ended with",
        "none": "none by comparison",
    }[rules.scheduler]
    tested = record.log.last_event("tested")
    test = "read once, after the choice, for the winner's runs" if tested else "not read"
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
        "Test set": test,
        "Intervals": "Student's 95 % interval of the mean over seeds. " + NOISE_RULE,
    }


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

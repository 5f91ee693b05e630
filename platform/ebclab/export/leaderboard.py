"""What a sweep found, best first: settings, how sure their score is, and the run whose weights stand for them."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ebclab.errors import RunError
from ebclab.evaluation.objectives import OBJECTIVES, shown_score
from ebclab.storage import atomic
from ebclab.sweeps.folder import SweepFolder
from ebclab.sweeps.log import finite
from ebclab.sweeps.plan import SweepPlan
from ebclab.sweeps.proposals import BASELINE, ranked


@dataclass(frozen=True)
class LeaderboardRow:
    """One set of settings on a sweep's leaderboard.

    Attributes:
        rank: From 1.
        trial: Search trial that the settings are of, or "baseline" for those that the search started from.
        run: Name of the run folder whose weights stand for them.
        seed: Seed of that run.
        settings: Searched settings by dotted key.
        seeds: Seeds that were run.
        values: The objective, one a seed.
        seeds_asked: Seeds that were asked for; 0 when nothing was confirmed.
        mean: Mean of ``values``.
        std: Their standard deviation; none for one value alone.
        low: Lower end of Student's 95 % interval of the mean over seeds; none for one value alone.
        high: Upper end of it.
    """

    rank: int
    trial: str
    run: str
    seed: int
    settings: dict[str, Any]
    seeds: list[int]
    values: list[float]
    seeds_asked: int
    mean: float
    std: float | None
    low: float | None
    high: float | None

    @property
    def folder(self) -> str:
        """Name of its folder in an export."""
        return f"{self.rank}-{self.trial}"


@dataclass(frozen=True)
class Leaderboard:
    """A sweep's places with what they were measured by.

    Attributes:
        sweep: Name of the sweep.
        plan: What the sweep is.
        places: Best first.
        test: Test scores of the first place by probe, each with mean and interval over seeds; empty when not read.
        is_confirmed: The settings were run again with other seeds.
    """

    sweep: str
    plan: SweepPlan
    places: list[LeaderboardRow]
    test: dict[str, dict[str, Any]]
    is_confirmed: bool


def confirmed_places(folder: SweepFolder, plan: SweepPlan) -> Leaderboard:
    """Return what a finished sweep has confirmed; the first confirming seed stands for each set of settings.

    Raises:
        RunError: The sweep has not finished, or it confirmed nothing.
    """
    instead = "or export its best trials as they are with --unconfirmed"
    if not folder.result.is_file():
        where = f"--name {folder.path.name} --sweeps {folder.parent}"
        resume = f"ebclab sweep {plan.config.method_name} {where} --resume"
        raise RunError(
            f"{folder.address}: the sweep has not finished, got no {folder.result.name}; "
            f"finish it with `{resume}`, {instead}"
        )
    try:
        result = json.loads(folder.result.read_text(encoding="utf-8"))
        places = [_confirmed(rank, entry) for rank, entry in enumerate(result["candidates"], start=1)]
        test = dict(result["test"] or {})
    except (ValueError, KeyError, TypeError) as error:
        raise RunError(f"{folder.result}: not the result of a sweep, got {error}; resume the sweep") from error
    if not places:
        raise RunError(
            f"{folder.address}: nothing was confirmed, got --top {plan.top}; resume the sweep with --top 1, {instead}"
        )
    return Leaderboard(folder.path.name, plan, places, test, is_confirmed=True)


def unconfirmed_places(folder: SweepFolder, plan: SweepPlan) -> Leaderboard:
    """Return the trials of a search, best first, each by the one value that it was chosen by.

    Raises:
        RunError: No trial has measured anything.
    """
    places = [
        LeaderboardRow(
            rank, trial.id, trial.run_name, trial.seed, dict(trial.settings), [trial.seed], [value], 0, value, *_NONE
        )
        for rank, trial in enumerate(ranked(folder.read_log().of_kind("search")), start=1)
        for value in [trial.objectives[trial.epochs_done]]
    ]
    if not places:
        raise RunError(f"{folder.address}: no trial has measured anything, got nothing to export; resume the sweep")
    return Leaderboard(folder.path.name, plan, places, {}, is_confirmed=False)


_NONE = (None, None, None)


def _confirmed(rank: int, entry: dict[str, Any]) -> LeaderboardRow:
    values = [float(value) for value in entry["values"]]
    std, low, high = (None if entry[key] is None else float(entry[key]) for key in ("std", "low", "high"))
    source, seeds = str(entry["trial"]), [int(seed) for seed in entry["seeds"]]
    run, asked = f"confirm-{source}-seed{seeds[0]}", int(entry["seeds_asked"])
    mean = float(entry["mean"])
    return LeaderboardRow(
        rank, source, run, seeds[0], dict(entry["settings"]), seeds, values, asked, mean, std, low, high
    )


def lines_for(board: Leaderboard, place: LeaderboardRow) -> list[str]:
    """Return what the card of one place tells of the sweep, one line a fact."""
    plan, objective = board.plan, board.plan.config.evaluation.objective
    shown = [shown_score(objective, value) for value in place.values]
    by_seed = ", ".join(f"{value} (seed {seed})" for seed, value in zip(place.seeds, shown, strict=True))
    what = f"{OBJECTIVES[objective]} ({objective})"
    where = "the settings that the search started from" if place.trial == BASELINE else f"trial {place.trial}"
    kind = "confirmed sets of settings" if board.is_confirmed else "trials of the search, not confirmed"
    lines = [
        f"sweep {board.sweep}: {plan.trials} trials of at most {plan.epochs} epochs, {plan.search}, "
        f"{plan.rules.scheduler}, method {plan.config.method_name}",
        f"rank {place.rank} of {len(board.places)} {kind}, by the mean over seeds of {what}: {where}",
        f"mean over {len(place.seeds)} of {max(place.seeds_asked, 1)} seeds: {_mean(objective, place)}; {by_seed}",
        f"these weights: seed {place.seed}, {_why(board)}",
        f"protocol: {_protocol(plan)}",
        "searched settings: " + ", ".join(f"{key}={_short(value)}" for key, value in place.settings.items()),
    ]
    if place.rank == 1:
        lines += [
            f"test set, {name}, mean over {len(score['values'])} seeds: {_mean('holdout_knn', score)}"
            for name, score in board.test.items()
        ]
    return lines


def _why(board: Leaderboard) -> str:
    if board.is_confirmed:
        return "the first of the confirming seeds, whatever it scored: no seed was chosen by its score"
    return "the one of the search"


def _protocol(plan: SweepPlan) -> str:
    evaluation, data = plan.config.evaluation, plan.config.data
    knn = f", {evaluation.knn_neighbours} neighbours" if evaluation.objective == "holdout_knn" else ""
    return (
        f"scored after the last epoch on the {data.holdout_rate:.0%} of the training images of {data.name} that were "
        f"held out by hash and never trained on{knn}; the test set chose nothing"
    )


def _mean(objective: str, of: LeaderboardRow | dict[str, Any]) -> str:
    entry = vars(of) if isinstance(of, LeaderboardRow) else of
    mean = shown_score(objective, entry["mean"])
    if entry["low"] is None:
        return f"{mean}, one seed gives no interval"
    return f"{mean}, 95 % interval {shown_score(objective, entry['low'])} to {shown_score(objective, entry['high'])}"


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def write_leaderboard(folder: Path, board: Leaderboard, exported: Sequence[LeaderboardRow]) -> None:
    """Write leaderboard.json and leaderboard.csv: every place, with its folder where it was exported."""
    plan = board.plan
    rows = [{**vars(place), "folder": place.folder if place in exported else None} for place in board.places]
    whole = {
        "format": 1,
        "sweep": board.sweep,
        "method": plan.config.method_name,
        "dataset": plan.config.data.name,
        "objective": plan.config.evaluation.objective,
        "protocol": _protocol(plan),
        "confirmed": board.is_confirmed,
        "test": board.test,
        "places": rows,
    }
    atomic.write_json(folder / "leaderboard.json", finite(whole))
    atomic.write_text(folder / "leaderboard.csv", _csv(rows))


def _csv(rows: Sequence[dict[str, Any]]) -> str:
    """Return one line a place; searched settings have a column each, several seeds or values stand in one cell."""
    plain = ["rank", "trial", "folder", "run", "seed", "mean", "std", "low", "high", "seeds_asked"]
    searched = sorted({key for row in rows for key in row["settings"]})
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*plain, "seeds", "values", *searched])
    for row in rows:
        several = [" ".join(map(str, row[key])) for key in ("seeds", "values")]
        writer.writerow([*(row[key] for key in plain), *several, *(row["settings"].get(key) for key in searched)])
    return text.getvalue()

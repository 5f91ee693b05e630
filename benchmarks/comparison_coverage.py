"""How often the intervals of a comparison's page contain the truth, in simulated comparisons whose truth is known.

    python benchmarks/comparison_coverage.py

Whole comparisons go through the code of the page: four methods on two batch sizes, R seeds, n test images, N draws.
Settings drawn at random have held-out scores from a known distribution, so that the winner of a search is a selected
one; its runs on the test images follow the model of `coverage.py` (difficulty of images, taste of settings, effects of
seeds). Settings with a higher held-out score are truly better, but less than the score says: the search has noise.
Counted is, over many such comparisons, how often

    tuned           all intervals of differences between tuned methods contain the true differences
    gain            all intervals of tuned over default settings contain theirs
    false leads     some method is said to lie ahead beyond noise and is not better
    equal, wrongly  some difference is called no larger than the margin and is larger
    improvement     the interval of a chance of improvement contains the true one (each for itself)
    iqm             the interval of an interquartile mean contains the true one (each for itself)
    band            a tuning curve's band holds the whole true curve (each for itself)

One core, some minutes.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from coverage import SCENARIOS, Scenario, Truth, answers_of
from page import write_page
from scipy import stats

from ebclab.compare.findings import ComparisonFindings, Gap, Side
from ebclab.compare.make_comparison import make_comparison
from ebclab.compare.measured import Draw, Measured, MeasuredSweep, SettingsRuns
from ebclab.compare.plan import ComparisonPlan
from ebclab.compare.request import ComparisonRequest
from ebclab.compare.tuning_curve import tuning_curve
from ebclab.evaluation.answers import Answers
from ebclab.evaluation.comparison import Measurements

METHODS = ("simclr", "dcl", "dhel", "flatclr")
BATCH_SIZES = (32, 64)
DRAWS = 12
SEEDS = (3, 8)
IMAGES = (1_380, 10_000)
SEARCH_NOISE = 0.15  # logits: of a draw's held-out score, beside what is true of its settings
SPREAD = 0.3  # logits: standard deviation of settings drawn at random
MARGIN = 0.5
Array = np.ndarray[Any, np.dtype[Any]]


def plan_of(num_seeds: int) -> ComparisonPlan:
    """Return the plan of a simulated comparison."""
    return make_comparison(
        ComparisonRequest(
            methods=METHODS, batch_sizes=BATCH_SIZES, recipe="digits-demo", trials=DRAWS, seeds=num_seeds, margin=MARGIN
        )
    )


class Simulated:
    """One simulated comparison, and what is true of it.

    Args:
        plan: Its plan.
        scenario: The generating model.
        num_images: Test images.
        methods: Standard deviation of methods, logits; 0: all are equal.
        rng: Source of all that is random.
    """

    def __init__(self, plan: ComparisonPlan, scenario: Scenario, num_images: int, methods: float, rng: Any) -> None:
        truth = Truth(scenario)
        self.true: dict[tuple[str, int, str], float] = {}
        sweeps = []
        seeds, keys = plan.sweeps[0].plan.seeds, torch.arange(num_images)
        self.spread = scenario.seed
        for planned in plan.sweeps:
            middle = truth.middle + methods * rng.standard_normal() - 1.0
            drawn = middle + SPREAD * rng.standard_normal(DRAWS)
            noisy = drawn + SEARCH_NOISE * rng.standard_normal(DRAWS)
            best = float(drawn[int(noisy.argmax())])
            found = {}
            for name, place in (("tuned", best), ("default", middle)):
                right = answers_of(scenario, np.array([place]), np.ones(1), (seeds, num_images), rng)[0]
                self.true[planned.method, planned.task.batch_size, name] = float(truth.score(np.array([place]), 1.0)[0])
                each = [Answers.of(torch.from_numpy(row[None] > 0.5), keys) for row in right]
                by_seed = Measurements.of(range(1, seeds + 1), [float(row.mean()) for row in right], each)
                found[name] = SettingsRuns(name, {}, by_seed, {"knn": by_seed}, (), 0)
            scores = 1 / (1 + np.exp(-noisy))
            sweeps.append(
                MeasuredSweep(
                    planned,
                    tuple(Draw(float(score), 1.0, "finished") for score in scores),
                    tuned=found["tuned"],
                    default=found["default"],
                )
            )
            levels = 0.5 ** (1 / np.arange(1, DRAWS + 1))
            self.curve = 1 / (1 + np.exp(-stats.norm.ppf(levels, middle, (SPREAD**2 + SEARCH_NOISE**2) ** 0.5)))
            self.scores = list(scores)
        self.found = ComparisonFindings(Measured(plan, tuple(sweeps)))

    def true_gap(self, gap: Gap) -> float:
        """Return the true difference."""
        return self._score(gap.one) - self._score(gap.other)

    def _score(self, side: Side) -> float:
        return self.true[side.method, side.task.batch_size, side.settings]


def events_of(made: Simulated) -> Iterator[tuple[str, bool]]:
    """Yield what is counted of one comparison."""
    margin = made.found.margin
    for family in ("tuned", "gain"):
        gaps = [(gap, made.true_gap(gap)) for gap in made.found.gaps_of(family)]  # type: ignore[arg-type]
        yield family, all(_holds(gap, true) for gap, true in gaps)
    tuned = [(gap, made.true_gap(gap)) for gap in made.found.gaps_of("tuned")]
    yield (
        "false leads",
        any(
            (gap.verdict(margin), true) in [("ahead", true), ("behind", true)]
            and (true <= 1e-12 if gap.verdict(margin) == "ahead" else true >= -1e-12)
            for gap, true in tuned
        ),
    )
    yield "equal, wrongly", any(gap.verdict(margin) == "equal" and abs(true) > margin for gap, true in tuned)
    curve = tuning_curve(made.scores)
    yield "band", bool(((np.array(curve.low) <= made.curve) & (made.curve <= np.array(curve.high))).all())


def _holds(gap: Gap, true: float) -> bool:
    low, high = gap.difference.low, gap.difference.high
    return low is not None and high is not None and low <= true <= high


def robust_events(num_seeds: int, rng: Any) -> Iterator[tuple[str, bool]]:
    """Yield whether bootstrap intervals hold the truth of two methods with normal scores on two tasks."""
    from ebclab.compare.statistics import bootstrap_interval, interquartile_mean, probability_of_improvement

    gap = 0.5
    one, other = ([rng.normal(shift, 1.0, num_seeds) for _ in BATCH_SIZES] for shift in (gap, 0.0))
    draws = np.random.default_rng(0)
    low, high = bootstrap_interval(probability_of_improvement, one, other, generator=draws, draws=400)
    yield "improvement", low <= stats.norm.cdf(gap / 2**0.5) <= high
    low, high = bootstrap_interval(interquartile_mean, one, generator=draws, draws=400)
    yield "iqm", low <= gap <= high


COLUMNS = ("tuned", "gain", "false leads", "equal, wrongly", "band", "improvement", "iqm")


def row_of(name: str, methods: float, num_seeds: int, num_images: int, times: int) -> str:
    """Return a row of the table."""
    rng = np.random.default_rng([num_seeds, num_images, int(1_000 * methods)])
    plan, counted = plan_of(num_seeds), Counter[str]()
    for _ in range(times):
        for event, happened in events_of(Simulated(plan, SCENARIOS[name], num_images, methods, rng)):
            counted[event] += happened
        for event, happened in robust_events(num_seeds, rng):
            counted[event] += happened
    shares = " | ".join(f"{counted[event] / times:.1%}" for event in COLUMNS)
    return f"| {name} | {methods:g} | {num_images:,} | {num_seeds} | {shares} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=400)
    times = parser.parse_args().times
    heads = ["scenario", "methods", "images", "seeds", *COLUMNS]
    lines = [f"| {' | '.join(heads)} |", "|" + "---|" * len(heads)]
    for name in ("digits, null", "unequal"):
        for methods in (0.0, 0.2):
            for num_images in IMAGES:
                lines += [row_of(name, methods, seeds, num_images, times) for seeds in SEEDS]
    about = (
        f"{len(METHODS)} methods, batch sizes {BATCH_SIZES}, {DRAWS} draws, margin {MARGIN:g} points; {times} "
        f"comparisons a row. Draws spread by {SPREAD:g} logits around their method, held-out scores by "
        f"{SEARCH_NOISE:g} more; column methods: standard deviation of methods, logits."
    )
    write_page(
        "comparison_coverage",
        "What the intervals of a comparison hold",
        f"`python benchmarks/comparison_coverage.py --times {times}`",
        ("numpy", "scipy", "opda"),
        "\n".join([about, "", *lines]),
    )


if __name__ == "__main__":
    main()

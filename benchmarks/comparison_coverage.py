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

A second table has the power that a page tells from the measured noise of such comparisons, of two methods on two batch
sizes, and how often whole comparisons then find a true difference of this size, and a true tie.

One core, some minutes.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import torch
from coverage import SCENARIOS, Scenario, Truth, answers_of
from page import write_page
from scipy import optimize, stats

from ebclab.comparisons.findings import ComparisonFindings, Draw, Gap, MeasuredSweep, SettingsRuns, Side
from ebclab.comparisons.plan import ComparisonPlan, make_comparison
from ebclab.comparisons.power import Design, noise_of_pairs, share_of, smallest_difference
from ebclab.comparisons.request import ComparisonRequest
from ebclab.comparisons.statistics import tuning_curve
from ebclab.evaluation.answers import Answers
from ebclab.evaluation.comparison import CHANCE, Measurements
from ebclab.interval import Interval

METHODS = ("simclr", "dcl", "dhel", "flatclr")
BATCH_SIZES = (32, 64)
DRAWS = 12
SEEDS = (3, 8)
IMAGES = (1_380, 10_000)
SEARCH_NOISE = 0.15  # logits: of a draw's held-out score, beside what is true of its settings
SPREAD = 0.3  # logits: standard deviation of settings drawn at random
MARGIN = 0.5
Array = np.ndarray[Any, np.dtype[Any]]


def plan_of(num_seeds: int, methods: tuple[str, ...] = METHODS) -> ComparisonPlan:
    """Return the plan of a simulated comparison."""
    return make_comparison(
        ComparisonRequest(
            methods=methods, batch_sizes=BATCH_SIZES, recipe="digits-demo", trials=DRAWS, seeds=num_seeds, margin=MARGIN
        )
    )


def runs_of(name: str, right: Array) -> SettingsRuns:
    """Return runs with these right answers (R, n)."""
    keys = torch.arange(right.shape[1])
    each = [Answers.of(torch.from_numpy(row[None] > 0.5), keys) for row in right]
    by_seed = Measurements.of(range(1, len(right) + 1), [float(row.mean()) for row in right], each)
    return SettingsRuns(name, {}, by_seed, {"knn": by_seed}, (), 0)


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
        seeds = plan.sweeps[0].plan.seeds
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
                found[name] = runs_of(name, right)
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
        self.found = ComparisonFindings(plan, tuple(sweeps))

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
        yield family, all(_holds(gap.difference, true) for gap, true in gaps)
    tuned = [(gap, made.true_gap(gap)) for gap in made.found.gaps_of("tuned")]
    yield (
        "false leads",
        any(
            (gap.verdict, true) in [("ahead", true), ("behind", true)]
            and (true <= 1e-12 if gap.verdict == "ahead" else true >= -1e-12)
            for gap, true in tuned
        ),
    )
    yield "equal, wrongly", any(gap.verdict == "equal" and abs(true) > margin for gap, true in tuned)
    curve = tuning_curve(made.scores)
    yield "band", bool(((np.array(curve.low) <= made.curve) & (made.curve <= np.array(curve.high))).all())


def _holds(found: Interval, true: float) -> bool:
    return found.low is not None and found.high is not None and found.low <= true <= found.high


def robust_events(num_seeds: int, rng: Any) -> Iterator[tuple[str, bool]]:
    """Yield whether bootstrap intervals hold the truth of two methods with normal scores on two tasks."""
    from ebclab.comparisons.statistics import bootstrap_interval, interquartile_mean, probability_of_improvement

    gap = 0.5
    one, other = ([rng.normal(shift, 1.0, num_seeds) for _ in BATCH_SIZES] for shift in (gap, 0.0))
    draws = np.random.default_rng(0)
    ends = bootstrap_interval(probability_of_improvement, one, other, generator=draws, draws=400)
    yield "improvement", _holds(Interval(0.0, *ends), stats.norm.cdf(gap / 2**0.5))
    ends = bootstrap_interval(interquartile_mean, one, generator=draws, draws=400)
    yield "iqm", _holds(Interval(0.0, *ends), gap)


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


def power_row(name: str, num_seeds: int, num_images: int, times: int) -> str:
    """Return a row of the table of power: what is told, and what whole comparisons find."""
    rng, scenario = np.random.default_rng([num_seeds, num_images]), SCENARIOS[name]
    plan, truth, one = plan_of(num_seeds, METHODS[:2]), Truth(scenario), np.ones(2)
    score = float(truth.score(np.array([truth.middle]), 1.0)[0])

    def design_at(better: float) -> Design:
        middles = np.array([better, truth.middle])
        runs = [answers_of(scenario, middles, one, (8, num_images), rng).astype(float) for _ in range(40)]
        noise = noise_of_pairs([(each[0], each[1]) for each in runs], "")
        return Design(noise, num_seeds, num_images, CHANCE / len(BATCH_SIZES), MARGIN / 100)

    def shortfall(wanted: float, middle: float) -> float:
        return float(truth.score(np.array([middle]), 1.0)[0]) - wanted

    better, told, ties = truth.middle, 0.0, share_of(design_at(truth.middle), 0.0, "equal", 0)
    for _ in range(2):  # the noise of runs depends on how good they are
        told = smallest_difference(design_at(better), 0) or np.nan
        if not told < 1 - score:
            return f"| {name} | {num_images:,} | {num_seeds} | none | - | {ties:.0%} | - |"
        wanted = score + told
        better = float(optimize.brentq(partial(shortfall, wanted), truth.middle, 60))
    counted = Counter[tuple[bool, str]]()
    for is_tie in (False, True):
        middles = truth.middle * one if is_tie else np.array([better, truth.middle])
        for _ in range(times):
            sweeps = []
            for planned in plan.sweeps:
                if planned.method == METHODS[0]:
                    right = answers_of(scenario, middles, one, (num_seeds, num_images), rng)
                runs = runs_of("tuned", right[METHODS.index(planned.method)])
                sweeps.append(MeasuredSweep(planned, tuned=runs))
            for gap in ComparisonFindings(plan, tuple(sweeps)).gaps_of("tuned"):
                counted[is_tie, gap.verdict] += 1
    found, tied = (counted[key] / times / len(BATCH_SIZES) for key in ((False, "behind"), (True, "equal")))
    return f"| {name} | {num_images:,} | {num_seeds} | {100 * told:.2g} | {found:.0%} | {ties:.0%} | {tied:.0%} |"


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
    heads = ["scenario", "images", "seeds", "told, points", "found", "ties told", "ties found"]
    power = [f"| {' | '.join(heads)} |", "|" + "---|" * len(heads)]
    for name in ("digits, null", "unequal"):
        power += [power_row(name, seeds, images, times) for images in IMAGES for seeds in SEEDS]
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
        "\n".join([about, "", *lines, "", "Power told, and found by whole comparisons:", "", *power]),
    )


if __name__ == "__main__":
    main()

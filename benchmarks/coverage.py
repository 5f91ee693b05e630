"""How often intervals of a sweep's page contain the truth, in simulated sweeps whose truth is known.

    python benchmarks/coverage.py

Start and rivals, C settings, R seeds, n held-out images. Setting c with seed r is right about image i with the chance

    logistic(m_c + d_i + u_{c,i} + s_{c,r})

difficulty d_i of the image, u_{c,i} what the settings find easy or hard about it, s_{c,r} the seed's effect: all
normal. A setting's true score is the mean over all images and seeds. The best mean of the C is the winner. Counted
is, over many such sweeps, how often

    one difference    the interval of a difference between two settings, were it the only one, contains the true one
    winner's mean     the interval of the winner's mean contains its true score
    its differences   all intervals of the winner's differences to the others contain theirs
    false             some other setting is said to lie beyond noise below the winner, and is not worse

and, for comparison, with Student's intervals over seeds (Welch's for differences), each for itself: `before`. All
settings are equal in the scenarios called null. One core, some minutes.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import Any

import numpy as np
from page import write_page
from scipy import optimize, stats

from ebclab.evaluation.seeds_and_images import difference_interval, mean_interval, quantile

CHANCE = 0.05
SEEDS = (2, 3, 5, 10)
IMAGES = (141, 1_380, 10_000)
SETTINGS = (4, 11)  # three and ten candidates, and the start
FREEDOM = np.linspace(1, 18, 1_701)
QUANTILES = stats.t.isf(CHANCE / 2, FREEDOM)
Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Scenario:
    """The generating model.

    Attributes:
        accuracy: Mean score of the settings.
        difficulty: Standard deviation of d, logits.
        taste: Standard deviation of u.
        seed: Standard deviation of s; of settings 0, 1, 2, ... times ``spreads`` in turn.
        settings: Standard deviation of m over settings; 0: all are equal.
        spreads: Factors of ``seed``.
    """

    accuracy: float
    difficulty: float
    taste: float
    seed: float
    settings: float = 0.0
    spreads: tuple[float, ...] = (1.0,)

    def in_words(self) -> str:
        """Return the parameters for the table's legend."""
        spreads = f" times {', '.join(f'{each:g}' for each in self.spreads)} in turn" if len(self.spreads) > 1 else ""
        return (
            f"mean accuracy {self.accuracy:.1%}; standard deviations, in logits: difficulty {self.difficulty:g}, "
            f"settings and image {self.taste:g}, seeds {self.seed:g}{spreads}, settings {self.settings:g}"
        )


# As eight runs of SimCLR on digits have it: `--recipe digits-demo`, 6 epochs, temperatures 0.2 and 0.3, seeds 1 to 4,
# 141 held-out images: 94.2 % right; 3.2 % wrong with two seeds of one temperature, 3.3 % with both; seeds 1.1 points.
DIGITS = Scenario(0.942, 4.1, 0.3, 0.4)
SCENARIOS = {
    "digits, null": DIGITS,
    "ties, null": Scenario(0.95, 4.0, 0.5, 0.0),
    "unequal": Scenario(0.75, 2.0, 0.7, 0.1, settings=0.15),
    "unequal seeds, null": Scenario(0.85, 2.5, 1.0, 0.3, spreads=(1.0, 0.2, 3.0)),
}


class Truth:
    """True scores: the mean of the logistic function over all images and seeds.

    Args:
        scenario: The generating model.
    """

    def __init__(self, scenario: Scenario) -> None:
        nodes, weights = np.polynomial.hermite_e.hermegauss(80)
        self._nodes, self._weights = nodes, weights / weights.sum()
        self._own = scenario.difficulty**2 + scenario.taste**2
        self._scenario = scenario
        self.middle = float(optimize.brentq(lambda m: self.score(np.array([m]), 1.0)[0] - scenario.accuracy, -60, 60))

    def score(self, middles: Array, spread: float) -> Array:
        """Return the true scores of settings with these m, whose seeds spread by so many times ``seed``."""
        deviation = (self._own + (spread * self._scenario.seed) ** 2) ** 0.5
        return (self._weights / (1 + np.exp(-(middles[:, None] + deviation * self._nodes)))).sum(axis=1)


def answers_of(scenario: Scenario, middles: Array, spreads: Array, shape: tuple[int, int], rng: Any) -> Array:
    """Return right answers (C, R, n) as float32."""
    (num_seeds, num_images), count = shape, len(middles)
    own = scenario.taste * rng.standard_normal((count, num_images), dtype=np.float32)
    own += scenario.difficulty * rng.standard_normal(num_images, dtype=np.float32) + middles[:, None].astype(np.float32)
    effects = scenario.seed * spreads[:, None] * rng.standard_normal((count, num_seeds))
    odds = np.exp(own)[:, None] * np.exp(effects).astype(np.float32)[:, :, None]
    chances = odds + 1
    np.divide(odds, chances, out=odds)
    rng.random(out=chances, dtype=np.float32)
    return np.less(chances, odds, out=odds, casting="unsafe")


@dataclass(frozen=True)
class Sums:
    """Sums of squares of all settings and of all their differences, from two products of matrices.

    Attributes:
        totals: Right answers by setting and seed, (C, R).
        by_image: Sum over images of the product of two settings' right answers over seeds, (C, C).
        single: Sum over images and seeds of the product of two settings' answers, (C, C).
        num_images: n.
    """

    totals: Array
    by_image: Array
    single: Array
    num_images: int

    @classmethod
    def of(cls, right: Array) -> Sums:
        """Return the sums of right answers (C, R, n)."""
        flat, over_seeds = right.reshape(len(right), -1), right.sum(axis=1)
        totals = right.sum(axis=2, dtype=np.float64)
        return cls(totals, (over_seeds @ over_seeds.T).astype(float), (flat @ flat.T).astype(float), right.shape[2])

    def differences(self, count: int, chance: float) -> tuple[Array, Array]:
        """Return centres and half widths (C, C) of the differences between the first ``count`` settings."""
        part = np.s_[:count, :count]
        by_image, single = (_of_differences(sums[part]) for sums in (self.by_image, self.single))
        num_seeds, totals = self.totals.shape[1], self.totals[:count]
        with np.errstate(invalid="ignore", divide="ignore"):
            kept = np.where(single > 0, by_image / (num_seeds * single), 1.0)
        gaps = totals[:, None] - totals[None]  # (C, C, R)
        return _interval(gaps, by_image / num_seeds**2 + kept, single + num_seeds * kept, self.num_images + 2, chance)

    def means(self, count: int, chance: float) -> tuple[Array, Array]:
        """Return centres and half widths (C,) of the means of the first ``count`` settings."""
        num_seeds, totals = self.totals.shape[1], self.totals[:count] + 2
        by_image = np.diag(self.by_image)[:count] / num_seeds**2 + 2
        return _interval(totals, by_image, totals.sum(axis=1), self.num_images + 4, chance)


def _of_differences(products: Array) -> Array:
    """Return sums of squared differences from sums of products."""
    own = np.diag(products)
    return own[:, None] + own[None] - 2 * products


def _interval(totals: Array, by_image: Array, single: Array, num_images: int, chance: float) -> tuple[Array, Array]:
    """Return centre and half width; the equations of ``seeds_and_images``, for many tables at once.

    Args:
        totals: Sum of each seed, (..., R).
        by_image: Sum over images of the squared mean over seeds, (...).
        single: Sum of all squared entries, (...).
        num_images: n, the added images included.
        chance: Probability that the interval misses.
    """
    num_seeds = totals.shape[-1]
    size, mean = num_seeds * num_images, totals.sum(axis=-1) / (num_seeds * num_images)
    seeds = num_images * ((totals / num_images - mean[..., None]) ** 2).sum(axis=-1)
    images = num_seeds * (by_image - num_images * mean**2)
    rest = np.maximum(0.0, single - size * mean**2 - seeds - images)
    ms_seeds, ms_images = seeds / (num_seeds - 1), images / (num_images - 1)
    ms_rest = rest / ((num_seeds - 1) * (num_images - 1))
    by_seeds, by_images = (quantile(chance, freedom) for freedom in (num_seeds - 1, num_images - 1))
    both = by_seeds**2 * ms_seeds + by_images**2 * np.maximum(0.0, ms_images - ms_rest)
    return mean, np.sqrt(np.maximum(both, by_images**2 * ms_images) / size)


def require_the_same(right: Array) -> None:
    """Refuse to measure anything but the intervals of the page."""
    sums, tables = Sums.of(right), right.astype(np.float64)
    centres, halves = sums.differences(2, CHANCE)
    low, high = difference_interval(tables[0], tables[1], CHANCE)
    np.testing.assert_allclose([centres[0, 1] - halves[0, 1], centres[0, 1] + halves[0, 1]], [low, high], atol=1e-6)
    centres, halves = sums.means(1, CHANCE)
    low, high = mean_interval(tables[0], CHANCE)
    found = [max(0.0, centres[0] - halves[0]), min(1.0, centres[0] + halves[0])]
    np.testing.assert_allclose(found, [low, high], atol=1e-6)


def events_of(sums: Sums, scores: Array) -> list[bool]:
    """Return what one sweep counts, in the order of the table's columns."""
    centres, halves = sums.differences(2, CHANCE)
    counted = [bool(abs(centres[0, 1] - (scores[0] - scores[1])) <= halves[0, 1])]
    for count in SETTINGS:
        means, true = sums.totals[:count].mean(axis=1) / sums.num_images, scores[:count]
        best, pairs = int(means.argmax()), count * (count - 1) // 2
        others = np.arange(count) != best
        centres, halves = sums.means(count, CHANCE / count)
        counted.append(bool(abs(centres[best] - true[best]) <= halves[best]))
        centres, halves = (part[best][others] for part in sums.differences(count, CHANCE / pairs))
        gaps = (true[best] - true)[others]
        counted.append(bool((abs(centres - gaps) <= halves).all()))
        counted.append(bool(((centres - halves > 0) & (gaps <= 1e-12)).any()))
        counted += _before(sums.totals[:count] / sums.num_images, best, true)
    return counted


def _before(by_seed: Array, best: int, true: Array) -> list[bool]:
    """Return whether Student's interval holds the winner's true mean, and whether Welch's says a false beyond noise."""
    num_seeds, means = by_seed.shape[1], by_seed.mean(axis=1)
    errors = by_seed.var(axis=1, ddof=1) / num_seeds
    half = quantile(CHANCE, num_seeds - 1) * errors[best] ** 0.5
    both = errors[best] + errors
    with np.errstate(invalid="ignore", divide="ignore"):
        freedom = (num_seeds - 1) * both**2 / (errors[best] ** 2 + errors**2)
    halves = np.where(both > 0, np.interp(freedom, FREEDOM, QUANTILES) * both**0.5, 0.0)
    false = (means[best] - means > halves) & (true[best] - true <= 1e-12) & (np.arange(len(true)) != best)
    return [bool(abs(means[best] - true[best]) <= half), bool(false.any())]


def simulate(scenario: Scenario, num_seeds: int, num_images: int, sweeps: int) -> Array:
    """Return the shares of the counted events in ``sweeps`` simulated sweeps."""
    rng, truth = np.random.default_rng([num_seeds, num_images]), Truth(scenario)
    count = max(SETTINGS)
    spreads = np.resize(scenario.spreads, count).astype(np.float64)
    if scenario.settings == 0:  # equal scores also where seeds spread unequally
        middles = np.array([_middle_of(truth, spread, scenario.accuracy) for spread in spreads])
        scores = np.full(count, scenario.accuracy)
    counted = np.zeros(1 + 5 * len(SETTINGS))
    for number in range(sweeps):
        if scenario.settings:
            middles = truth.middle + scenario.settings * rng.standard_normal(count)
            scores = truth.score(middles, 1.0)
        right = answers_of(scenario, middles, spreads, (num_seeds, num_images), rng)
        if number == 0:
            require_the_same(right)
        counted += events_of(Sums.of(right), scores)
    return counted / sweeps


def _middle_of(truth: Truth, spread: float, accuracy: float) -> float:
    return float(optimize.brentq(lambda m: truth.score(np.array([m]), spread)[0] - accuracy, -60, 60))


def table_of(name: str, scenario: Scenario, sweeps: int) -> str:
    """Return the markdown table of one scenario."""
    heads = ["images", "seeds", "one difference"]
    for count in SETTINGS:
        heads += [f"winner's mean, of {count}", "its differences", "false", "before: mean", "before: false"]
    lines = [f"## {name}", "", f"{scenario.in_words()}.", ""]
    lines += [f"| {' | '.join(heads)} |", "|" + "---|" * len(heads)]
    for num_images in IMAGES:
        for num_seeds in SEEDS:
            shares = simulate(scenario, num_seeds, num_images, sweeps)
            cells = [f"{num_images:,}", str(num_seeds), *(f"{100 * share:.1f}" for share in shares)]
            lines.append(f"| {' | '.join(cells)} |")
            print(name, lines[-1], flush=True)
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sweeps", type=int, default=4_000, help="simulated sweeps a row")
    arguments = parser.parse_args()
    error = 100 * (0.05 * 0.95 / arguments.sweeps) ** 0.5
    legend = (
        f"Per cent of {arguments.sweeps:,} simulated sweeps a row; the Monte Carlo error of 95 or of 5 is {error:.2f}. "
        "Intervals that say 95 % should cover at least 95, and `false` should be at most 5. What the columns are: the "
        "head of `benchmarks/coverage.py`."
    )
    tables = [table_of(name, scenario, arguments.sweeps) for name, scenario in SCENARIOS.items()]
    command = f"`python benchmarks/coverage.py --sweeps {arguments.sweeps}`"
    title = "How often a sweep's intervals contain the truth"
    write_page("coverage", title, command, ("numpy", "scipy"), "\n\n".join([legend, *tables]))


if __name__ == "__main__":
    main()

"""Confidence intervals of accuracies of several runs, one per seed, on the same images.

R seeds, n images. x_{r,i} is 1 if run r is correct on image i and 0 otherwise; for a difference of two settings, it is
the difference of their values for the same seed and image. Seeds and images are both samples of larger populations
(crossed random effects):

    x_{r,i} = mu + a_r + b_i + e_{r,i}
    Var(mean) = sigma_a^2 / R + sigma_b^2 / n + sigma_e^2 / (R n)

The mean squares of the two-way table estimate the parts:

    S = MS_seeds / (R n)                      estimates sigma_a^2 / R + sigma_e^2 / (R n): as Student's t over seeds
    I = max(0, MS_images - MS_rest) / (R n)   estimates sigma_b^2 / n
    F = MS_images / (R n)                     the variance of the mean over other images, with these runs fixed

and the half-width h of the interval is

    h^2 = max(t_{R-1}^2 S + t_{n-1}^2 I, t_{n-1}^2 F)

The sum, with a separate quantile for each component, is Banerjee's (1960, Sankhya 22): for independent normal
components its coverage is at least nominal for any ratio of the variances, because the coverage is concave in h^2 and
each component alone has nominal coverage. Satterthwaite's degrees of freedom, usual for such tables (Obuchowski and
Rockette, 1995; Hillis, 2007), give shorter intervals, whose coverage is below nominal with two or three seeds. If all
seeds agree, h is the half-width of the interval over images (of a difference: McNemar's); as the number of images
grows, it approaches Student's t interval over seeds.

Pseudo-observations, the same for every run, are added so that runs which agree by chance do not give an interval of
zero width: for a mean, two correct and two incorrect images (Agresti and Coull, 1998); for a difference, half an image
that only the one classifies correctly and half an image that only the other does (Agresti and Min, 2005), both times
the fraction of a single run's variance over images that remains in the mean over seeds (1 if all seeds are correct on
the same images).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np

Table = np.ndarray[Any, np.dtype[np.float64]]
"""x_{r,i}, (R, n): one row per seed, one column per image."""


class Sums(NamedTuple):
    """Sums of a table: all that its interval depends on."""

    by_seed: Table  # sum over images for each seed, (R,)
    by_image: Table  # sum over seeds for each image, (n,)
    squares: float  # sum of x_{r,i}^2

    @classmethod
    def of(cls, table: Table) -> Sums:
        """Return the sums of a table."""
        return cls(table.sum(axis=1), table.sum(axis=0), float((table**2).sum()))

    def with_images(self, values: Table) -> Sums:
        """Return the sums of the table extended by images with these values in every row."""
        runs = len(self.by_seed)
        squares = self.squares + runs * float((values**2).sum())
        return Sums(self.by_seed + values.sum(), np.append(self.by_image, runs * values), squares)


@dataclass(frozen=True)
class VarianceParts:
    """Variance components of the mean of a table; the module docstring has the equations."""

    seeds: float  # S
    images: float  # I
    fixed_seeds: float  # F

    @classmethod
    def of(cls, table: Table) -> VarianceParts:
        """Return the variance components of a table of at least two seeds and two images."""
        return cls.of_sums(Sums.of(table - table.mean()))

    @classmethod
    def of_sums(cls, sums: Sums) -> VarianceParts:
        """Return the variance components of a table with these sums, whose mean is small beside its spread."""
        num_seeds, num_images = len(sums.by_seed), len(sums.by_image)
        size = num_seeds * num_images
        by_seed, by_image, mean = sums.by_seed / num_images, sums.by_image / num_seeds, sums.by_seed.sum() / size
        seeds = num_images * float(((by_seed - mean) ** 2).sum())
        images = num_seeds * float(((by_image - mean) ** 2).sum())
        rest = max(0.0, sums.squares - size * float(mean) ** 2 - seeds - images)
        ms_seeds, ms_images = seeds / (num_seeds - 1), images / (num_images - 1)
        ms_rest = rest / ((num_seeds - 1) * (num_images - 1))
        return cls(ms_seeds / size, max(0.0, ms_images - ms_rest) / size, ms_images / size)

    def half_width(self, num_seeds: int, num_images: int, chance: float) -> float:
        """Return h, of at least two seeds and two images, with ``chance`` to be wrong."""
        by_seeds, by_images = quantile(chance, num_seeds - 1), quantile(chance, num_images - 1)
        both = by_seeds**2 * self.seeds + by_images**2 * self.images
        return float(max(both, by_images**2 * self.fixed_seeds) ** 0.5)


def mean_interval(right: Table, chance: float) -> tuple[float, float]:
    """Return the interval of an accuracy, clipped to [0, 1], by answers of at least two seeds on at least one image."""
    whole = np.hstack([right, np.broadcast_to((1.0, 1.0, 0.0, 0.0), (len(right), 4))])
    half = VarianceParts.of(whole).half_width(whole.shape[0], whole.shape[1], chance)
    mean = float(whole.mean())
    return max(0.0, mean - half), min(1.0, mean + half)


def difference_interval(one: Table, other: Table, chance: float) -> tuple[float, float]:
    """Return the interval of how much higher the accuracy of ``one`` is, for the same seeds and images."""
    return interval_of_difference(Sums.of(one - other), chance)


def interval_of_difference(sums: Sums, chance: float) -> tuple[float, float]:
    """Return ``difference_interval`` of two tables whose difference has these sums."""
    num_seeds, num_images = len(sums.by_seed), len(sums.by_image)
    in_a_run = sums.squares / num_seeds  # images on which the two differ
    kept = float(((sums.by_image / num_seeds) ** 2).sum()) / in_a_run if in_a_run else 1.0
    added = (kept / 2) ** 0.5
    whole = sums.with_images(np.array([added, -added]))
    half = VarianceParts.of_sums(whole).half_width(num_seeds, num_images + 2, chance)
    mean = float(whole.by_seed.sum()) / (num_seeds * (num_images + 2))
    return mean - half, mean + half


def difference_over_images(gaps: Table, chance: float) -> tuple[float, float]:
    """Return the interval, over images only, of the difference of two accuracies, clipped to [-1, 1], by gaps (n,).

    Student's t interval with the pseudo-observations of the module docstring, so that it has a positive width even if
    the two agree on all images.
    """
    whole = np.append(gaps, (0.5**0.5, -(0.5**0.5)))  # their squares sum to one image
    half = quantile(chance, len(whole) - 1) * float(whole.std(ddof=1)) / len(whole) ** 0.5
    return max(-1.0, float(whole.mean()) - half), min(1.0, float(whole.mean()) + half)


@cache
def quantile(chance: float, freedom: int) -> float:
    """Return the number that |t| with ``freedom`` degrees of freedom exceeds with probability ``chance``."""
    from scipy import special  # imported here: a tenth of a second (scipy.stats: half a second)

    return float(-special.stdtrit(freedom, chance / 2))

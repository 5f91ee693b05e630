"""Intervals of accuracies that several runs, one a seed, reached on the same images.

R seeds, n images. x_{r,i} is 1 where run r is right about image i and 0 elsewhere; for a difference of two settings,
what one has minus what the other has, seed by seed and image by image. Seeds and images both stand for larger
populations (crossed random effects):

    x_{r,i} = mu + a_r + b_i + e_{r,i}
    Var(mean) = sigma_a^2 / R + sigma_b^2 / n + sigma_e^2 / (R n)

The mean squares of the two-way table estimate the parts:

    S = MS_seeds / (R n)                      estimates sigma_a^2 / R + sigma_e^2 / (R n): Student's over seeds
    I = max(0, MS_images - MS_rest) / (R n)   estimates sigma_b^2 / n
    F = MS_images / (R n)                     the variance of the mean if these very runs met other images

and the half width h of the interval is

    h^2 = max(t_{R-1}^2 S + t_{n-1}^2 I, t_{n-1}^2 F)

The sum, with a quantile for each part, is Banerjee's (1960, Sankhya 22): for parts that are independent and normal it
covers at least as often as it says, whatever their shares, because the chance of covering is concave in h^2 and each
part covers alone. Satterthwaite's degrees of freedom, usual for such tables (Obuchowski and Rockette, 1995; Hillis,
2007), give shorter intervals, which cover less than they say with two or three seeds. Where all seeds agree, h is the
half width of the interval over images (of a difference: McNemar's); with ever more images it is Student's over seeds.

Some images are added that every run answers alike, so that runs which agree by chance are not certain: of a mean two
right and two wrong (Agresti and Coull, 1998); of a difference half an image that only the one has right and half an
image that only the other has right (Agresti and Min, 2005), both times the share of a single run's variance over images
that the mean over seeds keeps (1 where all seeds are right about the same images).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

Table = np.ndarray[Any, np.dtype[np.float64]]
"""x_{r,i}, (R, n): a row for each seed, a column for each image."""


@dataclass(frozen=True)
class VarianceParts:
    """What the variance of the mean of a table is made of. Docstring of the module: the equations.

    Attributes:
        seeds: S.
        images: I.
        fixed_seeds: F.
    """

    seeds: float
    images: float
    fixed_seeds: float

    @classmethod
    def of(cls, table: Table) -> VarianceParts:
        """Return the parts of a table of at least two seeds and two images."""
        num_seeds, num_images = table.shape
        by_seed, by_image, mean = table.mean(axis=1), table.mean(axis=0), table.mean()
        seeds = num_images * float(((by_seed - mean) ** 2).sum())
        images = num_seeds * float(((by_image - mean) ** 2).sum())
        rest = max(0.0, float(((table - mean) ** 2).sum()) - seeds - images)
        ms_seeds, ms_images = seeds / (num_seeds - 1), images / (num_images - 1)
        ms_rest = rest / ((num_seeds - 1) * (num_images - 1))
        size = table.size
        return cls(ms_seeds / size, max(0.0, ms_images - ms_rest) / size, ms_images / size)

    def half_width(self, num_seeds: int, num_images: int, chance: float) -> float:
        """Return h.

        Args:
            num_seeds: R, at least 2.
            num_images: n, at least 2.
            chance: Probability, in (0, 1), that the interval misses; both ends together.
        """
        by_seeds, by_images = quantile(chance, num_seeds - 1), quantile(chance, num_images - 1)
        both = by_seeds**2 * self.seeds + by_images**2 * self.images
        return float(max(both, by_images**2 * self.fixed_seeds) ** 0.5)


def mean_interval(right: Table, chance: float) -> tuple[float, float]:
    """Return the interval of an accuracy, cut at 0 and 1.

    Args:
        right: Table of 1 for right and 0 for wrong, or of shares between; at least two seeds and one image.
        chance: Probability that the interval misses.
    """
    low, high = _interval(right, (1.0, 1.0, 0.0, 0.0), chance)
    return max(0.0, low), min(1.0, high)


def difference_interval(one: Table, other: Table, chance: float) -> tuple[float, float]:
    """Return the interval of how much higher the accuracy of ``one`` is.

    Args:
        one: Table of 1 for right and 0 for wrong; at least two seeds and one image.
        other: The same of the other settings, for the same seeds and images.
        chance: Probability that the interval misses.
    """
    table = one - other
    in_a_run = float((table**2).sum()) / len(table)  # images on which the two differ
    kept = float((table.mean(axis=0) ** 2).sum()) / in_a_run if in_a_run else 1.0
    added = (kept / 2) ** 0.5
    return _interval(table, (added, -added), chance)


def difference_over_images(gaps: Table, chance: float) -> tuple[float, float]:
    """Return the interval, over images alone, of how much higher one accuracy is than another, cut at -1 and 1.

    Student's, with the half images of the docstring of the module: who agree on all images need not on others.

    Args:
        gaps: (n,) what one has minus what the other has, image by image; at least one.
        chance: Probability that the interval misses.
    """
    whole = np.append(gaps, (0.5**0.5, -(0.5**0.5)))  # squares of half an image
    half = quantile(chance, len(whole) - 1) * float(whole.std(ddof=1)) / len(whole) ** 0.5
    return max(-1.0, float(whole.mean()) - half), min(1.0, float(whole.mean()) + half)


def _interval(table: Table, added: tuple[float, ...], chance: float) -> tuple[float, float]:
    """Return the interval of the mean of a table to which images are added that every run answers alike."""
    whole = np.hstack([table, np.broadcast_to(added, (len(table), len(added)))])
    half = VarianceParts.of(whole).half_width(whole.shape[0], whole.shape[1], chance)
    return float(whole.mean()) - half, float(whole.mean()) + half


@cache
def quantile(chance: float, freedom: int) -> float:
    """Return the number that |t| with ``freedom`` degrees of freedom exceeds with probability ``chance``."""
    from scipy import special  # scipy.stats takes half a second to import; this a tenth, here for who tests something

    return float(-special.stdtrit(freedom, chance / 2))

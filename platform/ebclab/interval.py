"""A number with its confidence interval, and the only way in which both are written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

_MORE_DIGITS = 4  # that the ends of an interval may have where they would read the same


@dataclass(frozen=True)
class Interval:
    """A number with its confidence interval."""

    mean: float  # the number: a mean over seeds or images, or a difference of two
    low: float | None = None  # lower end of its interval, 95 % unless the number says otherwise; None if there is none
    high: float | None = None  # upper end; None if there is none
    images: int | None = None  # number of images whose sampling the interval accounts for; None if it covers seeds only
    open: str = ""  # why there is no interval; empty if there is one, or if no reason is known
    # standard deviation of what the mean is over (n - 1 in the divisor); None for fewer than two, and of differences
    std: float | None = None

    @property
    def is_noise(self) -> bool | None:
        """Whether the interval of a difference contains 0; None if there is no interval."""
        return None if self.low is None or self.high is None else self.low <= 0 <= self.high

    @property
    def verdict(self) -> str:
        """Either "within noise" or "beyond noise"; if there is no interval, the reason."""
        return self.open or ("within noise" if self.is_noise else "beyond noise")

    def __rmul__(self, factor: float) -> Interval:
        """Return the number in another unit; with a factor of -1, a difference the other way round."""
        ends = [None if end is None else factor * end for end in (self.low, self.high)]
        low, high = ends if factor > 0 else reversed(ends)
        std = None if self.std is None else abs(factor) * self.std
        return Interval(factor * self.mean, low, high, self.images, self.open, std)

    def as_difference(self) -> dict[str, Any]:
        """Return a difference as plain values."""
        return {name: getattr(self, name) for name in ("mean", "low", "high", "images", "open")}

    def as_mean(self) -> dict[str, Any]:
        """Return a mean as plain values."""
        return {name: getattr(self, name) for name in ("mean", "std", "low", "high", "images")}


@dataclass(frozen=True)
class NumberFormat:
    """How numbers of one unit are written."""

    factor: float = 1.0  # what a number is multiplied by
    digits: int | str = 3  # digits after the point, or the format of ``format()``, such as ".3g"
    unit: str = ""  # what follows a number
    end_unit: str = ""  # what follows each end of an interval
    is_signed: bool = False  # whether positive numbers have a sign

    def number(self, value: float | None) -> str:
        """Return a number as text; empty if there is none."""
        return "" if value is None else f"{self._digits(value, 0)}{self.unit}"

    def ends(self, low: float | None, high: float | None) -> str:
        """Return the ends of an interval, with more digits if they would read the same; empty if there is none."""
        if low is None or high is None:
            return ""
        most = 0 if low == high or isinstance(self.digits, str) else _MORE_DIGITS
        for more in range(most + 1):
            first, last = self._digits(low, more), self._digits(high, more)
            if first != last:
                break
        return f"{first}{self.end_unit} to {last}{self.end_unit}"

    def interval(self, found: Interval | None, missing: str = "") -> str:
        """Return a number with its interval, such as "62.0% (61.0% to 63.0%)"; ``missing`` if there is no number."""
        if found is None:
            return missing
        ends = self.ends(found.low, found.high)
        return f"{self.number(found.mean)} ({ends})" if ends else self.number(found.mean)

    def spread(self, mean: Interval) -> str:
        """Return a mean with its standard deviation, if there is one, such as "62.0% ± 1.0%"."""
        return self.number(mean.mean) + ("" if mean.std is None else f" ± {self.number(mean.std)}")

    def difference(self, found: Interval) -> str:
        """Return a difference with its interval, or with the reason why there is none."""
        return self.interval(found) + (f", {found.open}" if found.open else "")

    def _digits(self, value: float, more: int) -> str:
        digits = self.digits if isinstance(self.digits, str) else f".{self.digits + more}f"
        return f"{self.factor * value:{'+' if self.is_signed else ''}{digits}}"


SHARE = NumberFormat(100, 1, "%", "%")
"""Shares in [0, 1]."""
PERCENT = NumberFormat(100, 1)
"""Shares in [0, 1] below a heading that says per cent."""
POINTS = NumberFormat(100, 1, " points", is_signed=True)
"""Differences of shares."""
PLAIN = NumberFormat(digits=3)
PLAIN_DIFFERENCE = NumberFormat(digits=3, is_signed=True)

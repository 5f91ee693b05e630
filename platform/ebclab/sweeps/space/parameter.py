"""A parameter: the range of one searched setting, and how searches draw from it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, TypeGuard, get_args

from ebclab.config import did_you_mean
from ebclab.config.check import shown

Kind = Literal["uniform", "loguniform", "int", "quantised", "choice"]
KINDS: tuple[Kind, ...] = get_args(Kind)
OPTIONS = ("times", "points", "log", "also")
FORMS: Mapping[Kind, str] = {
    "uniform": "[low, high]",
    "loguniform": "[low, high]",
    "int": "[low, high]",
    "quantised": "[low, high, step]",
    "choice": "[a, b, ...]",
}
DIGITS = 12  # significant digits of a computed value: 0.2 * 0.05 is 0.01, not 0.010000000000000002
MOST_STEPS = 10_000  # of a quantised range
ALSO_SHARE = 0.25  # of the draws from a range with ``also``: how many are that value
ROUNDING = 1e-9  # of a range: how far beyond an end, or off a level, a computed value may lie


@dataclass(frozen=True)
class Parameter:
    """The range of one setting."""

    name: str  # dotted key of the setting
    # uniform: all values equally likely; loguniform: all exponents equally likely; int: whole numbers; quantised: every
    # ``step`` from ``low``; choice: one of ``choices``
    kind: Kind
    low: float = 0
    high: float = 0  # included
    step: float = 0  # distance of quantised values
    choices: tuple[Any, ...] = ()  # the values of a choice, in the order written
    # name of another parameter: the setting is a multiple of that one's setting. None if it is independent
    times: str | None = None
    points: int = 3  # values that a grid takes from a range, both ends included
    log: bool = False  # draw whole numbers on a log scale
    # a value outside the range that the setting may have too, such as 0 for off; None if there is none
    also: float | None = None

    @cached_property
    def levels(self) -> tuple[Any, ...]:
        """All values of a choice or of quantised numbers, in order; empty for other kinds."""
        if self.kind == "choice":
            return self.choices
        if self.kind != "quantised":
            return ()
        return tuple(rounded(self.low + k * self.step) for k in range(round((self.high - self.low) / self.step) + 1))

    @property
    def ends(self) -> tuple[Any, ...]:
        """The values at the corners of the space: both ends of a range and what it has also, or every choice."""
        return self.choices if self.kind == "choice" else (*self._beside, self.low, self.high)

    @property
    def _beside(self) -> tuple[float, ...]:
        return () if self.also is None else (self.also,)

    @property
    def is_numeric(self) -> bool:
        return all(map(is_number, self.ends))

    @cached_property
    def grid(self) -> list[Any]:
        """``points`` evenly spread values of a range, or every level."""
        shares = [i / (self.points - 1) for i in range(self.points)]
        return list(self.levels or dict.fromkeys((*self._beside, *(self._of_range(share) for share in shares))))

    def at(self, share: float) -> Any:
        """Return the quantile ``share``, in [0, 1], of the range, below which ``also`` has a share of its own."""
        if self.also is None:
            return self._of_range(share)
        return self.also if share < ALSO_SHARE else self._of_range((share - ALSO_SHARE) / (1 - ALSO_SHARE))

    def share_of(self, value: float) -> float:
        """Return a share for which ``at`` returns ``value``, of a range of numbers with fractions."""
        if value == self.also:
            return ALSO_SHARE / 2
        is_log = self.kind == "loguniform"
        place, width = value - self.low, self.high - self.low
        share = math.log(value / self.low) / math.log(self.high / self.low) if is_log else place / width
        own = 0.0 if self.also is None else ALSO_SHARE
        return own + (1 - own) * min(max(share, 0.0), 1.0)

    def _of_range(self, share: float) -> Any:
        if self.levels:
            return self.levels[min(int(share * len(self.levels)), len(self.levels) - 1)]
        above = self.high + 1 if self.kind == "int" else self.high
        if self.kind == "loguniform" or self.log:
            value = rounded(self.low * (above / self.low) ** share)
        else:
            value = rounded(self.low + (above - self.low) * share)
        return min(math.floor(value), self.high) if self.kind == "int" else min(max(value, self.low), self.high)

    def find(self, value: Any) -> Any:
        """Return the value of the range that ``value`` is up to rounding; None if it is outside."""
        found = next((each for each in self.choices or self._beside if _same(each, value)), None)
        if found is not None or self.kind == "choice" or not is_number(value):
            return found
        width = self.high - self.low
        below = self.low if self.kind == "loguniform" else width  # of a range over many powers, 0 is outside
        if not self.low - ROUNDING * below <= value <= self.high + ROUNDING * width:
            return None
        inside = min(max(value, self.low), self.high)
        if self.kind == "quantised":
            nearest = self.levels[round((inside - self.low) / self.step)]
            return nearest if abs(nearest - inside) <= ROUNDING * self.step else None
        if self.kind == "int":
            return round(inside) if inside == round(inside) else None
        return float(inside)

    def problems(self) -> list[str]:
        """Return what is wrong with the range, one line per problem."""
        if self.kind == "choice":
            lines = _choice_problems(self.choices)
            if self.times and not self.is_numeric:
                lines.append(f"times: needs numbers to multiply, got {shown(list(self.choices))}; leave times out")
            return lines
        lines = []
        ends = f"got [{self.low:.10g}, {self.high:.10g}]"
        if self.low >= self.high:
            lines.append(f"empty range, {ends}; write the smaller number first, and another one after it")
        elif (self.kind == "loguniform" or self.log) and self.low <= 0:
            lines.append(f"a log range must not reach zero, {ends}; start above 0, or write uniform")
        elif self.kind == "quantised":
            lines += _step_problems(self.high - self.low, self.step)
        elif self.also is not None and self.low <= self.also <= self.high:
            lines.append(f"also: must be outside the range, got {self.also:.10g}; leave it out")
        return lines

    def to_mapping(self) -> dict[str, Any]:
        """Return the range in the form of the YAML files."""
        numbers = [self.low, self.high, *([self.step] if self.kind == "quantised" else [])]
        options = {"times": self.times, "points": self.points, "log": self.log, "also": self.also}
        given = {name: value for name, value in options.items() if value != getattr(Parameter, name)}
        return {self.kind: list(self.choices) if self.kind == "choice" else numbers, **given}

    def in_words(self) -> str:
        """Return the range as text: ``0.05 to 1, log scale``."""
        if self.kind == "choice":
            *most, last = (choice if isinstance(choice, str) else shown(choice) for choice in self.choices)
            text = f"{', '.join(most)} or {last}"
        else:
            text = f"{self.low:.10g} to {self.high:.10g}"
        text = text if self.also is None else f"{self.also:.10g}, or {text}"
        text += f" times {self.times}" if self.times else ""
        text += ", whole numbers" if self.kind == "int" else ""
        text += f", in steps of {self.step:.10g}" if self.kind == "quantised" else ""
        return text + (", log scale" if self.kind == "loguniform" or self.log else "")


def parse_parameter(name: str, given: Any) -> tuple[Parameter | None, list[str]]:
    """Return the range of the setting ``name`` and no lines, or None and a line for each problem.

    ``given`` are plain values such as ``{"loguniform": [0.01, 1.0], "times": "method.sigma_max"}``.
    """
    forms = ", ".join(f"{kind}: {form}" for kind, form in FORMS.items())
    if not isinstance(given, Mapping):
        return None, [f"no range, got {shown(given)}; write {{one of {forms}}}"]
    lines = [
        f"no such range or option, got {key}; {did_you_mean(str(key), [*KINDS, *OPTIONS])}"
        for key in given
        if key not in KINDS and key not in OPTIONS
    ]
    kinds = [kind for kind in KINDS if kind in given]
    if len(kinds) != 1 and not (lines and not kinds):
        lines.append(f"must have one range, got {' and '.join(kinds) or 'none'}; write one of {forms}")
    lines += _option_problems(given)
    if lines:
        return None, lines
    numbers, lines = _read_values(kinds[0], given[kinds[0]])
    if lines:
        return None, lines
    options: dict[str, Any] = {
        key: float(given[key]) if key == "also" else given[key] for key in OPTIONS if key in given
    }
    parameter = Parameter(name, kinds[0], **numbers, **options)
    problems = parameter.problems()
    return (None, problems) if problems else (parameter, [])


def rounded(value: float) -> float:
    """Return a computed number rounded to ``DIGITS`` significant digits; whole numbers as they are."""
    return value if isinstance(value, int) else float(f"{value:.{DIGITS}g}")


def _read_values(kind: Kind, given: Any) -> tuple[dict[str, Any], list[str]]:
    """Return the attributes of ``Parameter`` for a list of values, or what is wrong with the list."""
    if kind == "choice":
        if isinstance(given, list | tuple):
            return {"choices": tuple(given)}, []
        return {}, [f"choice: not a list, got {shown(given)}; write choice: {FORMS[kind]}"]
    length = 3 if kind == "quantised" else 2
    if not isinstance(given, list | tuple) or len(given) != length or not all(map(is_number, given)):
        return {}, [f"{kind}: needs {length} numbers, got {shown(given)}; write {kind}: {FORMS[kind]}"]
    whole = all(isinstance(number, int) for number in given)
    if kind == "int" and not whole:
        return {}, [f"int: needs whole numbers, got {shown(given)}; write uniform or quantised for fractions"]
    keep = kind == "int" or (kind == "quantised" and whole)
    return dict(zip(("low", "high", "step"), given if keep else map(float, given), strict=False)), []


def _option_problems(given: Mapping[str, Any]) -> list[str]:
    lines = []
    if not isinstance(given.get("times", ""), str):
        lines.append(f"times: not a setting, got {shown(given['times'])}; name another parameter")
    points = given.get("points", 2)
    if isinstance(points, bool) or not isinstance(points, int) or points < 2:
        lines.append(f"points: must be a whole number, at least 2, got {shown(points)}")
    elif "points" in given and ("choice" in given or "quantised" in given):
        lines.append(f"points: a grid takes every value of a choice and every step, got {points}; leave points out")
    if "also" in given and not is_number(given["also"]):
        lines.append(f"also: must be a number, got {shown(given['also'])}")
    elif "also" in given and not {"uniform", "loguniform"} & given.keys():
        lines.append(f"also: is for uniform and loguniform, got {shown(given['also'])}; list it as a choice")
    if "log" in given and not isinstance(given["log"], bool):
        lines.append(f"log: must be true or false, got {shown(given['log'])}")
    elif given.get("log") and "int" not in given:
        lines.append("log: is for whole numbers only, got true; write loguniform for others")
    return lines


def _choice_problems(choices: tuple[Any, ...]) -> list[str]:
    if len(choices) < 2:
        return [f"choice: nothing to choose, got {shown(list(choices))}; list two values or more"]
    if any(choice is None for choice in choices):
        return ["choice: null cannot be searched; write a value"]
    twice = [choice for i, choice in enumerate(choices) if any(_same(choice, other) for other in choices[:i])]
    return [f"choice: a value appears twice, got {shown(choice)}; list it once" for choice in twice]


def _step_problems(width: float, step: float) -> list[str]:
    if step <= 0:
        return [f"quantised: the step must be above 0, got {step:.10g}"]
    steps = width / step
    if steps < 1 or abs(steps - round(steps)) > ROUNDING * steps:
        return [f"quantised: the step must divide the range, got {step:.10g} in a range of {rounded(width):.10g}"]
    if steps > MOST_STEPS:
        return [f"quantised: too many steps, got {steps:.0f}; write uniform, or at most {MOST_STEPS} steps"]
    return []


def is_number(value: Any) -> TypeGuard[float]:
    """Return whether a plain value is a finite number; true and false are not."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _same(one: Any, other: Any) -> bool:
    """Return whether two plain values are the same in YAML, where ``true`` is not 1."""
    return bool(one == other and isinstance(one, bool) == isinstance(other, bool))

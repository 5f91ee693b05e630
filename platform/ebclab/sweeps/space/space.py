"""The search space of a sweep: one range for each setting, how searches draw from it, its YAML form."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal, TypeGuard, get_args

from ebclab.config import ExperimentConfig, did_you_mean, load_yaml_file, to_mapping
from ebclab.config.check import shown
from ebclab.config.names import nearest
from ebclab.config.yaml_text import JsonObject, mapping_from_yaml
from ebclab.errors import ConfigError

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
SHIPPED = files("ebclab").joinpath("search_spaces")  # the folder of spaces


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

    def share_of(self, value: Any) -> float:
        """Return a share for which ``at`` returns ``value``, in the middle of those where there are several."""
        if value == self.also:
            return ALSO_SHARE / 2
        if self.levels:
            return (self.levels.index(value) + 0.5) / len(self.levels)
        place, above = (value + 0.5, self.high + 1) if self.kind == "int" else (value, self.high)
        is_log = self.kind == "loguniform" or self.log
        width = above - self.low
        share = math.log(place / self.low) / math.log(above / self.low) if is_log else (place - self.low) / width
        own = 0.0 if self.also is None else ALSO_SHARE
        return own + (1 - own) * min(max(share, 0.0), 1.0)

    def place_of(self, value: Any) -> float:
        """Return the share of the range at which a value inside lies; of a choice, its number."""
        inside = self.find(value)
        return self.levels.index(inside) if self.choices else self.share_of(inside)

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

    def to_mapping(self) -> JsonObject:
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


Settings = dict[str, Any]
"""Values of searched settings by dotted key."""
Point = dict[str, Any]
"""Coordinates in a search space: a value for each parameter, before derived settings are computed."""


@dataclass(frozen=True)
class Space:
    """The settings that a sweep searches, each with its range.

    A *point* has one value per parameter, each free within its own range. The *settings* at a point are what a run
    gets: with ``times: other``, the point holds a factor, and the setting is that factor times the other setting.
    """

    parameters: tuple[Parameter, ...]  # the ranges, in the order written
    where: str  # name of the space in messages, such as the path of its file

    @cached_property
    def by_name(self) -> dict[str, Parameter]:
        return {parameter.name: parameter for parameter in self.parameters}

    @cached_property
    def _in_order(self) -> list[Parameter]:
        """The parameters, each after the one that its ``times`` names."""
        return sorted(self.parameters, key=lambda parameter: len(self._chain(parameter)))

    @property
    def num_corners(self) -> int:
        return math.prod(len(parameter.ends) for parameter in self.parameters)

    @property
    def grid_size(self) -> int:
        return math.prod(len(parameter.grid) for parameter in self.parameters)

    def settings(self, point: Mapping[str, Any]) -> Settings:
        """Return the value of every setting at ``point``."""
        values: Settings = {}
        for parameter in self._in_order:
            value = point[parameter.name]
            values[parameter.name] = value if parameter.times is None else rounded(value * values[parameter.times])
        return {parameter.name: values[parameter.name] for parameter in self.parameters}

    def holds(self, point: Point) -> bool:
        """Return whether a point is inside: none of its coordinates is missing or outside its range."""
        return all(parameter.find(point.get(parameter.name)) is not None for parameter in self.parameters)

    def point_of(self, settings: Mapping[str, Any]) -> Point | None:
        """Return the point with these ``settings``; None if one is missing or outside its range."""
        point = {parameter.name: parameter.find(self.coordinate(parameter, settings)) for parameter in self.parameters}
        return None if None in point.values() else point

    def coordinate(self, parameter: Parameter, settings: Mapping[str, Any]) -> Any:
        """Return the coordinate of ``parameter``: its setting, or its factor; None if there is none."""
        value = settings.get(parameter.name)
        if parameter.times is None:
            return value
        other = settings.get(parameter.times)
        return rounded(value / other) if is_number(value) and is_number(other) and other != 0 else None

    def corners(self) -> Iterator[Point]:
        """Yield the points at the corners: every combination of the ends of ranges and of choices."""
        names = list(self.by_name)
        for values in itertools.product(*(parameter.ends for parameter in self.parameters)):
            yield dict(zip(names, values, strict=True))

    def ends_beside(self, point: Point) -> Iterator[Point]:
        """Yield ``point`` with one coordinate at an end of its range, for every end of each parameter."""
        for parameter in self.parameters:
            yield from ({**point, parameter.name: end} for end in parameter.ends)

    def grid_point(self, number: int) -> Point:
        """Return one point of the grid, numbered from 0; the last parameter changes fastest."""
        if not 0 <= number < self.grid_size:
            raise IndexError(f"the grid of {self.where} has {self.grid_size} points, got number {number}")
        point = {}
        for parameter in reversed(self.parameters):
            number, place = divmod(number, len(parameter.grid))
            point[parameter.name] = parameter.grid[place]
        return {name: point[name] for name in self.by_name}

    def without(self, names: set[str]) -> Space:
        """Return the space without the parameters ``names`` and without their multiples."""
        kept = [parameter for parameter in self.parameters if names.isdisjoint(self._chain(parameter))]
        return Space(tuple(kept), self.where)

    def to_mapping(self) -> JsonObject:
        """Return the space as plain values that ``parse_space`` reads back unchanged."""
        return {"parameters": {parameter.name: parameter.to_mapping() for parameter in self.parameters}}

    def problems(self) -> list[str]:
        """Return what is wrong across parameters, one line per problem."""
        lines = []
        for name, other in [(parameter.name, parameter.times) for parameter in self.parameters if parameter.times]:
            chain = self._chain(self.by_name[name])
            if other not in self.by_name:
                lines.append(f"{name}: times: no such parameter, got {other}; {did_you_mean(other, self.by_name)}")
            elif not self.by_name[other].is_numeric:
                lines.append(f"{name}: times: must name a parameter with numbers, got {other}; leave times out")
            elif chain[-1] == name == min(chain):
                lines.append(f"{name}: times: a circle, got {' -> '.join(chain)}; remove times from one of them")
        return [f"{self.where}, {line}" for line in lines]

    def _chain(self, parameter: Parameter) -> list[str]:
        """Return the names of a parameter, of the one in its ``times``, and so on; a circle ends where it closes."""
        chain = [parameter.name]
        while parameter.times in self.by_name and chain.count(chain[-1]) == 1:
            parameter = self.by_name[parameter.times]
            chain.append(parameter.name)
        return chain


def own_settings(space: Space, config: ExperimentConfig) -> Settings:
    """Return the starting settings of a search: the values that ``config`` has for the settings in ``space``."""
    mapping = to_mapping(config)
    return {name: mapping[section][key] for name in space.by_name for section, _, key in [name.partition(".")]}


def parse_space(mapping: Mapping[str, Any], where: str) -> Space:
    """Return the space in plain values of the form of the YAML files; messages call it ``where``."""
    problems = [
        f"{where}: no such entry, got {key}; write parameters: and the settings indented below it"
        for key in mapping
        if key != "parameters"
    ]
    given = mapping.get("parameters")
    if not isinstance(given, Mapping) or not given:
        problems.append(f"{where}: no parameters, got {shown(given)}; write parameters: and a setting with its range")
        raise ConfigError(problems)
    parameters = []
    for name, entry in given.items():
        parameter, lines = parse_parameter(str(name), entry)
        problems += [f"{where}, {name}: {line}" for line in lines]
        parameters.append(parameter or Parameter(str(name), "uniform"))  # else references to it would be reported too
    space = Space(tuple(parameters), where)
    problems += space.problems()
    if problems:
        raise ConfigError(problems)
    return space


def load_space(name_or_path: str | Path | None, method: str) -> Space:
    """Return the space in a user's YAML file, or a shipped one by its name; None means that of ``method``.

    The file is given by its path, or by its address in an object store.
    """
    shipped = list_spaces()
    name = method if name_or_path is None else str(name_or_path)
    if name in shipped:
        text = SHIPPED.joinpath(f"{name}.yaml").read_text(encoding="utf-8")
        where = f"search space {name}"
        return parse_space(mapping_from_yaml(text, where), where)
    if name_or_path is None:
        raise ConfigError(
            [
                f"--space: none is shipped for {method}; name one that suits it, such as that of simclr (of a sweep "
                f"--space simclr, of a comparison --space {method}=simclr), or write your own. Shipped: "
                f"{', '.join(shipped)}"
            ]
        )
    from ebclab.storage.object_store import fetched  # numpy takes a while to import

    path = fetched(name)
    if not path.exists():
        beside = {file.name: str(file) for file in sorted(path.parent.glob("*.yaml"))}
        close = nearest(path.name, beside)
        hint = f"did you mean {beside[close]}?" if close else did_you_mean(name, shipped)
        raise ConfigError([f"--space: no such file, got {str(path)!r}; {hint}"])
    return parse_space(load_yaml_file(path), str(path))


def list_spaces() -> list[str]:
    """Return the names of the shipped search spaces: methods, and ``examples/NAME``."""
    places = [at for at in ("", "examples/") if SHIPPED.joinpath(at).is_dir()]
    names = [f"{at}{entry.name}" for at in places for entry in SHIPPED.joinpath(at).iterdir()]
    return sorted(name.removesuffix(".yaml") for name in names if name.endswith(".yaml"))

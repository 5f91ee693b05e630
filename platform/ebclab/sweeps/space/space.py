"""The search space of a sweep: one range for each setting, how searches draw from it, its YAML form, its check.

It fits a run if its settings exist, may be searched, and are valid together at every corner.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from importlib.resources import files
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal, TypeGuard, cast, get_args, get_type_hints

from ebclab.config import ExperimentConfig, did_you_mean, load_yaml_file, parse_experiment, to_mapping
from ebclab.config.check import as_written, settings_of, shown, value_problem
from ebclab.config.experiment import SECTIONS, RecordedSettings, known_method
from ebclab.config.names import Known, nearest, unknown_setting
from ebclab.config.recipes import merge
from ebclab.config.yaml_text import JsonObject, mapping_from_yaml
from ebclab.errors import ConfigError
from ebclab.methods_by_name import Methods

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
        text = files("ebclab").joinpath("search_spaces", f"{name}.yaml").read_text(encoding="utf-8")
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
    root = files("ebclab").joinpath("search_spaces")
    places = [at for at in ("", "examples/") if root.joinpath(at).is_dir()]
    names = [f"{at}{entry.name}" for at in places for entry in root.joinpath(at).iterdir()]
    return sorted(name.removesuffix(".yaml") for name in names if name.endswith(".yaml"))


MOST_CORNERS = 4096  # with more corners, one setting at a time is tried

OTHER_IMAGES = "scores on different images cannot be compared; set it for the whole sweep"
OTHER_MEASURE = "scores measured in different ways cannot be compared; set it for the whole sweep"
NOTHING_LEARNT = "it changes nothing that is learnt; set it for the whole sweep"
NOT_SEARCHED: Mapping[str, str] = {
    "data": OTHER_IMAGES,
    "evaluation": OTHER_MEASURE,
    "resources": NOTHING_LEARNT,
    "seed": "the best of several seeds is luck; --seeds repeats the best settings with several",
    "init": "trials that start from other weights cannot be compared; sweep each start by itself",
    "method.name": "a sweep is of one method; sweep each method and compare the best",
    "training.epochs": "it is the budget that all trials share; write --epochs",
    "training.log_every": NOTHING_LEARNT,
    "training.checkpoint_every": NOTHING_LEARNT,
    "training.keep_every": NOTHING_LEARNT,
    "training.channels_last": NOTHING_LEARNT,
    "training.compile": NOTHING_LEARNT,
}
"""Settings, and sections, that a sweep must not search, and why."""

LIVE_SECTIONS = ("optimizer", "method", "views")


def fitting_space(
    asked: Space | str | Path | None, config: ExperimentConfig, *, searched_live_only: bool
) -> tuple[Space, list[str]]:
    """Return the space of a sweep, and what of it does not fit the run, one line each.

    None asks for the space shipped with the method, without what the method refuses with the run's settings or cannot
    change during a run; its name says so.
    """
    space = asked if isinstance(asked, Space) else load_space(asked, known_method(config))
    if asked is None:
        fixed = _refused_by_method(space, config)
        if searched_live_only:
            fixed += [each.name for each in space.parameters if each.name not in fixed and _why_not_live(each, config)]
        if fixed:
            space = Space(space.without(set(fixed)).parameters, f"{space.where} without {', '.join(fixed)}")
    return space, space_problems(space, config, searched_live_only=searched_live_only)


def space_problems(space: Space, config: ExperimentConfig, *, searched_live_only: bool) -> list[str]:
    """Return why a space does not fit a run, whose values of searched settings must lie within their ranges.

    ``searched_live_only``: the sweep changes settings during a run, so only numbers that change no shape may be
    searched.
    """
    known = {"method": settings_of(type(config.method)), **{name: settings_of(SECTIONS[name]) for name in SECTIONS}}
    wrong: list[tuple[str, str]] = []  # name of a parameter, and a line about it
    for name in space.by_name:
        if line := _refusal(name, known, config.method_name):
            wrong.append((name, line))
    named = space.without({name for name, _ in wrong})
    if searched_live_only:
        wrong += [(p.name, line) for p in named.parameters if (line := _why_not_live(p, config))]
    wrong_values = list(_wrong_values(named, config))
    typed = named.without({name for name, _ in wrong_values})
    wrong += [*wrong_values, *_defaults_outside(typed, config)]
    return [f"{space.where}, {line}" for _, line in wrong] + list(_broken_corners(typed, config))


def own_settings(space: Space, config: ExperimentConfig) -> Settings:
    """Return the starting settings of a search: the values that ``config`` has for the settings in ``space``."""
    mapping = to_mapping(config)
    return {name: mapping[section][key] for name in space.by_name for section, _, key in [name.partition(".")]}


def apply_settings(config: ExperimentConfig, settings: Settings) -> ExperimentConfig:
    """Return ``config`` with values by dotted key.

    Another ``views.recipe`` replaces all view settings except those in ``settings``; the same recipe changes nothing.
    """
    layer = _by_section(settings)
    if layer.get("views", {}).get("recipe") == config.views.recipe:
        del layer["views"]["recipe"]
    own_catalogue = {}
    if not isinstance(config.method, RecordedSettings):  # includes the user's own methods
        own_catalogue = {config.method_name: SimpleNamespace(Config=type(config.method))}
    return parse_experiment(merge(to_mapping(config), layer), cast(Methods, own_catalogue))


def _by_section(settings: Settings) -> dict[str, Settings]:
    """Return ``{"a.b": 1}`` as ``{"a": {"b": 1}}``."""
    layer: dict[str, Settings] = {}
    for name, value in settings.items():
        section, _, key = name.partition(".")
        layer.setdefault(section, {})[key] = value
    return layer


def _refusal(name: str, known: Known, method_name: str) -> str | None:
    """Return why ``name`` cannot be searched at all, or None."""
    section, _, key = name.partition(".")
    if reason := NOT_SEARCHED.get(name):
        return f"{name}: not for a sweep: {reason}"
    if section in known and not key:
        return f"{name}: a section, not a setting; settings of {section}: {', '.join(known[section])}"
    if section not in known:  # written without its section, or with a wrong one
        return f"{name}:{unknown_setting('', key or name, known, method_name).partition(':')[2]}"
    if key not in known[section]:
        return unknown_setting(section, key, known, method_name)
    return f"{name}: not for a sweep: {NOT_SEARCHED[section]}" if section in NOT_SEARCHED else None


def _field_and_type(name: str, config: ExperimentConfig) -> tuple[Any, Any]:
    section, _, key = name.partition(".")
    config_type = type(getattr(config, section))
    return settings_of(config_type)[key], get_type_hints(config_type)[key]


def _why_not_live(parameter: Parameter, config: ExperimentConfig) -> str | None:
    """Return why ``parameter`` cannot change during a run, or None."""
    name, (_, hint) = parameter.name, _field_and_type(parameter.name, config)
    if name == "training.batch_size":
        reason = "the batch size sets the number of steps"
    elif name.partition(".")[0] not in LIVE_SECTIONS:
        reason = f"only settings of {', '.join(LIVE_SECTIONS)} can change then"
    elif hint is not float:
        reason = "only numbers with fractions move smoothly; others may change shapes"
    elif parameter.also is not None:
        reason = f"it jumps to {parameter.also:.10g}, outside the range: leave also out"
    elif parameter.kind in ("int", "choice"):
        reason = f"{parameter.kind} does not move smoothly: write uniform, loguniform or quantised"
    else:
        return None
    return f"{name}: cannot change during a run, as population based training needs: {reason}"


def _refused_by_method(space: Space, config: ExperimentConfig) -> list[str]:
    """Return the settings of the method that its other settings refuse, such as a target without a temperature."""
    own = space.point_of(own_settings(space, config))
    if own is None:
        return []
    broken = [point for point in space.ends_beside(own) if _broken_rules(config, space.settings(point))]
    return [name for name in own if name.startswith("method.") and any(point[name] != own[name] for point in broken)]


def _wrong_values(space: Space, config: ExperimentConfig) -> Iterator[tuple[str, str]]:
    """Yield each setting with values of a wrong type or out of range, and a line about it."""
    for parameter in space.parameters:
        field, hint = _field_and_type(parameter.name, config)
        ends = parameter.ends
        if parameter.times is not None:
            values = [corner[parameter.name] for corner in _corners(space, config)]
            ends = (min(values), max(values))
        for value in ends:
            if problem := value_problem(value, field, hint):
                yield parameter.name, f"{parameter.name}: {problem}"
                if problem.startswith("wrong type"):
                    break  # all other values have the same type


def _defaults_outside(space: Space, config: ExperimentConfig) -> Iterator[tuple[str, str]]:
    own = own_settings(space, config)
    for parameter in space.parameters:
        value = space.coordinate(parameter, own)
        if parameter.find(value) is None:
            got = shown(own[parameter.name]) + (
                f", which is {shown(value)} times {parameter.times}" if parameter.times else ""
            )
            line = f"the run's own value is outside the range, got {got}; the range is {parameter.in_words()}"
            yield (
                parameter.name,
                f"{parameter.name}: {line}; widen it (--space), or start within it (--set {parameter.name}=...)",
            )


def _corners(space: Space, config: ExperimentConfig) -> Iterator[Settings]:
    """Yield the settings at the corners; if there are too many, only all lowest, all highest, and one end at a time."""
    if space.num_corners <= MOST_CORNERS:
        yield from map(space.settings, space.corners())
        return
    lowest = {parameter.name: parameter.ends[0] for parameter in space.parameters}
    highest = {parameter.name: parameter.ends[-1] for parameter in space.parameters}
    middle = space.point_of(own_settings(space, config)) or lowest
    yield from map(space.settings, (lowest, highest))
    yield from map(space.settings, space.ends_beside(middle))


def _broken_corners(space: Space, config: ExperimentConfig) -> Iterator[str]:
    """Yield a line for each minimal combination of values that breaks a rule."""
    guilty: list[Settings] = []
    known: dict[str, tuple[Any, list[str]]] = {}
    for corner in _corners(space, config):
        if any(values.items() <= corner.items() for values in guilty) or not _broken_rules(config, corner, known):
            continue
        guilty.append(_fewest(config, corner))
        values = ", ".join(f"{name}={shown(value)}" for name, value in guilty[-1].items())
        yield f"{space.where}, corner {values}: {'; '.join(_broken_rules(config, guilty[-1]))}"


def _fewest(config: ExperimentConfig, corner: Settings) -> Settings:
    """Return a minimal set of values of ``corner`` that breaks a rule, all others being those of ``config``."""
    guilty = dict(corner)
    for name in corner:
        others = {key: value for key, value in guilty.items() if key != name}
        if _broken_rules(config, others):
            guilty = others
    return guilty


def _broken_rules(
    config: ExperimentConfig, settings: Settings, known: dict[str, tuple[Any, list[str]]] | None = None
) -> Iterable[str]:
    """Return the rules across settings that ``config`` with ``settings`` breaks; each value is valid by itself.

    Corners have few different sections: ``known`` keeps each, with the rules that it breaks alone.
    """
    layer = _by_section(settings)
    if "recipe" in layer.get("views", {}):
        try:
            apply_settings(config, settings)
        except ConfigError as error:
            return error.problems
        return []
    sections, own, known = dict[str, Any](), list[str](), {} if known is None else known
    for section, values in layer.items():
        if (key := f"{section} {values}") not in known:
            part: Any = replace(getattr(config, section), **values)
            broken = part.problems() if hasattr(part, "problems") else []
            known[key] = part, [f"{section}.{line}" for line in broken]
        sections[section], lines = known[key]
        own += lines
    return own + replace(config, **sections).problems()


def describe_space(space: Space, config: ExperimentConfig) -> list[tuple[str, str, str]]:
    """Return each searched setting with its range in words and its value in ``config``."""
    own = own_settings(space, config)
    return [(name, parameter.in_words(), as_written(own[name])) for name, parameter in space.by_name.items()]

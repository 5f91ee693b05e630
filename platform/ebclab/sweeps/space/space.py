"""The search space of a sweep: one range per setting, read from YAML."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files
from pathlib import Path
from typing import Any

from ebclab.config import did_you_mean, load_yaml_file
from ebclab.config.check import shown
from ebclab.config.names import nearest
from ebclab.config.yaml_text import mapping_from_yaml
from ebclab.errors import ConfigError
from ebclab.sweeps.space.parameter import Parameter, is_number, parse_parameter, rounded

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

    def to_mapping(self) -> dict[str, Any]:
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
    """Return the space in a user's YAML file, or a shipped one by its name; None means that of ``method``."""
    shipped = list_spaces()
    name = method if name_or_path is None else str(name_or_path)
    if name in shipped:
        text = files("ebclab").joinpath("search_spaces", f"{name}.yaml").read_text(encoding="utf-8")
        where = f"search space {name}"
        return parse_space(mapping_from_yaml(text, where), where)
    if name_or_path is None:
        raise ConfigError([f"--space: none is shipped for {method}; write your own. Shipped: {', '.join(shipped)}"])
    if not Path(name).exists():
        beside = {file.name: str(file) for file in sorted(Path(name).parent.glob("*.yaml"))}
        close = nearest(Path(name).name, beside)
        hint = f"did you mean {beside[close]}?" if close else did_you_mean(name, shipped)
        raise ConfigError([f"--space: no such file, got {name!r}; {hint}"])
    return parse_space(load_yaml_file(Path(name)), name)


def list_spaces() -> list[str]:
    """Return the names of the shipped search spaces: methods, and ``examples/NAME``."""
    root = files("ebclab").joinpath("search_spaces")
    places = [at for at in ("", "examples/") if root.joinpath(at).is_dir()]
    names = [f"{at}{entry.name}" for at in places for entry in root.joinpath(at).iterdir()]
    return sorted(name.removesuffix(".yaml") for name in names if name.endswith(".yaml"))

"""The check of a search space against the settings of a run, and a run's settings with searched values.

A space fits a run if its settings exist, may be searched, and are valid together at every corner.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast, get_type_hints

from ebclab.config import ExperimentConfig, parse_experiment, to_mapping
from ebclab.config.check import as_written, settings_of, shown, value_problem
from ebclab.config.experiment import SECTIONS, RecordedSettings, known_method
from ebclab.config.names import Known, unknown_setting
from ebclab.config.recipes import merge
from ebclab.errors import ConfigError
from ebclab.methods_by_name import Methods
from ebclab.sweeps.space.space import Parameter, Settings, Space, load_space, own_settings

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

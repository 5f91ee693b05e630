"""Layers of settings, one over another: recipes, which are shipped with the package, a file, ``--set`` over all."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from dataclasses import MISSING, replace
from functools import cache, lru_cache
from importlib.resources import files
from typing import Any

from ebclab.background import warn_once
from ebclab.config.addresses import name_hosts, shortened
from ebclab.config.check import Problems, settings_of, shown, usable_texts
from ebclab.config.experiment import ExperimentConfig, parse_experiment
from ebclab.config.names import did_you_mean
from ebclab.config.yaml_text import Plain, from_yaml, mapping_from_yaml
from ebclab.errors import ConfigError
from ebclab.methods_by_name import Methods, is_import_name, known_name, source_digest, with_imported


def list_recipes() -> list[str]:
    """Return the names of all recipes."""
    names = [entry.name for entry in files("ebclab").joinpath("recipes").iterdir()]
    return sorted(name.removesuffix(".yaml") for name in names if name.endswith(".yaml"))


def recipe_text(name: str) -> str:
    """Return the recipe's file, with its header: source, command, expected score and time."""
    names = list_recipes()
    if name not in names:
        raise ConfigError([f"--recipe: no such recipe, got {shortened(repr(name))}; {did_you_mean(name, names)}"])
    return files("ebclab").joinpath("recipes", f"{name}.yaml").read_text(encoding="utf-8")


def load_recipe(name: str) -> Plain:
    """Return the recipe's settings: sections for every method, and under ``methods`` those of single methods.

    Under ``datasets``, a recipe may have the same for single datasets, which override the rest.
    """
    return deepcopy(_read(name))


@cache
def _read(name: str) -> Plain:
    return mapping_from_yaml(recipe_text(name), f"recipe {name}")  # 20 ms; a study asks hundreds of times


_COMMENT = re.compile(r"(?:^|\s)#")


def compose(
    method_name: str,
    recipe: str | None = None,
    config: Mapping[str, Any] | None = None,
    overrides: Iterable[str] | Mapping[str, Any] = (),
    methods: Methods | None = None,
    fit: Callable[[Plain], Plain] | None = None,
) -> ExperimentConfig:
    """Return the settings of a run. Later layers win: defaults, recipe, its section of the method, file, ``--set``.

    A recipe's section of the dataset wins over the rest of the recipe, and loses to the file. A user-defined class has
    the recipe's section of the nearest method of the catalogue that it extends.

    Args:
        method_name: The method, a key of the catalogue or ``package.module:Class``, which is imported; other layers may
            repeat it but not change it.
        config: Settings of a user's file, which may have a ``methods`` section like a recipe.
        overrides: ``key=value`` texts of ``--set``, or values by key: ``{"training.epochs": 5}``.
        fit: Completes settings after looking at the images, such as ``ebclab.data.fitting.fitted``.
    """
    methods, config = with_imported(method_name, methods), _plain(config or {})
    own = settings_of(methods[method_name].Config) if is_import_name(method_name) else {}
    defaults = {key: field.default for key, field in own.items() if field.default is not MISSING}  # to be checked, too
    mapping: Plain = {"method": {**defaults, "name": method_name}}
    last_layer, problems = read_overrides(overrides)
    whole = {} if recipe is None else load_recipe(recipe)
    named, by_dataset = {key: whole[key] for key in whole if key != "datasets"}, whole.get("datasets") or {}
    dataset = _dataset_of(named, config, last_layer)
    of_dataset = by_dataset.get(dataset) or by_dataset.get(f"{dataset.partition(':')[0]}:", {})  # images in any place
    for layer in (named, of_dataset):
        for settings in _split_by_method(_with_section_of_parent(layer, method_name, methods), method_name):
            mapping = merge(mapping, settings)
    typed: Plain = {}
    for settings in (*_split_by_method(config, method_name), last_layer):
        typed = merge(typed, settings)
    mapping = _with_fitting_warmup(merge(mapping, typed), mapping, typed)
    unusable = Problems()
    usable_texts(mapping, unusable)
    if fit is not None and not problems + unusable.lines:
        mapping = fit(mapping)
    problems += _unknown_methods(config, methods) + _contradiction(mapping["method"], method_name)
    try:
        composed = parse_experiment(mapping, methods)
    except ConfigError as error:
        raise ConfigError(problems + error.problems) from error
    if problems:
        raise ConfigError(problems)
    return _with_source(composed, methods) if is_import_name(method_name) else composed


def _with_fitting_warmup(mapping: Plain, of_recipe: Plain, typed: Plain) -> Plain:
    """Shorten a recipe's warm-up as much as its training, if the epochs that the user typed are fewer than the warm-up.

    A warm-up that the user typed is left as it is.
    """
    warmup, usual = _value(of_recipe, "optimizer", "warmup_epochs"), _value(of_recipe, "training", "epochs")
    epochs = _value(typed, "training", "epochs")
    if _value(typed, "optimizer", "warmup_epochs") is not None or not warmup or not usual or not epochs:
        return mapping
    if (shorter := fitting_warmup(warmup, usual, epochs)) == warmup:
        return mapping
    warn_once(
        "ebclab.config",
        f"optimizer.warmup_epochs: {shorter:g} instead of the recipe's {warmup:g}, since training.epochs is {epochs:g} "
        f"instead of {usual:g}",
    )
    return merge(mapping, {"optimizer": {"warmup_epochs": shorter}})


def fitting_warmup(warmup: float, usual: float, epochs: float) -> float:
    """Return the epochs of a warm-up that belongs to ``usual`` epochs of training, in a training of ``epochs``.

    If these are fewer than the warm-up, it is shortened as much as the training.
    """
    return round(warmup * epochs / usual, 3) if 0 < epochs < warmup else warmup


def _value(layer: Plain, section: str, name: str) -> float | None:
    """Return a number in a layer; None if there is none."""
    values = layer.get(section)
    value = values.get(name) if isinstance(values, Mapping) else None
    return value if isinstance(value, int | float) else None


def compose_for_user(
    method_name: str,
    recipe: str | None = None,
    config: Mapping[str, Any] | None = None,
    overrides: Iterable[str] | Mapping[str, Any] = (),
    methods: Methods | None = None,
    fit: Callable[[Plain], Plain] | None = None,
) -> ExperimentConfig:
    """Return settings as ``compose`` does; hosts that ``overrides`` name, unlike those in ``config``, may be contacted.

    This is ``ebclab.compose``. The package itself calls ``compose``, since it also passes values from files.
    """
    given = overrides if isinstance(overrides, Mapping) else list(overrides)
    name_hosts_in(given)
    return compose(method_name, recipe, config, given, methods, fit)


def name_hosts_in(overrides: Iterable[str] | Mapping[str, Any]) -> None:
    """Allow the hosts in settings that the user wrote as ``--set`` or in Python, the address of a cluster included."""
    layer, _ = read_overrides(overrides)
    resources = layer.get("resources")
    address = resources.get("address") if isinstance(resources, Mapping) else None
    name_hosts(layer, f"ray://{address}" if address else "")


def _with_source(config: ExperimentConfig, methods: Methods) -> ExperimentConfig:
    name, recorded = config.method_name, config.method_digest
    today = source_digest(methods[name])
    if recorded not in ("", today):
        raise ConfigError(
            [
                f"method.digest: the file of {name} has changed since these settings were recorded, got {today[:12]}, "
                f"not {recorded[:12]}; restore it, or leave method.digest out and choose another --name"
            ]
        )
    return replace(config, method_digest=today)


def _dataset_of(*layers: Mapping[str, Any]) -> str:
    """Return the name of the dataset in the last layer that has one; empty if none does."""
    sections = [layer.get("data") for layer in layers]
    names = [section["name"] for section in sections if isinstance(section, Mapping) and "name" in section]
    return str(names[-1]) if names else ""


def _split_by_method(layer: Mapping[str, Any], method_name: str) -> tuple[Plain, Plain]:
    common = {key: value for key, value in layer.items() if key != "methods"}
    by_method = layer.get("methods") or {}
    if not isinstance(by_method, Mapping):
        raise ConfigError(
            [f"methods: not a section, got {shown(by_method)}; write methods: {{{method_name}: {{...}}}}"]
        )
    own = by_method.get(method_name) or {}
    if not isinstance(own, Mapping):
        where = f"methods.{method_name}"
        raise ConfigError(
            [f"{where}: not a section, got {shown(own)}; write sections in it, such as optimizer: {{...}}"]
        )
    return common, dict(own)


def _with_section_of_parent(recipe: Plain, name: str, methods: Methods) -> Plain:
    """Return a recipe with a section for a user-defined class: that of the nearest method of the catalogue it extends.

    A setting whose default the class has changed keeps that default.
    """
    parent = known_name(name, methods)
    section = (recipe.get("methods") or {}).get(parent)
    if parent == name or section is None:
        return recipe
    own, theirs = (settings_of(methods[each].Config) for each in (name, parent))
    same = {key for key in own.keys() & theirs.keys() if own[key].default == theirs[key].default}
    kept = {key: value for key, value in (section.get("method") or {}).items() if key in same}
    return {**recipe, "methods": {**recipe["methods"], name: {**section, "method": kept}}}


def _unknown_methods(layer: Mapping[str, Any], methods: Methods) -> list[str]:
    return [
        f"methods.{shortened(str(name))}: no such method; {did_you_mean(str(name), methods)}"
        for name in layer.get("methods") or {}
        if name not in methods
    ]


def _contradiction(section: Any, method_name: str) -> list[str]:
    named = section.get("name", method_name) if isinstance(section, Mapping) else method_name
    if named == method_name:
        return []
    other = shortened(str(named))
    return [f"method.name: not the method asked for, got {shown(named)}; ask for {other}, or write {method_name} here"]


def merge(lower: Mapping[str, Any], upper: Mapping[str, Any]) -> Plain:
    """Return ``lower`` with the values of ``upper`` over it, setting by setting.

    Two settings reset their section: a layer that sets ``views.recipe`` hides the view settings of lower layers, which
    may belong to another recipe; one that sets ``init.weights`` hides the digest of other weights. One that sets
    another ``data.name`` hides the digest of the images before.
    """
    for section, leader in (("views", "recipe"), ("init", "weights")):
        given = upper.get(section)
        if isinstance(given, Mapping) and leader in given:
            lower = {**lower, section: {}}
    images = lower.get("data")
    if isinstance(images, Mapping) and _dataset_of(upper) not in ("", _dataset_of(lower)):
        lower = {**lower, "data": {key: value for key, value in images.items() if key != "digest"}}
    return _overlay(lower, upper)


def apply_overrides(mapping: Mapping[str, Any], overrides: Iterable[str]) -> Plain:
    """Return ``mapping`` with each ``key=value`` of ``overrides`` applied; of a repeated key, the last one counts.

    Args:
        overrides: Texts such as ``method.temperature=0.2``; values are YAML. Unknown keys are found later, on parsing.
    """
    layer, problems = read_overrides(overrides)
    if problems:
        raise ConfigError(problems)
    return merge(mapping, layer)


def read_overrides(overrides: Iterable[str] | Mapping[str, Any]) -> tuple[Plain, list[str]]:
    """Return ``key=value`` texts, or values by key, as one layer, with a line for each text that cannot be parsed."""
    if isinstance(overrides, Mapping):
        found: Plain = {}
        for key, value in overrides.items():
            found = _overlay(found, _placed(str(key).split("."), _plain(value)))
        return found, []
    layer: Plain = {}
    problems = []
    for text in overrides:
        try:
            layer = _overlay(layer, deepcopy(_nested(text)))
        except ConfigError as error:
            problems += error.problems
    return layer, problems


@lru_cache(maxsize=1024)  # a list of studies reads the same texts thousands of times
def _nested(text: str) -> Plain:
    """Return ``a.b=1`` as ``{"a": {"b": 1}}``."""
    key, equals, value_text = text.partition("=")
    parts = key.strip().split(".")
    if not equals:
        name, value = re.split(r"[ :]|$", key.strip(), maxsplit=1)
        write = f"{shortened(name) or 'KEY'}={shortened(value.strip()) or 'VALUE'}"
        raise ConfigError([f"--set: no = found, got {shortened(repr(text))}; write {write}"])
    if not all(parts):
        raise ConfigError(
            [
                f"--set: no key before =, got {shortened(repr(text))}; "
                "write SECTION.NAME=VALUE, such as training.epochs=5"
            ]
        )
    read = from_yaml(value_text, where=f"--set {shortened(key.strip())}")
    first = value_text.lstrip()[:1]
    is_text = first == "#" or (isinstance(read, str) and first not in ("'", '"'))
    if is_text and _COMMENT.search(value_text):
        raise ConfigError(
            [
                f"--set {shortened(key.strip())}: in YAML, # first or after a space begins a comment, got "
                f"{shortened(repr(value_text))}; write quotes around the value, '{shortened(key.strip())}=\"...\"'"
            ]
        )
    return _placed(parts, read)


def _plain(value: Any) -> Any:
    """Return settings that were given in Python with numbers of NumPy and torch as those of Python."""
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return (list if isinstance(value, list) else tuple)(map(_plain, value))  # a named tuple takes no iterable
    return value.item() if getattr(value, "shape", None) == () and hasattr(value, "item") else value


def _placed(parts: list[str], value: Any) -> Plain:
    """Return ``value`` in its section: of a and b, ``{"a": {"b": value}}``."""
    for part in reversed(parts):
        value = {part: value}
    return dict(value)


def _overlay(lower: Mapping[str, Any], upper: Mapping[str, Any]) -> Plain:
    merged = dict(lower)
    for key, value in upper.items():
        below = merged.get(key)
        if isinstance(below, Mapping) and isinstance(value, Mapping):
            merged[key] = _overlay(below, value)
        elif value is not None or not isinstance(below, Mapping):  # an empty section changes nothing
            merged[key] = value
    return merged

"""From plain values to typed settings, with every mistake reported at once."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from ebclab.config.addresses import LOCATIONS, OWN, expanded, folder_problem, is_address, shortened
from ebclab.config.check import Problems, check_section, settings_of, shown, usable_texts, value_problem
from ebclab.config.encoder import TIMM, InitConfig
from ebclab.config.experiment import SECTIONS, ExperimentConfig, RecordedSettings
from ebclab.config.names import Known, did_you_mean, no_such_dataset, unknown_setting
from ebclab.config.sections import DataConfig, ViewsConfig
from ebclab.config.view_recipes import USUAL_VIEWS, VIEW_RECIPES
from ebclab.config.yaml_text import Plain, mapping_from_yaml
from ebclab.errors import ConfigError
from ebclab.methods_by_name import Methods, catalogue, is_import_name


def parse_yaml(text: str, where: str, methods: Methods | None = None) -> ExperimentConfig:
    """Return the settings in YAML ``text``, such as ``to_yaml`` writes."""
    return parse_experiment(mapping_from_yaml(text, where), methods)


def parse_experiment(mapping: Mapping[str, Any], methods: Methods | None = None) -> ExperimentConfig:
    """Return the settings in ``mapping``; missing ones have their default.

    A method named as package.module:Class that is not in ``methods`` is not imported; its settings are kept unchecked.

    Args:
        mapping: Plain values in the form of the YAML files: sections by name, ``method`` with its ``name``, ``seed``.
    """
    methods = catalogue() if methods is None else methods
    problems = Problems()
    mapping = usable_texts(mapping, problems)
    given = {section: _section_given(section, mapping.get(section), problems) for section in ("method", *SECTIONS)}
    method_name = _take_method_name(given["method"], methods, problems)
    digest = _take_digest(given["method"], method_name, problems)
    given["views"] = _expand_view_recipe(given["views"], given["data"].get("name", DataConfig.name), problems)

    types = {"method": methods[method_name].Config, **SECTIONS} if method_name in methods else SECTIONS
    known = {section: settings_of(config_type) for section, config_type in types.items()}
    problems.lines += [
        _unknown_at_top(str(key), value, known, method_name)
        for key, value in mapping.items()
        if key not in ("method", *SECTIONS, "seed")
    ]
    configs: dict[str, Any] = {"method": RecordedSettings(given["method"]) if method_name else None}
    for section, config_type in types.items():
        unknown = partial(unknown_setting, section, known=known, method_name=method_name)
        configs[section] = check_section(section, config_type, given[section], unknown, problems)
    if configs["data"].root is not None and (problem := folder_problem(configs["data"].root)):
        problems.add("data.root", problem)
    configs["data"] = _with_absolute_paths(configs["data"])
    configs["init"] = _with_absolute_folder(configs["init"])
    config = ExperimentConfig(method_name, seed=_seed(mapping, problems), method_digest=digest, **configs)
    problems.add_lines(config.problems())
    if problems.lines:
        raise ConfigError(problems.lines)
    return config


def _section_given(section: str, value: Any, problems: Problems) -> Plain:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        name = next(iter(settings_of(SECTIONS[section]))) if section in SECTIONS else "name"
        problems.add(section, f"not a section, got {shown(value)}; write {section}: {{{name}: ...}}")
        return {}
    return dict(value)


def _take_method_name(given: Plain, methods: Methods, problems: Problems) -> str:
    """Remove ``name`` from the method section and return it, or an empty text if it is not a method."""
    if "name" not in given:
        if problems.wrong.isdisjoint(("method", "method.name")):
            problems.add("method.name", f"missing; write one of {', '.join(methods)}")
        return ""
    name = given.pop("name")
    if isinstance(name, str) and is_import_name(name):
        return name
    if not isinstance(name, str) or name not in methods:
        own = "; one of your own is written package.module:Class" if set(":./") & set(str(name)) else ""
        problems.add("method.name", f"no such method, got {shown(name)}; {did_you_mean(str(name), methods)}{own}")
        return ""
    return name


def _take_digest(given: Plain, method_name: str, problems: Problems) -> str:
    """Remove the digest of a class's file from the method section and return it; methods of the catalogue have none."""
    digest = given.pop("digest", "") if is_import_name(method_name) else ""
    if isinstance(digest, str) and re.fullmatch(r"([0-9a-f]{64})?", digest):
        return digest
    problems.add("method.digest", f"not a SHA-256, got {shown(digest)}; leave it out")
    return ""


def _expand_view_recipe(given: Plain, dataset: Any, problems: Problems) -> Plain:
    """Return the view settings of the recipe named in ``given``, overridden by the others in ``given``."""
    name = given.get("recipe", ViewsConfig.recipe)
    if not isinstance(name, str):
        return given  # its type is reported with all others
    if name == "auto":
        name = USUAL_VIEWS.get(dataset, "") if isinstance(dataset, str) else "none"
        if not name and dataset.startswith(LOCATIONS):
            named = ", ".join(VIEW_RECIPES)
            problems.add(
                "views.recipe",
                "no usual views for images named by their place, got auto; flatclr-cifar suits colour images below 96 "
                f"pixels, fashion-mnist grey ones, simclr-imagenet larger ones; name one of {named}",
            )
            return given
        if not name and not dataset.startswith(OWN):
            problems.add("data.name", no_such_dataset(dataset, USUAL_VIEWS))
            return given
        if not name:
            known = did_you_mean(dataset, USUAL_VIEWS)
            problems.add(
                "data.name", f"no dataset with usual views, got {shown(dataset)}; {known}; or set views.recipe"
            )
            return given
    if name not in VIEW_RECIPES:
        problems.add("views.recipe", f"no such view recipe, got {shown(name)}; {did_you_mean(name, VIEW_RECIPES)}")
        return given
    return {**VIEW_RECIPES[name].settings, **given, "recipe": name}


def _with_absolute_paths(data: DataConfig) -> DataConfig:
    """Return ``data`` with absolute paths, which do not depend on a process's working directory."""
    root = None if data.root is None else _absolute(data.root)
    kind, colon, path = data.name.partition(":")
    is_local = data.name.startswith(LOCATIONS) and path and not is_address(path)
    name = f"{kind}{colon}{_absolute(path)}" if is_local else data.name
    return replace(data, root=root, name=name)


def _with_absolute_folder(init: InitConfig) -> InitConfig:
    if not init.weights or init.weights.startswith(TIMM) or is_address(init.weights):
        return init
    return replace(init, weights=_absolute(init.weights))


def _absolute(path: str) -> str:
    return str(expanded(path).absolute())


def _unknown_at_top(key: str, value: Any, known: Known, method_name: str) -> str:
    section, _, name = key.partition(".")
    if name:
        nested = f"{shortened(section)}: {{{shortened(name)}: {shown(value)}}}"
        return f"{shortened(key)}: a dotted key, got {shown(value)}; write it nested: {nested}"
    return unknown_setting("", key, known=known, method_name=method_name)


def _seed(mapping: Mapping[str, Any], problems: Problems) -> int:
    seed: int = mapping.get("seed", ExperimentConfig.seed)
    if problem := value_problem(seed, settings_of(ExperimentConfig)["seed"], int):
        problems.add("seed", problem)
        return ExperimentConfig.seed
    return seed

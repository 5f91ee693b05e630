"""All settings of a run: to plain values and YAML, and back, with every mistake reported at once."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import Field, dataclass, field, replace
from functools import partial
from os.path import isfile
from typing import TYPE_CHECKING, Any, get_type_hints

from ebclab.config.addresses import (
    LOCATIONS,
    OWN,
    absolute,
    folder_problem,
    is_address,
    shortened,
    with_absolute_path,
)
from ebclab.config.check import (
    Problems,
    bounds_in_words,
    check_section,
    choices,
    settings_of,
    shown,
    usable_texts,
    value_problem,
)
from ebclab.config.encoder import TIMM, EncoderConfig, InitConfig
from ebclab.config.names import Known, did_you_mean, no_such_dataset, unknown_setting
from ebclab.config.sections import (
    USUAL_VIEWS,
    VIEW_RECIPES,
    DataConfig,
    EvaluationConfig,
    OptimizerConfig,
    ResourcesConfig,
    TrainingConfig,
    ViewsConfig,
)
from ebclab.config.yaml_text import Plain, dump_yaml, mapping_from_yaml
from ebclab.errors import ConfigError
from ebclab.methods_by_name import Methods, catalogue, is_import_name, known_name, settings_class, with_imported
from energy_contrast.settings import setting

if TYPE_CHECKING:
    from energy_contrast.method import Method


SECTIONS: Mapping[str, type] = {
    "data": DataConfig,
    "views": ViewsConfig,
    "encoder": EncoderConfig,
    "init": InitConfig,
    "optimizer": OptimizerConfig,
    "training": TrainingConfig,
    "evaluation": EvaluationConfig,
    "resources": ResourcesConfig,
}
"""Every section but ``method``, whose settings depend on the method."""


@dataclass(frozen=True)
class RecordedSettings:
    """Settings of a method whose class was not imported, as read from a file; they can be shown, not trained with."""

    values: Mapping[str, Any]  # plain values by name


@dataclass(frozen=True)
class ExperimentConfig:
    """All settings of one run, resolved."""

    method_name: str  # key of the catalogue of methods, or package.module:Class
    method: Any  # settings of that method: an instance of its Config, or RecordedSettings
    data: DataConfig = field(default_factory=DataConfig)
    views: ViewsConfig = field(default_factory=ViewsConfig)
    encoder: EncoderConfig = field(default_factory=EncoderConfig)
    init: InitConfig = field(default_factory=InitConfig)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)
    resources: ResourcesConfig = field(default_factory=ResourcesConfig)
    seed: int = setting(0, "Seed of weights, views, order of images and draws.", minimum=0, maximum=2**32 - 1)
    method_digest: str = ""  # SHA-256 of the file of a class that is named as package.module:Class

    def problems(self) -> list[str]:
        """Return what is wrong across sections, one line each with dotted keys, empty when all is well."""
        problems = []
        warmup, end = self.optimizer.warmup_epochs, self.training.ends[0]
        if warmup > end:
            problems.append(
                f"optimizer.warmup_epochs: must not exceed training.epochs, got {warmup:g} > {end}; "
                f"write optimizer.warmup_epochs={end / 10:g}, or more epochs"
            )
        if 0 < self.data.train_limit < self.training.batch_size:
            problems.append(
                "training.batch_size: must not exceed data.train_limit, "
                f"got {self.training.batch_size} > {self.data.train_limit}; no batch would ever be full"
            )
        if self.evaluation.scored_on == "confirm" and self.data.confirm_rate == 0:
            problems.append(
                "evaluation.scored_on: no images are kept for it, got confirm with data.confirm_rate=0; "
                "set data.confirm_rate=0.1"
            )
        if self.evaluation.monitor and self.data.holdout_rate == 0 and self.evaluation.scored_on == "holdout":
            problems.append(
                "evaluation.monitor: monitors look at held-out images, got "
                f"{', '.join(self.evaluation.monitor)} with data.holdout_rate=0; hold a share out"
            )
        if self.views.shared_by == "batch" and self.data.views_on == "pipeline":
            problems.append(
                "views.shared_by: the pipeline makes views before batches exist, got batch with "
                "data.views_on=pipeline; set data.views_on=worker"
            )
        return problems


def known_method(config: ExperimentConfig) -> str:
    """Return the method's name; of a user-defined class, that of the nearest method of the catalogue it extends."""
    name = config.method_name
    return known_name(name, methods_of(config)) if is_import_name(name) else name


def methods_of(config: ExperimentConfig, own: type[Method] | None = None) -> Methods:
    """Return the catalogue together with the method of ``config``.

    Args:
        own: The method's class, if the user gave it; None means that it is found by its name.
    """
    name = config.method_name
    if own is not None:
        return {**catalogue(), name: own}
    if isinstance(config.method, RecordedSettings):
        raise ConfigError(
            [
                f"method.name: a file alone does not choose which code is run, got {shortened(name)}; name it "
                f"yourself: compose({shortened(repr(name))}, ...)"
            ]
        )
    methods = with_imported(name)
    if name not in methods:
        raise ConfigError([f"method.name: not in the catalogue, got {shortened(name)}; give its class too: method=..."])
    return methods


def to_mapping(config: ExperimentConfig) -> Plain:
    """Return every setting of ``config`` as plain values, in the form of the YAML files."""
    digest = {"digest": config.method_digest} if config.method_digest else {}
    mapping = {"method": {"name": config.method_name, **digest, **_plain(config.method)}}
    for section in SECTIONS:
        mapping[section] = _plain(getattr(config, section))
    return {**mapping, "seed": config.seed}


def _plain(section: Any) -> Plain:
    """Return the settings of a section; tuples become lists, as in YAML."""
    if isinstance(section, RecordedSettings):
        return dict(section.values)
    values = {name: getattr(section, name) for name in settings_of(type(section))}
    return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}


def flat(mapping: Mapping[str, Any], prefix: str = "") -> Plain:
    """Return nested settings by dotted key."""
    found: Plain = {}
    for key, value in mapping.items():
        if isinstance(value, dict):
            found |= flat(value, f"{prefix}{key}.")
        else:
            found[f"{prefix}{key}"] = value
    return found


def to_yaml(config: ExperimentConfig, explain: bool = False) -> str:
    """Return every setting of ``config`` as YAML that ``parse_yaml`` reads back unchanged.

    Args:
        explain: Add a comment to each setting: meaning, choices or range, unit, symbol in the paper.
    """
    types = {"method": type(config.method), **SECTIONS}
    blocks = []
    for name, values in to_mapping(config).items():
        lines = dump_yaml({name: values}).rstrip("\n").split("\n")  # a setting a line
        if explain:
            comments = (
                _section_comments(name, types[name], values)
                if name in types
                else [_comment(settings_of(ExperimentConfig)["seed"], int)]
            )
            column = max(map(len, lines)) + 2
            lines = [f"{line:<{column}}# {comment}" for line, comment in zip(lines, comments, strict=True)]
        blocks.append("\n".join(lines) + "\n")
    return "\n".join(blocks)


_OF_EVERY_METHOD = {"name": "Which method.", "digest": "SHA-256 of the file that defines its class."}


def _section_comments(name: str, config_type: type, values: Mapping[str, Any]) -> list[str]:
    hints = get_type_hints(config_type)
    first_line = (config_type.__doc__ or config_type.__name__).strip().splitlines()[0]
    method_name = [text for key, text in _OF_EVERY_METHOD.items() if key in values] if name == "method" else []
    return [
        first_line,
        *method_name,
        *(_comment(field, hints[key]) for key, field in settings_of(config_type).items()),
    ]


def _comment(field: Field[Any], hint: Any) -> str:
    facts = [field.metadata.get("doc", "")]
    if words := choices(hint):
        facts.append(f"One of {', '.join(words)}.")
    if bounds := bounds_in_words(field):
        facts.append(f"{bounds[0].upper()}{bounds[1:]}.")
    if "unit" in field.metadata:
        facts.append(f"Unit: {field.metadata['unit']}.")
    if "symbol" in field.metadata:
        facts.append(f"In the paper: {field.metadata['symbol']}.")
    return " ".join(" ".join(facts).split())


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

    types = {"method": settings_class(method_name, methods), **SECTIONS} if method_name in methods else SECTIONS
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
        as_class = _as_class(name) if isinstance(name, str) else ""
        own = f"; one of your own is written package.module:Class, here {as_class}" if as_class else ""
        problems.add("method.name", f"no such method, got {shown(name)}; {did_you_mean(str(name), methods)}{own}")
        return ""
    return name


def _as_class(text: str) -> str:
    """Return a path of Python's or of a file as ``package.module:Class``; empty if it is no path of a class."""
    path, _, name = text.partition(":")
    module = path.removesuffix(".py").strip("./").replace("/", ".")
    package, _, last = module.rpartition(".")
    if not name and package and last[:1].isupper():
        module, name = package, last
    if not name and (path.endswith(".py") or isfile(f"{module.replace('.', '/')}.py")):
        name = "Class"
    is_class = name[:1].isupper() and is_import_name(f"{module}:{name}")
    return shortened(f"{module}:{name}") if is_class else ""


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
    root = None if data.root is None else str(absolute(data.root))
    return replace(data, root=root, name=with_absolute_path(data.name))


def _with_absolute_folder(init: InitConfig) -> InitConfig:
    if not init.weights or init.weights.startswith(TIMM) or is_address(init.weights):
        return init
    return replace(init, weights=str(absolute(init.weights)))


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

"""All settings of a run: the method's, and the sections data, views, encoder and so on; as plain values and as YAML."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import Field, dataclass, field
from typing import TYPE_CHECKING, Any, get_type_hints

from ebclab.config.addresses import shortened
from ebclab.config.check import bounds_in_words, choices, settings_of
from ebclab.config.encoder import EncoderConfig, InitConfig
from ebclab.config.sections import (
    DataConfig,
    EvaluationConfig,
    OptimizerConfig,
    ResourcesConfig,
    TrainingConfig,
    ViewsConfig,
)
from ebclab.config.yaml_text import Plain, dump_yaml
from ebclab.errors import ConfigError
from ebclab.methods_by_name import Methods, catalogue, with_imported
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

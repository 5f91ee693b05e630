"""Renders the README.md of an exported encoder: its scores, its origin, and code that loads it.

Each block of code runs without changes inside the exported folder; the text is in ``templates/encoder.md.j2``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined

from ebclab.config.experiment import to_mapping
from ebclab.config.yaml_text import JsonObject, dump_yaml
from ebclab.document.document import CellValue, Table
from ebclab.document.text import bullets, escape_markdown, fenced, table_as_markdown
from ebclab.encoders.timm_encoder import arguments_for
from ebclab.evaluation.answers import Score
from ebclab.export.description import EncoderDescription
from ebclab.export.energies import Energies
from ebclab.export.formats import Converted, opens_in_timm
from ebclab.formatting import presentable
from ebclab.interval import NumberFormat

_PERCENT = NumberFormat(100, 2)


@dataclass(frozen=True)
class CardFacts:
    """The facts on a card in addition to the encoder's description. Text is escaped: markup in it has no effect."""

    title: str  # heading of the card
    method_name: str  # method that pretrained the encoder
    settings_yaml: str  # resolved settings of the run
    data_lines: Sequence[str] = ()  # facts about the training images, one per line
    scores: Sequence[Score] = ()  # measured scores, in display order; may include baselines
    notes: Sequence[str] = ()  # warnings, placed first (e.g. "exported from an unfinished run, after 3 of 10 epochs")
    # facts about the sweep that found these settings, one per line; empty if there was none
    sweep_lines: Sequence[str] = ()
    dataset: str = ""  # name of the dataset that the scores were measured on, without a path; empty if there is none
    held_out: bool = False  # it has no test part: the scores were measured on held-out images


def render_card(
    facts: CardFacts,
    description: EncoderDescription,
    weight_shapes: Mapping[str, Sequence[int]],
    converted: Sequence[Converted] = (),
    energies: Energies | None = None,
) -> str:
    """Return the card as Markdown.

    The shape of each stored tensor is listed if no other library has the architecture.
    """
    channels, size = description.in_channels, description.input_size
    return (
        _templates()
        .get_template("encoder.md.j2")
        .render(
            facts=facts,
            description=description,
            architecture=description.architecture,
            weight_shapes=weight_shapes,
            converted=converted,
            energies=energies,
            method=to_mapping(energies.config)["method"] if energies and energies.config else {},
            channels=channels,
            size=size,
            read_size=description.read_size,
            stored_size=description.read_size or size,
            is_picture=channels in (1, 3),
            opens_in_timm=opens_in_timm(description),
            network=_network(description),
            arguments=_arguments(description),
            front_matter=_front_matter(facts, description),
            scores=_score_table(facts.scores, held_out=facts.held_out),
            settings=fenced(facts.settings_yaml.rstrip("\n"), "yaml"),
        )
    )


@cache
def _templates() -> Environment:
    """Return the environment of the template: only what its filters ``shown`` and ``bullets`` are given is escaped."""
    environment = Environment(
        loader=PackageLoader("ebclab.export", "templates"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {"shown": escape_markdown, "bullets": bullets}
    return environment


def _network(description: EncoderDescription) -> str:
    architecture = description.architecture
    if architecture.timm_name:
        return f"{architecture.timm_name} of timm"
    return f"{architecture.name} with the {architecture.stem} stem" if architecture.name != "small" else "small encoder"


def _arguments(description: EncoderDescription) -> str:
    """Return the arguments, as code, of the function that builds the network: timm's, or else our own."""
    channels, settings = description.in_channels, description.architecture.architecture()
    name = description.architecture.timm_name or description.architecture.name
    choices: JsonObject = {"in_channels": channels, **{key: settings[key] for key in settings if key != "name"}}
    if description.architecture.timm_name:
        choices = {**arguments_for(name, channels, description.input_size)}
    return json.dumps(name) + "".join(f", {key}={json.dumps(value)}" for key, value in choices.items())


def _front_matter(facts: CardFacts, description: EncoderDescription) -> str:
    """Return the YAML metadata of a card for the Hugging Face Hub; the licence is left to the publisher."""
    tags = ["image-feature-extraction", "self-supervised-learning", "ebclab", _plain(facts.method_name)]
    content: JsonObject = {
        "library_name": "timm" if opens_in_timm(description) else "ebclab",
        "pipeline_tag": "image-feature-extraction",
        "tags": [*tags, *(["timm"] if opens_in_timm(description) else [])],
    }
    if facts.scores and facts.dataset and not facts.held_out:  # those are no results of a test set
        dataset = _plain(facts.dataset)
        result: JsonObject = {
            "task": {"type": "image-classification", "name": "frozen features"},
            "dataset": {"type": dataset, "name": dataset},
            "metrics": [
                {"type": "accuracy", "value": round(100 * score.value, 2), "name": _plain(score.name)}
                for score in facts.scores
            ],
        }
        content["model-index"] = [{"name": _plain(facts.title), "results": [result]}]
    return f"---\n{dump_yaml(content)}# license: yours to choose, such as apache-2.0\n---"


def _plain(text: str) -> str:
    """Return ``text`` on one line without angle brackets, for places where Markdown escapes have no effect."""
    return re.sub("[<>]", "", presentable(" ".join(text.split())))


def _score_table(scores: Sequence[Score], *, held_out: bool) -> str:
    if not scores:
        return "None were measured."
    images = "held-out images" if held_out else "test images"
    heads = ("score", "accuracy, %", f"95 % interval over {images}, %", "probe seeds", images, "protocol")
    return table_as_markdown(Table("", heads, tuple(map(_score_row, scores))))


def _score_row(score: Score) -> tuple[CellValue, ...]:
    seeds = f"± {_PERCENT.number(score.std)} ({len(score.seeds)} seeds)" if score.std is not None else "one measurement"
    ends = _PERCENT.ends(score.low, score.high)
    return score.name, _PERCENT.number(score.value), ends, seeds, str(score.num_images), score.detail

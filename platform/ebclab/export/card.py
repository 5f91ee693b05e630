"""Renders the README.md of an exported encoder: its scores, its origin, and code that loads it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ebclab.config.experiment import to_mapping
from ebclab.config.yaml_text import dump_yaml
from ebclab.document.document import CellValue, Table
from ebclab.document.markdown import bullets, escape_markdown, fenced, table_as_markdown
from ebclab.evaluation.answers import Score
from ebclab.export.description import EncoderDescription
from ebclab.export.energies import Energies
from ebclab.export.formats import Converted, opens_in_timm
from ebclab.export.snippets import (
    EQUATIONS,
    code_of_energies,
    code_of_energies_with_ebclab,
    code_with_ebclab,
    code_with_file,
    code_without_ebclab,
)
from ebclab.formatting import visible
from ebclab.interval import NumberFormat

_PERCENT = NumberFormat(100, 2)
_FILE_HEADINGS = {"onnx": "## Use it with ONNX Runtime", "torch-export": "## Use it with torch.export"}


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
    sections = [
        _front_matter(facts, description),
        f"# {escape_markdown(facts.title)}",
        _introduction(facts, description),
        *(f"**Note:** {escape_markdown(note)}" for note in facts.notes),
        "## Scores",
        _score_table(facts.scores),
        *(["## Sweep", bullets(facts.sweep_lines)] if facts.sweep_lines else []),
        "## Data",
        bullets(facts.data_lines) or "Not recorded.",
        "## Use it with ebclab",
        fenced(code_with_ebclab(description), "python"),
        "## Use it without ebclab",
        _without_ebclab(description, weight_shapes),
        *(_as_file(description, file) for file in converted),
        *(["## Energies of images", _energies(description, energies)] if energies else []),
        "## Use it with timm",
        _with_timm(description),
        "## Method and settings",
        f"Method: {escape_markdown(facts.method_name)}. `ebclab pretrain --config FILE` accepts these settings:",
        fenced(facts.settings_yaml.rstrip("\n"), "yaml"),
    ]
    return "\n\n".join(sections) + "\n"


def _front_matter(facts: CardFacts, description: EncoderDescription) -> str:
    """Return the YAML metadata of a card for the Hugging Face Hub; the licence is left to the publisher."""
    tags = ["image-feature-extraction", "self-supervised-learning", "ebclab", _plain(facts.method_name)]
    content: dict[str, Any] = {
        "library_name": "timm" if opens_in_timm(description) else "ebclab",
        "pipeline_tag": "image-feature-extraction",
        "tags": [*tags, *(["timm"] if opens_in_timm(description) else [])],
    }
    if facts.scores and facts.dataset:
        dataset = _plain(facts.dataset)
        result = {
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
    return re.sub("[<>]", "", visible(" ".join(text.split())))


def _with_timm(description: EncoderDescription) -> str:
    if not opens_in_timm(description):
        return "timm cannot open this folder: it has no such network."
    code = fenced(
        'import timm\n\nencoder = timm.create_model("local-dir:.", pretrained=True).eval()  # the path of this folder',
        "python",
    )
    transforms = (
        "timm's transforms resize with Pillow, so their pixels may differ by a rounding from those of the code above."
    )
    if description.read_size:
        transforms = (
            "timm's transforms scale an image in one step and then crop it, so a photograph is shifted by up to a "
            "pixel and its edges differ by many levels: read images with the code above."
        )
    return (
        f"timm opens the folder by name, without ebclab; `num_classes=10` adds a new classifier:\n\n{code}\n\n"
        f"`timm.data.resolve_model_data_config(encoder)` has size, mean and std. {transforms}"
    )


def _introduction(facts: CardFacts, description: EncoderDescription) -> str:
    channels, size = description.in_channels, description.input_size
    name, stem = description.architecture.name, description.architecture.stem
    network = f"{name} with the {stem} stem" if name != "small" else f"{name} encoder"
    if description.architecture.timm_name:
        network = f"{description.architecture.timm_name} of timm"
    return (
        f"A visual encoder ({network}), pretrained with {escape_markdown(facts.method_name)} by ebclab"
        f"{f' {description.ebclab}' if description.ebclab else ''}. It maps images ({channels}, {size}, {size}) to "
        f"{description.feature_size} features. Weights: `model.safetensors`; description: `encoder.json`.\n\n"
        f"An image file is read {description.preprocessing.in_words()}. The code below does this."
    )


def _score_table(scores: Sequence[Score]) -> str:
    if not scores:
        return "None were measured."
    heads = ("score", "accuracy, %", "95 % interval over test images, %", "probe seeds", "test images", "protocol")
    return table_as_markdown(Table("", heads, tuple(map(_score_row, scores))))


def _score_row(score: Score) -> tuple[CellValue, ...]:
    seeds = f"± {_PERCENT.number(score.std)} ({len(score.seeds)} seeds)" if score.std is not None else "one measurement"
    ends = _PERCENT.ends(score.low, score.high)
    return score.name, _PERCENT.number(score.value), ends, seeds, str(score.num_images), score.detail


def _without_ebclab(description: EncoderDescription, weight_shapes: Mapping[str, Sequence[int]]) -> str:
    code = fenced(code_without_ebclab(description), "python")
    if description.counterpart is not None:
        version = f" (made with timm {description.timm})" if description.timm else ""
        return f"The weights load into `{description.counterpart}`{version} under its own names:\n\n{code}"
    rows = [f"| `{name}` | {' x '.join(map(str, shape)) or 'one number'} |" for name, shape in weight_shapes.items()]
    table = "\n".join(["| tensor | shape |", "|---|---|", *rows])
    return (
        f"torchvision has no such network. Its class is `{description.encoder_class}`, in a package that needs "
        f"PyTorch only:\n\n{code}\n\nThe tensors in `model.safetensors`:\n\n{table}"
    )


def _as_file(description: EncoderDescription, converted: Converted) -> str:
    code = fenced(code_with_file(description, converted), "python")
    source = escape_markdown(converted.source)
    return (
        f"{_FILE_HEADINGS[converted.format]}\n\n`{converted.file}` takes batches of any size. Its features differ from "
        f"the encoder's by at most {converted.difference:.1e}, measured on {source}.\n\n{code}"
    )


def _energies(description: EncoderDescription, energies: Energies) -> str:
    """Return what the energies are, and code that computes them with ebclab and without."""
    assert energies.config is not None
    name, settings = energies.config.method_name, to_mapping(energies.config)["method"]
    words = (
        f"Low for what {name} takes to be likely, in nats, up to a constant: energies of two encoders do not "
        f"compare.\n\n{EQUATIONS[name]}"
    )
    if energies.source:
        words += f"\n\nThe references are {escape_markdown(energies.source)}."
    with_ebclab = fenced(code_of_energies_with_ebclab(description, name), "python")
    without = fenced(code_of_energies(description, settings), "python")
    return f"{words}\n\nWith ebclab:\n\n{with_ebclab}\n\nWithout ebclab:\n\n{without}"

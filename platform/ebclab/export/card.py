"""Renders the README.md of an exported encoder: its scores, its origin, and code that loads it.

Each block of code runs without changes inside the exported folder.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

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
    sections = [
        _front_matter(facts, description),
        f"# {escape_markdown(facts.title)}",
        _introduction(facts, description),
        *(f"**Note:** {escape_markdown(note)}" for note in facts.notes),
        "## Scores",
        _score_table(facts.scores, held_out=facts.held_out),
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


_VEM = (
    "- of an image x: `E(x) = -log sum_m exp(<k(x), r_m> / tau_bank)`, with its key k(x) and the queries of reference "
    "images, r_m\n- of a pair (x, v): `E(x, v) = -<q(x), k(v)> / tau`, with the query of x and the key of v (VEM, eq. "
    "2, without the densities of the data)"
)

EQUATIONS = {
    "ebclr": "- of an image v: `E(v) = -log sum_m exp(-|z - r_m|^2 / tau)`, with its unit projection z and those of "
    "reference images, r_m (EBCLR, eq. 20)\n- of a pair of views (v, v'): `E(v, v') = |z - z'|^2 / tau` (EBCLR, eq. 8)",
    "vem-langevin": _VEM,
    "vem-svgd": _VEM,
    "vem-image": _VEM,
    "jem": "- of an image x: `E(x) = -log sum_k exp(f_k(x))`, with the logits f of the classifier (JEM, eq. 7)",
}
"""What the energies of each method are, as Markdown."""


def code_with_ebclab(description: EncoderDescription) -> str:
    """Return code that loads the folder with ebclab and computes features of images."""
    return _joined(
        "import torch",
        "from ebclab.export import load_encoder",
        "",
        'encoder, preprocessing, info = load_encoder(".")  # the path of this folder',
        *_embed(description, "preprocessing.read"),
    )


def code_without_ebclab(description: EncoderDescription) -> str:
    """Return code that loads the weights into the counterpart, or into the encoder's own class if there is none."""
    if description.architecture.timm_name:
        build = _timm(description)
    else:
        build = _own_class(description) if description.counterpart is None else _torchvision(description)
    return _joined(
        *build,
        'encoder.load_state_dict(load_file("model.safetensors"))',
        "encoder.eval()",
        *_preprocessing(description),
        *_embed(description),
    )


def code_of_energies_with_ebclab(description: EncoderDescription, method: str) -> str:
    """Return code that loads the energies of the folder with ebclab and computes those of images."""
    return _joined(
        "import torch",
        "from ebclab import load_energies",
        "",
        'energies = load_energies(".")  # the path of this folder',
        *_images(description, "energies.preprocessing.read"),
        "likely = energies.energy(images)  # (8,)",
        *([] if method == "jem" else ["pairs = energies.pair_energy(images, images)  # (8, 8)"]),
    )


def code_of_energies(description: EncoderDescription, settings: Mapping[str, Any]) -> str:
    """Return code that computes energies from the files, without ebclab; ``settings`` are those of the method."""
    if settings["name"] == "jem":
        code = _JEM
    elif settings["name"] == "ebclr":
        code = _vectors("leaky_relu", ", 0.2") + _EBCLR.replace("TAU", str(settings["temperature"])) + _BOTH
    else:
        has_copy = settings["key_encoder"] == "momentum"
        code = "import copy\n\n" * has_copy + _vectors("relu", "") + _KEY_ENCODER * has_copy
        code += _VEM_PAIRS.replace("KEY_NETWORK", "key_encoder" if has_copy else "encoder")
        code = code.replace("KEY_HEAD", "key_head" if has_copy else "head") + _BOTH
        code = code.replace("TAU_BANK", str(settings["bank_temperature"])).replace("TAU", str(settings["temperature"]))
    return f"{code_without_ebclab(description)}\n\n{code}".rstrip("\n")


def _joined(*lines: str) -> str:
    return "\n".join(lines)


def _vectors(activation: str, more: str) -> str:
    """Return code of the unit vectors behind a head of two layers."""
    return _UNIT_VECTORS.replace("ACTIVATION", activation).replace("MORE", more)


_JEM = """\
stored = load_file("energies.safetensors")


def energy(images):  # (B, C, H, W), 0 to 255 -> (B,)
    logits = encoder(preprocessing(images)) @ stored["classifier.weight"].T + stored["classifier.bias"]
    return -torch.logsumexp(logits, dim=1)


with torch.no_grad():
    likely = energy(images)
"""

_EBCLR = """\
def energy(images):  # (B, C, H, W), 0 to 255 -> (B,)
    references = normalize(stored["references"], dim=1)
    distances = (2 - 2 * vectors(images, encoder, "head") @ references.T) / TAU
    return -torch.logsumexp(-distances, dim=1)


def pair_energy(first, second):  # (N, C, H, W), (M, C, H, W) -> (N, M)
    z, other = (vectors(views, encoder, "head") for views in (first, second))
    return (2 - 2 * z @ other.T) / TAU
"""

_KEY_ENCODER = """\
key_encoder = copy.deepcopy(encoder)
weights = {name: each for name, each in stored.items() if name.startswith("key_encoder.")}
key_encoder.load_state_dict({name.removeprefix("key_encoder."): each for name, each in weights.items()})


"""

_VEM_PAIRS = """\
def energy(images):  # (B, C, H, W), 0 to 255 -> (B,)
    cosines = vectors(images, KEY_NETWORK, "KEY_HEAD") @ stored["references"].T
    return -torch.logsumexp(cosines / TAU_BANK, dim=1)


def pair_energy(first, second):  # (N, C, H, W), (M, C, H, W) -> (N, M)
    query, key = vectors(first, encoder, "head"), vectors(second, KEY_NETWORK, "KEY_HEAD")
    return -query @ key.T / TAU
"""

_UNIT_VECTORS = """\
from torch.nn.functional import ACTIVATION, normalize

stored = load_file("energies.safetensors")


def vectors(images, network, head):  # (B, C, H, W), 0 to 255 -> (B, P), of length 1
    embedding = network(preprocessing(images))
    hidden = ACTIVATION(embedding @ stored[f"{head}.0.weight"].T + stored[f"{head}.0.bias"]MORE)
    return normalize(hidden @ stored[f"{head}.2.weight"].T + stored[f"{head}.2.bias"], dim=1)


"""

_BOTH = """\


with torch.no_grad():
    likely = energy(images)  # (8,)
    pairs = pair_energy(images, images)  # (8, 8)
"""


def code_with_file(description: EncoderDescription, converted: Converted) -> str:
    """Return code that opens a file in another format, without the encoder's class, and computes features."""
    imports = ["import torch", "from torch.nn.functional import interpolate", ""]
    if converted.format == "onnx":
        return _joined(
            "import onnxruntime",
            *imports,
            f'session = onnxruntime.InferenceSession("{converted.file}")',
            *_preprocessing(description),
            *_images(description, "read"),
            'features = session.run(["features"], {"images": preprocessing(images).numpy()})[0]'
            f"  # (8, {description.feature_size})",
        )
    opened = f'encoder = torch.export.load("{converted.file}").module()'
    return _joined(*imports, opened, *_preprocessing(description), *_embed(description))


def _preprocessing(description: EncoderDescription) -> list[str]:
    size, normalisation, read = description.input_size, description.normalisation, description.read_size
    return [
        "",
        "",
        *_reading(description),
        "",
        "",
        "def preprocessing(images):  # (B, C, H, W), 0 to 255",
        *([f"    assert images.shape[-2:] == ({read}, {read}), 'crop and scale them as read does'"] if read else []),
        f'    pixels = interpolate(images.float() / 255, ({size}, {size}), mode="bilinear", antialias=True)',
        f"    mean = torch.tensor({list(normalisation.mean)})",
        f"    std = torch.tensor({list(normalisation.std)})",
        "    return (pixels - mean.view(-1, 1, 1)) / std.view(-1, 1, 1)",
        "",
        "",
    ]


def _reading(description: EncoderDescription) -> list[str]:
    """Return code of a function that reads an image file as ``read_photograph`` does; empty unless C is 1 or 3."""
    if description.in_channels not in (1, 3):
        return []
    mode, side = ("RGB" if description.in_channels == 3 else "L"), description.read_size
    lines = [
        "def read(path):  # (C, H, W), 0 to 255, of an opaque image of 8 bits",
        "    import numpy",
        "    from PIL import Image, ImageOps",
        "",
        "    picture = Image.open(path)",
        *([f"    picture.draft(picture.mode, ({side}, {side}))"] if description.decoding == "reduced" else []),
        f'    picture = ImageOps.exif_transpose(picture).convert("{mode}")',
    ]
    if side:
        lines += [
            "    width, height = picture.size",
            "    largest = min(width, height)",
            "    left, top = (width - largest) // 2, (height - largest) // 2",
            "    square = picture.crop((left, top, left + largest, top + largest))",
            f"    picture = square.resize(({side}, {side}), Image.Resampling.BILINEAR)",
        ]
    last = "permute(2, 0, 1)" if description.in_channels == 3 else "unsqueeze(0)"
    return [*lines, f"    return torch.from_numpy(numpy.array(picture)).{last}"]


def _embed(description: EncoderDescription, read: str = "read") -> list[str]:
    features = f"    features = encoder(preprocessing(images))  # (8, {description.feature_size})"
    return [*_images(description, read), "with torch.no_grad():", features]


def _images(description: EncoderDescription, read: str) -> list[str]:
    side = description.read_size or description.input_size
    noise = f"images = torch.randint(256, (8, {description.in_channels}, {side}, {side}), dtype=torch.uint8)"
    if description.in_channels not in (1, 3):
        return [f"{noise}  # put yours here"]
    return [f"{noise}  # yours, or files:", f'# images = torch.stack([{read}(path) for path in ["photo.jpg"]])']


_IMPORTS = [
    "import torch",
    "from safetensors.torch import load_file",
    "from torch.nn.functional import interpolate",
    "",
]


def _torchvision(description: EncoderDescription) -> list[str]:
    channels, stem = description.in_channels, description.architecture.stem
    first, *others = _IMPORTS
    lines = [first, "import torchvision", *others, f"encoder = {description.counterpart}()"]
    if stem != "imagenet":
        shape = f"kernel_size=3, stride={2 if stem == 'strided' else 1}, padding=1"
        lines.append(f"encoder.conv1 = torch.nn.Conv2d({channels}, 64, {shape}, bias=False)")
        lines.append("encoder.maxpool = torch.nn.Identity()")
    elif channels != 3:
        lines.append(f"encoder.conv1 = torch.nn.Conv2d({channels}, 64, kernel_size=7, stride=2, padding=3, bias=False)")
    return [*lines, "encoder.fc = torch.nn.Identity()  # the features, no classifier"]


def _timm(description: EncoderDescription) -> list[str]:
    name = description.architecture.timm_name
    arguments = arguments_for(name, description.in_channels, description.input_size)
    given = "".join(f", {key}={value}" for key, value in arguments.items())
    return ["import timm", *_IMPORTS, f"encoder = timm.create_model({json.dumps(name)}{given})"]


def _own_class(description: EncoderDescription) -> list[str]:
    settings = description.architecture.architecture()
    name = settings.pop("name")
    choices = "".join(f", {key}={json.dumps(value)}" for key, value in settings.items())
    first, *others = _IMPORTS
    own = "from energy_contrast.networks import build_encoder  # needs PyTorch only"
    built = f"encoder = build_encoder({json.dumps(name)}, in_channels={description.in_channels}{choices})"
    return [first, own, *others, built]

"""The Python code on a card; each block runs without changes inside the exported folder."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ebclab.encoders.timm_encoder import arguments_for
from ebclab.export.description import EncoderDescription
from ebclab.export.formats import Converted

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
    return "\n".join(
        [
            "import torch",
            "from ebclab.export import load_encoder",
            "",
            'encoder, preprocessing, info = load_encoder(".")  # the path of this folder',
            *_embed(description, "preprocessing(images)", "preprocessing.read"),
        ]
    )


def code_without_ebclab(description: EncoderDescription) -> str:
    """Return code that loads the weights into the counterpart, or into the encoder's own class if there is none."""
    if description.architecture.timm_name:
        build = _timm(description)
    else:
        build = _own_class(description) if description.counterpart is None else _torchvision(description)
    return "\n".join(
        [
            *build,
            'encoder.load_state_dict(load_file("model.safetensors"))',
            "encoder.eval()",
            *_preprocessing(description),
            *_embed(description, "preprocessing(images)"),
        ]
    )


def code_of_energies_with_ebclab(description: EncoderDescription, method: str) -> str:
    """Return code that loads the energies of the folder with ebclab and computes those of images."""
    pairs = [] if method == "jem" else ["pairs = energies.pair_energy(images, images)  # (8, 8)"]
    return "\n".join(
        [
            "import torch",
            "from ebclab import load_energies",
            "",
            'energies = load_energies(".")  # the path of this folder',
            *_images(description, "energies.preprocessing.read"),
            "likely = energies.energy(images)  # (8,)",
            *pairs,
        ]
    )


def code_of_energies(description: EncoderDescription, settings: Mapping[str, Any]) -> str:
    """Return code that computes energies from the files, without ebclab; ``settings`` are those of the method."""
    form = "vem" if str(settings["name"]).startswith("vem") else str(settings["name"])
    return "\n".join([code_without_ebclab(description), "", *_HEADS[form](settings), ""]).rstrip("\n")


def _of_jem(settings: Mapping[str, Any]) -> list[str]:
    return [
        'stored = load_file("energies.safetensors")',
        "",
        "",
        "def energy(images):  # (B, C, H, W), 0 to 255 -> (B,)",
        '    logits = encoder(preprocessing(images)) @ stored["classifier.weight"].T + stored["classifier.bias"]',
        "    return -torch.logsumexp(logits, dim=1)",
        "",
        "",
        "with torch.no_grad():",
        "    likely = energy(images)",
    ]


def _of_ebclr(settings: Mapping[str, Any]) -> list[str]:
    tau = settings["temperature"]
    return [
        *_head("leaky_relu", ", 0.2"),
        "def energy(images):  # (B, C, H, W), 0 to 255 -> (B,)",
        '    references = normalize(stored["references"], dim=1)',
        f'    distances = (2 - 2 * vectors(images, encoder, "head") @ references.T) / {tau}',
        "    return -torch.logsumexp(-distances, dim=1)",
        "",
        "",
        "def pair_energy(first, second):  # (N, C, H, W), (M, C, H, W) -> (N, M)",
        '    z, other = (vectors(views, encoder, "head") for views in (first, second))',
        f"    return (2 - 2 * z @ other.T) / {tau}",
        *_both(),
    ]


def _of_vem(settings: Mapping[str, Any]) -> list[str]:
    keys, key_head, networks = "encoder", "head", []
    if settings["key_encoder"] == "momentum":
        keys, key_head = "key_encoder", "key_head"
        networks = [
            "key_encoder = copy.deepcopy(encoder)",
            'weights = {name: each for name, each in stored.items() if name.startswith("key_encoder.")}',
            'key_encoder.load_state_dict({name.removeprefix("key_encoder."): each for name, each in weights.items()})',
            "",
            "",
        ]
    return [
        *(["import copy", ""] if networks else []),
        *_head("relu", ""),
        *networks,
        "def energy(images):  # (B, C, H, W), 0 to 255 -> (B,)",
        f'    cosines = vectors(images, {keys}, "{key_head}") @ stored["references"].T',
        f"    return -torch.logsumexp(cosines / {settings['bank_temperature']}, dim=1)",
        "",
        "",
        "def pair_energy(first, second):  # (N, C, H, W), (M, C, H, W) -> (N, M)",
        f'    query, key = vectors(first, encoder, "head"), vectors(second, {keys}, "{key_head}")',
        f"    return -query @ key.T / {settings['temperature']}",
        *_both(),
    ]


def _head(activation: str, more: str) -> list[str]:
    """Return code of the unit vectors behind a head of two layers."""
    return [
        f"from torch.nn.functional import {activation}, normalize",
        "",
        'stored = load_file("energies.safetensors")',
        "",
        "",
        "def vectors(images, network, head):  # (B, C, H, W), 0 to 255 -> (B, P), of length 1",
        "    embedding = network(preprocessing(images))",
        f'    hidden = {activation}(embedding @ stored[f"{{head}}.0.weight"].T + stored[f"{{head}}.0.bias"]{more})',
        '    return normalize(hidden @ stored[f"{head}.2.weight"].T + stored[f"{head}.2.bias"], dim=1)',
        "",
        "",
    ]


def _both() -> list[str]:
    return [
        "",
        "",
        "with torch.no_grad():",
        "    likely = energy(images)  # (8,)",
        "    pairs = pair_energy(images, images)  # (8, 8)",
    ]


_HEADS = {"ebclr": _of_ebclr, "vem": _of_vem, "jem": _of_jem}


def code_with_file(description: EncoderDescription, converted: Converted) -> str:
    """Return code that opens a file in another format, without the encoder's class, and computes features."""
    imports = ["import torch", "from torch.nn.functional import interpolate", ""]
    if converted.format == "onnx":
        return "\n".join(
            [
                "import onnxruntime",
                *imports,
                f'session = onnxruntime.InferenceSession("{converted.file}")',
                *_preprocessing(description),
                *_images(description, "read"),
                'features = session.run(["features"], {"images": preprocessing(images).numpy()})[0]'
                f"  # (8, {description.feature_size})",
            ]
        )
    opened = f'encoder = torch.export.load("{converted.file}").module()'
    return "\n".join([*imports, opened, *_preprocessing(description), *_embed(description, "preprocessing(images)")])


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


def _embed(description: EncoderDescription, pixels: str, read: str = "read") -> list[str]:
    return [
        *_images(description, read),
        "with torch.no_grad():",
        f"    features = encoder({pixels})  # (8, {description.feature_size})",
    ]


def _images(description: EncoderDescription, read: str) -> list[str]:
    side = description.read_size or description.input_size
    noise = f"images = torch.randint(256, (8, {description.in_channels}, {side}, {side}), dtype=torch.uint8)"
    if description.in_channels not in (1, 3):
        return [f"{noise}  # put yours here"]
    return [f"{noise}  # yours, or files:", f'# images = torch.stack([{read}(path) for path in ["photo.jpg"]])']


def _torchvision(description: EncoderDescription) -> list[str]:
    channels = description.in_channels
    lines = [
        "import torch",
        "import torchvision",
        "from safetensors.torch import load_file",
        "from torch.nn.functional import interpolate",
        "",
        f"encoder = {description.counterpart}()",
    ]
    if description.architecture.stem != "imagenet":
        stride = 2 if description.architecture.stem == "strided" else 1
        lines += [
            f"encoder.conv1 = torch.nn.Conv2d({channels}, 64, kernel_size=3, stride={stride}, padding=1, bias=False)",
            "encoder.maxpool = torch.nn.Identity()",
        ]
    elif channels != 3:
        lines.append(f"encoder.conv1 = torch.nn.Conv2d({channels}, 64, kernel_size=7, stride=2, padding=3, bias=False)")
    return [*lines, "encoder.fc = torch.nn.Identity()  # the features, no classifier"]


def _timm(description: EncoderDescription) -> list[str]:
    name = description.architecture.timm_name
    arguments = arguments_for(name, description.in_channels, description.input_size)
    given = "".join(f", {key}={value}" for key, value in arguments.items())
    return [
        "import timm",
        "import torch",
        "from safetensors.torch import load_file",
        "from torch.nn.functional import interpolate",
        "",
        f"encoder = timm.create_model({json.dumps(name)}{given})",
    ]


def _own_class(description: EncoderDescription) -> list[str]:
    settings = description.architecture.architecture()
    name = settings.pop("name")
    choices = "".join(f", {key}={json.dumps(value)}" for key, value in settings.items())
    return [
        "import torch",
        "from energy_contrast.networks import build_encoder  # needs PyTorch only",
        "from safetensors.torch import load_file",
        "from torch.nn.functional import interpolate",
        "",
        f"encoder = build_encoder({json.dumps(name)}, in_channels={description.in_channels}{choices})",
    ]

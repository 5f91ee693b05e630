"""The Python code on a card; each block runs without changes inside the exported folder."""

from __future__ import annotations

import json

from ebclab.encoders.timm_encoder import arguments_for
from ebclab.export.description import EncoderDescription
from ebclab.export.formats import Converted


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

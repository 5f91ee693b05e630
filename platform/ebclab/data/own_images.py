"""The user's own images: arrays, tensors, datasets of torch and image sets, all made into one checked ``ImageSet``."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, cast

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import Dataset, Subset

from ebclab.config.addresses import OWN
from ebclab.config.names import is_folder_name
from ebclab.data.class_labels import Labels, label_of, of_values
from ebclab.data.image_set import ImageSet, channel_statistics
from ebclab.data.photograph import NoBytesError, in_bytes
from ebclab.errors import DataError

Images = ImageSet | Tensor | np.ndarray[Any, Any] | Dataset[Any]
"""What a user may give as images: uint8, (N, C, H, W), (N, H, W, C) or (N, H, W), or a dataset of such images."""

_CHANNELS = (1, 3)
_FEWEST_AXES = 2  # of an image: height and width
_INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
_ACCEPTED = (
    "give uint8 arrays or tensors (N, C, H, W), (N, H, W, C) or (N, H, W), a torch Dataset of images or of "
    "(image, label), or an ebclab.ImageSet"
)


def own_name(name: str) -> str:
    """Return the value of ``data.name`` for a user's images called ``name``, which is never the name of a dataset."""
    return f"{OWN}{name}"


def own_images(source: object) -> ImageSet:
    """Return the user's images, one of ``Images``, as a checked image set.

    Images without keys get the hash of their content, equal ones with a number, so that keys depend neither on the
    order nor on other images: a key decides whether an image is held out and what its views look like.
    """
    if isinstance(source, ImageSet):
        return _checked(source)
    if isinstance(source, Tensor | np.ndarray):
        pixels, labels, name = _tensor(source), Labels(torch.empty(0)), "images"
    elif hasattr(source, "__getitem__") and (isinstance(source, Dataset) or hasattr(source, "features")):
        pixels, labels = _of_dataset(cast("Dataset[Any]", source))  # or one of Hugging Face, which has features
        name = type(source).__name__
    else:
        raise DataError(f"images: nothing that can be trained on, got {type(source).__name__}; {_ACCEPTED}")
    _require_bytes(pixels)
    images = _channels_first(pixels)  # (n, C, H, W)
    if len(images) == 0:
        raise DataError(f"images: at least one is needed, got shape {tuple(images.shape)}; {_ACCEPTED}")
    mean, std = channel_statistics(images)
    known = labels.numbers if len(labels.numbers) else torch.full((len(images),), -1)
    return _checked(ImageSet(name, images, known, content_keys(images), labels.names, mean, std))


def content_keys(images: Tensor) -> Tensor:
    """Return a key for each image (n, C, H, W), (n,) int64: a hash of its pixels and its number among equal images."""
    times: Counter[bytes] = Counter()
    shape = repr(tuple(images.shape[1:])).encode()
    keys = []
    for pixels in images.numpy().reshape(len(images), -1):
        content = hashlib.blake2b(pixels.tobytes() + shape, digest_size=16).digest()
        number = times[content].to_bytes(8, "little")
        times[content] += 1
        word = hashlib.blake2b(content + number, digest_size=8).digest()
        keys.append(int.from_bytes(word, "little", signed=True))
    return torch.tensor(keys, dtype=torch.int64)


def _checked(images: ImageSet) -> ImageSet:
    name, pixels, count = images.name, images.images, len(images.images)
    if not is_folder_name(name):
        raise DataError(f"images.name: not a name, got {name!r}; use letters and digits, without / and \\")
    if not isinstance(pixels, Tensor) or pixels.ndim != 4 or 0 in pixels.shape:
        shape = tuple(getattr(pixels, "shape", ())) or type(pixels).__name__
        raise DataError(f"images.images: must be a tensor (n, C, H, W) with at least one image, got {shape}")
    _require_bytes(pixels)
    labels, keys = (_integers(field, getattr(images, field), count) for field in ("labels", "keys"))
    _, times = torch.unique(keys, return_counts=True)
    if len(times) < count:
        raise DataError(
            f"images.keys: must differ, got {count - len(times):,} of {count:,} that another image has too; "
            "number the images, or give them without keys"
        )
    channels = pixels.shape[1]
    if not len(images.mean) == len(images.std) == channels or not all(map(math.isfinite, (*images.mean, *images.std))):
        raise DataError(
            f"images.mean, images.std: one number of each is needed for each of the {channels} channels, got "
            f"{images.mean} and {images.std}; ebclab.data.image_set.channel_statistics computes them"
        )
    if images.marks is not None and len(images.marks) != count:
        raise DataError(f"images.marks: a row is needed for each of {count:,} images, got {len(images.marks):,}")
    return replace(images, images=pixels.cpu().contiguous(), labels=labels, keys=keys)


def _integers(field: str, values: object, count: int) -> Tensor:
    tensor = torch.as_tensor(values) if isinstance(values, Tensor | np.ndarray | list | tuple) else torch.empty(0, 0)
    if tensor.dtype not in _INTEGERS or tensor.shape != (count,):
        raise DataError(
            f"images.{field}: must be whole numbers, one for each of {count:,} images, got {tensor.dtype} of shape "
            f"{tuple(tensor.shape)}"
        )
    return tensor.cpu().long()


def _tensor(source: Tensor | np.ndarray[Any, Any]) -> Tensor:
    if isinstance(source, Tensor):
        return source.detach().cpu()
    try:
        return torch.from_numpy(np.ascontiguousarray(source))
    except (TypeError, ValueError) as error:  # of a type, or an order of bytes, that torch has not
        raise DataError(f"images: pixels must be bytes (uint8), got an array of {source.dtype}; {_ACCEPTED}") from error


def _require_bytes(pixels: Tensor) -> None:
    if pixels.dtype == torch.uint8:
        return
    if pixels.is_floating_point() and pixels.numel():
        low, high = float(pixels.min()), float(pixels.max())
        way = "(255 * images).round()" if low >= 0 and high <= 1 else "images, scaled to lie between 0 and 255,"
        raise DataError(
            f"images: pixels must be bytes (uint8), got {pixels.dtype} between {low:g} and {high:g}; "
            f"convert {way} to uint8, and leave normalisation to views.normalisation"
        )
    raise DataError(f"images: pixels must be bytes (uint8), got {pixels.dtype}; convert them, 0 black and 255 white")


def _channels_first(pixels: Tensor) -> Tensor:
    shape = tuple(pixels.shape)
    if pixels.ndim == 3:
        return pixels[:, None]
    if pixels.ndim != 4:
        raise DataError(f"images: must be (N, C, H, W), (N, H, W, C) or (N, H, W), got {shape}")
    first, last = shape[1] in _CHANNELS, shape[3] in _CHANNELS
    if first == last:
        problem = "may be either side" if first else "is neither"
        raise DataError(
            f"images: which axis has the channels (1 or 3) {problem}, got {shape}; give an ebclab.ImageSet, whose "
            "images are (n, C, H, W)"
        )
    return pixels if first else pixels.permute(0, 3, 1, 2).contiguous()


def _of_dataset(dataset: Dataset[Any]) -> tuple[Tensor, Labels]:
    images: list[Tensor] = []
    labels: list[Any] = []
    for number, item in enumerate(_items(dataset)):
        if isinstance(item, Mapping):  # as Hugging Face's datasets have items
            item = _of_columns(item, number)
        image, label = item if isinstance(item, tuple | list) and len(item) == 2 else (item, None)
        if isinstance(image, tuple | list) and len(image) == 1:  # TensorDataset(images)
            (image,) = image
        pixels = _pixels(image, number)
        if images and pixels.shape != images[0].shape:
            raise DataError(
                f"images: must be of one size, got {tuple(images[0].shape)} and, at {number}, {tuple(pixels.shape)}; "
                "resize them in the dataset"
            )
        _require_bytes(pixels)
        images.append(pixels)
        labels.append(label)
    if not images:
        raise DataError(f"images: at least one is needed, got an empty {type(dataset).__name__}")
    values = (label.item() if isinstance(label, Tensor | np.generic) else label for label in labels)
    try:
        known = of_values([label_of(value, f"item {row}") for row, value in enumerate(values)], type(dataset).__name__)
    except ValueError as error:
        raise DataError(f"images: {error}, in {type(dataset).__name__}; use -1 where it is unknown") from error
    names = _class_names(dataset)
    fits = not known.names and int(known.numbers.max()) < len(names)
    return torch.stack(images), known._replace(names=names) if fits else known


def _class_names(dataset: object) -> tuple[str, ...]:
    """Return the names of numbered classes, as datasets of torchvision and Hugging Face have them; empty without."""
    while isinstance(dataset, Subset):
        dataset = dataset.dataset
    features = getattr(dataset, "features", None)
    feature = features.get("label") if isinstance(features, Mapping) else None
    names = getattr(feature, "names", None) or getattr(dataset, "classes", None)
    return tuple(map(str, names)) if isinstance(names, list | tuple) and len(set(names)) == len(names) else ()


def _of_columns(item: Mapping[Any, Any], number: int) -> tuple[Any, Any]:
    """Return the only image among the values of an item, and its label, if there is a column of that name."""
    images = [
        key
        for key, value in item.items()
        if isinstance(value, Image.Image) or (isinstance(value, Tensor | np.ndarray) and value.ndim >= _FEWEST_AXES)
    ]
    if len(images) != 1:
        raise DataError(
            f"images: item {number} of the set needs one image, got {len(images)} among {', '.join(map(str, item))}; "
            "give a set of (image, label)"
        )
    return item[images[0]], item.get("label")


def _items(dataset: Dataset[Any]) -> Iterator[Any]:
    try:
        count = len(dataset)  # type: ignore[arg-type]
    except TypeError:
        if isinstance(dataset, Iterable):
            yield from dataset
            return
        raise DataError(f"images: a dataset needs a length, got {type(dataset).__name__} without one") from None
    for number in range(count):
        yield dataset[number]


def _pixels(image: object, number: int) -> Tensor:
    if isinstance(image, Image.Image):
        try:
            return torch.from_numpy(np.array(in_bytes(image, "L" if image.mode == "L" else "RGB")))
        except NoBytesError as error:
            raise DataError(f"images: pixels must be bytes (uint8), got {error}, at {number}; convert them") from error
    if isinstance(image, Tensor | np.ndarray):
        return _tensor(image)
    raise DataError(
        f"images: item {number} of the set is not an image, got {type(image).__name__}; a tensor, an array or a PIL "
        "image is, alone or as (image, label)"
    )

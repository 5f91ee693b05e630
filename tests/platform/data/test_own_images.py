"""Images that users give from Python: what is taken, what it becomes, and one sentence about everything else."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import Dataset, IterableDataset, Subset, TensorDataset

from ebclab.data.image_set import ImageSet
from ebclab.data.own_images import own_images
from ebclab.errors import DataError

RGB = torch.randint(256, (6, 3, 5, 4), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
GREY = RGB[:, :1]
LABELS = torch.tensor([0, 1, 2, 0, 1, 2])
GREY_3 = Image.new("L", (3, 3))


class Pictures(Dataset[Any]):
    """As torchvision's datasets without a transform: PIL images, alone or with plain labels."""

    def __init__(self, items: Iterable[Any]) -> None:
        self._items = list(items)

    def __len__(self) -> int:
        return len(self._items)

    def __getitem__(self, number: int) -> Any:
        return self._items[number]


def shown(images: Tensor) -> list[Image.Image]:
    return [Image.fromarray(each.permute(1, 2, 0).squeeze(2).numpy()) for each in images]


class Endless(IterableDataset[Any]):
    """A dataset without a length."""

    def __iter__(self) -> Iterator[Any]:
        return iter(zip(RGB, LABELS.tolist(), strict=True))


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (RGB, RGB),
        (RGB.numpy(), RGB),
        (RGB.permute(0, 2, 3, 1), RGB),
        (RGB.permute(0, 2, 3, 1).numpy(), RGB),
        (RGB.permute(0, 2, 3, 1).numpy()[:, ::-1], RGB.flip(2)),  # an array with negative strides
        (GREY[:, 0], GREY),
        (GREY[:, 0].numpy(), GREY),
        (GREY.permute(0, 2, 3, 1).numpy(), GREY),
    ],
)
def test_arrays_and_tensors_of_bytes_are_images_without_labels(given: Any, expected: Tensor) -> None:
    images = own_images(given)
    assert torch.equal(images.images, expected)
    assert images.labels.tolist() == [-1] * 6
    assert len(set(images.keys.tolist())) == 6
    pixels = expected.double() / 255
    assert images.mean == pytest.approx(pixels.mean(dim=(0, 2, 3)).tolist(), rel=1e-12)
    assert images.std == pytest.approx(pixels.std(dim=(0, 2, 3), unbiased=False).tolist(), rel=1e-9)


@pytest.mark.parametrize(
    ("dataset", "labels"),
    [
        (TensorDataset(RGB, LABELS), LABELS),
        (TensorDataset(RGB), None),
        (Pictures(zip(shown(RGB), LABELS.tolist(), strict=True)), LABELS),
        (Pictures(shown(RGB)), None),
        (Pictures(shown(GREY)), None),
        (Endless(), LABELS),
    ],
)
def test_datasets_of_torch_are_images_with_their_labels(dataset: Dataset[Any], labels: Tensor | None) -> None:
    images = own_images(dataset)
    assert torch.equal(images.images, GREY if images.images.shape[1] == 1 else RGB)
    assert images.labels.tolist() == ([-1] * 6 if labels is None else labels.tolist())
    assert images.name == type(dataset).__name__


class Rows:
    """A dataset with items as Hugging Face's have: columns by name."""

    features = ("id", "img", "label")

    def __init__(self, *others: str) -> None:
        self.others = others

    def __len__(self) -> int:
        return 6

    def __getitem__(self, number: int) -> dict[str, Any]:
        if number >= 6:
            raise IndexError(number)
        picture = shown(RGB)[number]
        columns = {"id": np.int64(number), "img": picture, "label": int(LABELS[number])}
        return columns | dict.fromkeys(self.others, picture)


def test_a_dataset_of_columns_gives_its_only_image_and_its_label() -> None:
    """Items of Hugging Face's datasets, which are dictionaries; alone, or in a set of torch."""
    for given in (Rows(), Pictures(list(map(Rows().__getitem__, range(6))))):
        images = own_images(given)
        assert torch.equal(images.images, RGB)
        assert images.labels.tolist() == LABELS.tolist()
    with pytest.raises(DataError, match="item 0 of the set needs one image, got 2 among id, img, label, mask; give"):
        own_images(Rows("mask"))


class Named(Pictures):
    """As torchvision's ImageFolder: numbers whose names are beside them."""

    classes = ("cat", "dog")


class Features(Pictures):
    """As Hugging Face's datasets."""

    features: ClassVar[dict[str, Any]] = {"label": SimpleNamespace(names=["cat", "dog"])}


def test_classes_of_given_datasets_have_names() -> None:
    """vision#2831, datasets#4987, ultralytics#13936: words, and numbers whose names are in the dataset."""
    pictures = shown(RGB)[:3]
    words, numbers = (list(zip(pictures, each, strict=True)) for each in (["dog", "cat", None], [1, 0, -1]))
    rows = [{"image": picture, "label": label} for picture, label in numbers]
    part = Subset(Named(numbers), [0, 1, 2])
    for given in (Pictures(words), Named(numbers), part, Features(rows), Named(words)):
        images = own_images(given)
        assert (images.class_names, images.labels.tolist()) == (("cat", "dog"), [1, 0, -1])
    assert own_images(Named([(pictures[0], 7)])).class_names == ()


def test_pictures_of_16_bits_and_transparent_ones_become_what_files_of_them_become() -> None:
    levels = Image.fromarray(np.array([[255, 256], [40_000, 65_535]], dtype=np.uint16))
    assert own_images(Pictures([levels])).images[0].tolist() == [[[0, 1], [156, 255]]] * 3
    clear = Image.new("RGBA", (2, 2), (10, 20, 30, 0))
    assert own_images(Pictures([clear])).images.unique().tolist() == [255]


def test_keys_follow_the_content_wherever_it_stands_and_equal_images_have_different_ones() -> None:
    keys = own_images(RGB).keys
    assert torch.equal(own_images(RGB.flip(0)).keys, keys.flip(0))
    assert torch.equal(own_images(RGB[2:]).keys, keys[2:])
    twice = own_images(torch.cat([RGB, RGB])).keys
    assert torch.equal(twice[:6], keys)
    assert len(set(twice.tolist())) == 12
    assert not set(own_images(RGB.transpose(2, 3)).keys.tolist()) & set(keys.tolist())


def _set(**changes: Any) -> ImageSet:
    return replace(ImageSet("mine", RGB, LABELS, torch.arange(6), (), (0.5,) * 3, (0.2,) * 3), **changes)


def test_an_image_set_is_taken_as_it_is() -> None:
    images = own_images(_set(labels=LABELS.int()))
    assert (images.name, images.keys.tolist(), images.labels.dtype) == ("mine", list(range(6)), torch.int64)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (RGB.float() / 255, r"must be bytes \(uint8\), got torch.float32 between 0 and 1; convert \(255 \* images\)"),
        (RGB.float() - 3, r"got torch.float32 between -3 and 252; convert images, scaled to lie between 0 and 255"),
        (RGB.numpy().astype(np.float64) / 255, r"got torch.float64 between 0 and 1; convert \(255 \* images\).round"),
        (RGB.numpy().astype(np.uint16), r"images: pixels must be bytes \(uint8\), got "),
        (RGB.int(), r"got torch.int32; convert them, 0 black and 255 white"),
        (RGB.numpy().astype(object), "got an array of object"),
        (_set(images=RGB.float()), r"must be bytes \(uint8\), got torch.float32"),
        (TensorDataset(RGB.float() / 255, LABELS), r"must be bytes \(uint8\), got torch.float32 between 0.*convert"),
        ("photos", "images: nothing that can be trained on, got str; give uint8 arrays or tensors"),
        (None, "nothing that can be trained on, got NoneType"),
        (RGB[0, 0], r"must be \(N, C, H, W\), \(N, H, W, C\) or \(N, H, W\), got \(5, 4\)"),
        (torch.zeros(2, 3, 8, 3, dtype=torch.uint8), r"which axis has the channels \(1 or 3\) may be either side"),
        (torch.zeros(2, 4, 8, 5, dtype=torch.uint8), r"which axis has the channels \(1 or 3\) is neither"),
        (RGB.numpy().astype(">u2"), "must be bytes .*, got an array of >u2; give"),
        (RGB[:0], "at least one is needed"),
        (TensorDataset(RGB[:0]), "at least one is needed, got an empty TensorDataset"),
        (_set(keys=torch.zeros(6, dtype=torch.int64)), r"images.keys: must differ, got 5 of 6 that another image has"),
        (_set(keys=torch.arange(5)), "images.keys: must be whole numbers, one for each of 6 images"),
        (_set(labels=LABELS.float()), "images.labels: must be whole numbers, one for each of 6 images, got"),
        (_set(images=RGB[:, 0]), r"images.images: must be a tensor \(n, C, H, W\)"),
        (_set(mean=(0.5,)), "images.mean, images.std: one number of each is needed for each of the 3 channels"),
        (_set(std=(0.2, float("nan"), 0.2)), r"one number of each is needed for .*, got .* and \(0.2, nan, 0.2\)"),
        (_set(name="../mine"), "images.name: not a name, got '../mine'"),
        (
            Pictures(zip(shown(RGB), [[1]] * 6, strict=True)),
            r"item 0 needs a whole number or a word for a label, not \[1\], in Pictures; use -1 where it is unknown",
        ),
        ([RGB[0]], "nothing that can be trained on, got list"),
        (Pictures([GREY_3, Image.new("L", (4, 3))]), r"be of one size, got \(3, 3\) and, at 1, \(3, 4\)"),
        (Pictures([GREY_3, Image.new("I", (3, 3), 40_000)]), "got pixels of mode I, .* 16 bits, at 1"),
        (Pictures([GREY_3, Image.new("F", (3, 3), 40_000)]), "got pixels of mode F, .* 16 bits, at 1"),
    ],
)
def test_everything_else_is_one_sentence(given: Any, said: str) -> None:
    with pytest.raises(DataError, match=said) as caught:
        own_images(given)
    assert "\n" not in str(caught.value)

"""Weights by name, shape and digest."""

import hashlib

import pytest
import torch

from ebclab.encoders.build import differences, digest_of

ONE = {"a": torch.zeros(2, 3), "b": torch.ones(4)}


@pytest.mark.parametrize(
    ("weights", "found"),
    [
        (ONE, []),
        ({"b": ONE["b"], "a": ONE["a"]}, []),
        ({"a": ONE["a"]}, ["no tensor b"]),
        ({**ONE, "c": ONE["b"]}, ["an unknown tensor c"]),
        (
            {"a": torch.zeros(3, 2), "c": ONE["b"]},
            ["a of shape (3, 2) instead of (2, 3)", "no tensor b", "an unknown tensor c"],
        ),
    ],
)
def test_every_difference_in_names_and_shapes_is_told(weights: dict[str, torch.Tensor], found: list[str]) -> None:
    assert differences(ONE, weights) == found


def test_the_digest_is_that_of_names_types_shapes_and_bytes_in_order_of_names() -> None:
    text = b"a torch.float32 (2, 3)\n" + bytes(24) + b"b torch.float32 (4,)\n" + b"\x00\x00\x80\x3f" * 4
    assert digest_of(ONE) == digest_of({"b": ONE["b"], "a": ONE["a"]}) == hashlib.sha256(text).hexdigest()


@pytest.mark.parametrize(
    "other",
    [
        {**ONE, "a": torch.tensor([[0.0, 0, 0], [0, 0, -0.0]])},
        {**ONE, "a": torch.zeros(3, 2)},
        {**ONE, "a": torch.zeros(2, 3, dtype=torch.int32)},
        {"A": ONE["a"], "b": ONE["b"]},
        {"a": ONE["a"]},
    ],
)
def test_other_weights_have_another_digest(other: dict[str, torch.Tensor]) -> None:
    assert digest_of(other) != digest_of(ONE)


@pytest.mark.parametrize(
    "tensor", [torch.tensor(7), torch.tensor([True]), torch.zeros(0), torch.ones(2, dtype=torch.bfloat16)]
)
def test_any_tensor_has_a_digest(tensor: torch.Tensor) -> None:
    assert len(digest_of({"t": tensor})) == 64
    assert digest_of({"t": torch.rand(3, 4).T}) != digest_of({"t": torch.rand(3, 4).T})


def test_the_digest_does_not_depend_on_how_memory_is_laid_out() -> None:
    images = torch.rand(2, 3, 4, 4)
    assert digest_of({"t": images}) == digest_of({"t": images.contiguous(memory_format=torch.channels_last)})

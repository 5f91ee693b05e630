"""A run of few photographs from scratch names pretrained weights, and no other run does."""

import shlex

import pytest

from ebclab.cli.pretrain import note_on_few
from ebclab.config import compose

from ..test_code_in_docs import parse


def note(num_images: int = 200, **other: object) -> str:
    settings = {"data.name": "folder:my photos", "views.recipe": "simclr-imagenet", "views.image_size": 160, **other}
    return note_on_few(
        compose("simclr", overrides=[f"{key}={value}" for key, value in settings.items()]), num_images, "r"
    )


def test_few_photographs_from_scratch_are_counted_and_both_remedies_are_command_lines() -> None:
    text = note()
    assert text.startswith("200 images are few to train a network from scratch")
    evaluate, options = text.split("`")[1::2]
    words = shlex.split(evaluate)
    assert words[:3] == ["ebclab", "evaluate", "r"]
    assert words[-1].endswith("/my photos")
    parse(words[1:], "evaluate")
    parse(["pretrain", "simclr", *shlex.split(options)], "pretrain")


@pytest.mark.parametrize(
    "other",
    [
        {"num_images": 10_000},
        {"views.image_size": 32},
        {"data.name": "cifar10"},
        {"encoder.name": "timm/resnet18", "init.weights": "timm/resnet18"},
    ],
)
def test_many_images_small_ones_a_catalogue_and_given_weights_have_no_such_note(other: dict[str, object]) -> None:
    assert note(**other) == ""  # type: ignore[arg-type]

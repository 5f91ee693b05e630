"""One bit an image: what is packed comes back, and what cannot be answers is refused."""

from __future__ import annotations

import base64
import json
from typing import Any

import numpy as np
import pytest
import torch

from ebclab.evaluation.answers import Answers, table_of
from ebclab.storage.typed_json import typed


@pytest.mark.parametrize("num_images", [1, 7, 8, 9, 141])
def test_what_is_packed_comes_back(num_images: int) -> None:
    draw = torch.Generator().manual_seed(num_images)
    right = torch.rand(3, num_images, generator=draw) < 0.8
    answers = [Answers.of(row[None], torch.arange(num_images)) for row in right]
    assert np.array_equal(table_of(answers), right.double().numpy())
    assert all(len(base64.b64decode(each.right[0])) == (num_images + 7) // 8 for each in answers)
    plain = json.loads(json.dumps(answers[0].to_mapping()))
    assert typed(plain, Answers) == answers[0]


def test_a_probe_that_was_trained_several_times_is_right_as_often_as_it_was() -> None:
    right = torch.tensor([[True, False, True], [True, False, False]])
    answers = Answers.of(right, torch.arange(3))
    assert table_of([answers]).tolist() == [[1.0, 0.0, 0.5]]


def test_answers_about_other_images_or_in_another_order_have_another_hash() -> None:
    right, keys = torch.ones(1, 4, dtype=torch.bool), torch.tensor([5, 6, 7, 8])
    assert Answers.of(right, keys).images == Answers.of(~right, keys.clone()).images
    assert Answers.of(right, keys).images != Answers.of(right, keys.flip(0)).images
    assert Answers.of(right, keys).images != Answers.of(right[:, :3], keys[:3]).images


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"right": ["AA=="]}, "answers about 9 images in 1 bytes"),
        ({"right": ["no base64!"]}, "no base64"),
        ({"right": []}, "9 images, 0 times"),
        ({"num_images": 0}, "0 images"),
        ({"num_images": "many"}, "num_images"),
    ],
)
def test_what_cannot_be_answers_is_refused(changes: dict[str, Any], said: str) -> None:
    plain = Answers.of(torch.ones(1, 9, dtype=torch.bool), torch.arange(9)).to_mapping()
    with pytest.raises(ValueError, match=said):
        typed(plain | changes, Answers)

"""Answers, one bit an image, come back as packed; intervals of accuracies are those of scipy."""

import base64
import json
import math
from typing import Any

import numpy as np
import pytest
import torch
from scipy.optimize import brentq
from scipy.stats import binomtest

from ebclab.evaluation.answers import Answers, mean_and_std, score_of, table_of, wilson_interval
from ebclab.storage.reading import typed


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


Z = 1.959963984540054  # 97.5 % point of the standard normal


@pytest.mark.parametrize(("right", "total"), [(0, 1), (1, 1), (9, 10), (360, 360), (8_123, 10_000)])
@pytest.mark.parametrize("confidence", [0.5, 0.95, 0.999])
def test_equal_to_scipy(right: int, total: int, confidence: float) -> None:
    expected = binomtest(right, total).proportion_ci(confidence, method="wilson")
    assert wilson_interval(right / total, total, confidence) == pytest.approx((expected.low, expected.high), abs=1e-12)


def test_the_ends_are_where_the_score_test_is_just_accepted_inside_zero_and_one():
    accuracy, total = 0.7345, 360  # a mean over seeds need not be a whole number of images

    def excess(p: float) -> float:
        return abs(accuracy - p) - Z * math.sqrt(p * (1 - p) / total)

    expected = (brentq(excess, 1e-9, accuracy, xtol=1e-14), brentq(excess, accuracy, 1 - 1e-9, xtol=1e-14))
    assert wilson_interval(accuracy, total) == pytest.approx(expected, abs=1e-12)
    for total in range(1, 200):
        assert 0.0 <= wilson_interval(0.0, total)[0] < 1e-12
        assert 1.0 >= wilson_interval(1.0, total)[1] > 1 - 1e-12


def test_spread_over_seeds_has_n_minus_one_in_the_divisor() -> None:
    assert mean_and_std([0.5, 0.7, 0.9]) == pytest.approx((0.7, 0.2))  # (0.04 + 0 + 0.04) / 2 = 0.2^2
    assert mean_and_std([0.25]) == (0.25, None)


def test_a_score_holds_what_it_was_made_from() -> None:
    right, keys = torch.arange(100)[None] < torch.tensor([[80], [90]]), torch.arange(100)
    score = score_of("linear", right, keys, detail="how", seeds=(4, 5))
    assert (score.value, score.std) == pytest.approx((0.85, math.sqrt(0.005)))
    assert (score.low, score.high) == wilson_interval(score.value, 100)
    assert (score.per_seed, score.seeds, score.num_images) == ((0.8, 0.9), (4, 5), 100)
    exact = score_of("knn", right[:1], keys, detail="how")
    assert (exact.seeds, exact.per_seed, exact.std) == ((), (), None)

"""What methods without negatives share."""

import math

import pytest
import torch

from energy_contrast.predictive.prediction import measure_pairs, predict_across
from energy_contrast.predictive.simsiam import Simsiam

from ..conftest import built

SIZE = 8


def test_targets_are_held_still() -> None:
    prediction, target = torch.randn(2, 2, SIZE, 5, dtype=torch.float64).requires_grad_()
    predict_across(prediction, target).backward()
    views = torch.randn(2, 2, SIZE, 5, dtype=torch.float64)
    one, other = (tensor.clone().requires_grad_() for tensor in views)
    predict_across(one, other).backward()
    assert other.grad is None
    assert (one.grad.abs().sum(dim=2) > 0).all()


def test_a_collapse_shows_in_what_is_read() -> None:
    method = built(Simsiam).float()
    same = measure_pairs(method, torch.ones(2, SIZE, 5))
    assert same["info_nce"].item() == pytest.approx(math.log(2 * SIZE - 1))
    assert same["embedding_spread"].item() == pytest.approx(0, abs=1e-6)
    assert same["log_k_saturation"].item() == pytest.approx(0, abs=1e-6)

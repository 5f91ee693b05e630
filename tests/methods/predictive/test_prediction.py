"""What methods without negatives share."""

from __future__ import annotations

import math

import pytest
import torch

from energy_contrast.losses import nt_xent
from energy_contrast.method import Method
from energy_contrast.networks import build_encoder
from energy_contrast.predictive.byol import Byol, ByolConfig
from energy_contrast.predictive.prediction import measure_pairs, predict_across
from energy_contrast.predictive.simsiam import Simsiam, SimsiamConfig

from .test_byol import SIZE, make_batch


def test_targets_are_held_still() -> None:
    prediction, target = torch.randn(2, 2, SIZE, 5, dtype=torch.float64).requires_grad_()
    predict_across(prediction, target).backward()
    views = torch.randn(2, 2, SIZE, 5, dtype=torch.float64)
    one, other = (tensor.clone().requires_grad_() for tensor in views)
    predict_across(one, other).backward()
    assert other.grad is None
    assert (one.grad.abs().sum(dim=2) > 0).all()


def test_a_collapse_shows_in_what_is_read() -> None:
    method = Simsiam(SimsiamConfig(), build_encoder("small", in_channels=1, width=4))
    same = measure_pairs(method, torch.ones(2, SIZE, 5))
    assert same["info_nce"].item() == pytest.approx(math.log(2 * SIZE - 1))
    assert same["embedding_spread"].item() == pytest.approx(0, abs=1e-6)
    assert same["log_k_saturation"].item() == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize(("method", "config"), [(Simsiam, SimsiamConfig), (Byol, ByolConfig)])
def test_info_nce_is_simclrs_of_the_projections_and_costly_metrics_come_only_while_diagnosing(
    method: type[Method], config: type
) -> None:
    torch.manual_seed(0)
    built, batch = method(config(), build_encoder("small", in_channels=1, width=4)).double(), make_batch()
    z = [built.head(built.encoder(views)) for views in batch.views]
    metrics = built(batch, torch.Generator()).metrics
    torch.testing.assert_close(metrics["info_nce"], nt_xent(*z, temperature=0.2).detach())
    assert "effective_rank" in metrics
    built.diagnosing = False
    assert set(built(batch, torch.Generator()).metrics) == {"info_nce", "prediction_similarity"}

"""SimSiam against the paper's algorithm, written out with torch's own layers."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from energy_contrast.method import Batch
from energy_contrast.predictive.simsiam import Simsiam

from ..conftest import built, copy_weights, small_encoder, train_beside


def plain_networks(*, affine: bool) -> tuple[nn.Module, nn.Module]:
    """The paper's f (encoder and projection of three layers) and h, with the released code's layers."""
    f = nn.Sequential(
        small_encoder(),
        *(nn.Linear(16, 12, bias=False), nn.BatchNorm1d(12), nn.ReLU()),
        *(nn.Linear(12, 12, bias=False), nn.BatchNorm1d(12), nn.ReLU()),
        *(nn.Linear(12, 12, bias=False), nn.BatchNorm1d(12, affine=affine)),
    )
    h = nn.Sequential(nn.Linear(12, 5, bias=False), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 12))
    return f.double(), h.double()


@pytest.mark.parametrize("scaled", [False, True])  # the authors' code, and EBCLR's baseline
def test_four_steps_are_the_papers_algorithm(scaled: bool) -> None:
    method = built(Simsiam, projection_size=12, prediction_hidden_size=5, projection_scale=scaled)
    f, h = plain_networks(affine=scaled)
    theirs = nn.ModuleList((f, h))
    copy_weights(method, theirs)

    def loss_of(batch: Batch) -> Tensor:
        z1, z2 = (f(view) for view in batch.views)
        return sum(-F.cosine_similarity(h(z), other.detach()).mean() / 2 for z, other in ((z1, z2), (z2, z1)))

    for output in train_beside(method, loss_of, theirs, 4, 8):
        torch.testing.assert_close(output.metrics["prediction_similarity"], -output.loss.detach())
    torch.testing.assert_close(method.encoder.state_dict(), f[0].state_dict(), rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize(("rate", "kept"), [("scheduled", set()), ("constant", {"predictor"})])
def test_only_the_predictors_rate_may_be_constant(rate: str, kept: set[str]) -> None:
    method = built(Simsiam, projection_size=12, prediction_hidden_size=5, prediction_rate=rate)
    constant = {id(weight) for weight in method.at_constant_rate()}
    assert {name.split(".")[0] for name, weight in method.named_parameters() if id(weight) in constant} == kept
    assert len(constant) == (len(list(method.predictor.parameters())) if kept else 0)

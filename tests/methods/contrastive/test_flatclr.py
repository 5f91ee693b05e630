"""FlatCLR: SimCLR's pairs under another loss, and a temperature that can follow a target."""

import pytest
import torch

from energy_contrast.contrastive.dcl import Dcl
from energy_contrast.contrastive.flatclr import Flatclr, FlatclrConfig
from energy_contrast.contrastive.simclr import Simclr, SimclrConfig
from energy_contrast.method import Method

from ..conftest import built, gradients, random_batch, train_on_two_clusters


def build(method: type[Method] = Flatclr, **settings: object) -> Method:
    return built(method, **settings)


@pytest.mark.parametrize(
    ("settings", "other", "factor"),
    [
        ({"temperature": 0.3}, (Dcl, {"temperature": 0.3}), 1),
        ({"temperature": 0.3, "include_positive": True}, (Simclr, {"temperature": 0.3}), 1),
        ({"temperature": 0.6, "hoelder_exponent": 2.0}, (Flatclr, {"temperature": 0.3}), 2),
    ],
    ids=["dcl", "with the positive, simclr", "a Hoelder exponent is a temperature and a factor"],
)
def test_its_loss_is_one_and_its_gradient_that_of_another(settings, other, factor):
    method, twin = build(**settings), build(other[0], **other[1])
    loss, expected = (each(random_batch(8), torch.Generator()).loss for each in (method, twin))
    assert loss.item() == 1.0
    found = [factor * gradient for gradient in gradients(loss, method)]
    torch.testing.assert_close(found, gradients(expected, twin), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("rule", ["corrected", "printed"])
def test_controlled_metrics_come_with_every_step_and_follow_the_rule(rule: str) -> None:
    method = build(ess_target=0.3, temperature=0.5, ess_rule=rule)
    method.diagnosing = False
    metrics = train_on_two_clusters(method, 2)
    assert set(metrics[0]) == {"info_nce", "temperature", "ess", "ess_target"}
    assert metrics[0]["temperature"] == pytest.approx(0.5)
    factor = 1.01 if (metrics[0]["ess"] > 0.3) == (rule == "corrected") else 0.99
    assert metrics[1]["temperature"] == pytest.approx(0.5 / factor, rel=1e-6)


def test_the_target_moves_to_its_end_and_a_checkpoint_has_it():
    method, other = (build(ess_target=0.4, ess_target_end=0.2) for _ in range(2))
    history = train_on_two_clusters(method, 4)
    assert [m["ess_target"] for m in history] == pytest.approx([0.4, 0.35, 0.3, 0.25])
    other.load_state_dict(method.state_dict())
    assert other.temperature.item() == method.temperature.item() != 0.2
    assert other.controller.target.item() == pytest.approx(0.2)


def test_flatclr_starts_from_simclrs_defaults():
    simclr, flatclr = SimclrConfig(), FlatclrConfig()
    assert all(getattr(flatclr, name) == value for name, value in vars(simclr).items() if name != "objective")

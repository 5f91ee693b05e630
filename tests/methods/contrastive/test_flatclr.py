"""FlatCLR: SimCLR's pairs under another loss, and a temperature that can follow a target."""

import pytest
import torch

from energy_contrast.contrastive.flatclr import Flatclr, FlatclrConfig
from energy_contrast.contrastive.simclr import Simclr, SimclrConfig
from energy_contrast.losses import pair_similarities
from energy_contrast.method import Method

from ..conftest import built, gradients, random_batch, train_on_two_clusters


def build(method: type[Method] = Flatclr, **settings: object) -> Method:
    return built(method, **settings)


def test_the_gradient_is_that_of_the_decoupled_contrastive_loss() -> None:
    method, batch = build(temperature=0.3), random_batch(8)
    projection = method.head(method.encoder(batch.views.flatten(0, 1)))
    positive, negatives = pair_similarities(*projection.chunk(2))
    decoupled = (torch.logsumexp(negatives / 0.3, dim=1) - positive / 0.3).mean()
    loss = method(batch, torch.Generator()).loss
    assert loss.item() == 1.0
    torch.testing.assert_close(gradients(loss, method), gradients(decoupled, method))


def test_with_the_positive_a_step_is_simclrs_step() -> None:
    flatclr, simclr = build(include_positive=True), build(Simclr)
    batch = random_batch(8)
    found, expected = (gradients(method(batch, torch.Generator()).loss, method) for method in (flatclr, simclr))
    torch.testing.assert_close(found, expected)


def test_a_hoelder_exponent_is_a_temperature_and_a_factor_of_the_gradient() -> None:
    hoelder, plain = build(temperature=0.6, hoelder_exponent=2.0), build(temperature=0.3)
    batch = random_batch(8)
    found, expected = (gradients(method(batch, torch.Generator()).loss, method) for method in (hoelder, plain))
    torch.testing.assert_close([2 * gradient for gradient in found], expected)


def test_the_printed_rule_drives_the_ess_to_the_far_end() -> None:
    history = train_on_two_clusters(build(temperature=0.02, ess_target=0.4, ess_gain=0.1, ess_rule="printed"), 40)
    assert history[0]["ess"] < 0.3
    assert history[-1]["ess"] < 0.1
    assert history[-1]["temperature"] < history[0]["temperature"] / 10


def test_the_target_moves_to_its_end_and_a_checkpoint_has_it():
    method, other = (build(ess_target=0.4, ess_target_end=0.2) for _ in range(2))
    history = train_on_two_clusters(method, 4)
    assert [m["ess_target"] for m in history] == pytest.approx([0.4, 0.35, 0.3, 0.25])
    other.load_state_dict(method.state_dict())
    assert other.temperature.item() == method.temperature.item() != 0.2
    assert other.controller.target.item() == pytest.approx(0.2)


def test_controlled_metrics_come_with_every_step() -> None:
    method = build(ess_target=0.3, temperature=0.5)
    method.diagnosing = False
    metrics = train_on_two_clusters(method, 2)
    assert set(metrics[0]) == {"info_nce", "temperature", "ess", "ess_target"}
    assert metrics[0]["temperature"] == pytest.approx(0.5)
    assert metrics[1]["temperature"] == pytest.approx(0.5 / (1.01 if metrics[0]["ess"] > 0.3 else 0.99), rel=1e-6)


def test_flatclr_starts_from_simclrs_defaults():
    simclr, flatclr = SimclrConfig(), FlatclrConfig()
    assert all(getattr(flatclr, name) == value for name, value in vars(simclr).items() if name != "objective")

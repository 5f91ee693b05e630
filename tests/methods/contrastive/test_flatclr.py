"""FlatCLR: SimCLR's pairs under another loss, and a temperature that can follow a target."""

import pytest
import torch
from torch import Tensor

from energy_contrast.contrastive.flatclr import Flatclr, FlatclrConfig
from energy_contrast.contrastive.simclr import Simclr, SimclrConfig
from energy_contrast.losses import info_nce, pair_similarities
from energy_contrast.method import Method
from energy_contrast.networks import build_encoder

from ..conftest import random_batch, train_on_two_clusters


def build(method: type[Method] = Flatclr, **settings: object) -> Method:
    torch.manual_seed(0)
    return method(method.Config(**settings), build_encoder("small", in_channels=1, width=4))


def gradients(method: Method, loss: Tensor) -> list[Tensor]:
    return list(torch.autograd.grad(loss, list(method.parameters())))


def test_the_value_is_one_and_info_nce_is_readable() -> None:
    method, batch = build(temperature=0.3), random_batch(8, dtype=torch.float32)
    output = method(batch, torch.Generator())
    projection = method.head(method.encoder(batch.views.flatten(0, 1)))
    expected = info_nce(*pair_similarities(*projection.chunk(2)), temperature=0.3)
    assert output.loss.item() == 1.0
    torch.testing.assert_close(output.metrics["info_nce"], expected.detach())


def test_the_gradient_is_that_of_the_decoupled_contrastive_loss() -> None:
    method, batch = build(temperature=0.3), random_batch(8, dtype=torch.float32)
    projection = method.head(method.encoder(batch.views.flatten(0, 1)))
    positive, negatives = pair_similarities(*projection.chunk(2))
    decoupled = (torch.logsumexp(negatives / 0.3, dim=1) - positive / 0.3).mean()
    expected = gradients(method, decoupled)
    torch.testing.assert_close(gradients(method, method(batch, torch.Generator()).loss), expected, rtol=1e-4, atol=1e-6)


def test_with_the_positive_a_step_is_simclrs_step() -> None:
    flatclr, simclr = build(include_positive=True), build(Simclr)
    batch = random_batch(8, dtype=torch.float32)
    torch.testing.assert_close(
        gradients(flatclr, flatclr(batch, torch.Generator()).loss),
        gradients(simclr, simclr(batch, torch.Generator()).loss),
        rtol=1e-4,
        atol=1e-6,
    )


def test_a_hoelder_exponent_is_a_temperature_and_a_factor_of_the_gradient() -> None:
    hoelder, plain = build(temperature=0.6, hoelder_exponent=2.0), build(temperature=0.3)
    batch = random_batch(8, dtype=torch.float32)
    found, expected = (gradients(method, method(batch, torch.Generator()).loss) for method in (hoelder, plain))
    torch.testing.assert_close([2 * gradient for gradient in found], expected, rtol=1e-4, atol=1e-6)
    assert [FlatclrConfig(hoelder_exponent=gamma).problems() for gamma in (2.0, 0.0, -1.0)] == [[]] * 3
    (problem,) = FlatclrConfig(hoelder_exponent=2.0, ess_target=0.3).problems()
    assert problem.startswith("hoelder_exponent: is a factor of the temperature, which ess_target moves already, got 2")


def test_the_temperature_follows_a_target_while_the_network_learns() -> None:
    """From above; from both sides, where the network stands still, in test_controlled_methods.py."""
    history = train_on_two_clusters(build(temperature=1.0, ess_target=0.4, ess_gain=0.05), 90)
    assert abs(history[0]["ess"] - 0.4) > 0.15
    assert sum(m["ess"] for m in history[-20:]) / 20 == pytest.approx(0.4, abs=0.05)


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
    assert flatclr.problems() == FlatclrConfig(ess_rule="printed", ess_target=0.3).problems() == []
    (problem,) = FlatclrConfig(ess_rule="printed").problems()
    assert problem == "ess_rule: has no effect without a target, got printed; set ess_target too"

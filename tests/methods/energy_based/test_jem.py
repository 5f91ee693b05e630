"""JEM: its gradient is that of log p(x, y) where chains are exact samples; chains, variants and limits."""

import copy
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from energy_contrast.chains.chains import Chains
from energy_contrast.energy_based import jem
from energy_contrast.energy_based.jem import Jem, JemConfig
from energy_contrast.method import Batch, PixelRange, Progress
from energy_contrast.samplers import Staged
from energy_contrast.supervised.supervised import Supervised

from ..conftest import built, draw, gradients, small_encoder

SIZE, NUM_CLASSES = 6, 3
LABELS = torch.tensor([0, 2, 0, 1, 2, 2])


def build(encoder: nn.Module | None = None, **settings: Any) -> Jem:
    encoder = encoder or small_encoder(batch_norm="none")
    method = built(Jem, encoder, NUM_CLASSES, **{"num_steps": 3, "buffer_size": 20, **settings})
    method.pixel_range = PixelRange((-1.0,), (1.0,))
    method.start(draw)
    return method


def make_batch(method: Jem) -> Batch:
    views = draw(method.num_views * SIZE, torch.Generator().manual_seed(1)).unflatten(0, (method.num_views, SIZE))
    return Batch(views, LABELS, torch.arange(SIZE), views.new_empty(0, 1, 8, 8))


class Table(nn.Module):
    """Images of one pixel that names a state; the embedding is that state, one-hot, flat in the pixel."""

    embedding_size = 4

    def forward(self, images: Tensor) -> Tensor:
        state = images.flatten()
        return F.one_hot(state.detach().round().long(), 4).to(images.dtype) + 0 * state[:, None]


def test_with_exact_samples_the_gradient_is_that_of_the_joint_likelihood(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four images of which p(x) is 1/10, 2/10, 3/10 and 4/10: ten chains, as many of each, are an exact sample.

    The logits are set so that sum_y exp(f_y(x)) is 5, 10, 15 and 20; Z is their sum, taken by autograd.
    """
    method = build(Table(), noise_std=0.0, input_noise=0.0, num_steps=2)
    times = torch.arange(1.0, 5.0, dtype=torch.float64)
    shares = torch.tensor([[0.2, 0.5, 0.3], [0.1, 0.1, 0.8], [0.6, 0.2, 0.2], [0.3, 0.4, 0.3]], dtype=torch.float64)
    with torch.no_grad():
        method.classifier.weight.copy_((5 * times[:, None] * shares).log().T - 1)
        method.classifier.bias.fill_(1)
    samples = torch.arange(4.0, dtype=torch.float64).repeat_interleave(times.long()).view(10, 1, 1, 1)
    chains = Chains(torch.arange(10), torch.ones(10, dtype=torch.int32), samples, torch.zeros(10, dtype=torch.bool))
    monkeypatch.setattr(jem, "start_chains", lambda *_, **__: chains)
    images, labels = torch.tensor([0.0, 3.0, 3.0, 1.0, 2.0]).double(), torch.tensor([1, 0, 0, 2, 1])
    batch = Batch(images.view(1, 5, 1, 1, 1), labels, torch.arange(5), torch.empty(0))

    found = gradients(method(batch, torch.Generator()).loss, method)
    joint = (method.classifier.weight.T + method.classifier.bias).exp()  # (states, classes), Z p(x, y)
    torch.testing.assert_close(joint.sum(1) / joint.sum(), times / 10)
    expected = -(joint[images.long(), labels] / joint.sum()).log().mean()
    torch.testing.assert_close(found, gradients(expected, method), rtol=1e-10, atol=1e-12)


def test_without_the_generative_term_it_is_supervised_learning() -> None:
    method = build(generative_weight=0.0, input_noise=0.0)
    twin = built(Supervised, copy.deepcopy(method.encoder), NUM_CLASSES)
    twin.classifier.load_state_dict(method.classifier.state_dict())
    batch = make_batch(method)
    output, expected = method(batch, torch.Generator()), twin(batch, torch.Generator())
    torch.testing.assert_close(output.loss, expected.loss, rtol=1e-12, atol=0)
    torch.testing.assert_close(gradients(output.loss, method), gradients(expected.loss, twin))


def test_chains_move_by_the_printed_step() -> None:
    """The chains of a step are followed by hand from the images of the buffer: x - alpha dE/dx + sigma n, unclamped."""
    method = build(step_size=0.7, noise_std=0.2, input_noise=0.0, reinit_rate=0.0, gradient_clamp=1e-6)
    before, batch = method.buffer.pixels.clone(), make_batch(method)
    generator = torch.Generator().manual_seed(9)
    method(batch, torch.Generator().manual_seed(9))
    method.after_step(Progress(1, 1, 0))

    torch.randn(SIZE, 1, 8, 8, generator=generator, dtype=torch.float64)  # of the input
    rows = torch.randint(20, (SIZE,), generator=generator)
    x = before[rows]
    for _ in range(3):
        x.requires_grad_()
        energy = -sum(torch.log(torch.exp(f).sum()) for f in method.classifier(method.encoder(x)))
        (slope,) = torch.autograd.grad(energy, x)
        x = (x - 0.7 * slope + 0.2 * torch.randn(x.shape, generator=generator, dtype=torch.float64)).detach()
    last = {int(row): image for row, image in zip(rows, x, strict=True)}  # of a row drawn twice, the last
    for row in range(20):
        expected = last.get(row, before[row])
        torch.testing.assert_close(method.buffer.pixels[row], expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("variant", ["plain", "sada"])
def test_the_noise_of_the_input_is_what_both_terms_see_and_each_view_has_its_own(variant: str) -> None:
    quiet, noisy = (build(variant=variant, reinit_rate=0.0, input_noise=noise) for noise in (0.0, 0.5))
    batch, generator = make_batch(quiet), torch.Generator().manual_seed(4)
    noise = torch.stack([torch.randn(SIZE, 1, 8, 8, generator=generator, dtype=torch.float64) for _ in batch.views])
    shifted = replace(batch, views=batch.views + 0.5 * noise)
    outputs = [m(b, torch.Generator().manual_seed(4)) for m, b in ((quiet, shifted), (noisy, batch))]
    torch.testing.assert_close(outputs[0], outputs[1], rtol=1e-12, atol=0)


def test_each_chain_starts_anew_by_itself_with_the_rate_and_is_uniform() -> None:
    method = build(reinit_rate=0.25, step_size=1e-30, noise_std=0.0, buffer_size=50, num_steps=1)
    method.buffer.pixels.fill_(7.0)
    generator = torch.Generator().manual_seed(3)
    fresh = []
    for _ in range(40):
        method(make_batch(method), generator)
        ends = method._moved.position
        fresh.append((ends != 7.0).flatten(1).all(1))
        assert ((ends.abs() <= 1) | (ends == 7.0)).all()
    share = torch.stack(fresh).double()
    assert share.mean().item() == pytest.approx(0.25, abs=4 * (0.25 * 0.75 / share.numel()) ** 0.5)
    assert len(share.sum(1).unique()) > 2  # not as many in every step


@pytest.mark.parametrize("variant", ["plusplus", "sada"])
def test_the_gradients_of_plusplus_and_of_sada_are_clamped(variant: str) -> None:
    clamped = build(variant=variant, step_size=0.5, gradient_clamp=1e-6, noise_std=0.0)
    before = clamped.buffer.pixels.clone()
    sampler = clamped.new_sampler()
    state, _ = sampler.step(sampler.init(before), Staged(torch.zeros(20), None), torch.zeros_like(before))
    assert (state.position - before).abs().max().item() == pytest.approx(0.5e-6, rel=1e-6)


def slow_sample(images: Tensor, noise: Tensor) -> Tensor:
    """mu + n^-1/2 sum_i epsilon_i (x_i - mu) of n images, one after the other."""
    mean = sum(image for image in images) / len(images)
    return mean + sum(e * (image - mean) for e, image in zip(noise, images, strict=True)) / len(images) ** 0.5


@pytest.mark.parametrize("variant", ["plain", "sada"])
def test_metrics_are_those_of_the_present_weights_and_the_gap_is_chains_minus_data(variant: str) -> None:
    method = build(variant=variant, sharpness_radius=0.3, input_noise=0.0)
    batch = make_batch(method)
    metrics = method(batch, torch.Generator().manual_seed(5)).metrics
    with torch.no_grad():
        logits, likely, sampled = (
            method.classify(images) for images in (batch.views[0], batch.views[-1], method._moved.position)
        )
    data, chains = (-sum(torch.log(torch.exp(f).sum()).item() for f in rows) / SIZE for rows in (likely, sampled))
    shares = [torch.exp(f[y]) / torch.exp(f).sum() for f, y in zip(logits, LABELS, strict=True)]
    assert metrics["cross_entropy"].item() == pytest.approx(-sum(torch.log(share).item() for share in shares) / SIZE)
    assert metrics["energy_data"].item() == pytest.approx(data)
    assert metrics["energy_chains"].item() == pytest.approx(chains)
    assert abs(chains - data) > 1e-3
    assert metrics["energy_gap"].item() == pytest.approx(chains - data)


@pytest.mark.parametrize("variant", ["plusplus", "sada"])
def test_a_new_chain_starts_from_a_sample_of_a_drawn_class_and_for_sada_of_second_views(variant: str) -> None:
    still = {"step_size": 1e-30, "noise_std": 0.0, "input_noise": 0.0, "num_steps": 1}
    method = build(variant=variant, reinit_rate=1.0, **still)
    batch = make_batch(method)
    method(batch, torch.Generator().manual_seed(6))

    generator, images = torch.Generator().manual_seed(6), batch.views[1 if variant == "sada" else 0]
    for view in batch.views:
        torch.randn(view.shape, generator=generator, dtype=torch.float64)  # of the input
    picked = torch.randint(SIZE, (SIZE,), generator=generator)
    noise = torch.randn(SIZE, SIZE, generator=generator).double()
    assert len(LABELS[picked].unique()) > 1
    for end, place, row in zip(method._moved.position, picked, noise, strict=True):
        own = LABELS[place] == LABELS
        torch.testing.assert_close(end, slow_sample(images[own], row[own]))


def test_the_buffer_begins_with_samples_of_one_gaussian_of_views_but_with_uniform_pixels_for_plain() -> None:
    method = build(variant="plusplus")
    generator = torch.Generator().manual_seed(method._fill_seed)
    images, noise = draw(20, generator), torch.randn(20, 20, generator=generator).double()
    for image, row in zip(method.buffer.pixels, noise, strict=True):
        torch.testing.assert_close(image, slow_sample(images, row))
    pixels = build().buffer.pixels  # of a uniform distribution on [-1, 1]: bounds, and a variance of 1/3
    assert pixels.abs().max() <= 1
    assert pixels.square().mean().item() == pytest.approx(1 / 3, abs=4 * (4 / 45 / pixels.numel()) ** 0.5)


def test_the_callers_autocast_changes_no_bit_of_the_buffer() -> None:
    """Chains have a precision of their own: from where they begin anew to where they end."""
    ends = []
    for dtype in (None, torch.bfloat16, torch.float16):
        method = build(variant="plusplus", reinit_rate=0.5).float()
        method.buffer.pixels = method.buffer.pixels.float()
        batch = make_batch(method)
        batch = replace(batch, views=batch.views.float(), proposals=batch.proposals.float())
        with torch.autocast("cpu", dtype=dtype or torch.bfloat16, enabled=dtype is not None):
            method(batch, torch.Generator().manual_seed(2))
        method.after_step(Progress(1, 1, 0))
        ends.append(method.buffer.pixels)
    assert torch.equal(ends[1], ends[0])
    assert torch.equal(ends[2], ends[0])


def test_sada_s_first_gradient_under_float16_is_float32_s(monkeypatch: pytest.MonkeyPatch) -> None:
    """No loss scale lifts it: of a loss a million times smaller, as of a sure classifier, float16 would lose it."""
    joint_loss = Jem._joint_loss

    def small_loss(method: Jem, *arguments: Any) -> tuple[Tensor, dict[str, Tensor]]:
        loss, metrics = joint_loss(method, *arguments)
        return loss * 1e-6, metrics

    monkeypatch.setattr(Jem, "_joint_loss", small_loss)
    led: list[dict[str, Tensor]] = []
    uphill = Jem._uphill
    monkeypatch.setattr(Jem, "_uphill", lambda method, loss: led.append(uphill(method, loss)) or led[-1])
    for enabled in (False, True):
        method = build(variant="sada", sharpness_radius=0.3).float()
        method.buffer.pixels = method.buffer.pixels.float()
        batch = make_batch(method)
        batch = replace(batch, views=batch.views.float(), proposals=batch.proposals.float())
        with torch.autocast("cpu", dtype=torch.float16, enabled=enabled):
            output = method(batch, torch.Generator().manual_seed(2))
    for name, weight in led[0].items():
        assert torch.equal(led[1][name], weight)
    assert output.loss.dtype == torch.float32


def test_sada_takes_its_gradient_where_the_first_one_leads() -> None:
    """The slow way: a copy of the network is moved by rho along the gradient, and its gradient is taken there."""
    method = build(variant="sada", sharpness_radius=0.3, input_noise=0.0, noise_std=0.0, generative_weight=0.4)
    batch = make_batch(method)
    output = method(batch, torch.Generator().manual_seed(5))
    chains = method._moved.position

    def loss_of(network: Jem) -> Tensor:
        logits = network.classify(batch.views[0])
        likely, sampled = (torch.logsumexp(network.classify(x), 1).mean() for x in (batch.views[1], chains))
        return F.cross_entropy(logits, LABELS) + 0.4 * (sampled - likely)

    slope = gradients(loss_of(method), method)
    length = sum(part.square().sum() for part in slope).sqrt()
    moved = copy.deepcopy(method)
    with torch.no_grad():
        for weight, part in zip(moved.parameters(), slope, strict=True):
            weight.add_(0.3 * part / length)
    torch.testing.assert_close(output.loss, loss_of(moved), rtol=1e-10, atol=0)
    torch.testing.assert_close(gradients(output.loss, method), gradients(loss_of(moved), moved), rtol=1e-8, atol=1e-12)
    still = build(variant="sada", sharpness_radius=0.0, input_noise=0.0, noise_std=0.0, generative_weight=0.4)
    output = still(batch, torch.Generator().manual_seed(5))
    torch.testing.assert_close(gradients(output.loss, still), slope, rtol=1e-10, atol=1e-12)


def test_a_buffer_below_the_batch_is_refused() -> None:
    with pytest.raises(ValueError, match="buffer_size: must hold the global batch of 21 images, got 20; use at least"):
        Jem.requirements(JemConfig(buffer_size=20), 21)

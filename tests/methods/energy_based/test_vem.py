"""VEM against its algorithm written out: what moves, what is constant, where gradients go."""

import copy
import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from energy_contrast.catalog import METHODS
from energy_contrast.energy_based.vem import Vem
from energy_contrast.method import Batch, PixelRange, Progress, StepOutput

from ..conftest import built, draw, random_batch, small_encoder

BANKS = ["vem-langevin", "vem-svgd"]
KEYS = [*BANKS, "vem-image"]
SIZE = 8


def build(name: str, *, batch_norm: str = "global", **settings: Any) -> Any:
    small = {"bank_size": 20, "num_steps": 3, "projection_size": 16}
    method = built(METHODS[name], small_encoder(batch_norm=batch_norm), **{**small, **settings})
    method.pixel_range = PixelRange((-2.0,), (2.0,))
    method.start(draw)
    return method


def make_batch(step: int, size: int = SIZE) -> Batch:
    return random_batch(size, 100 + step)


def forward(method: Vem, step: int = 0, seed: int = 0) -> StepOutput:
    return method(make_batch(step), torch.Generator().manual_seed(seed))


def directions(network: nn.Module, images: Tensor) -> Tensor:
    projection = network(images)
    return projection / projection.norm(dim=1, keepdim=True)


def slow_moves(bank: Tensor, queries: Tensor, config: Any, seed: int) -> Tensor:
    """The listing's loop over moves and particles, with the calibrated update."""
    generator = torch.Generator().manual_seed(seed)
    for i in range(1, config.num_steps + 1):
        noise = torch.randn(bank.shape, generator=generator, dtype=bank.dtype)
        alpha, moved = config.step_size / i, []
        for b, z in zip(bank, noise, strict=True):
            similar = torch.stack([b @ q for q in queries])
            weights = torch.exp(similar / config.bank_temperature)
            mean = sum(w * q for w, q in zip(weights / weights.sum(), queries, strict=True))
            b = b + alpha * (mean - (mean @ b) * b) + config.noise_intensity * math.sqrt(2 * alpha) * z
            moved.append(b / b.norm())
        bank = torch.stack(moved)
    return bank


def slow_loss(query: Tensor, key: Tensor, bank: Tensor, temperature: float) -> Tensor:
    losses = []
    for q, k in zip(query, key, strict=True):
        similar = torch.stack([q @ k, *(q @ b for b in bank)])
        losses.append(-torch.log_softmax(similar / temperature, dim=0)[0])
    return torch.stack(losses).mean()


@pytest.mark.parametrize("key_encoder", ["momentum", "shared"])
def test_three_steps_are_algorithm_1_with_the_bank_moved_by_the_present_queries_and_constant(key_encoder: str) -> None:
    method = build("vem-langevin", key_encoder=key_encoder, key_momentum=0.7, step_size=0.5, bank_temperature=0.1)
    config, optimizer = method.config, torch.optim.SGD([p for p in method.parameters() if p.requires_grad], lr=0.1)
    query_network = nn.Sequential(copy.deepcopy(method.encoder), copy.deepcopy(method.head))
    key_network, bank = copy.deepcopy(query_network), method.bank.particles.clone()
    paper = torch.optim.SGD(query_network.parameters(), lr=0.1)
    for number in range(3):
        batch = make_batch(number)
        if key_encoder == "shared":
            query, key = directions(query_network, batch.views.flatten(0, 1)).chunk(2)
        else:
            query = directions(query_network, batch.views[0])
            with torch.no_grad():
                key = directions(key_network, batch.views[1])
        bank = slow_moves(bank, query.detach(), config, seed=number)
        loss = slow_loss(query, key, bank, config.temperature)
        paper.zero_grad()
        loss.backward()
        paper.step()
        with torch.no_grad():
            for weight, averaged in zip(query_network.parameters(), key_network.parameters(), strict=True):
                averaged.copy_(0.7 * averaged + 0.3 * weight)
        output = method(batch, torch.Generator().manual_seed(number))
        optimizer.zero_grad()
        output.loss.backward()
        optimizer.step()
        method.after_step(Progress(number + 1, 100, 0))
        torch.testing.assert_close(output.loss.detach(), loss.detach(), rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(output.metrics["info_nce"], output.loss.detach())
        torch.testing.assert_close(method.bank.particles, bank, rtol=1e-8, atol=1e-8)
    trained, expected = (list(network.parameters()) for network in (method.encoder, query_network[0]))
    torch.testing.assert_close(trained, expected, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("name", KEYS)
def test_the_gradient_reaches_the_keys_when_shared_and_only_the_queries_with_momentum(name: str) -> None:
    gradients = {}
    for key_encoder in ("shared", "momentum"):
        method = build(name, key_encoder=key_encoder, batch_norm="none")
        seen: dict[str, Tensor] = {}
        method._project = watched(method._project, seen)
        forward(method).loss.backward()
        gradients[key_encoder] = seen["query"].grad, seen["key"].grad
    assert all(gradient.abs().sum() > 0 for gradient in gradients["shared"])
    query, key = gradients["momentum"]
    assert query.abs().sum() > 0
    assert key is None
    frozen = [*method.key_encoder.parameters(), *method.key_head.parameters()]
    assert all(not weight.requires_grad and weight.grad is None for weight in frozen)


def watched(project: Any, seen: dict[str, Tensor]) -> Any:
    """Return ``project`` with what it returns kept in ``seen``, gradients included."""

    def projecting(views: Tensor) -> tuple[Tensor, Tensor]:
        query, key = project(views)
        for name, value in (("query", query), ("key", key)):
            if value.requires_grad:
                value.retain_grad()
            seen[name] = value
        return query, key

    return projecting


def test_bank_metrics_are_what_their_names_say() -> None:
    method = build("vem-langevin", step_size=0.3)
    before, seen = method.bank.particles.clone(), {}
    method._project = watched(method._project, seen)
    metrics = forward(method).metrics
    method.after_step(Progress(1, 10, 0))
    after, query = method.bank.particles, seen["query"].detach()
    torch.testing.assert_close(metrics["bank_movement"], torch.acos((before * after).sum(dim=1)).mean())
    torch.testing.assert_close(metrics["bank_cosine"], torch.stack([(query @ b).max() for b in after]).mean())
    sigma = torch.linalg.svdvals(after)
    p = sigma / sigma.sum()
    torch.testing.assert_close(metrics["bank_effective_rank"], torch.exp(-(p * p.log()).sum()), rtol=1e-5, atol=0)


@pytest.mark.parametrize("key_encoder", ["momentum", "shared"])
def test_image_chains_go_down_the_energy_that_the_queries_give_and_back_to_their_rows(key_encoder: str) -> None:
    settings = {"key_encoder": key_encoder, "batch_norm": "none", "noise_std": 0.0, "bank_temperature": 0.5}
    method, seen = build("vem-image", num_steps=20, **settings), {}
    method._project = watched(method._project, seen)
    before = method.bank.pixels.clone()
    output = forward(method)
    assert torch.equal(method.bank.pixels, before)
    query, (encoder, head) = seen["query"].detach(), method.key_networks()
    ends = directions(nn.Sequential(encoder, head), method._moved.position).detach()
    torch.testing.assert_close(output.loss.detach(), slow_loss(query, seen["key"].detach(), ends, 0.12))
    starts = directions(nn.Sequential(encoder, head), before[method._moved.rows]).detach()
    energies = [-torch.logsumexp(vectors @ query.T / 0.5, dim=1) for vectors in (starts, ends)]
    assert (energies[1] < energies[0]).all()
    rows = method._moved.rows.unique()
    method.after_step(Progress(1, 10, 0))
    changed = (method.bank.pixels != before).flatten(1).any(dim=1).nonzero().squeeze(1)
    assert torch.equal(changed, rows)
    assert torch.equal(method.bank.counts[rows], torch.full((len(rows),), 2, dtype=torch.int32))  # a first image has 1


@pytest.mark.parametrize("rate", [0.0, 0.5, 1.0])
def test_the_share_of_image_chains_that_restart_is_the_rate(rate: float) -> None:
    method = build("vem-image", batch_norm="none", reinit_rate=rate, step_size=1e-30, noise_std=0.0, num_steps=1)
    sevens = torch.full((method.num_proposals(SIZE), 1, 8, 8), 7.0, dtype=torch.float64)
    metrics = method(replace(make_batch(0), proposals=sevens), torch.Generator().manual_seed(0)).metrics
    anew = (method._moved.position == 7.0).flatten(1).all(dim=1)
    assert metrics["reinit_share"] == anew.double().mean() == rate  # images that the bank began with are no new starts


@pytest.mark.parametrize("size", [SIZE, 20])
def test_image_chains_of_a_step_are_different_images_of_the_bank(size: int) -> None:
    """With as many as the batch, all particles move in each step, as in algorithm 1."""
    method = build("vem-image", batch_norm="none", bank_size=size, num_steps=1)
    for number in range(3):
        forward(method, number, seed=number)
        assert len(method._moved.rows.unique()) == SIZE
        method.after_step(Progress(number + 1, 10, 0))


def test_one_image_move_is_a_clamped_step_up_the_log_sum_exp_of_cosines_with_noise() -> None:
    settings = {"num_steps": 1, "noise_std": 0.3, "step_size": 0.1, "gradient_clamp": 0.05, "bank_temperature": 0.3}
    method, seen = build("vem-image", batch_norm="none", **settings), {}
    method._project = watched(method._project, seen)
    forward(method)
    start = method.bank.pixels[method._moved.rows].clone().requires_grad_()
    vectors = directions(nn.Sequential(*method.key_networks()), start)
    log_density = torch.logsumexp(vectors @ seen["query"].detach().T / 0.3, dim=1)
    (gradient,) = torch.autograd.grad(log_density.sum(), start)
    assert (gradient.abs() > 0.05).any()
    assert (gradient.abs() < 0.05).any()
    generator = torch.Generator().manual_seed(0)
    torch.randperm(20, generator=generator)  # the rows
    noise = torch.randn(start.shape, generator=generator, dtype=torch.float64)
    moved = start.detach() + 0.1 * gradient.clamp(-0.05, 0.05) + 0.3 * noise
    torch.testing.assert_close(method._moved.position, moved)


@pytest.mark.parametrize("name", KEYS)
def test_negatives_are_constants_also_when_keys_are_shared(name: str) -> None:
    method = build(name, key_encoder="shared")
    query = directions(nn.Flatten(), torch.randn(SIZE, 1, 4, 4, dtype=torch.float64))
    negatives = method.move_bank(query, make_batch(0), torch.Generator())
    assert not negatives.vectors.requires_grad
    assert not any(value.requires_grad for value in negatives.metrics.values())


@pytest.mark.parametrize("bank_init", ["views", "uniform"])
def test_an_image_bank_begins_with_views_or_with_uniform_pixels(bank_init: str) -> None:
    method = build("vem-image", bank_init=bank_init, bank_size=50)
    pixels = method.bank.pixels
    assert pixels.shape == (50, 1, 8, 8)
    if bank_init == "views":
        assert pixels.std().item() == pytest.approx(1, abs=0.05)
    else:
        assert -2 <= pixels.min() < -1.9 < 1.9 < pixels.max() <= 2


def test_an_image_bank_that_cannot_fit_is_refused_before_it_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    method = build("vem-image")
    assert method.memory_bytes((1, 8, 8)) == 20 * (64 * 4 + 4)
    monkeypatch.setattr("energy_contrast.energy_based.vem_image.available_bytes", lambda device: 1000)
    with pytest.raises(ValueError, match="bank_size: 20 images of 1x8x8 do not fit on cpu"):
        method.memory_bytes((1, 8, 8))


@pytest.mark.parametrize("name", BANKS)
def test_a_bank_with_an_optimizer_of_its_own_is_trained_by_sgd_with_a_cosine(name: str) -> None:
    """Three training steps beside torch's SGD and its cosine, which go up the direction that the sampler has alone."""
    settings = {"bank_momentum": 0.9, "bank_weight_decay": 0.3, "bank_schedule": "cosine", "step_size": 0.5}
    if name == "vem-langevin":
        settings["noise_intensity"] = 0.0
    method, seen, num_runs = build(name, bank_temperature=0.1, **settings), {}, 3
    method._project = watched(method._project, seen)
    bank = nn.Parameter(method.bank.particles.clone())
    optimizer = torch.optim.SGD([bank], lr=0.5, momentum=0.9, weight_decay=0.3, maximize=True)
    for number in range(num_runs):
        output = method(make_batch(number), torch.Generator().manual_seed(number))
        for i in range(1, method.config.num_steps + 1):
            bank.grad = ascent(name, bank.detach(), seen["query"].detach(), method.config)
            optimizer.param_groups[0]["lr"] = 0.5 / i * (1 + math.cos(math.pi * number / num_runs)) / 2
            optimizer.step()
            with torch.no_grad():
                bank.copy_(bank / bank.norm(dim=1, keepdim=True))
        before = method.bank.velocity.clone()
        output.loss.backward()
        method.after_step(Progress(number + 1, num_runs, 0))
        torch.testing.assert_close(method.bank.particles, bank.detach(), rtol=1e-8, atol=1e-8)
        torch.testing.assert_close(method.bank.velocity, -optimizer.state[bank]["momentum_buffer"])
        assert not torch.equal(method.bank.velocity, before)
    assert method.bank_rate.item() == pytest.approx(0.0)


def ascent(name: str, bank: Tensor, queries: Tensor, config: Any) -> Tensor:
    """Return t of Langevin dynamics, or phi of SVGD with the rbf kernel, by autograd."""
    moving = bank.clone().requires_grad_()
    log_density = torch.logsumexp(moving @ queries.T / config.bank_temperature, dim=1)
    (gradient,) = torch.autograd.grad(log_density.sum(), moving)
    tangent = gradient - (gradient * bank).sum(dim=1, keepdim=True) * bank
    if name == "vem-langevin":
        return config.bank_temperature * tangent
    squared = (bank[:, None] - bank).square().sum(dim=2)
    pairs = squared[torch.triu(torch.ones_like(squared), diagonal=1).bool()]
    bandwidth = pairs.median() / math.log(len(bank))
    directions = []
    for b in bank:
        others = bank.clone().requires_grad_()
        kernel = torch.exp(-(others - b).square().sum(dim=1) / bandwidth)
        (repulsion,) = torch.autograd.grad(kernel.sum(), others)
        directions.append((kernel.detach()[:, None] * tangent + repulsion).mean(dim=0))
    return torch.stack(directions)


def test_the_bank_cosine_of_images_is_the_mean_over_negatives_of_the_largest_cosine_with_a_query() -> None:
    method, seen = build("vem-image", batch_norm="none"), {}
    method._project = watched(method._project, seen)
    found = forward(method).metrics["bank_cosine"].item()
    negatives = directions(nn.Sequential(*method.key_networks()), method._moved.position)
    largest = [max((negative @ query).item() for query in seen["query"]) for negative in negatives]
    assert found == pytest.approx(sum(largest) / SIZE)


def test_the_bank_begins_with_projections_normalised_over_the_views_though_the_method_evaluates() -> None:
    method, twin = (built(METHODS["vem-langevin"], bank_size=30, projection_size=4) for _ in range(2))
    before = {name: value.clone() for name, value in method.state_dict().items() if name != "bank.particles"}
    method.eval()
    method.start(draw)
    torch.testing.assert_close({name: method.state_dict()[name] for name in before}, before, rtol=0, atol=0)
    views = draw(30, torch.Generator().manual_seed(method._fill_seed))
    expected = directions(nn.Sequential(twin.encoder, twin.head), views)
    torch.testing.assert_close(method.bank.particles, expected.detach())
    random, again = (build("vem-langevin", bank_init="random").bank.particles for _ in range(2))
    assert torch.equal(random, again)
    assert random.mean(dim=0).norm() < 0.5 < expected.mean(dim=0).norm()  # untrained networks map images together


@pytest.mark.parametrize("name", BANKS)
def test_a_bank_without_an_optimizer_has_nothing_of_it_in_its_checkpoints(name: str) -> None:
    state = build(name).state_dict()
    assert not [key for key in state if "velocity" in key or "bank_rate" in key]
    momentum = build(name, bank_momentum=0.5, bank_schedule="cosine").state_dict()
    assert momentum.keys() - state.keys() == {"bank.velocity", "bank_rate"}

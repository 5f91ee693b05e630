"""EBCLR against the paper's algorithms written out as slow loops, against SimCLR, and at its limits."""

import copy
import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from energy_contrast.energy_based.ebclr import Ebclr, EbclrConfig
from energy_contrast.losses import nt_xent
from energy_contrast.method import Batch, PixelRange, Progress

from ..conftest import assert_same_loss, built, small_encoder

SIZE = 5
SMALL = {"buffer_size": 12, "num_steps": 3, "projection_size": 4, "reinit_rate": 0.6}


def draw(count: int, generator: torch.Generator) -> Tensor:
    return torch.rand(count, 1, 8, 8, generator=generator, dtype=torch.float64) * 2 - 1


def build(encoder: nn.Module | None = None, started: bool = True, **settings: Any) -> Ebclr:
    encoder = encoder or small_encoder(batch_norm="none", activation="leaky_relu")
    method = built(Ebclr, encoder, **{**SMALL, **settings})
    method.pixel_range = PixelRange((-1.0,), (1.0,))
    if started:
        method.start(draw)
    return method


def make_batch(method: Ebclr, step: int = 0, size: int = SIZE) -> Batch:
    generator = torch.Generator().manual_seed(100 + step)
    views, proposals = draw(2 * size, generator).view(2, size, 1, 8, 8), draw(method.num_proposals(size), generator)
    return Batch(views, torch.full((size,), -1), torch.arange(size), proposals)


class Paper:
    """Algorithms 1 and 2, image by image; only the network is not written out."""

    def __init__(self, method: Ebclr) -> None:
        self.config = method.config
        self.network = nn.Sequential(copy.deepcopy(method.encoder), copy.deepcopy(method.head))
        self.images = list(method.buffer.pixels.clone())
        self.counts = method.buffer.counts.tolist()

    def unit(self, image: Tensor) -> Tensor:
        z = self.network(image[None])[0]
        return z / z.norm()

    def energy(self, image: Tensor, references: list[Tensor]) -> Tensor:
        z = self.unit(image)
        return -sum(torch.exp(-((z - r) ** 2).sum() / self.config.temperature) for r in references).log()

    def loss(self, batch: Batch, generator: torch.Generator) -> Tensor:
        config, n = self.config, SIZE
        first, second = ([self.unit(view) for view in views] for views in batch.views)
        # which chains, and which of them start anew
        rows = torch.randint(config.buffer_size, (n,), generator=generator).tolist()
        chains, kappas = [self.images[row] for row in rows], [self.counts[row] for row in rows]
        if config.reinit_draw == "each":
            chosen = torch.rand(n, generator=generator) < config.reinit_rate
            places = chosen.nonzero().flatten().tolist()
            proposals = batch.proposals[places]
        else:
            places = torch.randint(n, (int(n * config.reinit_rate),), generator=generator).tolist()
            proposals = batch.proposals
        for place, proposal in zip(places, proposals, strict=True):
            chains[place], kappas[place] = proposal, 0
        # algorithm 1
        references = second if config.references == "second-views" else first + second
        fixed = [reference.detach() for reference in references]
        for _ in range(config.num_steps):
            noise = torch.randn(n, 1, 8, 8, generator=generator, dtype=torch.float64)
            for i in range(n):
                sigma = config.sigma_min + (config.sigma_max - config.sigma_min) * max(0, 1 - kappas[i] / 3)
                x = chains[i].clone().requires_grad_()
                (slope,) = torch.autograd.grad(self.energy(x, fixed), x)
                step = config.step_size * slope.clamp(-config.gradient_clamp, config.gradient_clamp)
                chains[i] = x.detach() - step + sigma * noise[i]
        for i, row in enumerate(rows):
            self.images[row], self.counts[row] = chains[i], kappas[i] + 1
        # eq. 18, over anchors of both views or of the first alone
        anchors, discriminative = first + second, []
        for i in range(2 * n if config.discriminative == "symmetric" else n):
            scores = {
                k: torch.exp(-((anchors[i] - anchors[k]) ** 2).sum() / config.temperature)
                for k in range(2 * n)
                if k != i
            }
            discriminative.append(-(scores[(i + n) % (2 * n)] / sum(scores.values())).log())
        # eq. 13 with eq. 20
        both = config.references == "both-views"
        data = [
            self.energy(view, references[:i] + references[i + 1 :] if both else references)
            for i, view in enumerate(batch.views[0])
        ]
        generative = (sum(data) - sum(self.energy(chain, references) for chain in chains)) / n
        lengths = sum((self.network(image[None]) ** 2).sum() for image in [*batch.views[0], *chains])
        generative = generative + {"sum": 1e-3, "mean": 1e-3 / n, "none": 0.0}[config.output_penalty] * lengths
        return sum(discriminative) / len(discriminative) + config.generative_weight * generative


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {
            "discriminative": "one-sided",
            "references": "both-views",
            "output_penalty": "mean",
            "generative_weight": 0.7,
            "reinit_draw": "each",
            "first_count": "zero",
        },
        {"output_penalty": "none", "gradient_clamp": 0.003, "reinit_rate": 0.0, "temperature": 0.4},
    ],
    ids=["as released", "as printed", "without penalty"],
)
def test_four_steps_are_the_papers_algorithms(settings: dict[str, Any]) -> None:
    method = build(**settings)
    paper = Paper(method)
    assert set(paper.counts) == {0 if settings.get("first_count") == "zero" else 5}
    for step in range(4):  # 20 draws from 12 images: rows come back and duplicates are written
        batch = make_batch(method, step)
        loss = method(batch, torch.Generator().manual_seed(step)).loss
        expected = paper.loss(batch, torch.Generator().manual_seed(step))
        torch.testing.assert_close(loss, expected, rtol=1e-9, atol=1e-9)
        method.zero_grad()
        paper.network.zero_grad()
        loss.backward()
        expected.backward()
        learnt = [*method.encoder.parameters(), *method.head.parameters()]
        for weight, other in zip(learnt, paper.network.parameters(), strict=True):
            torch.testing.assert_close(weight.grad, other.grad, rtol=1e-7, atol=1e-9)
        method.after_step(Progress(step + 1, 4, 0))
        torch.testing.assert_close(method.buffer.pixels, torch.stack(paper.images), rtol=0, atol=1e-9)
        assert method.buffer.counts.tolist() == paper.counts
    assert min(paper.counts) < 5 or settings.get("reinit_rate") == 0.0


def test_with_weight_one_it_is_the_contrastive_divergence_of_vems_equation_7() -> None:
    """A loop over ``-E F(x, v) + E_x~ log E_v exp F(x~, v)`` with F the cosine over tau / 2; x~ are constants."""
    settings: dict[str, Any] = {"generative_weight": 1.0, "discriminative": "one-sided", "references": "both-views"}
    own: dict[str, Any] = {"output_penalty": "none", "reinit_rate": 1.0, "reinit_draw": "without-replacement"}
    method = build(**settings, **own)
    batch = make_batch(method)
    loss = method(batch, torch.Generator().manual_seed(1)).loss
    assert (method._moved.counts == 0).all()  # all chains began with this step

    def unit(image: Tensor) -> Tensor:
        z = method.head(method.encoder(image[None]))[0]
        return z / z.norm()

    first, second = ([unit(image) for image in views] for views in batch.views)
    chains = [unit(image) for image in method._moved.position]
    tau = method.config.temperature / 2
    attraction = -sum(z @ other / tau for z, other in zip(first, second, strict=True)) / SIZE
    means = [sum(torch.exp(x @ v / tau) for v in first + second) / (2 * SIZE) for x in chains]
    expected = attraction + sum(mean.log() for mean in means) / SIZE
    assert_same_loss(loss, expected + math.log(2 * SIZE), method)


def test_the_buffer_begins_with_views_that_count_as_old_and_the_seed_decides_which() -> None:
    method = build(noise_decay_count=7)
    assert (method.buffer.counts == 9).all()
    assert torch.equal(method.buffer.pixels, build().buffer.pixels)
    assert method.buffer.pixels.abs().max() <= 1
    torch.manual_seed(1)
    other = Ebclr(EbclrConfig(**SMALL), method.encoder)
    other.start(draw)
    assert not torch.equal(other.buffer.pixels, method.buffer.pixels)


def test_info_nce_is_the_cosine_loss_of_the_views_and_the_gap_what_the_loss_adds() -> None:
    method = build(temperature=0.2, generative_weight=1.0, output_penalty="none")
    batch = make_batch(method)
    z0, z1 = (F.normalize(method.head(method.encoder(views)), dim=1) for views in batch.views)
    loss, metrics = method(batch, torch.Generator())
    torch.testing.assert_close(metrics["info_nce"], nt_xent(z0, z1, temperature=0.1).detach())
    torch.testing.assert_close(metrics["energy_gap"], (metrics["info_nce"] - loss).detach())
    torch.testing.assert_close(metrics["energy_gap"], metrics["energy_chains"] - metrics["energy_data"])


@pytest.mark.parametrize("chain_precision", ["float32", "bfloat16"])
def test_it_works_under_the_callers_autocast_with_chains_of_their_own_precision(chain_precision: str) -> None:
    method = build(chain_precision=chain_precision, num_steps=5).float()
    method.buffer.pixels = method.buffer.pixels.float()
    batch = make_batch(method)
    batch = Batch(batch.views.float(), batch.labels, batch.index, batch.proposals.float())
    precisions = set()
    method.encoder.conv1.register_forward_hook(
        lambda module, given, result: precisions.add((len(given[0]), result.dtype))
    )
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output = method(batch, torch.Generator().manual_seed(0))
    output.loss.backward()
    assert output.loss.dtype == torch.float32
    assert all(weight.grad is not None and weight.grad.isfinite().all() for weight in method.parameters())
    # SIZE images at a time: the chains' steps, and at the end their pass for the loss, which is the caller's
    chains = {torch.bfloat16} | ({torch.float32} if chain_precision == "float32" else set())
    assert {dtype for count, dtype in precisions if count == SIZE} == chains
    assert {dtype for count, dtype in precisions if count == 2 * SIZE} == {torch.bfloat16}


def test_what_cannot_work_is_refused_with_one_sentence() -> None:
    with pytest.raises(
        ValueError, match="buffer_size: must hold the global batch of 13 images, got 12; use at least 13"
    ):
        build().num_proposals(13)
    method = build(started=False)
    with pytest.raises(ValueError, match="buffer: holds no images yet, got no start"):
        method(make_batch(method), torch.Generator())
    for settings, text in (
        ({"uniform_rate": 0.5}, "pixel_range: uniform starts need to know .* got none"),
        ({"buffer_dtype": "uint8"}, "pixel_range: images as uint8 need to know"),
    ):
        method = build(started=False, **settings)
        method.pixel_range = None
        with pytest.raises(ValueError, match=text):
            method.start(draw)
    plain = nn.Linear(3, 3)
    plain.embedding_size = 3
    with pytest.raises(
        ValueError, match="chain_gradient: first-layer needs an encoder with stem and trunk, got Linear"
    ):
        Ebclr(EbclrConfig(chain_gradient="first-layer"), plain)


def test_the_memory_is_known_before_the_start() -> None:
    method = build(started=False, buffer_size=50_000)
    assert method.memory_bytes((3, 32, 32)) == 50_000 * (3072 * 4 + 4)
    assert method.num_proposals(128) == 76  # floor(.6 * 128)
    assert build(uniform_rate=1.0).num_proposals(10) == 0

"""What a bank of VEM begins with, and what is read of a bank of images."""

from __future__ import annotations

import torch
from torch import Tensor

from energy_contrast.energy_based.vem_bank import VemLangevin, VemLangevinConfig
from energy_contrast.energy_based.vem_image import VemImage, VemImageConfig
from energy_contrast.method import Batch, PixelRange
from energy_contrast.networks import build_encoder

SIZE = 6


def draw(count: int, generator: torch.Generator) -> Tensor:
    return torch.randn(count, 1, 8, 8, generator=generator, dtype=torch.float64)


def directions(projections: Tensor) -> Tensor:
    return torch.stack([p / p.square().sum().sqrt() for p in projections])


def test_the_bank_cosine_of_images_is_the_mean_over_negatives_of_the_largest_cosine_with_a_query() -> None:
    torch.manual_seed(0)
    config = VemImageConfig(bank_size=20, num_steps=2, projection_size=4)
    method = VemImage(config, build_encoder("small", in_channels=1, width=4, batch_norm="none")).double()
    method.pixel_range = PixelRange((-2.0,), (2.0,))
    method.start(draw)
    views = draw(2 * SIZE, torch.Generator().manual_seed(1)).unflatten(0, (2, SIZE))
    batch = Batch(views, torch.full((SIZE,), -1), torch.arange(SIZE), views.new_empty(0, 1, 8, 8))
    found = method(batch, torch.Generator().manual_seed(2)).metrics["bank_cosine"].item()
    with torch.no_grad():
        queries = directions(method.head(method.encoder(views[0])))
        negatives = directions(method.key_head(method.key_encoder(method._moved.position)))
    largest = [max((negative @ query).item() for query in queries) for negative in negatives]
    torch.testing.assert_close(found, sum(largest) / SIZE)


def test_the_bank_begins_with_projections_normalised_over_the_views_though_the_method_evaluates() -> None:
    def build() -> VemLangevin:
        torch.manual_seed(0)
        encoder = build_encoder("small", in_channels=1, width=4, batch_norm="global")
        return VemLangevin(VemLangevinConfig(bank_size=30, projection_size=4), encoder).double()

    method, twin = build(), build()
    method.eval()
    method.start(draw)
    with torch.no_grad():
        views = draw(30, torch.Generator().manual_seed(method._fill_seed))
        torch.testing.assert_close(method.bank.particles, directions(twin.head(twin.encoder(views))))

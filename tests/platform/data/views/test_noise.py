"""Pixel noise: the moments of the normal law, and independence of pixels, images and views."""

import pytest
import torch

from ebclab.config.sections import ViewsConfig
from ebclab.data.hashing import hash_words, standard_normal
from ebclab.data.preprocessing import Preprocessing
from ebclab.data.views import make_views

SIGMAS = 5
ROWS, COLUMNS = 400, 500


@pytest.fixture(scope="module")
def noise() -> torch.Tensor:
    return standard_normal(hash_words(11, torch.arange(ROWS)), COLUMNS).double()


def test_noise_has_the_moments_of_the_standard_normal_law(noise):
    expected = {1: 0, 2: 1, 3: 0, 4: 3, 6: 15}  # E[x^k]
    squares = {1: 1, 2: 3, 3: 15, 4: 105, 6: 10395}  # E[x^2k]
    for power, moment in expected.items():
        spread = (squares[power] - moment**2) ** 0.5
        assert abs(noise.pow(power).mean() - moment) < SIGMAS * spread / noise.numel() ** 0.5


def test_an_image_s_noise_is_the_same_alone_and_among_more_than_are_made_at_once():
    words = hash_words(3, torch.arange(40))
    together = standard_normal(words, 5001)  # odd: of the last pair one number is used
    for word, numbers in zip(words, together, strict=True):
        assert torch.equal(standard_normal(word[None], 5001)[0], numbers)


def test_noise_follows_the_normal_distribution_function(noise):
    ordered = noise.flatten().sort().values
    expected = torch.special.ndtr(ordered)
    gap = (expected - torch.arange(1, len(ordered) + 1) / len(ordered)).abs().max()
    assert gap < 1.95 / len(ordered) ** 0.5  # Kolmogorov-Smirnov at 0.1 %


def test_pixels_of_an_image_are_uncorrelated_the_two_halves_of_a_hash_included(noise):
    half = COLUMNS // 2
    pairs = (noise[:, :half] * noise[:, half:]).mean()  # both come from one hash
    neighbours = (noise[:, 1:] * noise[:, :-1]).mean()
    assert abs(pairs) < SIGMAS / (ROWS * half) ** 0.5
    assert abs(neighbours) < SIGMAS / (ROWS * (COLUMNS - 1)) ** 0.5


def test_squares_of_the_two_halves_of_a_hash_are_uncorrelated(noise):
    half = COLUMNS // 2
    product = ((noise[:, :half].square() - 1) * (noise[:, half:].square() - 1)).mean()
    assert abs(product) < SIGMAS * 2 / (ROWS * half) ** 0.5  # Var[x^2] = 2


def test_images_with_consecutive_words_are_uncorrelated():
    noise = standard_normal(torch.arange(ROWS), COLUMNS).double()
    assert abs((noise[1:] * noise[:-1]).mean()) < SIGMAS / ((ROWS - 1) * COLUMNS) ** 0.5


@pytest.mark.parametrize("count", [1, 2, 7, 192])
def test_odd_and_even_counts_give_as_many_finite_numbers(count):
    noise = standard_normal(torch.arange(3), count)
    assert noise.shape == (3, count)
    assert noise.dtype == torch.float32
    assert noise.isfinite().all()


def test_view_noise_has_its_standard_deviation_in_the_image_range_is_not_clipped_and_differs_between_views():
    images = torch.tensor([0, 255], dtype=torch.uint8).repeat(100)[:, None, None, None].expand(200, 3, 16, 16)
    preprocessing = Preprocessing(16, (0.5,) * 3, (0.5,) * 3)  # [0, 1] -> [-1, 1] doubles the noise
    views = make_views(images, torch.arange(200), ViewsConfig(noise_std=0.03), preprocessing, seed=0, epoch=0)
    noise = (views + torch.tensor([1.0, -1.0]).repeat(100)[:, None, None, None]).double() / 0.06
    assert abs(noise.mean()) < SIGMAS / noise.numel() ** 0.5
    assert abs(noise.square().mean() - 1) < SIGMAS * (2 / noise.numel()) ** 0.5
    assert views.min() < -1.1
    assert views.max() > 1.1
    assert abs((noise[0] * noise[1]).mean()) < SIGMAS / noise[0].numel() ** 0.5
    assert abs((noise[:, :, 0] * noise[:, :, 1]).mean()) < SIGMAS / noise[:, :, 0].numel() ** 0.5

"""The counter-based hash is SplitMix64 in integers of Python, a known good hash; numbers and noise made of it."""

import math

import pytest
import torch

from ebclab.config.sections import ViewsConfig
from ebclab.data.hashing import hash_words, integers_below, standard_normal, unit_interval
from ebclab.data.preprocessing import Preprocessing
from ebclab.data.views.parameters import draw_parameters
from ebclab.data.views.pipeline import make_views

MASK = (1 << 64) - 1
WORDS = [(0,), (1, 2), (2, 1), (-5, 7, 11), (2**63 - 1, -(2**63), 0), (3, 2**40, -1, 12345)]


def test_the_hash_of_zero_is_the_published_first_output_of_splitmix64():
    assert hash_words(0).item() & MASK == 0xE220A8397B1DCDAF


@pytest.mark.parametrize("words", WORDS)
def test_integers_and_tensors_and_mixtures_give_the_integer_loops_bits(words, splitmix64_words):
    expected = splitmix64_words(*words)
    tensors = [torch.tensor([word]) for word in words]
    assert hash_words(*words).item() == expected
    assert hash_words(*tensors).item() == expected
    assert hash_words(*words[:-1], tensors[-1]).item() == expected
    assert hash_words(tensors[0], *words[1:]).item() == expected


def test_words_broadcast_to_every_combination(splitmix64_words):
    hashes = hash_words(9, torch.arange(3)[:, None], torch.arange(4))
    assert hashes.tolist() == [[splitmix64_words(9, i, j) for j in range(4)] for i in range(3)]


def test_the_words_are_left_as_they_were():
    words = torch.arange(5)
    hash_words(1, words, 2)
    assert torch.equal(words, torch.arange(5))


def test_unit_interval_keeps_the_53_highest_bits():
    bits = torch.tensor([0, -1, 1 << 62, -(1 << 63), 2047])
    assert unit_interval(bits).tolist() == [0.0, 1 - 2.0**-53, 0.25, 0.5, 0.0]


def test_integers_below_take_a_limit_for_each_element():
    limits = torch.tensor([1, 2, 1000])
    assert (integers_below(torch.tensor([-1, -1, -1]), limits) == limits - 1).all()


@pytest.mark.parametrize("count", [1, 2, 5])
def test_noise_is_what_box_and_muller_make_of_a_hash(count, splitmix64_words):
    """Of a hash, the lower half chooses the radius and the upper one the angle; first come all cosines, then sines."""
    words = [3, -7, 2**40]
    noise = standard_normal(torch.tensor(words), count)
    assert noise.dtype == torch.float32
    for word, numbers in zip(words, noise.tolist(), strict=True):
        bits = [splitmix64_words(word, pair) for pair in range((count + 1) // 2)]
        radius = [math.sqrt(-2 * math.log(((each & 0xFFFFFFFF) + 0.5) / 2**32)) for each in bits]
        angle = [math.pi * (each >> 32) / 2**31 for each in bits]
        expected = [r * each(a) for each in (math.cos, math.sin) for r, a in zip(radius, angle, strict=True)]
        assert numbers == pytest.approx(expected[:count], rel=1e-4, abs=1e-4)


def test_an_image_s_noise_is_the_same_alone_and_among_more_than_are_made_at_once():
    words = hash_words(3, torch.arange(40))
    together = standard_normal(words, 5001)  # odd: of the last pair one number is used
    for word, numbers in zip(words, together, strict=True):
        assert torch.equal(standard_normal(word[None], 5001)[0], numbers)


def test_noise_is_added_to_views_in_the_image_range_and_not_clipped():
    images = torch.tensor([0, 255], dtype=torch.uint8).repeat(5)[:, None, None, None].expand(10, 3, 16, 16)
    keys, config = torch.arange(10), ViewsConfig(noise_std=0.03)
    views = make_views(images, keys, config, Preprocessing(16, (0.5,) * 3, (0.25,) * 3), seed=0, epoch=0)
    words = draw_parameters(keys, config, 16, 16, seed=0, epoch=0, views=range(2)).noise_word
    noise = standard_normal(words.flatten(), 3 * 16 * 16).view(2, 10, 3, 16, 16)
    torch.testing.assert_close(views, (images / 255 + 0.03 * noise - 0.5) / 0.25, atol=1e-5, rtol=0)

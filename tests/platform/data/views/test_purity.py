"""The same image gets the same bits, whatever surrounds it."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from ebclab.config.sections import ViewsConfig
from ebclab.data.preprocessing import Preprocessing
from ebclab.data.views.parameters import draw_parameters
from ebclab.data.views.pipeline import apply_parameters, make_views

COUNT = 67
JITTER = {"jitter_rate": 0.8, "brightness": 0.4, "contrast": 0.4, "saturation": 0.4, "hue": 0.1}
CIFAR = ViewsConfig(crop_scale_min=0.08, flip_rate=0.5, grayscale_rate=0.2, **JITTER)
CONFIGS = {
    "cifar": CIFAR,
    "all": replace(CIFAR, blur_rate=0.5, blur_kernel_size=7, noise_std=0.03),
    "byol": replace(
        CIFAR, blur_rate=1.0, second_blur_rate=0.1, blur_kernel_size=3, solarise_rate=0.5, second_solarise_rate=0.2
    ),
}
SHAPES = [(3, 32, 32, 32), (1, 28, 28, 28), (1, 8, 8, 8), (3, 17, 23, 11), (1, 9, 9, 7)]  # C, H, W, size
LARGE_SHAPES = [(3, 110, 97, 101), (1, 96, 96, 96), (3, 60, 80, 224)]  # one by one on a CPU


def some_images(channels: int, height: int, width: int) -> tuple[Tensor, Tensor]:
    """Images, of which some are white (where rounding passes 1), and their keys."""
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (COUNT, channels, height, width), dtype=torch.uint8, generator=generator)
    images[:20] = 255
    return images, torch.arange(COUNT) * 7 - 50


def preprocessing_to(size: int, channels: int) -> Preprocessing:
    return Preprocessing(size, (0.4,) * channels, (0.3,) * channels)


@pytest.mark.parametrize(
    ("name", "shape"),
    [*(("all", shape) for shape in SHAPES + LARGE_SHAPES), ("cifar", SHAPES[0]), ("byol", SHAPES[3])],
)
def test_views_are_bit_identical_in_any_batch_order_chunk_and_layout(name, shape):
    config, (channels, height, width, size) = CONFIGS[name], shape
    some = slice(18, 23) if shape in LARGE_SHAPES else slice(None)  # the first of them are white
    images, keys = (each[some] for each in some_images(channels, height, width))
    preprocessing = preprocessing_to(size, channels)
    words = {"seed": 3, "epoch": 2}
    views = make_views(images, keys, config, preprocessing, **words)
    order = torch.randperm(len(keys), generator=torch.Generator().manual_seed(1))
    assert torch.equal(make_views(images[order], keys[order], config, preprocessing, **words), views[:, order])
    interleaved = images.contiguous(memory_format=torch.channels_last)
    assert torch.equal(make_views(interleaved, keys, config, preprocessing, **words), views)
    for row in range(0, len(keys), 3):
        alone = make_views(images[row : row + 1], keys[row : row + 1], config, preprocessing, **words)
        assert torch.equal(alone[:, 0], views[:, row])
    parameters = draw_parameters(keys, config, height, width, **words, views=range(2))
    for chunk_size in (1, 2, 5, 64, 1000) if shape in SHAPES else ():
        assert torch.equal(apply_parameters(images, parameters, config, preprocessing, chunk_size=chunk_size), views)


@pytest.mark.parametrize("threads", [2, 16])
@pytest.mark.parametrize(
    ("channels", "height", "width", "size"), [(3, 17, 23, 11), (1, 8, 8, 8), (3, 40, 50, 33), (3, 110, 97, 101)]
)
def test_views_are_bit_identical_with_any_number_of_threads(channels, height, width, size, threads):
    """MKL divides products among threads where there are few of them, and rounds the parts in another way."""
    images, keys = some_images(channels, height, width)
    some = (
        slice(14, 26) if size < 96 else slice(18, 23)
    )  # the first of them are white; fewer chunks, each with barriers
    images, keys = images[some], keys[some]
    preprocessing = preprocessing_to(size, channels)
    parameters = draw_parameters(keys, CONFIGS["all"], height, width, seed=3, epoch=2, views=range(2))
    views = apply_parameters(images, parameters, CONFIGS["all"], preprocessing)
    torch.set_num_threads(threads)
    try:
        for chunk_size in (1, 7, 0):
            made = apply_parameters(images, parameters, CONFIGS["all"], preprocessing, chunk_size=chunk_size)
            assert torch.equal(made, views)
    finally:
        torch.set_num_threads(1)


def test_a_view_depends_on_its_own_number_alone():
    images, keys = some_images(3, 16, 16)
    preprocessing = preprocessing_to(16, 3)
    four = make_views(images, keys, CONFIGS["all"], preprocessing, seed=0, epoch=0, num_views=4)
    last = draw_parameters(keys, CONFIGS["all"], 16, 16, seed=0, epoch=0, views=range(3, 4))
    assert torch.equal(four[3:], apply_parameters(images, last, CONFIGS["all"], preprocessing))


@pytest.mark.parametrize(("channels", "size"), [(1, 12), (3, 12), (1, 96), (3, 101)])
def test_channels_last_changes_the_memory_and_no_bit(channels, size):
    images, keys = (each[18:23] for each in some_images(channels, size, size))
    preprocessing = preprocessing_to(size, channels)
    views = make_views(images, keys, CONFIGS["all"], preprocessing, seed=0, epoch=0)
    interleaved = make_views(images, keys, CONFIGS["all"], preprocessing, seed=0, epoch=0, channels_last=True)
    assert views.is_contiguous()
    assert torch.equal(interleaved, views)
    batch = interleaved.flatten(0, 1)
    assert batch.is_contiguous(memory_format=torch.channels_last)
    assert batch.data_ptr() == interleaved.data_ptr()


def test_the_images_are_left_as_they_were():
    images, keys = some_images(3, 16, 16)
    copy = images.clone()
    make_views(images, keys, CONFIGS["all"], preprocessing_to(16, 3), seed=0, epoch=0)
    assert torch.equal(images, copy)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_a_cuda_device_makes_the_views_that_the_cpu_makes():
    images, keys = some_images(3, 32, 32)
    preprocessing = preprocessing_to(32, 3)
    views = make_views(images, keys, CONFIGS["all"], preprocessing, seed=0, epoch=0)
    on_device = make_views(images.cuda(), keys.cuda(), CONFIGS["all"], preprocessing, seed=0, epoch=0)
    torch.testing.assert_close(on_device.cpu(), views, atol=1e-4, rtol=0)

"""Pixels of views with given parameters against torchvision.transforms.v2.functional on float images."""

import itertools
from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torchvision.transforms.v2 import functional as tv

from ebclab.config.sections import VIEW_RECIPES, ViewsConfig
from ebclab.data.preprocessing import Preprocessing
from ebclab.data.views import colour
from ebclab.data.views.parameters import BRIGHTNESS, CONTRAST, HUE, SATURATION, ViewParameters, draw_parameters
from ebclab.data.views.pipeline import apply_parameters
from ebclab.errors import ConfigError

TOLERANCE = 1e-5
EVERYTHING = ViewsConfig(
    crop_scale_min=0.08,
    flip_rate=0.5,
    jitter_rate=0.8,
    brightness=0.8,
    contrast=0.8,
    saturation=0.8,
    hue=0.5,
    grayscale_rate=0.2,
    blur_rate=0.5,
    blur_kernel_size=5,
)
SHAPES = [(3, 32, 32, 32), (1, 28, 28, 28), (1, 8, 8, 8), (3, 17, 23, 11), (3, 40, 31, 45)]  # C, H, W, size
LARGE_SHAPES = [(3, 100, 130, 101), (3, 60, 70, 128), (1, 96, 96, 64), (3, 200, 150, 40)]  # one by one on a CPU
KEYS_OF_EVERY_OPERATION = torch.arange(4)  # among their two views each operation of ImageNet's recipes occurs
ADJUST = {
    BRIGHTNESS: (tv.adjust_brightness, "brightness"),
    CONTRAST: (tv.adjust_contrast, "contrast"),
    SATURATION: (tv.adjust_saturation, "saturation"),
    HUE: (tv.adjust_hue, "hue"),
}


def some_images(count: int, channels: int, height: int, width: int) -> Tensor:
    """Random images, a white, a black and some flat ones, and one of pure colours where clamps and ties bite."""
    images = torch.randint(0, 256, (count, channels, height, width), dtype=torch.uint8)
    images[0], images[1] = 255, 0
    images[2:5] = images[2:5, :, :1, :1]
    images[5] = (images[5] > 127) * 255
    return images


def plain(count: int, size: int, **changes) -> ViewParameters:
    """Parameters of one view that leave square images alone, but for ``changes`` (a number, or one an image)."""
    drawn = draw_parameters(torch.arange(count), ViewsConfig(), size, size, seed=0, epoch=0, views=range(1))
    changed = {}
    for name, value in ({"order": torch.arange(4), "noise_word": 0} | changes).items():
        field = getattr(drawn, name)
        changed[name] = torch.as_tensor(value, dtype=field.dtype).expand_as(field)
    return drawn._replace(**changed)


def untouched(channels: int, size: int) -> Preprocessing:
    return Preprocessing(size, (0.0,) * channels, (1.0,) * channels)


def by_torchvision(image: Tensor, p: ViewParameters, size: int, kernel_size: int) -> Tensor:
    """One view of one uint8 image; fields of ``p`` hold one value."""
    pixels = tv.to_dtype(image, torch.float32, scale=True)
    box = [int(p.top), int(p.left), int(p.height), int(p.width)]
    pixels = tv.resized_crop(pixels, *box, [size, size], antialias=True)
    pixels = tv.horizontal_flip(pixels) if p.flip else pixels
    for operation in p.order.tolist():
        adjust, name = ADJUST[operation]
        pixels = adjust(pixels, float(getattr(p, name)))
    if p.grayscale:
        pixels = tv.rgb_to_grayscale(pixels, num_output_channels=image.shape[0])
    if p.blur_sigma > 0:
        pixels = tv.gaussian_blur(pixels, [kernel_size, kernel_size], [float(p.blur_sigma)] * 2)
    return pixels


def test_solarising_is_torchvisions_to_the_bit():
    """Of float images and of bytes, at 128 of 255, the border itself included."""
    images = some_images(40, 3, 16, 16)
    images[6, :, :, ::2], images[6, :, :, 1::2] = 127, 128
    config = ViewsConfig(solarise_rate=0.5)
    chosen = draw_parameters(torch.arange(40), config, 16, 16, seed=0, epoch=0, views=range(2))
    neither = apply_parameters(images, chosen, replace(config, solarise_rate=0.0), untouched(3, 16))
    views = apply_parameters(images, chosen, config, untouched(3, 16))
    for view, row in itertools.product(range(2), range(40)):
        before, solarised = neither[view, row], bool(chosen.solarise[view, row])
        expected = tv.solarize(before, 128 / 255) if solarised else before
        assert torch.equal(views[view, row], expected)
        of_bytes = tv.solarize(images[row], 128) if solarised else images[row]
        assert torch.equal((views[view, row] * 255).round().to(torch.uint8), of_bytes)
    assert chosen.solarise.any()
    assert not chosen.solarise.all()


def assert_like_torchvision(images: Tensor, parameters: ViewParameters, size: int, config: ViewsConfig) -> None:
    views = apply_parameters(images, parameters, config, untouched(images.shape[1], size))
    for v, row in itertools.product(range(views.shape[0]), range(views.shape[1])):
        one = ViewParameters._make(field[v, row] for field in parameters)
        expected = by_torchvision(images[row], one, size, config.blur_kernel_size)
        torch.testing.assert_close(views[v, row], expected, atol=TOLERANCE, rtol=0)


@pytest.mark.parametrize(("channels", "height", "width", "size"), SHAPES + LARGE_SHAPES)
def test_all_operations_together_agree_with_torchvision(channels, height, width, size):
    count = 6 if (channels, height, width, size) in LARGE_SHAPES else 40
    images, config = (
        some_images(count, channels, height, width),
        replace(EVERYTHING, blur_kernel_size=min(size | 1, 11)),
    )
    parameters = draw_parameters(torch.arange(count), config, height, width, seed=0, epoch=0, views=range(2))
    assert parameters.grayscale.any()
    assert (parameters.blur_sigma > 1).any()
    assert_like_torchvision(images, parameters, size, config)


@pytest.mark.parametrize("size", [33, 96, 224])
def test_crops_of_any_size_from_a_large_image_are_the_antialiased_interpolation_of_the_box(size):
    """In float64 there; torch's float32 weights of such crops are wrong by up to 2e-5."""
    images = some_images(6, 3, 300, 1100)[5:].expand(8, -1, -1, -1)
    boxes = [(0, 0, 300, 1100), (299, 1099, 1, 1), (0, 7, 1, 1000), (0, 3, 2, 7), (100, 100, 96, 97), (5, 6, 224, 32)]
    boxes += [(7, 9, 225, 223), (20, 800, 280, 300)]
    parameters = plain(8, 300)._replace(
        **dict(zip(("top", "left", "height", "width"), torch.tensor(boxes).T[:, None], strict=True))
    )
    views = apply_parameters(images, parameters, ViewsConfig(), untouched(3, size))[0]
    for image, (top, left, height, width), view in zip(images, boxes, views, strict=True):
        box = image[None, :, top : top + height, left : left + width].double() / 255
        expected = torch.nn.functional.interpolate(box, (size, size), mode="bilinear", antialias=True)[0]
        torch.testing.assert_close(view.double(), expected, atol=3e-5, rtol=0)


@pytest.mark.parametrize("recipe", ["simclr-imagenet", "moco-imagenet", "byol-imagenet"])
def test_views_of_imagenets_recipes_agree_with_torchvision_at_their_size(recipe):
    """Crop, flip, colours, grey and blur within the tolerance, and then solarising to the bit."""
    settings = dict(VIEW_RECIPES[recipe].settings)
    config = ViewsConfig(**settings)
    smooth = torch.nn.functional.interpolate(torch.rand(4, 3, 12, 16), (240, 320), mode="bilinear")
    images = (smooth * 255).to(torch.uint8)
    keys = KEYS_OF_EVERY_OPERATION
    drawn = draw_parameters(keys, config, 240, 320, seed=0, epoch=0, views=range(2))
    for name, rate in {
        "flip": 1,
        "grayscale": 1,
        "blur_sigma": 1,
        "solarise": config.second_solarise_rate or 0,
    }.items():
        assert bool((getattr(drawn, name) > 0).any()) == (rate > 0)
    before = drawn._replace(solarise=torch.zeros_like(drawn.solarise))
    assert_like_torchvision(images, before, 224, config)
    plain_views, views = (apply_parameters(images, each, config, untouched(3, 224)) for each in (before, drawn))
    for view, row in itertools.product(range(2), range(4)):
        bits = plain_views[view, row]
        expected = tv.solarize(bits, 128 / 255) if drawn.solarise[view, row] else bits
        assert torch.equal(views[view, row], expected)


@pytest.mark.parametrize("size", [8, 12, 20, 33, 50])
def test_crop_and_resize_agree_with_torchvision(size):
    images = some_images(6, 3, 20, 30)
    boxes = torch.tensor([[0, 0, 20, 30], [3, 4, 10, 9], [19, 29, 1, 1], [0, 0, 1, 30], [5, 0, 15, 7], [2, 3, 12, 12]])
    parameters = plain(6, 20)._replace(**dict(zip(("top", "left", "height", "width"), boxes.T[:, None], strict=True)))
    assert_like_torchvision(images, parameters, size, ViewsConfig())


@pytest.mark.parametrize(
    "changes",
    [
        {"brightness": [0.0, 0.4, 1.0, 1.3, 1.9, 0.7, 5.0, 1.1]},
        {"contrast": [0.0, 0.4, 1.0, 1.3, 1.9, 0.7, 5.0, 1.1]},
        {"saturation": [0.0, 0.4, 1.0, 1.3, 1.9, 0.7, 5.0, 1.1]},
        {"hue": [-0.5, -0.31, -0.1, 0.001, 0.1, 0.27, 0.4999, 0.5]},
        {"grayscale": [True, False, True, False, True, True, False, True]},
    ],
    ids=lambda changes: next(iter(changes)),
)
@pytest.mark.parametrize("channels", [1, 3])
def test_each_colour_operation_agrees_with_torchvision(changes, channels):
    images = some_images(8, channels, 16, 16)
    assert_like_torchvision(images, plain(8, 16, **changes), 16, EVERYTHING)


def test_a_hue_shift_agrees_with_torchvision_on_every_colour_of_a_fine_grid():
    levels = torch.tensor([0, 1, 51, 127, 128, 200, 254, 255], dtype=torch.uint8)
    colours = torch.cartesian_prod(levels, levels, levels).T.reshape(3, 16, 32)  # all 512, with all ties
    image = torch.cat([colours, colours], 1).expand(21, 3, 32, 32)
    assert_like_torchvision(image, plain(21, 32, hue=torch.linspace(-0.5, 0.5, 21)), 32, EVERYTHING)


def test_colour_operations_are_applied_in_each_images_own_order():
    orders = torch.tensor(list(itertools.permutations(range(4))))
    images = some_images(24, 3, 8, 8)
    images[:] = images[6]
    parameters = plain(24, 8, order=orders, brightness=1.6, contrast=1.5, saturation=1.7, hue=0.3)
    assert_like_torchvision(images, parameters, 8, EVERYTHING)
    views = apply_parameters(images, parameters, EVERYTHING, untouched(3, 8))[0]
    assert len(views.flatten(1).unique(dim=0)) > 12  # the order matters


def test_taking_part_in_every_colour_operation_without_need_changes_nothing(monkeypatch):
    images = some_images(40, 3, 16, 16)
    parameters = draw_parameters(torch.arange(40), EVERYTHING, 16, 16, seed=0, epoch=0, views=range(2))
    views = apply_parameters(images, parameters, EVERYTHING, untouched(3, 16))
    everyone = slice(0, 80)  # what a device does, which cannot look at who needs what without waiting
    monkeypatch.setattr(colour, "_involved", lambda _: ([everyone] * 3, everyone, [everyone] * 3))
    torch.testing.assert_close(
        apply_parameters(images, parameters, EVERYTHING, untouched(3, 16)), views, atol=TOLERANCE, rtol=0
    )


@pytest.mark.parametrize("kernel_size", [1, 3, 5, 9, 15])
def test_blur_agrees_with_torchvision(kernel_size):
    images = some_images(8, 3, 8, 8)
    sigma = [0.1, 0.3, 0.5, 1.0, 1.5, 2.0, 0.0, 7.0]
    config = replace(EVERYTHING, blur_kernel_size=kernel_size)
    if kernel_size < 15:
        assert_like_torchvision(images, plain(8, 8, blur_sigma=sigma), 8, config)
    else:  # the widest allowed kernel: a flat image must stay flat
        views = apply_parameters(images, plain(8, 8, blur_sigma=sigma), config, untouched(3, 8))[0]
        torch.testing.assert_close(views[2:5], images[2:5] / 255, atol=TOLERANCE, rtol=0)


def test_a_kernel_that_reaches_over_the_whole_view_is_refused():
    config = replace(EVERYTHING, blur_kernel_size=17)
    for side in (8, 96):  # made in batches, and one by one
        with pytest.raises(ConfigError, match=r"views\.blur_kernel_size: .* at most 15 .* got 17"):
            apply_parameters(some_images(6, 3, side, side), plain(6, side), config, untouched(3, 8))


def test_normalisation_comes_last_and_agrees_with_torchvision():
    images = some_images(6, 3, 16, 16)
    mean, std = (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)
    parameters = draw_parameters(torch.arange(6), EVERYTHING, 16, 16, seed=0, epoch=0, views=range(1))
    raw = apply_parameters(images, parameters, EVERYTHING, untouched(3, 16))
    normalised = apply_parameters(images, parameters, EVERYTHING, Preprocessing(16, mean, std))
    torch.testing.assert_close(normalised, tv.normalize(raw, list(mean), list(std)), atol=TOLERANCE, rtol=0)

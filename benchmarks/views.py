"""Views per second of one CPU core, for the two-view CIFAR recipe, beside torchvision, lightly and kornia.

    python benchmarks/views.py

Every contestant makes the same kind of views of the same images in the same process, in turn, round after round, on
one thread. Time is CPU time, so that other programs on the machine disturb little. A contestant whose package is not
installed is left out, with a line that says so.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import replace

import torch
from page import write_page
from torch import Tensor

from ebclab.config.sections import ViewsConfig
from ebclab.data.preprocessing import Preprocessing
from ebclab.data.views.pipeline import make_views

SIZE = 32
MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)
CIFAR = ViewsConfig(
    crop_scale_min=0.2,
    flip_rate=0.5,
    jitter_rate=0.8,
    brightness=0.4,
    contrast=0.4,
    saturation=0.4,
    hue=0.1,
    grayscale_rate=0.2,
)
BLURRED = replace(CIFAR, blur_rate=1.0, blur_kernel_size=3)
NOISY = replace(BLURRED, noise_std=0.03)

Contestant = Callable[[Tensor], object]  # makes two views of each of some (n, 3, 32, 32) uint8 images


def ours(config: ViewsConfig, *, channels_last: bool = False) -> Contestant:
    preprocessing = Preprocessing(SIZE, MEAN, STD)

    def run(images: Tensor) -> Tensor:
        keys = torch.arange(len(images))
        return make_views(images, keys, config, preprocessing, seed=0, epoch=0, channels_last=channels_last)

    return run


def torchvision_v2(*, pil: bool) -> Contestant:
    from torchvision.transforms import v2

    c = CIFAR
    to_float = [v2.ToImage()] if pil else []
    transform = v2.Compose(
        [
            v2.RandomResizedCrop(SIZE, (c.crop_scale_min, c.crop_scale_max), (c.crop_ratio_min, c.crop_ratio_max)),
            v2.RandomHorizontalFlip(c.flip_rate),
            v2.RandomApply([v2.ColorJitter(c.brightness, c.contrast, c.saturation, c.hue)], c.jitter_rate),
            v2.RandomGrayscale(c.grayscale_rate),
            *to_float,
            v2.ToDtype(torch.float32, scale=True),
            v2.Normalize(MEAN, STD),
        ]
    )
    prepare = v2.functional.to_pil_image if pil else torch.Tensor.contiguous

    def run(images: Tensor) -> Tensor:
        return torch.stack([transform(prepare(image)) for image in images for _ in range(2)])

    return run


def lightly_simclr() -> Contestant:
    from lightly.transforms import SimCLRTransform
    from torchvision.transforms.v2.functional import to_pil_image

    c = CIFAR
    transform = SimCLRTransform(
        input_size=SIZE,
        cj_prob=c.jitter_rate,
        cj_strength=1.0,
        cj_bright=c.brightness,
        cj_contrast=c.contrast,
        cj_sat=c.saturation,
        cj_hue=c.hue,
        min_scale=c.crop_scale_min,
        random_gray_scale=c.grayscale_rate,
        gaussian_blur=0.0,
        hf_prob=c.flip_rate,
        normalize={"mean": list(MEAN), "std": list(STD)},
    )

    def run(images: Tensor) -> Tensor:
        return torch.stack([view for image in images for view in transform(to_pil_image(image))])

    return run


def kornia_batched() -> Contestant:
    from kornia import augmentation as k

    c = CIFAR
    transform = k.ImageSequential(
        k.RandomResizedCrop((SIZE, SIZE), (c.crop_scale_min, c.crop_scale_max), (c.crop_ratio_min, c.crop_ratio_max)),
        k.RandomHorizontalFlip(p=c.flip_rate),
        k.ColorJitter(c.brightness, c.contrast, c.saturation, c.hue, p=c.jitter_rate),
        k.RandomGrayscale(p=c.grayscale_rate),
        k.Normalize(torch.tensor(MEAN), torch.tensor(STD)),
    )

    def run(images: Tensor) -> list[Tensor]:
        pixels = images.float() / 255
        return [transform(pixels), transform(pixels)]

    return run


# name -> how to make the contestant, and images in one of its rounds
CONTESTANTS: dict[str, tuple[Callable[[], Contestant], int]] = {
    "ebclab": (lambda: ours(CIFAR), 512),
    "ebclab, channels-last result": (lambda: ours(CIFAR, channels_last=True), 512),
    "ebclab, also blur (kernel 3, every image)": (lambda: ours(BLURRED), 512),
    "ebclab, also blur and pixel noise": (lambda: ours(NOISY), 512),
    "torchvision v2, uint8 tensors, image by image": (lambda: torchvision_v2(pil=False), 64),
    "torchvision v2, PIL, image by image": (lambda: torchvision_v2(pil=True), 64),
    "lightly SimCLRTransform, PIL, image by image": (lightly_simclr, 64),
    "kornia, batched": (kornia_batched, 512),
}


def measure(contestants: dict[str, tuple[Contestant, int]], rounds: int) -> dict[str, list[float]]:
    """Return views per CPU second of each contestant in each round, after two rounds of warm-up."""
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (512, 3, SIZE, SIZE), dtype=torch.uint8, generator=generator)
    rates: dict[str, list[float]] = {name: [] for name in contestants}
    for number in range(-2, rounds):
        for name, (contestant, count) in contestants.items():
            contestant(images[:count])  # its memory and its code come back into the cache
            start = time.process_time()
            contestant(images[:count])
            if number >= 0:
                rates[name].append(2 * count / (time.process_time() - start))
    return rates


def table(rates: dict[str, list[float]]) -> str:
    """Return the markdown table."""
    best = statistics.median(rates["ebclab"])
    lines = ["| contestant | views/s, median | slowest to fastest round | ebclab is faster by |", "|---|---|---|---|"]
    for name, values in rates.items():
        median = statistics.median(values)
        lines.append(f"| {name} | {median:,.0f} | {min(values):,.0f} to {max(values):,.0f} | {best / median:.1f}x |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15, help="timed rounds of each contestant")
    rounds: int = parser.parse_args().rounds
    torch.set_num_threads(1)
    contestants = {}
    for name, (make, count) in CONTESTANTS.items():
        try:
            contestants[name] = (make(), count)
        except ImportError as error:
            print(f"left out: {name} ({error})")
    command = f"`python benchmarks/views.py --rounds {rounds}` (one thread; CPU time; two views an image)"
    packages = ("torch", "torchvision", "lightly", "kornia", "pillow")
    write_page("views", "Views per second of one core", command, packages, table(measure(contestants, rounds)))


if __name__ == "__main__":
    main()

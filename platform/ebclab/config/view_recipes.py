"""Named view settings: the papers' own, and ours for the small datasets.

Numbers are those of the authors' published code if there is some. Parameters are drawn per image; if the authors drew
them once for many images, recipes of whole runs that say "as released" do so too with ``views.shared_by``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, NamedTuple

from ebclab.config.sections import ViewsConfig

IDENTITY = {name: value for name, value in asdict(ViewsConfig()).items() if name not in ("recipe", "image_size")}
CROP = {"crop_scale_min": 0.08, "crop_scale_max": 1.0, "crop_ratio_min": 3 / 4, "crop_ratio_max": 4 / 3}
FLIP = {"flip_rate": 0.5}
COLOUR = {**IDENTITY, **CROP, **FLIP, "grayscale_rate": 0.2}
GREY_JITTER = {"jitter_rate": 0.8, "brightness": 0.4, "contrast": 0.4}
WEAK_JITTER = {"jitter_rate": 0.8, "brightness": 0.4, "contrast": 0.4, "saturation": 0.4, "hue": 0.1}
STRONG_JITTER = {"jitter_rate": 0.8, "brightness": 0.8, "contrast": 0.8, "saturation": 0.8, "hue": 0.2}
BYOL = {
    **{"jitter_rate": 0.8, "brightness": 0.4, "contrast": 0.4, "saturation": 0.2, "hue": 0.1},
    **{"blur_rate": 1.0, "second_blur_rate": 0.1, "solarise_rate": 0.0, "second_solarise_rate": 0.2},
}
LARGE = {"image_size": 224, "blur_kernel_size": 23}
BLUR = {"blur_sigma_min": 0.1, "blur_sigma_max": 2.0}
EBCLR = {"noise_std": 0.03, "normalisation": "half"}


class ViewRecipe(NamedTuple):
    """Named view settings."""

    doc: str  # what it is for and where it comes from, one sentence
    # every field of ``ViewsConfig`` except ``recipe``; without ``image_size``, the dataset's own size
    settings: Mapping[str, Any]


VIEW_RECIPES: Mapping[str, ViewRecipe] = {
    "none": ViewRecipe("The unchanged image.", IDENTITY),
    "digits": ViewRecipe(
        "Ours, for 8x8 digits: crops that keep most of the stroke, no flip since digits are not mirror-symmetric.",
        IDENTITY | CROP | GREY_JITTER | {"crop_scale_min": 0.3, "noise_std": 0.05},
    ),
    "fashion-mnist": ViewRecipe(
        "Ours, for 28x28 grey pictures of clothes, which may be mirrored.",
        IDENTITY | CROP | FLIP | GREY_JITTER | {"crop_scale_min": 0.2},
    ),
    "ebclr-mnist": ViewRecipe(
        "EBCLR (Kim & Ye, 2022) on MNIST and Fashion-MNIST, from the authors' code.",
        IDENTITY | CROP | EBCLR,
    ),
    "ebclr-cifar": ViewRecipe(
        "EBCLR (Kim & Ye, 2022) on CIFAR-10 and CIFAR-100, from the authors' code: always blurred.",
        COLOUR | STRONG_JITTER | BLUR | EBCLR | {"blur_rate": 1.0, "blur_kernel_size": 3},
    ),
    "flatclr-cifar": ViewRecipe(
        "FlatCLR (Chen et al., 2021) on CIFAR, from the authors' code: no blur.",
        COLOUR | WEAK_JITTER,
    ),
    "moco-cifar": ViewRecipe(
        "MoCo's official CIFAR-10 demonstration (He et al., 2020): the same numbers as FlatCLR's.",
        COLOUR | WEAK_JITTER,
    ),
    "byol-imagenet": ViewRecipe(
        "BYOL (Grill et al., 2020, appendix B, table 6) on ImageNet: second views are blurred more seldom, and "
        "solarised at times. There, crops are resized bicubically; here, as everywhere, bilinearly and antialiased.",
        COLOUR | BLUR | BYOL | LARGE,
    ),
    "byol-cifar": ViewRecipe(
        "Ours, for CIFAR: BYOL's numbers for ImageNet, with a blur kernel of a tenth of 32 pixels.",
        COLOUR | BLUR | BYOL | {"blur_kernel_size": 3},
    ),
    "simclr-imagenet": ViewRecipe(
        "SimCLR (Chen et al., 2020, appendix A) on ImageNet, strength 1: 224 pixels, a blur kernel of a tenth of that.",
        COLOUR | STRONG_JITTER | BLUR | LARGE | {"blur_rate": 0.5},
    ),
    "moco-imagenet": ViewRecipe(
        "MoCo v2 (Chen et al., 2020, section 3, `--aug-plus` of the authors' code) and SimSiam (appendix A) on "
        "ImageNet: larger crops and weaker colours than SimCLR's. There, Pillow blurs; 23 pixels hold 5.5 sigma.",
        COLOUR | WEAK_JITTER | BLUR | LARGE | {"blur_rate": 0.5, "crop_scale_min": 0.2},
    ),
}

_PHOTOGRAPH = 96  # pixels; from here on views of ImageNet's recipe, which are of 224


def fitting_views(channels: int, height: int, width: int) -> list[str]:
    """Return settings of views that suit images of a given shape, of which nothing else is known."""
    side = min(height, width)
    if side < _PHOTOGRAPH:
        return [f"views.recipe={'flatclr-cifar' if channels > 1 else 'fashion-mnist'}"]
    own = VIEW_RECIPES["simclr-imagenet"].settings["image_size"]
    return ["views.recipe=simclr-imagenet", *([f"views.image_size={side}"] if side < own else [])]


USUAL_VIEWS: Mapping[str, str] = {
    "digits": "digits",
    "mnist": "ebclr-mnist",
    "fashion-mnist": "fashion-mnist",
    "cifar10": "flatclr-cifar",
    "cifar100": "flatclr-cifar",
}
"""The view recipe of ``views.recipe: auto`` for each dataset."""

"""Settings of the methods without negatives, apart from the methods: they are read without torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from energy_contrast.settings import MOST_LAYERS, setting


@dataclass(frozen=True)
class SimsiamConfig:
    """Settings of SimSiam; defaults are those of the released code for ImageNet."""

    projection_size: int = setting(2048, "Size of what is predicted.", unit="dimensions", minimum=1)
    projection_hidden_size: int = setting(
        0, "Size of the projection head's hidden layers; 0 means the projection size.", unit="dimensions", minimum=0
    )
    projection_num_layers: int = setting(
        3,
        "Linear layers of the projection head; 2 in the paper's CIFAR-10 runs.",
        unit="layers",
        minimum=1,
        maximum=MOST_LAYERS,
    )
    projection_scale: bool = setting(
        False,
        "Let the projection's last batch norm learn scale and shift, as in the code released with EBCLR; else 1 and 0.",
    )
    prediction_hidden_size: int = setting(
        512,
        "Size of the predictor's hidden layer; the paper wants a quarter of its input.",
        unit="dimensions",
        minimum=1,
    )
    prediction_rate: Literal["scheduled", "constant"] = setting(
        "scheduled",
        "Learning rate of the predictor. scheduled: that of all weights; constant: always its peak, as in the paper's "
        "later runs and the released code.",
    )


@dataclass(frozen=True)
class ByolConfig:
    """Settings of BYOL; defaults are those of the paper."""

    momentum: float = setting(
        0.996,
        "Share of the target network that the first step keeps; the paper takes 0.99 for 300 epochs, 0.996 for 1,000.",
        minimum=0.0,
        maximum=1.0,
        symbol="tau_base",
    )
    momentum_schedule: Literal["cosine", "constant"] = setting(
        "cosine", "cosine: that share rises to 1 at the end of the run; constant: it stays."
    )
    directions: Literal["sum", "mean"] = setting(
        "sum",
        "The losses of both directions. sum: as in the paper; mean: half of that, and so half the gradient, as in the "
        "code released with EBCLR.",
    )
    target_start: Literal["copy", "own"] = setting(
        "copy",
        "Weights that the target network starts from. copy: those of the online network; own: new ones, as in the "
        "code released with EBCLR.",
    )
    projection_size: int = setting(256, "Size of what is predicted.", unit="dimensions", minimum=1)
    projection_hidden_size: int = setting(
        4096, "Size of the hidden layers of projection head and predictor.", unit="dimensions", minimum=1
    )


@dataclass(frozen=True)
class VicregConfig:
    """Settings of VICReg; the weights are those of the paper."""

    invariance: float = setting(25.0, "Weight of the distance between views.", minimum=0.0, symbol="lambda")
    variance: float = setting(25.0, "Weight of dimensions that spread too little.", minimum=0.0, symbol="mu")
    covariance: float = setting(1.0, "Weight of dimensions that vary together.", minimum=0.0, symbol="nu")
    projection_size: int = setting(
        2048, "Size of the vectors that are compared; 8192 in the paper.", unit="dimensions", minimum=2
    )
    projection_hidden_size: int = setting(
        0, "Size of the projection head's hidden layers; 0 means the projection size.", unit="dimensions", minimum=0
    )
    projection_num_layers: int = setting(
        3, "Linear layers of the projection head.", unit="layers", minimum=1, maximum=MOST_LAYERS
    )


@dataclass(frozen=True)
class BarlowConfig:
    """Settings of Barlow Twins."""

    redundancy_weight: float = setting(
        0.0051,
        "Weight of correlations between dimensions: that of the released code; 0.005 in the paper.",
        minimum=0.0,
        symbol="lambda",
    )
    projection_size: int = setting(
        2048, "Size of the vectors that are compared; 8192 in the paper.", unit="dimensions", minimum=2
    )
    projection_hidden_size: int = setting(
        0, "Size of the projection head's hidden layers; 0 means the projection size.", unit="dimensions", minimum=0
    )
    projection_num_layers: int = setting(
        3, "Linear layers of the projection head.", unit="layers", minimum=1, maximum=MOST_LAYERS
    )


@dataclass(frozen=True)
class LejepaConfig:
    """Settings of LeJEPA."""

    regularizer: Literal["sigreg", "visreg"] = setting(
        "sigreg",
        "What holds projections apart. sigreg: LeJEPA's; visreg: VISReg's, which collapse does not mute.",
    )
    regularizer_weight: float = setting(
        0.05,
        "Weight of the regularizer; that of agreement is 1 minus it. VISReg's paper has 0.6 for small sets, 0.9 else.",
        minimum=0.0,
        maximum=1.0,
        symbol="lambda",
    )
    num_slices: int = setting(
        1024, "Random directions along which projections are looked at, new in each step.", unit="directions", minimum=1
    )
    num_knots: int = setting(
        17, "Points at which sigreg's integral is evaluated, both ends included.", unit="points", minimum=2
    )
    largest_frequency: float = setting(3.0, "Where sigreg's integral ends.", unit="1/length", above=0.0)
    num_views: int = setting(2, "Views of each image.", unit="views", minimum=2)
    projection_size: int = setting(128, "Size of the vectors that are spread.", unit="dimensions", minimum=1)
    projection_hidden_size: int = setting(
        0, "Size of the projection head's hidden layers; 0 means the embedding size.", unit="dimensions", minimum=0
    )
    projection_num_layers: int = setting(
        3, "Linear layers of the projection head.", unit="layers", minimum=1, maximum=MOST_LAYERS
    )

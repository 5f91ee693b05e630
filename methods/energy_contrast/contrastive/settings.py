"""Settings of the contrastive methods, apart from the methods: they are read without torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from energy_contrast.settings import MOST_LAYERS, EssConfig, TemperatureConfig, setting


@dataclass(frozen=True)
class PairConfig(TemperatureConfig):
    """Settings of every method that compares views of a batch in pairs."""

    projection_size: int = setting(128, "Size of the vectors that the loss compares.", unit="dimensions", minimum=1)
    projection_hidden_size: int = setting(
        0, "Size of the projection head's hidden layer; 0 means the embedding size.", unit="dimensions", minimum=0
    )
    projection_batch_norm: bool = setting(False, "Batch norm in the projection head's hidden layer.")
    spread_weight: float = setting(
        0.0,
        "Weight of the spread of negatives' similarities, which VRNS adds to the loss, there 30; 0 leaves it out.",
        minimum=0.0,
        symbol="lambda",
    )


@dataclass(frozen=True)
class ControlledPairConfig(EssConfig, PairConfig):
    """Settings of a pair method whose temperature may be controlled by the effective sample size."""


Objective = Literal["infonce", "flatnce", "donsker-varadhan", "fenchel-legendre", "nwj", "temperature-free"]


@dataclass(frozen=True)
class SimclrConfig(ControlledPairConfig):
    """Settings of SimCLR."""

    objective: Objective = setting(
        "infonce",
        "Loss. infonce: SimCLR's; flatnce, donsker-varadhan, fenchel-legendre and nwj: other bounds on mutual "
        "information, of which all but nwj have the gradient of dcl; temperature-free: infonce of log-odds, without a "
        "temperature.",
    )

    def problems(self) -> list[str]:
        """Return what is wrong across fields, one sentence each, empty when all is well."""
        found = super().problems()
        reasons = {
            "nwj": "with nwj the temperature sets the values of the critic too",
            "temperature-free": "temperature-free has no temperature",
        }
        if self.ess_target and self.objective in reasons:
            found.append(
                f"ess_target: {reasons[self.objective]}, got {self.ess_target}; leave it out, or take another objective"
            )
        return found


@dataclass(frozen=True)
class MocoConfig(EssConfig):
    """Settings of MoCo v2."""

    temperature: float = setting(0.1, "Divides cosine similarities; 0.07 to 0.2 are usual.", above=0.0, symbol="tau")
    queue_size: int = setting(4096, "Keys of earlier batches that serve as negatives.", unit="keys", minimum=1)
    momentum: float = setting(
        0.99,
        "Share of the key network that a step keeps; the rest is the query network.",
        minimum=0.0,
        maximum=1.0,
        symbol="m",
    )
    symmetric: bool = setting(False, "Let both views be query and key in turn; twice the passes, twice the keys.")
    batch_norm_groups: int = setting(
        8,
        "Groups of the global batch that batch norm normalises apart, keys in shuffled order; 1 means no groups.",
        unit="groups",
        minimum=1,
    )
    projection_size: int = setting(128, "Size of the vectors that the loss compares.", unit="dimensions", minimum=1)
    projection_hidden_size: int = setting(
        0, "Size of the projection head's hidden layers; 0 means the embedding size.", unit="dimensions", minimum=0
    )
    projection_num_layers: int = setting(
        2, "Linear layers of the projection head.", unit="layers", minimum=1, maximum=MOST_LAYERS
    )


@dataclass(frozen=True)
class FlatclrConfig(ControlledPairConfig):
    """Settings of FlatCLR: those of SimCLR, the variant of the loss, and the rule that moves the temperature."""

    include_positive: bool = setting(
        False, "Count the positive among the candidates (eq. 7): the gradient is then that of InfoNCE."
    )
    hoelder_exponent: float = setting(
        1.0,
        "Of the mean over negatives in Hoelder-FlatNCE; 1 is FlatNCE. Any other is FlatNCE at temperature / exponent, "
        "its gradient divided by the exponent; 0, the geometric mean, weighs negatives alike, below 0 easy ones most.",
    )
    ess_rule: Literal["corrected", "printed"] = setting(
        "corrected", "printed: the paper's listing, whose sign drives the effective sample size off the target."
    )

    def problems(self) -> list[str]:
        """Return what is wrong across fields, one sentence each, empty when all is well."""
        found = super().problems()
        if self.ess_target and self.hoelder_exponent != 1:
            found.append(
                "hoelder_exponent: is a factor of the temperature, which ess_target moves already, got "
                f"{self.hoelder_exponent}; leave one of the two out"
            )
        if not self.ess_target and self.ess_rule != "corrected":
            found.append(f"ess_rule: has no effect without a target, got {self.ess_rule}; set ess_target too")
        return found


@dataclass(frozen=True)
class DclConfig(ControlledPairConfig):
    """Settings of DCL: those of SimCLR, and the weights of positives."""

    weighting: Literal["none", "von-mises-fisher"] = setting(
        "none", "Weights of the positives. von-mises-fisher: more for views that differ more, the paper's DCLW."
    )
    weighting_sigma: float = setting(
        0.5, "Divides similarities in von-mises-fisher's weights.", above=0.0, symbol="sigma"
    )


@dataclass(frozen=True)
class DhelConfig(ControlledPairConfig):
    """Settings of DHEL: those of SimCLR, and the kernel form."""

    objective: Literal["energy", "kernel"] = setting(
        "energy", "energy: the paper's DHEL, with the temperature; kernel: its KCL, with a Gaussian kernel instead."
    )
    kernel_sharpness: float = setting(2.0, "Of the Gaussian kernel exp(-t |u - v|^2).", above=0.0, symbol="t")
    kernel_repulsion: float = setting(16.0, "Weight of the images that repel, kernel only.", above=0.0, symbol="gamma")

    def problems(self) -> list[str]:
        """Return what is wrong across fields, one sentence each, empty when all is well."""
        found = super().problems()
        if self.ess_target and self.objective == "kernel":
            found.append(
                f"ess_target: the kernel form has no temperature, got {self.ess_target}; leave it out, or set "
                "objective=energy"
            )
        return found


@dataclass(frozen=True)
class SogclrConfig(PairConfig):
    """Settings of SogCLR: those of SimCLR, and how fast running means forget."""

    update_rate: float = setting(
        0.9,
        "Share of the present batch in an image's running mean; 1 forgets all earlier ones, which is DCL.",
        above=0.0,
        maximum=1.0,
        symbol="gamma",
    )

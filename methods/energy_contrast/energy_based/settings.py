"""Settings of the energy-based methods, apart from the methods: they are read without torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from energy_contrast.settings import setting


@dataclass(frozen=True)
class JemConfig:
    """Settings of JEM; defaults are those of the paper."""

    variant: Literal["plain", "plusplus", "sada"] = setting(
        "plain",
        "plusplus: clamped gradients, chains begin like images of a class; sada: also flat minima, and energies are "
        "learnt from second views.",
    )
    generative_weight: float = setting(1.0, "Weight of log p(x) beside log p(y|x).", minimum=0.0)
    num_steps: int = setting(20, "Langevin steps of a chain.", unit="steps", minimum=1, symbol="eta")
    step_size: float = setting(1.0, "Multiplies the gradient by the pixels.", above=0.0, symbol="alpha")
    noise_std: float = setting(
        0.01, "Standard deviation of the noise of a step.", unit="pixel values", minimum=0.0, symbol="sigma"
    )
    input_noise: float = setting(
        0.03, "Standard deviation of the noise that is added to views.", unit="pixel values", minimum=0.0
    )
    gradient_clamp: float = setting(
        1.0,
        "Largest absolute value of a pixel's gradient, plusplus and sada only.",
        unit="1/pixel value",
        above=0.0,
        symbol="epsilon",
    )
    chain_gradient: Literal["full", "first-layer"] = setting(
        "full",
        "first-layer, plusplus and sada only: between full gradients, chains move through the first layer alone.",
    )
    num_inner_steps: int = setting(1, "Steps for each full gradient, with first-layer.", unit="steps", minimum=1)
    sharpness_radius: float = setting(
        0.05, "How far all weights are moved uphill before the gradient is taken, sada only.", minimum=0.0
    )
    reinit_rate: float = setting(0.05, "Chance that a chain restarts.", minimum=0.0, maximum=1.0, symbol="rho")
    buffer_size: int = setting(10_000, "Images of the replay buffer.", unit="images", minimum=1)
    buffer_dtype: Literal["float32", "half", "uint8"] = setting(
        "float32", "How the replay buffer holds pixels; uint8 cuts far outliers and rounds to 256 levels."
    )
    buffer_device: Literal["same", "cpu"] = setting("same", "Where the replay buffer lives: with the network, or not.")
    chain_precision: Literal["float32", "bfloat16"] = setting("float32", "bfloat16 runs the chains under autocast.")

    def problems(self) -> list[str]:
        """Return what is wrong across fields, one sentence each, empty when all is well."""
        found = []
        if self.variant == "plain" and self.chain_gradient != "full":
            found.append(f"chain_gradient: plain takes full gradients, got {self.chain_gradient}; set variant=plusplus")
        return found + inner_step_problems(self)


@dataclass(frozen=True)
class EbclrConfig:
    """Settings of EBCLR; defaults are those of the released code for CIFAR."""

    temperature: float = setting(
        0.1, "Divides squared distances of unit vectors; half of it divides cosines.", above=0.0, symbol="tau"
    )
    generative_weight: float = setting(0.1, "Weight of the generative term.", minimum=0.0, symbol="lambda")
    discriminative: Literal["symmetric", "one-sided"] = setting(
        "symmetric", "Anchors are both views, as in the released code, or the first views only, as in eq. 18."
    )
    references: Literal["second-views", "both-views"] = setting(
        "second-views", "What images are compared with in their energy: eq. 17, or both views without itself, eq. 15."
    )
    output_penalty: Literal["sum", "mean", "none"] = setting(
        "sum", "Squared lengths of projections, summed over images as in the released code, or their mean over images."
    )
    output_penalty_weight: float = setting(1e-3, "Weight of the output penalty in the generative term.", minimum=0.0)
    num_steps: int = setting(10, "Langevin steps of a chain.", unit="steps", minimum=1, symbol="T")
    step_size: float = setting(0.05, "Multiplies the clamped gradient by the pixels.", above=0.0, symbol="alpha")
    gradient_clamp: float = setting(
        1.0, "Largest absolute value of a pixel's gradient.", unit="1/pixel value", above=0.0, symbol="delta"
    )
    sigma_min: float = setting(0.01, "Noise of chains started K times or more.", unit="pixel values", minimum=0.0)
    sigma_max: float = setting(0.05, "Noise of chains never started before.", unit="pixel values", minimum=0.0)
    noise_decay_count: int = setting(3, "Starts after which the noise is sigma_min.", minimum=1, symbol="K")
    reinit_rate: float = setting(0.2, "Share of chains that restart.", minimum=0.0, maximum=1.0, symbol="rho")
    reinit_draw: Literal["with-replacement", "without-replacement", "each"] = setting(
        "with-replacement",
        "Which chains restart: rho B are drawn with replacement (released code; 63 % of all at rho 1) or without, "
        "or each with probability rho (as printed).",
    )
    first_count: Literal["above-decay", "zero"] = setting(
        "above-decay", "Starts that the buffer's first images count: K + 2 as in the released code, or 0 as printed."
    )
    uniform_rate: float = setting(
        0.0, "Chance that a new start is uniform pixels instead of a view of an image.", minimum=0.0, maximum=1.0
    )
    buffer_size: int = setting(50_000, "Images of the replay buffer.", unit="images", minimum=1)
    buffer_dtype: Literal["float32", "half", "uint8"] = setting(
        "float32", "How the replay buffer holds pixels; uint8 cuts far outliers and rounds to 256 levels."
    )
    buffer_device: Literal["same", "cpu"] = setting("same", "Where the replay buffer lives: with the network, or not.")
    chain_precision: Literal["float32", "bfloat16"] = setting("float32", "bfloat16 runs the chains under autocast.")
    chain_gradient: Literal["full", "first-layer"] = setting(
        "full", "first-layer: between full gradients, chains move through the encoder's first layer only."
    )
    num_inner_steps: int = setting(1, "Steps for each full gradient, with first-layer.", unit="steps", minimum=1)
    projection_size: int = setting(128, "Size of the vectors that are compared.", unit="dimensions", minimum=1)
    projection_hidden_size: int = setting(
        0, "Size of the projection head's hidden layer; 0 means the embedding size.", unit="dimensions", minimum=0
    )

    def problems(self) -> list[str]:
        """Return what is wrong across fields, one sentence each, empty when all is well."""
        found = []
        if self.sigma_min > self.sigma_max:
            found.append(f"sigma_min: must not exceed sigma_max, got {self.sigma_min:g} > {self.sigma_max:g}")
        return found + inner_step_problems(self)


@dataclass(frozen=True)
class VemConfig:
    """Settings that all forms of VEM share."""

    temperature: float = setting(0.12, "Divides cosine similarities in the loss.", above=0.0, symbol="tau")
    bank_temperature: float = setting(
        0.02, "Divides cosine similarities in the energy that the bank samples.", above=0.0, symbol="tau_bank"
    )
    num_steps: int = setting(10, "Moves of the bank in a training step.", unit="moves", minimum=1, symbol="eta")
    key_encoder: Literal["momentum", "shared"] = setting(
        "momentum",
        "Which network embeds the keys. momentum: a slowly moving copy of the query network, without gradient; shared: "
        "the query network itself, with gradient, as in the paper's listing; it collapses if views differ as much as "
        "images do.",
    )
    key_momentum: float = setting(
        0.99, "Share of the momentum key network that a step keeps.", minimum=0.0, maximum=1.0, symbol="m"
    )
    projection_size: int = setting(128, "Size of the vectors that the loss compares.", unit="dimensions", minimum=1)
    projection_hidden_size: int = setting(
        0, "Size of the projection head's hidden layer; 0 means the embedding size.", unit="dimensions", minimum=0
    )


@dataclass(frozen=True)
class VemBankConfig(VemConfig):
    """Settings that both samplers of unit vectors share."""

    bank_size: int = setting(4096, "Particles of the bank, the negatives of every query.", unit="particles", minimum=2)
    bank_init: Literal["from_features", "random"] = setting(
        "from_features", "from_features: the untrained network's, of training views; random: directions spread evenly."
    )
    step_size: float = setting(1.0, "Length of the first move of a training step.", above=0.0, symbol="alpha")
    step_schedule: Literal["inverse", "constant"] = setting(
        "inverse", "Step size of move i. inverse: alpha / i; constant: alpha."
    )
    bank_schedule: Literal["constant", "cosine"] = setting(
        "constant", "Step size over the run. constant: alpha; cosine: from alpha to 0, the paper's appendix D."
    )
    bank_momentum: float = setting(
        0.0,
        "Share of its velocity that a particle keeps from move to move and from step to step; 0.9 in appendix D. Moves "
        "become 1 / (1 - momentum) times as long.",
        minimum=0.0,
        below=1.0,
        symbol="mu",
    )
    bank_weight_decay: float = setting(
        0.0, "Pulls particles towards 0 before they are made unit vectors again; 1e-4 in appendix D.", minimum=0.0
    )
    update: Literal["calibrated", "printed"] = setting(
        "calibrated",
        "printed: the paper's update to the letter, a control; with its step size, 1, see docs/methods/vem.md.",
    )


@dataclass(frozen=True)
class VemLangevinConfig(VemBankConfig):
    """Settings of VEM with Langevin dynamics."""

    step_size: float = setting(
        0.01, "Length of the first move of a training step, in units of its direction.", above=0.0, symbol="alpha"
    )
    noise_intensity: float = setting(
        0.03, "Scales the noise of a move: the bank's temperature is its square.", minimum=0.0, symbol="epsilon"
    )
    noise_schedule: Literal["step", "constant"] = setting(
        "step", "Standard deviation of the noise of move i. step: epsilon sqrt(2 alpha_i); constant: epsilon."
    )

    def problems(self) -> list[str]:
        """Return what is wrong across fields, one sentence each, empty when all is well."""
        if self.update == "printed" and self.noise_schedule != "step":
            return [
                "noise_schedule: the listing, update=printed, draws its noise by the step alone, "
                f"got {self.noise_schedule}; leave it out, or set update=calibrated and step_size to the listing's "
                "divided by the batch size, which is the listing's drift"
            ]
        return []


@dataclass(frozen=True)
class VemSvgdConfig(VemBankConfig):
    """Settings of VEM with Stein variational gradient descent."""

    bank_size: int = setting(
        1024,
        "Particles of the bank, the negatives of every query; the rbf kernel's time grows with the square.",
        unit="particles",
        minimum=2,
    )
    kernel: Literal["rbf", "linear"] = setting(
        "rbf", "How particles share gradients. rbf: they repel each other; linear: the listing's, faster, no repulsion."
    )


@dataclass(frozen=True)
class VemImageConfig(VemConfig):
    """Settings of VEM with a bank of images."""

    bank_size: int = setting(
        4096, "Images of the bank, of which as many as the batch has move in a step.", unit="images", minimum=2
    )
    bank_init: Literal["views", "uniform"] = setting(
        "views", "What the bank and new chains begin with. views: views of training images; uniform: uniform pixels."
    )
    reinit_rate: float = setting(0.0, "Share of a step's chains that restart.", minimum=0.0, maximum=1.0, symbol="rho")
    step_size: float = setting(0.05, "Multiplies the clamped gradient of the energy.", above=0.0, symbol="alpha")
    gradient_clamp: float = setting(
        1.0, "Largest absolute value of a pixel's gradient.", unit="1/pixel value", above=0.0, symbol="delta"
    )
    noise_std: float = setting(
        0.01, "Standard deviation of the noise of a move.", unit="pixel values", minimum=0.0, symbol="sigma"
    )


def inner_step_problems(config: JemConfig | EbclrConfig) -> list[str]:
    """Return what is wrong with the steps for each full gradient, one sentence each, empty when all is well.

    Source: ours.
    """
    found = []
    if config.chain_gradient == "full" and config.num_inner_steps > 1:
        found.append(
            f"num_inner_steps: has no effect with full gradients, got {config.num_inner_steps}; "
            "set chain_gradient=first-layer too"
        )
    if config.num_steps % config.num_inner_steps:
        found.append(f"num_inner_steps: must divide num_steps = {config.num_steps}, got {config.num_inner_steps}")
    return found

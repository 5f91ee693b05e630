"""The constants that a method starts from, each with where it comes from."""

from typing import Any

import pytest

from energy_contrast.catalog import METHODS

OURS = {"temperature": 0.2, "ess_target": 0.0, "projection_size": 128, "spread_weight": 0.0}
"""Ours, for all methods that compare pairs, which differ in the loss alone. SimCLR's paper has a temperature of 0.5
(appendix B.9), released code of FlatCLR, DCL and SogCLR 0.1."""

VEM = {"temperature": 0.12, "bank_temperature": 0.02, "num_steps": 10, "key_encoder": "momentum", "key_momentum": 0.99}
"""Of VEM's text, but for the momentum key network, which is ours with the momentum of MoCo's notebook."""

CONSTANTS: dict[str, dict[str, Any]] = {
    "simclr": OURS | {"objective": "infonce", "projection_batch_norm": False},  # arXiv:2002.05709, algorithm 1
    "flatclr": OURS | {"include_positive": False, "hoelder_exponent": 1.0},  # arXiv:2107.01152, eq. 6
    "dcl": OURS | {"weighting": "none", "weighting_sigma": 0.5},  # arXiv:2110.06848; sigma of public implementations
    "dhel": OURS | {"kernel_sharpness": 2.0, "kernel_repulsion": 16.0},  # arXiv:2405.18045: t and gamma of KCL
    # as above; gamma of the released code
    "sogclr": {"temperature": 0.2, "projection_size": 128, "spread_weight": 0.0, "update_rate": 0.9},
    # the authors' CIFAR-10 notebook (branch colab-notebook of facebookresearch/moco)
    "moco": {
        "temperature": 0.1,
        "queue_size": 4096,
        "momentum": 0.99,
        "batch_norm_groups": 8,
        "symmetric": False,
        "projection_size": 128,
    },
    # arXiv:2006.07733, section 3.2 and 3.3
    "byol": {
        "momentum": 0.996,
        "momentum_schedule": "cosine",
        "directions": "sum",
        "target_start": "copy",
        "projection_size": 256,
        "projection_hidden_size": 4096,
    },
    # arXiv:2011.10566, section 3, and the released code for ImageNet
    "simsiam": {
        "projection_size": 2048,
        "projection_num_layers": 3,
        "projection_scale": False,
        "prediction_hidden_size": 512,
        "prediction_rate": "scheduled",  # ours: constant in the released code
    },
    # arXiv:2105.04906, section 4: lambda = mu = 25, nu = 1, three layers; its projections have 8192 numbers, ours 2048
    "vicreg": {
        "invariance": 25.0,
        "variance": 25.0,
        "covariance": 1.0,
        "projection_num_layers": 3,
        "projection_size": 2048,
    },
    # the code released with arXiv:2103.03230, whose text has lambda = 0.005; projections have 8192 numbers there
    "barlow": {
        "redundancy_weight": 0.0051,
        "projection_num_layers": 3,
        "projection_hidden_size": 0,
        "projection_size": 2048,
    },
    # arXiv:2511.08544: slices, knots and the integral's end; weight and head are ours
    "lejepa": {
        "regularizer": "sigreg",
        "regularizer_weight": 0.05,
        "num_slices": 1024,
        "num_knots": 17,
        "largest_frequency": 3.0,
        "num_views": 2,
        "projection_size": 128,
        "projection_num_layers": 3,
    },
    # arXiv:2004.11362: SupCon's temperature
    "supervised": {"objective": "cross-entropy", "label_smoothing": 0.0, "temperature": 0.1, "projection_size": 128},
    # the code released with arXiv:1912.03263
    "jem": {
        "variant": "plain",
        "generative_weight": 1.0,
        "num_steps": 20,
        "step_size": 1.0,
        "noise_std": 0.01,
        "input_noise": 0.03,
        "reinit_rate": 0.05,
        "buffer_size": 10_000,
    },
    # the code released with arXiv:2202.04933, for CIFAR
    "ebclr": {
        "temperature": 0.1,
        "generative_weight": 0.1,
        "discriminative": "symmetric",
        "references": "second-views",
        "output_penalty": "sum",
        "output_penalty_weight": 1e-3,
        "num_steps": 10,
        "step_size": 0.05,
        "gradient_clamp": 1.0,
        "sigma_min": 0.01,
        "sigma_max": 0.05,
        "noise_decay_count": 3,
        "reinit_rate": 0.2,
        "uniform_rate": 0.0,
        "buffer_size": 50_000,
        "projection_size": 128,
        "projection_hidden_size": 0,
    },
    # ours, as the listing's drift has a factor 1/N: a step size of 0.01, not 1; noise scaled by 0.03
    "vem-langevin": VEM | {"bank_size": 4096, "step_size": 0.01, "noise_intensity": 0.03, "update": "calibrated"},
    # ours: 1,024 particles, not 4,096, and the kernel of eq. 9, not of the listing
    "vem-svgd": VEM | {"bank_size": 1024, "step_size": 1.0, "kernel": "rbf", "update": "calibrated"},
    # step size, clamp and noise of EBCLR's chains; the size of the bank is ours, 128 in VEM's appendix E.5
    "vem-image": VEM | {"bank_size": 4096, "step_size": 0.05, "gradient_clamp": 1.0, "noise_std": 0.01},
}


def test_every_method_of_a_paper_has_its_constants_here() -> None:
    assert set(CONSTANTS) == {name for name, method in METHODS.items() if method.paper}


@pytest.mark.parametrize("name", CONSTANTS)
def test_a_method_starts_from_the_constants_of_its_source_or_from_ours_where_said(name: str) -> None:
    config = METHODS[name].Config()
    assert {field: getattr(config, field) for field in CONSTANTS[name]} == CONSTANTS[name]

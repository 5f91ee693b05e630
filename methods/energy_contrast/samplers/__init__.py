"""How points move: every sampler is a pair of pure functions, ``init`` and ``step``."""

from energy_contrast.samplers.compiled import compiled
from energy_contrast.samplers.langevin import Staged, multistage_noise, multistage_sgld, proximal_sgld
from energy_contrast.samplers.particles import feature_langevin, svgd
from energy_contrast.samplers.sampler import Sampler, SamplerInfo, SamplerState

__all__ = [
    "Sampler",
    "SamplerInfo",
    "SamplerState",
    "Staged",
    "compiled",
    "feature_langevin",
    "multistage_noise",
    "multistage_sgld",
    "proximal_sgld",
    "svgd",
]

"""Experiment platform for energy-based and contrastive self-supervised learning of visual encoders.

    config = ebclab.compose("flatclr", recipe="digits-demo")
    run = ebclab.pretrain(config, runs="runs")
    scores = ebclab.evaluate(run.path)
    encoder, preprocessing, info = ebclab.load_encoder("exported")

The names are imported when they are first used, so that ``import ebclab`` costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ebclab.config import ExperimentConfig, compose
    from ebclab.data.image_set import ImageSet
    from ebclab.export import load_encoder
    from ebclab.runs.evaluate import evaluate_run as evaluate
    from ebclab.sweeps.make_plan import make_plan
    from ebclab.sweeps.sweep import sweep
    from ebclab.training.pretrain import pretrain

__all__ = ["ExperimentConfig", "ImageSet", "compose", "evaluate", "load_encoder", "make_plan", "pretrain", "sweep"]

_HOMES = {
    "ExperimentConfig": ("ebclab.config", "ExperimentConfig"),
    "ImageSet": ("ebclab.data.image_set", "ImageSet"),
    "compose": ("ebclab.config", "compose"),
    "evaluate": ("ebclab.runs.evaluate", "evaluate_run"),
    "load_encoder": ("ebclab.export", "load_encoder"),
    "make_plan": ("ebclab.sweeps.make_plan", "make_plan"),
    "pretrain": ("ebclab.training.pretrain", "pretrain"),
    "sweep": ("ebclab.sweeps.sweep", "sweep"),
}


def __getattr__(name: str) -> Any:
    """Import a public name on first use (PEP 562)."""
    if name not in _HOMES:
        raise AttributeError(f"module 'ebclab' has no attribute {name!r}; it has {', '.join(__all__)}")
    module, attribute = _HOMES[name]
    return getattr(import_module(module), attribute)

"""The message about a setting that does not exist, with a hint: a paper's symbol, jargon, or the nearest name."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import Field
from typing import Any

from ebclab.config.addresses import shortened
from ebclab.config.names import nearest

Known = Mapping[str, Mapping[str, Field[Any]]]
"""The settings of each section by name."""

SYMBOLS: Mapping[str, tuple[str, ...]] = {
    "tau": ("temperature", "bank_temperature"),
    "lambda": ("generative_weight",),
    "rho": ("reinit_rate",),
    "sigma": ("sigma_min", "sigma_max"),
    "alpha": ("step_size",),
    "delta": ("gradient_clamp",),
    "K": ("noise_decay_count",),
    "T": ("num_steps",),
    "M": ("queue_size", "bank_size", "buffer_size"),
    "ESS": ("ess_target",),
}
"""The papers' symbols and our names for them; a field's own ``symbol`` comes first."""

JARGON: Mapping[str, str] = {
    "lam": "method.generative_weight",
    "temp": "method.temperature",
    "memory_size": "method.queue_size method.bank_size method.buffer_size",
    "proj_dim": "method.projection_size",
    "out_dim": "method.projection_size",
    "projection_dim": "method.projection_size",
    "dataset": "data.name",
    "data_root": "data.root",
    "data_dir": "data.root",
    "val_split": "data.holdout_rate",
    "augmentation": "views.recipe",
    "augmentations": "views.recipe",
    "transforms": "views.recipe",
    "backbone": "encoder.name",
    "pretrained": "init.weights",
    "checkpoint": "init.weights",
    "arch": "encoder.name",
    "model": "encoder.name",
    "lr": "optimizer.learning_rate",
    "base_lr": "optimizer.learning_rate",
    "wd": "optimizer.weight_decay",
    "betas": "optimizer.beta1 optimizer.beta2",
    "accumulation_steps": "training.accumulate",
    "gradient_accumulation_steps": "training.accumulate",
    "accumulate_grad_batches": "training.accumulate",
    "grad_clip": "optimizer.clip_norm",
    "max_grad_norm": "optimizer.clip_norm",
    "warmup": "optimizer.warmup_epochs",
    "scheduler": "optimizer.schedule",
    "lr_schedule": "optimizer.schedule",
    "bs": "training.batch_size",
    "num_epochs": "training.epochs",
    "max_epochs": "training.epochs",
    "ema": "training.average_weights",
    "ema_decay": "training.average_weights",
    "amp": "training.precision",
    "fp16": "training.precision",
    "bf16": "training.precision",
    "knn_k": "evaluation.knn_neighbours",
    "gpu": "resources.device",
    "gpus": "resources.device resources.workers",
    "num_gpus": "resources.device resources.workers",
    "num_workers": "resources.workers",
    "num_threads": "resources.threads",
    "random_seed": "seed",
}
"""Words of other tools, and our keys for them."""


def settings_meant(word: str, known: Known) -> list[str]:
    """Return the keys of the settings that a word may mean: its own name in some section, jargon, a paper's symbol."""
    exact = [f"{section}.{word}" for section, settings in known.items() if word in settings]
    methods = {name for names in SYMBOLS.values() for name in names}
    symbol = [f"method.{name}" for name in SYMBOLS.get(word, (word,) if word in methods else ())]
    return exact or symbol or JARGON.get(word.lower(), "").split()


def unknown_setting(section: str, name: str, known: Known, method_name: str) -> str:
    """Return the line about a key that does not exist.

    Args:
        section: The section that contains it; empty at the top.
        name: The key as written.
        known: Every section with its settings; ``method`` holds those of the chosen method.
    """
    key = f"{section}.{name}" if section else name
    hint = (
        _symbol_hint(section, name, known, method_name)
        or _elsewhere_hint(name, known)
        or _near_hint(section, name, known)
        or _list_hint(section, known)
    )
    return f"{shortened(key)}: no such setting; {hint}"


def _symbol_hint(section: str, name: str, known: Known, method_name: str) -> str | None:
    if section not in ("", "method") or "method" not in known:
        return None
    own = known["method"]
    declared = [field for field in own if own[field].metadata.get("symbol") == name]
    meant = declared or [field for field in SYMBOLS.get(name, ()) if field in own]
    if meant:
        return f"did you mean {_alternatives([f'method.{field}' for field in meant])} ({name} in the paper)?"
    if name in SYMBOLS:
        keys = _alternatives([f"method.{field}" for field in SYMBOLS[name]])
        return f"{name} in the papers is {keys}, which {method_name} does not have; {_list_hint('method', known)}"
    return None


def _elsewhere_hint(name: str, known: Known) -> str | None:
    """Return a hint if ``name``, or our name for it if it is jargon, is a setting of some section."""
    keys = [key for key in settings_meant(name, known) if _exists(key, known)]
    return f"did you mean {_alternatives(keys)}?" if keys else None


def _near_hint(section: str, name: str, known: Known) -> str | None:
    """Return a hint if a setting of the same section, or else of another one, has a similar name."""
    top = [*known, "seed"]
    close = nearest(name, known.get(section, {}) if section else top)
    if close:
        return f"did you mean {section}.{close}?" if section else f"did you mean {close}?"
    everywhere = {setting: other for other in reversed(list(known)) for setting in known[other]}
    close = nearest(name, everywhere, cutoff=0.8)
    return f"did you mean {everywhere[close]}.{close}?" if close else None


def _list_hint(section: str, known: Known) -> str:
    names: Collection[str] = known[section] if section else [*known, "seed"]
    return f"settings {f'of {section}' if section else 'at the top'}: {', '.join(names)}"


def _exists(key: str, known: Known) -> bool:
    section, _, name = key.partition(".")
    return name in known.get(section, {}) if name else True


def _alternatives(keys: list[str]) -> str:
    return " or ".join(keys)

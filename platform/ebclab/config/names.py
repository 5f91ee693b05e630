"""Suggestions for a name that does not exist, such as that of a setting, and the check of a folder's name."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import Field
from difflib import get_close_matches
from os.path import isdir
from pathlib import Path
from shlex import quote
from typing import Any

from ebclab.config.addresses import LOCATIONS, shortened
from ebclab.errors import UserError

CLOSE_ENOUGH = 0.6  # smallest difflib ratio of two names that are considered similar
LONGEST_NAME = 200
"""Longest name of a folder, bytes: file systems allow 255, and a folder has a longer name while it is being made."""


def nearest(name: str, names: Iterable[str], cutoff: float = CLOSE_ENOUGH) -> str | None:
    """Return the one of ``names`` that is most similar to ``name``, ignoring case, or None if none is similar.

    Args:
        cutoff: Smallest similarity, from 0 (anything) to 1 (equal).
    """
    by_lower = {known.lower(): known for known in names}
    close = get_close_matches(name.lower(), by_lower, n=1, cutoff=cutoff)
    return by_lower[close[0]] if close else None


def did_you_mean(name: str, names: Iterable[str], repeat: str | None = None) -> str:
    """Return the end of an error message: ``did you mean X? Known: a, b, c``; no question if none is similar.

    Args:
        repeat: The option where it takes one name at a time, and is repeated; empty: an argument.
    """
    known = list(names)
    if repeat is not None and {part.strip() for part in name.split(",")} <= {*known}:
        return f"write {repeated(name, repeat)}"
    close = nearest(name, known)
    question = f"did you mean {close}? " if close else ""
    return f"{question}{'Known' if close else 'known'}: {', '.join(known) or 'none'}"


def repeated(text: str, option: str) -> str:
    """Return names separated by commas as an option takes them: ``--rows a --rows b`` for "a,b"."""
    return " ".join(f"{option} {quote(part.strip())}".lstrip() for part in text.split(","))


def no_such_dataset(name: str, catalogue: Iterable[str]) -> str:
    """Return the error message for an unknown dataset name, with the nearest known one.

    Args:
        catalogue: Names of datasets that need no location.
    """
    word, colon, path = name.partition(":")
    plain, kinds = word.lower().replace("_", "-"), [location[:-1] for location in LOCATIONS]
    close = nearest(plain, kinds if colon else catalogue)
    if {*name.split(",")} <= {*catalogue}:
        hint = f"name one at a time: {name.replace(',', ', ')}"
    elif colon and close:
        hint = f"did you mean {close}:{shortened(path) or 'PATH'}?"
    elif plain in kinds:
        hint = f"it is named by its place, {plain}:PATH"
    elif close:
        hint = f"did you mean {close}?"
    elif isdir(name):
        hint = (
            f"it is a folder: write folder:{name} for image files in it, "
            f"or parquet:{name} for what `ebclab data prepare` wrote"
        )
    else:
        hint = f"known are {', '.join([*catalogue, *(f'{kind}:PATH' for kind in kinds)])}"
    return f"no such dataset, got {shortened(repr(name))}; {hint}"


def other_folder(named: str, holds: str, otherwise: str) -> str:
    """Return the end of an error message: which folder may be meant instead of one that lacks a file.

    Args:
        named: The folder, or its address in a store, where nothing is searched.
        otherwise: Text if no folder inside it, around it, or of a similar name beside it, holds such a file.
    """
    path = Path(named)
    inside = sorted(file.parent for file in path.glob(f"*/{holds}"))
    usual = (path.parent / each for each in ("runs", "sweeps", "comparisons", "."))
    beside = {
        file.parent.name: file.parent for place in usual for file in place.glob(f"*/{holds}") if file.parent != path
    }
    if inside:
        return f"name one of those in it, such as {inside[0]}"
    if (path.parent / holds).is_file():
        return f"name the folder around it, {path.parent}"
    close = nearest(path.name, beside)
    return f"did you mean {beside[close]}?" if close else otherwise


def is_folder_name(name: str) -> bool:
    """Return whether a name is valid for a folder: it contains no path and is not too long."""
    if not name or name.startswith(".") or not name.isprintable() or not {"/", "\\", "?"}.isdisjoint(name):
        return False
    return len(name.encode()) <= LONGEST_NAME


def require_folder_name(name: str, where: str = "--name") -> str:
    """Return the user's name of a run or a sweep, after checking that it is valid for a folder."""
    if (length := len(name.encode(errors="replace"))) > LONGEST_NAME:
        raise UserError(
            f"{where}: longer than {LONGEST_NAME} bytes, got {length} ({shortened(name)}); choose a shorter one"
        )
    if not is_folder_name(name):
        raise UserError(
            f"{where}: not the name of a folder, got {shortened(repr(name))}; leave out /, \\, ? and a dot "
            "at its beginning, and name the folder around it by --runs, --sweeps or --comparisons"
        )
    return name


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

_WORDS_OF_OTHERS = {
    "method.generative_weight": "lam",
    "method.temperature": "temp",
    "method.queue_size method.bank_size method.buffer_size": "memory_size",
    "method.projection_size": "proj_dim out_dim projection_dim",
    "data.name": "dataset",
    "data.root": "data_root data_dir",
    "data.holdout_rate": "val_split",
    "views.recipe": "augmentation augmentations transforms",
    "encoder.name": "backbone arch model",
    "init.weights": "pretrained checkpoint",
    "optimizer.learning_rate": "lr base_lr",
    "optimizer.weight_decay": "wd",
    "optimizer.beta1 optimizer.beta2": "betas",
    "training.accumulate": "accumulation_steps gradient_accumulation_steps accumulate_grad_batches",
    "optimizer.clip_norm": "grad_clip max_grad_norm",
    "optimizer.warmup_epochs": "warmup",
    "optimizer.schedule": "scheduler lr_schedule",
    "training.batch_size": "bs",
    "training.epochs": "num_epochs max_epochs",
    "training.average_weights": "ema ema_decay",
    "training.precision": "amp fp16 bf16",
    "training.loggers": "logger",
    "evaluation.knn_neighbours": "knn_k",
    "resources.device": "gpu",
    "resources.device resources.workers": "gpus num_gpus",
    "resources.workers": "num_workers",
    "resources.threads": "num_threads",
    "seed": "random_seed",
}
JARGON = {word: keys for keys, words in _WORDS_OF_OTHERS.items() for word in words.split()}
"""Words of other tools, and our keys for them."""


def settings_meant(word: str, known: Known) -> list[str]:
    """Return the keys of the settings that a word may mean: its own name in some section, jargon, a paper's symbol."""
    every = ((section, name) for section, settings in known.items() for name in settings)
    exact = [f"{section}.{name}" for section, name in every if word in (name, f"{section}.{name}")]
    methods = {name for names in SYMBOLS.values() for name in names}
    symbol = [f"method.{name}" for name in SYMBOLS.get(word, (word,) if word in methods else ())]
    return exact or symbol or JARGON.get(word.lower(), "").split()


def unknown_setting(section: str, name: str, known: Known, method_name: str) -> str:
    """Return the line about a key that does not exist.

    Args:
        section: The section that contains it; empty at the top.
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
        return f"did you mean {' or '.join(f'method.{field}' for field in meant)} ({name} in the paper)?"
    if name in SYMBOLS:
        keys = " or ".join(f"method.{field}" for field in SYMBOLS[name])
        return f"{name} in the papers is {keys}, which {method_name} does not have; {_list_hint('method', known)}"
    return None


def _elsewhere_hint(name: str, known: Known) -> str | None:
    """Return a hint if ``name``, or our name for it if it is jargon, is a setting of some section."""
    every = {f"{section}.{setting}" for section, settings in known.items() for setting in settings}
    keys = [key for key in settings_meant(name, known) if "." not in key or key in every]
    return f"did you mean {' or '.join(keys)}?" if keys else None


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

"""Writes an encoder's features of a dataset for other programs: as NumPy arrays, or as a Parquet table."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from ebclab.card.images import class_and_file, named_set, parts_of
from ebclab.card.request import CardRequest
from ebclab.card.subject import Subject, open_subject
from ebclab.config.addresses import expanded, is_address
from ebclab.config.yaml_text import JsonObject
from ebclab.data.holdout import limit
from ebclab.errors import RunError, UserError
from ebclab.evaluation.progress import OnProgress, silent
from ebclab.hardware import num_cores, set_threads
from ebclab.runs.evaluate import checkpoint_name
from ebclab.storage import atomic

SUFFIXES = (".npz", ".parquet")

Columns = dict[str, npt.NDArray[Any]]
"""Arrays with a row for each image."""


def write_features(request: CardRequest, on_progress: OnProgress = silent) -> str:
    """Write the features of the images that a card would measure; return a sentence about the file."""
    if problems := request.problems():
        raise UserError("\n".join(problems))
    path = _target(request.features or "")
    subject = open_subject(request.encoders[0], checkpoint_name(request.checkpoint))
    if request.scaling is not None:
        subject = subject.scaled(*request.scaling)
    dataset = request.datasets[0] if request.datasets else None
    measured = named_set(dataset, subject, request.data_root, needs_test=False)
    set_threads(num_cores())
    tables: list[Columns] = []
    for part, whole in parts_of(measured).items():
        images = limit(whole, request.train_limit if part == "train" else request.test_limit)
        features = subject.features(images.images, on_progress, f"features of {part} images")
        names = np.array(class_and_file(part, images, measured.name), dtype=np.str_).reshape(-1, 2)
        tables.append(
            {
                "features": features.numpy(),
                "part": np.full(len(images), part),
                "label": images.labels.numpy(),
                "class": names[:, 0],
                "key": images.keys.numpy(),
                "image": names[:, 1],
            }
            | ({} if images.marks is None else {"marks": images.marks.numpy()})
        )
    columns = {name: np.concatenate([table[name] for table in tables]) for name in tables[0]}
    facts = _facts(subject, request.checkpoint, measured.name, measured.train.class_names)
    try:
        with atomic.written_aside(path) as file:
            (_write_npz if path.suffix == ".npz" else _write_parquet)(file, columns, facts)
    except OSError as error:
        raise RunError(f"--features: cannot be written, got {path}: {error.strerror or error}") from error
    count, size = columns["features"].shape
    return f"wrote {path}: {count:,} images, {size:,} features each"


def _target(given: str) -> Path:
    """Return the path of the file to write; refuse one that cannot be, before anything is computed."""
    path = expanded(given).absolute()
    if is_address(given) or path.suffix not in SUFFIXES:
        raise UserError(f"--features: a file on a disk, .npz or .parquet, is needed, got {given}")
    if not path.parent.is_dir():
        raise UserError(f"--features: no such folder, got {path.parent}; make it first")
    return path


def _facts(subject: Subject, checkpoint: str, dataset: str, class_names: tuple[str, ...]) -> JsonObject:
    """Return what the features are, as plain values."""
    return {
        "format": 1,
        "encoder": subject.address,
        "origin": subject.origin,
        "digest": subject.digest,
        "checkpoint": checkpoint if subject.trained else None,
        "step": subject.trained.step if subject.trained else None,
        "preprocessing": asdict(subject.preprocessing),
        "dataset": dataset,
        "class_names": list(class_names),
    }


def _write_npz(file: BinaryIO, columns: Columns, facts: JsonObject) -> None:
    arrays: dict[str, Any] = {**columns, "metadata": np.array(json.dumps(facts))}
    np.savez(file, **arrays)


def _write_parquet(file: BinaryIO, columns: Columns, facts: JsonObject) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    arrays = {
        name: pa.array(values)
        if values.ndim == 1
        else pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), values.shape[1])
        for name, values in columns.items()
    }
    table = pa.table(arrays).replace_schema_metadata({"ebclab": json.dumps(facts)})
    parquet.write_table(table, file)

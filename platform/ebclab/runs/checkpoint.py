"""Checkpoints: folders that are whole or absent, and checked byte for byte before they are used.

``last-<step>`` holds everything that a resume needs. Two of them are kept, so that a damaged newest one costs one
interval and not the run. The newest healthy one stays too: an unhealthy run goes back to it. ``best-<step>`` and
``kept-<step>`` hold the model alone.

    manifest.json        format, step, what the weights expect as input, and the SHA-256 of every file below
    model.safetensors    the method's state_dict (encoder, heads, queues)
    state.pt             optimizer, generator and counters            (``last`` only; read with weights_only=True)
    memory-<name>.safetensors                                         (``last`` only; one per Method.memories entry)
"""

from __future__ import annotations

import errno
import hashlib
import io
import json
import logging
import pickle
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

import torch
from safetensors.torch import load_file
from safetensors.torch import save as to_bytes
from torch import Tensor

from ebclab.config.names import is_folder_name
from ebclab.errors import RunError
from ebclab.regular_file import read_regular
from ebclab.storage import atomic
from ebclab.storage.mirror import MANIFEST
from ebclab.storage.reading import LARGEST, json_value
from ebclab.storage.typed_json import typed

FORMAT = 1
LAST_KEPT = 2
Kind = Literal["last", "best", "kept"]
T = TypeVar("T")

_log = logging.getLogger("ebclab.training")


@dataclass(frozen=True)
class _Version:
    """What manifests of all versions hold."""

    format: int


@dataclass(frozen=True)
class _Fields(_Version):
    """What every manifest of this version holds."""

    step: int
    facts: dict[str, Any]
    files: dict[str, str]


@dataclass(frozen=True)
class Checkpoint:
    """The content of one checkpoint.

    Attributes:
        step: Optimizer steps done.
        facts: Plain values that describe the model: epoch, input size, normalisation, scores.
        model: The method's state_dict.
        state: Optimizer, generator and counters; None in ``best`` and ``kept``.
        memories: State of each of the method's memories by name.
    """

    step: int
    facts: dict[str, Any]
    model: dict[str, Tensor]
    state: dict[str, Any] | None
    memories: dict[str, dict[str, Tensor]]


def save(folder: Path, kind: Kind, checkpoint: Checkpoint) -> Path:
    """Write ``checkpoint`` into ``folder`` and remove the older ones that it replaces.

    Raises:
        RunError: The disk is full or the folder cannot be written; older checkpoints are untouched.
    """
    target = folder / f"{kind}-{checkpoint.step:010d}"
    try:
        if target.exists():
            shutil.rmtree(target)
        with atomic.new_folder(target) as aside:
            _write(aside, kind, checkpoint)
    except OSError as error:
        raise RunError(_save_failure(target, error)) from error
    if kind != "kept":
        old = _of_kind(folder, kind)[LAST_KEPT if kind == "last" else 1 :]
        needed = _newest_healthy(folder) if kind == "last" else None
        for path in old:
            if path != needed:
                shutil.rmtree(path, ignore_errors=True)
    return target


def load(folder: Path, kind: Kind = "last", where: str = "") -> Checkpoint | None:
    """Return the newest sound checkpoint of ``kind``, or None when there is none.

    A damaged one is skipped with a warning that names it.

    Args:
        folder: The folder with the checkpoints.
        kind: The kind.
        where: The name of ``folder`` in messages; empty means ``folder`` itself.

    Raises:
        RunError: The newest one was written by a newer version, or all of them are damaged.
    """
    return _newest_sound(folder, kind, _read, where)


def load_healthy(folder: Path, where: str = "") -> Checkpoint | None:
    """Return the newest sound ``last`` checkpoint of a healthy run, or None when there is none.

    A damaged one is skipped with a warning that names it. Arguments are those of ``load``.
    """
    for path in filter(_healthy, _of_kind(folder, "last")):
        try:
            return _read(path, where)
        except (OSError, ValueError, KeyError) as error:
            _warn_of_damage(path, error, where)
    return None


def forget_after(folder: Path, step: int) -> None:
    """Remove ``last`` and ``best`` checkpoints of later steps than ``step``, because the run has gone back."""
    for kind in ("last", "best"):
        for path in _of_kind(folder, kind):
            if int(path.name.rpartition("-")[2]) > step:
                shutil.rmtree(path, ignore_errors=True)


def newest_step(folder: Path, where: str = "") -> int:
    """Return the step from which a resume goes on, 0 when there is no checkpoint.

    It is the step of the checkpoint that ``load`` returns for the same arguments. Every file is compared with its
    checksum; no tensor is loaded.

    Raises:
        RunError: As ``load``.
    """
    manifest = _newest_sound(folder, "last", _sound_manifest, where)
    return manifest["step"] if manifest else 0


def _newest_sound(folder: Path, kind: Kind, read: Callable[[Path, str], T], where: str) -> T | None:
    """Return ``read`` of the newest checkpoint that it can read, or None when there is no checkpoint."""
    paths = _of_kind(folder, kind)
    for path in paths:
        try:
            return read(path, where)
        except (OSError, ValueError, KeyError) as error:
            _warn_of_damage(path, error, where)
    if paths:
        raise RunError(f"{where or folder}: every {kind} checkpoint is damaged, got {[path.name for path in paths]}")
    return None


def _warn_of_damage(path: Path, error: Exception, where: str) -> None:
    _log.warning("%s: %s is damaged (%s); trying the one before", where or path.parent, path.name, error)


def latest_path(folder: Path, kind: Kind = "last") -> Path | None:
    """Return the newest checkpoint folder of ``kind`` without opening it."""
    return next(iter(_of_kind(folder, kind)), None)


def _newest_healthy(folder: Path) -> Path | None:
    return next(filter(_healthy, _of_kind(folder, "last")), None)


def _healthy(path: Path) -> bool:
    """Return whether a checkpoint can be read and its run was healthy; without a word on health, it was."""
    try:
        manifest = _manifest(path)
    except (OSError, ValueError):
        return False
    return bool(manifest["facts"].get("healthy", True))


def _of_kind(folder: Path, kind: Kind) -> list[Path]:
    """Return the checkpoint folders of one kind, newest first."""
    return sorted(folder.glob(f"{kind}-*"), reverse=True) if folder.is_dir() else []


def _write(aside: Path, kind: Kind, checkpoint: Checkpoint) -> None:
    """Write the files of a checkpoint into ``aside`` as plain bytes, so that a full disk raises OSError."""
    (aside / "model.safetensors").write_bytes(to_bytes(_packed(checkpoint.model)))
    if kind == "last":
        state = io.BytesIO()
        torch.save(checkpoint.state, state)
        (aside / "state.pt").write_bytes(state.getbuffer())
        for name, memory in checkpoint.memories.items():
            (aside / f"memory-{name}.safetensors").write_bytes(to_bytes(_packed(memory)))
    files = {path.name: _digest(path) for path in sorted(aside.iterdir())}
    manifest = {"format": FORMAT, "step": checkpoint.step, "facts": checkpoint.facts, "files": files}
    (aside / "manifest.json").write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")


def _manifest(path: Path) -> dict[str, Any]:
    """Return the manifest of a checkpoint, with the fields that each has; of a newer version, its format alone.

    Raises:
        OSError: It cannot be read.
        ValueError: It is no JSON, or a field is missing or has another type.
    """
    manifest: dict[str, Any] = json_value(read_regular(path / MANIFEST, LARGEST))
    if typed(manifest, _Version).format > FORMAT:
        return {"format": manifest["format"], "facts": {}}
    fields: dict[str, Any] = vars(typed(manifest, _Fields))
    return manifest | fields


def _sound_manifest(path: Path, where: str) -> dict[str, Any]:
    """Return the manifest of a checkpoint after comparing every file with its checksum."""
    manifest = _manifest(path)
    if manifest["format"] > FORMAT:
        raise RunError(
            f"{where or path.parent}: {path.name} was written by a newer ebclab, got format {manifest['format']}; "
            f"this version reads up to {FORMAT}"
        )
    for name, digest in manifest["files"].items():
        if not is_folder_name(name):
            raise ValueError(f"its manifest names a file elsewhere, got {name!r}")
        if _digest(path / name) != digest:
            raise ValueError(f"{name} does not match its checksum")
    return manifest


def _read(path: Path, where: str) -> Checkpoint:
    manifest = _sound_manifest(path, where)
    state_path = path / "state.pt"
    memories = {p.stem.removeprefix("memory-"): load_file(p) for p in sorted(path.glob("memory-*.safetensors"))}
    return Checkpoint(
        step=manifest["step"],
        facts=manifest["facts"],
        model=load_file(path / "model.safetensors"),
        state=_read_state(state_path) if state_path.exists() else None,
        memories=memories,
    )


def _read_state(path: Path) -> dict[str, Any]:
    try:
        state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise ValueError(f"{path.name} holds more than tensors and plain values") from error
    return state


def _packed(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return contiguous copies on the CPU, because safetensors refuses shared memory and strides."""
    return {name: tensor.detach().to("cpu", copy=True).contiguous() for name, tensor in state.items()}


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _save_failure(target: Path, error: OSError) -> str:
    before = latest_path(target.parent)
    kept = f"the checkpoint before it, {before.name}, is kept" if before else "there is no checkpoint before it"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"{target}: the disk is full; {kept}; free some space and run the same command again"
    return f"{target}: cannot be written, got {error.strerror or error}; {kept}"

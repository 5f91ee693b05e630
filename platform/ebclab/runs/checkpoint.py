"""Checkpoints: folders that are complete or absent, and whose checksums are verified before use.

``last-<step>`` holds everything that a resume needs. Two of them are kept, so that a damaged newest one costs one
interval, not the run. The newest healthy one is kept too: an unhealthy run goes back to it. ``best-<step>`` and
``kept-<step>`` hold only the model.

A checkpoint is never overwritten. If a step is saved again, because the run went back to it, the new one is
``last-<step>.001`` and replaces the old one once it is complete: the folder holds a complete checkpoint at all times.
Hidden folders are left over from killed writes and removals; they are never read, and the next launch or save removes
them.

    manifest.json        format, step, facts about the model's input, the SHA-256 of every file below and its own
    model.safetensors    the method's state_dict (encoder, heads, queues), with averaged weights if they are averaged
    state.pt             optimizer, generator, counters, and the      (``last`` only; read by ``tensors``)
                         weights behind averaged ones
    memory-<name>.safetensors                                         (``last`` only; one per Method.memories entry)
"""

from __future__ import annotations

import errno
import hashlib
import io
import json
import logging
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from ebclab.config.names import is_folder_name
from ebclab.errors import RunError
from ebclab.regular_file import file_digest, read_regular
from ebclab.storage import atomic
from ebclab.storage.mirror import MANIFEST
from ebclab.storage.reading import LARGEST, foreign_json_value, json_value, typed, with_checksum

if TYPE_CHECKING:
    from torch import Tensor  # imported by what reads or writes tensors: pages and lists of runs import no torch

FORMAT = 1
LAST_KEPT = 2
_LOOKS = 20  # attempts to read the checkpoints of a run that replaces them meanwhile
Kind = Literal["last", "best", "kept"]
MODEL = "model.safetensors"
STATE = "state.pt"
T = TypeVar("T")

_NAME = re.compile(r"(?:last|best|kept)-(?P<step>\d+)(?:\.(?P<generation>\d+))?")
_MEMORY = re.compile(r"memory-(?P<name>.+)\.safetensors")

_log = logging.getLogger("ebclab.training")


@dataclass(frozen=True)
class _Version:
    """Fields that manifests of all versions have."""

    format: int


@dataclass(frozen=True)
class _Manifest(_Version):
    """Fields that every manifest of this version has."""

    step: int
    facts: dict[str, Any]
    files: dict[str, str]


@dataclass(frozen=True)
class Checkpoint:
    """The content of one checkpoint."""

    step: int  # optimizer steps done
    facts: dict[str, Any]  # plain values that describe the model: epoch, input size, normalisation, scores
    model: dict[str, Tensor]  # the method's state_dict, as it is evaluated
    state: dict[str, Any] | None  # optimizer, generator, counters, weights behind averages; None if not of kind last
    memories: dict[str, dict[str, Tensor]]  # state of each of the method's memories by name


def save(folder: Path, kind: Kind, checkpoint: Checkpoint) -> Path:
    """Write ``checkpoint`` into ``folder``, remove the older ones that it replaces, and return its path.

    If a killed launch of the run has already saved an equal one of kind ``best`` or ``kept``, that one stays.
    """
    before = [path for path in _of_kind(folder, kind) if step_of(path) == checkpoint.step]
    if kind != "last" and before and _holds(before[0], checkpoint):
        target = before[0]
    else:
        name = f"{kind}-{checkpoint.step:010d}"
        target = folder / (f"{name}.{_place(before[0])[1] + 1:03d}" if before else name)
        tidy(folder)
        try:
            with atomic.new_folder(target) as aside:
                _write(aside, kind, checkpoint)
        except OSError as error:
            raise RunError(_save_failure(target, error)) from error
    for path in _outlived(folder, kind, target):
        atomic.remove_folder(path)
    return target


def tidy(folder: Path) -> None:
    """Remove hidden folders left over from killed writes and removals; no other process may write into ``folder``."""
    atomic.remove_leftovers(folder, "*-*")


def step_of(path: Path) -> int:
    """Return the step in the name of a checkpoint folder."""
    return _place(path)[0]


def load(folder: Path, kind: Kind = "last", where: str = "", step: int | None = None) -> Checkpoint | None:
    """Return the newest intact checkpoint of ``kind``, or the one after ``step`` steps; None if there is none.

    A damaged one is skipped with a warning that names it. Messages call the folder ``where``.
    """
    return _newest_sound(folder, kind, _read, where, step)


def load_healthy(folder: Path, where: str = "") -> Checkpoint | None:
    """Return the newest intact ``last`` checkpoint at which the run was healthy, or None if there is none.

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
    kinds: tuple[Kind, ...] = ("last", "best")
    for path in (path for kind in kinds for path in _of_kind(folder, kind)):
        if step_of(path) > step:
            atomic.remove_folder(path)


def holds(folder: Path, kind: Kind, step: int) -> bool:
    """Return whether ``folder`` has a checkpoint of ``kind`` after ``step`` steps, without opening it."""
    return any(step_of(path) == step for path in _of_kind(folder, kind))


def newest_step(folder: Path, where: str = "") -> int:
    """Return the step from which a resume continues; 0 if there is no checkpoint.

    It is the step of the checkpoint that ``load`` returns for the same arguments. The checksum of every file is
    verified; no tensor is loaded.
    """
    manifest = _newest_sound(folder, "last", _sound_manifest, where)
    return manifest.step if manifest else 0


def _newest_sound(
    folder: Path, kind: Kind, read: Callable[[Path, str], T], where: str, step: int | None = None
) -> T | None:
    """Return ``read`` of the newest checkpoint that it accepts, or None if there is no checkpoint."""
    for _ in range(_LOOKS):
        paths = [path for path in _of_kind(folder, kind) if step is None or step_of(path) == step]
        replaced = False
        for path in paths:
            try:
                return read(path, where)
            except (OSError, ValueError, KeyError) as error:
                replaced = not os.path.lexists(path)  # by a newer one, of a run in training
                if replaced:
                    break
                _warn_of_damage(path, error, where)
        if not paths:
            return None
        if not replaced:
            raise RunError(
                f"{where or folder}: every {kind} checkpoint is damaged, got {[path.name for path in paths]}; "
                "restore one from a copy, or delete the run and train it again"
            )
    raise RunError(
        f"{where or folder}: the run replaces its {kind} checkpoints faster than they are read; wait for its end"
    )


def _warn_of_damage(path: Path, error: Exception, where: str) -> None:
    _log.warning("%s: %s is damaged (%s); trying the one before", where or path.parent, path.name, error)


def latest_path(folder: Path, kind: Kind = "last") -> Path | None:
    """Return the newest checkpoint folder of ``kind`` without opening it."""
    return next(iter(_of_kind(folder, kind)), None)


def _healthy(path: Path) -> bool:
    """Return whether a checkpoint can be read and its run was healthy; without a health record, it was."""
    try:
        manifest = _read_manifest(path, "")
    except (OSError, ValueError, RunError):
        return False
    return bool(manifest.facts.get("healthy", True))


def _of_kind(folder: Path, kind: Kind) -> list[Path]:
    """Return the checkpoint folders of one kind, newest first."""
    paths = [path for path in folder.glob(f"{kind}-*") if _NAME.fullmatch(path.name)]
    return sorted(paths, key=_place, reverse=True)


def _place(path: Path) -> tuple[int, int]:
    """Return the step in a checkpoint's name, and how often that step had been saved before it."""
    match = _NAME.fullmatch(path.name)
    if match is None:
        raise ValueError(f"{path}: is not the name of a checkpoint")
    return int(match["step"]), int(match["generation"] or 0)


def _outlived(folder: Path, kind: Kind, saved: Path) -> list[Path]:
    """Return the checkpoints of ``kind`` that are no longer needed now that ``saved`` exists."""
    others = [path for path in _of_kind(folder, kind) if path != saved]
    again = [path for path in others if step_of(path) == step_of(saved)]
    if kind == "kept":
        return again
    if kind == "best":
        return others
    needed = next(filter(_healthy, _of_kind(folder, "last")), None)
    older = [path for path in others if step_of(path) < step_of(saved)]
    return again + [path for path in older[LAST_KEPT - 1 :] if path != needed]


def _holds(path: Path, checkpoint: Checkpoint) -> bool:
    """Return whether a checkpoint of only the model is intact and equal to ``checkpoint``."""
    try:
        manifest = _sound_manifest(path, "")
    except (OSError, ValueError, KeyError):
        return False
    model = hashlib.sha256(_packed(checkpoint.model)).hexdigest()
    return bool(manifest.files == {MODEL: model} and manifest.facts == json.loads(json.dumps(checkpoint.facts)))


def _write(aside: Path, kind: Kind, checkpoint: Checkpoint) -> None:
    """Write the files of a checkpoint into ``aside`` as plain bytes, so that a full disk raises OSError."""
    (aside / MODEL).write_bytes(_packed(checkpoint.model))
    if kind == "last":
        import torch

        state = io.BytesIO()
        torch.save(checkpoint.state, state)
        (aside / STATE).write_bytes(state.getvalue())
        for name, memory in checkpoint.memories.items():
            (aside / f"memory-{name}.safetensors").write_bytes(_packed(memory))
    files = {path.name: file_digest(path) for path in sorted(aside.iterdir())}
    manifest = {"format": FORMAT, "step": checkpoint.step, "facts": checkpoint.facts, "files": files}
    (aside / MANIFEST).write_text(json.dumps(with_checksum(manifest), indent=2) + "\n", encoding="utf-8")


def _read_manifest(path: Path, where: str) -> _Manifest:
    """Return the manifest of a checkpoint after verifying its own checksum and the folder's name."""
    if path.is_symlink():
        raise ValueError("it is a symbolic link")
    content = read_regular(path / MANIFEST, LARGEST)
    version = typed(foreign_json_value(content), _Version).format
    if version > FORMAT:
        raise RunError(
            f"{where or path.parent}: {path.name} was written by a newer ebclab, got format {version}; "
            f"this version reads up to {FORMAT}"
        )
    try:
        plain = json_value(content)
    except ValueError as error:
        raise ValueError(f"{MANIFEST}: {error}") from error
    manifest = typed(plain, _Manifest)
    if manifest.step != step_of(path):
        raise ValueError(f"{MANIFEST}: it is that of another step, got {manifest.step}")
    return manifest


def _sound_manifest(path: Path, where: str) -> _Manifest:
    """Return the manifest of a checkpoint after verifying the checksum of every file."""
    manifest = _read_manifest(path, where)
    for name, digest in manifest.files.items():
        if not is_folder_name(name):
            raise ValueError(f"its manifest names a file elsewhere, got {name!r}")
        if file_digest(path / name) != digest:
            raise ValueError(f"{name} does not match its checksum")
    return manifest


def _read(path: Path, where: str) -> Checkpoint:
    from ebclab.storage.tensors import read_state

    manifest = _sound_manifest(path, where)
    listed = sorted(manifest.files)  # other files have no verified checksum
    if MODEL not in listed:
        raise ValueError(f"its manifest does not list {MODEL}")
    memories = {match["name"]: _read_tensors(path / name) for name in listed if (match := _MEMORY.fullmatch(name))}
    return Checkpoint(
        step=manifest.step,
        facts=manifest.facts,
        model=_read_tensors(path / MODEL),
        state=read_state(path / STATE) if STATE in listed else None,
        memories=memories,
    )


def _read_tensors(path: Path) -> dict[str, Tensor]:
    from ebclab.storage.tensors import read_tensors

    try:
        return read_tensors(path)
    except ValueError as error:
        raise ValueError(f"{path.name} holds no tensors ({error})") from error


def _packed(state: dict[str, Tensor]) -> bytes:
    """Return the file of contiguous copies on the CPU, since safetensors refuses shared memory and strides."""
    from safetensors.torch import save

    return save({name: tensor.detach().to("cpu", copy=True).contiguous() for name, tensor in state.items()})


def _save_failure(target: Path, error: OSError) -> str:
    before = latest_path(target.parent)
    kept = f"the checkpoint before it, {before.name}, is kept" if before else "there is no checkpoint before it"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"{target}: the disk is full; {kept}; free some space and run the same command again"
    return f"{target}: cannot be written, got {error.strerror or error}; {kept}"

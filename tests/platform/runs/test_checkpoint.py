"""Checkpoints come back bit for bit, and a damaged or half-written one is never taken for a whole one."""

import errno
import json
import logging
import os
from dataclasses import fields
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from run_files import CHECKPOINT_FILES

from ebclab.errors import RunError
from ebclab.runs import checkpoint
from ebclab.runs.checkpoint import Checkpoint
from ebclab.storage import tensors
from ebclab.storage.reading import with_checksum


def _checkpoint(step: int) -> Checkpoint:
    generator = torch.Generator().manual_seed(step)
    weight = torch.randn(4, 3, 3, 3, generator=generator).to(memory_format=torch.channels_last)
    return Checkpoint(
        step=step,
        facts={"epochs_done": step // 10, "scores": {"holdout_knn": 0.5}},
        model={"encoder.weight": weight, "counter": torch.tensor(step)},
        state={"optimizer": {"momentum": weight[0]}, "generator": generator.get_state(), "best": {"epoch": 1}},
        memories={"buffer": {"images": torch.arange(12, dtype=torch.uint8).reshape(3, 4), "counts": torch.ones(3)}},
    )


def _are_same(one: Any, other: Any) -> bool:
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_are_same(value, other[name]) for name, value in one.items())
    return bool(torch.equal(one, other) if isinstance(one, torch.Tensor) else one == other)


@pytest.mark.parametrize("name", [field.name for field in fields(Checkpoint)])
def test_everything_comes_back_bit_for_bit(tmp_path: Path, name: str) -> None:
    saved = getattr(_checkpoint(20), name)
    assert saved, f"{name}: _checkpoint in this file must fill it"
    checkpoint.save(tmp_path, "last", _checkpoint(20))
    place = "_write and _read in runs/checkpoint.py; training/recorder.py fills it, training/restore.py puts it back"
    assert _are_same(saved, getattr(checkpoint.load(tmp_path), name)), f"{name}: {place}"


def test_every_file_is_described_where_the_format_is(tmp_path: Path) -> None:
    files = {file.name for file in checkpoint.save(tmp_path, "last", _checkpoint(20)).iterdir()}
    assert files == set(CHECKPOINT_FILES), "the docstring of runs/checkpoint.py lists the files of a checkpoint"


def test_two_last_one_best_and_every_kept_one_stay_and_the_last_alone_hold_more_than_the_model(tmp_path: Path) -> None:
    for step in (10, 20, 30):
        for kind in ("last", "best", "kept"):
            path = checkpoint.save(tmp_path, kind, _checkpoint(step))
            of_model = {"manifest.json", "model.safetensors"}
            assert {file.name for file in path.iterdir()} == ({*CHECKPOINT_FILES} if kind == "last" else of_model)
    names = sorted(path.name[:-8] + str(int(path.name[-8:])) for path in tmp_path.iterdir())
    assert names == ["best-0030", "kept-0010", "kept-0020", "kept-0030", "last-0020", "last-0030"]


def test_the_newest_step_is_told_without_loading_a_tensor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert checkpoint.newest_step(tmp_path / "nothing") == 0
    assert checkpoint.load(tmp_path / "nothing") is checkpoint.latest_path(tmp_path) is None
    for step in (10, 20):
        checkpoint.save(tmp_path, "last", _checkpoint(step))
    checkpoint.save(tmp_path, "best", _checkpoint(30))
    for loader in ("read_tensors", "read_state"):
        monkeypatch.setattr(tensors, loader, lambda path: pytest.fail(f"{path} was loaded"))
    assert checkpoint.newest_step(tmp_path) == 20


@pytest.mark.parametrize("file", CHECKPOINT_FILES)
def test_a_damaged_newest_one_falls_back_to_the_one_before_with_a_warning(tmp_path, file, caplog):
    checkpoint.save(tmp_path, "last", _checkpoint(10))
    newest = checkpoint.save(tmp_path, "last", _checkpoint(20))
    content = (newest / file).read_bytes()
    (newest / file).write_bytes(content[: len(content) // 2])
    with caplog.at_level(logging.WARNING):
        found = checkpoint.load(tmp_path)
    assert found.step == 10
    assert newest.name in caplog.text
    assert checkpoint.newest_step(tmp_path) == 10


@pytest.mark.timeout(30)
@pytest.mark.parametrize("name", [name for name in CHECKPOINT_FILES if name != "manifest.json"])
def test_a_pipe_or_an_endless_device_in_place_of_a_file_is_damage(tmp_path, name, caplog):
    for step in (10, 20, 30):
        checkpoint.save(tmp_path, "last", _checkpoint(step))
    older, newest = tmp_path / "last-0000000020", tmp_path / "last-0000000030"
    (newest / name).unlink()
    os.mkfifo(newest / name)
    found = checkpoint.load(tmp_path)
    assert found.step == checkpoint.newest_step(tmp_path) == 20
    assert "last-0000000030 is damaged" in caplog.text
    (older / name).unlink()
    (older / name).symlink_to("/dev/zero")
    with pytest.raises(RunError, match="every last checkpoint is damaged"):
        checkpoint.load(tmp_path)


def _rewrite_manifest(path: Path, **changes: Any) -> None:
    manifest = path / "manifest.json"
    manifest.write_text(json.dumps(with_checksum(json.loads(manifest.read_text()) | changes)))


def test_one_flipped_bit_in_a_manifest_costs_one_interval(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    checkpoint.save(tmp_path, "last", _checkpoint(10))
    path = checkpoint.save(tmp_path, "last", _checkpoint(20)) / "manifest.json"
    before = path.read_bytes()
    for position in range(0, len(before), 3):
        damaged = bytearray(before)
        damaged[position] ^= 1 << position % 7
        path.write_bytes(damaged)
        name = any(before[position - margin : position - margin + 8] == b'"digest"' for margin in range(1, 7))
        caplog.clear()
        assert checkpoint.newest_step(tmp_path) == (20 if name else 10), position
        assert (f"{tmp_path}: last-0000000020 is damaged" in caplog.text) != name
    # the name of the checksum: the rest is as it was


@pytest.mark.parametrize("replaced", [3, 1000])
def test_a_checkpoint_replaced_while_it_is_read_is_not_called_damaged(tmp_path, monkeypatch, caplog, replaced):
    sound, steps = checkpoint._sound_manifest, iter(range(20, 20 + 20 * replaced, 10))
    checkpoint.save(tmp_path, "last", _checkpoint(10))

    def while_training(path: Path, where: str) -> dict[str, Any]:
        for step in islice(steps, 2):  # as many as are kept: what is being read goes
            checkpoint.save(tmp_path, "last", _checkpoint(step))
        return sound(path, where)

    monkeypatch.setattr(checkpoint, "_sound_manifest", while_training)
    if replaced == 3:
        found = checkpoint.load(tmp_path)
        assert found.step == 70
    else:
        with pytest.raises(RunError, match="replaces its last checkpoints faster than they are read"):
            checkpoint.load(tmp_path)
    assert not caplog.records


def test_a_checkpoint_under_the_name_of_another_step_is_damaged(tmp_path, caplog):
    checkpoint.save(tmp_path, "last", _checkpoint(10))
    checkpoint.save(tmp_path, "last", _checkpoint(20)).rename(tmp_path / "last-0000000021")
    assert checkpoint.newest_step(tmp_path) == 10
    assert "last-0000000021 is damaged (manifest.json: it is that of another step, got 20)" in caplog.text


def test_a_checkpoint_of_an_older_version_has_no_checksum_of_its_manifest(tmp_path: Path) -> None:
    manifest = checkpoint.save(tmp_path, "last", _checkpoint(20)) / "manifest.json"
    content = json.loads(manifest.read_text())
    del content["digest"]
    manifest.write_text(json.dumps(content))
    assert checkpoint.newest_step(tmp_path) == 20


def test_a_checkpoint_from_a_newer_version_is_refused_and_not_skipped(tmp_path):
    checkpoint.save(tmp_path, "last", _checkpoint(10))
    _rewrite_manifest(checkpoint.save(tmp_path, "last", _checkpoint(20)), format=checkpoint.FORMAT + 1)
    with pytest.raises(RunError, match=f"newer ebclab, got format {checkpoint.FORMAT + 1}; this version reads up to"):
        checkpoint.load(tmp_path)


def test_a_full_disk_leaves_the_previous_checkpoint_and_says_so(tmp_path, monkeypatch):
    checkpoint.save(tmp_path, "last", _checkpoint(10))

    def full(self: Path, data: Any) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", full)
        with pytest.raises(RunError, match=r"the disk is full; the checkpoint before it, last-0000000010, is kept"):
            checkpoint.save(tmp_path, "last", _checkpoint(20))
    assert [path.name for path in tmp_path.iterdir()] == ["last-0000000010"]
    found = checkpoint.load(tmp_path)
    assert found.step == 10


@pytest.mark.parametrize(
    "change",
    [
        *({"step": "one"}, {"step": None}, {"facts": []}, {"files": ["a"]}, {"files": {"a": 1}}, {"format": "new"}),
        *({"files": {name: "0" * 64}} for name in ("/dev/zero", "../../other/model.safetensors")),  # files elsewhere
    ],
    ids=str,
)
def test_a_manifest_with_a_field_of_another_type_or_a_file_elsewhere_is_damaged(tmp_path, change):
    _rewrite_manifest(checkpoint.save(tmp_path, "last", _checkpoint(1)), **change)
    for read in (checkpoint.load, checkpoint.newest_step):
        with pytest.raises(RunError, match="every last checkpoint is damaged"):
            read(tmp_path)
    assert checkpoint.load_healthy(tmp_path) is None

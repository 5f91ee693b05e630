"""A save that is killed, or cut off from its power, at any moment leaves a whole checkpoint and no mess."""

from pathlib import Path

import pytest
import torch
from kill_points import LOSSES, Loss, copies_of, killed_everywhere

from ebclab.runs import checkpoint
from ebclab.runs.checkpoint import Checkpoint, Kind


def at(step: int, value: float = 0.0, *, healthy: bool = True) -> Checkpoint:
    """A checkpoint whose one weight tells it from another of the same step."""
    return Checkpoint(
        step=step,
        facts={"epochs_done": step, "healthy": healthy},
        model={"weight": torch.tensor([float(step), value])},
        state={"value": value},
        memories={"buffer": {"images": torch.tensor([value])}},
    )


def weight(folder: Path, kind: Kind = "last") -> list[float] | None:
    found = checkpoint.load(folder, kind)
    return None if found is None else found.model["weight"].tolist()


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("kind", ["last", "best", "kept"])
def test_a_save_leaves_the_checkpoint_before_it_or_the_new_one(tmp_path, kind, loss, caplog):
    for step in (2, 4):
        checkpoint.save(tmp_path / "before", kind, at(step))
    prepare, seen = copies_of(tmp_path / "before"), []
    for folder in killed_everywhere(tmp_path, prepare, lambda folder: checkpoint.save(folder, kind, at(6)), loss):
        found = weight(folder, kind)
        assert found in ([4, 0], [6, 0])
        seen.append(found)
        checkpoint.save(folder, kind, at(8))
        assert weight(folder, kind) == [8, 0]
        assert not [path.name for path in folder.iterdir() if path.name.startswith(".")]
    assert caplog.text == ""  # nobody took half a checkpoint for a damaged one
    assert seen == sorted(seen)
    assert [4, 0] in seen
    assert len(seen) > 10


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("kind", ["last", "best", "kept"])
def test_a_step_that_is_saved_again_is_there_all_the_time(tmp_path, kind, loss, caplog):
    checkpoint.save(tmp_path / "before", kind, at(4))
    prepare, seen = copies_of(tmp_path / "before"), []
    for folder in killed_everywhere(tmp_path, prepare, lambda folder: checkpoint.save(folder, kind, at(4, 1)), loss):
        seen.append(weight(folder, kind))
        checkpoint.save(folder, kind, at(4, 2))
        assert weight(folder, kind) == [4, 2]
        assert len(list(folder.iterdir())) == 1
    assert caplog.text == ""
    assert seen == sorted(seen, key=str)
    assert {str(found) for found in seen} == {"[4.0, 0.0]", "[4.0, 1.0]"}


@pytest.mark.parametrize("loss", LOSSES)
def test_the_newest_healthy_checkpoint_outlives_every_save(tmp_path: Path, loss: Loss) -> None:
    for step in (1, 2, 4, 6):
        checkpoint.save(tmp_path / "before", "last", at(step, healthy=step < 4))

    def work(folder: Path) -> None:
        checkpoint.save(folder, "last", at(8, healthy=False))

    for folder in killed_everywhere(tmp_path, copies_of(tmp_path / "before"), work, loss):
        healthy = checkpoint.load_healthy(folder)
        assert healthy.step == 2


@pytest.mark.parametrize("loss", LOSSES)
def test_what_is_forgotten_goes_from_the_newest_on_and_never_in_part(tmp_path, loss, caplog):
    for step in (2, 4, 6):
        checkpoint.save(tmp_path / "before", "last", at(step, healthy=step < 4))
    checkpoint.save(tmp_path / "before", "best", at(6))
    prepare, steps = copies_of(tmp_path / "before"), []
    for folder in killed_everywhere(tmp_path, prepare, lambda folder: checkpoint.forget_after(folder, 2), loss):
        steps.append(checkpoint.newest_step(folder))
        checkpoint.load(folder, "best")
    assert caplog.text == ""
    assert steps == sorted(steps, reverse=True)
    assert set(steps) == {2, 4, 6}


def test_best_and_kept_that_a_killed_launch_saved_keep_their_names(tmp_path: Path) -> None:
    for kind in ("best", "kept"):
        first = checkpoint.save(tmp_path, kind, at(4))
        inode = first.stat().st_ino
        assert checkpoint.save(tmp_path, kind, at(4)) == first
        assert first.stat().st_ino == inode
        (first / "model.safetensors").write_bytes(b"damaged")
        assert checkpoint.save(tmp_path, kind, at(4)).name == f"{kind}-0000000004.001"
        assert weight(tmp_path, kind) == [4, 0]

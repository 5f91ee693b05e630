"""`ebclab data prepare`, killed or cut off from its power anywhere, leaves a whole set or none, and can be repeated."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from kill_points import LOSSES, Loss, killed_everywhere

from ebclab.data.image_set import ImageSet
from ebclab.data.preparing import shards, write_parquet
from ebclab.data.preparing.write_parquet import prepare_dataset
from ebclab.data.sources.load import load_split
from ebclab.errors import DataError

IMAGES = ImageSet(
    "some",
    torch.arange(2 * 3 * 4 * 4, dtype=torch.uint8).view(2, 3, 4, 4),
    torch.tensor([0, 1]),
    torch.tensor([5, 6]),
    ("a", "b"),
    (0.1, 0.2, 0.3),
    (0.4, 0.5, 0.6),
)


@pytest.fixture(autouse=True)
def two_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file for each image, one after the other."""
    monkeypatch.setattr(shards, "_GROUP_ROWS", 1)
    monkeypatch.setattr(write_parquet, "usable_processors", lambda: 1)


def content(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def prepare(folder: Path) -> None:
    prepare_dataset({"train": IMAGES}, folder / "[set]", progress=lambda line: None)


@pytest.mark.parametrize(
    ("loss", "is_there"),
    [
        (LOSSES[0], False),
        *(pytest.param(loss, number < 2, marks=pytest.mark.slow) for number, loss in enumerate(LOSSES)),
    ],
)
def test_a_killed_preparation_leaves_no_half_set_and_no_mess(tmp_path: Path, loss: Loss, is_there: bool) -> None:
    def before(folder: Path) -> None:
        (folder / ".[set].kept").mkdir()  # none of ours
        if is_there:
            (folder / "[set]").mkdir()

    prepare(tmp_path)
    undisturbed = content(tmp_path / "[set]")
    assert sum(name.endswith(".parquet") for name in undisturbed) == 2
    whole = []
    for folder in killed_everywhere(tmp_path, before, prepare, loss):
        target = folder / "[set]"
        if target.exists() and any(target.iterdir()):
            whole.append(True)
            with pytest.raises(DataError, match="there is something already"):
                prepare(folder)
        else:
            whole.append(False)
            prepare(folder)
            assert sorted(path.name for path in folder.iterdir()) == [".[set].kept", "[set]"]
        read = load_split(f"parquet:{target}", None, "train")
        assert torch.equal(read.images[read.keys.argsort()], IMAGES.images)
        assert content(target) == undisturbed
    assert whole == sorted(whole)
    assert True in whole
    assert whole.count(False) > 10

"""`ebclab data prepare`, killed or cut off from its power anywhere, leaves a whole set or none, and can be repeated."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from kill_points import LOSSES, Loss, killed_everywhere

from ebclab.data.image_set import ImageSet
from ebclab.data.sources.load import load_split
from ebclab.data.sources.write_parquet import prepare_dataset
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


def prepare(folder: Path) -> None:
    prepare_dataset({"train": IMAGES}, folder / "[set]", progress=lambda line: None)


@pytest.mark.parametrize(
    ("loss", "is_there"),
    [
        (LOSSES[0], False),
        (LOSSES[1], True),
        *(pytest.param(*each, marks=pytest.mark.slow) for each in [(LOSSES[2], False), (LOSSES[0], True)]),
    ],
)
def test_a_killed_preparation_leaves_no_half_set_and_no_mess(tmp_path: Path, loss: Loss, is_there: bool) -> None:
    def before(folder: Path) -> None:
        (folder / ".[set].kept").mkdir()  # none of ours
        if is_there:
            (folder / "[set]").mkdir()

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
        assert (target / "checksums.json").exists()
    assert whole == sorted(whole)
    assert True in whole
    assert whole.count(False) > 10

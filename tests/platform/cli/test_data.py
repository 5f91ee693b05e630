"""``ebclab data prepare`` with a part of the training images: the part that a run with ``data.train_limit`` sees."""

from __future__ import annotations

from pathlib import Path

import torch

from ebclab.cli import main
from ebclab.data.holdout import limit
from ebclab.data.sources.load import load_split


def test_a_prepared_part_is_what_the_same_limit_chooses(tmp_path: Path) -> None:
    assert main(["data", "prepare", "digits", "--train-limit", "100", "--to", str(tmp_path / "part")]) == 0
    whole, part = load_split("digits", None, "train"), load_split(f"parquet:{tmp_path / 'part'}", None, "train")
    assert len(part) == 100
    chosen = limit(whole, 100)
    order = [part.keys.argsort(), chosen.keys.argsort()]
    assert torch.equal(part.images[order[0]], chosen.images[order[1]])
    assert torch.equal(part.labels[order[0]], chosen.labels[order[1]])
    test = load_split(f"parquet:{tmp_path / 'part'}", None, "test")
    assert len(test) == len(load_split("digits", None, "test"))

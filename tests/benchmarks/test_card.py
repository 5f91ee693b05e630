"""The benchmark of cards at a tiny size: a row for each group, and a probe that caching makes faster."""

from __future__ import annotations

import importlib
import re
import runpy
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.mark.slow
def test_a_tiny_card_has_a_row_for_each_piece_of_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(BENCHMARKS)
    monkeypatch.setattr(importlib.import_module("page"), "RESULTS", tmp_path)
    words = (
        "--dataset digits --side 8 --channels 1 --encoder resnet18 --train-limit 200 --test-limit 60 --probe-images 200"
    )
    words += " --only geometry,classification,out-of-distribution"
    monkeypatch.setattr("sys.argv", ["card.py", *words.split(), "--other", ""])
    runpy.run_path(str(BENCHMARKS / "card.py"), run_name="__main__")
    del sys.modules["page"]
    rows = re.findall(
        r"^\| ([^|]+) \| ([\d.,]+) \| ([\d.,]+) \| (.*?) ?\|$", (tmp_path / "card.md").read_text(), re.MULTILINE
    )
    assert [title for title, *_ in rows] == [
        "features: train",
        "features: test",
        "features: outside",
        "linear classifier",
        "classification",
        "out-of-distribution",
        "geometry",
        "all of the card",
        "linear probe, one epoch, cached features",
        "linear probe, one epoch, encoder run on each batch",
    ]
    notes = {title: note for title, _, _, note in rows}
    assert notes["features: train"] == "200 images"
    assert notes["geometry"] == notes["classification"] == ""  # neither was left out nor failed
    assert float(rows[-1][2]) > 20 * float(rows[-2][2])  # processor seconds, whatever else the machine does

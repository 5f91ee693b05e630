"""A dry run of what is measured on a GPU, on the CPU and with tiny sizes."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "gpu.py"
pytestmark = pytest.mark.slow

DIGITS = ["data.name=digits", "views.recipe=digits", "views.noise_std=0.0"]


@pytest.mark.parametrize(
    ("arguments", "starts"),
    [
        (
            ["check", "--methods", "simclr", "supervised", "--variants", "float32"],
            ["ok   views", "ok   simclr", "ok   sup"],
        ),
        (["throughput", "--methods", "simclr", "--variants", "float32, captured"], ["| simclr | float32, captured |"]),
        (["share", "--trials", "2"], ["| 2, one after the other |", "| 2, at once |"]),
        (["curve", "simclr", "--epochs", "1", "2", "--recipe", "ebclr-as-released"], ["| 1 |", "| 2 |"]),
    ],
)
def test_a_measurement_prints_its_rows(
    arguments: list[str],
    starts: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    small = ["--device", "cpu", "--tiny", "--steps", "1", "--batch-size", "8", "--runs", str(tmp_path)]
    own = [text for each in DIGITS for text in ("--set", each)]
    monkeypatch.syspath_prepend(SCRIPT.parent)
    monkeypatch.setattr(sys, "argv", [str(SCRIPT), *arguments, *small, *own])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(SCRIPT), run_name="__main__")
    for beside in ("page", "gpu_common"):  # the scripts beside it, which other tests find by their bare names too
        sys.modules.pop(beside, None)
    assert not ended.value.code
    rows = [line for line in capsys.readouterr().out.splitlines() if line.startswith(("ok", "FAIL", "| "))]
    assert len(rows) == len(starts)
    assert all(row.startswith(start) for row, start in zip(rows, starts, strict=True)), rows

"""A dry run of every part of a day on a GPU, on the CPU and with tiny sizes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
pytestmark = pytest.mark.slow


@pytest.fixture
def day(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The module of the day's parts, without the tests that need a GPU."""
    with monkeypatch.context() as patch:
        patch.syspath_prepend(BENCHMARKS)
        import gpu_day

        patch.setattr(gpu_day, "marked_tests", lambda out: 0)
        yield gpu_day


def rows(path: Path) -> list[list[str]]:
    lines = path.read_text().splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| ")][1:]


@pytest.mark.parametrize("part", ["a", "b", "c", "d"])
def test_a_part_leaves_whole_tables(part: str, day: ModuleType, tmp_path: Path) -> None:
    setting = day.Setting(torch.device("cpu"), True)
    assert day.run_part(part, setting, day.Time(9.0), tmp_path, data_root=str(tmp_path), runs=tmp_path / "runs") == 0
    found = rows(tmp_path / ("a_steps.md" if part == "a" else f"{part}.md"))
    if part == "a":
        assert [row[:2] for row in found[-2:]] == [["simclr", "float32, captured"], ["ebclr", "float32, captured"]]
        assert found[0][4:] == ["1.00x", "as they are"]
        assert found[-1][5] == "torch has no graphs for cpu"
    elif part == "d":
        assert [row[0] for row in found] == ["2, one after the other", "2, at once"]
        assert all(float(rate) > 0 for row in found for rate in row[2].split(", "))
    else:
        assert len(found) == 2
        assert all(0 <= float(row[4]) <= 100 for row in found)


def test_a_run_for_which_there_is_no_time_is_saved_and_goes_on(
    day: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    longer = ("data.train_limit=640", "training.epochs=4")  # seconds: a run is asked once a second
    monkeypatch.setattr(day, "TINY_RUN", (*day.TINY_RUN, *longer))
    setting, columns = day.Setting(torch.device("cpu"), True), ("run", "epochs", "seconds", "img/s", "kNN", "linear")
    table = day.Table(tmp_path / "b.md", "Runs", columns)
    for minutes in (0.0, 9.0):
        day.train(setting, day.Time(minutes), table, "mnist-simclr", "simclr", 1, [], tmp_path)
    first, second = rows(tmp_path / "b.md")
    assert first[2].startswith("stopped at step ")
    assert float(second[4]) >= 0


def test_files_that_travelled_in_parts_are_put_together_in_their_order(day: ModuleType, tmp_path: Path) -> None:
    for number in range(11):
        (tmp_path / f"set.tar.gz.part{number}").write_bytes(bytes([number]))
    day.join_parts(tmp_path)
    assert (tmp_path / "set.tar.gz").read_bytes() == bytes(range(11))

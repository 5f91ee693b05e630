"""Benchmarks are run by hand: at least they start, and everything that they import exists."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import re
import runpy
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BENCHMARKS = ROOT / "benchmarks"
SHARED = {
    "page",
    "gpu_common",
    "breaking_comparisons",
    "breaking_inputs",
    "breaking_runs",
    "photographs_set",
}  # no scripts: parts of them
SCRIPTS = sorted(path.stem for path in BENCHMARKS.glob("*.py") if path.stem not in SHARED)
BY_HAND = {"gpu", "card", "delivery", "sweep_start", "workers", "faults", "breaking", "photographs", "end_to_end"}
"""Scripts that need a GPU, downloaded data or root; a comment in the Makefile says so."""


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_starts_and_describes_itself(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(BENCHMARKS)
    monkeypatch.setattr("sys.argv", [f"{name}.py", "--help"])
    before = set(sys.modules)
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(BENCHMARKS / f"{name}.py"), run_name="__main__")
    for module in {*SHARED, *SCRIPTS} & (sys.modules.keys() - before):
        del sys.modules[module]
    assert ended.value.code == 0
    assert f"usage: {name}.py" in capsys.readouterr().out


@pytest.mark.parametrize("name", [*SCRIPTS, *sorted(SHARED)])
def test_what_a_script_imports_from_the_packages_exists(name: str) -> None:
    tree = ast.parse((BENCHMARKS / f"{name}.py").read_text(encoding="utf-8"))
    wanted = [
        (node.module, alias.name)
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in ("ebclab", "energy_contrast")
        for alias in node.names
    ]
    absent = [f"{module}.{attribute}" for module, attribute in wanted if not _exists(str(module), attribute)]
    assert absent == []


def _exists(module: str, attribute: str) -> bool:
    if hasattr(importlib.import_module(module), attribute):
        return True
    return importlib.util.find_spec(f"{module}.{attribute}") is not None


def test_make_runs_every_script_that_needs_no_special_machine() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    named = re.findall(r"^(?:QUICK|LONG)_BENCHMARKS := (.*)$", makefile, flags=re.MULTILINE)
    assert sorted(" ".join(named).split()) == sorted(set(SCRIPTS) - BY_HAND)
    comment = next(line for line in makefile.splitlines() if line.startswith("# Run by hand:"))
    assert all(name in comment for name in BY_HAND)


def test_a_measurement_beyond_its_goal_fails_and_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(BENCHMARKS)
    page, load = importlib.import_module("page"), importlib.import_module("load")
    assert page.exit_code([("list, s", 2.0, 2.0), ("list, MB", 1e9, float("inf"))]) == 0
    assert capsys.readouterr().err == ""
    found = [load.Measured(seconds, 1.0, 90.0) for seconds in (1.0, 2.4, 9.0)]
    row = load.Row("list", found, seconds=2, megabytes=100)
    assert page.exit_code([("index, s", 3.0, 10.0), *row.against_goals()]) == 1
    assert capsys.readouterr().err == "beyond its goal: list, s: 2.4, goal 2\n"
    assert row.text().endswith(" | 90 | 2 s, 100 MB |")
    for name in ("load", "sweep_start", "page"):
        sys.modules.pop(name, None)


def test_every_test_that_a_benchmark_names_exists() -> None:
    named = {
        path
        for script in BENCHMARKS.glob("*.py")
        for path in re.findall(r"tests/[\w/]+\.py", script.read_text(encoding="utf-8"))
    }
    assert named
    assert sorted(path for path in named if not (ROOT / path).is_file()) == []

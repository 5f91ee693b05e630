"""The house rules that no linter knows: floors, room sizes, names that must not exist."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCIENCE = ROOT / "methods" / "energy_contrast"
LAB = ROOT / "platform" / "ebclab"

SCIENCE_FLOORS = [
    {"settings", "parallel"},
    {"losses", "energies", "samplers", "memory", "networks", "diagnostics"},
    {"method", "ess_control", "chain_energy"},
    {"restarts", "predictive"},
    {"chains", "vem"},
    {"chain_trace"},
    {"simclr", "moco", "simsiam", "byol", "flatclr", "dcl", "ebclr", "vem_bank", "vem_image"},
    {"catalog"},
]
LAB_FLOORS = [
    {"errors"},
    {"config", "optimization"},
    {"encoders"},
    {"data"},
    {"storage"},
    {"evaluation"},
    {"training"},
    {"sweeps"},
    {"reports", "export"},
    {"submission"},
    {"cli"},
    {"__main__"},
]
SIDE_BY_SIDE = {frozenset({"optimization", "config"}), frozenset({"simclr", "flatclr"}), frozenset({"simclr", "dcl"})}
"""Pairs on one floor that may know each other: an optimizer reads its settings; FlatCLR and DCL are SimCLRs."""

MAY_IMPORT_RAY = {
    "sweeps",
    "cli",
    "submission/cluster.py",
    "training/cluster_nodes.py",
    "training/launch.py",
    "training/membership.py",
    "training/elastic.py",
    "training/preemption.py",
    "data/streaming",
}


def _imports(path: Path, *, everywhere: bool = True) -> set[str]:
    """Return the dotted names that a module imports; only at import time unless ``everywhere``."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    nodes = ast.walk(tree) if everywhere else iter(tree.body)
    found = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def _sources(root: Path) -> list[Path]:
    return [path for path in sorted(root.rglob("*.py")) if not path.is_relative_to(LAB / "cluster")]


def _room(path: Path, root: Path) -> str:
    return path.relative_to(root).parts[0].removesuffix(".py")


def _floor(room: str, floors: list[set[str]]) -> int:
    return next(level for level, rooms in enumerate(floors) if room in rooms)


@pytest.mark.parametrize(
    ("root", "package", "floors"),
    [(SCIENCE, "energy_contrast", SCIENCE_FLOORS), (LAB, "ebclab", LAB_FLOORS)],
)
def test_no_room_imports_a_room_above_or_beside_it(root: Path, package: str, floors: list[set[str]]) -> None:
    wrong = []
    for path in _sources(root):
        room = _room(path, root)
        if room == "__init__":
            continue
        for name in _imports(path):
            parts = name.split(".")
            if parts[0] != package or len(parts) < 2 or parts[1] == room:
                continue
            if not any(parts[1] in rooms for rooms in floors):
                continue  # a name defined in the package's __init__, not a room
            above = _floor(parts[1], floors) >= _floor(room, floors)
            if above and frozenset({room, parts[1]}) not in SIDE_BY_SIDE:
                wrong.append(f"{path.relative_to(ROOT)} imports {name}")
    assert wrong == []


def test_every_room_stands_on_a_floor() -> None:
    for root, floors in ((SCIENCE, SCIENCE_FLOORS), (LAB, LAB_FLOORS)):
        rooms = {_room(path, root) for path in _sources(root)} - {"__init__"}
        assert rooms <= set().union(*floors)


def test_the_science_package_needs_only_torch_and_the_standard_library() -> None:
    import sys

    allowed = set(sys.stdlib_module_names) | {"torch", "energy_contrast", "__future__"}
    for path in _sources(SCIENCE):
        assert {name.split(".")[0] for name in _imports(path)} <= allowed, path


def test_ray_is_imported_only_where_runs_are_launched() -> None:
    for path in _sources(LAB):
        where = path.relative_to(LAB).as_posix()
        if not any(where.startswith(place) for place in MAY_IMPORT_RAY):
            assert not any(name.split(".")[0] == "ray" for name in _imports(path)), where


def test_the_folders_called_platform_hold_no_init_file() -> None:
    # Started in the repository root, Python would take such a folder for the standard library's `platform`.
    for folder in (ROOT / "platform", ROOT / "tests" / "platform"):
        assert not (folder / "__init__.py").exists()
    assert list((ROOT / "tests").rglob("__init__.py")) == []


def test_files_stay_under_250_lines_and_functions_under_40() -> None:
    too_long = []
    for path in [*_sources(SCIENCE), *_sources(LAB)]:
        text = path.read_text(encoding="utf-8")
        if text.count("\n") > 250:
            too_long.append(f"{path.relative_to(ROOT)}: {text.count(chr(10))} lines")
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef) and (length := _code_lines(node)) > 40:
                too_long.append(f"{path.relative_to(ROOT)}:{node.lineno} {node.name}: {length} lines")
    assert too_long == []


def _code_lines(function: ast.FunctionDef) -> int:
    """Count a function's lines without its docstring."""
    length = (function.end_lineno or function.lineno) - function.lineno + 1
    first = function.body[0]
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
        length -= (first.end_lineno or first.lineno) - first.lineno + 1
    return length


def test_no_room_is_an_attic() -> None:
    names = {path.stem for path in [*_sources(SCIENCE), *_sources(LAB)]}
    assert names.isdisjoint({"utils", "util", "common", "helpers", "misc"})


def test_importing_ebclab_imports_neither_ray_nor_torch() -> None:
    import subprocess
    import sys

    code = "import sys, ebclab; print([m for m in ('ray', 'torch', 'pydantic') if m in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_everything_public_is_documented() -> None:
    silent = []
    for path in [*_sources(SCIENCE), *_sources(LAB)]:
        for name, node in _public(ast.parse(path.read_text(encoding="utf-8")).body):
            is_protocol_stub = isinstance(node, ast.FunctionDef) and ast.unparse(node.body[-1]) == "..."
            if ast.get_docstring(node) is None and not is_protocol_stub:
                silent.append(f"{path.relative_to(ROOT)}:{node.lineno} {name}")
    assert silent == []


def _public(body: list[ast.stmt]) -> list[tuple[str, ast.FunctionDef | ast.ClassDef]]:
    """Return the functions and classes of a module and the methods of its classes, private ones left out."""
    found: list[tuple[str, ast.FunctionDef | ast.ClassDef]] = []
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
            found.append((node.name, node))
            if isinstance(node, ast.ClassDef):
                found += _public(node.body)
    return found

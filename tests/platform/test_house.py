"""The house rules that no linter knows: layers, circles, long functions, where Ray may be, forbidden names."""

import ast
import re
import sys
from collections import Counter
from functools import cache
from pathlib import Path

import pytest
from sources import nodes, tree

from ebclab.storage.kinds import KINDS

ROOT = Path(__file__).parents[2]
SCIENCE = ROOT / "methods" / "energy_contrast"
LAB = ROOT / "platform" / "ebclab"
PACKAGES = {"energy_contrast": SCIENCE, "ebclab": LAB}

SCIENCE_LAYERS = [
    {"settings", "parallel"},
    {"losses", "energies", "samplers", "memory", "networks", "diagnostics"},
    {"method", "classifier", "bounds"},
    {"sampling_method", "ess_control", "costs"},
    {"chains"},
    {"contrastive", "predictive", "supervised", "energy_based"},
    {"catalog", "method_settings"},
]
LAB_LAYERS = [
    {"errors", "background", "formatting", "interval", "regular_file"},
    {"methods_by_name", "terminal"},
    {"document"},
    {"config", "optimization", "hardware"},
    {"storage", "encoders"},
    {"data", "cluster"},
    {"evaluation"},
    {"runs"},
    {"training"},
    {"sweeps"},
    {"inventory", "reports", "export"},
    {"submission", "card", "comparisons"},
    {"reproductions"},
    {"cli"},
    {"__main__"},
]
SIDE_BY_SIDE = {frozenset({"optimization", "config"})}
"""Pairs in one layer that may know each other: an optimizer reads its settings."""

RAY_FOLDERS = ("cluster", "training/ray_train", "sweeps/ray_tune", "data/delivery/ray_data", "card/ray_workers")

LINES_IN_A_FUNCTION = 60


def _sources(root: Path) -> list[Path]:
    return sorted(root.rglob("*.py"))


EVERY_SOURCE = [path for root in PACKAGES.values() for path in _sources(root)]


@cache
def _imports(path: Path) -> set[str]:
    """Return the dotted names that a module imports, wherever it does."""
    names: set[str] = set()
    for node in nodes(path):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def _part(path: Path, root: Path) -> str:
    return path.relative_to(root).parts[0].removesuffix(".py")


def _layer(part: str, layers: list[set[str]]) -> int:
    return next(level for level, parts in enumerate(layers) if part in parts)


@pytest.mark.parametrize(
    ("root", "package", "layers"),
    [(SCIENCE, "energy_contrast", SCIENCE_LAYERS), (LAB, "ebclab", LAB_LAYERS)],
)
def test_no_package_imports_one_above_or_beside_it(root: Path, package: str, layers: list[set[str]]) -> None:
    wrong = []
    for path in _sources(root):
        part = _part(path, root)
        if part == "__init__":
            continue
        for name in _imports(path):
            parts = name.split(".")
            if parts[0] != package or len(parts) < 2 or parts[1] == part:
                continue
            if not any(parts[1] in layer for layer in layers):
                continue  # a name defined in the package's __init__
            above = _layer(parts[1], layers) >= _layer(part, layers)
            if above and frozenset({part, parts[1]}) not in SIDE_BY_SIDE:
                wrong.append(f"{path.relative_to(ROOT)} imports {name}")
    assert wrong == []


def test_every_package_has_a_layer() -> None:
    for root, layers in ((SCIENCE, SCIENCE_LAYERS), (LAB, LAB_LAYERS)):
        parts = {_part(path, root) for path in _sources(root)} - {"__init__"}
        assert parts == set().union(*layers)


def _module(path: Path) -> str:
    base = LAB.parent if path.is_relative_to(LAB) else SCIENCE.parent
    parts = path.relative_to(base).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def _arrows() -> dict[str, set[str]]:
    """Return which modules each module imports, the package's own front doors (``__init__``) left out."""
    modules = {_module(path): path for path in EVERY_SOURCE}
    return {
        module: {
            name for name in _imports(path) if name in modules and name != module and not module.startswith(f"{name}.")
        }
        for module, path in modules.items()
        if module not in PACKAGES
    }


def _circle(arrows: dict[str, set[str]]) -> list[str]:
    """Return one way along the arrows that comes back to where it began; empty when there is none."""
    done: set[str] = set()

    def walk(module: str, way: list[str]) -> list[str]:
        if module in way:
            return [*way[way.index(module) :], module]
        if module in done:
            return []
        for other in sorted(arrows.get(module, ())):
            if circle := walk(other, [*way, module]):
                return circle
        done.add(module)
        return []

    return next((circle for module in sorted(arrows) if (circle := walk(module, []))), [])


def test_no_file_imports_itself_by_way_of_others() -> None:
    assert _circle(_arrows()) == []
    assert _circle({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == ["b", "c", "b"]


def test_no_part_of_a_folder_imports_itself_by_way_of_others() -> None:
    # The parts of a folder are its folders and files; imports within a part are its own business.
    folders = {_module(path.parent / "__init__.py") for path in EVERY_SOURCE}
    for folder in sorted(folders):

        def part(module: str, folder: str = folder) -> str:
            inside = module.removeprefix(f"{folder}.").split(".")
            return f"{folder}.{inside[0]}"

        parts: dict[str, set[str]] = {}
        for module, others in _arrows().items():
            if module.startswith(f"{folder}."):
                known = {part(other) for other in others if other.startswith(f"{folder}.")}
                parts.setdefault(part(module), set()).update(known - {part(module)})
        assert _circle(parts) == [], folder


def test_the_science_package_needs_only_torch_and_the_standard_library() -> None:
    allowed = set(sys.stdlib_module_names) | {"torch", "energy_contrast", "__future__"}
    for path in _sources(SCIENCE):
        assert {name.split(".")[0] for name in _imports(path)} <= allowed, path


def test_ray_is_imported_only_in_folders_whose_names_say_so() -> None:
    for path in _sources(LAB):
        where = path.relative_to(LAB)
        if not any(where.is_relative_to(folder) for folder in RAY_FOLDERS):
            assert not any(name.split(".")[0] == "ray" for name in _imports(path)), where


def test_private_names_of_ray_are_known_in_one_package() -> None:
    for path in _sources(LAB):
        if not path.is_relative_to(LAB / "cluster"):
            names = {name for name in _imports(path) if name.split(".")[0] == "ray"}
            assert not any(part.startswith("_") for name in names for part in name.split(".")), path


def test_the_folders_called_platform_hold_no_init_file() -> None:
    # Started in the repository root, Python would take such a folder for the standard library's `platform`.
    for folder in (ROOT / "platform", ROOT / "tests" / "platform"):
        assert not (folder / "__init__.py").exists()
    assert list((ROOT / "tests").rglob("__init__.py")) == []


def test_functions_stay_of_a_size_to_be_read() -> None:
    too_long = []
    for path in EVERY_SOURCE:
        for node in nodes(path):
            if isinstance(node, ast.FunctionDef) and (length := _code_lines(node)) > LINES_IN_A_FUNCTION:
                too_long.append(f"{path.relative_to(ROOT)}:{node.lineno} {node.name}: {length} lines")
    assert too_long == []


def _code_lines(function: ast.FunctionDef) -> int:
    """Count a function's lines without its docstring."""
    length = (function.end_lineno or function.lineno) - function.lineno + 1
    first = function.body[0]
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
        length -= (first.end_lineno or first.lineno) - first.lineno + 1
    return length


def test_no_class_name_stands_for_two_things() -> None:
    names = [node.name for path in EVERY_SOURCE for node in nodes(path) if isinstance(node, ast.ClassDef)]
    assert [name for name, count in Counter(names).items() if count > 1] == []


def test_no_module_is_a_heap() -> None:
    names = {path.stem for path in EVERY_SOURCE} | {path.parent.name for path in EVERY_SOURCE}
    assert names.isdisjoint({"utils", "util", "common", "helpers", "misc", "tools"})


def test_what_others_call_is_documented() -> None:
    # A property may be its name, and a method that a base class describes needs no second description.
    silent = []
    for path in EVERY_SOURCE:
        for node in tree(path).body:
            if not isinstance(node, ast.FunctionDef | ast.ClassDef) or node.name.startswith("_"):
                continue
            if ast.get_docstring(node) is None:
                silent.append(f"{path.relative_to(ROOT)}:{node.lineno} {node.name}")
            if isinstance(node, ast.ClassDef) and not node.bases:
                silent += [
                    f"{path.relative_to(ROOT)}:{inner.lineno} {node.name}.{inner.name}"
                    for inner in node.body
                    if isinstance(inner, ast.FunctionDef)
                    and not inner.name.startswith("_")
                    and not any("property" in ast.unparse(mark) for mark in inner.decorator_list)
                    and ast.get_docstring(inner) is None
                ]
    assert silent == []


def test_files_of_folders_are_named_in_one_table() -> None:
    table, named = LAB / "storage" / "kinds.py", {name for kind in KINDS.values() for name in kind.files}
    elsewhere = [
        f"{path.relative_to(LAB)}: {node.value}"
        for path in _sources(LAB)
        if path not in (table, LAB / "data" / "preparing" / "write_parquet.py")  # whose plan is another
        for node in nodes(path)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.rpartition("/")[2] in named
    ]
    assert not elsewhere


def test_what_a_public_function_returns_or_a_public_class_has_is_public() -> None:
    """Who calls the function, or reads the field, uses the attributes of what it gets."""
    private = re.compile(r"\b_[A-Z]\w+")
    classes = {node.name for path in EVERY_SOURCE for node in nodes(path) if isinstance(node, ast.ClassDef)}
    wrong = []
    for path in EVERY_SOURCE:
        bodies = [tree(path).body]
        while bodies:
            for node in bodies.pop():
                name = getattr(node, "name", None) or ast.unparse(getattr(node, "target", ast.Name("")))
                if name.startswith("_"):
                    continue
                bodies += [node.body] if isinstance(node, ast.ClassDef) else []
                hint = getattr(node, "returns", None) or getattr(node, "annotation", None)
                used = {*private.findall(ast.unparse(hint))} & classes if hint else set()
                wrong += [f"{path.relative_to(ROOT)}: {name} has {each}" for each in used]
    assert wrong == []

"""Which names the reference describes, and where: the science package whole, of the lab what users call."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from docstrings import Module, page, read_module

ROOT = Path(__file__).parents[2]
SCIENCE = ROOT / "methods" / "energy_contrast"
LAB = ROOT / "platform" / "ebclab"
LAB_FILES = {
    "errors.py": "Errors",
    "config/sections.py": "Settings of a run",
    "config/encoder.py": "Settings of the encoder",
    "config/experiment.py": "All settings together",
    "config/recipes.py": "Recipes",
    "evaluation/answers.py": "Scores",
    "sweeps/policies/stopping.py": "Stopping rules of sweeps",
    "training/loop.py": "The training loop",
}
"""Files of the lab that have a page beside those of the names of ``import ebclab``."""


def pages() -> dict[str, str]:
    """Return the text of every page of the reference by its path below the site's root."""
    modules = [*_science(), *_lab()]
    links = _links(modules)
    written = {_path(module): page(module, _title(module), links) for module in modules}
    public = _public_names()
    written["reference/ebclab.md"] = _front(public, links)
    return written


def paths_of_files() -> dict[str, str]:
    """Return the page that describes a Python file, by the file's path below the repository's root."""
    return {module.path.relative_to(ROOT).as_posix(): _path(module) for module in (*_science(), *_lab())}


def science_pages() -> list[tuple[str, list[str]]]:
    """Return the pages of the science package, folder by folder."""
    folders: dict[str, list[str]] = {}
    for module in _science():
        parts = module.path.relative_to(SCIENCE).parts
        folders.setdefault(parts[0] if len(parts) > 1 else "", []).append(_path(module))
    return [(folder, sorted(found)) for folder, found in sorted(folders.items())]


def lab_pages() -> list[str]:
    """Return the pages of the lab's modules."""
    return [_path(module) for module in _lab()]


def _path(module: Module) -> str:
    return f"reference/{module.name}.md"


def _title(module: Module) -> str:
    return LAB_FILES.get(_within(module.path, LAB), f"`{module.name.partition('.')[2] or module.name}`")


def _within(path: Path, root: Path) -> str:
    return path.relative_to(root).as_posix() if path.is_relative_to(root) else ""


def _science() -> Iterator[Module]:
    for path in sorted(SCIENCE.rglob("*.py")):
        if path.name != "__init__.py":
            yield read_module(_dotted(path, SCIENCE), path)


def _lab() -> Iterator[Module]:
    """Yield the modules in which the names of ``import ebclab`` are defined, and those that are listed here."""
    wanted: dict[Path, set[str] | None] = {LAB / name: None for name in LAB_FILES}
    for path, name in _public_names().values():
        names = wanted.setdefault(path, set())
        if names is not None:
            names |= {name, *_types_of(path, name)}
    for path, names in wanted.items():
        yield read_module(_dotted(path, LAB), path, None if names is None else frozenset(names))


def _public_names() -> dict[str, tuple[Path, str]]:
    """Return file and name of each name that ``import ebclab`` offers."""
    tree = ast.parse((LAB / "__init__.py").read_text(encoding="utf-8"))
    homes = next(node.value for node in tree.body if isinstance(node, ast.Assign) and _named(node) == "_HOMES")
    found = {}
    for name, home in ast.literal_eval(homes).items():
        module, _, attribute = home.partition(":")
        found[name] = _definition(module, attribute)
    return found


def _named(node: ast.Assign) -> str:
    return ast.unparse(node.targets[0])


def _definition(module: str, name: str) -> tuple[Path, str]:
    """Return the file that defines a name, through the packages that hand it on."""
    path = _file(module)
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in tree.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == name:
            return path, name
        if isinstance(node, ast.ImportFrom) and node.module and name in {item.name for item in node.names}:
            return _definition(node.module, name)
    raise LookupError(f"{module}: {name} is defined nowhere")


def _types_of(path: Path, name: str) -> set[str]:
    """Return classes of the same file that a function hands out."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    classes = {node.name for node in tree.body if isinstance(node, ast.ClassDef)}
    returns = {
        word
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and node.name == name and node.returns
        for word in re.findall(r"\w+", ast.unparse(node.returns))
    }
    return classes & returns


def _file(module: str) -> Path:
    parts = module.split(".")
    root = {"ebclab": LAB, "energy_contrast": SCIENCE}[parts[0]].joinpath(*parts[1:])
    return root / "__init__.py" if root.is_dir() else root.with_suffix(".py")


def _dotted(path: Path, root: Path) -> str:
    return ".".join([root.name, *path.relative_to(root).with_suffix("").parts])


def _links(modules: list[Module]) -> dict[str, str]:
    """Return the target of every name that stands for one thing alone."""
    found: dict[str, set[str]] = {}
    for module in modules:
        for entry in module.entries:
            for one in (entry, *entry.members):
                for name in {one.name, one.short if one is entry else f"{entry.short}.{one.short}"}:
                    found.setdefault(name, set()).add(f"#{one.name}")
    return {name: targets.pop() for name, targets in found.items() if len(targets) == 1}


def _front(public: dict[str, tuple[Path, str]], links: dict[str, str]) -> str:
    """Return the page of ``import ebclab``."""
    text = ast.get_docstring(ast.parse((LAB / "__init__.py").read_text(encoding="utf-8"))) or ""
    head, example, rest = text.split("\n\n", 2)
    lines = [f"# `import ebclab`\n\n{head}\n\n```python\n{_dedented(example)}\n```\n\n{rest}\n"]
    lines.append("| name | what it does |\n|---|---|\n")
    for name, (path, defined) in sorted(public.items()):
        node = next(
            node
            for node in ast.parse(path.read_text(encoding="utf-8")).body
            if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == defined
        )
        summary = (ast.get_docstring(node) or "").partition("\n")[0]
        lines.append(
            f"| [`ebclab.{name}`](<#{_dotted(path, LAB)}.{defined}>) | {summary.replace('|', chr(92) + '|')} |\n"
        )
    return "".join(lines)


def _dedented(text: str) -> str:
    return "\n".join(line.removeprefix("    ") for line in text.splitlines())

"""The tables of rooms in architecture.md: which rooms there are, what they import, how large they are.

python docs/rooms.py --write    writes names, imports and numbers anew; what a room is for stays as it is there
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "architecture.md"
PACKAGES = {"energy_contrast": ROOT / "methods" / "energy_contrast", "ebclab": ROOT / "platform" / "ebclab"}
HEAD = "| room | what it is for | imports | files | lines |\n|---|---|---|---|---|\n"


@dataclass(frozen=True)
class Room:
    """A folder of a package, or a file beside its folders.

    Attributes:
        name: Path within the package; a folder's ends with a slash.
        imports: Other rooms of the package, first level only, and ``energy_contrast`` and ``ray``.
        files: Python files, those in folders below and ``__init__.py`` left out.
        lines: Lines of these files and of ``__init__.py``.
    """

    name: str
    imports: tuple[str, ...]
    files: int
    lines: int


def rooms_of(package: str) -> list[Room]:
    """Return the rooms of a package, each after those that it imports; folders within a folder follow it."""
    root = PACKAGES[package]
    top = sorted({path.relative_to(root).parts[0] for path in root.rglob("*.py")} - {"__init__.py", "__main__.py"})
    imported = {name: _imports(package, root / name) for name in top}
    ordered = sorted(top, key=lambda name: (_height(name, imported), name))
    return [room for name in ordered for room in _with_folders(package, root / name)]


def table(package: str, purposes: dict[str, str]) -> str:
    """Return the table of a package's rooms; a room without a purpose gets an empty one."""
    rows = [
        f"| `{room.name}` | {purposes.get(room.name, '')} | {', '.join(room.imports)} | {room.files} | {room.lines} |\n"
        for room in rooms_of(package)
    ]
    return HEAD + "".join(rows)


def cells(package: str, page: str) -> list[list[str]]:
    """Return the rows of a package's table on the page, cell by cell."""
    lines = _parts(package, page)[1].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def rewritten(page: str) -> str:
    """Return the page with today's tables."""
    for package in PACKAGES:
        purposes = {row[0].strip("`"): row[1] for row in cells(package, page)}
        start, old, end = _parts(package, page)
        page = page.replace(start + old + end, start + table(package, purposes) + end)
    return page


def _parts(package: str, page: str) -> tuple[str, str, str]:
    """Return the mark before a package's table on the page, the table, and the mark after it."""
    found = re.search(rf"(<!-- rooms of {package} -->\n)(.*?)(<!-- end -->)", page, re.DOTALL)
    if found is None:
        raise SystemExit(f"{PAGE}: the marks of the table of {package} are missing")
    return found[1], found[2], found[3]


def _with_folders(package: str, path: Path) -> Iterator[Room]:
    """Yield a room and, after it, the rooms within it."""
    name = path.relative_to(PACKAGES[package]).as_posix()
    own = [path] if path.is_file() else sorted(path.glob("*.py"))
    lines = sum(file.read_text(encoding="utf-8").count("\n") for file in own)
    counted = sum(file.name != "__init__.py" for file in own)
    yield Room(name if path.is_file() else f"{name}/", tuple(sorted(_imports(package, path))), counted, lines)
    if path.is_dir():
        for folder in sorted({file.parent for file in path.glob("*/*.py")}):
            yield from _with_folders(package, folder)


def _imports(package: str, path: Path) -> set[str]:
    """Return which other rooms a file or a folder imports, as the table names them."""
    own = path.relative_to(PACKAGES[package]).parts[0].removesuffix(".py")
    found: set[str] = set()
    for file in [path] if path.is_file() else path.rglob("*.py"):
        for name in _imported_names(ast.parse(file.read_text(encoding="utf-8"))):
            first, _, rest = name.partition(".")
            if first == package and rest:
                found.add(rest.partition(".")[0])
            elif first in ("energy_contrast", "ray"):
                found.add(first)
    return found - {own}


def _imported_names(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _height(name: str, imported: dict[str, set[str]]) -> int:
    """Return how many rooms stand under a room, one on the other."""
    keys = {key.removesuffix(".py"): key for key in imported}
    below = [keys[other] for other in imported[name] if other in keys]
    return 1 + max((_height(other, imported) for other in below), default=0)


if __name__ == "__main__":
    if sys.argv[1:] != ["--write"]:
        raise SystemExit(__doc__)
    PAGE.write_text(rewritten(PAGE.read_text(encoding="utf-8")), encoding="utf-8")

"""How large the project is: lines, files, public classes, untyped dictionaries, words.

python docs/size.py
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs/", "cluster/")


def main() -> None:
    """Print the table."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    files = [ROOT / name for name in listed.split("\0") if name and (ROOT / name).is_file()]
    lab, science, tests = (list(_python(files, ROOT / name)) for name in ("platform", "methods", "tests"))
    pages = [path for path in files if path.suffix == ".md" and str(path.relative_to(ROOT)).startswith(PAGES)]
    counts = (
        ("platform, lines of Python", sum(map(_lines, lab))),
        ("platform, files with code", sum(_has_code(path) for path in lab)),
        ("platform, public classes", sum(len(_public_classes(path)) for path in lab)),
        ("platform, `dict[str, Any]`", sum(_text(path).count("dict[str, Any]") for path in lab)),
        (
            "platform, page templates",
            sum(path.suffix == ".j2" for path in files),
        ),
        ("methods, lines of Python", sum(map(_lines, science))),
        ("tests, lines of Python", sum(map(_lines, tests))),
        ("README, docs, cluster, CONTRIBUTING, CHANGELOG: words", sum(map(_words, pages))),
    )
    rows = [f"| {what} | {count:,} |" for what, count in counts]
    sys.stdout.write("\n".join(["| | count |\n|---|---|", *rows, ""]))  # at once: its reader may be `head`


def _python(files: list[Path], folder: Path) -> Iterator[Path]:
    return (path for path in files if path.suffix == ".py" and path.is_relative_to(folder))


def _words(path: Path) -> int:
    return sum(any(map(str.isalnum, word)) for word in _text(path).split())


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def _lines(path: Path) -> int:
    return len(_text(path).splitlines())


def _has_code(path: Path) -> bool:
    """Whether a module has more than its docstring."""
    return any(not isinstance(node, ast.Expr) for node in ast.parse(_text(path)).body)


def _public_classes(path: Path) -> list[str]:
    found = (node for node in ast.parse(_text(path)).body if isinstance(node, ast.ClassDef))
    return [node.name for node in found if not node.name.startswith("_")]


if __name__ == "__main__":
    main()

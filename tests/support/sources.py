"""The syntax of source files, parsed once for all tests of a process."""

import ast
from functools import cache
from pathlib import Path


@cache
def tree(path: Path) -> ast.Module:
    """Return the syntax of a file of Python."""
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def nodes(path: Path) -> list[ast.AST]:
    """Return all parts of a file's syntax."""
    return list(ast.walk(tree(path)))

"""Prints the test files that a change can affect, and on stderr how many and why: ``make test-changed``.

A test file depends on what it imports, wherever the import is, on what it names of the conftest.py above it, on modules
and files that its texts name, and so on. A change on which nothing is known to depend selects all test files.
"""

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath

PACKAGES = ("platform", "methods")
OUTER = {*PACKAGES, "tests", "ebclab", "energy_contrast"}
OF_ALL = {"pyproject.toml", "constraints.txt", "tests/conftest.py"}
LAZY = re.compile(r'"(\w+)": "([\w.]+):\w+"')  # in an __init__.py: the module is imported where the name is used
IN_TEXT = re.compile(r"[\w-]+(?:\.[\w-]+)+|(?:(?<=import )|(?<=from ))\w+")  # modules and files, e.g. in a script


def names_in(tree: ast.AST, file: str) -> Iterator[str]:
    """Yield names of modules that a module or its texts use, =identifiers, and /parts of texts that may be paths."""
    for node in ast.iter_child_nodes(tree):
        match node:
            case ast.Expr(value=ast.Constant()) | ast.If(test=ast.Name(id="TYPE_CHECKING")):
                continue  # docstrings, and imports for type checkers
            case ast.Import():
                yield from (each.name for each in node.names)
            case ast.ImportFrom():
                base = [*(PurePosixPath(file).parts[: -node.level] if node.level else ()), node.module or ""]
                yield from (".".join(filter(None, [*base, each.name])) for each in node.names)
            case ast.Attribute(value=ast.Name(id=owner), attr=name) if owner in OUTER:
                yield f"{owner}.{name}"
            case ast.Name(id=name) | ast.arg(arg=name):
                yield f"={name}"
            case ast.Constant(value=str(text)):
                yield from [*(f"/{part}" for part in text.split("/")), *IN_TEXT.findall(text)]
        yield from names_in(node, file)


def parts_of(tree: ast.Module, file: str) -> Iterator[tuple[set[str], set[str]]]:
    """Yield what each statement of a conftest.py defines, with ``autouse`` if it is for all tests, and its names."""
    for node in tree.body:
        text, named = ast.unparse(node), {getattr(node, "name", "")} - {""}
        named |= {(each.asname or each.name).partition(".")[0] for each in getattr(node, "names", [])}
        defined = named or set(re.findall(r"^(\w+)(?:: .+)? = ", text))
        is_for_all = not defined or "autouse=True" in text
        marked = {f"={name}" for name in defined} | ({"autouse"} if is_for_all else set())
        yield marked, set(names_in(ast.Module([node], []), file))


def module_of(file: str) -> str:
    """Return the dotted name of a file; the folder tests/support is on the path of imports."""
    parts = PurePosixPath(file.removesuffix("/__init__.py").removesuffix(".py")).parts
    return parts[-1] if parts[:2] == ("tests", "support") else ".".join(parts[parts[0] in PACKAGES :])


class Sources:
    """The Python files of a tree, and what each test file uses."""

    def __init__(self, root: Path) -> None:
        paths = [path for top in (*PACKAGES, "tests") for path in (root / top).rglob("*.py")]
        texts = {path.relative_to(root).as_posix(): path.read_text(encoding="utf-8") for path in paths}
        trees = {file: ast.parse(text) for file, text in texts.items()}
        self.modules = {module_of(file): file for file in texts}
        self.modules |= {PurePosixPath(file).name: file for file in texts if file.startswith("tests/")}
        pairs = {file: LAZY.findall(text) for file, text in texts.items() if file.endswith("__init__.py")}
        self.lazy = {f"{module_of(file)}.{name}": home for file, found in pairs.items() for name, home in found}
        homes = {*self.lazy.values()}
        self.names = {
            file: set(names_in(tree, file)) - (homes if file in pairs else set()) for file, tree in trees.items()
        }
        self.parts = {file: [*parts_of(trees[file], file)] for file in trees if file.endswith("/conftest.py")}
        direct = {file: self._uses(names) if file not in self.parts else set() for file, names in self.names.items()}
        self.uses = {file: self._all_uses(direct, file) for file in texts if "/test_" in file}

    def _uses(self, names: set[str]) -> set[str]:
        paths = [self.lazy.get(name, name).split(".") for name in names]
        known = {".".join(parts[: n + 1]) for parts in paths for n in range(len(parts))}
        return {self.modules[name] for name in known & self.modules.keys()}

    def _all_uses(self, direct: dict[str, set[str]], test: str) -> set[str]:
        above = {file for each in PurePosixPath(test).parents if (file := f"{each}/conftest.py") in self.parts}
        names = {"autouse", *self.names[test], *(f"={name[1:]}" for name in self.names[test] if name[:1] == "/")}
        left = [part for file in above for part in self.parts[file]]
        while taken := [part for part in left if part[0] & names]:
            left, names = [part for part in left if part not in taken], names.union(*(each for _, each in taken))
        names |= {"ebclab.__main__"} if "/ebclab" in names else set()  # python -m ebclab
        self.names[test], seen, waiting = names, above, {test, *self._uses(names)}
        while waiting:
            seen |= waiting
            waiting = set().union(*(direct[file] for file in waiting)) - seen
        return seen

    def tests_of(self, changed: str) -> set[str]:
        """Return the test files that a changed file can affect; empty if nothing is known to depend on it."""
        parts, known = PurePosixPath(changed).parts, changed in self.names
        words = {f"/{part}" for part in (*[part for part in parts if part not in OUTER][:1], *parts[-2:])}
        words -= {"/methods"} if parts[0] == "docs" else set()  # the folder of pages has the name of the code's
        walked = ({f"/{parts[0]}", "=__file__"}, {f"{'.'.join(parts[1:2])}.__path__"})
        readers = {changed} | {
            file
            for file, names in self.names.items()
            if any(each <= names for each in walked)
            or (not known and words & names and (file.startswith("tests/") or "=files" in names))
        }
        return {test for test, used in self.uses.items() if (readers - self.parts.keys() | {changed}) & used}


def choose(root: Path, changed: Iterable[str]) -> tuple[list[str], list[str]]:
    """Return the test files to run for changed files, and a line for each of these about how many and why."""
    sources, chosen, lines = Sources(root), set[str](), []
    for file in sorted(changed):
        is_known = file not in OF_ALL and (root / file).exists()
        found = sources.tests_of(file) if is_known else set()
        lines.append(f"{file}: {len(found) or 'all'}")
        chosen |= found or sources.uses.keys()
    return sorted(chosen), [*lines, f"{len(chosen)} of {len(sources.uses)} test files"]


if __name__ == "__main__":
    diff = ["git", "diff", "--name-only", "--no-renames", "--merge-base", os.environ.get("BASE") or "main"]
    commands = (diff, ["git", "ls-files", "--others", "--exclude-standard"])
    found = [subprocess.run(each, check=True, stdout=subprocess.PIPE, text=True).stdout for each in commands]
    tests, why = choose(Path.cwd(), "".join(found).splitlines())
    print("\n".join(why), file=sys.stderr)
    print("\n".join(tests))

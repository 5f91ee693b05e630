"""Every regular expression of the packages takes time linear in the text, whatever the text.

Texts come from files and addresses of other people. A pattern whose time grows with the square of the length lets a
file of a few kilobytes stop a command for hours.
"""

import ast
import importlib
import re
import time
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path
from re import _constants as op  # type: ignore[attr-defined]
from re import _parser  # type: ignore[attr-defined]
from typing import Any, NamedTuple

import pytest
import sources

import ebclab
import energy_contrast
from ebclab.config.yaml_text import _Loader

PACKAGES = [Path(package.__file__ or "").parent for package in (ebclab, energy_contrast)]
SOURCES = [path for package in PACKAGES for path in sorted(package.rglob("*.py"))]
MADE = {
    ("check.py", "compile"): r"\b(data\.name|learning_rate)\b",
    ("plots.py", "match"): "too slow|",
    ("worker.py", "search"): r"(?m)^ebclab\.errors\.(\w+): (.*)$",
}
"""Examples of patterns that are made from other text than constants of their module, by file and function."""

LENGTHS = (1_000, 2_500, 6_250, 25_000, 100_000)
"""Characters of the texts: the slowest texts of a pattern at the first length are tried at the others."""

SLOWEST = 3
AT_ONCE, LONGEST = 0.1, 2.0  # processor seconds


class Use(NamedTuple):
    """A pattern, and a function that it is used by."""

    where: str
    pattern: re.Pattern[Any]
    function: str


@cache
def trees() -> dict[Path, ast.Module]:
    texts = {path: path.read_text(encoding="utf-8") for path in SOURCES}
    return {path: sources.tree(path) for path, text in texts.items() if re.search(r"\bre\b", text)}


def functions_called_on(name: str) -> set[str]:
    """Return the functions of a compiled pattern that are called anywhere, by its name; match if there is no call."""
    calls = [node for tree in trees().values() for node in ast.walk(tree) if isinstance(node, ast.Call)]
    found = {
        call.func.attr
        for call in calls
        if isinstance(call.func, ast.Attribute) and ast.unparse(call.func.value).rpartition(".")[2] == name
    }
    return found & {"search", "match", "fullmatch", "sub", "split", "findall", "finditer"} or {"match"}


def uses_in(path: Path, tree: ast.Module) -> Iterator[Use]:
    """Yield every pattern in a module.

    Raises:
        NameError: A pattern is made of names that the module has not, and ``MADE`` has no example of it.
    """
    package = next(each for each in PACKAGES if path.is_relative_to(each))
    module = importlib.import_module(".".join(path.relative_to(package.parent).with_suffix("").parts))
    names = {
        id(node.value): ast.unparse(node.targets[0])
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)
    }
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
            continue
        function = node.func.attr
        if ast.unparse(node.func.value) != "re" or function == "escape":
            continue
        compiled = function == "compile"
        functions = functions_called_on(names.get(id(node), "")) if compiled else {function}
        flags = node.args[1:2] if compiled else []
        where = f"{path.name}:{node.lineno}"
        text = MADE.get((path.name, function)) or eval(ast.unparse(node.args[0]), vars(module))
        flag = eval(ast.unparse(flags[0]), vars(module)) if flags else 0
        yield from (Use(where, re.compile(text, flag), function) for function in sorted(functions))


def pieces(tree: Any) -> Iterator[str]:
    """Yield the characters and the words in a parsed pattern, one of each set."""
    word = ""
    for kind, value in tree:
        if kind is op.LITERAL:
            word += chr(value)
            yield chr(value)
            continue
        yield from [word] if len(word) > 1 else []
        word = ""
        if kind is op.IN:
            yield from map(example_of_set, ([part] for part in value))
        elif kind in (op.ANY, op.NOT_LITERAL):
            yield from ("a", " ")
        elif kind is op.BRANCH:
            for part in value[1]:
                yield from pieces(part)
        elif isinstance(value, tuple) and isinstance(value[-1], _parser.SubPattern):
            yield from pieces(value[-1])
        elif isinstance(value, _parser.SubPattern):
            yield from pieces(value)
    yield from [word] if len(word) > 1 else []


def example_of_set(parts: list[tuple[Any, Any]]) -> str:
    kind, value = parts[0]
    if kind is op.NEGATE:
        return next(each for each in "a1 \n" if f"{each}" not in {chr(v) for k, v in parts if k is op.LITERAL})
    if kind is op.CATEGORY:
        return {op.CATEGORY_DIGIT: "1", op.CATEGORY_SPACE: " "}.get(value, "a")
    return chr(value if kind is op.LITERAL else value[0])


def example(tree: Any, starts: set[str], before: str = "") -> str:
    """Return a text like those that a parsed pattern matches; adds what comes before each repetition to ``starts``."""
    text = ""
    for kind, value in tree:
        if kind in (op.MAX_REPEAT, op.MIN_REPEAT, op.POSSESSIVE_REPEAT):
            starts.add(before + text)
            text += example(value[2], starts, before + text) * max(min(value[0], 50), 1)
        elif kind is op.LITERAL:
            text += chr(value)
        elif kind is op.IN:
            text += example_of_set(value)
        elif kind in (op.ANY, op.NOT_LITERAL):
            text += "a"
        elif kind is op.BRANCH:
            text += next(example(part, starts, before + text) for part in value[1])
        elif kind in (op.SUBPATTERN, op.ATOMIC_GROUP) or (kind is op.ASSERT and value[0] < 0):
            text += example(value if kind is op.ATOMIC_GROUP else value[-1], starts, before + text)
    return text


def attacks(pattern: re.Pattern[Any]) -> list[tuple[str, str]]:
    """Return beginnings and repeated units of texts that may take long."""
    text = pattern.pattern if isinstance(pattern.pattern, str) else pattern.pattern.decode("latin-1")
    tree, starts = _parser.parse(text, pattern.flags & ~re.UNICODE), {""}
    whole, own = example(tree, starts), list(dict.fromkeys([*pieces(tree), "1", "a", " "]))
    pairs = [first + second for first in own[:6] for second in own[:6] if first != second]
    units = list(dict.fromkeys([*own, *pairs, whole, whole[:-1]]))
    return [(start, unit) for start in sorted(starts, key=len)[:5] for unit in units if unit]


def seconds(use: Use, attack: tuple[str, str], length: int) -> float:
    """Return how long a pattern takes on a text of about ``length`` characters."""
    start, unit = attack
    text: Any = start + unit * (length // len(unit)) + "\0"
    if isinstance(use.pattern.pattern, bytes):
        text = text.encode("latin-1")
    began = time.process_time()
    if use.function == "sub":
        use.pattern.sub(lambda found: found[0], text)
    elif use.function == "finditer":
        list(use.pattern.finditer(text))
    else:
        getattr(use.pattern, use.function)(text)
    return time.process_time() - began


def slow_text(use: Use) -> str:
    """Return the beginning of a text whose time grows faster than its length; empty if none is known."""
    screened = []
    for attack in attacks(use.pattern):
        taken = seconds(use, attack, LENGTHS[0])
        if taken > AT_ONCE:
            return f"{attack}: {taken:.2f} s for {LENGTHS[0]:,} characters"
        screened.append((taken, attack))
    for before, attack in sorted(screened, reverse=True)[:SLOWEST]:
        for shorter, length in pairwise(LENGTHS):
            taken = seconds(use, attack, length)
            if taken > LONGEST or (taken > AT_ONCE and taken / before > 2 * length / shorter):
                return f"{attack}: {taken:.2f} s for {length:,} characters, {before:.3f} s for {shorter:,}"
            before = taken
    return ""


@cache
def all_uses() -> list[Use]:
    ours = [use for path, tree in trees().items() for use in uses_in(path, tree)]
    resolvers = {pattern.pattern: pattern for pairs in _Loader.yaml_implicit_resolvers.values() for _, pattern in pairs}
    return [*ours, *(Use("the YAML loader", pattern, "match") for pattern in resolvers.values())]


def test_no_pattern_takes_longer_than_in_proportion_to_the_text() -> None:
    assert len(all_uses()) > 60
    slow = {f"{use.where}, {use.function}": text for use in all_uses() if (text := slow_text(use))}
    assert slow == {}


def test_every_compiled_pattern_of_a_module_is_among_them() -> None:
    known = {use.pattern for use in all_uses()}
    for path in trees():
        package = next(each for each in PACKAGES if path.is_relative_to(each))
        module = importlib.import_module(".".join(path.relative_to(package.parent).with_suffix("").parts))
        assert {each for each in vars(module).values() if isinstance(each, re.Pattern)} <= known


def test_patterns_are_used_in_no_way_that_is_not_found_here() -> None:
    for path in SOURCES:
        for node in sources.nodes(path):
            if isinstance(node, ast.ImportFrom):
                assert node.module not in ("re", "regex"), f"{path.name}: write re.NAME"
            if isinstance(node, ast.Import):
                aliases = {alias.name: alias.asname for alias in node.names}
                assert "regex" not in aliases, f"{path.name}: write re.NAME"
                assert not aliases.get("re"), f"{path.name}: write re.NAME"


QUADRATIC_OR_WORSE = [
    (r"(?<=://)[^?@\s]*:[^?\s]*@|(?<=://)[^/?@\s]*:[^@\s]*@", "sub"),
    (r"(?i)(?<=[?&])([^=&?\s]*(?:key|secret|token)[^=&?\s]*)=[^&\s'\"]+", "sub"),
    (r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)[eE][-+]?[0-9]+$", "match"),
    (r"(\d+(?:\.\d+)?)([dhms])", "findall"),
    (r"\s+$", "search"),
    (r"<(\w|-)*[\w.]*>", "fullmatch"),
]


@pytest.mark.parametrize(("pattern", "function"), QUADRATIC_OR_WORSE, ids=lambda text: text[:20])
def test_a_pattern_that_takes_too_long_is_found(pattern: str, function: str) -> None:
    assert slow_text(Use("here", re.compile(pattern), function))

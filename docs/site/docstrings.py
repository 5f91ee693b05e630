"""Pages of the reference, made from docstrings and signatures. Nothing is imported: the files are read as text."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

SECTIONS = ("Args", "Attributes", "Returns", "Raises", "Yields")
NOTES = ("Source", "Departs from the paper", "Metrics", "Settings", "Shapes")
LONG = 88
"""A signature with more characters has one argument a line."""


@dataclass(frozen=True)
class Entry:
    """A class or function that a page describes.

    Attributes:
        name: Its full name, by which links find it.
        node: Its definition.
        members: Public methods and properties of a class, in their order.
    """

    name: str
    node: ast.ClassDef | ast.FunctionDef
    members: tuple[Entry, ...] = ()

    @property
    def short(self) -> str:
        """The name as people write it."""
        return self.name.rpartition(".")[2]


@dataclass(frozen=True)
class Module:
    """A Python file with a page of its own.

    Attributes:
        name: Dotted name.
        path: The file.
        text: Its docstring.
        entries: Its public classes and functions.
    """

    name: str
    path: Path
    text: str
    entries: tuple[Entry, ...] = field(default=())


def read_module(name: str, path: Path, only: frozenset[str] | None = None) -> Module:
    """Return what a page says about a file.

    Args:
        name: Dotted name of the module.
        path: Its file.
        only: Names to keep; None keeps all that do not begin with an underscore.
    """
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found = tuple(_entry(name, node) for node in _public(tree.body) if only is None or node.name in only)
    return Module(name, path, ast.get_docstring(tree) or "", found)


def _entry(parent: str, node: ast.ClassDef | ast.FunctionDef) -> Entry:
    name = f"{parent}.{node.name}"
    members = _public(node.body) if isinstance(node, ast.ClassDef) else ()
    return Entry(name, node, tuple(_entry(name, member) for member in members if ast.get_docstring(member)))


def _public(body: list[ast.stmt]) -> Iterator[ast.ClassDef | ast.FunctionDef]:
    for node in body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and not node.name.startswith("_"):
            yield node


def page(module: Module, title: str, links: dict[str, str]) -> str:
    """Return the page of a module as Markdown.

    Args:
        module: What was read.
        title: Heading of the page.
        links: Target of a link by each name that may stand in a docstring.
    """
    parts = [f"# {title}\n", _text(module.text, links)]
    for entry in module.entries:
        parts.append(_described(entry, 2, links))
    return "\n".join(parts)


def _described(entry: Entry, level: int, links: dict[str, str]) -> str:
    """Return heading, signature, docstring and settings of an entry, and its members below."""
    heading = f"({entry.name})=\n{'#' * level} `{entry.short}`\n"
    parts = [heading, f"```python\n{_signature(entry.node)}\n```\n", _text(ast.get_docstring(entry.node) or "", links)]
    if isinstance(entry.node, ast.ClassDef):
        parts.append(_settings(entry.node, links))
    parts.extend(_described(member, level + 1, links) for member in entry.members)
    return "\n".join(part for part in parts if part)


def _signature(node: ast.ClassDef | ast.FunctionDef) -> str:
    decorators = {ast.unparse(decorator) for decorator in node.decorator_list}
    if isinstance(node, ast.FunctionDef):
        if "property" in decorators:
            return f"{node.name}: {ast.unparse(node.returns) if node.returns else 'Any'}"
        kept = "".join(f"@{name}\n" for name in ("classmethod", "staticmethod", "abstractmethod") if name in decorators)
        returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
        return f"{kept}def {node.name}{_arguments(node.args, returns)}{returns}"
    bases = f"({', '.join(ast.unparse(base) for base in node.bases)})" if node.bases else ""
    start = next((item for item in node.body if isinstance(item, ast.FunctionDef) and item.name == "__init__"), None)
    built = f"\n\n{node.name}{_arguments(start.args, '')}" if start else ""
    return f"class {node.name}{bases}{built}"


def _arguments(arguments: ast.arguments, returns: str) -> str:
    """Return arguments in parentheses without self, one a line where they are long."""
    text = ast.unparse(arguments)
    text = re.sub(r"^(self|cls)(, |$)", "", text)
    if len(text) + len(returns) <= LONG:
        return f"({text})"
    parsed = ast.parse(f"def f({text}): ...").body[0]
    assert isinstance(parsed, ast.FunctionDef)
    return "(\n" + "".join(f"    {part},\n" for part in _parts(parsed.args)) + ")"


def _parts(arguments: ast.arguments) -> Iterator[str]:
    """Yield each argument with its annotation and default."""
    positional = [*arguments.posonlyargs, *arguments.args]
    defaults: list[ast.expr | None] = [None] * (len(positional) - len(arguments.defaults))
    for argument, default in zip(positional, [*defaults, *arguments.defaults], strict=True):
        yield _with_default(argument, default)
    if arguments.vararg:
        yield "*" + ast.unparse(arguments.vararg)
    elif arguments.kwonlyargs:
        yield "*"
    for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        yield _with_default(argument, default)
    if arguments.kwarg:
        yield "**" + ast.unparse(arguments.kwarg)


def _with_default(argument: ast.arg, default: ast.expr | None) -> str:
    written = ast.unparse(argument)
    return written if default is None else f"{written} = {ast.unparse(default)}"


def _settings(node: ast.ClassDef, links: dict[str, str]) -> str:
    """Return a table of the fields that ``setting`` describes, empty where there are none."""
    rows = []
    for item in node.body:
        if isinstance(item, ast.AnnAssign) and isinstance(item.value, ast.Call):
            call = item.value
            if ast.unparse(call.func) == "setting" and isinstance(item.target, ast.Name):
                rows.append(_setting_row(item.target.id, item.annotation, call, links))
    if not rows:
        return ""
    return "| setting | default | meaning |\n|---|---|---|\n" + "".join(rows)


def _setting_row(name: str, annotation: ast.expr, call: ast.Call, links: dict[str, str]) -> str:
    default, doc = call.args[:2]
    facts = {word.arg: ast.literal_eval(word.value) for word in call.keywords if isinstance(word.value, ast.Constant)}
    meaning = _inline(ast.literal_eval(doc), links)
    bounds = {"minimum": "at least", "above": "above", "maximum": "at most", "below": "below"}
    ranges = [f"{word} {facts[key]}" for key, word in bounds.items() if key in facts]
    kind = ast.unparse(annotation)
    if kind.startswith("Literal["):
        ranges.append("one of " + ", ".join(f"`{value.strip(chr(39))}`" for value in kind[8:-1].split(", ")))
    if "unit" in facts:
        ranges.append(f"in {facts['unit']}")
    symbol = f" Symbol: {facts['symbol']}." if "symbol" in facts else ""
    text = f"{meaning}{symbol}" + (f" ({'; '.join(ranges)})" if ranges else "")
    return f"| `{name}` | `{ast.unparse(default)}` | {text.replace('|', chr(92) + '|')} |\n"


def _text(docstring: str, links: dict[str, str]) -> str:
    """Return a docstring as Markdown: sections as lists, doctests as code, names as links."""
    blocks = re.split(r"\n\s*\n", inspect.cleandoc(docstring)) if docstring else []
    return "\n\n".join(_block(block, links) for block in blocks) + "\n"


def _block(block: str, links: dict[str, str]) -> str:
    head, _, rest = block.partition("\n")
    if block.startswith(">>>"):
        return f"```pycon\n{block}\n```"
    if block.startswith("    "):
        return f"```\n{textwrap.dedent(block)}\n```"
    if head.rstrip(":") in SECTIONS and head.endswith(":") and rest:
        return f"**{head.rstrip(':')}**\n\n{_items(head.rstrip(':'), textwrap.dedent(rest), links)}"
    lines = [_inline(line, links) for line in _joined(block)]
    for name in NOTES:
        lines = [re.sub(rf"^{name}:", f"**{name}.**", line) for line in lines]
    return "\n\n".join(lines)


def _joined(block: str) -> list[str]:
    """Return the sentences of a block, a new one where a note begins."""
    joined: list[str] = []
    for line in block.splitlines():
        if joined and not line.startswith(tuple(f"{name}:" for name in NOTES)):
            joined[-1] += f" {line.strip()}"
        else:
            joined.append(line)
    return joined


def _items(section: str, rest: str, links: dict[str, str]) -> str:
    """Return ``name: text`` lines as a list; what is returned stays a sentence."""
    items: list[str] = []
    for line in rest.splitlines():
        if line.startswith(" ") and items:
            items[-1] += f" {line.strip()}"
        else:
            items.append(line)
    if section in ("Returns", "Yields"):
        return _inline(" ".join(items), links)
    found = []
    for item in items:
        name, colon, text = item.partition(": ")
        known = colon and " " not in name
        found.append(f"- `{name}`: {_inline(text, links)}" if known else f"- {_inline(item, links)}")
    return "\n".join(found)


def _inline(text: str, links: dict[str, str]) -> str:
    """Return prose with code as code, known names as links, and nothing else that Markdown could read."""
    parts = re.split(r"(``.+?``|`[^`]+`)", text)
    return "".join(_code(part.strip("`"), links) if number % 2 else _plain(part) for number, part in enumerate(parts))


def _code(code: str, links: dict[str, str]) -> str:
    target = links.get(code.removesuffix("()"))
    return f"[`{code}`](<{target}>)" if target else f"`` {code} ``" if "`" in code else f"`{code}`"


def _plain(text: str) -> str:
    escaped = re.sub(r"([\\*_\[\]<>$|#~])", r"\\\1", text)
    return re.sub(r"arXiv:(\d{4}\.\d{4,5})", r"[arXiv:\1](https://arxiv.org/abs/\1)", escaped)

"""Formats times, sizes, counts and text from files for people."""

from __future__ import annotations

import re
import shlex
import shutil
import textwrap
from collections.abc import Sequence
from functools import lru_cache
from itertools import zip_longest
from typing import TextIO
from unicodedata import category

_NOT_PLAIN = re.compile(r"[^\n\t -~]")
_UNSEEN = frozenset(["Cc", "Cf", "Cs", "Zl", "Zp"])
"""Categories of characters that are obeyed or not seen: controls, bidi and other formats, halves, line separators."""

_WORD = re.compile(r"\S+")
_SECRET_OPTION = re.compile(
    r"(?i)(?<=[?&])(?=[^=&?\s]*(?:key|secret|token|password|signature|credential))([^=&?\s]*+)=[^&\s'\"]+"
)
"""An option after the question mark whose name suggests that its value is a secret."""

_LONGEST_CELL = 300  # characters

PROBES = {"knn": "kNN", "linear": "linear probe"}
"""Probes of a run's or a sweep's test images, as people know them."""

REQUIREMENTS = {
    "attack": "pyautoattack>=0.2",
    "heic": "pillow-heif>=1.0",
    "mlflow": "mlflow-skinny>=3.1 sqlalchemy>=2.0 alembic>=1.13",
    "onnx": "onnx>=1.19 onnxruntime>=1.23 onnxscript>=0.5.4",
    "ray": "ray[default,train,tune,data]>=2.60,<2.61",
    "timm": "timm>=1.0.12",
    "trackio": "trackio>=0.20",
    "wandb": "wandb>=0.21",
}
"""Packages that a part of ebclab needs, as in pyproject.toml."""


def how_to_install(part: str) -> str:
    """Return the command that installs what ``part`` needs; it names no extra, since ebclab is in no package index."""
    return f"`pip install {shlex.join(REQUIREMENTS[part].split())}`"


def visible(text: str) -> str:
    """Return ``text`` with control and invisible characters but newlines and tabs escaped, as \\x1b, \\u202e."""
    return _NOT_PLAIN.sub(_escaped, text)


def _escaped(found: re.Match[str]) -> str:
    character = found[0]
    return character.encode("unicode_escape").decode() if category(character) in _UNSEEN else character


def presentable(text: str) -> str:
    """Return ``text`` as anyone may see it: ``visible``, and without credentials, whatever file it comes from."""
    return visible(without_credentials(text))


def without_credentials(text: str) -> str:
    """Return text in which *** replaces all names and passwords, keys and tokens in addresses."""
    if "://" in text:
        text = _WORD.sub(lambda word: _without_passwords(word[0]), text)
    return _SECRET_OPTION.sub(r"\1=***", text) if "=" in text else text


def _without_passwords(word: str) -> str:
    """Return a word in which *** replaces names and passwords before hosts, in time linear in its length.

    A name contains neither ``@`` nor ``?``. The password may contain slashes, ``@`` and question marks: it ends at the
    last ``@`` before the options, or at the first one if that is after a question mark, in which case the name contains
    no slash.
    """
    shown, done, at, options = "", 0, -1, -1
    start = word.find("://") + 3
    while start > 2:
        if at < start and (at := word.find("@", start)) < 0:
            break
        if options < start and (options := word.find("?", start)) < 0:
            options = len(word)
        colon = word.find(":", start, min(at, options))
        if colon >= 0 and at > options and "/" in word[start:colon]:
            colon = -1
        if colon >= 0:
            shown += f"{word[done:start]}***@"
            done = (word.rfind("@", at, options) if at < options else at) + 1
        start = word.find("://", max(start, done)) + 3
    return shown + word[done:]


def on_one_line(text: str) -> str:
    """Return ``text`` as ``presentable``, with newlines and tabs escaped as well."""
    return presentable(text).replace("\n", "\\n").replace("\t", "\\t")


def bounded(text: str, longest: int, most_lines: int = 1) -> str:
    """Return ``text`` with at most so many lines of about so many characters; what is left out is counted."""
    lines = text.split("\n")
    kept = [
        f"{line[:longest]}... ({len(line) - longest:,} more characters)" if len(line) > longest else line
        for line in lines[:most_lines]
    ]
    left = len(lines) - len(kept)
    return "\n".join([*kept, *([f"... ({count(left, 'more line')})"] if left else [])])


@lru_cache(maxsize=10_000)
def in_cell(text: str) -> str:
    """Return ``text`` for a cell of a table in a terminal: on one line, and no longer than people read."""
    return bounded(on_one_line(text), _LONGEST_CELL)


def clock(seconds: float) -> str:
    """Return ``seconds`` as h:mm:ss or m:ss."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def size(num_bytes: float) -> str:
    """Return a size with its unit: 512 B, 1.5 GB."""
    for unit in ("B", "kB", "MB", "GB"):
        if num_bytes < 1000:
            return f"{num_bytes:.0f} {unit}" if unit == "B" or num_bytes >= 10 else f"{num_bytes:.1f} {unit}"
        num_bytes /= 1000
    return f"{num_bytes:.1f} TB"


def rate(mean: float, std: float = 0.0) -> str:
    """Return how many a second, +/- a standard deviation that is not 0: 1,234 +/- 56, or 0.43 where 0 would hide it."""
    digits = ",.0f" if mean >= 9.95 else ".2g"
    spread = f"{std:{digits}}"
    return f"{mean:{digits}}" + (f" +/- {spread}" if float(spread.replace(",", "")) else "")


def age(seconds: float) -> str:
    """Return an age with its unit: 3 d, 20 min."""
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= length:
            return f"{seconds / length:.0f} {unit}"
    return f"{max(seconds, 0):.0f} s"


def count(number: float, word: str, plural: str = "") -> str:
    """Return a number with its noun: 1 epoch, 2.5 epochs; the plural is the noun with an s unless it is given."""
    return f"{number:,.10g} {word if number == 1 else plural or f'{word}s'}"


def first_few(names: Sequence[str], most: int) -> str:
    """Return the first of some names, and how many more there are."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more:,} more" if more > 0 else "")


def terminal_columns() -> int:
    """Return the width of the terminal in columns; without a terminal, a width at which no line is wrapped."""
    return shutil.get_terminal_size(fallback=(10_000, 24)).columns


def is_terminal(stream: TextIO | None) -> bool:
    """Return whether ``stream`` is a terminal; None, a stream that the process was started without, is none."""
    return bool(getattr(stream, "isatty", bool)())  # a stream of a notebook or a window may lack it


def fitted(text: str, stream: TextIO | None) -> str:
    """Return a text wrapped at spaces if ``stream`` is a terminal; text in backticks is not broken."""
    if not is_terminal(stream):
        return text
    lines = []
    for line in text.split("\n"):
        indent = line[: len(line) - len(line.lstrip())]
        together = re.sub("`[^`]*`", lambda command: command[0].replace(" ", "\0"), line)
        folded_line = textwrap.fill(
            together, terminal_columns(), subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
        )
        lines.append(folded_line.replace("\0", " "))
    return "\n".join(lines)


def row_lines(cells: Sequence[Sequence[str]], widths: Sequence[int], between: int) -> list[str]:
    """Return the lines of a table row from the lines of its cells, with ``between`` spaces between the columns."""
    from rich.cells import cell_len

    lines = []
    for parts in zip_longest(*cells, fillvalue=""):
        gaps = [" " * (width + between - cell_len(part)) for part, width in zip(parts, widths, strict=True)]
        lines.append("".join(part + gap for part, gap in zip(parts, gaps, strict=True)).rstrip())
    return lines


def folded(text: str, width: int) -> list[str]:
    """Return a text as lines of at most ``width`` terminal columns, broken at spaces, or within longer words."""
    from rich.cells import cell_len, chop_cells

    lines = [""]
    for word in text.split():
        pieces = chop_cells(word, width) if cell_len(word) > width else [word]
        for number, piece in enumerate(pieces):
            joined = f"{lines[-1]} {piece}" if lines[-1] and number == 0 else piece
            if cell_len(joined) <= width and (number == 0 or not lines[-1]):
                lines[-1] = joined
            else:
                lines.append(piece)
    return lines

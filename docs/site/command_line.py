"""The page of every verb and option, from the command line itself."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from ebclab.cli.app import parser


def page() -> str:
    """Return the page as Markdown."""
    parts = [
        "# The command line\n\n`ebclab VERB --help` says the same. Exit code 0: done; 1: the work failed; "
        "2: the input is wrong; 130: stopped by Ctrl-C.\n"
    ]
    for words, verb in _verbs((), parser):
        parts.append(_described(words, verb))
    return "\n".join(parts)


def _verbs(words: tuple[str, ...], command: Any) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, below in command.commands.items():
        if hasattr(below, "commands"):
            yield from _verbs((*words, name), below)
        else:
            yield (*words, name), below


def _described(words: tuple[str, ...], verb: Any) -> str:
    usage = verb.collect_usage_pieces(verb.make_context("", [], resilient_parsing=True))
    shown = [parameter for parameter in verb.params if not getattr(parameter, "hidden", False)]
    text = [
        f"## `ebclab {' '.join(words)}`\n\n```\n{' '.join(['ebclab', *words, *usage])}\n```\n",
        _prose(verb.help),
    ]
    text.append("| argument, option | meaning |\n|---|---|\n" + "".join(_row(parameter) for parameter in shown))
    return "\n".join(text)


def _row(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        name = f"`{parameter.metavar}`"
    else:
        value = "" if parameter.is_flag else f" {parameter.metavar or parameter.name.upper()}"
        name = ", ".join(f"`{option}{value}`" for option in (*parameter.opts, *parameter.secondary_opts))
    default = parameter.default
    told = default not in (None, False, "", ()) and not callable(default) and not parameter.required
    in_table = name.replace("|", "\\|")
    return f"| {in_table} | {_cell(parameter.help or '')}{f' (`{default}`)' if told else ''} |\n"


def _prose(text: str | None) -> str:
    """Return help as paragraphs."""
    return "\n\n".join(_cell(block) for block in (text or "").split("\n\n")) + "\n"


def _cell(text: str) -> str:
    parts = re.split(r"(`[^`]+`)", " ".join(text.split()))
    return "".join(
        part.replace("|", "\\|") if number % 2 else re.sub(r"([*_\[\]<>$|])", r"\\\1", part)
        for number, part in enumerate(parts)
    )

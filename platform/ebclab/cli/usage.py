"""Messages about command lines that the parser refuses, before a command sees them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ebclab.config.names import did_you_mean, nearest, repeated

if TYPE_CHECKING:
    import typer
    from pydantic_core import ErrorDetails

_EXTRA = re.compile(r"Got unexpected extra argument\(s\) \((.*)\)", re.DOTALL)
_VALUES = {"requires an argument": "a value must follow it", "does not take a value": "takes no value"}
_OPTIONS_OF_OTHERS = {
    **dict.fromkeys(("out", "output", "output-dir", "save-dir"), ("runs", "to")),
    **dict.fromkeys(("num-samples", "num-trials", "max-trials"), ("trials",)),
    **dict.fromkeys(("name", "run-name", "exp-name", "experiment-name"), ("name", "to")),
}
"""Options by what they are called elsewhere; the first that a command has is meant."""
_NO_COMMAND = re.compile(r"No such command '(.*?)'", re.DOTALL)


def usage_problem(error: typer.TyperException) -> str:
    """Return a message about an invalid command line; empty if only the help was printed."""
    context, parameter = getattr(error, "ctx", None), getattr(error, "param", None)
    message = str(getattr(error, "format_message", error.__str__)()).rstrip(".")
    option = getattr(error, "option_name", "")
    for said, problem in _VALUES.items():
        if option and said in message:
            return f"{option}: {problem}"
    if not message or context is None:
        return message
    see = f"see `{context.command_path} --help`"
    if parameter is not None and (refused := getattr(error.__cause__, "errors", None)):
        (first, *_) = refused()
        word, given = _shown_as(parameter), str(first["input"])
        again = f"; write {repeated(given, word)}" if getattr(parameter, "multiple", False) and "," in given else ""
        return f"{word}: {_wrong(first)}, got {first['input']!r}{again}"
    if parameter is not None and message.startswith("Missing"):
        message = f"{_shown_as(parameter)}: missing"
    elif message.startswith("No such option"):
        message, see = f"{option}: no such option", _option_meant(option, context) or see
    elif unknown := _NO_COMMAND.match(message):
        message, see = f"{unknown[1]}: no such command", did_you_mean(unknown[1], context.command.commands)
    elif extra := _EXTRA.fullmatch(message):
        message = f"{context.command_path}: too many arguments, got {extra[1]}"
        see = _place_meant(extra[1], context) or see
    return f"{message}; {see}"


def _shown_as(parameter: Any) -> str:
    """Return an option, or an argument, as the help shows it."""
    is_option = parameter.param_type_name == "option"
    name: str = max(parameter.opts, key=len) if is_option else parameter.metavar or parameter.name.upper()
    return name.removesuffix("...")


def _options(context: Any) -> list[str]:
    return [flag for each in context.command.params for flag in each.opts if flag.startswith("--")]


def _option_meant(option: str, context: Any) -> str:
    """Return a question after an unknown option: ``--set`` with the settings of this name, or the nearest option."""
    options = _options(context)
    keys = _settings_meant(option) if "--set" in options else []
    word = option.lstrip("-").replace("_", "-")
    if word in [each.name for each in context.command.params if each.param_type_name == "argument"]:
        return f"write its value without it, `{context.command_path} {word.upper()}`"
    known = [each.removeprefix("--") for each in options]
    if called := next((each for each in _OPTIONS_OF_OTHERS.get(word, ()) if each in known), None):
        return f"did you mean --{called}?"
    close = nearest(word, known)
    meant = [f"--set {key}=..." for key in keys] or ([f"--{close}"] if close else [])
    return f"did you mean {' or '.join(meant)}?" if meant else ""


def _settings_meant(option: str) -> list[str]:
    """Return the keys of the settings that an unknown option may mean."""
    from ebclab.config.check import settings_of
    from ebclab.config.experiment import SECTIONS
    from ebclab.config.names import settings_meant

    known = {section: settings_of(kind) for section, kind in SECTIONS.items()}
    return settings_meant(option.lstrip("-").replace("-", "_"), known)


def _place_meant(extra: str, context: Any) -> str:
    """Return a question after an argument too many: the option whose value it may be."""
    from ebclab.config.recipes import list_recipes
    from ebclab.config.sections import USUAL_VIEWS

    options = _options(context)
    cut = [text for text in context.params.get("assignments") or () if "=" not in text.rstrip("=")]
    values: dict[str, Sequence[str]] = {"--dataset": [*USUAL_VIEWS], "--recipe": list_recipes()}
    if "--set" in options and (cut or "=" in extra):
        pair = f"{cut[-1].rstrip('=')}={extra.lstrip('= ')}" if cut else extra
        return f"did you mean --set {pair}?"
    if context.params.get("resume"):
        return f"did you mean --name {extra}?"
    flag = next((flag for flag, names in values.items() if flag in options and extra in names), None)
    return f"did you mean {flag} {extra}?" if flag else ""


def _wrong(problem: ErrorDetails) -> str:
    """Return why a value is refused by pydantic, with which typer validates values."""
    kind, limits = problem["type"], problem.get("ctx", {})
    if kind.startswith("int"):
        return "not a whole number"
    if kind.startswith("float"):
        return "not a number"
    bounds = {"ge": "must be at least", "le": "must be at most"}
    return next((f"{words} {limits[key]:g}" for key, words in bounds.items() if key in limits), problem["msg"])

"""A command line for a cluster: permitted verbs, files to send, and the command that the head node runs."""

from __future__ import annotations

import re
import secrets
import shlex
import shutil
from collections.abc import Sequence
from pathlib import Path

from ebclab.config.addresses import credentials_problem, is_address
from ebclab.config.names import did_you_mean
from ebclab.errors import UserError
from ebclab.sweeps.space.space import list_spaces

FILES = "ebclab_submitted"
"""Folder of the files that are sent with a command line; on the cluster it is on the job's import path."""

ON_ARRIVAL = "ebclab.cli.arrival"
"""Module that the head node starts."""

_SENT = "submitted:"
_SENT_FILE = re.compile(rf"^((?:--[a-z-]+=)?(?:[\w.:-]+=)?){_SENT}(\d+-)")
_VERBS: dict[str, tuple[str, ...]] = {
    "pretrain": ("--config",),
    "sweep": ("--config", "--space"),
    "compare": ("--space",),
    "evaluate": (),
    "sample": (),
    "report": (),
    "export": (),
    "data": (),
    "runs": (),
}
"""Verbs that may be submitted, each with the options whose value is a file to send.

For ``compare``, the value is ``METHOD=FILE``.
"""

_SHOWN_HERE = ("demo", "show", "submit")


def require_verb(arguments: Sequence[str]) -> str:
    """Return the verb of a command line; refuse a command line that must not be submitted.

    Args:
        arguments: The arguments of ``ebclab``.
    """
    if not arguments:
        raise UserError(f"submit: nothing to submit; write `ebclab submit -- VERB ...` with one of {', '.join(_VERBS)}")
    verb = arguments[0]
    if verb in _SHOWN_HERE:
        raise UserError(f"submit: {verb} needs no cluster; run `ebclab {verb}` here")
    if verb not in _VERBS:
        raise UserError(f"submit: no such verb, got {verb!r}; {did_you_mean(verb, _VERBS)}")
    problems = [problem for text in arguments if (problem := credentials_problem(text))]
    if problems:
        raise UserError("\n".join(f"submit: {problem}" for problem in problems))
    return verb


def stage_files(arguments: Sequence[str], folder: Path) -> list[str]:
    """Copy the files named in a command line to ``folder``; return the command line with placeholders for them.

    Args:
        arguments: A command line accepted by ``require_verb``.
        folder: Target folder; created if there is a file to copy.
    """
    options = _VERBS[arguments[0]]
    rewritten: list[str] = []
    previous = ""
    for text in arguments:
        option, equals, value = text.partition("=")
        if previous in options:
            rewritten.append(_value_sent(arguments[0], text, previous, folder))
        elif equals and option in options:
            rewritten.append(f"{option}={_value_sent(arguments[0], value, option, folder)}")
        else:
            rewritten.append(text)
        previous = text
    return rewritten


def _value_sent(verb: str, value: str, option: str, folder: Path) -> str:
    """Return an option's value with its file replaced by a placeholder; for ``compare`` it is ``METHOD=FILE``."""
    method, equals, file = value.partition("=") if verb == "compare" else ("", "", value)
    return f"{method}{equals}{_sent(file, option, folder)}" if file else value


def _sent(file: str, option: str, folder: Path) -> str:
    if is_address(file) or (option == "--space" and file in list_spaces()):
        return file
    folder.mkdir(parents=True, exist_ok=True)
    name = f"{len(list(folder.iterdir()))}-{Path(file).name}"
    try:
        shutil.copyfile(file, folder / name)
    except OSError as error:
        raise UserError(
            f"{option}: cannot be read, got {file} ({error.strerror or error}); give the path of a file"
        ) from error
    return _SENT + name


def with_sent_files(arguments: Sequence[str], folders: Sequence[Path]) -> list[str]:
    """Return a command line with placeholders replaced by the paths of the sent files on this machine.

    Args:
        arguments: A command line from ``stage_files``.
        folders: Folders of this machine, one of which contains the folder of sent files.
    """
    folder = next((parent / FILES for parent in folders if (parent / FILES).is_dir()), Path(FILES))
    return [_SENT_FILE.sub(lambda found: f"{found[1]}{folder}/{found[2]}", text) for text in arguments]


def as_recorded(arguments: Sequence[str]) -> list[str]:
    """Return a command line from ``stage_files`` with the original file names, since a job's folder is temporary."""
    return [_SENT_FILE.sub(r"\g<1>", text) for text in arguments]


def entrypoint(arguments: Sequence[str]) -> str:
    """Return the shell command that the head node runs.

    Paths are relative to the home folder. ``exec`` replaces the shell, so that signals reach the Python process.
    """
    return f"cd ~ && exec python -m {ON_ARRIVAL} {shlex.join(arguments)}"


def submitted_part(command: str) -> str:
    """Return the command line that the user submitted, from the shell command of its job, with original file names."""
    submitted = command.partition(f" -m {ON_ARRIVAL} ")[2]
    return shlex.join(as_recorded(shlex.split(submitted))) or command


def new_id(verb: str) -> str:
    """Return a random name for a job, used if the user gave none."""
    return f"{verb}-{secrets.token_hex(4)}"


def require_id(name: str) -> str:
    """Return ``name`` if it is a valid name of a job."""
    if not re.fullmatch(r"[A-Za-z0-9][\w.-]{0,99}", name, flags=re.ASCII):
        raise UserError(f"--name: cannot name a job, got {name!r}; use letters, digits, dots, dashes and underscores")
    return name

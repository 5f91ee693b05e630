"""A command line for a cluster: which verbs may run there, which files are sent, which command the head node runs."""

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
"""Folder of the files that are sent with a command line; on the cluster it lies on the job's import path."""

ON_ARRIVAL = "ebclab.cli.arrival"
"""Module that the head node starts."""

_SENT = "submitted:"
_SENT_FILE = re.compile(rf"^((?:--[a-z-]+=)?(?:[\w.:-]+=)?){_SENT}(\d+-)")
_VERBS: dict[str, tuple[str, ...]] = {
    "pretrain": ("--config",),
    "sweep": ("--config", "--space"),
    "compare": ("--space",),
    "evaluate": (),
    "report": (),
    "export": (),
    "data": (),
    "runs": (),
}
"""Verbs that may be submitted, each with the options whose value is a file to send."""

_SHOWN_HERE = ("show", "submit")


def require_verb(arguments: Sequence[str]) -> str:
    """Return the verb of a command line that may be submitted.

    Args:
        arguments: What would stand after ``ebclab``.

    Raises:
        UserError: There is no verb, or it does not run on a cluster, or an argument holds a password.
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
    """Copy the files that a command line names into ``folder``; return the command line with their new names.

    Args:
        arguments: A command line that ``require_verb`` has accepted.
        folder: Is made when there is a file to copy.

    Raises:
        UserError: A file cannot be read.
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
    """Return an option's value with the new name of its file; ``compare`` writes ``METHOD=FILE``."""
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
    """Return a command line with the paths of the sent files on this machine.

    Args:
        arguments: A command line from ``stage_files``.
        folders: Folders of this machine, one of which holds the folder of sent files.
    """
    folder = next((parent / FILES for parent in folders if (parent / FILES).is_dir()), Path(FILES))
    return [_SENT_FILE.sub(lambda found: f"{found[1]}{folder}/{found[2]}", text) for text in arguments]


def as_recorded(arguments: Sequence[str]) -> list[str]:
    """Return a command line from ``stage_files`` with the names of the user's files; a job's folder goes with it."""
    return [_SENT_FILE.sub(r"\g<1>", text) for text in arguments]


def entrypoint(arguments: Sequence[str]) -> str:
    """Return the shell command that the head node runs.

    Relative paths start at the home folder. ``exec`` leaves a single process, which gets the signal to stop.
    """
    return f"cd ~ && exec python -m {ON_ARRIVAL} {shlex.join(arguments)}"


def submitted_part(command: str) -> str:
    """Return the command line that the user submitted, from the shell command of its job; sent files by their names."""
    submitted = command.partition(f" -m {ON_ARRIVAL} ")[2]
    return shlex.join(as_recorded(shlex.split(submitted))) or command


def new_id(verb: str) -> str:
    """Return a random name for a job to which the user gave none."""
    return f"{verb}-{secrets.token_hex(4)}"


def require_id(name: str) -> str:
    """Return ``name`` when it can name a job.

    Raises:
        UserError: It has characters other than letters, digits, dots, dashes and underscores.
    """
    if not re.fullmatch(r"[A-Za-z0-9][\w.-]{0,99}", name, flags=re.ASCII):
        raise UserError(f"--name: cannot name a job, got {name!r}; use letters, digits, dots, dashes and underscores")
    return name

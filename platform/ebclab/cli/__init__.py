"""The ``ebclab`` command line: one file per command; errors are printed as messages without a traceback."""

from __future__ import annotations

import atexit
import errno
import gc
import io
import logging
import os
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import NoReturn

from ebclab.config.addresses import credentials_problem, expanded, named_hosts
from ebclab.errors import EbclabError, InterruptedRunError, UserError
from ebclab.formatting import bounded, fitted, presentable
from ebclab.terminal import open_missing_streams, say, write

_LONGEST_LINE = 4_000  # characters of a message, which may hold values of someone's files
_MOST_LINES = 200

_OF_DISKS = (errno.ENOSPC, errno.EDQUOT)
_OF_NAMES = (errno.ENAMETOOLONG, errno.ELOOP)
_OF_PERMISSIONS = (errno.EACCES, errno.EPERM, errno.EROFS)

_COLLECT_AFTER = (50_000, 20, 20)
"""Thresholds of Python's garbage collector; by default, the first is 700."""


def run_process(command: Callable[[], int]) -> NoReturn:
    """Run a command as the only task of this process, then end the process with the command's exit code.

    Imports create a million objects that live as long as the process. With Python's defaults, searching them for
    garbage and freeing them one by one at the end takes a third of a command that imports torch and does little else
    (benchmarks/startup.py). So the collector runs less often, and the process ends as soon as exit functions have run
    and the output is written. Under a profiler or `python -i`, and while other threads are at work, it ends as usual.
    """
    gc.set_threshold(*_COLLECT_AFTER)
    sys.excepthook, plain = _say_exception, warnings.formatwarning
    warnings.formatwarning = lambda *of_warning, **options: presentable(plain(*of_warning, **options))
    code = command()
    at_work = any(each is not threading.main_thread() and not each.daemon for each in threading.enumerate())
    if at_work or sys.flags.inspect or _is_profiled():
        sys.exit(code)
    atexit._run_exitfuncs()
    try:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None and not stream.closed:  # None: the process was started without it
                write("", stream)
    except OSError:  # the disk is full; Python reports it
        sys.exit(code)
    os._exit(code)


def _is_profiled() -> bool:
    """Say whether something watches this process: from Python 3.12 on, cProfile is a tool of `sys.monitoring`."""
    monitoring = getattr(sys, "monitoring", None)
    return bool(sys.getprofile()) or (monitoring is not None and any(map(monitoring.get_tool, range(6))))


def _say_exception(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Print the traceback of an exception that nothing caught."""
    say("".join(traceback.format_exception(kind, error, trace)), err=True, end="")


def main(argv: list[str] | None = None) -> int:
    """Run the command line and return its exit code: 0 done, 1 failed, 2 wrong input, 130 stopped by Ctrl-C.

    Args:
        argv: Arguments after the program's name; None takes them from ``sys.argv``.
    """
    open_missing_streams()
    lines = logging.StreamHandler(sys.stderr)
    lines.setFormatter(_Shown("%(levelname)s: %(message)s"))
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # as on stderr: file names need not be valid text
    logging.basicConfig(level=logging.WARNING, handlers=[lines], force=True)
    try:
        arguments = sys.argv[1:] if argv is None else argv
        _require_text(arguments)
        _require_no_credentials(arguments)
        with named_hosts(arguments):
            return _run([*map(_at_home, arguments)] if arguments[:1] != ["submit"] else arguments)
    except EbclabError as error:
        say(fitted(f"error: {_shown(str(error))}", sys.stderr), err=True)
        return error.exit_code
    except KeyboardInterrupt:
        say(f"error: {InterruptedRunError()}", err=True)
        return InterruptedRunError.exit_code
    except SystemExit as leaving:
        return leaving.code if isinstance(leaving.code, int) else 0 if leaving.code is None else 1
    except OSError as error:
        if error.errno not in _OF_DISKS + _OF_NAMES + _OF_PERMISSIONS:
            raise
        place = _shown(str(error.filename or "the output"))
        verb = "written" if error.errno in _OF_DISKS else "used"
        remedy = "; check its permissions" if error.errno in _OF_PERMISSIONS else ""
        say(f"error: {place}: cannot be {verb}, got {error.strerror}{remedy}", err=True)
        return UserError.exit_code


def _at_home(argument: str) -> str:
    """Return an argument with ~ as a home folder where shells leave it: in --runs=~/runs, and in submitted commands."""
    option, equals, value = argument.partition("=") if argument.startswith("--") else ("", "", argument)
    return f"{option}{equals}{expanded(value) if value.startswith('~') else value}"


def _run(argv: list[str]) -> int:
    import typer

    from ebclab.cli.app import parser
    from ebclab.cli.usage import usage_problem

    if argv[:1] in (["help"], ["version"]):
        argv = [*argv[1:], f"--{argv[0]}"]
    try:
        return parser(args=argv, prog_name="ebclab", standalone_mode=False) or 0
    except typer.Abort:  # Ctrl-C or the end of the input at a prompt
        say("aborted", err=True)
        return InterruptedRunError.exit_code
    except typer.TyperException as error:
        if text := usage_problem(error):
            raise UserError(text) from error
        return UserError.exit_code  # no command was given, and the help was printed


class _Shown(logging.Formatter):
    """Makes log lines and the tracebacks in them fit to be shown."""

    def format(self, record: logging.LogRecord) -> str:
        return _shown(super().format(record))


def _shown(text: str) -> str:
    """Return a message without credentials, e.g. of addresses in the environment, and not longer than people read."""
    return bounded(presentable(text), _LONGEST_LINE, _MOST_LINES)


def _require_text(arguments: Sequence[str]) -> None:
    """Refuse arguments or a current folder, the prefix of relative paths, that cannot be encoded as UTF-8."""
    try:
        here = os.getcwd()
    except FileNotFoundError:
        raise UserError("the folder that this command runs in was removed; run it in another one") from None
    for text in (*arguments, here):
        try:
            text.encode()
        except UnicodeEncodeError:
            raise UserError(f"a name is not UTF-8, got {os.fsencode(text)!r}; rename it") from None


def _require_no_credentials(arguments: Sequence[str]) -> None:
    """Refuse a command line with credentials before a command can display or record it."""
    problems = []
    for before, text in zip(["", *arguments], arguments, strict=False):
        if problem := credentials_problem(text):
            named = [word.partition("=")[0] for word in (text, before) if word.startswith("--")]
            problems.append(f"{(named or ['ebclab'])[0]}: {problem}")
    if problems:
        raise UserError("\n".join(problems))

"""The ``ebclab`` command: one file for each verb; errors are shown as sentences."""

from __future__ import annotations

import io
import logging
import os
import sys
from collections.abc import Sequence

from ebclab.config.addresses import credentials_problem, without_credentials
from ebclab.errors import EbclabError, UserError


def main(argv: list[str] | None = None) -> int:
    """Run the command line and return its exit code: 0 done, 1 the work failed, 2 the input is wrong.

    Args:
        argv: Arguments after the program's name; None takes them from ``sys.argv``.
    """
    from ebclab.cli.app import app

    lines = logging.StreamHandler(sys.stderr)
    lines.setFormatter(_WithoutCredentials("%(levelname)s: %(message)s"))
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # as on stderr: names on a disk need not be text
    logging.basicConfig(level=logging.WARNING, handlers=[lines], force=True)
    try:
        arguments = sys.argv[1:] if argv is None else argv
        _require_text(arguments)
        _require_no_credentials(arguments)
        app(args=argv, prog_name="ebclab")
    except EbclabError as error:
        print(f"error: {without_credentials(str(error))}", file=sys.stderr)
        return error.exit_code
    except SystemExit as leaving:
        return leaving.code if isinstance(leaving.code, int) else 0 if leaving.code is None else 1
    return 0


class _WithoutCredentials(logging.Formatter):
    """Shows log lines, and tracebacks in them, without the credentials of addresses in the environment."""

    def format(self, record: logging.LogRecord) -> str:
        return without_credentials(super().format(record))


def _require_text(arguments: Sequence[str]) -> None:
    """Refuse words that cannot be written into a file or shown, the folder's path included, which stands before paths.

    Raises:
        UserError: One of them is no text in UTF-8, or the folder is gone.
    """
    try:
        here = os.getcwd()
    except FileNotFoundError:
        raise UserError("the folder that this command runs in was removed; run it in another one") from None
    for text in (*arguments, here):
        try:
            text.encode()
        except UnicodeEncodeError:
            raise UserError(f"a name is no text in UTF-8, got {os.fsencode(text)!r}; rename it") from None


def _require_no_credentials(arguments: Sequence[str]) -> None:
    """Refuse a command line with credentials before a verb can show or write it.

    Raises:
        UserError: With a line for each address that holds some.
    """
    problems = []
    for before, text in zip(["", *arguments], arguments, strict=False):
        if problem := credentials_problem(text):
            named = [word.partition("=")[0] for word in (text, before) if word.startswith("--")]
            problems.append(f"{(named or ['ebclab'])[0]}: {problem}")
    if problems:
        raise UserError("\n".join(problems))

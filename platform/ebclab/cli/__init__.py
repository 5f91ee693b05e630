"""The ``ebclab`` command: one file for each verb; errors are shown as sentences."""

from __future__ import annotations

import logging
import sys

from ebclab.errors import EbclabError


def main(argv: list[str] | None = None) -> int:
    """Run the command line and return its exit code: 0 done, 1 the work failed, 2 the input is wrong.

    Args:
        argv: Arguments after the program's name; None takes them from ``sys.argv``.
    """
    from ebclab.cli.app import app

    logging.basicConfig(level=logging.WARNING, format="%(levelname)s: %(message)s", stream=sys.stderr, force=True)
    try:
        app(args=argv, prog_name="ebclab")
    except EbclabError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except SystemExit as leaving:
        return leaving.code if isinstance(leaving.code, int) else 0 if leaving.code is None else 1
    return 0

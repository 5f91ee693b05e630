"""What a cluster's head node runs for ``ebclab submit``: the same command line, with the files that were sent along.

It must also be read by a Python that is too old for everything else.
"""

from __future__ import annotations

import os
import platform
import sys
from pathlib import Path

from ebclab.cli import main

SUBMITTED_FROM = "EBCLAB_SUBMITTED_FROM"
"""Environment variable with the Python that submitted."""

OLDEST_PYTHON = (3, 11)
"""As in pyproject.toml."""


def arrive(arguments: list[str]) -> int:
    """Run a submitted command line and return its exit code.

    Args:
        arguments: What stood after ``ebclab submit --``, with sent files in place of the user's.
    """
    there = os.environ.get(SUBMITTED_FROM, "")
    here = f"Python {platform.python_version()}"
    if sys.version_info[:2] < OLDEST_PYTHON:
        wanted = ".".join(map(str, OLDEST_PYTHON))
        print(f"error: the cluster runs {here}; ebclab needs {wanted} or newer on every node", file=sys.stderr)
        return 2
    if there and there.rpartition(".")[0] != here.rpartition(".")[0]:
        print(f"submitted from {there}, running on {here}", file=sys.stderr)
    from ebclab.submission.command import found_again

    sys.argv = ["ebclab", *found_again(arguments, [Path(place) for place in sys.path])]
    return main(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(arrive(sys.argv[1:]))

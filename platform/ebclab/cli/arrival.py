"""Runs a submitted command line on the head node of a cluster, with the files that were sent.

The module must also parse on a Python that is too old for the rest of the package.
"""

from __future__ import annotations

import os
import platform
import sys
from pathlib import Path

from ebclab.cli import main, run_process
from ebclab.terminal import say

SUBMITTED_FROM = "EBCLAB_SUBMITTED_FROM"
"""Environment variable with the Python version of the submitting process."""

OLDEST_PYTHON = (3, 11)
"""Minimum version of Python, as in pyproject.toml."""


def arrive(arguments: list[str]) -> int:
    """Run a submitted command line and return its exit code.

    Args:
        arguments: The arguments after ``ebclab submit --``, with the names of the sent files.
    """
    origin = os.environ.get(SUBMITTED_FROM, "")
    here = f"Python {platform.python_version()}"
    if sys.version_info[:2] < OLDEST_PYTHON:
        wanted = ".".join(map(str, OLDEST_PYTHON))
        say(f"error: the cluster runs {here}; ebclab needs {wanted} or newer on every node", err=True)
        return 2
    if origin and origin.rpartition(".")[0] != here.rpartition(".")[0]:
        say(f"submitted from {origin}, running on {here}", err=True)
    from ebclab.submission import as_recorded, with_sent_files

    sys.argv = ["ebclab", *as_recorded(arguments)]  # the command line that runs, sweeps and reports record
    return main(with_sent_files(arguments, [Path(folder) for folder in sys.path]))


if __name__ == "__main__":
    run_process(lambda: arrive(sys.argv[1:]))

"""Code that is meant for a GPU, on a device that is none: `inside` has the tests.

They run in a process of their own, because torch counts its devices once, at the first backward pass of a process, and
no process that has threads for a device may be forked. By themselves:

    PRETENDED_DEVICE=1 python -m pytest tests/accelerator/inside
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

INSIDE = Path(__file__).parent / "inside"


@pytest.mark.slow
@pytest.mark.timeout(900)  # fifty seconds of a processor, many times as long where others use it
def test_all_tests_on_the_pretended_device_pass() -> None:
    command = [sys.executable, "-m", "pytest", str(INSIDE), "-q", "-p", "no:xdist", "-p", "no:cacheprovider"]
    done = subprocess.run(
        command, env={**os.environ, "PRETENDED_DEVICE": "1"}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr[-5_000:]

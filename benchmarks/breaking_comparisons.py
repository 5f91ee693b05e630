"""A comparison for ``breaking.py``: killed at random moments again and again, beside one that was left alone."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

WORDS = (
    "simclr",
    "dcl",
    "--recipe",
    "digits-demo",
    "--batch-size",
    "32",
    "--epochs",
    "3",
    "--trials",
    "3",
    "--seeds",
    "2",
)
SETTINGS = ("data.train_limit=320", "encoder.width=8", "resources.threads=1")
NAME = "killed"
WAIT = 600  # seconds after which a process hangs
_OF_TIME = ("seconds", "search_seconds", "plans", "digest", "test_readings")


def command(folder: Path) -> list[str]:
    """Return the command line of a small comparison."""
    chosen = [word for text in SETTINGS for word in ("--set", text)]
    places = ["--name", NAME, "--comparisons", str(folder), "--concurrent", "2"]
    return [sys.executable, "-m", "ebclab", "compare", *WORDS, *chosen, *places]


def numbers(value: Any) -> Any:
    """Return a result without what depends on the clock."""
    if isinstance(value, dict):
        return {key: numbers(each) for key, each in value.items() if key not in _OF_TIME}
    return [numbers(each) for each in value] if isinstance(value, list) else value


def whole(folder: Path) -> tuple[Any, float]:
    """Run a comparison to its end; return its numbers and its seconds.

    Raises:
        RuntimeError: Its exit code is not 0.
    """
    began = time.monotonic()
    done = subprocess.run(command(folder), capture_output=True, text=True, timeout=WAIT, check=False)
    if done.returncode:
        raise RuntimeError(f"exit code {done.returncode}: {done.stderr[-2000:]}")
    result = json.loads((folder / NAME / "comparison.json").read_text(encoding="utf-8"))
    return numbers(result), time.monotonic() - began


def killed_comparisons(kills: int) -> tuple[int, int]:
    """Return the kills, and those after which a comparison ended in other numbers, another winner or an error."""
    tried = failed = since = 0
    draw = random.Random("comparison")
    with tempfile.TemporaryDirectory() as place:
        expected, lasted = whole(Path(place) / "whole")
        number = 0
        while tried < kills:
            folder = Path(place) / f"{number}"
            if _killed(folder, draw.uniform(2, lasted)):
                tried, since = tried + 1, since + 1
            if tried < kills and not (folder / NAME / "comparison.json").exists():
                continue
            try:
                failed += since * (whole(folder)[0] != expected)
            except (RuntimeError, OSError, subprocess.TimeoutExpired) as error:
                print(error, file=sys.stderr)
                failed += since
            number, since = number + 1, 0
    return tried, failed


def _killed(folder: Path, seconds: float) -> bool:
    """Start a comparison and kill it and its own Ray so many seconds later; return whether it still ran."""
    process = subprocess.Popen(
        command(folder), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    try:
        process.wait(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return True
    return False

"""Real runs for ``breaking.py``: killed, signalled, on disks that fill, five at once; compared with one left alone."""

from __future__ import annotations

import functools
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

SETTINGS = ("data.train_limit=512", "training.batch_size=64", "training.log_every=1", "resources.threads=1")
OF_METHOD = {"ebclr": ("method.buffer_size=256",), "vem-svgd": ("method.bank_size=64",)}
EPOCHS = 6
DISKS = (
    ("room for half a checkpoint", "size=600k"),
    ("room for one checkpoint", "size=1900k"),
    ("room for two checkpoints", "size=3400k"),
    ("no more files after the fifth", "size=100m,nr_inodes=8"),
    ("no more files in the second checkpoint", "size=100m,nr_inodes=18"),
)
WAIT = 240  # seconds after which a process hangs


def command(method: str, runs: Path, name: str = "run") -> list[str]:
    """Return the command line of a small run."""
    chosen = [word for text in (*SETTINGS, *OF_METHOD.get(method, ())) for word in ("--set", text)]
    words = [
        "pretrain",
        method,
        "--recipe",
        "digits-demo",
        "--epochs",
        f"{EPOCHS}",
        "--runs",
        str(runs),
        "--name",
        name,
    ]
    return [sys.executable, "-m", "ebclab", *words, *chosen]


def start(words: list[str]) -> subprocess.Popen[str]:
    """Start a command; what it says is read at its end."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)


def finish(words: list[str]) -> str:
    """Run a command to its end and return what it said.

    Raises:
        RuntimeError: Its exit code is not 0.
    """
    process = start(words)
    said, _ = process.communicate(timeout=WAIT)
    if process.returncode:
        raise RuntimeError(f"exit code {process.returncode}: {said[-2000:]}")
    return said


def bits(run: Path) -> dict[str, Any]:
    """Return what must not depend on kills: weights, memories, the states of optimizer and generator."""
    import torch

    newest = sorted((run / "checkpoints").glob("last-*"))[-1]
    state = torch.load(newest / "state.pt", weights_only=True)
    files = {path.name: path.read_bytes() for path in newest.glob("*.safetensors")}
    return {"files": files, "optimizer": str(state["optimizer"]), "generator": state["generator"].tolist()}


@functools.cache
def undisturbed(method: str) -> tuple[dict[str, Any], float]:
    """Return the bits of a run that nothing happened to, and its seconds from the first measurement to the last."""
    with tempfile.TemporaryDirectory() as folder:
        finish(command(method, Path(folder)))
        run = Path(folder) / "run"
        lasted = (run / "result.json").stat().st_mtime - (run / "config.yaml").stat().st_mtime
        return bits(run), lasted


def killed_at_random(method: str, kills: int) -> tuple[int, int]:
    """Kill a run and what goes on with it again and again; return the kills, and those behind other bits or errors."""
    expected, lasted = undisturbed(method)
    tried, failed, since = 0, 0, 0
    draw = random.Random(method)
    with tempfile.TemporaryDirectory() as folder:
        number = 0
        while tried < kills:
            words = command(method, Path(folder), f"{number}")
            if _killed(words, Path(folder) / f"{number}", draw.uniform(0, lasted)):
                tried, since = tried + 1, since + 1
            if tried < kills and not (Path(folder) / f"{number}" / "result.json").exists():
                continue
            failed += since * (not _ends_in(expected, words, Path(folder) / f"{number}"))
            number, since = number + 1, 0
    return tried, failed


def _killed(words: list[str], run: Path, seconds: float) -> bool:
    """Start a run and kill it so many seconds after it has entered its folder; return whether it still ran."""
    process = start(words)
    before = _entered(run)
    give_up = time.monotonic() + WAIT
    while process.poll() is None and _entered(run) == before and time.monotonic() < give_up:
        time.sleep(0.005)
    time.sleep(seconds)
    still_ran = process.poll() is None
    process.kill()
    process.communicate()
    return still_ran


def _entered(run: Path) -> int:
    """Return when the settings of a run were written, which each launch does when it has claimed the folder."""
    try:
        return (run / "config.yaml").stat().st_mtime_ns
    except OSError:
        return 0


def _ends_in(expected: dict[str, Any], words: list[str], run: Path) -> bool:
    try:
        finish(words)
        return bits(run) == expected
    except (RuntimeError, OSError, subprocess.TimeoutExpired, IndexError) as error:
        print(error, file=sys.stderr)
        return False


SIGNALS: dict[str, tuple[signal.Signals, ...]] = {
    "TERM": (signal.SIGTERM,),
    "INT": (signal.SIGINT,),
    "INT twice": (signal.SIGINT, signal.SIGINT),
    "HUP": (signal.SIGHUP,),
    "STOP and CONT": (signal.SIGSTOP, signal.SIGCONT),
}


def signalled() -> Iterator[tuple[str, int]]:
    """Yield the name of each signal and 1 where the run did not end in the bits of an undisturbed one, else 0."""
    expected, lasted = undisturbed("simclr")
    for name, numbers in SIGNALS.items():
        with tempfile.TemporaryDirectory() as folder:
            words, run = command("simclr", Path(folder)), Path(folder) / "run"
            process = start(words)
            while process.poll() is None and not _entered(run):
                time.sleep(0.005)
            time.sleep(random.Random(name).uniform(0, lasted / 2))
            for number in numbers:
                process.send_signal(number)
                time.sleep(0.3)
            said, _ = process.communicate(timeout=WAIT)
            is_clean = "Traceback" not in said
            yield name, int(not (is_clean and _ends_in(expected, words, run)))


def full_disk(options: str) -> tuple[int | None, str]:
    """Train on a disk that fills, then give it room; return 1 where that failed, None where no disk could be made."""
    expected, _ = undisturbed("simclr")
    with tempfile.TemporaryDirectory() as place:
        try:
            with _mounted(Path(place), options):
                words = command("simclr", Path(place) / "runs")
                process = start(words)
                said, _ = process.communicate(timeout=WAIT)
                sentence = next((line for line in said.splitlines() if line.startswith("error: ")), "")
                if process.returncode == 0:
                    return 1, "the disk was large enough"
                if "Traceback" in said or not sentence:
                    return 1, said.strip().splitlines()[-1][:120]
                subprocess.run(["mount", "-o", "remount,size=200m,nr_inodes=10000", place], check=True)
                return int(
                    not _ends_in(expected, words, Path(place) / "runs" / "run")
                ), f"exit code {process.returncode}"
        except PermissionError as error:
            return None, str(error)


@contextmanager
def _mounted(place: Path, options: str) -> Iterator[None]:
    words = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(place)]
    if os.getuid() != 0 or subprocess.run(words, capture_output=True, check=False).returncode:
        raise PermissionError("needs root and mount")
    try:
        yield
    finally:
        subprocess.run(["umount", str(place)], check=True)


def five_starts() -> int:
    """Start one name five times at once; return how many did what they should not."""
    expected, _ = undisturbed("simclr")
    with tempfile.TemporaryDirectory() as folder:
        words = command("simclr", Path(folder))
        processes = [start(words) for _ in range(5)]
        said = [process.communicate(timeout=WAIT)[0] for process in processes]
        codes = [process.returncode for process in processes]
        wrong = sum(code not in (0, 2) or "Traceback" in text for code, text in zip(codes, said, strict=True))
        log = (Path(folder) / "run" / "metrics.jsonl").read_text()
        trained = log.count('"event": "started"') + log.count('"event": "resumed"')
        return wrong + (trained != 1) + (not _ends_in(expected, words, Path(folder) / "run"))

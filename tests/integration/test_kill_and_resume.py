"""A run that was killed at any moment ends in the same bits as one that was left alone; real processes, real kills."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from run_files import last_step, records, same_bits, weights
from tests.support.waiting import until

from ebclab.cli import main

pytestmark = pytest.mark.slow

SETTINGS = ["data.train_limit=640", "training.batch_size=64", "resources.threads=1", "training.log_every=1"]
SETTINGS += ["method.ess_target=0.4", "optimizer.name=adam"]  # both keep something from step to step
EPOCHS = 6


def _words(runs: Path) -> list[str]:
    settings = [part for text in SETTINGS for part in ("--set", text)]
    return ["pretrain", "flatclr", "--name", "run", "--runs", str(runs), "--epochs", str(EPOCHS), *settings]


def _start(words: list[str]) -> subprocess.Popen[bytes]:
    """Start a command that is killed, gets signals or is timed; this process does all else, and has imported torch."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "ebclab", *words]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)


def _start_and_signal(words: list[str], run: Path, at_step: int, number: signal.Signals) -> int:
    """Start a run, send it a signal once it has logged ``at_step`` training steps, and return its exit code."""
    process = _start(words)
    until(lambda: process.poll() is not None or last_step(run) >= at_step, 240, pause=0.001)
    process.send_signal(number)
    return process.wait(timeout=240)


def _optimizer(run: Path) -> str:
    newest = sorted((run / "checkpoints").glob("last-*"))[-1]
    return str(torch.load(newest / "state.pt", weights_only=True)["optimizer"]["state"])


def _assert_same_bits(one: Path, two: Path) -> None:
    assert same_bits(one, weights(two))
    assert _optimizer(one) == _optimizer(two)


def _seconds_until_beyond(words: list[str], run: Path) -> float:
    """Finish a run that was killed; return the seconds until it had trained a step after the one it resumes from."""
    began, before = time.monotonic(), len(records(run, event="resumed"))
    process = _start(words)

    def is_beyond() -> bool:
        resumed = records(run, event="resumed")
        return len(resumed) > before and last_step(run) > resumed[-1]["step"]

    until(lambda: process.poll() is not None or is_beyond(), pause=0.005)
    seconds = time.monotonic() - began
    assert process.wait(timeout=240) == 0
    return seconds


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run that nothing happened to."""
    runs = tmp_path_factory.mktemp("undisturbed")
    assert main(_words(runs)) == 0
    return runs / "run"


@pytest.mark.fault
def test_sigkill_at_random_steps_then_resume_gives_the_bits_of_the_undisturbed_run(
    tmp_path: Path, undisturbed: Path, record_property: Callable[[str, object], None]
) -> None:
    killed, words = tmp_path / "run", _words(tmp_path)
    steps, draw = last_step(undisturbed), random.Random(time.time_ns())
    epoch = steps // EPOCHS
    assert steps == EPOCHS * epoch > 0
    anywhere, after_a_checkpoint = draw.randrange(2, steps - 2), draw.randrange(epoch + 1, steps - 2)
    for at_step in sorted((anywhere, after_a_checkpoint)):
        assert _start_and_signal(words, killed, at_step, signal.SIGKILL) == -signal.SIGKILL
        assert not (killed / "result.json").exists()
    seconds = _seconds_until_beyond(words, killed)
    _assert_same_bits(undisturbed, killed)
    assert [record["step"] for record in records(killed, kind="train")] == list(range(1, steps + 1))
    lost = [record["reached"] - record["step"] for record in records(killed, event="resumed")]
    assert all(0 <= each <= epoch for each in lost)
    record_property("fault", "the process killed, without Ray; the same command again")
    record_property("steps_lost", lost[-1])
    record_property("seconds", round(seconds, 1))
    record_property("result", "the same bits")

"""A run that was killed at any moment ends in the same bits as one that was left alone; real processes, real kills."""

from __future__ import annotations

import functools
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from ebclab.cli import main

pytestmark = pytest.mark.slow

SETTINGS = ["data.train_limit=640", "training.batch_size=64", "resources.threads=1", "training.log_every=1"]
EPOCHS = 6
EXTRA: dict[str, tuple[str, ...]] = {"simclr": (), "flatclr": ("method.ess_target=0.4", "optimizer.name=adam")}
"""Methods, and settings of theirs."""


PROGRAM = [sys.executable, "-m", "ebclab"]
"""For what is killed, gets signals or is timed; all else is done by this process, which has imported torch already."""


def _words(method: str, runs: Path, *extra: str) -> list[str]:
    settings = [part for text in (*SETTINGS, *extra) for part in ("--set", text)]
    options = ["--name", "run", "--runs", str(runs), "--epochs", str(EPOCHS)]
    return ["pretrain", method, *options, *settings]


def _steps_logged(run: Path) -> int:
    path = run / "metrics.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    return sum(line.startswith('{"kind": "train"') and line.endswith("}") for line in lines)


def _start_and_signal(words: list[str], run: Path, at_step: int, number: signal.Signals) -> int:
    """Start a run, send it a signal once it has logged ``at_step`` training steps, and return its exit code."""
    process = _start(words)
    deadline = time.monotonic() + 240
    while process.poll() is None and _steps_logged(run) < at_step and time.monotonic() < deadline:
        time.sleep(0.001)
    process.send_signal(number)
    return process.wait(timeout=240)


def _start(words: list[str]) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen([*PROGRAM, *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)


def _final_state(run: Path) -> tuple[dict[str, torch.Tensor], dict[str, object]]:
    newest = sorted((run / "checkpoints").glob("last-*"))[-1]
    state = torch.load(newest / "state.pt", weights_only=True)
    return load_file(newest / "model.safetensors"), state["optimizer"]["state"]


def _assert_same_bits(one: Path, two: Path) -> None:
    (weights_one, optimizer_one), (weights_two, optimizer_two) = _final_state(one), _final_state(two)
    assert weights_one.keys() == weights_two.keys()
    for name, tensor in weights_one.items():
        assert torch.equal(tensor, weights_two[name]), name
    assert str(optimizer_one) == str(optimizer_two)


def _records(run: Path) -> list[dict[str, Any]]:
    log = run / "metrics.jsonl"
    lines = log.read_text().splitlines() if log.exists() else []
    return [json.loads(line) for line in lines if line.endswith("}")]


def _seconds_until_beyond(words: list[str], run: Path) -> float:
    """Finish a run that was killed; return the seconds until it had trained a step after the one it resumes from."""
    began, before = time.monotonic(), len(_resumed(run))
    process = _start(words)
    while process.poll() is None and not (
        len(_resumed(run)) > before and _steps_logged(run) > _resumed(run)[-1]["step"]
    ):
        time.sleep(0.005)
    seconds = time.monotonic() - began
    assert process.wait(timeout=240) == 0
    return seconds


def _resumed(run: Path) -> list[dict[str, Any]]:
    return [record for record in _records(run) if record.get("event") == "resumed"]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return a function that returns the run of a method that nothing happened to."""

    @functools.cache
    def train(method: str) -> Path:
        runs = tmp_path_factory.mktemp("undisturbed")
        assert main(_words(method, runs, *EXTRA[method])) == 0
        return runs / "run"

    return train


@pytest.mark.fault
@pytest.mark.parametrize("method", EXTRA)
def test_sigkill_at_random_steps_then_resume_gives_the_bits_of_the_undisturbed_run(
    tmp_path: Path,
    method: str,
    undisturbed: Callable[[str], Path],
    record_property: Callable[[str, object], None],
) -> None:
    killed, words = tmp_path, _words(method, tmp_path, *EXTRA[method])
    steps, draw = _steps_logged(undisturbed(method)), random.Random(time.time_ns())
    epoch = steps // EPOCHS
    assert steps == EPOCHS * epoch > 0
    anywhere, after_a_checkpoint = draw.randrange(2, steps - 2), draw.randrange(epoch + 1, steps - 2)
    for at_step in sorted((anywhere, after_a_checkpoint)):
        assert _start_and_signal(words, killed / "run", at_step, signal.SIGKILL) == -signal.SIGKILL
        assert not (killed / "run" / "result.json").exists()
    seconds = _seconds_until_beyond(words, killed / "run")
    _assert_same_bits(undisturbed(method), killed / "run")
    records = _records(killed / "run")
    assert [r["step"] for r in records if r["kind"] == "train"] == list(range(1, steps + 1))
    lost = [record["reached"] - record["step"] for record in _resumed(killed / "run")]
    assert all(0 <= each <= epoch for each in lost)
    record_property("fault", f"the process killed, without Ray ({method}); the same command again")
    record_property("steps_lost", lost[-1])
    record_property("seconds", round(seconds, 1))
    record_property("result", "the same bits")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_saves_the_very_step_and_the_run_goes_on_with_the_same_bits(
    tmp_path: Path, number: signal.Signals, undisturbed: Callable[[str], Path]
) -> None:
    stopped, words = tmp_path, _words("simclr", tmp_path)
    assert _start_and_signal(words, stopped / "run", 14, number) == 130
    events = [json.loads(line) for line in (stopped / "run" / "metrics.jsonl").read_text().splitlines()]
    stopped_at = next(r["step"] for r in events if r.get("event") == "stopped")
    newest = sorted((stopped / "run" / "checkpoints").glob("last-*"))[-1]
    assert int(newest.name.removeprefix("last-")) == stopped_at >= 14
    assert main([*words, "--resume"]) == 0
    _assert_same_bits(undisturbed("simclr"), stopped / "run")

"""Runs on Ray Train: one worker is this process, Ctrl-C loses nothing, refusals are sentences."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from ray_starts import ray_folder
from run_files import last_step, records

import ebclab
from ebclab.errors import TrainingError, UserError
from ebclab.training.display import Listener
from ebclab.training.pretrain import RunResult

pytestmark = pytest.mark.slow

TINY = ["data.train_limit=96", "training.batch_size=32", "resources.threads=1", "optimizer.learning_rate=0.0003"]
"""Two steps an epoch."""


def _pretrain(runs: Path, name: str, workers: int, epochs: int, *settings: str) -> RunResult:
    overrides = [*TINY, f"training.epochs={epochs}", f"resources.workers={workers}", *settings]
    config = ebclab.compose("simclr", overrides=overrides)
    return ebclab.pretrain(config, runs=runs, name=name, display=Listener())


def _when(condition: Callable[[], bool], action: Callable[[], None]) -> threading.Thread:
    """Do ``action`` in a thread as soon as ``condition`` holds."""

    def wait() -> None:
        while not condition():
            time.sleep(0.02)
        action()

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    return thread


def _reached(run: Path, step: int) -> bool:
    return last_step(run) >= step


def _kill_worker(run: Path, rank: int) -> None:
    os.kill(json.loads((run / ".ray" / f"worker-{rank}.json").read_text())["pid"], signal.SIGKILL)


def test_more_deaths_than_allowed_end_the_run_with_the_reason_and_its_checkpoint(cluster: str, tmp_path: Path) -> None:
    run = tmp_path / "run"
    killer = _when(lambda: _reached(run, 20), lambda: _kill_worker(run, 0))
    with pytest.raises(
        TrainingError,
        match=r"last time worker 0: its process died \(process \d+ on \S+\): without a trace, .*last-0000",
    ) as raised:
        _pretrain(tmp_path, "run", 1, 500, "resources.max_failures=0")
    killer.join(timeout=1)
    assert raised.value.exit_code == 1
    assert not (run / "result.json").exists()


def test_a_callback_runs_on_the_first_worker_and_its_mistake_comes_back_in_a_sentence(
    cluster: str, tmp_path: Path
) -> None:
    class Mine:
        """Measures at step 2 and fails at step 4; workers get a copy, since the class is made in a function."""

        every_steps = 2

        def measure(self, run: ebclab.RunView) -> dict[str, float]:
            return {"inverse": 1 / (4 - run.step)}

    config = ebclab.compose("simclr", overrides=[*TINY, "training.epochs=4", "resources.workers=2"])
    with pytest.raises(UserError, match=r"callback Mine failed at step 4: ZeroDivisionError"):
        ebclab.pretrain(config, runs=tmp_path, name="run", display=Listener(), callbacks=[Mine()])
    assert [record["Mine/inverse"] for record in records(tmp_path / "run", kind="callback")] == [0.5]
    assert len(records(tmp_path / "run", event="failed")) == 1
    assert records(tmp_path / "run", event="resumed") == []


def _command(runs: Path, *arguments: str) -> list[str]:
    settings = [part for assignment in TINY for part in ("--set", assignment)]
    return [sys.executable, "-m", "ebclab", "pretrain", "simclr", "--runs", str(runs), *settings, *arguments]


def test_ctrl_c_is_heard_by_workers_of_a_running_cluster_and_the_run_goes_on(cluster: str, tmp_path: Path) -> None:
    command = _command(tmp_path, "--name", "run", "--epochs", "60", "--workers", "2")
    environment = {**os.environ, "RAY_ADDRESS": cluster}
    process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True, start_new_session=True)
    run = tmp_path / "run"
    _when(lambda: _reached(run, 4), lambda: os.killpg(process.pid, signal.SIGINT))  # as a terminal does
    _, errors = process.communicate(timeout=600)
    assert process.returncode == 130, errors
    (stopped,) = records(run, event="stopped")
    newest = sorted((run / "checkpoints").glob("last-*"))[-1].name
    assert newest == f"last-{stopped['step']:010d}"
    assert f"stopped at step {stopped['step']} of 120; everything is saved" in errors
    assert not (run / ".stop").exists()
    finished = _pretrain(tmp_path, "run", 0, 60)  # to which end: test_ray_resume
    assert [record["step"] for record in records(finished.path, kind="epoch")] == list(range(2, 121, 2))


def test_the_command_starts_an_own_instance_of_which_nothing_stays_and_says_nothing_but_its_own_words(
    tmp_path: Path,
) -> None:
    command = _command(tmp_path, "--name", "run", "--epochs", "1", "--workers", "1")
    own = {k: v for k, v in os.environ.items() if k != "RAY_ADDRESS"}
    with ray_folder() as short:
        environment = {**own, "COLUMNS": "80", "RAY_TMPDIR": str(short)}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, check=False)
        assert done.returncode == 0, done.stderr
        assert list((short / f"ebclab-{os.geteuid()}").iterdir()) == []
    starts = ("starting Ray on this machine", "Ray is still starting after ")  # the latter with busy processors
    said = [line for line in done.stderr.splitlines() if not line.startswith(starts)]
    assert done.stderr.splitlines().count(starts[0]) == 1
    lines = [line for line in said if not line.startswith("images in memory: ")]
    assert lines[0].startswith("starting 1 worker with ")
    assert lines[1].startswith("digits: 96 images of 10 classes, ")
    assert all(line.startswith("epoch ") for line in lines[2:]), done.stderr
    assert max(len(line) for line in lines if line is not lines[1]) <= 80
    assert "ray" not in "\n".join(said).lower()
    assert "held-out kNN" in done.stdout

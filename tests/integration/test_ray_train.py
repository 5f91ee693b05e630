"""Runs on Ray Train: W workers equal one, deaths and Ctrl-C lose nothing, refusals are sentences."""

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
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import ebclab
from ebclab.errors import TrainingError, UserError
from ebclab.training.display import SilentDisplay
from ebclab.training.pretrain import RunResult
from ebclab.training.setup import build_method
from energy_contrast.contrastive.simclr import Simclr
from energy_contrast.method import Method, Progress

TINY = ["data.train_limit=96", "training.batch_size=32", "resources.threads=1", "optimizer.learning_rate=0.0003"]
"""Two steps an epoch; few steps and a small rate, so that rounding does not grow into another run."""


def _pretrain(
    runs: Path, name: str, workers: str | int, epochs: int, *settings: str, method: type[Method] | None = None
) -> RunResult:
    fewest, _, most = str(workers).partition(":")
    resources = [f"resources.workers={fewest}", f"resources.max_workers={most or 0}"]
    overrides = [*TINY, f"training.epochs={epochs}", *resources, *settings]
    config = ebclab.compose("simclr", overrides=overrides)
    return ebclab.pretrain(config, runs=runs, name=name, method=method, display=SilentDisplay())


def _weights(run: Path) -> dict[str, torch.Tensor]:
    newest = sorted((run / "checkpoints").glob("last-*"))[-1]
    return load_file(newest / "model.safetensors")


def _assert_equal_to_rounding(one: Path, other: Path) -> None:
    """The weights differ by far less than they have moved.

    Rounding switches single ReLUs, which moves the weights of 20 steps in float32 by 1 to 2 % of their way (measured);
    a wrong factor, a wrong batch or a lost state moves them by the whole of it. The exact proof, in float64 and
    without Ray, is in tests/contracts.
    """
    method = build_method(ebclab.compose("simclr", overrides=TINY), Simclr, 1, torch.device("cpu"))
    begun = torch.cat([parameter.detach().flatten() for parameter in method.parameters()])
    names = [name for name, _ in method.named_parameters()]
    ended = [torch.cat([weights[name].flatten() for name in names]) for weights in (_weights(one), _weights(other))]
    assert (ended[0] - ended[1]).norm() < 0.05 * (ended[0] - begun).norm()


def _records(run: Path, **having: Any) -> list[dict[str, Any]]:
    lines = (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    records = [json.loads(line) for line in lines if line.endswith("}")]
    return [record for record in records if having.items() <= record.items()]


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
    return (run / "metrics.jsonl").exists() and any(r["step"] >= step for r in _records(run, kind="train"))


def _kill_worker(run: Path, rank: int) -> None:
    os.kill(json.loads((run / ".ray" / f"worker-{rank}.json").read_text())["pid"], signal.SIGKILL)


def test_one_worker_gives_the_bits_of_a_run_in_this_process(cluster: str, tmp_path: Path) -> None:
    here = _pretrain(tmp_path, "here", 0, 3)
    ray = _pretrain(tmp_path, "ray", 1, 3)
    one, other = _weights(here.path), _weights(ray.path)
    assert all(torch.equal(one[name], other[name]) for name in one)
    timed = {"seconds", "images_per_second"}
    logs = [
        [{k: v for k, v in r.items() if k not in timed} for r in _records(run.path) if r["kind"] != "event"]
        for run in (here, ray)
    ]
    assert logs[0] == logs[1]
    assert ray.result["steps"] == here.result["steps"] == 6


def test_a_worker_that_dies_costs_one_checkpoint_interval_and_two_workers_equal_one(
    cluster: str, tmp_path: Path
) -> None:
    run, died = tmp_path / "killed", tmp_path / "died"

    class Mortal(Simclr):
        def after_step(self, progress: Progress) -> None:
            if progress.step == 7 and torch.distributed.get_rank() == 1 and not died.exists():
                died.touch()
                os.kill(os.getpid(), signal.SIGKILL)

    killed = _pretrain(tmp_path, "killed", 2, 10, method=Mortal)
    assert [r["ranks"] for r in _records(run, event="started")] == [2]
    (resumed,) = _records(run, event="resumed")
    assert resumed["ranks"] == 2
    assert resumed["step"] == 6
    assert killed.result["steps"] == 20
    steps = [record["step"] for record in _records(run, kind="epoch")]
    assert steps == list(range(2, 21, 2))
    _assert_equal_to_rounding(_pretrain(tmp_path, "here", 0, 10).path, killed.path)


def test_more_deaths_than_allowed_end_the_run_with_the_reason_and_its_checkpoint(cluster: str, tmp_path: Path) -> None:
    run = tmp_path / "run"
    killer = _when(lambda: _reached(run, 20), lambda: _kill_worker(run, 0))
    with pytest.raises(TrainingError, match=r"allows 0; the last time worker 0: its process died.*last-0000") as raised:
        _pretrain(tmp_path, "run", 1, 500, "resources.max_failures=0")
    killer.join(timeout=1)
    assert raised.value.exit_code == 1
    assert not (run / "result.json").exists()


def test_a_run_begun_by_two_workers_is_finished_in_this_process(cluster: str, tmp_path: Path) -> None:
    constant = "optimizer.schedule=constant"
    _pretrain(tmp_path, "moved", 2, 2, constant)
    moved = _pretrain(tmp_path, "moved", 0, 4, constant)
    (change,) = _records(moved.path, event="ranks_changed")
    assert (change["before"], change["now"], change["step"]) == (2, 1, 4)
    _assert_equal_to_rounding(_pretrain(tmp_path, "here", 0, 4, constant).path, moved.path)


def test_numbers_that_are_not_finite_come_back_as_the_same_sentence_without_another_try(
    cluster: str, tmp_path: Path
) -> None:
    sentences = []
    for name, workers in (("here", 0), ("ray", 2)):
        with pytest.raises(TrainingError) as raised:
            _pretrain(tmp_path, name, workers, 50, "optimizer.learning_rate=1e30", "method.temperature=0.01")
        sentences.append(str(raised.value).splitlines()[0])
    assert sentences[0].split(":")[0] == sentences[1].split(":")[0]
    assert len(_records(tmp_path / "ray", event="started")) == 1
    assert len(_records(tmp_path / "ray", event="failed")) == 1
    assert _records(tmp_path / "ray", event="resumed") == []


def test_what_a_worker_refuses_is_the_sentence_of_this_process_and_leaves_no_folder(
    cluster: str, tmp_path: Path
) -> None:
    sentences = []
    for name, workers in (("here", 0), ("ray", 2)):
        with pytest.raises(UserError) as raised:
            _pretrain(tmp_path, name, workers, 1, "data.name=cifar10", f"data.root={tmp_path / 'nothing'}")
        sentences.append(str(raised.value))
    assert sentences[0] == sentences[1]
    assert not (tmp_path / "ray").exists()


def test_a_cluster_that_is_too_small_is_refused_with_the_sum(cluster: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"4 workers x 1 CPU = 4 CPUs, the cluster has 2; "):
        _pretrain(tmp_path, "run", 4, 1)
    with pytest.raises(UserError, match=r"2 workers x 1 GPU = 2 GPUs, the cluster has 0; "):
        _pretrain(tmp_path, "run", 2, 1, "resources.device=cuda")
    assert list(tmp_path.iterdir()) == []


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
    (stopped,) = _records(run, event="stopped")
    newest = sorted((run / "checkpoints").glob("last-*"))[-1].name
    assert newest == f"last-{stopped['step']:010d}"
    assert f"stopped at step {stopped['step']} of 120; everything is saved" in errors
    assert not (run / ".stop").exists()
    finished = _pretrain(tmp_path, "run", 0, 60)  # to which end: test_ray_resume
    assert [record["step"] for record in _records(finished.path, kind="epoch")] == list(range(2, 121, 2))


def test_the_command_starts_an_own_instance_and_says_nothing_but_its_own_words(tmp_path: Path) -> None:
    command = _command(tmp_path, "--name", "run", "--epochs", "1", "--workers", "1")
    environment = {**{k: v for k, v in os.environ.items() if k != "RAY_ADDRESS"}, "COLUMNS": "80"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stderr.splitlines() if not line.startswith("delivery ")]
    assert lines[0].startswith("starting 1 worker with ")
    assert all(line.startswith("epoch ") for line in lines[1:]), done.stderr
    assert max(map(len, lines)) <= 80
    assert "ray" not in done.stderr.lower()
    assert "held-out kNN" in done.stdout


@pytest.mark.parametrize("workers", [0, 2])
def test_runs_on_workers_start_from_given_weights_with_networks_of_timm(
    cluster: str, tmp_path: Path, workers: int
) -> None:
    timms, still = ["encoder.name=timm/test_resnet", "evaluation.knn_every=0"], "optimizer.learning_rate=1e-30"
    donor = _pretrain(tmp_path, "donor", 0, 1, *timms, "seed=3")
    begun = _pretrain(tmp_path, "begun", workers, 1, *timms, still, f"init.weights={donor.path}")
    one, other = _weights(donor.path), _weights(begun.path)
    learnt = [
        name for name in one if name.startswith("encoder.") and "running" not in name and "num_batches" not in name
    ]
    assert learnt
    assert all(torch.equal(one[name], other[name]) for name in learnt)  # steps of nothing: still where they began
    for name in one:  # statistics moved with the images, by the same batches on one rank and on two
        if "running" in name:
            assert not torch.equal(one[name], other[name])

"""Sweeps whose folders live in an S3 store, without any disk that their processes share."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import impatient
import pytest
from forked_workers import environment_without
from tests.support.waiting import until

import ebclab
from ebclab.cli import main
from ebclab.storage.object_store import COPIES, Store, remote_at
from ebclab.sweeps.display import SweepDisplay
from ebclab.sweeps.log import SweepLog
from ebclab.sweeps.plan import SweepPlan
from ebclab.sweeps.resources import Limits
from ebclab.sweeps.space.space import parse_space

pytestmark = pytest.mark.slow

TINY = ["data.train_limit=320", "training.batch_size=32", "optimizer.name=adam", "optimizer.learning_rate=0.003"]
SPACE = {
    "optimizer.learning_rate": {"loguniform": [1e-6, 1e-1]},
    "method.temperature": {"loguniform": [0.05, 1.0]},
}


def _plan(**asked: Any) -> SweepPlan:
    config = ebclab.compose("simclr", overrides=[*TINY, "training.epochs=3"])
    return ebclab.make_plan(config, ebclab.SweepRequest(space=parse_space({"parameters": SPACE}, "test"), **asked))


def _names(address: str) -> set[str]:
    remote = remote_at(address)
    assert remote is not None
    return set(Store(remote).names())


def _read(address: str, name: str) -> bytes:
    remote = remote_at(address)
    assert remote is not None
    return Store(remote).read(name)


def _told(log: SweepLog) -> dict[str, Any]:
    return {
        name: (trial.settings, trial.state, {epoch: point.objective for epoch, point in trial.curve.items()})
        for name, trial in log.trials.items()
    }


def test_a_sweep_in_a_store_is_the_sweep_on_a_disk_and_reports_and_exports_from_anywhere(
    store: Any, copies: Path, cluster: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = {"trials": 3, "top": 1, "seeds": 1}
    alone = Limits(concurrent=1)
    local = ebclab.sweep(_plan(**asked), sweeps=tmp_path, name="sweep", limits=alone, display=SweepDisplay())
    address = "s3://sets/sweeps/sweep"
    stored = ebclab.sweep(_plan(**asked), sweeps="s3://sets/sweeps", name="sweep", limits=alone, display=SweepDisplay())
    assert stored["path"] == address
    assert stored["winner"] == local["winner"]
    assert stored["test"] == local["test"]
    (tmp_path / "told.jsonl").write_bytes(_read(address, "trials.jsonl"))
    assert _told(SweepLog(tmp_path / "told.jsonl")) == _told(SweepLog(tmp_path / "sweep" / "trials.jsonl"))
    left = list(copies.glob("*/worker/sweep/trials/*/checkpoints"))
    assert len(left) <= 1  # a node's disk is left empty, but for a process that Tune has ended before it had tidied up
    monkeypatch.setenv(COPIES, str(tmp_path / "elsewhere"))
    assert main(["report", address]) == 0
    assert main(["report", address, "--to", "s3://sets/pages/one.html"]) == 0
    assert _names("s3://sets/pages") == {"one.html", "one.csv", "one.json"}
    assert b"<html" in _read(address, "report.html")
    assert main(["export", address, "--to", "s3://sets/winners"]) == 0
    assert {"leaderboard.csv", "leaderboard.json"} < _names("s3://sets/winners")
    resume = ["sweep", "simclr", "--name", "sweep", "--sweeps", "s3://sets/sweeps", "--resume", "--show"]
    assert main(resume) == 0


def test_a_population_in_a_store_takes_over_checkpoints_through_it(store: Any, copies: Path, cluster: str) -> None:
    plan = _plan(trials=4, top=1, seeds=1, scheduler="pbt", interval_epochs=1)
    result = ebclab.sweep(plan, sweeps="s3://sets/sweeps", name="pbt", display=SweepDisplay())
    address = "s3://sets/sweeps/pbt"
    told = [json.loads(line) for line in _read(address, "trials.jsonl").splitlines()]
    cloned = [record for record in told if record["event"] == "cloned"]
    assert cloned
    for record in cloned:
        assert f"trials/{record['trial']}-g{record['generation']}/config.yaml" in _names(address)
    assert result["winner"]["values"]


def test_a_sweep_whose_machine_died_goes_on_elsewhere_from_what_the_store_holds(
    store: Any, full_waits: bool, tmp_path: Path
) -> None:
    settings = [part for text in (*TINY, "training.epochs=3") for part in ("--set", text)]
    (tmp_path / "space.yaml").write_text(json.dumps({"parameters": SPACE}))
    settings += ["--space", str(tmp_path / "space.yaml")]
    options = ["--name", "killed", "--sweeps", "s3://sets/sweeps", "--trials", "2", "--top", "1", "--seeds", "1"]
    command = ["sweep", "simclr", *options, *settings, "--concurrent", "1"]

    def start(machine: str, program: list[str] = impatient.USUAL) -> subprocess.Popen[bytes]:
        environment = {
            **environment_without(),
            "OMP_NUM_THREADS": "1",
            COPIES: str(tmp_path / machine),
            "RAY_ADDRESS": "",
        }
        words = [sys.executable, *program, *command]
        return subprocess.Popen(words, env=environment, stdout=subprocess.DEVNULL, start_new_session=True)

    def finished() -> int:
        try:
            log = _read("s3://sets/sweeps/killed", "trials.jsonl").decode()
        except FileNotFoundError:
            return 0
        return log.count('"event": "ended"')

    process = start("one")
    until(lambda: finished() >= 1 or process.poll() is not None, pause=0.1)
    assert process.poll() is None
    os.killpg(process.pid, signal.SIGKILL)  # with every process of its Ray
    process.wait()
    assert not _names("s3://sets/sweeps/killed") & {"result.json"}
    assert start("two", impatient.USUAL if full_waits else impatient.LEASE).wait(timeout=600) == 0
    assert json.loads(_read("s3://sets/sweeps/killed", "result.json"))["trials"]["finished"] >= 1

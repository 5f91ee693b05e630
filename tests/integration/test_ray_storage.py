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
import yaml
from forked_workers import environment_without
from tests.support.waiting import until

import ebclab
from ebclab.cli import main
from ebclab.storage import lease
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


def test_a_sweep_in_a_store_whose_machine_died_ends_elsewhere_as_on_a_disk_and_is_reported_and_exported_from_anywhere(
    store: Any, copies: Path, cluster: str, full_waits: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = {"trials": 3, "top": 1, "seeds": 1}
    local = ebclab.sweep(
        _plan(**asked), sweeps=tmp_path, name="sweep", limits=Limits(concurrent=1), display=SweepDisplay()
    )
    address = "s3://sets/sweeps/sweep"
    (tmp_path / "space.yaml").write_text(json.dumps({"parameters": SPACE}))
    command = ["sweep", "simclr", "--name", "sweep", "--sweeps", "s3://sets/sweeps", "--concurrent", "1"]
    command += ["--space", str(tmp_path / "space.yaml"), "--trials", "3", "--top", "1", "--seeds", "1"]
    command += [part for text in (*TINY, "training.epochs=3") for part in ("--set", text)]

    def finished() -> int:
        try:
            return _read(address, "trials.jsonl").count(b'"event": "ended"')
        except FileNotFoundError:
            return 0

    own = {"OMP_NUM_THREADS": "1", COPIES: str(tmp_path / "one"), "RAY_ADDRESS": ""}
    words = [sys.executable, "-m", "ebclab", *command]
    process = subprocess.Popen(
        words, env={**environment_without(), **own}, stdout=subprocess.DEVNULL, start_new_session=True
    )
    until(lambda: finished() >= 1 or process.poll() is not None, pause=0.1)
    assert process.poll() is None
    os.killpg(process.pid, signal.SIGKILL)  # with every process of its Ray
    process.wait()
    assert "result.json" not in _names(address)
    if not full_waits:  # else the dead machine's lease keeps this process waiting for 60 s
        monkeypatch.setattr(lease, "LIFETIME", impatient.LIFETIME)
    stored = ebclab.sweep(
        _plan(**asked), sweeps="s3://sets/sweeps", name="sweep", limits=Limits(concurrent=1), display=SweepDisplay()
    )
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


def test_a_population_goes_on_from_its_best_through_the_store_and_every_member_reaches_the_end(
    store: Any, copies: Path, cluster: str
) -> None:
    plan = _plan(trials=4, top=1, seeds=1, baseline=False, scheduler="pbt", interval_epochs=1)
    result = ebclab.sweep(plan, sweeps="s3://sets/sweeps", name="pbt", display=SweepDisplay())
    address = "s3://sets/sweeps/pbt"
    told = [json.loads(line) for line in _read(address, "trials.jsonl").splitlines()]
    ended = [record["state"] for record in told if record["event"] == "ended"]
    assert ended == ["finished"] * 5  # four members, and the run that confirms
    cloned = [record for record in told if record["event"] == "cloned"]
    assert cloned
    for record in cloned:
        run = f"trials/{record['trial']}-g{record['generation']}"
        settings = yaml.safe_load(_read(address, f"{run}/config.yaml"))
        assert settings["method"]["temperature"] == pytest.approx(record["settings"]["method.temperature"])
        copied = settings["training"]["copied_weights"]  # also after its turn wrote the settings again
        assert copied == f"pbt/{record['donor']} after epoch {record['epoch']}"
        begun = [json.loads(line) for line in _read(address, f"{run}/metrics.jsonl").splitlines()]
        resumed = [entry for entry in begun if entry.get("event") == "resumed"]
        assert resumed[0]["step"] == record["epoch"] * len(range(0, 320 - 32, 32))  # the donor's weights, not new ones
    assert result["winner"]["values"]

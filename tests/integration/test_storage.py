"""Runs that live in an S3 store: every verb, other machines, kills, a store that is away; signed requests, loopback."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import boto3
import pytest
from pyarrow import fs
from run_files import last_step, records
from tests.support.waiting import until

from ebclab.cli import main
from ebclab.storage.filesystem import PATIENCE
from ebclab.storage.lease import NAME, held_by, leased
from ebclab.storage.mirror import Mirror
from ebclab.storage.object_store import COPIES, RemoteFolder, Store, remote_at
from ebclab.sweeps.log import SweepLog

SETTINGS = ["data.train_limit=640", "training.batch_size=64", "resources.threads=1", "training.log_every=1"]


def _command(runs: str | Path, epochs: int, *extra: str) -> list[str]:
    settings = [part for text in (*SETTINGS, *extra) for part in ("--set", text)]
    return ["pretrain", "simclr", "--name", "run", "--runs", str(runs), "--epochs", str(epochs), *settings]


def _names(address: str) -> set[str]:
    remote = remote_at(address)
    assert remote is not None
    return set(Store(remote).names())


def _objects(store: Any, beginning: str) -> set[str]:
    """Return the names of all objects in the bucket that begin so, as Amazon's own client lists them."""
    own: dict[str, Any] = {"aws_access_key_id": store.key, "aws_secret_access_key": store.secret}
    client = boto3.client("s3", endpoint_url=store.url, region_name="us-east-1", **own)
    return {each["Key"] for each in client.list_objects_v2(Bucket="sets", Prefix=beginning).get("Contents", [])}


def _weights(address: str) -> bytes:
    """Return the final weights of a run in the store; they are written without a date."""
    place, inside = fs.FileSystem.from_uri(address)
    result = json.loads(place.open_input_stream(f"{inside}/result.json").read())
    content: bytes = place.open_input_stream(f"{inside}/{result['checkpoint']}/model.safetensors").read()
    return content


def _final(runs: Path) -> bytes:
    """Return the final weights of a run in a folder."""
    return next((runs / "run" / "checkpoints").glob("last-*36/model.safetensors")).read_bytes()


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function after which this process is on another machine: one without copies."""
    count = iter(range(100))

    def change() -> None:
        monkeypatch.setenv(COPIES, str(tmp_path / f"machine-{next(count)}"))

    change()
    return change


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The final weights of four epochs in a folder on the disk that nothing happened to."""
    runs = tmp_path_factory.mktemp("undisturbed")
    assert main(_command(runs, 4)) == 0
    return _final(runs)


def test_every_verb_reads_and_writes_there_each_on_a_machine_of_its_own(
    store: Any, machine: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = "s3://sets/verbs"
    assert main(_command(runs, 2)) == 0
    said = capsys.readouterr()
    assert f"run: {runs}/run" in said.out
    assert "no conditional writes" not in said.err
    machine()
    more = ["--extend", "4"]
    assert main([*_command(runs, 2), *more]) == 0  # two more epochs, somewhere else
    assert [main([*_command(tmp_path, 2), *given]) for given in ([], more)] == [0, 0]  # the same on this disk
    assert _weights(f"{runs}/run") == _final(tmp_path)
    machine()
    assert main([*_command(runs, 2), *more]) == 0
    assert "this run had already finished" in capsys.readouterr().out
    machine()
    assert main(["evaluate", f"{runs}/run", "--only", "knn"]) == 0
    machine()
    capsys.readouterr()
    assert main(["export", f"{runs}/run", "--to", "s3://sets/encoder"]) == 0
    said = capsys.readouterr()
    assert "exported to s3://sets/encoder; README.md in it" in said.out
    assert "no scores" not in said.err  # what the machine before has measured is known
    assert _names("s3://sets/encoder") == {"README.md", "encoder.json", "model.safetensors"}
    assert main(["export", f"{runs}/run", "--to", "s3://sets/encoder"]) == 2
    assert "s3://sets/encoder: already holds an exported encoder" in capsys.readouterr().err
    assert main(["export", f"{runs}/run", "--to", "s3://sets/encoder", "--overwrite"]) == 0
    names = _names(f"{runs}/run")
    assert {"config.yaml", "environment.json", "metrics.jsonl", "result.json", "evaluation.json"} <= names
    assert [name for name in names if any(part.startswith(".") for part in name.split("/"))] == [NAME]
    assert not held_by(RemoteFolder(runs, "run"))
    assert {name.split("/")[1] for name in names if name.startswith("checkpoints/last")} == {
        "last-0000000027",
        "last-0000000036",
    }
    assert _objects(store, "verbs/") == {f"verbs/run/{name}" for name in names}  # and no empty ones of folders
    assert main(["runs", "delete", "run", "--runs", runs, "--yes"]) == 0
    assert _objects(store, "verbs") == set()


def test_settings_can_be_taken_from_there_and_a_run_continued_by_its_name_alone(
    store: Any, machine: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(_command("s3://sets/named", 1)) == 0
    machine()
    resume = ["pretrain", "simclr", "--name", "run", "--runs", "s3://sets/named", "--extend", "2"]
    assert main(resume) == 0
    config = ["--config", "s3://sets/named/run/config.yaml"]
    capsys.readouterr()
    assert main(["show", "simclr", *config]) == 0
    assert "train_limit: 640" in capsys.readouterr().out
    assert main(["show", "simclr", "--config", "s3://sets/named/run/nothing.yaml"]) == 2
    assert "s3://sets/named/run/nothing.yaml: there is no such file in the store" in capsys.readouterr().err


def _start(command: list[str], copies: Path, **variables: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", COPIES: str(copies), **variables}
    return subprocess.Popen(
        [sys.executable, "-m", "ebclab", *command],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def _run_in(copies: Path) -> Path:
    """Return the folder of the only run among copies."""
    (log,) = copies.rglob("metrics.jsonl")
    return log.parent


@pytest.mark.slow
@pytest.mark.fault
def test_a_run_waits_for_a_store_that_is_away_and_loses_nothing(
    store: Any,
    door: Any,
    undisturbed: bytes,
    full_waits: bool,
    tmp_path: Path,
    record_property: Callable[[str, object], None],
) -> None:
    away = 30 if full_waits else 8
    runs, copies = "s3://sets/away", tmp_path / "one"
    process = _start(_command(runs, 4), copies, AWS_ENDPOINT_URL=f"http://127.0.0.1:{door.port}")
    until(lambda: any("checkpoints" in name for name in _names(f"{runs}/run")) or process.poll() is not None)
    door.shut()
    time.sleep(away)
    assert process.poll() is None
    before = _names(f"{runs}/run")
    assert "result.json" not in before
    run, began = _run_in(copies), time.monotonic()
    standing = last_step(run)
    door.open()
    until(lambda: last_step(run) > standing or process.poll() is not None)
    seconds = time.monotonic() - began
    assert process.wait(timeout=600) == 0, process.stderr.read()  # type: ignore[union-attr]
    process.stderr.close()  # type: ignore[union-attr]
    assert _weights(f"{runs}/run") == undisturbed
    assert [record["step"] for record in records(run, kind="train")] == list(range(1, 37))  # it repeated nothing
    assert {record["event"] for record in records(run, kind="event")} == {"started", "warning"}
    assert all("the store does not answer" in record["text"] for record in records(run, event="warning"))
    told = {"fault": f"storage away for {away} s", "steps_lost": 0, "seconds": round(seconds, 1)}
    for key, value in {**told, "result": "the same bits"}.items():
        record_property(key, value)


@pytest.mark.parametrize("requests", range(11))
def test_a_sweep_killed_between_two_requests_for_its_log_goes_on_elsewhere_from_the_last_push(
    requests: int, store: Any, machine: Any
) -> None:
    class Dying(Store):
        left = requests

        def write(self, name: str, content: bytes) -> None:
            if self.left == 0:
                raise KeyboardInterrupt
            self.left -= 1
            super().write(name, content)

    remote = remote_at(f"s3://sets/log-{requests}/s")
    assert remote is not None
    mirror, pushed = Mirror(remote), 0
    mirror.store = Dying(remote)
    mirror.pull()
    with suppress(KeyboardInterrupt):
        while True:
            SweepLog(remote.cache / "trials.jsonl").append("note", text="x" * 20_000)
            mirror.push()
            pushed += 1
    for known in (pushed, pushed + 1):  # on other machines; the first of them goes on
        machine()
        follower = Mirror(remote)
        follower.pull()
        log = SweepLog(remote.cache / "trials.jsonl")
        assert len(log.events) == known
        log.append("note", text="y")
        follower.push()


def test_a_store_that_stays_away_ends_the_run_with_a_sentence(
    store: Any, machine: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv(PATIENCE, "1")
    assert main(_command("s3://sets/nowhere", 1)) == 2
    text = " ".join(capsys.readouterr().err.split())
    assert "s3://sets/nowhere/run: the store has not answered for " in text
    assert "Traceback" not in text


@pytest.mark.parametrize(
    ("runs", "variables", "sentence"),
    [
        ("s3://nothing/runs", {}, "s3://nothing/runs/run: the store refuses, got "),
        ("s3://sets/runs", {"AWS_SECRET_ACCESS_KEY": "hush"}, "s3://sets/runs/run: the store refuses, got "),
        ("s3://me:hush@sets/runs", {}, "--runs: an address is written into run folders and must hold no credentials"),
        ("ftp://sets/runs", {}, "storage: not a place that can be opened, got 'ftp://sets/runs'"),
    ],
)
def test_a_store_that_refuses_is_one_sentence_at_once_without_keys(
    runs: str,
    variables: dict[str, str],
    sentence: str,
    store: Any,
    machine: Any,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    started = time.monotonic()
    assert main(_command(runs, 1)) == 2
    assert time.monotonic() - started < 200  # a third of what a store that does not answer gets
    text = " ".join(capsys.readouterr().err.split())
    assert sentence in text
    assert "hush" not in text


def test_two_machines_do_not_train_in_one_folder(store: Any, machine: Any, capsys: pytest.CaptureFixture[str]) -> None:
    remote = remote_at("s3://sets/busy/run")
    assert remote is not None
    said: list[int] = []
    with leased(remote, "is training in this folder"):
        thread = threading.Thread(target=lambda: said.append(main(_command("s3://sets/busy", 1))))
        thread.start()
        thread.join()
    assert said == [2]
    assert "s3://sets/busy/run: another process is training in this folder" in " ".join(capsys.readouterr().err.split())

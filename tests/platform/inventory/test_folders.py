"""Runs in a store, listed."""

import json
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ebclab.cli import main
from ebclab.config import compose, to_yaml
from ebclab.inventory import listing
from ebclab.inventory.listing import RunCollection, collection_at, inventory
from ebclab.storage import object_store as storage
from ebclab.storage.filesystem import Location
from ebclab.storage.lease import leased
from ebclab.storage.mirror import Mirror
from ebclab.storage.object_store import COPIES, RemoteFolder
from ebclab.sweeps.log import SweepLog

from .conftest import new_run


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The address of a folder with one run, whose weights are 3,000,000 bytes."""
    monkeypatch.setenv(COPIES, str(tmp_path / "copies"))
    monkeypatch.chdir(tmp_path)
    run = tmp_path / "runs" / "one"
    new_run(run, 6, result=True)
    weights = run / "checkpoints" / "kept-0000000001"
    weights.mkdir()
    (weights / "model.safetensors").write_bytes(bytes(3_000_000))
    (weights / "manifest.json").write_text(json.dumps({"files": {}}))
    return f"file://{run.parent}"


def test_runs_in_a_store_are_listed_with_the_size_they_have_there(runs, tmp_path, capsys):
    assert main(["runs", "list", "--runs", runs]) == 0
    said = capsys.readouterr().out
    assert "one" in said
    assert "6/6 epochs " in said
    stored = tmp_path / "runs" / "one"
    size = sum(path.stat().st_size for path in stored.rglob("*") if path.is_file()) / 1e6
    assert (f"{size:.0f} MB" if size >= 10 else f"{size:.1f} MB") in said
    assert "finished" in said
    assert not list((tmp_path / "copies").rglob("*.safetensors"))
    with leased(RemoteFolder(runs, "one"), "is training"):
        assert main(["runs", "list", "--runs", runs]) == 0
    assert "running" in capsys.readouterr().out


def test_what_lies_in_a_store_is_not_cleaned_and_says_how(runs: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["runs", "clean", "--runs", runs]) == 2
    assert f"--runs: only folders on a disk can be cleaned, got {runs}; delete in a store" in " ".join(
        capsys.readouterr().err.split()
    )


@pytest.mark.parametrize("scored", [True, False])
def test_an_unfinished_run_in_a_store_is_listed_as_far_as_it_came(scored, tmp_path, monkeypatch):
    monkeypatch.setenv(COPIES, str(tmp_path / "copies"))
    run, hour_ago = tmp_path / "runs" / "half", time.time() - 3600
    checkpoints = run / "checkpoints"
    for name, epochs, value in (("last-0000000010", 2, 0.5), ("last-0000000015", 3, 0.75), ("best-0000000020", 4, 0.9)):
        (checkpoints / name).mkdir(parents=True)
        facts = {"epochs_done": epochs, "scores": {"holdout_knn": value} if scored else {}}
        (checkpoints / name / "manifest.json").write_text(json.dumps({"facts": facts, "files": {}}))
    (checkpoints / "last-0000000025").mkdir()
    (checkpoints / "last-0000000025" / "model.safetensors").touch()  # on its way
    (run / "config.yaml").write_text(to_yaml(compose("flatclr", overrides=["training.epochs=6"])))
    (run / "deep").mkdir()
    (run / "deep" / "config.yaml").touch()
    for path in run.rglob("*"):
        os.utime(path, (hour_ago, hour_ago))
    collection = collection_at(f"file://{run.parent}", "runs")
    [entry] = inventory(collection, RunCollection(tmp_path / "none"))
    told = entry.in_words(time.time())
    assert (told["name"], told["done"], told["score"]) == ("half", "3/6 epochs", "75.0%" if scored else "")
    assert entry.state == "unfinished"
    assert time.time() - entry.changed == pytest.approx(3600, abs=60)
    brought = {path.relative_to(collection.path).as_posix() for path in collection.path.rglob("*") if path.is_file()}
    assert brought == {"half/config.yaml"}
    shutil.rmtree(run)
    assert inventory(collection_at(f"file://{run.parent}", "runs"), RunCollection(tmp_path / "none")) == []


def test_a_whole_bucket_of_runs_is_listed(runs, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(storage, "_place", lambda root: Location(root.replace("s3://bucket", runs), "storage"))
    assert main(["runs", "list", "--runs", "s3://bucket"]) == 0
    assert "6/6 epochs " in capsys.readouterr().out
    assert main(["export", "s3://bucket/one", "--to", "s3://bucket"]) == 2
    assert "s3://bucket: holds other files, got one" in " ".join(capsys.readouterr().err.split())
    assert main(["export", "s3://bucket", "--to", "there"]) == 2
    assert "s3://bucket: a whole bucket, not a run or a sweep; name a folder in it" in capsys.readouterr().err
    assert not list(Path.cwd().glob("s3:*"))


def test_a_long_log_in_a_store_is_listed_with_all_its_events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(COPIES, str(tmp_path / "copies"))
    remote = RemoteFolder(f"file://{tmp_path}/sweeps", "long")
    remote.cache.mkdir(parents=True)
    mirror, log = Mirror(remote), SweepLog(remote.cache / "trials.jsonl")
    for number in range(10):
        log.append("note", number=number, text="x" * 20_000)
        mirror.push()
    assert (tmp_path / "sweeps" / "long" / "trials.jsonl").stat().st_size < 100_000  # the rest, and names of parts
    collection = collection_at(f"file://{tmp_path}/sweeps", "sweeps")
    events = SweepLog(collection.path / "long" / "trials.jsonl").events
    assert [event["number"] for event in events] == list(range(10))


def test_a_list_of_a_store_asks_for_leases_and_manifests_only_where_there_are_some(tmp_path, monkeypatch):
    """One listing tells which files there are; of each run, then, only the settings and what tells its progress."""
    monkeypatch.setenv(COPIES, str(tmp_path / "copies"))
    monkeypatch.setattr(listing, "_AT_ONCE", 2)
    for number in range(5):
        run = tmp_path / "runs" / f"{number}"
        run.mkdir(parents=True)
        (run / "config.yaml").write_text(to_yaml(compose("flatclr")))
        (run / "metrics.jsonl").touch()
        if number == 1:
            folder = run / "checkpoints" / "last-0000000010"
            folder.mkdir(parents=True)
            (folder / "manifest.json").write_text(json.dumps({"facts": {"epochs_done": 1, "scores": {}}}))
    asked: list[str] = []

    def counted(own: Callable[..., object]) -> Callable[..., object]:
        def call(store: storage.Store, *given: object) -> object:
            asked.append(" ".join([own.__name__, *map(str, given[:1])]))
            return own(store, *given)

        return call

    for name in ("names", "stored", "read", "download", "write", "delete"):
        monkeypatch.setattr(storage.Store, name, counted(getattr(storage.Store, name)))
    collection = collection_at(f"file://{tmp_path / 'runs'}", "runs")
    assert len(inventory(collection, RunCollection(tmp_path / "none"))) == 5
    assert sorted(asked) == [*[f"download {number}/config.yaml" for number in range(5)], "names", "read manifest.json"]

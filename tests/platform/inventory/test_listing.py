"""Runs and sweeps as a list: what is told comes from their files, and a damaged one does not hide the others."""

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ebclab.errors import RunError
from ebclab.inventory import listing
from ebclab.inventory.listing import Entry, RunCollection, collection_given, files_in, inventory
from ebclab.sweeps.folder import SweepFolder
from ebclab.sweeps.log import SweepLog
from ebclab.sweeps.plan import SweepPlan, write_plan
from ebclab.sweeps.results import ConfirmedSettings, StoppingSavings, SweepResult

from .conftest import new_run

Plans = Callable[..., SweepPlan]


def write_result(folder: SweepFolder, winner: ConfirmedSettings) -> None:
    """Let a sweep be finished, with ``winner``."""
    result = SweepResult(
        path=folder.address,
        method="simclr",
        dataset="digits",
        objective="holdout_knn",
        trials={},
        winner=winner,
        candidates=(winner,) if winner.is_confirmed else (),
        test=None,
        saved=StoppingSavings(0, 0, 0.0, 0.0),
        seconds=0.0,
        finished="2026-11-20T12:00:00+00:00",
    )
    folder.result.write_text(json.dumps(result.to_mapping()))


def listed(tmp_path: Path) -> dict[str, Entry]:
    return {
        entry.name: entry for entry in inventory(RunCollection(tmp_path / "runs"), RunCollection(tmp_path / "sweeps"))
    }


def words(entries: dict[str, Entry]) -> dict[str, dict[str, str]]:
    return {name: entry.in_words(time.time()) for name, entry in entries.items()}


def test_runs_tell_how_far_they_came_and_how_good_they_are(tmp_path: Path) -> None:
    new_run(tmp_path / "runs" / "done", 6, result=True)
    new_run(tmp_path / "runs" / "half", 3)
    (tmp_path / "runs" / "half" / "checkpoints" / "last-0000000020").mkdir()  # without a manifest it is none
    new_run(tmp_path / "runs" / "begun", None)
    (tmp_path / "runs" / "notes").mkdir()
    found = listed(tmp_path)
    assert set(found) == {"done", "half", "begun"}
    told = {name: (told["done"], told["score"], told["state"]) for name, told in words(found).items()}
    assert told == {
        "done": ("6/6 epochs", "75.0%", "finished"),
        "half": ("3/6 epochs", "75.0%", "unfinished"),
        "begun": ("0/6 epochs", "", "unfinished"),
    }
    assert (words(found)["done"]["method"], words(found)["done"]["data"]) == ("flatclr", "cifar10")


def test_a_run_that_is_held_is_running(tmp_path: Path) -> None:
    new_run(tmp_path / "runs" / "half", 3)
    with (tmp_path / "runs" / "half" / ".lock").open("a") as lock:
        assert listed(tmp_path)["half"].state == "unfinished"
        fcntl.flock(lock, fcntl.LOCK_SH)  # as another reader does that looks at the same moment
        assert listed(tmp_path)["half"].state == "unfinished"
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert listed(tmp_path)["half"].state == "running"


def test_size_is_that_of_all_files_and_age_that_of_the_newest_event(tmp_path: Path) -> None:
    run = tmp_path / "runs" / "half"
    new_run(run, None)
    (run / "metrics.jsonl").write_text("")
    (run / "deep").mkdir()
    (run / "deep" / "file").write_bytes(b"x" * 5000)
    hour_ago = time.time() - 3600
    for path in run.rglob("*"):
        os.utime(path, (hour_ago, hour_ago - 10_000 * (path.name == "config.yaml")))
    entry = listed(tmp_path)["half"]
    assert entry.num_bytes == 5000 + (run / "config.yaml").stat().st_size
    assert time.time() - entry.changed == pytest.approx(3600, abs=60)


def test_sweeps_tell_trials_that_are_over_and_the_winner(tmp_path: Path, sweep_plan: Plans) -> None:
    folder = SweepFolder(tmp_path / "sweeps" / "hunt")
    folder.path.mkdir(parents=True)
    write_plan(folder.plan, sweep_plan(trials=4, top=1, seeds=2))
    log = SweepLog(folder.log)
    for number, (value, state) in enumerate([(0.5, "finished"), (0.8, "finished"), (0.1, "stopped"), (0.9, "")]):
        name = f"000{number}"
        facts = {"kind": "search", "number": number, "point": {}, "settings": {}, "seed": 0, "epochs": 2}
        log.append("trial", trial=name, **facts)
        log.append("epoch", trial=name, epoch=1 if state == "" else 2, objective=value, seconds=1.0, metrics={})
        if state:
            log.append("ended", trial=name, state=state, reason="", seconds=1.0)
    told = words(listed(tmp_path))["hunt"]
    assert (told["method"], told["data"], told["done"]) == ("simclr", "digits", "3/4 trials")
    assert (told["score"], told["state"]) == ("80.0%", "unfinished")
    start: dict[str, Any] = {"source": "0001", "settings": {}}
    confirmed = ConfirmedSettings(**start, seeds=(1, 2), values=(0.5, 0.75), seeds_asked=2, mean=0.625)
    write_result(folder, confirmed)
    told = words(listed(tmp_path))["hunt"]
    assert (told["score"], told["state"]) == ("62.5%", "finished")
    write_result(folder, ConfirmedSettings(**start, seeds=(0,), values=(0.5,), seeds_asked=0, mean=0.5))
    assert words(listed(tmp_path))["hunt"]["score"] == "50.0%"


@pytest.mark.parametrize("file", ["config.yaml", "result.json", "checkpoints/last-0000000010/manifest.json"])
def test_a_damaged_run_is_listed_as_such_beside_the_others(tmp_path: Path, file: str) -> None:
    new_run(tmp_path / "runs" / "good", 6, result=True)
    new_run(tmp_path / "runs" / "bad", 6, result=file == "result.json")
    (tmp_path / "runs" / "bad" / file).write_text("{")
    assert {name: entry.state for name, entry in listed(tmp_path).items()} == {"good": "finished", "bad": "unreadable"}


def test_the_newest_comes_first(tmp_path: Path) -> None:
    for number, name in enumerate(("b", "c", "a")):
        new_run(tmp_path / "runs" / name, None)
        seen = time.time() - 100 * number
        os.utime(tmp_path / "runs" / name / "config.yaml", (seen, seen))
    assert list(listed(tmp_path)) == ["b", "c", "a"]


def test_a_folder_that_was_named_must_exist_and_a_usual_one_need_not(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"--runs: there is no such folder, got .*nowhere"):
        collection_given(str(tmp_path / "nowhere"), "runs")
    assert collection_given(None, "runs") == Path("runs")
    assert inventory(RunCollection(tmp_path / "no"), RunCollection(tmp_path / "none")) == []


def test_runs_are_listed_without_torch_and_without_yaml_of_more_than_a_value(tmp_path: Path) -> None:
    """Each takes more time than thousands of runs may: two seconds, and five milliseconds a run."""
    new_run(tmp_path / "runs" / "done", 6, result=True)
    new_run(tmp_path / "runs" / "half", 3)
    code = (
        "import sys, yaml; from ebclab.cli import main; of_value = yaml.load;"
        "yaml.load = lambda text, loader: of_value(text, loader) if len(text.splitlines()) == 1 else 1 / 0;"
        "main(['runs', 'list']);"
        "sys.exit(str({'torch', 'numpy', 'pyarrow', 'scipy', 'optuna', 'ray'} & sys.modules.keys() or ''))"
    )
    ended = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ended.stderr.strip() == ""
    assert {line.split()[0] for line in ended.stdout.splitlines()} == {"name", "half", "done"}
    assert "unreadable" not in ended.stdout


def test_what_changes_between_two_lists_is_seen(tmp_path: Path) -> None:
    new_run(tmp_path / "runs" / "half", 3)
    assert listed(tmp_path)["half"].state == "unfinished"
    (tmp_path / "runs" / "half" / "config.yaml").write_text("{")
    new_run(tmp_path / "runs" / "done", 6, result=True)
    assert {name: entry.state for name, entry in listed(tmp_path).items()} == {"half": "unreadable", "done": "finished"}
    (tmp_path / "runs" / "half").rename(tmp_path / "runs" / ".half")
    assert set(listed(tmp_path)) == {"done"}


def test_a_file_that_goes_while_its_folder_is_read_hides_no_other(tmp_path, monkeypatch):
    """Runs at work replace their files all the time: without its lock, such a run was not shown as running."""
    for name in "abcde":
        (tmp_path / name).write_bytes(b"12")
    listed, gone = os.scandir, []

    def scandir(folder: str) -> Any:
        entries = list(listed(folder))
        os.unlink(entries[0].path)
        gone.append(entries[0].name)
        return nullcontext(entries)

    monkeypatch.setattr(os, "scandir", scandir)
    found = files_in(tmp_path)
    assert found.changed.keys() == set("abcde") - set(gone)
    assert found.num_bytes == 8


_content_of_run = listing._content_of_run


def _content_with_process(*asked: Any) -> listing.Content:
    return _content_of_run(*asked)._replace(note=str(os.getpid()))


@pytest.fixture
def shared_out(monkeypatch) -> None:
    """Each run is read by a process for each of two cores, if the test's own process has no other threads."""
    monkeypatch.setattr(listing, "_AT_ONCE", 1)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    monkeypatch.setattr(threading, "active_count", lambda: 1)


def test_many_runs_are_read_by_several_processes_as_by_one(tmp_path, monkeypatch, request):
    for number in range(5):
        new_run(tmp_path / "runs" / f"run{number}", number + 1)
    (tmp_path / "runs" / "run3" / "config.yaml").write_text("- 1")
    alone = listed(tmp_path)
    request.getfixturevalue("shared_out")
    monkeypatch.setattr(listing, "_content_of_run", _content_with_process)
    shared = listed(tmp_path)
    processes = {entry.content.note for entry in shared.values() if entry.content}
    assert processes
    assert str(os.getpid()) not in processes
    assert [*shared] == [*alone]
    kept = {name: entry.content and entry.content._replace(note="") for name, entry in shared.items()}
    assert kept == {name: entry.content for name, entry in alone.items()}
    assert {name: entry.state for name, entry in shared.items()} == {n: entry.state for n, entry in alone.items()}


def _killed_elsewhere(process: int, *asked: Any) -> listing.Content:
    if os.getpid() != process:
        os.kill(os.getpid(), signal.SIGKILL)
    return _content_of_run(*asked)


@pytest.mark.usefixtures("shared_out")
def test_runs_are_read_here_if_the_processes_that_read_them_are_killed(tmp_path, monkeypatch):
    for number in range(3):
        new_run(tmp_path / "runs" / f"run{number}", number + 1)
    monkeypatch.setattr(listing, "_content_of_run", partial(_killed_elsewhere, os.getpid()))
    assert {name: entry.content.done for name, entry in listed(tmp_path).items()} == {"run0": 1, "run1": 2, "run2": 3}


def test_a_comparison_is_listed_by_its_finished_sweeps(tmp_path: Path) -> None:
    example = Path(__file__).parents[3] / "docs" / "examples" / "comparisons" / "batches"
    folder = Path(shutil.copytree(example, tmp_path / "comparisons" / "batches"))
    places = [RunCollection(tmp_path / name) for name in ("runs", "sweeps", "comparisons")]
    seen = []
    for sweep in sorted((folder / "sweeps").iterdir()):
        (sweep / "result.json").write_text("{}")
        (entry,) = inventory(*places)
        row = entry.in_words(0.0)
        assert (entry.kind, row["method"], row["data"]) == ("comparison", "simclr, flatclr", "digits")
        seen.append((row["done"], entry.state))
    assert seen == [(f"{done}/4 sweeps", "finished" if done == 4 else "unfinished") for done in (1, 2, 3, 4)]
    for damaged in ("asked: 3", "asked: {methods: [a]}\nsweeps: [x]", "- 1"):
        (folder / "comparison.yaml").write_text(damaged)
        assert [entry.state for entry in inventory(*places)] == ["unreadable"], damaged

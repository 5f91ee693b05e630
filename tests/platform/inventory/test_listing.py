"""Runs and sweeps as a list, in a store too: read fast and as YAML has it; a damaged one does not hide the others."""

import fcntl
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest

from ebclab.cli import main
from ebclab.config import ExperimentConfig, compose, load_yaml_file, to_yaml
from ebclab.config.experiment import SECTIONS
from ebclab.config.recipes import list_recipes
from ebclab.errors import ConfigError, RunError
from ebclab.inventory import listing
from ebclab.inventory.listing import (
    Entry,
    RunCollection,
    collection_at,
    collection_given,
    files_in,
    inventory,
    settings_at,
)
from ebclab.storage import object_store as storage
from ebclab.storage.filesystem import Location
from ebclab.storage.lease import leased
from ebclab.storage.mirror import Mirror
from ebclab.storage.object_store import COPIES, RemoteFolder
from ebclab.sweeps.folder import SweepFolder
from ebclab.sweeps.log import SweepLog
from ebclab.sweeps.plan import SweepPlan, write_plan
from ebclab.sweeps.results import ConfirmedSettings, StoppingSavings, SweepResult
from energy_contrast.catalog import METHODS

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
def shared_out(monkeypatch) -> Iterator[None]:
    """Each run is read by a process for each of two cores, as if the test's own process had no threads or handlers."""
    monkeypatch.setattr(listing, "_AT_ONCE", 1)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    monkeypatch.setattr(threading, "active_count", lambda: 1)
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)  # Ray, which another test may have started, sets its own
    yield
    signal.signal(signal.SIGTERM, before)


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


@pytest.mark.usefixtures("shared_out")
def test_a_process_that_handles_sigterm_is_not_forked(tmp_path, monkeypatch):
    new_run(tmp_path / "runs" / "run0", 1)
    new_run(tmp_path / "runs" / "run1", 2)
    monkeypatch.setattr(listing, "_content_of_run", _content_with_process)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(15))
    assert {entry.content.note for entry in listed(tmp_path).values()} == {str(os.getpid())}


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


KEYS = ("method.name", "data.name", "training.epochs", "evaluation.objective")
DIGITS = "0123456789abcdef"
IMAGES = "folder:/data/a-b_1"


def by_yaml(path: Path) -> list[Any]:
    content = load_yaml_file(path)
    return [content[section][key] for section, key in (name.split(".") for name in KEYS)]


def assert_read_without_yaml(config: ExperimentConfig, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that every setting of a file is read as YAML reads it, and without parsing the file as YAML."""
    path.write_text(to_yaml(config), encoding="utf-8")
    content = load_yaml_file(path)
    expected = {f"{part}.{key}": value for part in ("method", *SECTIONS) for key, value in content[part].items()}
    with monkeypatch.context() as patched:
        patched.setattr(listing, "load_yaml_file", lambda path: pytest.fail("read as YAML"))
        assert settings_at(path, tuple(expected)) == list(expected.values())


def test_what_the_platform_writes_is_read_without_yaml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    of_methods: list[tuple[str, str | None]] = [(method, None) for method in METHODS]
    for method, recipe in [*of_methods, *zip(cycle(METHODS), list_recipes(), strict=False)]:
        config = compose(method, recipe, overrides=["views.recipe=digits", f"data.name={IMAGES}"])
        assert_read_without_yaml(config, tmp_path / "config.yaml", monkeypatch)


_ONE_WORD = r"""
1e5 1234e5 12e34e56 0x1f 010 1:30 2020-13-45 2020-01-02 1_000 -1 .5 0.1.0 1.2.3+cu121 123 12.50 .inf .nan
null true no y ~ = << - it's '' ' #a a: [a] {a} &a *a !a @a %a `a | > C:\x a\ timm/x.y_z s3://b/c?x=1&y=#2
"""
TEXTS = [
    *_ONE_WORD.split(),
    *("", "a b", "a  b", " a", 'say "a"', "a: b", "a #b", "a, b", "? a", "- a", "é", "\u4e2d", "\U0001f600"),
]


def _digests() -> Iterator[str]:
    """Yield texts of digits and the like that begin with each of them."""
    for first in DIGITS:
        source = random.Random(first)
        for kind in (DIGITS, "0123456789", "0123456789e", "01e", "0123456789.", "0123456789_:"):
            yield first + "".join(source.choices(kind, k=63))


@pytest.mark.parametrize("texts", [TEXTS, _digests()], ids=["texts", "digests"])
def test_text_in_any_quotes_is_read_without_yaml(texts, tmp_path, monkeypatch):
    config = compose("simclr")
    for text in texts:
        columns = {"image_column": f"{text}/x", "label_column": text[:5]}
        data = replace(config.data, name=text[:20], root=f"/data/{text}", digest=text, **columns)
        assert_read_without_yaml(replace(config, data=data), tmp_path / "config.yaml", monkeypatch)


@pytest.mark.parametrize("number", [0, -1, 10**17, 1e-4, -2.5e-7, 1e22, 0.1, -0.0, 1 / 3, float("inf"), float("-inf")])
def test_numbers_and_lists_of_them_are_read_without_yaml(number, tmp_path, monkeypatch):
    config = compose("simclr")
    for extended in ((number,), (number, 3, number), ("few-labels", "a b", "1e5", "-x"), ()):
        training: Any = replace(config.training, extended=extended, log_every=number)
        assert_read_without_yaml(replace(config, training=training), tmp_path / "config.yaml", monkeypatch)


_ODD_WORDS = r"""
: # ' " 2020-13-45 null yes 0x1F 010 1_000 1:30 &a *a { } [ ] é | > ~ 1e5 12e34 .5 - -1 +1 1.5.2 0b1 = << '' "" {}
'a' "\x" "\0" -a [-] [010] [2020-13-45] [a:] ... \ %YAML @ ` ,
"""
ODD = [
    *_ODD_WORDS.split(),
    *(" ", "  ", "\n", ": ", " #x", "- ", "!!int x", "\t", "\x07", "9" * 90, "1" * 64, "name: b", "- 1", "a: ", "? "),
    *("a: 'b", "\u2028", "\x85", "\ufeff", "\r", ", ", "[1, a b]", "[1:30, a]", "[-x, 1e5]", "\n  name: b\n"),
    *("\ndata:\n", "\n    more", "training:\n", "\n---\n", "\n...\n"),
]


def test_text_of_any_other_form_is_read_as_yaml_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    errors = (ConfigError, KeyError, TypeError)
    for seed in range(1000):
        source = random.Random(seed)
        few = ["method:\n", "data:\n", "training:\n", "evaluation:\n"]
        few += ["  name: a\n", "  epochs: 3\n", "  objective: b\n"]
        short = (
            "method:\n  name: a\n\ndata:\n  name: c\n\ntraining:\n  epochs: 3\n\nevaluation:\n  objective: d\nseed: 0\n"
        )
        for _ in range(source.randrange(1, 3)):
            place = source.randrange(len(short) + 1)
            odd = source.choice([*ODD, *few])
            short = short[:place] + odd + short[place + source.choice([0, 0, 1, 5]) :]
        path.write_text(short, encoding="utf-8")
        found: list[object] = []
        for read in (by_yaml, partial(settings_at, keys=KEYS)):
            try:
                found.append(read(path))
            except errors as error:
                found.append(type(error))
        assert repr(found[0]) == repr(found[1]), short

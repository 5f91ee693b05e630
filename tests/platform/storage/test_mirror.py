"""Copies and homes: what is brought where, in which order, and what is never taken for whole."""

from __future__ import annotations

import json
import os
import random
import shutil
from contextlib import suppress
from pathlib import Path

import pytest

from ebclab.storage.mirror import Mirror, whole_checkpoints
from ebclab.storage.object_store import Store
from ebclab.storage.remote import RemoteFolder


def fill(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)


def make_checkpoint(run: Path, name: str, content: str = "weights") -> None:
    folder = run / "checkpoints" / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.safetensors").write_text(content)
    (folder / "manifest.json").write_text(json.dumps({"files": {"model.safetensors": content}}))


def files(folder: Path) -> dict[str, str]:
    return {str(p.relative_to(folder)): p.read_text() for p in sorted(folder.rglob("*")) if p.is_file()}


def visible(folder: Path) -> dict[str, str]:
    return {name: text for name, text in files(folder).items() if not any(p.startswith(".") for p in name.split("/"))}


def test_what_is_pushed_comes_back_as_it_was_and_hidden_names_stay(home: RemoteFolder, there: Path) -> None:
    fill(home.copy, "config.yaml", "metrics.jsonl", ".lock", ".ray/worker-0.json", "card/a b.txt")
    make_checkpoint(home.copy, "last-0000000004")
    mirror = Mirror(home)
    assert mirror.push() == 5
    assert files(there) == visible(home.copy)
    assert mirror.push() == 0
    other = home.of("worker")
    assert Mirror(other).pull(("last",))
    assert visible(other.copy) == files(there)


def test_hidden_folders_and_those_of_other_processes_are_not_entered(
    home: RemoteFolder, there: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A sweep's copy may hold thousands of Ray's own files, and its log is pushed after every trial.
    fill(
        home.copy, "config.yaml", "card/page.html", "card/trials/page.html", "trials/0000/config.yaml", ".ray/tune/a/b"
    )
    entered, scandir = [], os.scandir

    def watched(path: str) -> object:
        entered.append(Path(path).relative_to(home.copy).as_posix())
        return scandir(path)

    mirror = Mirror(home, without=("trials",))
    with monkeypatch.context() as patch:
        patch.setattr(os, "scandir", watched)
        mirror.push()
    assert entered == [".", "card", "card/trials"]
    assert sorted(files(there)) == ["card/page.html", "card/trials/page.html", "config.yaml"]


def test_a_pull_makes_the_copy_what_the_store_holds_and_nothing_more(home: RemoteFolder, there: Path) -> None:
    fill(there, "config.yaml")
    make_checkpoint(there, "last-0000000004")
    fill(home.copy, "result.json", ".lock")
    make_checkpoint(home.copy, "last-0000000008")
    make_checkpoint(home.copy, "last-0000000004", "of another run")
    Mirror(home).pull(("last",))
    assert visible(home.copy) == files(there)
    assert (home.copy / ".lock").exists()
    assert not (home.copy / "checkpoints" / "last-0000000008").exists()


def test_only_the_kinds_asked_for_are_pulled_and_the_others_stay_in_the_store(home: RemoteFolder, there: Path) -> None:
    for name in ("last-0000000004", "best-0000000002", "kept-0000000003"):
        make_checkpoint(there, name)
    mirror = Mirror(home)
    mirror.pull(("last", "best"))
    pulled = sorted(path.name for path in (home.copy / "checkpoints").iterdir())
    assert pulled == ["best-0000000002", "last-0000000004"]
    mirror.push()
    assert (there / "checkpoints" / "kept-0000000003" / "manifest.json").exists()


def test_a_pull_of_some_kinds_leaves_others_that_the_copy_has(home: RemoteFolder, there: Path) -> None:
    for name in ("last-0000000004", "kept-0000000003"):
        make_checkpoint(there, name)
    writer = Mirror(home)
    writer.pull(("last", "kept"))
    Mirror(home).pull()  # of another process that uses the same copy
    assert sorted(path.name for path in (home.copy / "checkpoints").iterdir()) == ["kept-0000000003", "last-0000000004"]
    writer.push()
    assert (there / "checkpoints" / "kept-0000000003" / "manifest.json").exists()


def test_a_file_of_the_copy_that_was_cut_short_is_brought_again(home: RemoteFolder, there: Path) -> None:
    make_checkpoint(there, "last-0000000004")
    Mirror(home).pull(("last",))
    (home.copy / "checkpoints/last-0000000004/model.safetensors").write_text("")
    Mirror(home).pull(("last",))
    assert (home.copy / "checkpoints/last-0000000004/model.safetensors").read_text() == "weights"


def test_folders_of_others_may_come_and_go_while_a_sweep_is_pushed(home: RemoteFolder) -> None:
    import threading

    mirror, over = Mirror(home, without=("trials",)), threading.Event()

    def churn() -> None:
        while not over.is_set():
            fill(home.copy, *(f"trials/{number}/config.yaml" for number in range(20)))
            shutil.rmtree(home.copy / "trials")

    fill(home.copy, "trials.jsonl")
    thread = threading.Thread(target=churn)
    thread.start()
    try:
        for _ in range(200):
            mirror.push()
    finally:
        over.set()
        thread.join()


def test_what_is_deleted_in_the_copy_is_deleted_in_the_store(home: RemoteFolder, there: Path) -> None:
    make_checkpoint(there, "last-0000000004")
    mirror = Mirror(home)
    mirror.pull(("last",))
    make_checkpoint(home.copy, "last-0000000008")
    shutil.rmtree(home.copy / "checkpoints" / "last-0000000004")
    mirror.push()
    assert set(files(there)) == {
        "checkpoints/last-0000000008/model.safetensors",
        "checkpoints/last-0000000008/manifest.json",
    }


def test_a_checkpoint_without_its_manifest_or_a_file_of_it_is_none(home: RemoteFolder, there: Path) -> None:
    for name in ("last-0000000004", "last-0000000008", "last-0000000012"):
        make_checkpoint(there, name)
    (there / "checkpoints" / "last-0000000012" / "manifest.json").unlink()
    (there / "checkpoints" / "last-0000000008" / "model.safetensors").unlink()
    Mirror(home).pull(("last",))
    assert [path.name for path in (home.copy / "checkpoints").iterdir()] == ["last-0000000004"]
    assert whole_checkpoints(Store(home).names(), "last") == ["last-0000000008", "last-0000000004"]


class Dying(Store):
    """A store whose process is killed before its n-th request that changes something."""

    def __init__(self, home: RemoteFolder, requests: int) -> None:
        super().__init__(home)
        self._left = requests

    def upload(self, source: Path, name: str) -> None:
        self._count()
        super().upload(source, name)

    def delete(self, name: str) -> None:
        self._count()
        super().delete(name)

    def _count(self) -> None:
        if self._left == 0:
            raise KeyboardInterrupt
        self._left -= 1


@pytest.mark.parametrize("requests", range(10))
def test_killed_at_any_request_the_store_holds_the_old_or_the_new_checkpoint_whole(
    requests: int, home: RemoteFolder, there: Path
) -> None:
    make_checkpoint(there, "last-0000000004", "old")
    make_checkpoint(there, "best-0000000004", "old")
    fill(there, "metrics.jsonl")
    mirror = Mirror(home, store=Dying(home, requests))
    mirror.pull(("last", "best"))
    make_checkpoint(home.copy, "last-0000000008", "new")
    make_checkpoint(home.copy, "best-0000000004", "newer")  # the same name with other content
    shutil.rmtree(home.copy / "checkpoints" / "last-0000000004")
    (home.copy / "metrics.jsonl").write_text("longer")
    finished = True
    try:
        mirror.push()
    except KeyboardInterrupt:
        finished = False
    assert finished == (requests >= 9)
    other = home.of("worker")
    Mirror(other).pull(("last", "best"))
    found = {path.name: path for path in (other.copy / "checkpoints").iterdir()}
    assert any(name.startswith("last-") for name in found)
    for path in found.values():
        told = json.loads((path / "manifest.json").read_text())["files"]
        assert (path / "model.safetensors").read_text() == told["model.safetensors"]
    if finished:
        assert sorted(found) == ["best-0000000004", "last-0000000008"]


def test_after_any_changes_and_failures_a_last_push_makes_both_sides_equal(
    home: RemoteFolder, there: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw, store = random.Random(5), Store(home)
    mirror, fails = Mirror(home, store=store), False
    upload = store.upload

    def unsure(source: Path, name: str) -> None:
        if fails and draw.random() < 0.3:
            raise OSError("the store is away")
        upload(source, name)

    monkeypatch.setattr(store, "upload", unsure)
    mirror.pull()
    for turn in range(60):
        name = f"last-{draw.randrange(5):010d}"
        if draw.random() < 0.4:
            shutil.rmtree(home.copy / "checkpoints" / name, ignore_errors=True)
        else:
            make_checkpoint(home.copy, name, f"turn {turn}")
        fill(home.copy, f"file-{draw.randrange(3)}")
        fails = True
        with suppress(OSError):
            mirror.push()
    fails = False
    mirror.push()
    assert files(there) == visible(home.copy)


def test_the_result_is_the_last_to_arrive(home: RemoteFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    arrived: list[str] = []
    store = Store(home)
    upload = store.upload
    monkeypatch.setattr(store, "upload", lambda source, name: (arrived.append(name), upload(source, name)))
    fill(home.copy, "result.json", "metrics.jsonl", "config.yaml")
    make_checkpoint(home.copy, "last-0000000004")
    Mirror(home, store=store).push()
    assert arrived[-2:] == ["checkpoints/last-0000000004/manifest.json", "result.json"]


def test_what_belongs_to_others_is_neither_pushed_nor_pulled_nor_deleted(home: RemoteFolder, there: Path) -> None:
    fill(there, "trials/0000/config.yaml", "sweep.yaml")
    fill(home.copy, "trials/0001/config.yaml")
    mirror = Mirror(home, without=("trials",))
    mirror.pull()
    assert set(visible(home.copy)) == {"sweep.yaml", "trials/0001/config.yaml"}
    fill(home.copy, "trials.jsonl")
    mirror.push()
    assert set(files(there)) == {"trials/0000/config.yaml", "sweep.yaml", "trials.jsonl"}


def test_a_checkpoint_that_the_copy_has_is_not_downloaded_again(home: RemoteFolder, there: Path) -> None:
    make_checkpoint(there, "last-0000000004")
    mirror = Mirror(home)
    mirror.pull(("last",))
    before = os.stat(home.copy / "checkpoints/last-0000000004/model.safetensors").st_ino
    mirror.pull(("last",))
    assert os.stat(home.copy / "checkpoints/last-0000000004/model.safetensors").st_ino == before

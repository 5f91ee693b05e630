"""Pulls and pushes: which files they move, in which order, and what is never taken for a whole checkpoint."""

import fcntl
import hashlib
import json
import logging
import os
import random
import shutil
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from pyarrow import fs
from store_requests import killed_before_change

from ebclab.errors import RunError
from ebclab.storage import atomic
from ebclab.storage.mirror import Mirror, at_once, whole_checkpoints
from ebclab.storage.object_store import RemoteFolder, Store


def fill(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)


def digest(content: str) -> str:
    return hashlib.sha256(content.encode()).hexdigest()


def make_checkpoint(run: Path, name: str, content: str = "weights") -> None:
    folder = run / "checkpoints" / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.safetensors").write_text(content)
    (folder / "manifest.json").write_text(json.dumps({"files": {"model.safetensors": digest(content)}}))


def files(folder: Path) -> dict[str, str]:
    return {str(p.relative_to(folder)): p.read_text() for p in sorted(folder.rglob("*")) if p.is_file()}


def visible(folder: Path) -> dict[str, str]:
    return {name: text for name, text in files(folder).items() if not any(p.startswith(".") for p in name.split("/"))}


def test_work_done_at_once_is_in_order_and_the_first_error_comes_when_all_have_ended() -> None:
    second, done = threading.Event(), list[int]()

    def work(number: int) -> int:
        if number == 0:
            assert second.wait(20)  # ends last
        second.set()
        done.append(number)
        if number in failing:
            raise OSError(f"number {number}")
        return 10 * number

    failing: set[int] = set()
    assert at_once(work, range(40)) == [10 * number for number in range(40)]
    done.clear()
    failing = {7, 3}
    with pytest.raises(OSError, match="number 3"):
        at_once(work, range(40))
    assert sorted(done) == list(range(40))


def test_what_is_pushed_comes_back_as_it_was_and_hidden_names_stay(remote: RemoteFolder, there: Path) -> None:
    fill(remote.cache, "config.yaml", "metrics.jsonl", ".lock", ".ray/worker-0.json", "card/a b.txt")
    make_checkpoint(remote.cache, "last-0000000004")
    mirror = Mirror(remote)
    assert mirror.push() == 5
    assert files(there) == visible(remote.cache)
    assert mirror.push() == 0
    other = remote.of("worker")
    assert Mirror(other).pull(("last",))
    assert visible(other.cache) == files(there)


def test_hidden_folders_and_those_of_other_processes_are_not_entered(remote, there, monkeypatch):
    # A sweep's copy may hold thousands of Ray's own files, and its log is pushed after every trial.
    fill(
        remote.cache,
        "config.yaml",
        "card/page.html",
        "card/trials/page.html",
        "trials/0000/config.yaml",
        ".ray/tune/a/b",
    )
    entered, scandir = [], os.scandir

    def watched(path: str) -> object:
        entered.append(Path(path).relative_to(remote.cache).as_posix())
        return scandir(path)

    mirror = Mirror(remote, without=("trials",))
    with monkeypatch.context() as patch:
        patch.setattr(os, "scandir", watched)
        mirror.push()
    assert entered == [".", "card", "card/trials"]
    assert sorted(files(there)) == ["card/page.html", "card/trials/page.html", "config.yaml"]


def test_a_pull_makes_the_copy_what_the_store_holds_and_nothing_more(remote: RemoteFolder, there: Path) -> None:
    fill(there, "config.yaml")
    make_checkpoint(there, "last-0000000004")
    fill(remote.cache, "result.json", ".lock")
    make_checkpoint(remote.cache, "last-0000000008")
    make_checkpoint(remote.cache, "last-0000000004", "of another run")
    Mirror(remote).pull(("last",))
    assert visible(remote.cache) == files(there)
    assert (remote.cache / ".lock").exists()
    assert not (remote.cache / "checkpoints" / "last-0000000008").exists()


def test_only_the_kinds_asked_for_are_pulled_and_others_stay(remote: RemoteFolder, there: Path) -> None:
    def copied() -> dict[str, int]:
        found = (remote.cache / "checkpoints").glob("*/model.safetensors")
        return {path.parent.name: path.stat().st_ino for path in found}

    for name in ("last-0000000004", "best-0000000002", "kept-0000000003"):
        make_checkpoint(there, name)
    mirror = Mirror(remote)
    mirror.pull(("last", "best"))
    first = copied()
    assert sorted(first) == ["best-0000000002", "last-0000000004"]
    Mirror(remote).pull()  # of another process that uses the same copy
    mirror.pull(("last", "best"))
    assert copied() == first  # nothing is downloaded again
    mirror.push()
    assert (there / "checkpoints" / "kept-0000000003" / "manifest.json").exists()


def flip_a_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


MODEL_FILE = "checkpoints/last-0000000004/model.safetensors"


@pytest.mark.parametrize(
    ("name", "line"),
    [
        (MODEL_FILE, "last-0000000004 was damaged in this machine's copy, got other content of model.safetensors than"),
        ("checkpoints/last-0000000004/manifest.json", ""),
        ("result.json", ""),
        ("metrics.jsonl", ""),
        ("trials.jsonl", ""),
        ("features/train.safetensors", ""),
    ],
)
def test_a_file_of_the_copy_with_a_flipped_bit_is_brought_again(name, line, remote, there, caplog):
    # All but the content of checkpoints is brought anew by every pull, so there is nothing to say of it.
    fill(there, "config.yaml", "result.json", "metrics.jsonl", "trials.jsonl", "features/train.safetensors")
    make_checkpoint(there, "last-0000000004")
    before = files(there)
    Mirror(remote).pull(("last",))
    flip_a_bit(remote.cache / name)
    mirror = Mirror(remote)
    mirror.pull(("last",))
    assert visible(remote.cache) == files(there) == before
    assert [record.levelno for record in caplog.records] == [logging.WARNING] * bool(line)
    assert line in caplog.text
    assert ("it was fetched again" in caplog.text) == bool(line)
    assert mirror.push() == 0
    caplog.clear()
    Mirror(remote).pull(("last",))
    assert caplog.messages == []


def test_a_checkpoint_that_is_damaged_in_the_store_is_said_to_be_so(remote, there, caplog):
    make_checkpoint(there, "last-0000000004")
    Mirror(remote).pull(("last",))
    for path in (there, remote.cache):
        flip_a_bit(path / MODEL_FILE)
        caplog.clear()
        Mirror(remote).pull(("last",))
        # while the copy alone is whole, nothing is wrong with what this machine reads
        said = (
            [] if path == there else [f"{remote.address}: checkpoints/last-0000000004 is damaged in the store itself"]
        )
        assert [line.partition(",")[0] for line in caplog.messages] == said
    assert files(there) == visible(remote.cache)


@pytest.mark.parametrize(("before", "successor"), [("read", "last-0000000008"), ("download", "last-0000000004")])
def test_a_checkpoint_replaced_during_a_pull_gives_way_to_its_successor(
    before: str, successor: str, remote: RemoteFolder, there: Path, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    own, replaced = getattr(Store, before), list[str]()
    make_checkpoint(there, "last-0000000004", "old")

    def replaced_first(store: Store, name: str, *given: Any) -> Any:
        if not replaced:
            shutil.rmtree(there / "checkpoints")
            make_checkpoint(there, successor, "new")
            replaced.append(name)
        return own(store, name, *given)

    monkeypatch.setattr(Store, before, replaced_first)
    assert Mirror(remote).pull(("last",))
    assert replaced
    assert visible(remote.cache) == files(there)
    assert caplog.messages == []


def test_two_processes_of_a_machine_pull_into_a_copy_one_after_the_other(remote: RemoteFolder, there: Path) -> None:
    fill(there, "config.yaml")
    remote.cache.mkdir(parents=True)
    thread = threading.Thread(target=Mirror(remote).pull, daemon=True)
    with (remote.cache / ".pull").open("a") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        thread.start()
        thread.join(0.2)  # one that does not wait is over by then
        assert visible(remote.cache) == {}
    thread.join(30)
    assert visible(remote.cache) == files(there)


@pytest.mark.parametrize("is_made_anew", [False, True])
@pytest.mark.parametrize("begins", ["pull", "push"])
@pytest.mark.parametrize("has_checkpoint", [False, True])
def test_a_copy_that_somebody_removes_deletes_nothing_in_the_store(has_checkpoint, begins, is_made_anew, remote, there):
    fill(remote.cache, "config.yaml", "metrics.jsonl")
    if has_checkpoint:
        make_checkpoint(remote.cache, "last-0000000004")
    Mirror(remote).push()
    before, mirror = files(there), Mirror(remote)
    mirror.pull(("last",)) if begins == "pull" else mirror.push()
    shutil.rmtree(remote.cache)
    if is_made_anew:
        fill(remote.cache, "metrics.jsonl.new")
    with pytest.raises(RunError, match="was removed or replaced while it was worked in; nothing was deleted"):
        mirror.push()
    assert files(there) == before


def test_checkpoints_that_somebody_removes_from_a_copy_stay_in_the_store(remote: RemoteFolder, there: Path) -> None:
    fill(remote.cache, "config.yaml", "metrics.jsonl")
    make_checkpoint(remote.cache, "last-0000000004")
    mirror = Mirror(remote)
    mirror.push()
    before = files(there)
    shutil.rmtree(remote.cache / "checkpoints")
    (remote.cache / "metrics.jsonl").write_text("longer")
    with pytest.raises(
        RunError, match=r"copies/.*/run/checkpoints: this machine's copy of .*/run was removed or replaced"
    ):
        mirror.push()
    assert files(there) == before


def test_a_checkpoint_without_its_manifest_or_a_file_of_it_is_none(remote: RemoteFolder, there: Path) -> None:
    for name in ("last-0000000004", "last-0000000008", "last-0000000012"):
        make_checkpoint(there, name)
    (there / "checkpoints" / "last-0000000012" / "manifest.json").unlink()
    (there / "checkpoints" / "last-0000000008" / "model.safetensors").unlink()
    Mirror(remote).pull(("last",))
    assert [path.name for path in (remote.cache / "checkpoints").iterdir()] == ["last-0000000004"]
    assert whole_checkpoints(Store(remote).names(), "last") == ["last-0000000008", "last-0000000004"]


@pytest.mark.parametrize("requests", range(10))
def test_killed_at_any_request_the_store_holds_the_old_or_the_new_checkpoint_whole(requests, remote, there):
    make_checkpoint(there, "last-0000000004", "old")
    make_checkpoint(there, "best-0000000004", "old")
    fill(there, "metrics.jsonl")
    mirror = Mirror(remote)
    mirror.pull(("last", "best"))
    make_checkpoint(remote.cache, "last-0000000008", "new")
    make_checkpoint(remote.cache, "best-0000000004", "newer")  # the same name with other content
    shutil.rmtree(remote.cache / "checkpoints" / "last-0000000004")
    (remote.cache / "metrics.jsonl").write_text("longer")
    with killed_before_change(requests) as made:
        mirror.push()
    assert len(made) == requests
    other = remote.of("worker")
    Mirror(other).pull(("last", "best"))
    pulled = {path.name: path for path in (other.cache / "checkpoints").iterdir()}
    assert any(name.startswith("last-") for name in pulled)
    for path in pulled.values():
        told = json.loads((path / "manifest.json").read_text())["files"]
        assert digest((path / "model.safetensors").read_text()) == told["model.safetensors"]
    if requests == 9:  # all
        assert sorted(pulled) == ["best-0000000004", "last-0000000008"]


def test_after_any_changes_and_failures_a_last_push_makes_both_sides_equal(remote, there, monkeypatch):
    draw, mirror, fails = random.Random(5), Mirror(remote), False
    upload = mirror.store.upload

    def unsure(source: Path, name: str) -> None:
        if fails and draw.random() < 0.3:
            raise OSError("the store is away")
        upload(source, name)

    monkeypatch.setattr(mirror.store, "upload", unsure)
    mirror.pull()
    for turn in range(60):
        name = f"last-{draw.randrange(5):010d}"
        if draw.random() < 0.4:
            shutil.rmtree(remote.cache / "checkpoints" / name, ignore_errors=True)
        else:
            make_checkpoint(remote.cache, name, f"turn {turn}")
        fill(remote.cache, f"file-{draw.randrange(3)}")
        fails = True
        with suppress(OSError):
            mirror.push()
    fails = False
    mirror.push()
    assert files(there) == visible(remote.cache)


def test_a_file_that_was_replaced_by_one_of_equal_size_and_time_is_pushed(remote: RemoteFolder, there: Path) -> None:
    # A clock ticks every few milliseconds, and settings are written right after they were pulled.
    fill(there, "config.yaml")
    mirror, path = Mirror(remote), remote.cache / "config.yaml"
    mirror.pull()
    before = path.stat()
    atomic.write_text(path, "CONFIG.YAML")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert mirror.push() == 1
    assert files(there) == {"config.yaml": "CONFIG.YAML"}


def test_a_mirror_that_adopts_what_another_one_has_pulled_pushes_changes_only(remote, there):
    fill(there, "config.yaml", "metrics.jsonl", "result.json")
    make_checkpoint(there, "last-0000000004")
    Mirror(remote).pull(("last",))
    mirror = Mirror(remote)
    mirror.adopt()
    assert mirror.push() == 0
    (remote.cache / "metrics.jsonl").write_text("longer")
    (remote.cache / "result.json").unlink()
    assert mirror.push() == 1
    assert files(there) == visible(remote.cache)


def test_what_belongs_to_others_is_neither_pushed_nor_pulled_nor_deleted(remote: RemoteFolder, there: Path) -> None:
    fill(there, "trials/0000/config.yaml", "sweep.yaml")
    fill(remote.cache, "trials/0001/config.yaml")
    mirror = Mirror(remote, without=("trials",))
    mirror.pull()
    assert set(visible(remote.cache)) == {"sweep.yaml", "trials/0001/config.yaml"}
    fill(remote.cache, "trials.jsonl")
    mirror.push()
    assert set(files(there)) == {"trials/0000/config.yaml", "sweep.yaml", "trials.jsonl"}


def test_result_and_manifest_are_the_last_to_arrive_and_the_first_to_go(remote, monkeypatch):
    arrived, deleted, mirror = list[str](), list[str](), Mirror(remote)
    upload, delete, folder = mirror.store.upload, mirror.store.delete, "checkpoints/last-0000000004"
    monkeypatch.setattr(mirror.store, "upload", lambda source, name: (arrived.append(name), upload(source, name)))
    monkeypatch.setattr(mirror.store, "delete", lambda name: (deleted.append(name), delete(name)))
    fill(remote.cache, "result.json", "metrics.jsonl", "config.yaml")
    make_checkpoint(remote.cache, "last-0000000004")
    mirror.push()
    assert arrived[-2:] == [f"{folder}/manifest.json", "result.json"]
    deleted.clear()
    shutil.rmtree(remote.cache / folder)
    (remote.cache / "result.json").unlink()
    mirror.push()
    assert deleted == ["result.json", f"{folder}/manifest.json", f"{folder}/model.safetensors"]


def test_names_in_a_store_that_lead_out_of_the_local_copy_are_left_out_with_a_warning(
    remote: RemoteFolder, there: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    # A disk has no such names, but S3 takes any text for a name.
    fill(there, "config.yaml")
    listing = fs.LocalFileSystem().get_file_info(fs.FileSelector(str(there)))

    class Foreign:
        def get_file_info(self, selector: fs.FileSelector) -> list[fs.FileInfo]:
            names = ("../../elsewhere", "a//b", "a/./b", "/etc/x")
            return [*listing, *(fs.FileInfo(f"{there}/{name}", fs.FileType.File, size=1) for name in names)]

    store = Store(remote)
    monkeypatch.setattr(store.location, "filesystem", Foreign())
    assert set(store.names()) == {"config.yaml"}
    assert "4 names that no file on a disk can have are left out, such as '../../elsewhere'" in caplog.text

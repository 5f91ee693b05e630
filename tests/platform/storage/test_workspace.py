"""Workspaces: who may write in them, in which order a claim takes and gives back, and what it brings to the store."""

import errno
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from store_requests import before_requests

from ebclab import background
from ebclab.errors import InterruptedRunError, LostLeaseError, RunError
from ebclab.storage import mirror
from ebclab.storage.kinds import Kind
from ebclab.storage.lease import NAME, held_by, leased
from ebclab.storage.lock import is_running
from ebclab.storage.mirror import Mirror, Syncer
from ebclab.storage.object_store import COPIES, RemoteFolder, Store
from ebclab.storage.signal_file import LocalSignal, StoredSignal
from ebclab.storage.workspace import Workspace


class Folder(Workspace):
    """A workspace in which other processes sync what is below ``trials``."""

    kind = Kind("folder", "plan", "result", "is busy here", "--folders", inside="trials")


@pytest.fixture
def local(tmp_path: Path) -> Folder:
    """A workspace on a disk that does not exist yet."""
    return Folder(tmp_path / "folders" / "one")


@pytest.fixture
def stored(remote: RemoteFolder) -> Folder:
    """A workspace in a store that does not exist yet."""
    return Folder.at(remote)


def write(folder: Path, **texts: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (folder / name).write_text(text)


def visible(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir() if not path.name.startswith(".")}


def test_a_workspace_is_known_by_path_address_and_remote_folder(remote: RemoteFolder, tmp_path: Path) -> None:
    stored = Folder.at(remote.address)
    assert stored == Folder.at(remote) == Folder(remote.cache, remote)
    assert stored.address == f"file://{tmp_path}/store/run"
    assert stored.address_of(stored.path / "log") == f"file://{tmp_path}/store/run/log"
    assert type(stored.of("worker")) is Folder
    assert stored.of("worker").path == remote.of("worker").cache != stored.path
    local = Folder.at(tmp_path / "a")
    assert (local.of("worker"), local.address) == (local, str(tmp_path / "a"))
    assert local.address_of(local.path / "log") == str(tmp_path / "a" / "log")


def test_signals_lie_where_the_folder_lies(stored: Folder, local: Folder, there: Path) -> None:
    for workspace, kind, place in ((stored, StoredSignal, there), (local, LocalSignal, local.path)):
        signal = workspace.signal(".stop")
        assert isinstance(signal, kind)
        assert signal.read() is None
        signal.write(b"now")
        assert (place / ".stop").read_bytes() == signal.read() == b"now"
        signal.clear()
        assert not (place / ".stop").exists()


def test_what_is_sent_is_added_and_what_is_removed_is_gone_on_both_sides(stored: Folder, there: Path) -> None:
    write(there, old="old")
    write(stored.path, a="a", b="b")
    stored.send("a")
    assert visible(there) == {"old": "old", "a": "a"}
    stored.send()
    assert visible(there) == {"old": "old", "a": "a", "b": "b"}
    stored.remove()
    assert not stored.path.exists()
    assert visible(there) == {}


def test_a_folder_on_a_disk_is_not_pulled_sent_or_downloaded_but_removed(local: Folder) -> None:
    write(local.path, a="a")
    local.require_free()
    assert local.pull() is local
    local.send()
    local.clear_store()
    with local.downloading("a"), local.sync(None) as syncer:
        syncer.push()
        syncer.push_soon()
        syncer.hand_over()
    assert visible(local.path) == {"a": "a"}
    local.remove()
    assert not local.path.exists()


@pytest.mark.parametrize("place", ["local", "stored"])
def test_one_claim_at_a_time_and_the_other_process_gets_a_sentence(place, request, local):
    workspace: Folder = request.getfixturevalue(place)
    refusal = f"^{workspace.address}: another process is busy here"
    with workspace.claim():
        assert is_running(workspace.path)
        with pytest.raises(RunError, match=refusal), workspace.claim():
            pass
        if workspace.remote is not None:
            with pytest.raises(RunError, match=refusal):
                workspace.require_free()
            with pytest.raises(RunError, match=refusal), workspace.of("worker").claim():  # with another lock file
                pass
        with Folder(local.path.with_name("another")).claim():
            pass
    assert not is_running(workspace.path)
    assert workspace.remote is None or not held_by(workspace.remote)
    workspace.require_free()
    with workspace.claim():
        pass


def test_a_folder_that_cannot_be_written_is_one_sentence(tmp_path, remote, monkeypatch):
    (tmp_path / "file").touch()
    said = "cannot be written, got Not a directory; "
    with pytest.raises(RunError, match=f"one: {said}choose another folder with --folders"):
        Folder(tmp_path / "file" / "one").claim().__enter__()
    monkeypatch.setenv(COPIES, "/dev/null/x")
    with pytest.raises(RunError, match=f"{said}name another folder in {COPIES}"):
        Folder.at(remote).pull()


def test_a_file_system_without_locks_is_one_sentence(tmp_path, stored, monkeypatch):
    def flock(*_: object) -> None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr("fcntl.flock", flock)  # as on Lustre that is mounted without flock
    said = r"cannot be written, got a file system without locks \(Function not implemented\); "
    with pytest.raises(RunError, match=f"one: {said}choose another folder with --folders"):
        Folder(tmp_path / "one").claim().__enter__()
    with pytest.raises(RunError, match=f"{said}name another folder in EBCLAB_COPIES"):
        stored.pull()


def test_a_claim_takes_lease_and_lock_before_it_pulls_and_gives_them_back_after_its_last_push(
    stored: Folder, there: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(there, log="old")
    seen: list[tuple[str, bool]] = []

    with before_requests(lambda request: seen.append((request, is_running(stored.path)))), stored.claim() as syncer:
        write(stored.path, log="newer", plan="new")
        syncer.push()
        write(stored.path, log="newest")
    taken = [(f"read {NAME}", False), (f"write {NAME}", False), ("names", True), ("download log", True)]
    assert seen[:5] == [*taken, (f"read {NAME}", True)]
    assert sorted(seen[5:7]) == [("upload log", True), ("upload plan", True)]
    assert seen[7:] == [(f"read {NAME}", True), ("upload log", True), (f"write {NAME}", False)]
    assert visible(there) == {"log": "newest", "plan": "new"}


def test_a_claim_that_ends_in_an_error_pushes_and_gives_back(stored, there, remote, monkeypatch):
    def work() -> None:
        with stored.claim():
            write(stored.path, log="until the error")
            raise KeyError

    def refuse(store: Store) -> None:
        raise RunError("the store refuses")

    with pytest.raises(KeyError):
        work()
    assert visible(there) == {"log": "until the error"}
    assert not held_by(remote)
    assert not is_running(stored.path)
    with monkeypatch.context() as patch:
        patch.setattr(Store, "names", refuse)
        with pytest.raises(RunError, match="the store refuses"):
            work()
    assert not held_by(remote)
    assert not is_running(stored.path)


def test_a_push_that_failed_is_tried_again_and_one_that_worked_is_not(stored, there, monkeypatch):
    asked, usual = list[str](), Store.upload

    def away_first(store: Store, source: Path, name: str) -> None:
        asked.append(name)
        if len(asked) == 1:
            raise RunError("the store is away")
        usual(store, source, name)

    monkeypatch.setattr(Store, "upload", away_first)
    assert stored.remote is not None
    syncer = Syncer(Mirror(stored.remote))
    write(stored.path, log="1")
    syncer.push_if_wanted()
    assert asked == []  # nobody has asked
    syncer.push_soon()
    with pytest.raises(RunError, match="the store is away"):
        syncer.push_if_wanted()
    syncer.push_if_wanted()
    assert visible(there) == {"log": "1"}
    write(stored.path, log="longer")
    syncer.push_if_wanted()
    assert asked == ["log", "log"]


def test_after_a_hand_over_other_processes_write(stored: Folder, there: Path, remote: RemoteFolder) -> None:
    with stored.claim() as syncer:
        write(stored.path, plan="new")
        syncer.hand_over()
        assert visible(there) == {"plan": "new"}
        write(stored.path, log="of this process")
        write(there, log="of a worker")
        syncer.push()
        syncer.push_soon()
        assert held_by(remote)  # the lease stays with this process
    assert visible(there) == {"plan": "new", "log": "of a worker"}


def test_a_worker_syncs_what_it_has_pulled_and_asks_for_the_lease_when_there_is_something_to_send(
    stored: Folder, there: Path, remote: RemoteFolder
) -> None:
    write(there, log="old", plan="plan")
    worker, seen = stored.of("worker"), list[str]()
    with leased(remote, "is busy here") as lease:
        worker.pull()
        with before_requests(seen.append), worker.sync(lease.fence.token) as syncer:
            syncer.push()
            assert seen == []
            write(worker.path, log="longer")
        assert seen == [f"read {NAME}", "upload log"]
        assert visible(there) == {"log": "longer", "plan": "plan"}


def test_who_has_lost_the_folder_removes_and_pushes_nothing(stored: Folder, there: Path) -> None:
    worker, lost = stored.of("worker"), "another process has taken over"
    with stored.claim() as syncer:
        syncer.hand_over()

    def work() -> None:
        worker.pull()
        with worker.sync(syncer.token):
            write(worker.path, log="of the first launch")

    with stored.claim() as another:
        assert another.token != syncer.token
        write(there, log="of another launch")
        for use in (work, lambda: stored.remove(syncer.token), lambda: stored.clear_store(syncer.token)):
            with pytest.raises(LostLeaseError, match=lost):
                use()
    assert visible(there) == {"log": "of another launch"}


def test_a_folder_that_its_holder_removes_leaves_nothing_in_the_store(stored: Folder, there: Path) -> None:
    with stored.claim() as syncer:
        write(stored.path, log="of a run that was refused")
        syncer.hand_over()
        stored.remove(syncer.token)
    assert not there.exists() or list(there.iterdir()) == []


def test_what_other_processes_sync_is_left_to_them(stored: Folder, there: Path) -> None:
    write(there / "trials", a="in the store")
    write(stored.path / "trials", b="in the copy")
    with stored.claim():
        assert visible(stored.path / "trials") == {"b": "in the copy"}
    stored.send()
    assert visible(there / "trials") == {"a": "in the store"}


def test_a_file_of_other_processes_is_downloaded_when_the_work_ends(stored: Folder, there: Path) -> None:
    with stored.downloading("log"):
        write(there, log="of a worker", result="found")
    assert visible(stored.path) == {"log": "of a worker", "result": "found"}


@pytest.mark.parametrize("stopped", [KeyboardInterrupt(), InterruptedRunError("asked to stop")])
def test_an_upload_without_an_answer_does_not_hold_whoever_was_asked_to_stop(
    stopped: BaseException,
    stored: Folder,
    there: Path,
    remote: RemoteFolder,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(mirror, "_PUSH_SECONDS", 0.01)
    monkeypatch.setattr(mirror, "_LAST_SECONDS", 0.2)
    monkeypatch.setattr(background, "_PATIENCE", 0.2)
    uploading, answer, done, began = threading.Event(), threading.Event(), threading.Event(), 0.0
    usual = Store.upload

    def upload(store: Store, source: Path, name: str) -> None:
        uploading.set()
        answer.wait(60)
        try:
            usual(store, source, name)
        finally:
            done.set()

    monkeypatch.setattr(Store, "upload", upload)

    def work() -> None:
        nonlocal began
        with stored.claim() as syncer:
            write(stored.path, log="one line", plan="new")
            syncer.push_soon()
            assert uploading.wait(20)
            began = time.monotonic()
            raise stopped

    with pytest.raises(type(stopped)):
        work()
    assert time.monotonic() - began < 5
    said = f"{remote.address}: stopped before everything was in the store, 2 files are not: log, plan; the same command"
    assert any(line.startswith(said) for line in caplog.messages)
    assert "an upload has no answer after 0 s and is left alone" in caplog.messages
    assert not held_by(remote)
    answer.set()
    assert done.wait(20)
    assert visible(there) == {}  # the folder is given back: what comes late is refused
    for thread in threading.enumerate():  # what it still has to log belongs to this test
        if thread.name == "ebclab-repeating":
            thread.join()


def test_ctrl_c_ends_a_process_whose_uploads_have_no_answer(remote: RemoteFolder, tmp_path: Path) -> None:
    script = tmp_path / "blocked.py"
    script.write_text(f"""
import threading
from ebclab import background
from ebclab.storage import mirror
from ebclab.storage.kinds import Kind
from ebclab.storage.object_store import Store
from ebclab.storage.object_store import RemoteFolder
from ebclab.storage.workspace import Workspace

class Folder(Workspace):
    kind = Kind("folder", "plan", "result", "is busy here", "--folders")

mirror._PUSH_SECONDS, mirror._LAST_SECONDS, background._PATIENCE = 0.01, 0.2, 0.2
uploading, never = threading.Event(), threading.Event()
Store.upload = lambda *_: (uploading.set(), never.wait())
with Folder.at(RemoteFolder({remote.root!r}, {remote.inside!r})).claim() as syncer:
    for name in ("log", "plan"):
        (Folder.at(RemoteFolder({remote.root!r}, {remote.inside!r})).path / name).touch()
    syncer.push_soon()
    uploading.wait()
    print("blocked", flush=True)
    while not never.wait(0.1):  # without a timeout, Ctrl-C that comes just before the wait does not end it
        pass
""")
    process = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "blocked\n"
        began = time.monotonic()
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=240)
    finally:
        process.kill()
    assert time.monotonic() - began < 20  # the machine's load
    assert "stopped before everything was in the store, 2 files are not: log, plan" in said
    assert process.returncode != 0


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_disk_that_is_full_while_a_folder_is_held_is_a_sentence_and_the_lock_is_given_back(local, number):
    with pytest.raises(RunError, match=r"one: the disk is full, got no space for x; free some space"), local.claim():
        raise OSError(number, os.strerror(number), "x")
    assert not is_running(local.path)
    with pytest.raises(PermissionError), local.claim():
        raise OSError(errno.EACCES, os.strerror(errno.EACCES), "x")


def test_a_home_folder_may_be_written_as_a_tilde(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    assert Folder.named("~/runs", "one").path == Path("/home/me/runs/one")


def test_a_folder_that_nfs_keeps_for_an_open_file_is_no_error(local: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    def kept(*_: object, **__: object) -> None:
        raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY))

    write(local.path, a="a")
    monkeypatch.setattr(os, "rmdir", kept)
    local.remove()
    assert list(local.path.iterdir()) == []

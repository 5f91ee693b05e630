"""A lock has one holder, whatever is deleted or replaced meanwhile, and a lock file is a file of our own."""

import errno
import fcntl
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from ebclab.cluster.spot import _sole_watcher
from ebclab.errors import RunError, UserError
from ebclab.storage.lock import LOCK, held, is_running, kept_free, locked
from ebclab.storage.mirror import _alone
from ebclab.storage.object_store import COPIES
from ebclab.storage.swap import LocalFile

NOW = fcntl.LOCK_EX | fcntl.LOCK_NB


def claim(folder: Path) -> None:
    with locked(folder, busy="works here", option="--runs"):
        pass


def free(folder: Path) -> None:
    with kept_free(folder):
        pass


def at_the_first_lock(monkeypatch: pytest.MonkeyPatch, happens: Callable[[], None]) -> None:
    """Let something happen between the opening of the next lock file and its locking."""
    own = fcntl.flock

    def flock(file: int, how: int) -> None:
        monkeypatch.setattr("fcntl.flock", own)
        happens()
        own(file, how)

    monkeypatch.setattr("fcntl.flock", flock)


@pytest.mark.parametrize("happens", ["the file is deleted", "the file is replaced", "the folder is deleted"])
def test_a_file_that_goes_before_it_is_locked_is_opened_anew(tmp_path, monkeypatch, happens):
    path = tmp_path / "run" / LOCK

    def happen() -> None:
        if happens == "the folder is deleted":
            shutil.rmtree(path.parent)
        else:
            path.unlink()
        if happens == "the file is replaced":
            path.touch()

    at_the_first_lock(monkeypatch, happen)
    with held(path, NOW) as descriptor:
        assert os.path.samestat(os.fstat(descriptor), path.stat())
        with pytest.raises(BlockingIOError), held(path, NOW):
            pass


def test_a_reader_of_a_file_that_goes_before_it_is_locked_finds_none(tmp_path, monkeypatch):
    (tmp_path / "lease").write_bytes(b"held")
    at_the_first_lock(monkeypatch, (tmp_path / "lease").unlink)
    assert LocalFile(tmp_path / "lease", "it").read() is None


def test_a_folder_on_nfs_can_be_claimed_kept_free_and_looked_at(tmp_path, monkeypatch):
    """There, an exclusive lock needs a file that is open for writing (flock(2), NFS details)."""
    own = fcntl.flock

    def flock(file: int, how: int) -> None:
        is_for_reading = fcntl.fcntl(file, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY
        if how & fcntl.LOCK_EX and is_for_reading:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        own(file, how)

    monkeypatch.setattr("fcntl.flock", flock)
    claim(tmp_path)
    with kept_free(tmp_path) as is_free:
        assert is_free
        assert is_running(tmp_path)
        with kept_free(tmp_path) as is_free_again:
            assert not is_free_again
    assert not is_running(tmp_path)


def test_who_deletes_the_lock_file_does_not_free_the_folder(tmp_path: Path) -> None:
    with locked(tmp_path, busy="works here", option="--runs"):
        (tmp_path / LOCK).unlink()
        assert is_running(tmp_path)
        with kept_free(tmp_path) as is_free:
            assert not is_free
        with pytest.raises(RunError, match="another process works here; wait for it or stop it"):
            claim(tmp_path)
    assert not is_running(tmp_path)
    claim(tmp_path)


def pull(folder: Path) -> None:
    with _alone(folder):
        pass


def watch(_: Path) -> None:
    with _sole_watcher():
        pass


@pytest.mark.parametrize("kind", ["link", "pipe"])
@pytest.mark.parametrize(
    ("name", "use"),
    [
        (LOCK, claim),
        (LOCK, free),
        (".pull", pull),
        ("lease", lambda folder: LocalFile(folder / "lease", "it").read()),
        ("lease", lambda folder: LocalFile(folder / "lease", "it").write(b"mine", over=None)),
        ("watch-here", watch),
    ],
)
def test_a_lock_file_that_is_none_is_one_sentence(tmp_path, monkeypatch, kind, name, use):
    monkeypatch.setattr("socket.gethostname", lambda: "here")
    monkeypatch.setenv(COPIES, str(tmp_path / "folder"))
    (tmp_path / "folder").mkdir()
    path, victim = tmp_path / "folder" / name, tmp_path / "elsewhere"
    if kind == "link":
        path.symlink_to(victim)
    else:
        os.mkfifo(path)
    assert not is_running(tmp_path / "folder")
    with pytest.raises(UserError, match=r"a symbolic link, not a file|a pipe or a device, not a file") as error:
        use(tmp_path / "folder")
    assert "\n" not in str(error.value)
    assert not victim.exists()

"""A small file on a disk that is replaced only if it is as it was read, by one process at a time."""

import fcntl
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ebclab.errors import StoreError
from ebclab.storage.object_store import RemoteFolder
from ebclab.storage.swap import LocalFile, ReplacedError, Seen, StoredFile


@contextmanager
def waiting(path: Path, work: Callable[[], Any]) -> Iterator[tuple[int, list[Any]]]:
    """Hold the lock of a file during the block, while ``work`` waits for it in a thread.

    Yields:
        The file's descriptor, and what ``work`` returned or raised, once the block has ended.
    """
    done: list[Any] = []

    def run() -> None:
        try:
            done.append(work())
        except ReplacedError as error:
            done.append(error)

    descriptor = os.open(path, os.O_RDWR)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        thread.join(0.2)  # a thread that does not wait is over by then
        yield descriptor, done
    finally:
        os.close(descriptor)
    thread.join(30)
    assert not thread.is_alive()


def test_a_reader_waits_for_a_writer_and_never_sees_half_of_its_content(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"half")
    file = LocalFile(path, "file")
    with waiting(path, file.read) as (descriptor, read):
        os.pwrite(descriptor, b"half and whole", 0)
    assert read == [Seen(b"half and whole")]


def test_a_writer_waits_for_another_and_then_compares(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    file = LocalFile(path, "file")
    with waiting(path, lambda: file.write(b"mine", over=Seen(b"old"))) as (descriptor, written):
        os.pwrite(descriptor, b"new", 0)
    assert isinstance(written[0], ReplacedError)
    assert path.read_bytes() == b"new"


@pytest.mark.parametrize("is_made_anew", [False, True])
def test_a_writer_that_waited_for_a_deleted_file_has_not_written(tmp_path: Path, is_made_anew: bool) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    file = LocalFile(path, "file")
    with waiting(path, lambda: file.write(b"mine", over=Seen(b"old"))) as (_, written):
        path.unlink()
        if is_made_anew:
            path.write_bytes(b"another's")
    assert isinstance(written[0], ReplacedError)
    assert path.exists() == is_made_anew
    assert not is_made_anew or path.read_bytes() == b"another's"


def test_a_folder_that_cannot_be_made_is_refused_and_not_tried_for_ever() -> None:
    with pytest.raises(StoreError, match=r"there: the folder cannot be made, got No such file or directory"):
        LocalFile(Path("/proc/nobody/run/.held.json"), "there").write(b"mine", over=None)


def test_what_was_written_is_on_the_disk_whole_and_without_the_rest_of_before(tmp_path: Path, disk: Any) -> None:
    file = LocalFile(tmp_path / "file", "file")
    seen = file.write(b"a long content", over=None)
    file.write(b"short", over=seen)
    assert disk.events == [("sync", "file", b"a long content"), ("sync", "file", b"short")]
    assert file.read() == Seen(b"short")


def test_a_store_that_says_404_of_a_file_to_replace_has_not_replaced_it(remote: RemoteFolder) -> None:
    def put(*given: Any, **options: Any) -> None:
        raise FileNotFoundError("404")

    bucket: Any = SimpleNamespace(put=put)
    with pytest.raises(ReplacedError):
        StoredFile("file", remote, bucket).write(b"mine", over=Seen(b"old", "an etag"))

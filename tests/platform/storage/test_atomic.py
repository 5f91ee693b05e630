"""Files and folders are whole or absent."""

import errno
import json
import os
import stat
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from ebclab.export.place import replaced_folder
from ebclab.storage import atomic
from ebclab.storage.signal_file import LocalSignal


def test_a_folder_appears_only_when_its_block_succeeds(tmp_path: Path) -> None:
    target = tmp_path / "checkpoint"

    def fail_in_the_middle() -> None:
        with atomic.new_folder(target) as aside:
            (aside / "half").write_text("half")
            raise RuntimeError("in the middle")

    with pytest.raises(RuntimeError, match="in the middle"):
        fail_in_the_middle()
    assert list(tmp_path.iterdir()) == []
    with atomic.new_folder(target) as aside:
        (aside / "whole").write_text("whole")
        assert not target.exists()
    assert (target / "whole").read_text() == "whole"
    assert list(tmp_path.iterdir()) == [target]


def test_a_file_keeps_its_old_text_when_the_new_one_cannot_be_written(tmp_path, monkeypatch):
    path = tmp_path / "result.json"
    atomic.write_json(path, {"knn": 0.5})

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(atomic.os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        atomic.write_json(path, {"knn": 0.9})
    with pytest.raises(ValueError, match="JSON"):
        atomic.write_json(path, {"knn": float("nan")})
    assert json.loads(path.read_text()) == {"knn": 0.5}
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("refused", [errno.EINVAL, errno.EOPNOTSUPP])
def test_files_are_written_where_folders_cannot_be_synced(tmp_path, monkeypatch, refused):
    """borg#1287, libgit2#5356, python-atomicwrites#27: shares of CIFS, sshfs and VirtualBox; a file's own is kept."""
    sync, files = os.fsync, list[int]()

    def fsync(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(refused, os.strerror(refused))
        files.append(descriptor)
        sync(descriptor)

    monkeypatch.setattr(atomic.os, "fsync", fsync)
    atomic.make_folder(tmp_path / "a")
    atomic.write_text(tmp_path / "a/b.txt", "whole")
    with atomic.new_folder(tmp_path / "deep" / "checkpoint") as folder:
        (folder / "one").write_bytes(b"1")
    assert ((tmp_path / "a/b.txt").read_text(), (tmp_path / "deep/checkpoint/one").read_bytes()) == ("whole", b"1")
    assert len(files) == 2
    monkeypatch.setattr(atomic.os, "fsync", Mock(side_effect=OSError(refused, "of a file")))
    with pytest.raises(OSError, match="of a file"):
        atomic.sync_path(tmp_path / "a/b.txt")
    monkeypatch.setattr(atomic.os, "fsync", Mock(side_effect=OSError(errno.EIO, "broken")))
    with pytest.raises(OSError, match="broken"):
        atomic.sync_path(tmp_path)


def test_a_file_is_on_the_disk_before_it_takes_its_name_and_its_name_before_it_is_done(tmp_path, disk):
    atomic.write_bytes(tmp_path / "result.json", b"content")
    (_, aside, _), *_ = disk.events
    assert disk.events == [("sync", aside, b"content"), ("rename", aside, "result.json"), ("sync", ".", b"")]


def test_a_folder_is_on_the_disk_with_all_files_before_it_takes_its_name(tmp_path: Path, disk: Any) -> None:
    with atomic.new_folder(tmp_path / "whole") as folder:
        (folder / "one").write_bytes(b"1")
        (folder / "deep").mkdir()
        (folder / "deep" / "two").write_bytes(b"2")
        assert disk.events == []
    aside = folder.name
    *within, of_folder, rename, of_parent = disk.events
    assert sorted(within) == [
        ("sync", f"{aside}/deep", b""),
        ("sync", f"{aside}/deep/two", b"2"),
        ("sync", f"{aside}/one", b"1"),
    ]
    assert of_folder == ("sync", aside, b"")
    assert (rename, of_parent) == (("rename", aside, "whole"), ("sync", ".", b""))


def test_leftovers_of_kills_are_removed_be_they_files_or_folders(tmp_path: Path) -> None:
    (tmp_path / ".last-1.0123abcd").mkdir()
    (tmp_path / ".last-1.0123abcd" / "model").write_text("half")
    (tmp_path / ".last-2.89abcdef").write_text("half")
    (tmp_path / ".last-3").write_text("another's")
    atomic.remove_leftovers(tmp_path, "last-*")
    assert [path.name for path in tmp_path.iterdir()] == [".last-3"]


def test_a_signal_is_on_the_disk_and_so_is_its_end(tmp_path: Path, disk: Any) -> None:
    signal = LocalSignal(tmp_path / "run" / ".stop")
    signal.write(b"please")
    (_, aside, _) = disk.events[1]
    assert disk.events == [
        ("sync", ".", b""),
        ("sync", aside, b"please"),
        ("rename", aside, "run/.stop"),
        ("sync", "run", b""),
    ]
    disk.events.clear()
    for _ in range(2):
        signal.clear()
        assert disk.events == [("sync", "run", b"")]
    assert signal.read() is None


def test_both_names_of_a_replaced_export_are_on_the_disk(tmp_path: Path, disk: Any) -> None:
    target = tmp_path / "export"
    target.mkdir()
    with replaced_folder(target) as folder:
        pass
    moves = [event for event in disk.events if event != ("sync", folder.name, b"")]
    assert moves[:4] == [
        ("rename", "export", ".export.replaced"),
        ("sync", ".", b""),
        ("rename", folder.name, "export"),
        ("sync", ".", b""),
    ]
    disk.events.clear()
    target.rename(tmp_path / ".export.replaced")  # killed between the two

    def fail() -> None:
        with replaced_folder(target):
            raise RuntimeError("in the middle")

    with pytest.raises(RuntimeError, match="in the middle"):
        fail()
    assert disk.events[-2:] == [("rename", ".export.replaced", "export"), ("sync", ".", b"")]

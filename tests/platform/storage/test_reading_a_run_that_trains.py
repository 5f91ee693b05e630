"""Pulls from a folder that another process changes meanwhile, and into folders that cannot be."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ebclab.errors import RunError
from ebclab.storage.mirror import Mirror
from ebclab.storage.object_store import Store
from ebclab.storage.remote import COPIES, RemoteFolder


def make_checkpoint(run: Path, name: str) -> None:
    folder = run / "checkpoints" / name
    folder.mkdir(parents=True)
    (folder / "model.safetensors").write_text(name)
    (folder / "manifest.json").write_text(json.dumps({"files": {"model.safetensors": ""}}))


def test_a_checkpoint_that_is_replaced_after_it_was_listed_gives_way_to_its_successor(
    remote: RemoteFolder, there: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_checkpoint(there, "last-0000000001")
    read = Store.read

    def replaced_first(store: Store, name: str) -> bytes:
        if (there / "checkpoints" / "last-0000000001").exists():
            make_checkpoint(there, "last-0000000002")
            (there / "checkpoints" / "last-0000000001").rename(there.parent / "gone")
        return read(store, name)

    monkeypatch.setattr(Store, "read", replaced_first)
    assert Mirror(remote).pull(("last",))
    found = [path.name for path in (remote.cache / "checkpoints").iterdir()]
    assert found == ["last-0000000002"]
    assert (remote.cache / "checkpoints" / found[0] / "model.safetensors").read_text() == "last-0000000002"


def test_a_folder_for_copies_that_cannot_be_is_one_sentence(
    remote: RemoteFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(COPIES, "/dev/null/x")
    with pytest.raises(RunError, match=f"cannot be written, got Not a directory; name another folder in {COPIES}"):
        Mirror(RemoteFolder(remote.root, remote.inside)).pull()

"""A store on this disk: pyarrow's file system behind an address."""

from __future__ import annotations

from pathlib import Path

import pytest

from ebclab.storage.remote import COPIES, RemoteFolder
from ebclab.storage.retry import PATIENCE


@pytest.fixture
def remote(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RemoteFolder:
    """The home of a run; the store is tmp_path/store, copies lie in tmp_path/copies, and nobody is patient."""
    monkeypatch.setenv(COPIES, str(tmp_path / "copies"))
    monkeypatch.setenv(PATIENCE, "0")
    (tmp_path / "store").mkdir()
    return RemoteFolder(f"file://{tmp_path}/store", "run")


@pytest.fixture
def there(tmp_path: Path) -> Path:
    """Where the store keeps that run."""
    return tmp_path / "store" / "run"

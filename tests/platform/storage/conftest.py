"""A store on this disk: pyarrow's file system behind an address."""

from __future__ import annotations

from pathlib import Path

import pytest

from ebclab.storage.remote import COPIES, RemoteFolder
from ebclab.storage.retry import PATIENCE


@pytest.fixture
def remote(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RemoteFolder:
    """The remote folder of a run; store and local copies are in tmp_path, and no request is retried."""
    monkeypatch.setenv(COPIES, str(tmp_path / "copies"))
    monkeypatch.setenv(PATIENCE, "0")
    (tmp_path / "store").mkdir()
    return RemoteFolder(f"file://{tmp_path}/store", "run")


@pytest.fixture
def there(tmp_path: Path) -> Path:
    """The folder of that run in the store."""
    return tmp_path / "store" / "run"

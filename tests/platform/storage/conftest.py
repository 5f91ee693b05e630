"""Stores on this disk, which is pyarrow's file system behind an address, and in S3."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from s3_server import OneByOne, s3_server

from ebclab.storage.filesystem import PATIENCE
from ebclab.storage.object_store import COPIES, RemoteFolder


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


@pytest.fixture(scope="module")
def running() -> Iterator[tuple[str, OneByOne]]:
    """A server of S3's protocol, by the options of its addresses, and a user who may do everything there."""
    with s3_server() as server, pytest.MonkeyPatch.context() as patch:
        for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_REGION"):
            patch.delenv(name, raising=False)
        patch.setenv("AWS_ACCESS_KEY_ID", "o")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "o")
        patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        yield server

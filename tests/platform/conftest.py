"""Set-up of the lab's tests: what commands tell Ray by environment variables ends with each test."""

import inspect
import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ebclab.config import compose
from ebclab.storage.filesystem import PATIENCE
from ebclab.storage.object_store import COPIES, RemoteFolder
from ebclab.sweeps.plan import SweepPlan, make_plan
from ebclab.sweeps.request import SweepRequest
from ebclab.sweeps.space.space import parse_space


@pytest.fixture(scope="session")
def in_new_process() -> Callable[..., Any]:
    """Return a function that calls another one, which takes and uses nothing from outside, in a new interpreter."""

    def call(function: Callable[[], Any], **environment: str) -> Any:
        source = textwrap.dedent(inspect.getsource(function))
        code = f"from __future__ import annotations\n{source}\nimport json\nprint(json.dumps({function.__name__}()))"
        command, variables = [sys.executable, "-c", code], {**os.environ, **environment}
        done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return call


class Disk:
    """What a folder's files went through, in order.

    Attributes:
        events: ("sync", path, bytes that the file had then; empty for a folder) and ("rename", from, to); paths below
            the folder.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.events: list[tuple[str, str, Any]] = []

    def named(self, path: str | Path) -> str:
        """Return a path below the folder."""
        return Path(path).relative_to(self.folder).as_posix()

    def sync(self, descriptor: int) -> None:
        """Note what a power cut after it would leave of the file or folder behind ``descriptor``."""
        inode = os.fstat(descriptor).st_ino
        path = next(path for path in (self.folder, *self.folder.rglob("*")) if path.stat().st_ino == inode)
        self.events.append(("sync", self.named(path), path.read_bytes() if path.is_file() else b""))


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Disk:
    """Watch how ``tmp_path`` is synced and renamed in."""
    watched = Disk(tmp_path)
    monkeypatch.setattr(os, "fsync", watched.sync)
    for name in ("rename", "replace"):
        move = getattr(os, name)

        def moved(source: Any, target: Any, *, move: Callable[..., None] = move, **more: Any) -> None:
            watched.events.append(("rename", watched.named(source), watched.named(target)))
            move(source, target, **more)

        monkeypatch.setattr(os, name, moved)
    return watched


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


SPACE = {
    "optimizer.learning_rate": {"loguniform": [1e-5, 0.1]},
    "method.temperature": {"uniform": [0.1, 1.0]},
}


@pytest.fixture(autouse=True)
def _authentication_stays_as_it_was() -> Iterator[None]:
    """Put back RAY_AUTH_MODE, which commands set for the process that they would otherwise be."""
    before = os.environ.get("RAY_AUTH_MODE")
    yield
    os.environ.pop("RAY_AUTH_MODE", None)
    if before is not None:
        os.environ["RAY_AUTH_MODE"] = before


@pytest.fixture
def sweep_plan() -> Callable[..., SweepPlan]:
    """Make a plan of two live settings of SimCLR on digits; keywords are those of ``make_plan``."""

    def make(*overrides: str, space: dict[str, Any] | None = None, **asked: Any) -> SweepPlan:
        small = ["data.train_limit=128", "training.batch_size=64", "training.epochs=6", "encoder.width=4"]
        config = compose("simclr", overrides=[*small, "resources.threads=1", *overrides])
        return make_plan(config, SweepRequest(space=parse_space({"parameters": space or SPACE}, "test"), **asked))

    return make

"""Leases: one process at a time holds a folder in a store."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from ebclab.errors import RunError
from ebclab.storage import lease
from ebclab.storage.lease import LIFETIME, NAME, Lease, held_by, leased
from ebclab.storage.mirror import Mirror
from ebclab.storage.remote import RemoteFolder
from ebclab.storage.sync import synced


def sign(there: Path, host: str, process: int, age: float) -> None:
    """Write the sign of life of a process on another machine."""
    there.mkdir(parents=True, exist_ok=True)
    (there / NAME).write_text(json.dumps({"id": "theirs", "host": host, "process": process}))
    stamp = (there / NAME).stat().st_mtime - age
    os.utime(there / NAME, (stamp, stamp))


def test_whoever_holds_keeps_others_out_until_it_lets_go(remote: RemoteFolder) -> None:
    with leased(remote, "is training"):
        assert held_by(remote)
        with pytest.raises(
            RunError, match=r"file://.*run: another process is training, got .*, last heard of \d+ s ago"
        ):
            Lease(remote, "is training").take()
    assert not held_by(remote)
    Lease(remote, "is training").take()


def test_a_machine_that_has_gone_silent_is_forgotten_and_a_live_one_is_not(remote: RemoteFolder, there: Path) -> None:
    sign(there, "elsewhere", 1, LIFETIME - 10)
    with pytest.raises(RunError, match=r"got elsewhere, process 1, last heard of 5[0-9] s ago"):
        Lease(remote, "is training").take()
    sign(there, "elsewhere", 1, LIFETIME + 1)
    Lease(remote, "is training").take()


def test_a_dead_process_of_this_machine_holds_nothing(remote: RemoteFolder, there: Path) -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    with leased(remote, "is training"):
        mine = json.loads((there / NAME).read_text())
    (there / NAME).write_text(json.dumps({**mine, "process": child.pid}))
    Lease(remote, "is training").take()


def test_a_lease_that_was_taken_over_is_not_given_back(remote: RemoteFolder, there: Path) -> None:
    mine = Lease(remote, "is training")
    mine.take()
    sign(there, "elsewhere", 1, 0)
    mine.give_back()
    assert held_by(remote) == "elsewhere"


def test_whoever_lost_its_folder_while_it_was_silent_pushes_nothing_more(remote: RemoteFolder, there: Path) -> None:
    mine = Lease(remote, "is training")
    mine.take()
    mirror = Mirror(remote)
    mirror.pull()
    with synced(mirror) as syncer:
        sign(there, "elsewhere", 1, 0)
        with pytest.raises(RunError, match="another process has taken over, since this one had given no sign of life"):
            mine.renew()
        (remote.cache / "metrics.jsonl").write_text("mine")
        with pytest.raises(RunError, match="another process has taken over"):
            syncer.push()
        (there / NAME).unlink()
        mine.take()
    assert (there / "metrics.jsonl").read_text() == "mine"


def test_a_wrong_clock_of_this_machine_makes_nobody_dead(
    remote: RemoteFolder, there: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Ahead(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> datetime:
            return datetime.now(tz) + timedelta(hours=1)

    monkeypatch.setattr(lease, "datetime", Ahead)
    sign(there, "elsewhere", 1, 10)
    with pytest.raises(RunError, match=r"got elsewhere, process 1, last heard of 1[0-9] s ago"):
        Lease(remote, "is training").take()


def test_a_sign_of_life_that_cannot_be_read_holds_nothing(remote: RemoteFolder, there: Path) -> None:
    there.mkdir()
    (there / NAME).write_text("{half")
    Lease(remote, "is training").take()

"""Leases: one process at a time holds a folder in a store."""

import json
import os
import subprocess
import sys
import threading
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from store_requests import before_requests

from ebclab.errors import LostLeaseError, RunError
from ebclab.storage import lease
from ebclab.storage.filesystem import PATIENCE
from ebclab.storage.lease import LIFETIME, NAME, Fence, Lease, held_by, leased, require_all_free
from ebclab.storage.object_store import RemoteFolder, Store


def sign(there: Path, host: str, process: int, age: float) -> None:
    """Write the sign of life of a process on another machine."""
    there.mkdir(parents=True, exist_ok=True)
    (there / NAME).write_text(json.dumps({"id": "theirs", "host": host, "process": process}))
    stamp = (there / NAME).stat().st_mtime - age
    os.utime(there / NAME, (stamp, stamp))


def clock_off_by(hours: float) -> type[datetime]:
    """The clock of a machine that is wrong."""

    class Wrong(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> datetime:
            return datetime.now(tz) + timedelta(hours=hours)

    return Wrong


def test_a_dead_process_of_this_machine_holds_nothing(remote: RemoteFolder, there: Path) -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    with leased(remote, "is training"):
        mine = json.loads((there / NAME).read_text())
    (there / NAME).write_text(json.dumps({**mine, "process": child.pid}))
    Lease(remote, "is training").take()


@pytest.mark.parametrize("how", ["given back", "lost"])
def test_a_lease_that_is_over_is_not_renewed(remote: RemoteFolder, there: Path, how: str) -> None:
    mine = Lease(remote, "is training")
    mine.take()
    mine.renew()
    if how == "lost":
        mine.fence.end("somebody took over")  # and the file is as this process left it
    else:
        mine.give_back()
    left = (there / NAME).read_bytes()
    with pytest.raises(LostLeaseError, match="nothing more of this process is written there"):
        mine.renew()
    assert (there / NAME).read_bytes() == left


def test_a_lease_that_was_given_back_is_no_longer_held_for_a_worker(remote: RemoteFolder) -> None:
    mine = Lease(remote, "is training")
    mine.take()
    worker = Fence(remote, mine.fence.token)  # in another process
    worker.check()
    mine.give_back()
    with pytest.raises(LostLeaseError, match="its lease was given back; nothing more of this process is written there"):
        worker.check()
    worker.end("another reason")
    with pytest.raises(LostLeaseError, match="its lease was given back; nothing more"):
        worker.check()


def test_a_lease_of_a_folder_made_anew_is_another_though_its_epoch_is_the_same(remote, there):
    mine, other = Lease(remote, "is training"), Lease(remote, "is training")
    mine.take()
    (there / NAME).unlink()
    other.take()
    assert mine.fence.token.epoch == other.fence.token.epoch == 1
    with pytest.raises(LostLeaseError, match="another process has taken over"):
        mine.fence.check()
    other.fence.check()


@pytest.mark.parametrize("hours", [0, 1, -1])
def test_a_silent_holder_is_forgotten_and_a_live_one_is_not_by_any_clock(hours, remote, there, monkeypatch):
    monkeypatch.setattr(lease, "datetime", clock_off_by(hours))
    sign(there, "elsewhere", 1, LIFETIME - 10)
    with pytest.raises(RunError, match=r"got elsewhere, process 1, last heard of 5[0-9] s ago"):
        Lease(remote, "is training").take()
    sign(there, "elsewhere", 1, LIFETIME + 1)
    Lease(remote, "is training").take()
    assert json.loads((there / NAME).read_text())["epoch"] == 1  # the sign had none, as those of the first versions


@pytest.mark.parametrize("content", ["{half", "[]", '{"host": "elsewhere"}', '{"id": "theirs", "epoch": "many"}'])
def test_a_sign_of_life_that_cannot_be_read_is_one_until_it_is_old(content, remote, there):
    there.mkdir()
    (there / NAME).write_text(content)
    with pytest.raises(RunError, match=r"another process is training, got a .held.json that cannot be read, last"):
        Lease(remote, "is training").take()
    stamp = (there / NAME).stat().st_mtime - LIFETIME - 1
    os.utime(there / NAME, (stamp, stamp))
    Lease(remote, "is training").take()
    assert json.loads((there / NAME).read_text())["epoch"] == 1


def test_a_lease_is_renewed_in_the_background_and_may_miss_two_renewals(remote, there, monkeypatch):
    assert 0 < 3 * lease._RENEWED < LIFETIME
    renewals, own = threading.Semaphore(0), Lease.renew

    def renew(mine: Lease) -> None:
        own(mine)
        renewals.release()

    monkeypatch.setattr(lease, "_RENEWED", 0.001)
    monkeypatch.setattr(Lease, "renew", renew)
    with leased(remote, "is training"):
        assert all(renewals.acquire(timeout=5) for _ in range(2)), "nobody renews it"
    assert json.loads((there / NAME).read_text())["renewed"] >= 2


def test_every_take_has_a_higher_epoch_until_the_folder_is_deleted(remote: RemoteFolder, there: Path) -> None:
    tokens = []
    for _ in range(3):
        with leased(remote, "is training") as mine:
            tokens.append(mine.fence.token)
    with leased(remote, "is training") as mine:
        mine.remove()
        tokens.append(mine.fence.token)
    assert not (there / NAME).exists()
    with leased(remote, "is training") as mine:
        tokens.append(mine.fence.token)
    assert [token.epoch for token in tokens] == [1, 2, 3, 4, 1]
    assert len({token.id for token in tokens}) == 5


def test_who_cannot_learn_the_disks_time_takes_nobody_for_dead(remote, there, monkeypatch):
    sign(there, "elsewhere", 1, LIFETIME + 1)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "touch", lambda path: None)  # as if another process had deleted it
        with pytest.raises(RunError, match="got elsewhere, process 1, last heard of at an unknown time"):
            Lease(remote, "is training").take()
    (there / ".clock").touch()  # of a version that had one for all
    Lease(remote, "is training").take()
    assert sorted(path.name for path in there.iterdir()) == [".clock", NAME]


def test_a_look_at_the_lease_is_good_for_some_seconds_since_its_request(remote, monkeypatch):
    now, late, looks = 0.0, 0.0, list[str]()
    monkeypatch.setattr(lease, "_seconds", lambda: now)
    mine = Lease(remote, "is training")
    mine.take()

    def look(request: str) -> None:
        nonlocal now
        looks.append(request)
        now += late

    with before_requests(look):
        for now, asked in ((0.0, 1), (4.9, 1), (5.1, 2), (10.0, 2), (66.0, 3)):  # noqa: B007  # read by the clock
            mine.fence.check_again()
            assert looks == [f"read {NAME}"] * asked
        now, late = 100.0, 6.0  # an answer that is late is as old as its request
        mine.fence.check_again()
        mine.fence.check_again()
        assert len(looks) == 5


def test_a_request_that_is_repeated_asks_again_whether_it_may_be(remote, there, monkeypatch):
    monkeypatch.setenv(PATIENCE, "5")
    mine = Lease(remote, "is training")
    mine.take()
    store, failed = Store(remote, may_change=mine.fence.check_again), list[str]()

    def fail(name: str) -> Any:
        failed.append(name)
        mine.fence.end("lost while the store did not answer")
        raise OSError("the store does not answer")

    monkeypatch.setattr(store, "_opened", fail)
    with pytest.raises(LostLeaseError, match="lost while the store did not answer"):
        store.write("metrics.jsonl", b"mine")
    assert failed == ["metrics.jsonl"]
    with pytest.raises(LostLeaseError):
        store.delete("metrics.jsonl")
    (remote.cache / "local").parent.mkdir(parents=True)
    (remote.cache / "local").touch()
    with pytest.raises(LostLeaseError):
        store.upload(remote.cache / "local", "metrics.jsonl")
    assert [path.name for path in there.iterdir()] == [NAME]


def test_old_leases_within_a_folder_are_told_by_one_look_at_the_stores_clock(remote, there, monkeypatch):
    trials = there / "trials"
    for name in ("a", "b", "c"):
        sign(trials / name, "elsewhere", 1, LIFETIME + 1)
    asked: list[str] = []
    files = Store(remote).names()
    with before_requests(asked.append):
        require_all_free(remote, files, "is training")
    assert asked == [f"now {NAME}"]
    sign(trials / "b", "elsewhere", 1, LIFETIME - 10)
    monkeypatch.setattr(lease, "datetime", clock_off_by(2))
    with pytest.raises(RunError, match="trials/b: another process is training, got elsewhere, process 1, last heard"):
        require_all_free(remote, Store(remote).names(), "is training")


def test_a_listing_reads_no_lease_that_is_old(remote: RemoteFolder, there: Path) -> None:
    asked: list[str] = []
    for age, host, reads in ((LIFETIME + 1, "", 0), (LIFETIME - 10, "elsewhere", 1)):
        sign(there, "elsewhere", 1, age)
        listed = Store(remote).names()[NAME].changed
        asked.clear()
        with before_requests(asked.append):
            assert listed is not None
            assert held_by(remote, listed.timestamp()) == host
        assert asked.count(f"read {NAME}") == reads
        assert held_by(remote) == host

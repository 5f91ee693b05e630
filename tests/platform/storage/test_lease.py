"""Leases: one process at a time holds a folder in a store, on a disk or in S3, with conditional writes and without."""

import json
import os
import re
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyarrow import fs
from s3_server import Behaviour, OneByOne
from store_requests import before_requests

from ebclab.errors import LostLeaseError, RunError, StoreError
from ebclab.storage import filesystem, lease, swap
from ebclab.storage.filesystem import PATIENCE
from ebclab.storage.kinds import Kind
from ebclab.storage.lease import LIFETIME, NAME, Fence, Lease, held_by, leased, require_all_free
from ebclab.storage.object_store import COPIES, UNGUARDED, RemoteFolder, Store
from ebclab.storage.workspace import Workspace

Folders = Callable[[str], RemoteFolder]
"""Makes folders in the store, none of which another test has."""
WITHOUT: list[Behaviour] = ["ignores", "not implemented"]


class Training(Workspace):
    """A workspace."""

    kind = Kind("run", "config.yaml", "result.json", "is training", "--runs")


@pytest.fixture
def server(running: tuple[str, OneByOne], monkeypatch: pytest.MonkeyPatch) -> OneByOne:
    """The server, of which this process does not know yet what it takes."""
    forget_the_bucket(monkeypatch)
    monkeypatch.setenv(UNGUARDED, "1")
    server = running[1]
    server.behaviour, server.hidden, server.busy, server.is_done = "heeds", (), set(), False
    server.count_anew()
    server.requests.clear()
    server.users.clear()
    return server


@pytest.fixture
def folder(running: tuple[str, OneByOne], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Folders:
    monkeypatch.setenv(COPIES, str(tmp_path / "copies"))
    monkeypatch.setenv(PATIENCE, "5")
    root = f"s3://sets/{uuid.uuid4().hex}?{running[0]}"
    return lambda name: RemoteFolder(root, name)


@pytest.fixture(params=["on a disk", "heeds", *WITHOUT])
def anywhere(request: pytest.FixtureRequest, server: OneByOne, folder: Folders, tmp_path: Path) -> Folders:
    """Makes folders on a disk, and in stores that do with conditional writes what they do."""
    if request.param == "on a disk":
        return lambda name: RemoteFolder(f"file://{tmp_path}", name)
    server.behaviour = request.param
    return folder


def objects(remote: RemoteFolder) -> dict[str, bytes]:
    """The content of every object of a folder but the lease."""
    store = Store(remote)
    return {name: store.read(name) for name in store.names() if name != NAME}


def sign(remote: RemoteFolder) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Store(remote).read(NAME))
    return found


def forget_the_bucket(patch: pytest.MonkeyPatch) -> None:
    """Let this process know nothing of what the store takes."""
    patch.setattr(swap, "_TRIED", {})
    patch.setattr(filesystem, "_REACHED", {})


def forget_the_living(patch: pytest.MonkeyPatch) -> None:
    """Let every sign of life be too old."""
    patch.setattr(lease, "LIFETIME", 0.0)


def leave_sign(there: Path, host: str, process: int, age: float) -> None:
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


@pytest.mark.parametrize("hours", [2, -2])
def test_no_clock_of_an_asker_makes_a_living_holder_dead(hours, anywhere, monkeypatch):
    remote = anywhere("run")
    with leased(remote, "is training"):
        monkeypatch.setattr(lease, "datetime", clock_off_by(hours))
        with pytest.raises(RunError, match=r"another process is training, got .* \d+ s ago"):
            Lease(remote, "is training").take()
    assert objects(remote) == {}


def test_who_cannot_learn_the_stores_time_takes_nobody_for_dead(anywhere, server, monkeypatch):
    remote = anywhere("run")
    Lease(remote, "is training").take()
    forget_the_living(monkeypatch)
    server.hidden = (".clock",)  # as if another process had deleted it
    with monkeypatch.context() as patch:
        patch.setattr(Path, "touch", lambda path: None)  # the same on a disk
        with pytest.raises(RunError, match=r"another process is training, got .*, last heard of at an unknown time"):
            Lease(remote, "is training").take()
    server.hidden = ()
    Store(remote).write(".clock", b"")  # of a version that had one for all
    Lease(remote, "is training").take()
    assert sign(remote)["epoch"] == 2
    assert objects(remote) == {".clock": b""}


def test_a_dead_process_of_this_machine_holds_nothing(remote: RemoteFolder, there: Path) -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    with leased(remote, "is training"):
        mine = json.loads((there / NAME).read_text())
    (there / NAME).write_text(json.dumps({**mine, "process": child.pid}))
    Lease(remote, "is training").take()


@pytest.mark.parametrize("how", ["given back", "lost"])
def test_a_lease_that_is_over_is_not_renewed(anywhere: Folders, how: str) -> None:
    remote = anywhere("run")
    mine = Lease(remote, "is training")
    mine.take()
    mine.renew()
    if how == "lost":
        mine.fence.end("somebody took over")  # and the file is as this process left it
    else:
        mine.give_back()
    left = sign(remote)
    with pytest.raises(LostLeaseError, match="nothing more of this process is written there"):
        mine.renew()
    assert sign(remote) == left


def test_a_lease_that_was_given_back_is_no_longer_held_for_a_worker(anywhere: Folders) -> None:
    remote = anywhere("run")
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


def test_a_lease_of_a_folder_made_anew_is_another_though_its_epoch_is_the_same(anywhere):
    remote = anywhere("run")
    mine, other = Lease(remote, "is training"), Lease(remote, "is training")
    mine.take()
    Store(remote).delete(NAME)
    other.take()
    assert mine.fence.token.epoch == other.fence.token.epoch == 1
    with pytest.raises(LostLeaseError, match="another process has taken over"):
        mine.fence.check()
    other.fence.check()


@pytest.mark.parametrize("hours", [0, 1, -1])
def test_a_silent_holder_is_forgotten_and_a_live_one_is_not_by_any_clock(hours, remote, there, monkeypatch):
    monkeypatch.setattr(lease, "datetime", clock_off_by(hours))
    leave_sign(there, "elsewhere", 1, LIFETIME - 10)
    with pytest.raises(RunError, match=r"got elsewhere, process 1, last heard of 5[0-9] s ago"):
        Lease(remote, "is training").take()
    leave_sign(there, "elsewhere", 1, LIFETIME + 1)
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


def test_every_take_has_a_higher_epoch_until_the_folder_is_deleted(anywhere: Folders) -> None:
    remote, tokens = anywhere("run"), []
    for _ in range(3):
        with leased(remote, "is training") as mine:
            tokens.append(mine.fence.token)
    with leased(remote, "is training") as mine:
        mine.remove()
        tokens.append(mine.fence.token)
    assert Store(remote).stored(NAME) is None
    with leased(remote, "is training") as mine:
        tokens.append(mine.fence.token)
    assert [token.epoch for token in tokens] == [1, 2, 3, 4, 1]
    assert len({token.id for token in tokens}) == 5


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
        leave_sign(trials / name, "elsewhere", 1, LIFETIME + 1)
    asked: list[str] = []
    files = Store(remote).names()
    with before_requests(asked.append):
        require_all_free(remote, files, "is training")
    assert asked == [f"now {NAME}"]
    leave_sign(trials / "b", "elsewhere", 1, LIFETIME - 10)
    monkeypatch.setattr(lease, "datetime", clock_off_by(2))
    with pytest.raises(RunError, match="trials/b: another process is training, got elsewhere, process 1, last heard"):
        require_all_free(remote, Store(remote).names(), "is training")


def test_a_listing_reads_no_lease_that_is_old(remote: RemoteFolder, there: Path) -> None:
    asked: list[str] = []
    for age, host, reads in ((LIFETIME + 1, "", 0), (LIFETIME - 10, "elsewhere", 1)):
        leave_sign(there, "elsewhere", 1, age)
        listed = Store(remote).names()[NAME].changed
        asked.clear()
        with before_requests(asked.append):
            assert listed is not None
            assert held_by(remote, listed.timestamp()) == host
        assert asked.count(f"read {NAME}") == reads
        assert held_by(remote) == host


def test_a_writer_that_slept_while_another_finished_its_run_writes_nothing(anywhere, monkeypatch):
    remote = anywhere("run")
    sleeper, other = Training.at(remote), Training.at(remote.of("worker"))

    def sleep() -> dict[str, bytes]:
        with sleeper.claim() as syncer:
            (sleeper.path / "metrics.jsonl").write_text("one\n")
            syncer.push()
            with monkeypatch.context() as patch:
                forget_the_living(patch)
                with other.claim():
                    (other.path / "metrics.jsonl").write_text("one\ntwo\nthree\n")
                    (other.path / "result.json").write_text("{}")
            finished = objects(remote)
            (sleeper.path / "metrics.jsonl").write_text("one\ntwo\n")
            with pytest.raises(LostLeaseError, match="another process has taken over, since this one had given no"):
                syncer.push()
            assert objects(remote) == finished == {"metrics.jsonl": b"one\ntwo\nthree\n", "result.json": b"{}"}
        raise AssertionError("its last push was not refused")

    with pytest.raises(LostLeaseError, match=r"run.*: another process has taken over"):
        sleep()
    assert objects(remote) == {"metrics.jsonl": b"one\ntwo\nthree\n", "result.json": b"{}"}
    assert (sign(remote)["epoch"], sign(remote)["free"]) == (2, True)


def test_a_lost_lease_is_neither_renewed_nor_given_back_nor_removed(anywhere, monkeypatch):
    remote = anywhere("run")
    loser, remover, winner = (Lease(remote, "is training") for _ in range(3))
    with monkeypatch.context() as patch:
        forget_the_living(patch)
        for each in (loser, remover, winner):
            each.take()
    before = sign(remote)
    for work in (loser.renew, remover.remove):
        with pytest.raises(LostLeaseError, match="another process has taken over"):
            work()
    loser.give_back()
    assert sign(remote) == before
    winner.renew()
    assert sign(remote) == before | {"renewed": 1}
    winner.give_back()
    with pytest.raises(LostLeaseError, match="another process has taken over"):
        loser.renew()
    assert (sign(remote)["epoch"], sign(remote)["free"]) == (3, True)


def test_a_lease_that_is_missing_is_lost(anywhere: Folders) -> None:
    remote = anywhere("run")
    for use in (Lease.renew, lambda mine: mine.fence.check()):
        mine = Lease(remote, "is training")
        mine.take()
        Store(remote).delete(NAME)
        with pytest.raises(LostLeaseError, match=r"its lease is gone, someone deleted the folder or its .held.json"):
            use(mine)
        mine.give_back()
        assert Store(remote).stored(NAME) is None


@pytest.mark.parametrize("anywhere", ["on a disk", "heeds"], indirect=True)
def test_of_two_that_take_in_the_same_instant_exactly_one_gets_the_lease(anywhere: Folders) -> None:
    for number in range(50):
        remote = anywhere(f"run-{number % 2}")  # a first lease twice, and then one that was given back
        leases, got, refused = [Lease(remote, "is training") for _ in range(2)], list[Lease](), list[Lease]()
        begin = threading.Barrier(2)

        def take(mine: Lease, got: list[Lease] = got, refused: list[Lease] = refused, begin: Any = begin) -> None:
            begin.wait()
            try:
                mine.take()
                got.append(mine)
            except RunError:
                refused.append(mine)

        threads = [threading.Thread(target=take, args=(mine,)) for mine in leases]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        (winner,), (_,) = got, refused
        assert sign(remote)["epoch"] == number // 2 + 1
        winner.fence.check()
        winner.give_back()
        assert not held_by(remote)


@pytest.mark.parametrize(
    ("behaviour", "reason"), [("ignores", "a store that ignores If-None-Match"), ("not implemented", ".*501.*")]
)
def test_a_store_without_conditional_writes_is_refused_or_one_line(
    behaviour: Behaviour,
    reason: str,
    server: OneByOne,
    folder: Folders,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    server.behaviour = behaviour
    for unset in ("", "0"):
        monkeypatch.setenv(UNGUARDED, unset)
        with pytest.raises(
            StoreError, match=r"no conditional writes here, got .*set EBCLAB_STORAGE_UNGUARDED=1 if you"
        ):
            Lease(folder("one"), "is training")
    assert Store(folder("one")).names() == {}
    monkeypatch.setenv(UNGUARDED, "1")
    for name in ("one", "two"):
        with leased(folder(name), "is training"):
            assert held_by(folder(name))
        assert list(Store(folder(name)).names()) == [NAME]
    (line,) = caplog.messages
    assert "\n" not in line
    assert line.startswith("s3://sets/")
    assert re.search(f": no conditional writes here, got {reason}", line)
    assert line.endswith("; two launches of one folder may both write, which EBCLAB_STORAGE_UNGUARDED=1 permits")


@pytest.mark.parametrize("behaviour", ["heeds", *WITHOUT])
@pytest.mark.parametrize("work", ["take", "renew", "give back"])
def test_a_write_that_is_retried_until_another_took_over_replaces_nothing(work, behaviour, server, folder, monkeypatch):
    server.behaviour = behaviour
    remote, failed = folder("run"), list[str]()
    mine, other, leaver = (Lease(remote, "is training") for _ in range(3))
    first = leaver if work == "take" else mine
    first.take()
    if work == "take":
        leaver.give_back()

    def failing_once(own: Callable[..., Any]) -> Callable[..., Any]:
        def request(*given: Any) -> Any:
            if not failed:
                failed.append(work)
                raise OSError("no answer")
            return own(*given)

        return request

    def take_over(seconds: float) -> None:
        with monkeypatch.context() as patch:
            forget_the_living(patch)
            other.take()

    with monkeypatch.context() as patch:
        patch.setattr(filesystem, "time", SimpleNamespace(monotonic=time.monotonic, sleep=take_over))
        patch.setattr(Store, "_opened", failing_once(Store._opened))
        patch.setattr(swap, "_condition", failing_once(swap._condition))
        if work == "take":
            with pytest.raises(RunError, match="another process is training, got"):
                mine.take()
        elif work == "renew":
            with pytest.raises(LostLeaseError, match="another process has taken over"):
                mine.renew()
        else:
            mine.give_back()
    assert failed == [work]
    assert (sign(remote)["epoch"], sign(remote)["renewed"], sign(remote)["free"]) == (2, 0, False)
    other.fence.check()
    with pytest.raises(LostLeaseError):
        mine.fence.check()


@pytest.mark.parametrize("number", range(8))
@pytest.mark.parametrize("is_done", [False, True])
def test_a_failed_request_of_the_trial_says_nothing_of_conditional_writes(
    number: int,
    is_done: bool,
    server: OneByOne,
    folder: Folders,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.delenv(UNGUARDED)
    monkeypatch.setattr(filesystem, "_FIRST_PAUSE", 0.01)
    server.busy, server.is_done = {number}, is_done
    with leased(folder("run"), "is training") as mine:
        assert mine._file._bucket is not None  # through which writes are conditional
    assert all("the store does not answer, trying again" in line for line in caplog.messages)


@pytest.mark.parametrize("number", [0, 3])
def test_a_trial_that_got_no_answer_is_made_again_by_the_next_run(number, server, folder, monkeypatch):
    monkeypatch.setenv(PATIENCE, "0")
    server.busy = {number}
    with pytest.raises(StoreError, match=r"the store has not answered for 0 s, got .*503"):
        Lease(folder("one"), "is training")
    with leased(folder("two"), "is training") as mine:
        assert mine._file._bucket is not None  # through which writes are conditional


def test_a_store_with_conditional_writes_is_tried_once_and_nothing_is_said(server, folder, caplog):
    with leased(folder("one"), "is training"):
        pass
    tried = len([path for _, path, _ in server.requests if "/.try-" in path])
    assert tried == 8  # a write, whether pyarrow sees it; two writes, two that are refused; a deletion of each
    with leased(folder("two"), "is training"):
        pass
    assert len([path for _, path, _ in server.requests if "/.try-" in path]) == tried
    assert caplog.messages == []
    assert list(Store(folder("one")).names()) == [NAME]


def test_a_write_whose_answer_was_lost_is_not_taken_for_that_of_another(server, folder, monkeypatch):
    monkeypatch.setattr(filesystem, "_FIRST_PAUSE", 0.01)
    remote = folder("run")
    mine = Lease(remote, "is training")
    for work, expected in (
        (mine.take, {"renewed": 0, "free": False}),
        (mine.renew, {"renewed": 1, "free": False}),
        (mine.give_back, {"renewed": 1, "free": True}),
    ):
        server.behaviour = "loses answers"
        work()
        assert server.behaviour == "heeds"
        assert expected.items() <= sign(remote).items()


def test_the_settings_of_pyarrow_are_those_of_obstore(server, running, monkeypatch):
    monkeypatch.setenv("AWS_SESSION_TOKEN", "t")
    port = running[0].partition(":")[2].partition("&")[0]
    keys = {"aws_access_key_id": "o", "aws_secret_access_key": "o", "aws_session_token": "t"}

    def found(root: str) -> tuple[str, str, str, dict[str, str]]:
        bucket = filesystem.bucket_of(Store(RemoteFolder(root, "run")).location)
        assert "aws_secret_access_key" not in repr(bucket)
        return bucket.kind, bucket.name, bucket.endpoint, dict(bucket.settings)

    url = f"http://127.0.0.1:{port}"
    usual = {"region": fs.S3FileSystem(region="eu-west-1").region} | keys
    assert found(f"s3://sets/a?{running[0]}&region=eu-west-1") == ("s3", "sets", url, usual)
    monkeypatch.setenv("AWS_ENDPOINT_URL", url)
    assert found("s3://sets/c?region=eu-west-1") == ("s3", "sets", url, usual)
    assert found("gs://anonymous@sets/d") == ("gcs", "sets", "", {"skip_signature": "true"})


def test_keys_of_a_profile_are_found(server, folder, tmp_path, monkeypatch, caplog):
    (tmp_path / "credentials").write_text("[lab]\naws_access_key_id = of-the-lab\naws_secret_access_key = s\n")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_PROFILE", "lab")
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    with leased(folder("run"), "is training"):
        pass
    assert caplog.messages == []
    assert server.users == {"of-the-lab"}
    forget_the_bucket(monkeypatch)
    monkeypatch.setenv("AWS_PROFILE", "nobody's")
    with leased(folder("run"), "is training"):
        pass
    (line,) = caplog.messages
    assert ": no conditional writes here, got The config profile (nobody's) could not be found; two launches of" in line


def test_the_lease_lies_in_the_bucket_of_the_run_whatever_variables_say(server, folder, monkeypatch, caplog):
    for name in ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    with leased(folder("one"), "is training"):
        assert sign(folder("one"))["epoch"] == 1
    assert caplog.messages == []
    forget_the_bucket(monkeypatch)
    server.hidden = (".try-",)  # as where obstore and pyarrow reach two stores
    with leased(folder("two"), "is training"):
        assert sign(folder("two"))["epoch"] == 1
    (line,) = caplog.messages
    assert ": no conditional writes here, got another bucket than that of the run; two launches" in line

"""Addresses of remote folders, and their local copies."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from ebclab.errors import UserError
from ebclab.storage.filesystem import Location
from ebclab.storage.mirror import Mirror
from ebclab.storage.object_store import COPIES, RemoteFolder, Store, cache_folder, fetched, remote_at, remote_in


def test_an_address_keeps_its_options_at_the_end() -> None:
    remote = RemoteFolder("s3://bucket/runs/?scheme=http&endpoint_override=localhost:9000", "one")
    assert remote.address == "s3://bucket/runs/one?scheme=http&endpoint_override=localhost:9000"
    assert (
        remote / "checkpoints"
    ).address == "s3://bucket/runs/one/checkpoints?scheme=http&endpoint_override=localhost:9000"


@pytest.mark.parametrize("address", ["s3://b/runs/one", "s3://b/runs/one//", "gs://b/one?endpoint_override=http://h:1"])
def test_a_remote_folder_has_the_address_that_it_was_made_from(address: str) -> None:
    remote = remote_at(address)
    assert remote is not None
    assert remote.inside == "one"
    assert remote.address == address.rstrip("/")
    assert remote_at(remote.address) == remote


@pytest.mark.parametrize(
    "name", ["my runs", "läufe", "試行", "50%", "a%20b", "a#b", "a+b", "a[1]{2}", "a%zz", 'a"b<c>', "a?"]
)
def test_names_in_any_script_and_with_any_sign_lie_where_their_address_says(name: str, tmp_path: Path) -> None:
    runs = remote_in(f"file://{tmp_path}", name)
    assert runs is not None
    Store(runs / "one").write("result.json", b"{}")
    assert (tmp_path / name / "one" / "result.json").is_file()
    assert remote_at(runs.address) == runs
    one = remote_at((runs / "one").address)  # the root is opened by its address, which pyarrow takes apart
    assert one is not None
    assert list(Store(one).names()) == ["result.json"]
    assert Location(runs.address, "--runs").files((".json",)) == ["one/result.json"]


def test_an_escape_is_one_wherever_it_stands_in_an_address(tmp_path: Path) -> None:
    (tmp_path / "my runs" / "one").mkdir(parents=True)
    (tmp_path / "my runs" / "one" / "result.json").write_text("{}")
    for address, name in (("my%20runs", "one/result.json"), ("my%20runs/one", "result.json")):
        remote = remote_at(f"file://{tmp_path}/{address}")
        assert remote is not None
        assert list(Store(remote).names()) == [name]


def test_every_role_store_and_folder_has_a_copy_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(COPIES, str(tmp_path))
    folders = [remote for root in ("s3://a", "s3://b") for name in ("one", "two") if (remote := remote_in(root, name))]
    copies = {each.cache for remote in folders for each in (remote, remote.of("worker"), remote.of("controller"))}
    assert len(copies) == 12
    assert all(tmp_path in copy.parents for copy in copies)
    assert (folders[0] / "trials").cache == folders[0].cache / "trials"


def test_copies_lie_in_the_users_cache_unless_told_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(COPIES, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "/cache")
    assert cache_folder() == Path("/cache/ebclab/copies")


@pytest.mark.parametrize("address", ["s3://bucket", "s3://bucket/", "gs://bucket?scheme=http", "file:///disk"])
def test_a_bucket_is_a_remote_folder(address: str) -> None:
    remote = remote_at(address)
    assert remote is not None
    assert (remote.inside, remote.address) == ("", address.removesuffix("/"))
    assert remote_at(remote.address) == remote
    folder = remote_at((remote / "runs").address)
    assert folder is not None
    assert folder == remote / "runs"
    assert folder.cache == remote.cache / "runs"
    assert (remote / "runs" / "one").inside == "runs/one"


def test_files_directly_in_a_bucket_are_read_and_written(remote: RemoteFolder, there: Path, tmp_path: Path) -> None:
    bucket = RemoteFolder(remote.root, "")
    store = Store(bucket)
    store.write("one.txt", b"1")
    store.write("deep/two.txt", b"2")
    assert (there.parent / "one.txt").read_bytes() == b"1"
    assert set(store.names()) == {"one.txt", "deep/two.txt"}
    assert store.read("deep/two.txt") == b"2"
    Mirror(bucket).pull()
    assert (bucket.cache / "deep" / "two.txt").read_bytes() == b"2"
    store.delete("one.txt")
    assert store.stored("one.txt") is None


_READ = """
import os, sys
from ebclab.storage.object_store import remote_at
copy = remote_at(sys.argv[1]).of("reader").cache
copy.mkdir(parents=True)
(copy / "file").touch()
if sys.argv[2] == "fork" and os.fork() == 0:
    sys.exit(0)  # of a child, which must leave the copy alone
if sys.argv[2] == "fork":
    os.wait()
    assert (copy / "file").exists()
print(copy, flush=True)
if sys.argv[2] == "killed":
    os.kill(os.getpid(), 9)
"""


def test_every_reading_process_has_a_copy_that_ends_with_it(remote: RemoteFolder) -> None:
    ours = remote.of("reader").cache
    ours.mkdir(parents=True)

    def read(end: str) -> Path:
        done = subprocess.run([sys.executable, "-c", _READ, remote.address, end], capture_output=True, text=True)
        return Path(done.stdout.strip())

    ended, forked = read("ends"), read("fork")
    assert len({ours, ended, forked, remote.cache, remote.of("worker").cache}) == 5
    assert ended.name == forked.name == "run"
    assert not ended.exists()
    assert not forked.exists()
    killed = read("killed")
    assert killed.exists()
    assert read("ends").name == "run"  # the next one clears up
    assert not killed.exists()
    assert ours.is_dir()


@pytest.mark.parametrize("address", ["s3://lab", "s3://lab/", "gs://lab?scheme=http"])
def test_a_bucket_is_no_file_and_nobody_is_asked(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ebclab.storage.object_store.Location", lambda *place: pytest.fail(f"{place} was opened"))
    with pytest.raises(UserError, match=re.escape(f"{address}: a whole bucket, not a file; name a file in it")):
        fetched(address)


SLASHES, DOTS = "two slashes side by side, .*; write ", r"a folder called \. or \.\., which a store has not, got "


@pytest.mark.parametrize("open_it", [remote_at, Location])
@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("s3://b//runs", f"{SLASHES}s3://b/runs$"),
        ("s3://b/runs//one", f"{SLASHES}s3://b/runs/one$"),
        ("s3://b/a///b?scheme=http", rf"{SLASHES}s3://b/a/b\?scheme=http$"),
        *(
            (address, f"{DOTS}.*{re.escape(address)}")
            for address in ("s3://b/.", "s3://b/..?scheme=http", "gs://b/./a")
        ),
        ("s3://b/%2e%2E", DOTS),
    ],
)
def test_an_address_that_leads_out_of_its_copy_is_refused_unasked(address, said, open_it):
    with pytest.raises(UserError, match=said):
        open_it(address)


@pytest.mark.parametrize("address", ["s3://", "s3:///", "s3://?scheme=http"])
def test_an_address_without_a_bucket_is_refused_and_a_local_path_has_none(address: str) -> None:
    for look in (lambda: remote_at(address), lambda: remote_in(address, "one")):
        with pytest.raises(UserError, match=r"an address without a bucket; write s3://BUCKET/FOLDER"):
            look()
    assert remote_in("runs", "one") is remote_at(Path("/runs/one")) is remote_at("a//b") is None

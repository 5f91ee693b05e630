"""Places: addresses that say where a store is but not who asks, and Google's store, by a stand-in on loopback."""

import gc
import pickle
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from pyarrow import fs
from s3_server import OneByOne

from ebclab.config.addresses import STORES, credentials_problem
from ebclab.data.preparing.write_parquet import prepare_dataset
from ebclab.data.sources.load import load_split
from ebclab.data.sources.location import short_name
from ebclab.errors import DataError
from ebclab.storage import filesystem, object_store
from ebclab.storage.filesystem import Location, whole_or_not
from ebclab.storage.object_store import RemoteFolder, Store

SERVER = Path(__file__).parents[2] / "gcs_server.py"


@pytest.fixture
def gcs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The query of an address in a store, named by the user, whose buckets are the folders in ``tmp_path``."""
    process = subprocess.Popen([sys.executable, str(SERVER), str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    host = f"127.0.0.1:{process.stdout.readline().strip()}"
    monkeypatch.setenv(STORES, f"http://{host}")
    yield f"scheme=http&endpoint_override={host}&retry_limit_seconds=5"
    process.kill()
    process.wait()
    process.stdout.close()


def test_a_prepared_set_and_a_folder_are_read_from_a_google_bucket(gcs: str, tmp_path: Path) -> None:
    prepare_dataset({"train": load_split("digits", None, "train")}, tmp_path / "sets" / "digits")
    found = load_split(f"parquet:gs://anonymous@sets/digits?{gcs}", None, "train")
    local = load_split(f"parquet:{tmp_path}/sets/digits", None, "train")
    for part in ("keys", "labels", "images"):
        assert torch.equal(getattr(found, part), getattr(local, part))
    assert (found.class_names, found.mean, found.std) == (local.class_names, local.mean, local.std)


def test_what_a_google_bucket_does_not_hold_is_one_sentence(gcs: str, tmp_path: Path) -> None:
    (tmp_path / "sets").mkdir()
    for bucket in ("sets", "other"):
        with pytest.raises(DataError) as caught:
            load_split(f"parquet:gs://anonymous@{bucket}/none?{gcs}", None, "train")
        assert str(caught.value).startswith(f"data.name: no such bucket or folder, got gs://anonymous@{bucket}/none; ")
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("way", ["of a run", "of a data set"])
def test_an_upload_holds_a_few_parts_of_a_file_that_a_store_has_not_taken(way, tmp_path, monkeypatch):
    content, sent, held, most = bytes(range(256)) * 40, list[bytes](), list[bytes](), list[int]()

    class Slow:
        """A stream that sends nothing before it has to."""

        def write(self, block: bytes) -> None:
            held.append(block)
            most.append(len(held))

        def flush(self) -> None:
            sent.extend(held)
            held.clear()

    @contextmanager
    def opened(where: fs.FileSystem, path: str) -> Iterator[Slow]:
        yield (stream := Slow())
        stream.flush()

    for module in (filesystem, object_store):
        monkeypatch.setattr(module, "whole_or_not", opened)
    monkeypatch.setattr(filesystem, "COPIED_BYTES", 64)
    (tmp_path / "file").write_bytes(content)
    if way == "of a run":
        Store(RemoteFolder(f"file://{tmp_path}", "run")).upload(tmp_path / "file", "file")
    else:
        Location(str(tmp_path)).upload(tmp_path / "file", "file")
    assert b"".join(sent) == content
    assert max(most) == 16 < len(most)


def test_a_small_file_is_one_request_to_s3(running: tuple[str, OneByOne], tmp_path: Path) -> None:
    # A file in parts is three at least (begin, part, complete), and S3 is paid by the request.
    (tmp_path / "log").write_text("an event")
    place = Location(f"s3://sets/small?{running[0]}")
    running[1].requests.clear()
    place.upload(tmp_path / "log", "log")
    assert [method for method, _, _ in running[1].requests] == ["PUT"]


def test_what_is_sent_to_other_processes_knows_the_store_but_no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAWHO")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hush")
    monkeypatch.setenv(STORES, "http://localhost:9000")
    place = Location("s3://bucket/set/?endpoint_override=localhost:9000&scheme=http&region=us-east-1")
    assert place.path == "s3://bucket/set"
    assert place.inner_path("a.parquet") == "bucket/set/a.parquet"
    sent = pickle.dumps(place)
    assert b"localhost:9000" in sent
    assert b"AKIAWHO" not in sent
    assert b"hush" not in sent


def test_an_address_without_credentials_is_not_refused() -> None:
    s3 = ("s3://bucket/set", "s3://b/s?endpoint_override=http://h:1&scheme=http")
    for address in (*s3, "gs://anonymous@bucket/set", "folder:/a:b@c"):
        assert credentials_problem(address) is None


def test_the_name_of_a_run_leaves_out_how_the_store_is_reached() -> None:
    assert short_name("parquet:s3://bucket/birds?endpoint_override=localhost:9000&scheme=http") == "parquet-birds"
    assert short_name("folder:/data/what?") == "folder-what?"


def _break_off(filesystem: fs.FileSystem, path: str) -> None:
    def write_half() -> None:
        with whole_or_not(filesystem, path) as file:
            file.write(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_half()


def test_a_file_that_is_broken_off_leaves_the_one_before_on_a_disk(tmp_path: Path) -> None:
    path = tmp_path / "new" / "log"
    with whole_or_not(fs.LocalFileSystem(), str(path)) as file:
        file.write(b"whole")
    _break_off(fs.LocalFileSystem(), str(path))
    assert path.read_bytes() == b"whole"
    assert list(path.parent.iterdir()) == [path]


def test_a_stream_that_is_broken_off_is_neither_closed_nor_dropped() -> None:
    closed = []

    class Stream:
        def write(self, content: bytes) -> None:
            pass

        def close(self) -> None:
            closed.append("closed")

        def __del__(self) -> None:
            closed.append("dropped")

    store = SimpleNamespace(open_output_stream=lambda path: Stream())
    _break_off(store, "bucket/log")
    gc.collect()
    assert closed == []
    with whole_or_not(store, "bucket/log") as file:
        file.write(b"whole")
    assert closed == ["closed"]


def test_a_stream_that_has_failed_itself_is_closed_so_that_retries_do_not_pile_up() -> None:
    closed = []

    def fail(content: bytes) -> None:
        raise OSError("When initiating multiple part upload: AWS Error NETWORK_CONNECTION")  # as pyarrow: no errno

    def close() -> None:
        closed.append(True)
        raise OSError("When uploading part")

    store: Any = SimpleNamespace(open_output_stream=lambda path: SimpleNamespace(write=fail, close=close))

    def write() -> None:
        with whole_or_not(store, "bucket/log") as file:
            file.write(b"whole")

    with pytest.raises(OSError, match="initiating"):
        write()
    assert closed == [True]


def test_stores_are_opened_in_one_file_alone() -> None:
    # There the hosts of addresses are checked.
    opens = re.compile(
        r"\bfrom_uri\(|\b(S3|Gcs|Azure|Hadoop)FileSystem\(|\b(S3|GCS|Azure|HTTP)Store\(|\burlopen\(|fsspec"
    )
    package = Path(filesystem.__file__).parents[1]
    found = {str(path.relative_to(package)) for path in package.rglob("*.py") if opens.search(path.read_text())}
    assert found == {"storage/filesystem.py", "config/addresses.py"}  # the latter has the name of a kind of address

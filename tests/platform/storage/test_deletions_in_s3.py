"""What is deleted in a store that speaks S3's protocol is gone, and nothing is left in its place."""

import shutil
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import boto3
import pytest
from s3_server import OneByOne

from ebclab.background import warn_once
from ebclab.export.place import landed
from ebclab.inventory.deletion import delete, find_named
from ebclab.runs.folder import RunFolder
from ebclab.storage import filesystem, swap
from ebclab.storage.filesystem import PATIENCE
from ebclab.storage.object_store import COPIES, RemoteFolder, Store


@pytest.fixture
def root(running: tuple[str, OneByOne], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The address of a folder of runs that no other test has; this process knows nothing of its bucket yet."""
    monkeypatch.setattr(swap, "_TRIED", {})
    monkeypatch.setattr(filesystem, "_REACHED", {})
    warn_once.cache_clear()
    monkeypatch.setenv(COPIES, str(tmp_path / "copies"))
    monkeypatch.setenv(PATIENCE, "0")
    running[1].hidden = ()
    running[1].requests.clear()
    return f"s3://sets/{uuid.uuid4().hex}/runs?{running[0]}"


@pytest.fixture
def client(running: tuple[str, OneByOne], root: str) -> Any:
    """Amazon's own client."""
    port = running[0].partition(":")[2].partition("&")[0]
    owner = {"region_name": "us-east-1", "aws_access_key_id": "o", "aws_secret_access_key": "o"}
    return boto3.client("s3", endpoint_url=f"http://127.0.0.1:{port}", **owner)


@pytest.fixture
def keys(client: Any, root: str) -> Callable[[], set[str]]:
    """Returns the names of all objects below the folder of runs."""
    folder = _folder(root)

    def listed() -> set[str]:
        found = client.list_objects_v2(Bucket="sets", Prefix=folder.partition("/")[0]).get("Contents", [])
        return {each["Key"].removeprefix(f"{folder}/") for each in found}

    return listed


def _folder(root: str) -> str:
    return root.removeprefix("s3://sets/").partition("?")[0]


def make_checkpoint(run: Path, name: str) -> set[str]:
    folder = run / "checkpoints" / name
    folder.mkdir(parents=True)
    for file in ("model.safetensors", "state.pt"):
        (folder / file).write_text(name)
    (folder / "manifest.json").write_text('{"files": {"model.safetensors": "", "state.pt": ""}}')
    return {f"checkpoints/{name}/{file}" for file in ("model.safetensors", "state.pt", "manifest.json")}


def rotate(run: RunFolder, rotations: int) -> set[str]:
    """Work in a run as training does: each new checkpoint takes the place of the one before; return what is left."""
    with run.claim() as syncer:
        (run.path / "config.yaml").write_text("seed: 0\n")
        left = make_checkpoint(run.path, "last-0000000000")
        syncer.push()
        for number in range(1, rotations):
            left = make_checkpoint(run.path, f"last-{number:010d}")
            shutil.rmtree(run.path / "checkpoints" / f"last-{number - 1:010d}")
            syncer.push()
    return {"config.yaml", ".held.json"} | left


def test_a_run_that_rotates_its_checkpoints_leaves_what_it_has_and_no_empty_objects(root, keys, caplog):
    left = rotate(RunFolder.at(RemoteFolder(root, "one")), 4)
    assert keys() == {f"one/{name}" for name in left}
    assert caplog.messages == []


def test_deleted_runs_leave_their_neighbours_and_nothing_else(root, keys, client):
    client.put_object(Bucket="sets", Key=f"{_folder(root)}/")  # as Amazon's page makes a folder
    for name in ("one", "two"):
        rotate(RunFolder.at(RemoteFolder(root, name)), 2)
    others = {key for key in keys() if not key.startswith("one/")}
    assert "" in others
    delete(*find_named(["one"], root, None))
    assert keys() == others
    RunFolder.at(RemoteFolder(root, "two")).clear_store()
    assert keys() == {""}


def test_an_export_that_replaces_another_leaves_no_empty_objects(root: str, keys: Callable[[], set[str]]) -> None:
    target = f"{root.partition('?')[0]}/card?{root.partition('?')[2]}"
    for files in (("encoder.json", "model.onnx"), ("encoder.json", "README.md")):
        with landed(target, overwrite=True) as made:
            made.mkdir()
            for file in files:
                (made / file).write_text('{"format_version": 1}')
    assert keys() == {"card/encoder.json", "card/README.md"}


@pytest.mark.parametrize("name", ["a b", "ü", "a%20b", "a+b", "a#b?c", "~x", "a\\b", "a:b*", "d/e.f"])
def test_whatever_its_name_a_file_is_deleted_in_one_request_once_the_bucket_was_tried(name, root, running, keys):
    store = Store(RemoteFolder(root, "run"))
    for each in (name, "other"):
        store.write(each, b"content")
    store.delete("first of this process")
    running[1].requests.clear()
    store.delete(name)
    store.delete(name)  # there is none any more
    assert [method for method, _, _ in running[1].requests] == ["DELETE", "DELETE"]
    assert keys() == {"run/other"}


def test_where_obstore_reaches_another_store_pyarrow_deletes_and_one_line_says_what_is_left(
    root: str, running: tuple[str, OneByOne], keys: Callable[[], set[str]], caplog: pytest.LogCaptureFixture
) -> None:
    store = Store(RemoteFolder(root, "run"))
    for name in ("a/1", "a/2", "a/3"):
        store.write(name, b"content")
    running[1].hidden = (".try-",)
    store.delete("a/1")
    Store(RemoteFolder(root, "run")).delete("a/2")
    assert keys() == {"run/a/", "run/a/3"}
    assert [message.partition(": ")[2] for message in caplog.messages] == [
        "obstore cannot delete here, got another bucket than that of the run; pyarrow does, and leaves an empty object "
        "whose name ends in / in each folder that it deletes from"
    ]

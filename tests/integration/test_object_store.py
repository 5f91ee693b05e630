"""Sets in an S3 store: prepared there, read from there, streamed from there; a server on loopback that checks keys."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from pyarrow import fs

import ebclab
from ebclab.cli import main
from ebclab.data.preparing.write_parquet import prepare_dataset
from ebclab.data.sources.load import load_split
from ebclab.errors import DataError
from ebclab.storage.filesystem import Location
from ebclab.training.display import Listener

TINY = ["data.train_limit=96", "data.holdout_rate=0.2", "training.batch_size=32", "training.epochs=2"]


@pytest.fixture(scope="module")
def digits(store: Any, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The digits as a prepared set, made in a local folder and copied into the bucket by pyarrow."""
    local = tmp_path_factory.mktemp("set") / "digits"
    assert main(["data", "prepare", "digits", "--to", str(local)]) == 0
    there = fs.S3FileSystem(
        access_key=store.key, secret_key=store.secret, endpoint_override=store.url, region="us-east-1"
    )
    fs.copy_files(str(local), "sets/digits", destination_filesystem=there)
    return "s3://sets/digits"


def _assert_same_as_digits(name: str) -> None:
    for split in ("train", "test"):
        found, wanted = load_split(name, None, split), load_split("digits", None, split)
        order, wanted_order = found.keys.argsort(), wanted.keys.argsort()
        for part in ("keys", "labels", "images"):
            assert torch.equal(getattr(found, part)[order], getattr(wanted, part)[wanted_order]), (split, part)
        assert (found.class_names, found.mean, found.std) == (wanted.class_names, wanted.mean, wanted.std)


def test_a_set_in_a_bucket_is_the_set_by_endpoint_variable_or_by_address(
    digits: str, store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    _assert_same_as_digits(f"parquet:{digits}")
    monkeypatch.delenv("AWS_ENDPOINT_URL")
    monkeypatch.setenv("EBCLAB_STORES", store.url)
    _assert_same_as_digits(f"parquet:{digits}/?{store.query()}")


def test_a_folder_of_images_in_a_bucket_has_the_keys_of_a_local_one(store: Any, tmp_path: Path) -> None:
    for number in range(4):
        path = tmp_path / "train" / "ab"[number % 2] / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (4, 5), (number, 2 * number, 200)).save(path)
    fs.copy_files(str(tmp_path), "s3://sets/pictures")
    found, local = (load_split(f"folder:{where}", None, "train") for where in ("s3://sets/pictures", tmp_path))
    assert torch.equal(found.keys, local.keys)
    assert torch.equal(found.images, local.images)
    assert found.labels.tolist() == [0, 0, 1, 1]


def test_prepare_writes_into_a_bucket_and_never_over_something(store: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "prepare", "digits", "--to", "s3://sets/made"]) == 0
    assert "--dataset 'parquet:s3://sets/made'" in capsys.readouterr().out
    _assert_same_as_digits("parquet:s3://sets/made")
    assert main(["data", "prepare", "digits", "--to", "s3://sets/made"]) == 2
    assert "--to: there is something already, got s3://sets/made" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("count", "sentence"),
    [
        (1, r"files that end in \.parquet are needed"),
        (3, r"/train/part-.*the set is not complete, the file is missing"),
    ],
)
def test_a_copy_that_was_broken_off_is_noticed_whatever_had_arrived(
    count: int, sentence: str, store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    upload, arrived = Location.upload, []

    def break_off(place: Location, file: Path, name: str) -> None:
        if len(arrived) == count:
            raise DataError("--to: the line is dead")
        upload(place, file, name)
        arrived.append(name)

    monkeypatch.setattr(Location, "upload", break_off)
    with pytest.raises(DataError, match="the line is dead"):
        prepare_dataset({"train": load_split("digits", None, "train")}, f"s3://sets/half-{count}", shards=2)
    assert arrived[:2] == ["checksums.json", "dataset.json"][:count]
    with pytest.raises(DataError, match=sentence):
        load_split(f"parquet:s3://sets/half-{count}", None, "train")


def test_a_worker_streams_from_a_bucket_and_no_file_of_the_run_knows_the_keys(
    digits: str, store: Any, cluster: str, tmp_path: Path
) -> None:
    stream = [f"data.name=parquet:{digits}", "data.delivery=stream", "views.recipe=digits", "resources.workers=1"]
    config = ebclab.compose("simclr", overrides=[*stream, *TINY])
    run = ebclab.pretrain(config, runs=tmp_path, name="run", display=Listener())
    assert run.result["steps"] == 2 * (run.result["train_images"] // 32) > 0
    assert run.result["scores"]["holdout_knn"] > 0.3  # ten classes: chance is 0.1
    files = [path for path in run.path.rglob("*") if path.is_file()]
    assert {"config.yaml", "environment.json", "metrics.jsonl"} <= {path.name for path in files}
    for path in files:
        assert store.secret.encode() not in path.read_bytes(), path
        assert store.key.encode() not in path.read_bytes(), path


def test_a_worker_elsewhere_reads_from_the_host_that_the_command_names(
    digits: str, store: Any, cluster: str, tmp_path: Path
) -> None:
    known = {key: value for key, value in os.environ.items() if key not in ("AWS_ENDPOINT_URL", "EBCLAB_STORES")}
    settings = [word for setting in (*TINY, "views.recipe=digits") for word in ("--set", setting)]
    command = ["pretrain", "simclr", "--dataset", f"parquet:{digits}?{store.query()}", "--workers", "1", *settings]
    done = subprocess.run(
        [sys.executable, "-m", "ebclab", *command, "--runs", str(tmp_path)],
        env={**known, "RAY_ADDRESS": cluster},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr


WRONG = {
    "no such bucket": ("s3://nothing/digits", {}, "data.name: no such bucket or folder, got s3://nothing/digits; "),
    "no such key": ("s3://sets/nothing", {}, "data.name: no such bucket or folder, got s3://sets/nothing; "),
    "unknown user": (
        "s3://sets/digits",
        {"AWS_ACCESS_KEY_ID": "AKIAUNKNOWN"},
        "s3://sets/digits: cannot be read, got ",
    ),
    "wrong secret": ("s3://sets/digits", {"AWS_SECRET_ACCESS_KEY": "hush"}, "s3://sets/digits: cannot be read, got "),
    "wrong option": ("s3://sets/digits?colour=red", {}, "data.name: not a place that can be opened, got "),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_cannot_be_read_is_one_sentence_without_keys(
    case: str,
    digits: str,
    store: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    address, variables, sentence = WRONG[case]
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    capsys.readouterr()
    dataset = ["--dataset", f"parquet:{address}", "--set", "views.recipe=digits"]
    assert main(["pretrain", "simclr", *dataset, "--runs", str(tmp_path)]) == 2
    text = capsys.readouterr().err
    assert sentence in text.replace("\n", " ")
    assert "Traceback" not in text
    for hidden in ("hush", store.secret, store.key, "AKIAUNKNOWN"):
        assert hidden not in text
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("to", "variables", "sentence"),
    [
        ("s3://nothing/set", {}, "--to: no such bucket, got s3://nothing/set; make it first"),
        ("s3://sets/set", {"AWS_SECRET_ACCESS_KEY": "hush"}, "--to: cannot write s3://sets/set, got "),
    ],
)
def test_what_cannot_be_written_is_one_sentence_without_keys(
    to: str,
    variables: dict[str, str],
    sentence: str,
    store: Any,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert main(["data", "prepare", "digits", "--to", to]) == 2
    text = capsys.readouterr().err
    assert sentence in text.replace("\n", " ")
    assert "hush" not in text


def test_a_shard_that_vanishes_is_named_as_missing_and_not_as_damaged(digits: str, store: Any) -> None:
    from ebclab.data.photograph import Reading
    from ebclab.data.sources.image_source import read_rows
    from ebclab.data.sources.parquet import ParquetSource

    fs.copy_files("s3://sets/digits", "s3://sets/vanishing")
    source = ParquetSource("set", "s3://sets/vanishing", "train", Reading())
    place, inside = fs.FileSystem.from_uri("s3://sets/vanishing/train")
    place.delete_dir_contents(inside)
    with pytest.raises(DataError, match=r"s3://sets/vanishing/train/part-.*parquet: cannot be read, got .*not exist"):
        read_rows(source, source.index)

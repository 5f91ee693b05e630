"""Sets larger than memory: shard by shard, taken up where a killed command was, with every image left out named."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from ebclab.cli import main
from ebclab.cli.data import PreparationProgress
from ebclab.config.sections import DataConfig
from ebclab.data.image_set import ImageSet, channel_statistics
from ebclab.data.preparing import rows as rows_of_splits
from ebclab.data.preparing import shards, write_parquet
from ebclab.data.preparing.rows import SplitRows, split_rows
from ebclab.data.preparing.shards import Storage
from ebclab.data.preparing.write_parquet import LEFT_OUT, prepare_dataset
from ebclab.data.sources.decode import Decoded, Reading
from ebclab.data.sources.folder import FolderSource
from ebclab.data.sources.image_source import Statistics, training_statistics
from ebclab.data.sources.load import load_split
from ebclab.errors import DataError, RunError, UserError
from ebclab.storage.lock import locked

READING = Reading(resize=8)
LENIENT = Reading(resize=8, skip_corrupt=True)
COUNT = 40


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Smooth pictures of several sizes in two classes."""
    generator = np.random.default_rng(0)
    for number in range(COUNT):
        coarse = Image.fromarray(generator.integers(0, 256, (4, 4, 3), dtype=np.uint8))
        path = tmp_path / "photos" / ("cats" if number % 2 else "dogs") / f"{number:02}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        coarse.resize((20 + number % 5, 30 - number % 3), Image.Resampling.BICUBIC).save(path)
    return tmp_path / "photos"


@pytest.fixture(autouse=True)
def small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    """Row groups of 3 images of 8 x 8, shards of 6."""
    monkeypatch.setattr(shards, "_GROUP_BYTES", 3 * 192)
    monkeypatch.setattr(shards, "_SHARD_BYTES", 6 * 192)
    monkeypatch.setattr(write_parquet, "usable_processors", lambda: 2)


class Watched(FolderSource):
    """Notes which images are read; may be told to die at some."""

    def __init__(self, folder: Path, reading: Reading = READING, statistics: Statistics | None = None) -> None:
        super().__init__("photos", str(folder), "train", reading)
        self.statistics = statistics
        self.seen: list[int] = []
        self.dies_at: set[int] = set()

    def read(self, group: int, places: Tensor) -> Decoded:
        self.seen.append(group)
        if group in self.dies_at:
            raise KeyboardInterrupt
        return super().read(group, places)


def prepare(source: FolderSource, target: Path, lines: list[str] | None = None, **settings: Any) -> list[str]:
    lines = [] if lines is None else lines
    prepare_dataset({"train": SplitRows(source, source.index)}, target, progress=lines.append, **settings)
    return lines


def content(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_prepared_folder_is_the_folder(photos: Path, tmp_path: Path) -> None:
    lines = prepare(Watched(photos), tmp_path / "set")
    assert lines == ["train: 40 images, 2 classes, in 8 files"]
    found, wanted = (
        load_split(f"parquet:{tmp_path}/set", None, "train"),
        load_split(f"folder:{photos}", None, "train", READING),
    )
    order, other = found.keys.argsort(), wanted.keys.argsort()
    assert torch.equal(found.keys[order], wanted.keys[other])
    assert torch.equal(found.images[order], wanted.images[other])
    assert torch.equal(found.labels[order], wanted.labels[other])
    assert (found.class_names, found.mean, found.std) == (wanted.class_names, *channel_statistics(wanted.images))


def test_a_row_group_of_images_is_in_memory(photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    at_once = []

    def noted(source: Any, index: Any, threads: int = 1) -> Decoded:
        at_once.append(len(index))
        return read_rows(source, index, threads)

    read_rows = shards.read_rows
    monkeypatch.setattr(shards, "read_rows", noted)
    prepare(Watched(photos), tmp_path / "set", shards=1)
    assert at_once == [3] * 13 + [1]


KNOWN = Statistics((0.5,) * 3, (0.25,) * 3)
"""With these a source reads no images before the shards are made."""


@pytest.mark.parametrize("storage", [Storage(), Storage("jpeg", 80)], ids=["pixels", "jpeg"])
def test_a_killed_preparation_goes_on_and_leaves_the_same_bytes(photos: Path, tmp_path: Path, storage: Storage) -> None:
    prepare(Watched(photos), tmp_path / "whole", storage=storage)
    killed = Watched(photos)
    order = shards.rows_of_shards(SplitRows(killed, killed.index), 8)
    killed.dies_at = {int(order[5][0])}  # in the statistics, too: the first time there is nothing to keep
    with pytest.raises(KeyboardInterrupt):
        prepare(killed, tmp_path / "set", storage=storage)
    assert [path.name for path in tmp_path.glob("*set*")] == []
    killed.statistics = training_statistics(Watched(photos))
    with pytest.raises(KeyboardInterrupt):
        prepare(killed, tmp_path / "set", storage=storage)
    assert not (tmp_path / "set").exists()
    unfinished = tmp_path / ".set.unfinished"
    finished = [int(path.stem.split("-")[2]) for path in (unfinished / "records").iterdir()]
    assert finished
    again = Watched(photos)
    prepare(again, tmp_path / "set", storage=storage)
    assert set(again.seen).isdisjoint(row for number in finished for row in order[number].tolist())
    assert content(tmp_path / "set") == content(tmp_path / "whole")
    assert not unfinished.exists()


def break_some(photos: Path) -> None:
    whole = (photos / "cats/01.png").read_bytes()
    (photos / "cats/01.png").write_bytes(whole[: len(whole) // 2])
    (photos / "dogs/02.png").write_bytes(b"text")
    (photos / "dogs/04.png").write_bytes(b"text")


def test_damaged_images_stop_it_or_are_all_named(photos: Path, tmp_path: Path) -> None:
    break_some(photos)
    with pytest.raises(DataError, match=r"\d\d\.png: not a readable image, got .*data\.skip_corrupt=true"):
        prepare(Watched(photos), tmp_path / "set")
    lines = prepare(Watched(photos, LENIENT), tmp_path / "set")
    assert lines == [
        "train: 37 images, 2 classes, in 8 files",
        "left out 3 of 40 images: 2 of no known format, 1 damaged or cut off; left_out.jsonl in the set names them",
    ]
    named = [json.loads(line) for line in (tmp_path / "set" / LEFT_OUT).read_text().splitlines()]
    assert {Path(each["name"]).name: each["kind"] for each in named} == {
        "01.png": "damaged or cut off",
        "02.png": "of no known format",
        "04.png": "of no known format",
    }
    found, wanted = (
        load_split(f"parquet:{tmp_path}/set", None, "train"),
        load_split(f"folder:{photos}", None, "train", LENIENT),
    )
    assert torch.equal(found.keys.sort().values, wanted.keys.sort().values)
    assert json.loads((tmp_path / "set/dataset.json").read_text())["num_images"] == {"train": 37}


def test_shards_made_before_a_damaged_image_was_met_are_kept(photos: Path, tmp_path: Path) -> None:
    source = Watched(photos)
    last = shards.rows_of_shards(SplitRows(source, source.index), 8)[-1]
    sorted(photos.rglob("*.png"))[int(last.max())].write_bytes(b"text")
    lines: list[str] = []
    with pytest.raises(DataError, match="not a readable image"):
        prepare(Watched(photos, statistics=KNOWN), tmp_path / "set", lines)
    assert lines[-1].endswith("finished files are kept, and the same command goes on from them")
    lenient = Watched(photos, LENIENT, KNOWN)
    prepare(lenient, tmp_path / "set")
    assert len(lenient.seen) <= 2 * 5  # of 40: two shards at most were not finished


def test_another_preparation_is_not_mixed_in(photos: Path, tmp_path: Path) -> None:
    killed = Watched(photos, statistics=KNOWN)
    killed.dies_at = set(shards.rows_of_shards(SplitRows(killed, killed.index), 8)[7].tolist())
    with pytest.raises(KeyboardInterrupt):
        prepare(killed, tmp_path / "set")
    with pytest.raises(DataError) as caught:
        prepare(Watched(photos, Reading(resize=9)), tmp_path / "set")
    assert str(caught.value) == (
        f"--to: {tmp_path}/.set.unfinished holds a part of another set, got shape [3, 8, 8] before and [3, 9, 9] now; "
        "repeat with what it began with, or delete it"
    )
    Image.new("RGB", (9, 9)).save(photos / "cats" / "new.png")
    with pytest.raises(DataError, match="got splits: train: images 40 before and 41 now"):
        prepare(Watched(photos), tmp_path / "set")
    (photos / "cats/new.png").unlink()
    Image.new("RGB", (9, 9)).save(photos / "cats" / "01.png")
    with pytest.raises(DataError, match="got splits: train: other files now"):
        prepare(Watched(photos), tmp_path / "set")
    with pytest.raises(DataError, match="storage: form pixels before and jpeg now"):
        prepare(Watched(photos), tmp_path / "set", storage=Storage("jpeg"))
    with (
        locked(tmp_path / ".set.unfinished", busy="works", option="--to"),
        pytest.raises(RunError, match="another process"),
    ):
        prepare(Watched(photos), tmp_path / "set")


def test_jpeg_files_of_a_set_are_what_pillow_makes(photos: Path, tmp_path: Path) -> None:
    prepare(Watched(photos), tmp_path / "set", storage=Storage("jpeg", 95))
    found, wanted = (
        load_split(f"parquet:{tmp_path}/set", None, "train"),
        load_split(f"folder:{photos}", None, "train", READING),
    )
    order, other = found.keys.argsort(), wanted.keys.argsort()
    for image, pixels in zip(found.images[order], wanted.images[other], strict=True):
        buffer = io.BytesIO()
        Image.fromarray(pixels.permute(1, 2, 0).numpy()).save(buffer, "JPEG", quality=95, subsampling=0)
        assert np.array_equal(image.permute(1, 2, 0).numpy(), np.array(Image.open(buffer)))
    assert json.loads((tmp_path / "set/dataset.json").read_text())["schema"]["image"] == "JPEG of quality 95"


def test_images_of_four_channels_are_no_jpeg_files(tmp_path: Path) -> None:
    images = torch.zeros(2, 4, 8, 8, dtype=torch.uint8)
    labels, numbers = torch.zeros(2, dtype=torch.int64), torch.arange(2)
    satellite = ImageSet("satellite", images, labels, numbers, (), (0.5,) * 4, (0.5,) * 4)
    with pytest.raises(DataError, match=r"--store: a JPEG file has one channel or three, got images of 4; store"):
        prepare_dataset({"train": satellite}, tmp_path / "set", storage=Storage("jpeg"))
    assert not list(tmp_path.iterdir())


@pytest.fixture
def grouped(photos: Path, tmp_path: Path) -> str:
    """The photographs in a Parquet set of row groups of three."""
    prepare(Watched(photos), tmp_path / "grouped")
    return f"parquet:{tmp_path}/grouped"


def test_images_that_are_read_in_groups_become_the_same_set_in_any_memory(
    grouped: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sets = []
    for name, share in (("much", 0.25), ("little", 0.0)):
        monkeypatch.setattr(rows_of_splits, "_HELD_SHARE", share)
        rows = split_rows(DataConfig(name=grouped), "train", train_limit=30)
        assert rows.reads_groups == (name == "little")
        prepare_dataset({"train": rows}, tmp_path / name, progress=lambda line: None)
        sets.append(content(tmp_path / name))
    assert sets[0] == sets[1]
    assert sorted(load_split(f"parquet:{tmp_path}/much", None, "train").keys.tolist()) == sorted(
        rows.index.keys.tolist()
    )


def test_the_verb_writes_jpeg_and_takes_settings(photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    command = ["data", "prepare", f"folder:{photos}", "--to", str(tmp_path / "set"), "--resize", "8"]
    assert main([*command, "--store", "png"]) == 2
    assert "--store: must be pixels or jpeg, got png" in capsys.readouterr().err
    assert main([*command, "--store", "jpeg", "--set", "data.colour=grey"]) == 0
    out = capsys.readouterr().out
    assert "train: 40 images, 2 classes, in 5 files" in out
    assert "--set data.colour=grey" in out
    assert load_split(f"parquet:{tmp_path}/set", None, "train", Reading(colour="grey")).images.shape == (40, 1, 8, 8)
    with pytest.raises(UserError):
        shards.storage_named("png", 90)


def test_a_preparation_tells_rate_and_time_left(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    now = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    progress = PreparationProgress()
    for seconds, done in ((0, 1000), (30, 1300), (60, 2000), (70, 2100), (130, 3300)):
        now[0] = 100.0 + seconds
        progress.seen(done, 4000)
    assert capsys.readouterr().err.splitlines() == [
        "2,000 of 4,000 images (50%), 17 images/s, 2:00 left",  # 1,000 in 60 s: 2,000 more in 120
        "3,300 of 4,000 images (82%), 18 images/s, 0:40 left",  # 2,300 in 130 s: 700 more in 39.6
    ]

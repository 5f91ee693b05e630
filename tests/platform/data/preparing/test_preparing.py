"""Prepared sets: what was put in comes out in shards of reasoned sizes, whole or not at all, wherever it was killed."""

import hashlib
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from kill_points import LOSSES, Loss, killed_everywhere
from made_up_images import encoded, put
from PIL import Image
from torch import Tensor

from ebclab.cli import main
from ebclab.config.sections import DataConfig
from ebclab.data.holdout import limit
from ebclab.data.image_set import ImageSet, channel_statistics
from ebclab.data.photograph import Decoded, Reading
from ebclab.data.preparing import write_parquet
from ebclab.data.preparing.write_parquet import (
    LEFT_OUT,
    SplitRows,
    Storage,
    group_rows,
    prepare_dataset,
    rows_of_shards,
    shard_count,
    split_rows,
)
from ebclab.data.sources.catalogue import Split
from ebclab.data.sources.folder import FolderSource
from ebclab.data.sources.image_source import Statistics, training_statistics
from ebclab.data.sources.load import load_split
from ebclab.errors import DataError, RunError
from ebclab.storage.lock import locked

Splits = dict[Split, ImageSet | SplitRows]

READING = Reading(resize=8)
LENIENT = Reading(resize=8, skip_corrupt=True)
COUNT = 40


def content(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def set_at(folder: Path, split: Split = "train", reading: Reading = Reading()) -> ImageSet:  # noqa: B008
    """A prepared set in the order of its keys."""
    images = load_split(f"parquet:{folder}", None, split, reading)
    return images.rows(images.keys.argsort())


def folder_at(folder: Path, reading: Reading = READING) -> ImageSet:
    images = load_split(f"folder:{folder}", None, "train", reading)
    return images.rows(images.keys.argsort())


def assert_same_rows(found: ImageSet, wanted: ImageSet) -> None:
    for name in ("keys", "images", "labels"):
        assert torch.equal(getattr(found, name), getattr(wanted, name))


def image_set(count: int, seed: int) -> ImageSet:
    generator = torch.Generator().manual_seed(seed)
    images = torch.randint(0, 256, (count, 3, 4, 5), dtype=torch.uint8, generator=generator)
    keys = torch.arange(count) * 3 - 7
    return ImageSet("made", images, torch.arange(count) // (count // 2), keys, ("a", "b"), (0.1, 0.2, 0.3), (1.0,) * 3)


@pytest.fixture
def splits() -> Splits:
    return {"train": image_set(2500, 0), "test": image_set(30, 1)}


def test_a_prepared_set_holds_the_same_images_shuffled_and_describes_itself(tmp_path, splits, splitmix64_words):
    lines: list[str] = []
    prepare_dataset(splits, tmp_path / "set", progress=lines.append)
    assert lines == ["train: 2,500 images, 2 classes, in 3 files", "test: 30 images, 2 classes, in 1 file"]
    for split, wanted in splits.items():
        assert isinstance(wanted, ImageSet)
        found = set_at(tmp_path / "set", split)
        assert_same_rows(found, wanted)
        assert (found.class_names, found.mean, found.std) == (wanted.class_names, wanted.mean, wanted.std)
    keys = load_split(f"parquet:{tmp_path}/set", None, "train").keys.tolist()
    assert keys == sorted(keys, key=lambda key: splitmix64_words(int.from_bytes(b"shard"), key))
    sums = json.loads((tmp_path / "set/checksums.json").read_text())
    files = {name: each for name, each in content(tmp_path / "set").items() if name.endswith(".parquet")}
    assert sums == {
        name: {"bytes": len(each), "sha256": hashlib.sha256(each).hexdigest()} for name, each in files.items()
    }
    parts = [f"train/part-0000{number}-of-00003.parquet" for number in range(3)]
    assert sorted(files) == ["test/part-00000-of-00001.parquet", *parts]
    told = json.loads((tmp_path / "set/dataset.json").read_text())
    assert (told["num_images"], told["shape"]) == ({"train": 2500, "test": 30}, [3, 4, 5])
    schema = pq.read_schema(tmp_path / "set" / parts[0])
    types = [("image", "extension<arrow.fixed_shape_te"), ("label", "int64"), ("index", "int64")]
    assert [(field.name, str(field.type)[:30]) for field in schema] == types


@pytest.mark.parametrize(
    ("images", "image_bytes", "asked", "shards"),
    [
        (60_000, 784, 0, 8),  # 47 MB: at least eight
        (2_500, 784, 0, 3),  # but none below a row group of 1,024
        (10, 784, 0, 1),
        (1_281_167, 3 * 256 * 256, 0, 1877),  # 252 GB / 128 MiB, rounded up
        (60_000, 784, 4, 4),
        (10, 784, 4, 1),
    ],
)
def test_the_number_of_shards(images: int, image_bytes: int, asked: int, shards: int) -> None:
    assert shard_count(images, image_bytes, asked) == shards
    assert [group_rows(each) for each in (784, 8 << 13, 1 << 20, 1 << 30)] == [1024, 128, 8, 1]  # at most 8 MiB


def test_nothing_is_left_when_writing_fails(tmp_path: Path, splits: Splits, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: object, **settings: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pq.ParquetWriter, "write_table", full)
    with pytest.raises(RunError, match=r"the disk is full, .*; free some space and run the same command again"):
        prepare_dataset(splits, tmp_path / "set")
    assert list(tmp_path.iterdir()) == []


def test_the_verb_prepares_what_the_same_limit_chooses_and_says_what_comes_next(tmp_path, capsys):
    assert main(["data", "prepare", "digits", "--train-limit", "100", "--to", str(tmp_path / "set")]) == 0
    shown = capsys.readouterr().out
    assert f"next: ebclab pretrain simclr --dataset parquet:{tmp_path}/set --set views.recipe=digits" in shown
    train, test = (load_split("digits", None, split) for split in ("train", "test"))
    assert_same_rows(set_at(tmp_path / "set"), limit(train, 100))
    assert_same_rows(set_at(tmp_path / "set", "test"), test)


@pytest.fixture
def photos(tmp_path: Path, small_shards: None) -> Path:
    """Smooth pictures of several sizes in two classes."""
    generator = np.random.default_rng(0)
    for number in range(COUNT):
        coarse = Image.fromarray(generator.integers(0, 256, (4, 4, 3), dtype=np.uint8))
        picture = coarse.resize((20 + number % 5, 30 - number % 3), Image.Resampling.BICUBIC)
        put(tmp_path / "photos" / ("cats" if number % 2 else "dogs") / f"{number:02}.png", encoded(picture))
    return tmp_path / "photos"


@pytest.fixture
def small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    """Row groups of 3 images of 8 x 8, shards of 6."""
    monkeypatch.setattr(write_parquet, "_GROUP_BYTES", 3 * 192)
    monkeypatch.setattr(write_parquet, "_SHARD_BYTES", 6 * 192)
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


def test_a_row_group_of_images_is_in_memory(photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    at_once = []

    def noted(source: Any, index: Any, threads: int = 1) -> Decoded:
        at_once.append(len(index))
        return read_rows(source, index, threads)

    read_rows = write_parquet.read_rows
    monkeypatch.setattr(write_parquet, "read_rows", noted)
    prepare(Watched(photos), tmp_path / "set", shards=1)
    assert at_once == [3] * 13 + [1]


KNOWN = Statistics((0.5,) * 3, (0.25,) * 3)
"""With these a source reads no images before the shards are made."""


@pytest.mark.parametrize("storage", [Storage(), Storage("jpeg", 80)], ids=["pixels", "jpeg"])
def test_a_killed_preparation_goes_on_and_leaves_the_same_bytes(photos: Path, tmp_path: Path, storage: Storage) -> None:
    prepare(Watched(photos), tmp_path / "whole", storage=storage)
    killed = Watched(photos)
    order = rows_of_shards(SplitRows(killed, killed.index), 8)
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


def test_damaged_images_stop_it_or_are_all_named(photos: Path, tmp_path: Path) -> None:
    whole = (photos / "cats/01.png").read_bytes()
    (photos / "cats/01.png").write_bytes(whole[: len(whole) // 2])
    for name in ("02", "04"):
        (photos / f"dogs/{name}.png").write_bytes(b"text")
    with pytest.raises(DataError, match=r"\d\d\.png: not a readable image, got .*data\.skip_corrupt=true"):
        prepare(Watched(photos), tmp_path / "set")
    lines = prepare(Watched(photos, LENIENT), tmp_path / "set")
    assert lines == [
        "train: 37 images, 2 classes, in 8 files",
        "left out 3 of 40 images: 2 of no known format, 1 damaged or cut off; left_out.jsonl in the set names them",
    ]
    named = [json.loads(line) for line in (tmp_path / "set" / LEFT_OUT).read_text().splitlines()]
    kinds = {"01.png": "damaged or cut off", "02.png": "of no known format", "04.png": "of no known format"}
    assert {Path(each["name"]).name: each["kind"] for each in named} == kinds
    found, wanted = set_at(tmp_path / "set"), folder_at(photos, LENIENT)
    assert_same_rows(found, wanted)
    assert (found.class_names, found.mean, found.std) == (wanted.class_names, *channel_statistics(wanted.images))
    assert json.loads((tmp_path / "set/dataset.json").read_text())["num_images"] == {"train": 37}


def test_shards_made_before_a_damaged_image_was_met_are_kept(photos: Path, tmp_path: Path) -> None:
    source = Watched(photos)
    last = rows_of_shards(SplitRows(source, source.index), 8)[-1]
    sorted(photos.rglob("*.png"))[int(last.max())].write_bytes(b"text")
    lines: list[str] = []
    with pytest.raises(DataError, match="not a readable image"):
        prepare(Watched(photos, statistics=KNOWN), tmp_path / "set", lines)
    assert lines[-1].endswith("finished files are kept, and the same command resumes from them")
    lenient = Watched(photos, LENIENT, KNOWN)
    prepare(lenient, tmp_path / "set")
    assert len(lenient.seen) <= 2 * 5  # of 40: two shards at most were not finished


def test_another_preparation_is_not_mixed_in(photos: Path, tmp_path: Path) -> None:
    killed = Watched(photos, statistics=KNOWN)
    killed.dies_at = set(rows_of_shards(SplitRows(killed, killed.index), 8)[7].tolist())
    with pytest.raises(KeyboardInterrupt):
        prepare(killed, tmp_path / "set")
    shard = next((tmp_path / ".set.unfinished/set/train").glob("*.parquet"))
    whole = shard.read_bytes()
    shard.write_bytes(whole[:-1])
    with pytest.raises(
        DataError, match=r"\.parquet: not as it was finished; delete .*/\.set\.unfinished and begin again"
    ):
        prepare(Watched(photos, statistics=KNOWN), tmp_path / "set")
    shard.write_bytes(whole)
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
    for image, pixels in zip(set_at(tmp_path / "set").images, folder_at(photos).images, strict=True):
        file = io.BytesIO(encoded(pixels.permute(1, 2, 0).numpy(), "JPEG", quality=95, subsampling=0))
        assert np.array_equal(image.permute(1, 2, 0).numpy(), np.array(Image.open(file)))
    assert json.loads((tmp_path / "set/dataset.json").read_text())["schema"]["image"] == "JPEG of quality 95"


def test_jpeg_files_read_in_other_colours_have_the_statistics_of_what_is_read(photos: Path, tmp_path: Path) -> None:
    prepare(Watched(photos), tmp_path / "set", storage=Storage("jpeg", 95))
    for colour, channels in (("rgb", 3), ("grey", 1)):
        read = load_split(f"parquet:{tmp_path / 'set'}", None, "train", Reading(colour=colour))
        levels = read.images.double() / 255
        assert len(read.mean) == read.images.shape[1] == channels
        # those of RGB are of the photographs, before JPEG
        assert read.mean == pytest.approx(levels.mean(dim=(0, 2, 3)).tolist(), abs=0.02 if channels == 3 else 1e-9)


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


def test_images_that_are_read_in_groups_become_the_same_set_in_any_memory(grouped, tmp_path, monkeypatch):
    sets = []
    for name, share in (("much", 0.25), ("little", 0.0)):
        monkeypatch.setattr(write_parquet, "_HELD_SHARE", share)
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


PAIR = ImageSet(
    "some",
    torch.arange(2 * 3 * 4 * 4, dtype=torch.uint8).view(2, 3, 4, 4),
    torch.tensor([0, 1]),
    torch.tensor([5, 6]),
    ("a", "b"),
    (0.1, 0.2, 0.3),
    (0.4, 0.5, 0.6),
)


@pytest.fixture
def two_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file for each image, one after the other."""
    monkeypatch.setattr(write_parquet, "_GROUP_ROWS", 1)
    monkeypatch.setattr(write_parquet, "usable_processors", lambda: 1)


def prepare_pair(folder: Path) -> None:
    prepare_dataset({"train": PAIR}, folder / "[set]", progress=lambda line: None)


@pytest.mark.parametrize(
    ("loss", "is_there"),
    [
        (LOSSES[0], False),
        *(pytest.param(loss, number < 2, marks=pytest.mark.slow) for number, loss in enumerate(LOSSES)),
    ],
)
def test_a_killed_preparation_leaves_no_half_set_and_no_mess(
    tmp_path: Path, two_shards: None, loss: Loss, is_there: bool
) -> None:
    def before(folder: Path) -> None:
        (folder / ".[set].kept").mkdir()  # none of ours
        if is_there:
            (folder / "[set]").mkdir()

    prepare_pair(tmp_path)
    undisturbed = content(tmp_path / "[set]")
    assert torch.equal(set_at(tmp_path / "[set]").images, PAIR.images)
    assert sum(name.endswith(".parquet") for name in undisturbed) == 2
    whole = []
    for folder in killed_everywhere(tmp_path, before, prepare_pair, loss):
        target = folder / "[set]"
        if target.exists() and any(target.iterdir()):
            whole.append(True)
            with pytest.raises(DataError, match="there is something already"):
                prepare_pair(folder)
        else:
            whole.append(False)
            prepare_pair(folder)
            assert sorted(path.name for path in folder.iterdir()) == [".[set].kept", "[set]"]
        assert content(target) == undisturbed
    assert whole == sorted(whole)
    assert True in whole
    assert whole.count(False) > 10

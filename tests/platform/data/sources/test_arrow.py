"""What ``save_to_disk`` of Hugging Face's datasets writes, made up here with the files that release 5.2.0 writes."""

import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch
from made_up_images import encoded, put, put_arrow, table

from ebclab.data.photograph import Reading
from ebclab.data.sources.load import load_split, open_source, splits_of
from ebclab.errors import DataError

PIXELS = np.random.default_rng(0).integers(0, 256, (9, 5, 5, 3), dtype=np.uint8)
LABELS = [2, 0, None, 1, 1, 0, 2, 2, 0]


def write_split(folder: Path, rows: list[int], files: int = 1, *, image: str = "image") -> None:
    """Write rows in record batches of two, as one split."""
    names = [f"data-{number:05d}-of-{files:05d}.arrow" for number in range(files)]
    for name, part in zip(names, np.array_split(np.array(rows), files), strict=True):
        labels = pa.array([LABELS[row] for row in part], pa.int64())
        made = table([encoded(PIXELS[row]) for row in part], labels, image=image)
        put_arrow(folder / name, made.add_column(0, "text", pa.array(["x"] * len(part))), rows=2)
    state = {"_data_files": [{"filename": name} for name in names], "_fingerprint": "70db", "_split": None}
    put(folder / "state.json", json.dumps(state))
    features = {image: {"_type": "Image"}, "label": {"names": ["cat", "dog", "emu"], "_type": "ClassLabel"}}
    put(folder / "dataset_info.json", json.dumps({"citation": "", "features": features}))


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """A saved DatasetDict: seven training images in three files, two for validation."""
    write_split(tmp_path / "train", list(range(7)), files=3)
    write_split(tmp_path / "validation", [7, 8])
    (tmp_path / "dataset_dict.json").write_text('{"splits": ["train", "validation"]}')
    return tmp_path


def test_splits_have_their_pixels_labels_and_class_names(saved: Path) -> None:
    train, test = (load_split(f"arrow:{saved}", None, split) for split in ("train", "test"))
    pixels = torch.from_numpy(PIXELS).permute(0, 3, 1, 2)
    assert torch.equal(train.images, pixels[:7])
    assert torch.equal(test.images, pixels[7:])
    assert train.labels.tolist() == [2, 0, -1, 1, 1, 0, 2]
    assert test.labels.tolist() == [2, 0]
    assert train.class_names == ("cat", "dog", "emu")
    assert train.keys.tolist() == list(range(7))
    assert splits_of(f"arrow:{saved}") == ("train", "test")
    source = open_source(f"arrow:{saved}", "train", Reading())
    assert source.index.groups.unique_consecutive(return_counts=True)[1].tolist() == [2, 1, 2, 2]  # record batches


def test_a_folder_of_the_cache_has_its_splits_by_the_names_of_files(saved, caplog):
    cache = saved / "cache/owner___my_test_set/default-71f6/0.0.0/c248"
    for number, file in enumerate((saved / "train").glob("*.arrow")):
        put(cache / f"my_test_set-train-{number:05}-of-00003.arrow", file.read_bytes())
    put(cache / "my_test_set-validation.arrow", next((saved / "validation").glob("*.arrow")).read_bytes())
    put(cache / "cache-70db.arrow", b"the result of map")
    put(cache / "dataset_info.json", (saved / "train/dataset_info.json").read_bytes())
    assert splits_of(f"arrow:{cache}") == ("train", "test")
    for split, count in (("train", 7), ("test", 2)):
        found, expected = (load_split(f"arrow:{place}", None, split) for place in (cache, saved))
        assert len(found) == count
        assert torch.equal(found.images.flatten(1).sort(0).values, expected.images.flatten(1).sort(0).values)
        assert sorted(found.labels.tolist()) == sorted(expected.labels.tolist())
        assert found.class_names == expected.class_names
    told = {each.partition(": ")[2] for each in caplog.messages}
    assert told == {"1 of 7 train images have no label", "1 class of training images without test images: dog"}
    with pytest.raises(DataError, match=r"did you mean arrow:.*/owner___my_test_set/default-71f6/0.0.0/c248\?"):
        load_split(f"arrow:{saved}/cache", None, "train")


def test_a_single_split_is_read_by_its_folder(saved: Path) -> None:
    assert load_split(f"arrow:{saved}/validation", None, "train").labels.tolist() == [2, 0]
    assert splits_of(f"arrow:{saved}/validation") == ("train",)
    with pytest.raises(DataError, match="has no test images, got a single split; save a DatasetDict"):
        open_source(f"arrow:{saved}/validation", "test", Reading())


def test_other_columns_are_named_by_settings(tmp_path: Path) -> None:
    write_split(tmp_path / "set", [0, 1], image="img")
    with pytest.raises(DataError, match=r"no column pic, got columns text, img, label; set data\.image_column=img"):
        open_source(f"arrow:{tmp_path}/set", "train", Reading(image_column="pic"))
    read = load_split(f"arrow:{tmp_path}/set", None, "train", Reading(image_column="img", label_column="none"))
    assert read.labels.tolist() == [-1, -1]
    assert read.class_names == ()
    words = load_split(f"arrow:{tmp_path}/set", None, "train", Reading(image_column="img", label_column="text"))
    assert (words.labels.tolist(), words.class_names) == ([0, 0], ("x",))
    with pytest.raises(DataError, match=r"column img of .* must hold whole numbers or words, got struct"):
        open_source(f"arrow:{tmp_path}/set", "train", Reading(image_column="img", label_column="img"))


@pytest.mark.parametrize(
    ("file", "content", "sentence"),
    [
        ("dataset_dict.json", None, r"got neither dataset_dict.json nor state.json; did you mean arrow:.*/train\?"),
        ("dataset_dict.json", '{"splits": ["all"]}', "has no train images, got splits all; name one train"),
        ("dataset_dict.json", '{"splits": 3}', "dataset_dict.json: damaged, splits: Input should be a valid tuple"),
        ("train/state.json", None, "train/state.json: cannot be read"),
        ("train/state.json", '{"_data_files": []}', "state.json: names no files"),
        ("train/state.json", '{"_data_files": [{"filename": "../x.arrow"}]}', "own folder are needed, got"),
        (
            "train/state.json",
            '{"_data_files": [{"filename": "a"}], "_indices_data_files": [{"filename": "b"}]}',
            r"rows are chosen by a list of numbers, which is not read; .* flatten_indices\(\)",
        ),
        ("train/data-00001-of-00003.arrow", None, "there is no such file, and state.json names it"),
        ("train/data-00001-of-00003.arrow", "", "data-00001-of-00003.arrow: not a readable Arrow stream"),
        ("train/data-00001-of-00003.arrow", "x" * 400, "data-00001-of-00003.arrow: not a readable Arrow stream"),
    ],
)
def test_what_is_no_saved_set_is_one_sentence(saved: Path, file: str, content: str | None, sentence: str) -> None:
    (saved / file).unlink() if content is None else (saved / file).write_text(content)
    with pytest.raises(DataError, match=sentence):
        open_source(f"arrow:{saved}", "train", Reading())


def test_a_file_that_has_changed_is_named(saved: Path) -> None:
    source = open_source(f"arrow:{saved}", "train", Reading())
    shutil.copy(saved / "train/data-00001-of-00003.arrow", saved / "train/data-00000-of-00003.arrow")
    with pytest.raises(DataError, match="has 1 record batches and had more; the file has changed"):
        source.read(1, torch.tensor([0]))


def test_a_store_is_refused_without_asking_it() -> None:
    with pytest.raises(DataError, match=r"arrow: is read from a disk, got s3://bucket/set; copy it"):
        open_source("arrow:s3://bucket/set", "train", Reading())


@pytest.mark.parametrize("codec", ["zstd", "lz4"])
@pytest.mark.parametrize("dictionary", [False, True])
def test_compressed_batches_are_refused_before_they_are_decompressed(saved: Path, codec: str, dictionary: bool) -> None:
    (file,) = (saved / "validation").glob("*.arrow")
    with pa.ipc.open_stream(file.read_bytes()) as stream:
        whole = stream.read_all()
    text = pa.array(["y" * 1000] * 2)
    whole = whole.set_column(0, "text", text.dictionary_encode() if dictionary else text)
    for compression, refused in ((None, False), (codec, True)):
        options = pa.ipc.IpcWriteOptions(compression=compression)
        with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_stream(sink, whole.schema, options=options) as writer:
            writer.write_table(whole)
        if refused:
            with pytest.raises(DataError, match=r"got message [12] is compressed; save the set with `save_to_disk`"):
                open_source(f"arrow:{saved}", "test", Reading())
        else:
            assert len(open_source(f"arrow:{saved}", "test", Reading()).index) == 2

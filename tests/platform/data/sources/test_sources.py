"""What holds of every kind of place that images are read from: parts, order, threads, damage, sizes, streams."""

import logging
import pickle
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from made_up_images import ENCODED, encoded, pixels, put_set

from ebclab.data.fitting import SampledSizes, look
from ebclab.data.photograph import Reading
from ebclab.data.sources.image_source import read_rows
from ebclab.data.sources.load import load_both, load_split, open_source, splits_of
from ebclab.errors import DataError

PIXELS = np.stack([pixels(number, 6, 6) for number in range(14)])
IMAGES = torch.from_numpy(PIXELS).permute(0, 3, 1, 2)
FILES = [encoded(each) for each in PIXELS]
LABELS = [0] * 4 + [1] * 3 + [2] * 3
KINDS = (*ENCODED, "tensors")
NAMES = {
    "folder": r"train/0/001\.png",
    "parquet": r"0\.parquet, row 1 of row group 0",
    "arrow": r"data\.arrow, row 1 of record batch 0",
    "webdataset": r"0\.tar, sample 001",
}


def write(kind: str, root: Path, files: list[bytes] = FILES, rows: int = 3) -> str:
    """Ten training images, and four for tests of the first classes."""
    if kind != "tensors":
        put_set(kind, root / "train", files[:10], LABELS, rows=rows)
        return put_set(kind, root / "test", files[10:], LABELS[:4], rows=rows)
    for part, some, labels in (("train", IMAGES[:10], LABELS), ("test", IMAGES[10:], LABELS[:4])):
        (root / part).mkdir()
        images = pa.FixedShapeTensorArray.from_numpy_ndarray(some.contiguous().numpy())
        pq.write_table(pa.table({"image": images, "label": labels}), root / part / "0.parquet", row_group_size=rows)
    return f"parquet:{root}"


@pytest.mark.parametrize("kind", KINDS)
def test_parts_have_their_images_in_order_and_the_statistics_of_training(tmp_path: Path, kind: str) -> None:
    name = write(kind, tmp_path)
    train, test = load_both(name, None)
    assert torch.equal(train.images, IMAGES[:10])
    assert torch.equal(test.images, IMAGES[10:])
    assert (train.labels.tolist(), test.labels.tolist()) == (LABELS, LABELS[:4])
    assert train.class_names == (("0", "1", "2") if kind == "folder" else ())
    assert len(set(train.keys.tolist())) == 10
    assert splits_of(name) == ("train", "test")
    shares = IMAGES[:10].double() / 255
    assert test.mean == train.mean == pytest.approx(shares.mean((0, 2, 3)).tolist())
    assert test.std == train.std == pytest.approx(shares.std((0, 2, 3), unbiased=False).tolist())
    for images, split in ((train, "train"), (test, "test")):
        alone = load_split(name, None, split)
        assert torch.equal(images.images, alone.images)
        assert torch.equal(images.keys, alone.keys)
        assert (images.class_names, images.mean, images.std) == (alone.class_names, alone.mean, alone.std)


@pytest.mark.parametrize("kind", KINDS)
def test_rows_are_read_in_any_order_by_any_threads_in_any_process(tmp_path: Path, kind: str) -> None:
    source = pickle.loads(pickle.dumps(open_source(write(kind, tmp_path), "train", Reading())))
    groups = [3, 3, 3, 1] if kind in ("parquet", "arrow", "tensors") else [1] * 10
    assert source.index.groups.unique_consecutive(return_counts=True)[1].tolist() == groups
    rows = torch.tensor([9, 0, 5, 4, 1, 5])
    for threads in (1, 4):
        assert torch.equal(read_rows(source, source.index.at(rows), threads).images, IMAGES[rows])


@pytest.mark.parametrize("kind", ENCODED)
def test_damaged_images_are_named_or_left_out_when_asked(tmp_path, caplog, kind):
    files = [file[: len(file) // 2] if row == 1 else b"nothing" if row == 5 else file for row, file in enumerate(FILES)]
    name = write(kind, tmp_path, files)
    with pytest.raises(DataError, match=rf"{NAMES[kind]}: not a readable image, got .*data\.skip_corrupt=true"):
        load_split(name, None, "train")
    with caplog.at_level(logging.WARNING, "ebclab.data"):
        images = load_split(name, None, "train", Reading(skip_corrupt=True))
    source = open_source(name, "train", Reading(skip_corrupt=True))
    good = [0, 2, 3, 4, 6, 7, 8, 9]
    assert torch.equal(images.keys, source.index.keys[good])
    assert torch.equal(images.images, IMAGES[good])
    (record,) = caplog.records
    assert record.getMessage().startswith("2 of 10 images left out (1 damaged or cut off, 1 of no known format): ")
    rows = source.index.at(torch.tensor([5, 1, 0, 2, 1]))
    one, many = (read_rows(source, rows, threads) for threads in (1, 4))
    assert one.good.tolist() == many.good.tolist() == [False, False, True, True, False]
    assert [each.kind for each in many.left_out] == ["of no known format", *["damaged or cut off"] * 2]
    assert one.left_out == many.left_out


@pytest.mark.parametrize("kind", ENCODED)
def test_a_first_group_of_damaged_images_alone_is_left_out_when_asked(tmp_path: Path, kind: str) -> None:
    name = write(kind, tmp_path, [b"nothing", b"", *FILES[2:]], rows=2)
    assert torch.equal(load_split(name, None, "train", Reading(skip_corrupt=True)).images, IMAGES[2:10])


@pytest.mark.parametrize("kind", KINDS)
def test_sizes_of_images_are_looked_at_in_few_groups(tmp_path: Path, kind: str) -> None:
    sizes = [(40 + row, 30) for row in range(14)]
    files = [encoded(pixels(row, 30, width)) for row, (width, _) in enumerate(sizes)]
    name = write(kind, tmp_path, files, rows=1)
    sample = look(open_source(name, "train", Reading()))
    if kind == "tensors":
        assert sample == SampledSizes(10, 3, [(6, 6)], True)
        return
    assert (sample.num_images, len(sample.sizes), sample.stored) == (
        10,
        4 if kind in ("parquet", "arrow") else 10,
        False,
    )
    assert set(sample.sizes) <= set(sizes)

"""Parquet sets: tensors or encoded images, with or without labels and index; every other table is explained."""

import io
from pathlib import Path
from typing import Any

import made_up_images
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from made_up_images import put

from ebclab.config.addresses import STORES
from ebclab.data.hashing import hash_words
from ebclab.data.photograph import Reading
from ebclab.data.sources import parquet
from ebclab.data.sources.load import load_split
from ebclab.data.sources.location import hash_of_path
from ebclab.data.sources.parquet import Chunks
from ebclab.errors import DataError

IMAGES = np.random.default_rng(0).integers(0, 256, (10, 3, 6, 6), dtype=np.uint8)


def tensors(images: np.ndarray = IMAGES) -> pa.Array:
    return pa.FixedShapeTensorArray.from_numpy_ndarray(images)


def encoded() -> list[bytes]:
    return [made_up_images.encoded(image.transpose(1, 2, 0)) for image in IMAGES]


def write(path: Path, rows_per_group: int = 4, **columns: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path, row_group_size=rows_per_group)
    return path


@pytest.mark.parametrize("kind", ["tensors", "bytes", "large bytes", "structs"])
def test_tensors_and_encoded_images_give_the_same_set(tmp_path: Path, kind: str) -> None:
    column = {
        "tensors": tensors,
        "bytes": lambda: pa.array(encoded()),
        "large bytes": lambda: pa.array(encoded(), pa.large_binary()),
        "structs": lambda: pa.array([{"bytes": file, "path": "x.png"} for file in encoded()]),
    }[kind]()
    write(tmp_path / "a.parquet", image=column, label=list(range(10)), index=list(range(100, 110)))
    found = load_split(f"parquet:{tmp_path}", None, "train")
    assert np.array_equal(found.images.numpy(), IMAGES)
    assert found.labels.tolist() == list(range(10))
    assert found.keys.tolist() == list(range(100, 110))
    assert found.mean == pytest.approx(tuple((IMAGES / 255).mean((0, 2, 3))))


def test_without_an_index_the_key_is_the_hash_of_file_and_row(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write(tmp_path / f"train/{name}.parquet", image=tensors())
    found = load_split(f"parquet:{tmp_path}", None, "train")
    expected = [hash_words(hash_of_path(f"{name}.parquet"), torch.arange(10)) for name in ("a", "b")]
    assert torch.equal(found.keys, torch.cat(expected))
    assert bool((found.labels == -1).all())
    single = load_split(f"parquet:{tmp_path}/train/a.parquet", None, "train")
    assert torch.equal(single.keys, expected[0])


def of_kind(shape: tuple[int, ...], values: Any, **options: Any) -> pa.Array:
    kind = pa.fixed_shape_tensor(pa.uint8(), shape, **options)
    storage = values if isinstance(values, pa.Array) else pa.array(values, kind.storage_type)
    return pa.ExtensionArray.from_storage(kind, storage)


def twice(name: str) -> pa.Table:
    columns = {"image": tensors(), "label": pa.array(range(10)), "index": pa.array(range(10))}
    return pa.Table.from_arrays([*columns.values(), columns[name]], [*columns, name])


def flipped() -> bytes:
    """A file of which a bit was changed."""
    file = io.BytesIO()
    pq.write_table(pa.table({"image": tensors()}), file, write_page_checksum=True, use_dictionary=False)
    content = bytearray(file.getvalue())
    content[len(content) // 2] ^= 1
    return bytes(content)


SOUND = pa.table({"image": tensors()})
LAST = tensors(IMAGES.transpose(0, 2, 3, 1).copy())
TOO_LARGE = pa.array([2**64 - 1] * 10, pa.uint64())
MEASURED = '{"class_names": [], "mean": [0.5], "std": %s}'
REFUSALS: dict[str, tuple[Any, str]] = {
    "channels last": ({"image": LAST}, r"holds no images, got extension<.*value_type=uint8, shape=\[6,6,3\]"),
    "channels last in memory": ({"image": of_kind((6, 6, 3), LAST.storage, permutation=[2, 0, 1])}, "holds no images"),
    "no image column": ({"pixels": [1], "label": [0]}, "data.image_column: .*has no column image, got columns pixels"),
    "no images in it": ({"image": ["text"]}, "data.image_column: image of .*a.parquet holds no images, got string"),
    "floats": ({"image": tensors(IMAGES.astype(np.float32)[:1])}, "image of .*a.parquet holds no images"),
    "label of lists": ({"image": tensors(), "label": [[1]] * 10}, "column label of .* must hold whole numbers or"),
    "too large labels": ({"image": tensors(), "label": TOO_LARGE}, "label_column: .* must hold whole numbers of 64"),
    "words for keys": ({"image": tensors(), "index": ["a"] * 10}, "column index of .* must hold whole numbers, got"),
    "index twice": ({"image": tensors(), "index": [7, 7, *range(8)]}, "column index of .* must differ .*, got 7 3"),
    "empty": ({"image": tensors().slice(0, 0)}, "data.name: parquet:.* holds no rows, got 1 empty files"),
    "an empty tensor": ({"image": of_kind((1, 2, 2), [[1] * 4, None])}, "group 0: tensors need all .*, got 1 that are"),
    "empty values": ({"image": of_kind((1, 2, 2), [[1, None, 1, None]])}, "tensors need all their values, got 2 that"),
    "two columns image": (twice("image"), "a.parquet has several columns called image; rename"),
    "two columns index": (twice("index"), "a.parquet has several columns called index; rename"),
    "two shapes": (
        {"a.parquet": SOUND, "b.parquet": pa.table({"image": tensors(IMAGES[..., :4])})},
        r"must be of one size, got .*a\.parquet of 6x6 and .*b\.parquet of 4x6 pixels",
    ),
    "two names": (
        {"a.parquet": pa.table({"one": encoded()}), "b.parquet": pa.table({"two": encoded()})},
        "must hold their images in one column, got one and two; rename one",
    ),
    "no files": ({"a.txt": b""}, r"files that end in \.parquet are needed in .*, got none, only 1 \.txt"),
    "a flipped bit": ({"a.parquet": flipped()}, r"a\.parquet: not a readable Parquet file, got .*; replace it"),
    "cut off": ({"a.parquet": b"PAR1"}, r"a\.parquet: not a readable Parquet file"),
    "a missing shard": (
        {"a.parquet": SOUND, "checksums.json": '{"b.parquet": {"bytes": 5}}'},
        r"b\.parquet: the set is not complete, the file is missing",
    ),
    "another shard": ({"checksums.json": '{"a.parquet": {"bytes": 5}}'}, r"a\.parquet: .* bytes instead of 5; copy it"),
    "a shard outside": ({"checksums.json": '{"../a.parquet": {"bytes": 7}}'}, "not complete, the file is missing"),
    "sums of numbers": ({"checksums.json": '{"a.parquet": 7}'}, "checksums.json: damaged, a.parquet"),
    "half a description": ({"dataset.json": "{"}, "dataset.json: damaged, "),
    "no mean": ({"dataset.json": '{"class_names": []}'}, "dataset.json: damaged, mean: Field required"),
    "no std": ({"dataset.json": MEASURED % "[]"}, "needs a mean and a std of at least 0"),
    "std below 0": ({"dataset.json": MEASURED % "[-1]"}, "needs a mean and a std of at least 0"),
    "std of no number": ({"dataset.json": MEASURED % "[NaN]"}, "needs a mean and a std of at least 0"),
    "deep lists": ({"dataset.json": "[" * 100_000}, "dataset.json: damaged, lists within lists"),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_files_that_are_no_image_set_are_explained_in_a_sentence(tmp_path: Path, case: str) -> None:
    files, message = REFUSALS[case]
    if isinstance(files, pa.Table) or not any("." in name for name in files):
        files = {"a.parquet": files if isinstance(files, pa.Table) else pa.table(files)}
    elif all(name.endswith(".json") for name in files):
        files = {"a.parquet": SOUND, **files}
    for name, held in files.items():
        if isinstance(held, pa.Table):
            pq.write_table(held, tmp_path / name)
        else:
            put(tmp_path / name, held)
    with pytest.raises(DataError, match=message) as caught:
        load_split(f"parquet:{tmp_path}", None, "train")
    assert "\n" not in str(caught.value)


def test_tensors_keep_their_size_and_labels_may_be_of_any_integers(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", image=tensors(), label=pa.array(range(10), pa.uint64()))
    assert load_split(f"parquet:{tmp_path}", None, "train").labels.tolist() == list(range(10))
    with pytest.raises(DataError, match=r"data.resize: the images of .*a\.parquet are tensors"):
        load_split(f"parquet:{tmp_path}", None, "train", Reading(resize=4))


def test_an_unreachable_bucket_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(STORES, "http://127.0.0.1:1")
    address = "gs://anonymous@bucket/set?endpoint_override=127.0.0.1:1&scheme=http&retry_limit_seconds=0.01"
    with pytest.raises(DataError) as caught:
        load_split(f"parquet:{address}", None, "train")
    assert "cannot be read, got" in str(caught.value)
    assert str(caught.value).endswith("check the address, the network and your credentials")
    assert "\n" not in str(caught.value)


def test_a_small_file_of_gigabytes_is_refused_before_it_is_read(tmp_path: Path) -> None:
    zeros = pa.array([bytes(1 << 20)])
    column = pa.chunked_array([pa.concat_arrays([zeros] * 32)] * 40)  # 1.3 GB
    table = pa.table({"image": column})
    pq.write_table(table, tmp_path / "a.parquet", compression="zstd", use_dictionary=False, row_group_size=1280)
    assert (tmp_path / "a.parquet").stat().st_size < 1 << 20
    with pytest.raises(DataError, match=r"a\.parquet: too large to be read, got a row group of 1,280 rows and 1,3"):
        load_split(f"parquet:{tmp_path}", None, "train")


def repeated(path: Path, values: list[bytes], places: list[int], **options: Any) -> Path:
    """A file that holds each value once, and where it occurs."""
    column = pa.DictionaryArray.from_arrays(pa.array(places, pa.int32()), pa.array(values)).cast(pa.binary())
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"image": column, "label": [0] * len(places)}), path, **options)
    return path


@pytest.fixture
def little_room(monkeypatch: pytest.MonkeyPatch) -> int:
    """A row group may become 10 MB."""
    monkeypatch.setattr(parquet, "_NEVER_A_BOMB", 10_000_000)
    monkeypatch.setattr(parquet, "_HIGHEST_RATIO", 1)
    return 10_000_000


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_a_value_that_occurs_often_is_refused_before_it_fills_memory(tmp_path, little_room, codec, version):
    first = encoded()[0]
    value = first + b"\0" * (30_000 - len(first))
    file = repeated(tmp_path / "x.parquet", [value], [0] * 10_000, compression=codec, data_page_version=version)
    assert file.stat().st_size < 100_000  # of 300 MB
    before = pa.default_memory_pool().max_memory()
    with pytest.raises(DataError, match=r"too large to be read, got a row group of 10,000 rows and [\d,]+ bytes"):
        load_split(f"parquet:{tmp_path}", None, "train")
    assert max(pa.default_memory_pool().max_memory() - before, 0) < 3 * little_room


def test_values_that_may_be_too_large_and_are_not_are_read_in_parts(tmp_path: Path, little_room: int) -> None:
    files = [each + b"\0" * 40_000 * (place == 3) for place, each in enumerate(encoded())]
    places = [0, 1, 2, 4, 5, 6, 7, 8, 9] * 60 + [3]
    repeated(tmp_path / "train" / "x.parquet", files, places)  # 541 values, each of which might be the largest
    found = load_split(f"parquet:{tmp_path}", None, "train").images
    assert torch.equal(found, torch.from_numpy(IMAGES)[places])


def test_the_footer_is_read_as_pyarrow_reads_it(tmp_path: Path) -> None:
    columns = {"text": ["a", "b"] * 50, "one": pa.array([{"bytes": b"x", "path": None}] * 100), "label": range(100)}
    pq.write_table(pa.table(columns | {"scale": [0.5] * 100}), tmp_path / "a.parquet", row_group_size=30)
    with pa.OSFile(str(tmp_path / "a.parquet")) as handle:
        groups = Chunks(handle).groups()
    metadata = pq.read_metadata(tmp_path / "a.parquet")
    assert [len(group) for group in groups] == [5] * metadata.num_row_groups == [5] * 4
    for number, group in enumerate(groups):
        for place, chunk in enumerate(group):
            expected = metadata.row_group(number).column(place)
            assert chunk.column == expected.path_in_schema.split(".")[0]
            assert (chunk.num_values, chunk.num_bytes) == (expected.num_values, expected.total_uncompressed_size)
            assert chunk.start == (expected.dictionary_page_offset or expected.data_page_offset)
            assert chunk.stored_bytes == expected.total_compressed_size
            types = ["BOOLEAN", "INT32", "INT64", "INT96", "FLOAT", "DOUBLE", "BYTE_ARRAY"]
            assert types[chunk.physical_type] == expected.physical_type


def test_a_footer_of_lists_within_lists_is_damage() -> None:
    content = b"PAR1" + b"\x19" * 5000 + (5000).to_bytes(4, "little") + b"PAR1"  # each byte begins a list of a list
    with pytest.raises(ValueError, match="a damaged footer"):
        Chunks(pa.BufferReader(content)).groups()


def test_pages_that_hold_other_numbers_of_values_than_stated_are_damage(tmp_path: Path) -> None:
    file = write(tmp_path / "train" / "x.parquet", image=tensors(), label=list(range(10)))
    content = bytearray(file.read_bytes())
    refused = 0
    for place in range(4, 40):  # the header of the first page, and pixels
        file.write_bytes(content[:place] + bytes([content[place] ^ 0x14]) + content[place + 1 :])
        try:
            load_split(f"parquet:{tmp_path}", None, "train")
        except DataError:
            refused += 1
    assert refused > 10  # the others change pixels, which have no checksums here

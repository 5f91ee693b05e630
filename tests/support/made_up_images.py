"""Made-up images and labels, written as people have them: folders, Parquet, saved Arrow datasets, tars."""

import io
import json
import struct
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

ENCODED = ("folder", "parquet", "arrow", "webdataset")
"""Kinds of sets that hold image files."""

IMAGE = pa.struct({"bytes": pa.binary(), "path": pa.string()})


def pixels(seed: int, height: int = 6, width: int = 5, channels: int = 3) -> np.ndarray:
    """Return random bytes (H, W, C)."""
    return np.random.default_rng(seed).integers(0, 256, (height, width, channels), dtype=np.uint8)


def encoded(picture: np.ndarray | Image.Image, form: str = "PNG", **options: Any) -> bytes:
    """Return an image file of a picture, or of pixels (H, W, C)."""
    buffer = io.BytesIO()
    whole = picture if isinstance(picture, Image.Image) else Image.fromarray(picture.squeeze())
    whole.save(buffer, form, **options)
    return buffer.getvalue()


def idx_bytes(array: np.ndarray) -> bytes:
    """Return bytes as a file of MNIST's format."""
    return bytes((0, 0, 8, array.ndim)) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def put(path: Path, content: bytes | str) -> Path:
    """Write a file and the folders above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def table(files: Sequence[bytes], labels: Any, names: list[str] | None = None, image: str = "image") -> pa.Table:
    """Return images and labels, with names of classes as Hugging Face's datasets writes them."""
    made = pa.table({image: pa.array([{"bytes": file, "path": None} for file in files], IMAGE), "label": labels})
    if names is None:
        return made
    features = {image: {"_type": "Image"}, "label": {"names": names, "_type": "ClassLabel"}}
    return made.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})


def put_arrow(path: Path, made: pa.Table, rows: int = 7) -> None:
    """Write a table in record batches of some rows, as the only file of a saved split."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, made.schema) as writer:
        writer.write_table(made, max_chunksize=rows)
    put(path.parent / "state.json", json.dumps({"_data_files": [{"filename": path.name}]}))


def put_tar(path: Path, members: Sequence[tuple[str, bytes]], *others: tarfile.TarInfo) -> Path:
    """Write files into a tar, and after the first of them members of other kinds."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w") as tar:
        for number, (name, content) in enumerate(members):
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
            for other in others if number == 0 else ():
                tar.addfile(other)
    return path


def put_set(
    kind: str, part: Path, files: Sequence[bytes], labels: Any, names: list[str] | None = None, rows: int = 7
) -> str:
    """Write a part of a set, in groups of some rows where there are any; return the name of the set."""
    if kind == "folder":
        for number, (file, label) in enumerate(zip(files, labels, strict=True)):
            put(part / str(label) / f"{number:03}.png", file)
    elif kind == "parquet":
        part.mkdir(parents=True, exist_ok=True)
        pq.write_table(table(files, labels, names), part / "0.parquet", row_group_size=rows)
    elif kind == "arrow":
        put_arrow(part / "data.arrow", table(files, labels, names), rows)
        put(part.parent / "dataset_dict.json", '{"splits": ["train", "test"]}')
    else:
        members = []
        for number, (file, label) in enumerate(zip(files, labels, strict=True)):
            label_file = ("cls", label) if isinstance(label, str) else ("json", json.dumps({"label": label}))
            members += [(f"{number:03}.png", file), (f"{number:03}.{label_file[0]}", label_file[1].encode())]
        put_tar(part / "0.tar", members)
    return f"{kind}:{part.parent}"

"""Features of a dataset's images: finds those that are most similar to given ones, or writes all for other programs.

Shapes: n images of the dataset, Q images searched for, D numbers of a feature.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional

from ebclab.background import logged
from ebclab.card.card import CardFolder
from ebclab.card.images import class_and_file, named_set, parts_of
from ebclab.card.measuring import FeatureStore
from ebclab.card.request import CardRequest, SearchRequest
from ebclab.card.subject import Subject, open_subject
from ebclab.config.addresses import PARQUET, absolute, is_address
from ebclab.config.options import option_problems
from ebclab.config.yaml_text import JsonObject
from ebclab.data.holdout import limit
from ebclab.data.image_grid import Tile, as_png, draw_grid
from ebclab.data.image_set import ImageSet
from ebclab.data.photograph import DAMAGE, LeftOut, Reading, decode_image
from ebclab.document.document import CellValue, Document, Facts, Picture, Remark, Section, Table, numeric
from ebclab.errors import DataError, RunError, UserError
from ebclab.evaluation.progress import OnProgress, silent
from ebclab.formatting import count
from ebclab.hardware import as_before, num_cores, set_threads
from ebclab.regular_file import read_regular
from ebclab.reports.place import page_place
from ebclab.runs.evaluate import checkpoint_name
from ebclab.storage import atomic

_LARGEST = 256 << 20  # bytes of one image file
_ACROSS = 7  # images in a row of a picture
_NO_FILES = (
    "A prepared set keeps no file names: images are named by their part and their place in it, from 0; "
    "--dataset folder:PATH searches the files themselves."
)


@dataclass(frozen=True)
class SearchResult:
    """The images found for each given one."""

    tables: tuple[Table, ...]
    page: str  # path or address
    note: str = ""  # why images found have no file names; empty if they have


@as_before()
def search(request: SearchRequest, on_progress: OnProgress = silent) -> SearchResult:
    """Find the images most similar to each given one, by cosine of features, and write the page."""
    if problems := option_problems(request):
        raise UserError("\n".join(problems))
    place = page_place(request.to, (), "search.html")
    contents = [_content(file) for file in request.images]
    subject = open_subject(request.encoder, checkpoint_name(request.checkpoint))
    measured = named_set(request.dataset, subject, request.data_root, needs_test=False)
    parts = parts_of(measured)
    channels, height, width = measured.train.images.shape[1:]
    colour: Literal["rgb", "grey"] = "rgb" if channels == 3 else "grey"
    seen = subject.preprocessing
    side = height if height == width else 0  # images that are not cropped are squeezed
    reading = Reading(side, colour, decoding=seen.decoding, resampling=seen.resampling)
    decoded = [_decoded(*each, reading) for each in zip(request.images, contents, strict=True)]
    queries = torch.stack([_fitting(each, height, width) for each in decoded])
    set_threads(num_cores())
    store = _store(subject, request.dataset)
    bank = torch.cat([_features(store, subject, name, each, on_progress) for name, each in parts.items()])
    given = subject.features(queries, silent, "features of given images")
    cosines = functional.normalize(given, dim=1) @ functional.normalize(bank, dim=1).T
    found = cosines.topk(min(request.count, len(bank)), dim=1)
    names = [row for part, each in parts.items() for row in class_and_file(part, each, measured.name)]
    tables, sections, every = [], [], list(parts.values())
    for file, query, likeness, rows in zip(request.images, queries, found.values, found.indices, strict=True):
        cosine = cosines_apart(likeness.tolist())
        nearest = list(zip(cosine, likeness.tolist(), rows.tolist(), strict=True))
        tables.append(_table(Path(file).name, [(numeric(text, value), *names[row]) for text, value, row in nearest]))
        shown = [Tile(query, "searched for")]
        shown += [Tile(_image(every, row), f"{rank}: {text}") for rank, (text, _, row) in enumerate(nearest, 1)]
        png = as_png(draw_grid([shown[start : start + _ACROSS] for start in range(0, len(shown), _ACROSS)]))
        picture = Picture(f"found-{len(tables)}", "Most similar images", "With rank and cosine.", png)
        sections.append(Section(Path(file).name, (picture, replace(tables[-1], title=""))))
    sizes = ", ".join(count(len(each), f"{part} image") for part, each in parts.items())
    facts = {"encoder": f"{subject.address}: {subject.origin}", "images": f"{measured.name}: {sizes}"}
    note = _NO_FILES if measured.name.startswith(PARQUET) else ""
    head = Section(
        f"Images most similar to {Path(request.images[0]).name if len(queries) == 1 else f'{len(queries)} images'}",
        (
            Facts(tuple(facts.items())),
            Remark("Similarity is the cosine of features: 1 is the same direction.", "note"),
            *([Remark(note, "note")] if note else []),
        ),
        is_head=True,
    )
    beside = ", ".join(place.path.with_suffix(suffix).name for suffix in (".csv", ".json"))
    document = Document("search", "search", "search", (head, *sections), f"The same as {beside}, beside this page.")
    rows = tuple((file, *row) for file, table in zip(request.images, tables, strict=True) for row in table.rows)
    columns = ("searched for", *tables[0].columns)
    plain = [dict(zip(columns, (getattr(cell, "value", cell) for cell in row), strict=True)) for row in rows]
    return SearchResult(tuple(tables), place.write(document, Table("", columns, rows), plain), note)


def _content(file: str) -> bytes:
    try:
        return read_regular(Path(file), _LARGEST)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        order = "; the encoder comes first" if Path(file).is_dir() else ""
        raise UserError(f"IMAGE: cannot be read, got {file}: {reason}; name an image file{order}") from error


def _decoded(file: str, content: bytes, reading: Reading) -> Tensor:
    try:
        return decode_image(content, reading)
    except DAMAGE as error:
        raise DataError(f"IMAGE: {LeftOut.because(file, error)}; name an image file") from error


def _store(subject: Subject, dataset: str | None) -> FeatureStore:
    """Return the features that cards of a run and earlier searches kept, if its folder can be written to."""
    folder = subject.card_folder(dataset)
    return FeatureStore(None if folder is None or atomic.refusal(folder) else CardFolder(folder).features)


def _features(store: FeatureStore, subject: Subject, part: str, images: ImageSet, on_progress: OnProgress) -> Tensor:
    name = store.name(subject, images)
    if (known := store.known(name, len(images))) is None:
        known = subject.features(images.images, on_progress, f"features of {part} images")
        with logged():  # a full disk does not end a search
            store.keep(name, known)
    return known


def cosines_apart(cosines: Sequence[float]) -> list[str]:
    """Return cosines with three digits, or as many more, up to the six that are exact, as tell them apart."""
    for digits in range(3, 7):
        texts = [f"{value:.{digits}f}" for value in cosines]
        if len(set(texts)) == len(set(cosines)):
            break
    return texts


def _table(title: str, found: Sequence[tuple[CellValue, str, str]]) -> Table:
    rows = tuple((rank, *each) for rank, each in enumerate(found, 1))
    return Table(title, ("rank", "similarity", "class", "image"), rows)


def _image(parts: Sequence[ImageSet], row: int) -> Tensor:
    """Return an image by its row in all parts, which may have images of other sizes than each other."""
    first, *others = parts
    return first.images[row] if row < len(first) else _image(others, row - len(first))


def _fitting(image: Tensor, height: int, width: int) -> Tensor:
    """Return an image scaled to the size of the dataset's images."""
    if image.shape[1:] == (height, width):
        return image
    scaled = functional.interpolate(image[None].float(), (height, width), mode="bilinear", antialias=True)
    return scaled[0].round().clamp(0, 255).byte()


SUFFIXES = (".npz", ".parquet")

Columns = dict[str, npt.NDArray[Any]]
"""Arrays with a row for each image."""


def write_features(request: CardRequest, on_progress: OnProgress = silent) -> str:
    """Write the features of the images that a card would measure; return a sentence about the file."""
    if problems := request.problems():
        raise UserError("\n".join(problems))
    path = _target(request.features or "")
    subject = open_subject(request.encoders[0], checkpoint_name(request.checkpoint))
    if request.scaling is not None:
        subject = subject.scaled(*request.scaling)
    dataset = request.datasets[0] if request.datasets else None
    measured = named_set(dataset, subject, request.data_root, needs_test=False)
    set_threads(num_cores())
    tables: list[Columns] = []
    for part, whole in parts_of(measured).items():
        images = limit(whole, request.train_limit if part == "train" else request.test_limit)
        features = subject.features(images.images, on_progress, f"features of {part} images")
        names = np.array(class_and_file(part, images, measured.name), dtype=np.str_).reshape(-1, 2)
        tables.append(
            {
                "features": features.numpy(),
                "part": np.full(len(images), part),
                "label": images.labels.numpy(),
                "class": names[:, 0],
                "key": images.keys.numpy(),
                "image": names[:, 1],
            }
            | ({} if images.marks is None else {"marks": images.marks.numpy()})
        )
    columns = {name: np.concatenate([table[name] for table in tables]) for name in tables[0]}
    facts = _facts(subject, request.checkpoint, measured.name, measured.train.class_names)
    try:
        with atomic.written_aside(path) as file:
            (_write_npz if path.suffix == ".npz" else _write_parquet)(file, columns, facts)
    except OSError as error:
        raise RunError(f"--features: cannot be written, got {path}: {error.strerror or error}") from error
    count, size = columns["features"].shape
    return f"wrote {path}: {count:,} images, {size:,} features each"


def _target(given: str) -> Path:
    """Return the path of the file to write; refuse one that cannot be, before anything is computed."""
    path = absolute(given)
    if is_address(given) or path.suffix not in SUFFIXES:
        raise UserError(f"--features: a file on a disk, .npz or .parquet, is needed, got {given}")
    if not path.parent.is_dir():
        raise UserError(f"--features: no such folder, got {path.parent}; make it first")
    return path


def _facts(subject: Subject, checkpoint: str, dataset: str, class_names: tuple[str, ...]) -> JsonObject:
    return {
        "format": 1,
        "encoder": subject.address,
        "origin": subject.origin,
        "digest": subject.digest,
        "checkpoint": checkpoint if subject.trained else None,
        "step": subject.trained.step if subject.trained else None,
        "preprocessing": asdict(subject.preprocessing),
        "dataset": dataset,
        "class_names": list(class_names),
    }


def _write_npz(file: BinaryIO, columns: Columns, facts: JsonObject) -> None:
    arrays: dict[str, Any] = {**columns, "metadata": np.array(json.dumps(facts))}
    np.savez(file, **arrays)


def _write_parquet(file: BinaryIO, columns: Columns, facts: JsonObject) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    arrays = {
        name: pa.array(values)
        if values.ndim == 1
        else pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), values.shape[1])
        for name, values in columns.items()
    }
    table = pa.table(arrays).replace_schema_metadata({"ebclab": json.dumps(facts)})
    parquet.write_table(table, file)

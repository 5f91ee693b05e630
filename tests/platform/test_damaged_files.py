"""Real files, damaged at random with a fixed seed: every reader returns its kind of value or one sentence of ours."""

import gzip
import io
import json
import pickle
import random
import resource
import shutil
import signal
import tarfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
import yaml
from PIL import Image

from ebclab.config import ExperimentConfig
from ebclab.data.image_set import ImageSet
from ebclab.data.sources.load import load_split
from ebclab.data.sources.stored_files import read_cifar_batch, read_idx
from ebclab.errors import UserError
from ebclab.evaluation.answers import Answers
from ebclab.export.encoder_folder import LoadedEncoder, load_encoder
from ebclab.export.run import _scores
from ebclab.reports.reading import read_sweep
from ebclab.runs.folder import RunFolder
from ebclab.runs.metrics_log import MetricsLog
from ebclab.runs.summary import RunSummary
from ebclab.runs.trained_encoder import TrainedEncoder, load_trained_encoder
from ebclab.sweeps.folder import SweepFolder
from ebclab.sweeps.log import SweepLog
from ebclab.sweeps.plan import SweepPlan
from ebclab.sweeps.results import SweepResult, ranked

OLD = Path(__file__).parents[1] / "folders" / "made_by_0.1"
DAMAGES = 150  # of each file
SECONDS = 5  # for each of them
MEMORY = 1 << 20  # KiB that the process may grow by
OTHERS = [None, True, -1, 0, 2**63, 10**30, 1e308, 0.5, "", "x", "nan", "../../x", "\ud800", [], [[]], {}, {"a": [1]}]
"""Values that take the place of those in a JSON file."""

Damage = Callable[[bytes, random.Random], bytes]


def of_bytes(content: bytes, chance: random.Random) -> bytes:
    """Return ``content`` with a few bits flipped, cut off, with bytes put in or left out, or a part of it twice."""
    changed, place = bytearray(content), chance.randrange(len(content))
    length = chance.randint(1, 40)
    match chance.randrange(5):
        case 0:
            for _ in range(chance.randint(1, 8)):
                changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
        case 1:
            del changed[place:]
        case 2:
            changed[place:place] = chance.randbytes(length)
        case 3:
            del changed[place : place + length]
        case _:
            changed[place:place] = changed[max(place - length, 0) : place] * chance.randint(1, 100)
    return bytes(changed)


def of_json(content: bytes, chance: random.Random) -> bytes:
    """Return JSON with one value of another type or without one of its keys; sometimes damaged as bytes."""
    if chance.random() < 0.3:
        return of_bytes(content, chance)
    whole = [json.loads(content)]
    places: list[tuple[Any, Any]] = []
    level: list[Any] = [whole]
    while level:
        inside = level.pop()
        keys = list(inside) if isinstance(inside, dict) else range(len(inside))
        places += [(inside, key) for key in keys]
        level += [inside[key] for key in keys if isinstance(inside[key], dict | list)]
    inside, key = chance.choice(places)
    if isinstance(inside, dict) and chance.random() < 0.3:
        del inside[key]
    else:
        inside[key] = chance.choice(OTHERS)
    return json.dumps(whole[0]).encode()


def of_settings(content: bytes, chance: random.Random) -> bytes:
    """Return YAML that is damaged as bytes, or as JSON, which is YAML too."""
    if chance.random() < 0.4:
        return of_bytes(content, chance)
    return of_json(json.dumps(yaml.safe_load(content)).encode(), chance)


def of_lines(content: bytes, chance: random.Random) -> bytes:
    """Return JSON lines of which a few are damaged."""
    lines = content.splitlines()
    for number in chance.sample(range(len(lines)), min(len(lines), chance.randint(1, 4))):
        lines[number] = of_json(lines[number], chance)
    joined = b"\n".join(lines) + b"\n"
    return of_bytes(joined, chance) if chance.random() < 0.2 else joined


@contextmanager
def seconds_at_most(seconds: int) -> Iterator[None]:
    def stop(*_: object) -> None:
        raise TimeoutError(f"not read in {seconds} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@pytest.fixture(params=["first", pytest.param("others", marks=pytest.mark.slow)])
def seeds(request: pytest.FixtureRequest) -> list[int]:
    """A third of the damages, or in the second tier the others."""
    return [seed for seed in range(DAMAGES) if (seed % 3 == 0) == (request.param == "first")]


def withstands(
    seeds: list[int], path: Path, damage: Damage, read: Callable[[], object], kind: type | tuple[type, ...]
) -> None:
    """Damage the file again and again; require a value of ``kind`` or an error of ours within a few seconds."""
    content = path.read_bytes()
    assert isinstance(read(), kind)
    sentences: list[bytes] = []
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    try:
        for seed in seeds:
            damaged = damage(content, random.Random(seed))
            path.write_bytes(damaged)
            try:
                with seconds_at_most(SECONDS):
                    assert isinstance(read(), kind)
            except UserError as error:
                sentences.append(str(error).encode())
            except BaseException as error:
                error.add_note(f"damage {seed}: {damaged[:3000]!r}")
                raise
    finally:
        path.write_bytes(content)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - grown < MEMORY
    assert all(sentences)


@pytest.fixture(scope="module")
def copied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("old") / "made_by_0.1"
    shutil.copytree(OLD, target)
    with suppress(ImportError):  # a damaged name of an encoder imports it, which takes seconds
        import_module("timm")
    return target


@pytest.mark.parametrize("name", ["config", "manifest", "result", "metrics", "evaluation", "answers", "encoder"])
def test_files_of_a_run(seeds: list[int], copied: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    run = RunFolder(copied / "runs" / "finished")
    trained = load_trained_encoder(run)
    manifest = sorted(run.checkpoints.glob("last-*"))[-1] / "manifest.json"
    exported = copied / "expected" / "run"
    run.write_answers(Answers.of(torch.ones(2, 50, dtype=torch.bool), torch.arange(50)))
    cases: dict[str, tuple[Path, Damage, Callable[[], object], type]] = {
        "config": (run.config_path, of_settings, run.read_config, ExperimentConfig),
        "manifest": (manifest, of_json, lambda: load_trained_encoder(run), TrainedEncoder),
        "result": (run.result, of_json, lambda: RunSummary.read(run.result, "it"), RunSummary),
        "metrics": (run.metrics.path, of_lines, lambda: [*MetricsLog(run.metrics.path).records()], list),
        "evaluation": (run.path / "evaluation.json", of_json, lambda: _scores(run, trained)[0], list),
        "answers": (run.answers_path, of_json, run.read_answers, Answers),
        "encoder": (exported / "encoder.json", of_json, lambda: load_encoder(exported), LoadedEncoder),
    }
    if name != "config":  # what is not damaged is read once
        config = run.read_config()
        monkeypatch.setattr(RunFolder, "read_config", lambda *_: config)
    withstands(seeds, *cases[name])


@pytest.mark.parametrize("name", ["plan", "result", "trials", "report"])
def test_files_of_a_sweep(seeds: list[int], copied: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sweep = copied / "sweeps" / "sweep"
    plan, log = sweep / "sweep.yaml", sweep / "trials.jsonl"
    cases: dict[str, tuple[Path, Damage, Callable[[], object], type]] = {
        "plan": (plan, of_settings, SweepFolder(sweep).read_plan, SweepPlan),
        "result": (sweep / "result.json", of_json, lambda: SweepResult.read(sweep / "result.json"), SweepResult),
        "trials": (log, of_lines, lambda: ranked(SweepLog(log).of_kind("search")), list),
        "report": (log, of_lines, lambda: read_sweep(sweep).log, SweepLog),
    }
    if name == "report":
        read = SweepFolder(sweep).read_plan()
        monkeypatch.setattr(SweepFolder, "read_plan", lambda *_: read)
    withstands(seeds, *cases[name])


@pytest.mark.parametrize("file", ["dataset.json", "checksums.json", "a.parquet"])
def test_files_of_a_parquet_set(seeds: list[int], tmp_path: Path, file: str) -> None:
    images = np.random.default_rng(0).integers(0, 256, (6, 3, 4, 4), dtype=np.uint8)
    table = pa.table({"image": pa.FixedShapeTensorArray.from_numpy_ndarray(images), "label": [0, 1, 2] * 2})
    pq.write_table(table, tmp_path / "a.parquet", write_page_checksum=True)
    size = (tmp_path / "a.parquet").stat().st_size
    if file == "checksums.json":
        (tmp_path / file).write_text(json.dumps({"a.parquet": {"bytes": size, "sha256": "0" * 64}}))
    if file == "dataset.json":
        described = {"class_names": ["a", "b", "c"], "mean": [0.1, 0.2, 0.3], "std": [0.1, 0.2, 0.3]}
        (tmp_path / file).write_text(json.dumps(described))
    damage = of_json if file.endswith("json") else of_bytes
    withstands(seeds, tmp_path / file, damage, lambda: load_split(f"parquet:{tmp_path}", None, "train"), ImageSet)


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_idx_files(seeds: list[int], tmp_path: Path, suffix: str) -> None:
    content = bytes((0, 0, 8, 3, 0, 0, 0, 5, 0, 0, 0, 4, 0, 0, 0, 4)) + bytes(range(80))
    path = tmp_path / f"images{suffix}"
    path.write_bytes(gzip.compress(content, mtime=0) if suffix else content)
    withstands(seeds, path, of_bytes, lambda: tuple(read_idx(path, 3).shape), tuple)


def test_cifar_batches(seeds: list[int], tmp_path: Path) -> None:
    images = np.random.default_rng(0).integers(0, 256, (3, 3072), dtype=np.uint8)
    path = tmp_path / "data_batch_1"
    path.write_bytes(pickle.dumps({"data": images, "labels": [1, 2, 3]}, protocol=2))

    def in_the_frame(content: bytes, chance: random.Random) -> bytes:
        """Damage what is around the pixels, which say nothing."""
        return of_bytes(content[:200], chance) + content[200:-60] + of_bytes(content[-60:], chance)

    withstands(seeds, path, in_the_frame, lambda: read_cifar_batch(path), tuple)


def encoded(kind: str = "PNG", **options: Any) -> bytes:
    pixels, file = np.random.default_rng(0).integers(0, 256, (9, 9, 3), dtype=np.uint8), io.BytesIO()
    Image.fromarray(pixels).save(file, kind, **options)
    return file.getvalue()


DAMAGED_IMAGES = pytest.mark.filterwarnings("ignore::UserWarning:PIL", "ignore::PIL.Image.DecompressionBombWarning")


@DAMAGED_IMAGES
@pytest.mark.parametrize("kind", ["PNG", "JPEG", "progressive JPEG", "GIF", "TIFF", "WEBP"])
def test_images(seeds: list[int], tmp_path: Path, kind: str) -> None:
    name = kind.split()[-1]
    path = tmp_path / f"a.{name.lower()}"
    path.write_bytes(encoded(name, **({"progressive": True} if kind.startswith("progressive") else {})))
    withstands(seeds, path, of_bytes, lambda: load_split(f"folder:{tmp_path}", None, "train"), ImageSet)


def of_dataset_file(content: bytes, chance: random.Random) -> bytes:
    """Damage a file as bytes; half of the time put the largest and smallest numbers where a length may be."""
    if chance.random() < 0.5:
        return of_bytes(content, chance)
    changed, width = bytearray(content), chance.choice([1, 2, 4, 8])
    place = chance.randrange(len(changed) - width)
    largest = (2 ** (8 * width - 1) - 1).to_bytes(width, "little")
    changed[place : place + width] = chance.choice([b"\xff" * width, bytes(width), largest, largest[::-1]])
    return bytes(changed)


def tar_of(form: int) -> bytes:
    """Return three images with labels, under short, long and accented names."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=form) as tar:
        for label, prefix in enumerate(("", "é", "a" * 120)):
            for suffix, content in (("png", encoded()), ("cls", b"%d" % label)):
                member = tarfile.TarInfo(f"{prefix}{label}.{suffix}")
                member.size, member.mtime = len(content), 1.5
                tar.addfile(member, io.BytesIO(content))
    return file.getvalue().rstrip(b"\0") + bytes(1024)


def table_of_images(kind: str) -> pa.Table:
    fields = pa.struct({"bytes": pa.binary(), "path": pa.string()})
    files = [encoded()] * 6
    columns = {"bytes": pa.array(files), "structs": pa.array([{"bytes": file, "path": "x"} for file in files], fields)}
    words = pa.array(["ant", "bee", "cat"] * 2).dictionary_encode()
    labels = {"bytes": [0, 1, 2] * 2, "structs": words}
    named = {"info": {"features": {"label": {"names": ["ant", "bee", "cat"], "_type": "ClassLabel"}}}}
    table = pa.table({"image": columns[kind], "label": labels[kind], "text": words})
    return table.replace_schema_metadata({"huggingface": json.dumps(named)})


def arrow_stream() -> bytes:
    file, table = io.BytesIO(), table_of_images("structs")
    with pa.ipc.new_stream(file, table.schema) as writer:
        writer.write_table(table, max_chunksize=2)
    return file.getvalue()


def parquet_of(kind: str, **options: Any) -> bytes:
    file = io.BytesIO()
    pq.write_table(table_of_images(kind), file, row_group_size=4, **options)
    return file.getvalue()


DATASET_FILES: dict[str, tuple[str, str, Callable[[], bytes]]] = {
    "GNU tar": ("webdataset", "a.tar", lambda: tar_of(tarfile.GNU_FORMAT)),
    "PAX tar": ("webdataset", "a.tar", lambda: tar_of(tarfile.PAX_FORMAT)),
    "Parquet of bytes": ("parquet", "a.parquet", lambda: parquet_of("bytes", compression="zstd")),
    "Parquet of structs": ("parquet", "a.parquet", lambda: parquet_of("structs", data_page_version="2.0")),
    "Arrow": ("arrow", "a.arrow", arrow_stream),
}


@DAMAGED_IMAGES
@pytest.mark.parametrize("kind", [*DATASET_FILES])
def test_files_of_datasets(seeds: list[int], tmp_path: Path, kind: str) -> None:
    scheme, name, content = DATASET_FILES[kind]
    (tmp_path / "state.json").write_text(json.dumps({"_data_files": [{"filename": name}]}))
    (tmp_path / name).write_bytes(content())
    withstands(
        seeds, tmp_path / name, of_dataset_file, lambda: load_split(f"{scheme}:{tmp_path}", None, "train"), ImageSet
    )

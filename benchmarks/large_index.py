"""Processor seconds until the first batch of a million images can be read: index, plan, order.

    python benchmarks/large_index.py [--images N]

The images are made up: an image folder of a thousand classes whose files are links to a few JPEGs, a Parquet set, a
saved Hugging Face dataset, and, a tenth as large, a WebDataset. Each set is measured in a process of its own. Seconds
are of the processor, so that other work on the machine does not count.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import pickle
import resource
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import process_time

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from page import exit_code, write_page
from PIL import Image

from ebclab.config import compose
from ebclab.data.delivery.ray_data.pipeline import StreamPlan, usual_rows_per_block
from ebclab.data.holdout import limited, rows_of_parts
from ebclab.data.image_set import stream_digest
from ebclab.data.photograph import Reading
from ebclab.data.preprocessing import Preprocessing
from ebclab.data.sources.image_source import read_rows, statistics_rows
from ebclab.data.sources.load import open_source
from ebclab.data.views.pipeline import ViewSettings

CLASSES = 1000
GOAL = 10  # processor seconds of the whole
STEPS = {
    "index": "list files, read labels, make keys",
    "choose": "limit, held-out images, digest",
    "send": "plan to bytes and back, as a task gets it",
    "first": "order of the epoch and the first block's rows",
    "next": "rows of each further block",
    "read": "read and decode the first block",
}


def jpeg(shade: int) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (64, 64), (shade % 256, 90, 30)).save(buffer, "JPEG")
    return buffer.getvalue()


def write_folder(root: Path, count: int) -> str:
    for label in range(CLASSES):
        folder = root / f"set/train/n{label:08d}"
        folder.mkdir(parents=True)
        first = folder / f"n{label:08d}_0.JPEG"
        first.write_bytes(jpeg(label))
        for number in range(1, count // CLASSES):
            os.link(first, folder / f"n{label:08d}_{number}.JPEG")
    return f"folder:{root}/set"


def table_of(count: int) -> pa.Table:
    images = [jpeg(shade) for shade in range(256)]
    labels = np.arange(count) % CLASSES
    return pa.table({"image": pa.array([images[number % 256] for number in range(count)]), "label": labels})


def write_parquet(root: Path, count: int) -> str:
    for part in range(10):
        pq.write_table(table_of(count // 10), root / f"train-{part}.parquet", row_group_size=1024)
    return f"parquet:{root}"


def write_arrow(root: Path, count: int) -> str:
    table = table_of(count // 10)
    names = [f"data-{part:05d}-of-00010.arrow" for part in range(10)]
    for name in names:
        with pa.OSFile(str(root / name), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table, max_chunksize=1000)
    (root / "state.json").write_text(json.dumps({"_data_files": [{"filename": name} for name in names]}))
    return f"arrow:{root}"


def write_webdataset(root: Path, count: int) -> str:
    count //= 10
    for shard in range(10):
        with tarfile.open(root / f"train-{shard:04d}.tar", "w") as tar:
            for number in range(count // 10):
                for ending, content in (("jpg", jpeg(number)), ("cls", b"%d" % (number % CLASSES))):
                    member = tarfile.TarInfo(f"{number:06d}.{ending}")
                    member.size = len(content)
                    tar.addfile(member, io.BytesIO(content))
    return f"webdataset:{root}"


SETS: dict[str, Callable[[Path, int], str]] = {
    "folder": write_folder,
    "parquet": write_parquet,
    "arrow": write_arrow,
    "webdataset": write_webdataset,
}


def measure(name: str) -> dict[str, float]:
    """Return the processor seconds of each step for the set ``name``, its rows and the peak memory in MB."""
    torch.set_num_threads(1)
    config = compose("simclr", overrides=[f"data.name={name}", "views.recipe=simclr-imagenet", "data.resize=64"])
    marks = [process_time()]
    source = open_source(name, "train", Reading.of(config.data))
    marks.append(process_time())
    keys = source.index.keys
    statistics_rows(keys)
    train, holdout, _ = map(source.index.at, rows_of_parts(keys, len(keys) * 9 // 10, 0.1, 0.05))
    parts = ((part.keys, part.labels) for part in (train, holdout))
    stream_digest(*parts, class_names=source.class_names, files_digest=source.files_digest)
    for part in (train, holdout):
        limited(part.keys, config.evaluation.knn_bank_limit)
    marks.append(process_time())
    settings = ViewSettings(config.views, Preprocessing(224, (0.5,) * 3, (0.5,) * 3), 0, 256)
    made = StreamPlan(source, train, settings, usual_rows_per_block(len(train), 64 * 64 * 3))
    planned: StreamPlan = pickle.loads(pickle.dumps(made))
    marks.append(process_time())
    rows = planned.block_rows(0, 0)
    marks.append(process_time())
    for number in range(1, 11):
        planned.block_rows(0, number)
    marks.append(process_time())
    read_rows(planned.source, planned.train.at(rows))
    marks.append(process_time())
    found = {step: after - before for step, before, after in zip(STEPS, marks, marks[1:], strict=False)}
    found["next"] /= 10
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {**found, "rows": len(keys), "block": len(rows), "peak": peak}


def seconds_of(found: dict[str, float]) -> float:
    """Return the processor seconds that a start needs before its first block."""
    return sum(found[step] for step in STEPS if step != "next")


def line_of(kind: str, found: dict[str, float]) -> str:
    """Return a line of the table."""
    cells = [f"{found[step]:.2f}" if step != "next" else f"{found[step]:.4f}" for step in STEPS]
    return f"| `{kind}:` | {found['rows']:,} | {' | '.join(cells)} | {seconds_of(found):.1f} | {found['peak']:,.0f} |"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=1_000_000, help="images of each set, a multiple of 1,000")
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.measure:
        print(json.dumps(measure(asked.measure)))
        return 0
    whole = []
    lines = [f"| set | images | {' | '.join(STEPS)} | whole, goal {GOAL} s | peak memory, MB |", "|---" * 10 + "|"]
    for kind, write in SETS.items():
        with tempfile.TemporaryDirectory() as folder:
            name = write(Path(folder), asked.images)
            done = subprocess.run(
                [sys.executable, __file__, "--measure", name], check=True, capture_output=True, text=True
            )
        found = json.loads(done.stdout.splitlines()[-1])
        lines.append(line_of(kind, found))
        whole.append((f"{kind}, s", seconds_of(found), GOAL))
    explained = "\n".join(f"- {step}: {what}" for step, what in STEPS.items())
    page = "\n".join(lines) + f"\n\nProcessor seconds, one process, one thread.\n\n{explained}"
    packages = ("ebclab", "torch", "pyarrow", "pillow")
    write_page("large_index", "A million images", "`python benchmarks/large_index.py`", packages, page)
    return exit_code(whole)


if __name__ == "__main__":
    sys.exit(main())

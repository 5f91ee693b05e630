"""Plans of streams, without Ray: each source gives every image once an epoch, and a large index is sorted once."""

from __future__ import annotations

import itertools
import pickle
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from made_up_images import encoded, pixels, put_set
from made_up_layouts import write_imagenet, write_stl10
from ray.exceptions import RayError
from torch import Tensor

from ebclab.config import compose
from ebclab.data.delivery.ray_data import driver, pipeline, plan
from ebclab.data.delivery.ray_data.plan import StreamPlan
from ebclab.data.delivery.ray_data.worker import user_error_in
from ebclab.data.delivery.view_settings import ViewSettings
from ebclab.data.holdout import held_out
from ebclab.data.preprocessing import Preprocessing
from ebclab.data.sources.decode import Reading
from ebclab.data.sources.image_source import RowIndex, Statistics, read_rows
from ebclab.data.sources.layouts.every_layout import classes_of_imagenet100
from ebclab.data.sources.load import load_split, open_source
from ebclab.errors import ConfigError, DataError, UserError

FILES = [encoded(pixels(number)) for number in range(10)]
VIEWS = compose("simclr", overrides=["views.recipe=none"]).views


def plan_of(source: Any, index: RowIndex, rows_per_block: int, seed: int = 0) -> StreamPlan:
    settings = ViewSettings(VIEWS, Preprocessing(8, (0.0,), (1.0,)), seed, 4)
    return StreamPlan(source, index, settings, rows_per_block)


def write(kind: str, root: Path) -> str:
    if kind == "imagenet100":
        return f"imagenet100:{write_imagenet(root, list(classes_of_imagenet100()), per_class=1)}"
    if kind == "stl10":
        write_stl10(root)
        return f"stl10-unlabelled:{root}"
    return put_set(kind, root / "train", FILES, ["a"] * len(FILES), rows=3)


@pytest.mark.parametrize(
    ("kind", "blocks"),
    [("folder", 3), ("webdataset", 3), ("parquet", 2), ("arrow", 2), ("imagenet100", 25), ("stl10", 3)],
)
def test_a_stream_of_any_source_gives_the_images_of_resident_delivery_once_an_epoch(
    tmp_path: Path, kind: str, blocks: int
) -> None:
    (tmp_path / "set").mkdir()
    name = write(kind, tmp_path / "set")
    reading = Reading() if kind == "stl10" else Reading(resize=8)
    resident, source = load_split(name, None, "train", reading), open_source(name, "train", reading)
    orders = []
    for seed, epoch in ((0, 0), (0, 1), (0, 2), (1, 0)):
        planned = pickle.loads(pickle.dumps(plan_of(source, source.index, 4, seed)))
        assert planned.num_blocks == blocks  # rounded up
        rows = [planned.block_rows(epoch, number) for number in range(blocks)]
        assert torch.cat(rows).sort().values.tolist() == list(range(len(resident)))
        orders.append(torch.cat(rows).tolist())
        part = planned.train.at(rows[1])
        assert torch.equal(read_rows(planned.source, part).images, resident.images[rows[1]])
        assert torch.equal(part.keys, resident.keys[rows[1]])
    assert all(first != second for first, second in itertools.combinations(orders, 2))


def test_blocks_of_an_epoch_sort_its_groups_once(monkeypatch: pytest.MonkeyPatch) -> None:
    hashed: list[int] = []
    real = plan.hash_words

    def counting(*words: Tensor | int) -> Tensor:
        found = real(*words)
        hashed.append(found.numel())
        return found

    monkeypatch.setattr(plan, "hash_words", counting)
    rows = torch.arange(10_007)
    planned = plan_of(None, RowIndex(rows, rows, rows, torch.zeros_like(rows)), 100)
    for number in range(planned.num_blocks):
        planned.block_rows(3, number)
    assert hashed.count(10_007) == 1
    assert sum(hashed) == 2 * 10_007  # and each row once within its block


def test_a_process_reads_the_plan_once_for_its_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []

    class Reference:
        def __init__(self, name: str) -> None:
            self.hex = lambda: name

    def get(reference: Reference) -> str:
        read.append(reference.hex())
        return f"plan {reference.hex()}"

    monkeypatch.setattr(pipeline, "ray", SimpleNamespace(get=get))
    monkeypatch.setattr(pipeline, "_KEPT", {})
    told = [pipeline._plan_of(Reference(name)) for name in ("a", "a", "b", "b", "a")]
    assert told == ["plan a", "plan a", "plan b", "plan b", "plan a"]
    assert read == ["a", "b", "a"]  # never more than one is kept


def test_a_set_of_which_nothing_is_left_to_train_on_is_refused_before_workers_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver.ray, "put", lambda value: value)
    monkeypatch.setattr(driver, "_statistics", lambda *_: Statistics((0.5,) * 3, (0.5,) * 3))
    config = compose(
        "simclr", overrides=[f"data.name={write('arrow', tmp_path)}", "views.recipe=none", "data.holdout_rate=0.999"]
    )
    assert held_out(torch.arange(10), 0.999).all()
    with pytest.raises(DataError, match=r"data: at least 2 training images are needed, got 0; data\.holdout_rate"):
        driver.plan_stream(config, num_views=2)


@pytest.mark.parametrize(
    ("raised", "kind", "text"),
    [
        ("ConfigError: views.blur_kernel_size: too large", ConfigError, "views.blur_kernel_size: too large"),
        ("DataError: a.png: not a readable image", DataError, "a.png: not a readable image"),
        ("UnsavedError: cannot be written", UserError, "cannot be written"),
        ("LostError: of a later version", UserError, "of a later version"),
    ],
)
def test_the_error_of_a_task_is_told_as_it_was(raised: str, kind: type[Exception], text: str) -> None:
    found = user_error_in(RayError(f"Traceback ...\nebclab.errors.{raised}\n"))
    assert type(found) is kind
    assert str(found) == text

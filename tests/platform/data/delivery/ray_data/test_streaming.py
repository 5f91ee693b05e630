"""Streams: the rows and bits of views of resident delivery, evenly, in a new order each epoch; plans need no Ray."""

import io
import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
import torch
from made_up_images import encoded, pixels, put, put_set
from ray.exceptions import RayError
from torch import Tensor

from ebclab.config import ExperimentConfig, compose
from ebclab.data.delivery.ray_data import driver, pipeline
from ebclab.data.delivery.ray_data.pipeline import StreamPlan, usual_rows_per_block
from ebclab.data.delivery.ray_data.worker import StreamedData, user_error_in
from ebclab.data.holdout import held_out, split_images
from ebclab.data.image_set import ImageSet
from ebclab.data.photograph import Reading
from ebclab.data.preparing.write_parquet import prepare_dataset
from ebclab.data.preprocessing import Preprocessing, preprocessing_for
from ebclab.data.sources.image_source import RowIndex, Statistics
from ebclab.data.sources.load import load_split
from ebclab.data.views.parameters import words_of_batch
from ebclab.data.views.pipeline import ViewSettings, make_views
from ebclab.errors import ConfigError, DataError, UserError
from energy_contrast.method import Batch

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # of Ray's own imports
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]

BATCH = 32
NUM_IMAGES = 600
VIEWS = ["views.recipe=flatclr-cifar", "views.noise_std=0.1"]


def test_whoever_hands_the_task_of_a_block_on_imports_neither_torch_nor_ebclab() -> None:
    from ray import cloudpickle

    from ebclab.data.delivery.ray_data.pipeline import _block_maker

    class Recording(pickle.Unpickler):
        imported: ClassVar[set[str]] = set()

        def find_class(self, module: str, name: str) -> Any:
            self.imported.add(module.partition(".")[0])
            return super().find_class(module, name)

    Recording(io.BytesIO(cloudpickle.dumps(_block_maker(None, 0)))).load()
    assert "ray" in Recording.imported
    assert not {"torch", "ebclab", "energy_contrast"} & Recording.imported


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A prepared set of random colour images in row groups of 1,024 rows, so that each of its files is one group."""
    folder = tmp_path_factory.mktemp("prepared") / "set"
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (NUM_IMAGES, 3, 8, 8), dtype=torch.uint8, generator=generator)
    rows = torch.arange(NUM_IMAGES)
    made = ImageSet("made", images, rows % 10, rows * 5 + 3, (), (0.4, 0.5, 0.6), (0.2, 0.3, 0.4))
    prepare_dataset({"train": made}, folder, progress=lambda line: None)
    return f"parquet:{folder}"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An image folder of 100 images in two classes."""
    place = tmp_path_factory.mktemp("folder")
    for number in range(100):
        put(place / f"{'ab'[number % 2]}/{number}.png", encoded(pixels(number, 8, 8)))
    return place


def config_of(name: str, *overrides: str) -> ExperimentConfig:
    return compose("simclr", overrides=[f"data.name={name}", *VIEWS, f"training.batch_size={BATCH}", *overrides])


@pytest.mark.parametrize(
    ("rows", "image_bytes", "expected"),
    [(60_000, 784, 4096), (1_000_000, 150_528, 111), (100, 784, 9), (5, 1 << 30, 1)],
)
def test_blocks_are_large_enough_to_shuffle_and_small_enough_to_share(rows, image_bytes, expected):
    assert usual_rows_per_block(rows, image_bytes) == expected


@pytest.fixture(scope="module")
def streaming(cluster: str) -> Any:
    """What plans, builds and reads streams, where Ray is joined."""
    return SimpleNamespace(
        plan_stream=driver.plan_stream, build_dataset=pipeline.build_dataset, StreamedData=StreamedData
    )


def deliver(
    streaming: Any, stream: Any, *, first: tuple[int, int], epochs: int, world_size: int = 1, **settings: Any
) -> list[dict[tuple[int, int], Batch]]:
    """Return the batches of each rank from (epoch, position) ``first`` to the end of epoch ``epochs`` - 1."""
    dataset = streaming.build_dataset(stream.plan, first_epoch=first[0])
    shards = dataset.streaming_split(world_size, equal=True)

    def run(rank: int, shard: Any) -> dict[tuple[int, int], Batch]:
        data = streaming.StreamedData(
            shard,
            stream.plan.settings,
            num_images=len(stream.plan.train),
            first_epoch=first[0],
            rank=rank,
            world_size=world_size,
            **settings,
        )
        return {
            (epoch, position): data.batch(epoch, position)
            for epoch in range(first[0], epochs)
            for position in range(first[1] if epoch == first[0] else 0, data.num_batches)
        }

    with ThreadPoolExecutor(world_size) as pool:
        return list(pool.map(run, range(world_size), shards))


def assert_views_are_those_of_resident_delivery(
    batches: dict[tuple[int, int], Batch], train: ImageSet, config: ExperimentConfig
) -> None:
    preprocessing = preprocessing_for(config.views, train)
    for (epoch, position), batch in batches.items():
        images, keys = train.images[batch.index], train.keys[batch.index]
        shared = words_of_batch(config.views, batch.index, position=position, batch_size=BATCH)
        expected = make_views(images, keys, config.views, preprocessing, seed=config.seed, epoch=epoch, shared=shared)
        assert torch.equal(batch.views, expected)
        assert torch.equal(batch.labels, train.labels[batch.index])


def assert_proposals_are_of_the_batch_before(
    batches: dict[tuple[int, int], Batch], train: ImageSet, config: ExperimentConfig, slots: range, hashed: Any
) -> None:
    """Compare with a loop over the words that choose the images, and those that choose their views."""
    preprocessing, num_batches = preprocessing_for(config.views, train), len(train) // BATCH
    choice, fresh = int.from_bytes(b"choice"), int.from_bytes(b"fresh")
    for (epoch, position), batch in batches.items():
        step = epoch * num_batches + position
        rows = batches[epoch, position - 1 if position else 1].index.tolist()
        assert not set(rows) & set(batch.index.tolist())
        rows.sort(key=lambda row: hashed(choice, config.seed, step, int(train.keys[row])))
        chosen = rows[: len(slots)]
        keys = [hashed(fresh, step, slot, int(train.keys[row])) for slot, row in zip(slots, chosen, strict=True)]
        shared = None if config.views.shared_by == "image" else torch.full((len(slots),), hashed(fresh, step))
        expected = make_views(
            train.images[chosen],
            torch.tensor(keys),
            config.views,
            preprocessing,
            seed=config.seed,
            epoch=epoch,
            num_views=1,
            shared=shared,
        )[0]
        assert torch.equal(batch.proposals, expected)


@pytest.mark.parametrize("part", ["holdout", "confirm"])
def test_a_stream_keeps_the_same_images_to_confirm_with_as_resident_delivery(streaming, prepared, part):
    settings = ["data.holdout_rate=0.2", "data.confirm_rate=0.2", "data.train_limit=500"]
    config = config_of(prepared, *settings, f"evaluation.scored_on={part}")
    stream = streaming.plan_stream(config, num_views=2)
    split = split_images(load_split(prepared, None, "train"), train_limit=500, holdout_rate=0.2, confirm_rate=0.2)
    assert torch.equal(stream.plan.train.keys, split.train.keys)
    assert torch.equal(stream.holdout.images, split.scored(part).images)
    assert len(stream.holdout) > 0


@pytest.mark.parametrize(("views_on", "shared_by"), [("pipeline", "image"), ("worker", "batch"), ("pipeline", "chunk")])
def test_two_ranks_share_every_epoch_evenly_and_get_the_bits_of_resident_views(
    streaming: Any, prepared: str, views_on: str, shared_by: str, splitmix64_words: Callable[..., int]
) -> None:
    settings = [f"data.views_on={views_on}", f"views.shared_by={shared_by}", "data.holdout_rate=0.2"]
    config = config_of(prepared, *settings, "data.train_limit=500", "seed=4")
    stream = streaming.plan_stream(config, num_views=2, num_proposals=5)
    whole = load_split(prepared, None, "train")
    split = split_images(whole, train_limit=500, holdout_rate=0.2)
    train, holdout = split.train, split.holdout
    assert torch.equal(stream.plan.train.keys, train.keys)
    assert torch.equal(stream.holdout.keys, holdout.keys)
    assert torch.equal(stream.holdout.images, holdout.images)
    assert torch.equal(stream.bank.images, train.images)

    ranks = deliver(streaming, stream, first=(2, 0), epochs=5, world_size=2, channels_last=views_on == "pipeline")
    num_batches = len(train) // BATCH
    for batches in ranks:
        assert list(batches) == [(epoch, position) for epoch in (2, 3, 4) for position in range(num_batches)]
        assert {batch.views.shape for batch in batches.values()} == {(2, BATCH // 2, 3, 8, 8)}
        assert_views_are_those_of_resident_delivery(batches, train, config)
        slots = range(3) if batches is ranks[0] else range(3, 5)
        assert_proposals_are_of_the_batch_before(batches, train, config, slots, splitmix64_words)
        last = batches[4, 0].views.flatten(0, 1)
        layout = torch.channels_last if views_on == "pipeline" else torch.contiguous_format
        assert last.is_contiguous(memory_format=layout)
    orders = []
    for epoch in (2, 3, 4):
        rows = torch.cat([batch.index for batches in ranks for key, batch in batches.items() if key[0] == epoch])
        assert len(rows.unique()) == len(rows) == num_batches * BATCH
        orders.append(rows)
    assert (orders[0] == orders[1]).double().mean() < 0.1
    assert (orders[1] == orders[2]).double().mean() < 0.1


def test_a_folder_streams_and_a_launch_within_an_epoch_goes_on_where_the_last_one_stopped(streaming, folder):
    config = config_of(f"folder:{folder}", "data.holdout_rate=0.0")
    stream = streaming.plan_stream(config, num_views=2, num_proposals=2)
    train = load_split(f"folder:{folder}", None, "train")
    assert stream.plan.settings.preprocessing == preprocessing_for(config.views, train)
    (undisturbed,) = deliver(streaming, stream, first=(0, 0), epochs=2)
    assert_views_are_those_of_resident_delivery(undisturbed, train, config)
    (resumed,) = deliver(streaming, stream, first=(0, 2), epochs=2)
    assert list(resumed) == [(0, 2), (1, 0), (1, 1), (1, 2)]
    for key, batch in resumed.items():
        assert torch.equal(batch.index, undisturbed[key].index)
        assert torch.equal(batch.views, undisturbed[key].views)
        assert torch.equal(batch.proposals, undisturbed[key].proposals)


def test_batches_out_of_order_and_a_dataset_of_another_launch_are_refused(streaming: Any, folder: Path) -> None:
    stream = streaming.plan_stream(config_of(f"folder:{folder}"), num_views=2)
    num_images = len(stream.plan.train)
    (shard,) = streaming.build_dataset(stream.plan, first_epoch=5).streaming_split(1, equal=True)
    settings = {"num_images": num_images}
    data = streaming.StreamedData(shard, stream.plan.settings, **settings, first_epoch=3)
    with pytest.raises(IndexError, match=r"epoch 3, position 0 of 2 is next, got 4, 0"):
        data.batch(4, 0)
    with pytest.raises(DataError, match="epoch 3: the stream delivered views of another epoch, got 5 to 5"):
        data.batch(3, 0)
    data.close()
    with pytest.raises(
        DataError, match=rf"training\.batch_size: larger than the training set, got 200 for {num_images}"
    ):
        streaming.StreamedData(shard, replace(stream.plan.settings, batch_size=200), num_images=num_images)
    with pytest.raises(UserError, match="must split evenly over 3 workers, got 32"):
        streaming.StreamedData(shard, stream.plan.settings, **settings, world_size=3)


def test_a_damaged_image_stops_the_stream_by_name_or_is_left_out_when_asked(streaming, tmp_path, caplog):
    for number in range(70):
        put(tmp_path / f"{number}.png", encoded(pixels(number, 8, 8)))
    name, nothing_else = f"folder:{tmp_path}", ("data.holdout_rate=0.0", "evaluation.knn_bank_limit=1")
    stream = streaming.plan_stream(config_of(name, *nothing_else), num_views=2)
    (tmp_path / "33.png").write_bytes(b"nothing")
    with pytest.raises(DataError, match=r"^/.*/33\.png: not a readable image, got .*data\.skip_corrupt=true$"):
        deliver(streaming, stream, first=(0, 0), epochs=1)
    with pytest.raises(DataError, match=r"^/.*/33\.png: not a readable image"):
        streaming.plan_stream(config_of(name), num_views=2)

    stream = streaming.plan_stream(config_of(name, *nothing_else, "data.skip_corrupt=true"), num_views=2)
    assert "1 of 70 images left out (1 of no known format): " in caplog.text
    whole = load_split(name, None, "train", Reading(skip_corrupt=True))
    assert torch.equal(stream.plan.train.keys, whole.keys)
    (batches,) = deliver(streaming, stream, first=(0, 0), epochs=1)
    assert len(torch.cat([batch.index for batch in batches.values()]).unique()) == 64


PLAIN = compose("simclr", overrides=["views.recipe=none"]).views


def small_plan(source: Any, index: RowIndex, rows_per_block: int, seed: int = 0) -> StreamPlan:
    settings = ViewSettings(PLAIN, Preprocessing(8, (0.0,), (1.0,)), seed, 4)
    return StreamPlan(source, index, settings, rows_per_block)


@pytest.mark.parametrize(("seed", "epoch"), [(0, 0), (0, 1), (7, 3)])
def test_a_block_has_the_next_groups_by_hash_and_their_rows_by_hash(seed, epoch, splitmix64_words):
    keys = torch.arange(110) * 5 + 3
    planned = small_plan(None, RowIndex.grouped(keys, keys, torch.full((11,), 10)), 50, seed)
    assert (planned.groups_per_block, planned.num_blocks) == (5, 3)
    of_groups, of_rows = int.from_bytes(b"groups"), int.from_bytes(b"rows")
    order = sorted(range(11), key=lambda group: splitmix64_words(of_groups, seed, epoch, group))
    for number in range(3):
        rows = [10 * group + place for group in order[5 * number : 5 * number + 5] for place in range(10)]
        rows.sort(key=lambda row: splitmix64_words(of_rows, seed, epoch, 5 * row + 3))
        assert planned.block_rows(epoch, number).tolist() == rows


def test_blocks_of_an_epoch_sort_its_groups_once(monkeypatch: pytest.MonkeyPatch) -> None:
    hashed: list[int] = []
    real = pipeline.hash_words

    def counting(*words: Tensor | int) -> Tensor:
        found = real(*words)
        hashed.append(found.numel())
        return found

    monkeypatch.setattr(pipeline, "hash_words", counting)
    rows = torch.arange(10_007)
    planned = small_plan(None, RowIndex(rows, rows, rows, torch.zeros_like(rows)), 100)
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


def test_a_set_of_which_nothing_is_left_to_train_on_is_refused_before_workers_start(tmp_path, monkeypatch):
    monkeypatch.setattr(driver.ray, "put", lambda value: value)
    monkeypatch.setattr(driver, "_statistics", lambda *_: Statistics((0.5,) * 3, (0.5,) * 3))
    name = put_set("arrow", tmp_path / "train", [encoded(pixels(number)) for number in range(10)], ["a"] * 10)
    config = compose("simclr", overrides=[f"data.name={name}", "views.recipe=none", "data.holdout_rate=0.999"])
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

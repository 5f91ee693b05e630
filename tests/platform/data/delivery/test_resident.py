"""Resident batches: a pure function of (seed, epoch, position), cut the same way for any number of ranks."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from ebclab.config.sections import ViewsConfig
from ebclab.data.delivery.resident import ResidentData
from ebclab.data.image_set import ImageSet
from ebclab.data.preprocessing import preprocessing_for
from ebclab.data.views.pipeline import ViewSettings, make_views
from ebclab.errors import UserError

PLAIN = ViewsConfig(normalisation="none")  # views equal their images
RANDOM = ViewsConfig(
    crop_scale_min=0.3, flip_rate=0.5, jitter_rate=0.8, brightness=0.4, contrast=0.4, saturation=0.4, hue=0.1,
    grayscale_rate=0.2, blur_rate=0.5, noise_std=0.1,
)  # fmt: skip


def numbered(count: int = 50, side: int = 4) -> ImageSet:
    """Images whose every pixel is their row; labels and keys that differ from it."""
    rows = torch.arange(count)
    images = rows.to(torch.uint8).view(-1, 1, 1, 1).expand(count, 3, side, side).contiguous()
    return ImageSet("numbered", images, rows * 3 + 1, rows * 7 + 1000, (), (0.5,) * 3, (0.25,) * 3)


def textured(count: int = 50, side: int = 8) -> ImageSet:
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (count, 3, side, side), dtype=torch.uint8, generator=generator)
    rows = torch.arange(count)
    return ImageSet("textured", images, rows % 10, rows * 7 + 1000, (), (0.5,) * 3, (0.25,) * 3)


def resident(train: ImageSet, views: ViewsConfig = PLAIN, **changes: Any) -> ResidentData:
    """Changes are of the settings, or of the other arguments."""
    names = {"seed", "batch_size", "num_views", "num_proposals"}
    asked = {"seed": 0, "batch_size": 8} | {name: changes.pop(name) for name in names & changes.keys()}
    return ResidentData(train, ViewSettings(views, preprocessing_for(views, train), **asked), **changes)


def rows_shown(views: torch.Tensor) -> torch.Tensor:
    """Read the row back from the pixels of plain views (..., C, H, W) of numbered images."""
    shown = (views * 255).round().long()
    assert bool((shown == shown[..., :1, :1, :1]).all())
    return shown[..., 0, 0, 0]


def test_an_epoch_visits_every_image_at_most_once_and_drops_the_incomplete_batch() -> None:
    data = resident(numbered(50))
    assert data.num_batches == 6
    visited = torch.cat([data.batch(0, position).index for position in range(6)])
    assert len(visited) == len(visited.unique()) == 48
    assert data.batch(0, 0).views.shape == (2, 8, 3, 4, 4)
    for outside in (-1, 6):
        with pytest.raises(IndexError, match=f"an epoch has 6 batches, got {outside}"):
            data.batch(0, outside)


def test_index_names_the_images_and_labels_of_the_batch() -> None:
    train = numbered()
    batch = resident(train).batch(3, 2)
    assert torch.equal(rows_shown(batch.views), batch.index.expand(2, -1))
    assert torch.equal(batch.labels, train.labels[batch.index])


@pytest.mark.parametrize(("seed", "epoch"), [(0, 0), (0, 1), (7, 3)])
def test_an_epoch_has_the_order_of_a_hash_of_seed_epoch_and_key(seed, epoch, splitmix64_words):
    train, salt = numbered(50), int.from_bytes(b"order")
    data = resident(train, seed=seed, batch_size=10)
    keys = train.keys.tolist()
    expected = sorted(range(50), key=lambda row: splitmix64_words(salt, seed, epoch, keys[row]))
    assert torch.cat([data.batch(epoch, position).index for position in range(5)]).tolist() == expected


def equal(first: Any, second: Any) -> bool:
    return all(torch.equal(a, b) for a, b in zip(vars(first).values(), vars(second).values(), strict=True))


def test_a_batch_is_the_same_bits_whatever_was_asked_before() -> None:
    train = textured()
    wanted = resident(train, RANDOM, num_proposals=4).batch(1, 3)
    other = resident(train, RANDOM, num_proposals=4)
    for epoch, position in ((0, 5), (1, 0), (2, 1)):
        assert not torch.equal(other.batch(epoch, position).views, wanted.views)
    assert equal(other.batch(1, 3), wanted)


@pytest.mark.parametrize("channels_last", [False, True])
def test_views_are_those_of_the_seed_the_epoch_and_the_keys(channels_last: bool) -> None:
    train = textured()
    for seed, epoch in ((0, 0), (0, 1), (5, 1)):
        batch = resident(train, RANDOM, seed=seed, num_views=3, channels_last=channels_last).batch(epoch, 2)
        images, keys = train.images[batch.index], train.keys[batch.index]
        preprocessing = preprocessing_for(RANDOM, train)
        expected = make_views(images, keys, RANDOM, preprocessing, seed=seed, epoch=epoch, num_views=3)
        assert torch.equal(batch.views, expected)
        layout = torch.channels_last if channels_last else torch.contiguous_format
        assert batch.views[0].is_contiguous(memory_format=layout)


@pytest.mark.parametrize(("num_proposals", "shared_by"), [(8, "image"), (5, "batch"), (5, "chunk"), (1, "image")])
@pytest.mark.parametrize("world_size", [2, 4])
def test_slices_of_all_ranks_put_together_are_the_global_batch_bit_for_bit(world_size, num_proposals, shared_by):
    train, views = textured(), replace(RANDOM, shared_by=shared_by)
    settings = {"batch_size": 16, "num_proposals": num_proposals}
    whole = resident(train, views, **settings).batch(1, 2)
    ranks = [resident(train, views, rank=rank, world_size=world_size, **settings) for rank in range(world_size)]
    parts = [data.batch(1, 2) for data in ranks]
    assert torch.equal(torch.cat([part.views for part in parts], dim=1), whole.views)
    for name in ("labels", "index", "proposals"):
        assert torch.equal(torch.cat([getattr(part, name) for part in parts]), getattr(whole, name))
    sizes = [len(part) for part in whole.proposals.tensor_split(world_size)]
    assert [len(part.proposals) for part in parts] == sizes


@pytest.mark.parametrize(("epoch", "position"), [(0, 0), (0, 2), (4, 1)])
def test_proposals_show_the_images_outside_the_batch_that_a_hash_of_step_and_slot_names(
    epoch: int, position: int, splitmix64_words: Callable[..., int]
) -> None:
    salt, step = int.from_bytes(b"choice"), 3 * epoch + position
    data = resident(numbered(18), seed=3, batch_size=6, num_proposals=5, rank=1, world_size=2)
    whole = resident(numbered(18), seed=3, batch_size=6)
    others = [row for each in range(3) if each != position for row in whole.batch(epoch, each).index.tolist()]
    uniform = [(splitmix64_words(salt, 3, step, slot) % 2**64 >> 11) / 2**53 for slot in (3, 4)]  # of five
    expected = [others[int(12 * each)] for each in uniform]
    assert rows_shown(data.batch(epoch, position).proposals).tolist() == expected


def test_proposals_are_fresh_views() -> None:
    train = textured(3)
    data = resident(train, RANDOM, batch_size=2, num_proposals=6)  # one image is left, and proposed six times
    proposals = data.batch(0, 0).proposals
    turn = next(data.batch(epoch, 0) for epoch in range(20) if 2 in data.batch(epoch, 0).index)
    candidates = [*proposals, *turn.views.flatten(0, 1)]
    for i, first in enumerate(candidates):
        assert not any(torch.equal(first, second) for second in candidates[:i])


def test_without_proposals_the_tensor_is_empty_and_has_the_shape_of_views() -> None:
    assert resident(textured(), ViewsConfig(image_size=6)).batch(0, 0).proposals.shape == (0, 3, 6, 6)


def test_draw_gives_views_of_images_chosen_alike_by_the_generator_alone() -> None:
    data = resident(numbered(20))
    rows = rows_shown(data.draw(4000, torch.Generator().manual_seed(0)))
    chi_square = ((torch.bincount(rows, minlength=20) - 200).square() / 200).sum()
    assert chi_square < 43.8  # 99.9 % point of chi square with 19 degrees of freedom
    data = resident(textured(), RANDOM)
    first = data.draw(5, torch.Generator().manual_seed(3))
    assert first.shape == (5, 3, 8, 8)
    assert torch.equal(first, data.draw(5, torch.Generator().manual_seed(3)))
    assert not torch.equal(first, data.draw(5, torch.Generator().manual_seed(4)))


@pytest.mark.parametrize(
    ("side", "changes", "message"),
    [
        (4, {"batch_size": 51}, r"training\.batch_size: .* got 51 for 50 images; use at most 50"),
        (4, {"batch_size": 50, "num_proposals": 1}, "outside the batch, got 50 for 50 images; use at most 49"),
        (4, {"world_size": 3, "batch_size": 8}, r"training\.batch_size: must split evenly over 3 workers, got 8"),
        (300, {"device": "cuda:0"}, r"does not fit on cuda:0, got 50 images .* 0\.01 GiB with 0\.00 GiB free"),
    ],
)
def test_what_cannot_be_delivered_is_refused_with_its_numbers(monkeypatch, side, changes, message):
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (2**19, 2**30))
    with pytest.raises(UserError, match=message):
        resident(numbered(50, side=side), **changes)
    assert resident(numbered(50), batch_size=50).num_batches == 1


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_order_and_choice_are_the_same_on_a_gpu() -> None:
    on_cpu, on_gpu = (resident(numbered(), num_proposals=4, device=device) for device in ("cpu", "cuda"))
    for epoch, position in ((0, 0), (3, 5)):
        expected, found = on_cpu.batch(epoch, position), on_gpu.batch(epoch, position)
        assert found.views.device.type == "cuda"
        assert torch.equal(found.index.cpu(), expected.index)
        assert torch.equal(rows_shown(found.proposals.cpu()), rows_shown(expected.proposals))

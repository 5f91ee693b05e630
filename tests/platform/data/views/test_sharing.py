"""Who shares the random numbers of views: nobody, a batch, or a chunk of the training set; the same for any W."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations
from typing import Any

import pytest
import torch
from torch import Tensor

from ebclab.config import compose
from ebclab.config.sections import ViewsConfig
from ebclab.data.delivery.resident import ResidentData
from ebclab.data.image_set import ImageSet
from ebclab.data.preprocessing import preprocessing_for
from ebclab.data.views.pipeline import ViewSettings
from ebclab.errors import ConfigError

BATCH = 8
NUM_IMAGES = 50
CROPS = ViewsConfig(crop_scale_min=0.08, flip_rate=0.5, jitter_rate=1.0, brightness=0.8, normalisation="none")


def alike() -> ImageSet:
    """Equal images of which no two pixels agree: views are equal exactly where their parameters are."""
    image = torch.randperm(3 * 8 * 8, generator=torch.Generator().manual_seed(0)).to(torch.uint8).view(1, 3, 8, 8)
    images, rows = image.expand(NUM_IMAGES, 3, 8, 8).contiguous(), torch.arange(NUM_IMAGES)
    return ImageSet("alike", images, rows, rows * 11, (), (0.5,) * 3, (1.0,) * 3)


def resident(shared_by: str, **changes: Any) -> ResidentData:
    train, views = alike(), replace(CROPS, shared_by=shared_by)
    asked = {"seed": 3, "num_proposals": changes.pop("num_proposals", 0), "batch_size": BATCH}
    return ResidentData(train, ViewSettings(views, preprocessing_for(views, train), **asked), **changes)


def epoch_of(data: ResidentData, epoch: int = 1) -> Iterator[tuple[Tensor, Tensor]]:
    """Return the rows (B,) and views (V, B, ...) of each batch."""
    for position in range(data.num_batches):
        batch = data.batch(epoch, position)
        yield batch.index, batch.views


def kinds(views: Tensor) -> int:
    """Return how many different images there are among (N, C, H, W)."""
    return len(views.flatten(1).unique(dim=0))


def test_a_batch_that_shares_has_one_draw_for_each_view_and_the_next_batch_another() -> None:
    shown = [views for _, views in epoch_of(resident("batch"))]
    assert all(kinds(views[view]) == 1 for views in shown for view in (0, 1))
    assert kinds(torch.cat([views[view][:1] for views in shown for view in (0, 1)])) == 2 * len(shown)


def test_a_chunk_that_shares_is_batch_size_neighbours_of_the_training_set_wherever_the_shuffle_put_them() -> None:
    batches = list(epoch_of(resident("chunk")))
    rows, views = torch.cat([rows for rows, _ in batches]), torch.cat([views for _, views in batches], dim=1)
    for view in (0, 1):
        for i, j in combinations(range(len(rows)), 2):
            assert torch.equal(views[view, i], views[view, j]) == (rows[i] // BATCH == rows[j] // BATCH)
    in_first_batch = rows[:BATCH] // BATCH
    assert len(in_first_batch.unique()) > 3  # of seven chunks: a batch mixes draws


def test_without_sharing_no_two_images_of_a_batch_have_the_same_draw() -> None:
    assert all(kinds(views.flatten(0, 1)) == 2 * BATCH for _, views in epoch_of(resident("image")))


@pytest.mark.parametrize("shared_by", ["batch", "chunk"])
def test_proposals_share_one_draw_of_their_own(shared_by: str) -> None:
    batch = resident(shared_by, num_proposals=6).batch(0, 0)
    assert kinds(batch.proposals) == 1
    assert kinds(torch.cat([batch.proposals[:1], *batch.views])) == kinds(torch.cat([*batch.views])) + 1


@pytest.mark.parametrize(("shared_by", "expected"), [("image", 600), ("batch", 3), ("chunk", 3)])
def test_images_drawn_at_random_share_256_at_a_time(shared_by: str, expected: int) -> None:
    shown = resident(shared_by).draw(600, torch.Generator().manual_seed(0))
    assert kinds(shown) == expected
    if expected == 3:
        assert [kinds(part) for part in shown.split(256)] == [1, 1, 1]


def test_views_of_a_pipeline_that_knows_no_batches_cannot_be_shared_by_batch() -> None:
    asked = ["data.views_on=pipeline", "views.recipe=digits"]
    with pytest.raises(ConfigError) as caught:
        compose("simclr", overrides=[*asked, "views.shared_by=batch"])
    assert caught.value.problems == [
        "views.shared_by: the pipeline makes views before batches exist, got batch with data.views_on=pipeline; "
        "set data.views_on=worker"
    ]
    assert compose("simclr", overrides=[*asked, "views.shared_by=chunk"]).views.shared_by == "chunk"

"""A method that stops between two epochs of a stream and resumes ends in the same bits, for the whole catalogue."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from small_methods import NUM_CLASSES, draw_images
from stream_shard import Shard

from ebclab.config.sections import ViewsConfig
from ebclab.data.delivery.ray_data.worker import StreamedData
from ebclab.data.image_set import ImageSet
from ebclab.data.preprocessing import preprocessing_for
from ebclab.data.views.pipeline import ViewSettings
from energy_contrast.catalog import METHODS
from energy_contrast.method import Progress

from .test_resume import CASES, Training

BATCH_SIZE = 16
STEPS_PER_EPOCH = 2
NUM_STEPS = 2 * STEPS_PER_EPOCH
VIEWS = ViewsConfig(crop_scale_min=0.5, flip_rate=0.5, noise_std=0.1)

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")  # of Ray's own imports


class Streamed(Training):
    """A method that is trained on batches of a stream."""

    def __init__(self, case: str, seed: int, first_epoch: int = 0) -> None:
        super().__init__(case, seed)
        count = STEPS_PER_EPOCH * BATCH_SIZE + 5
        pixels = torch.randint(0, 256, (count, 1, 8, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(7))
        rows = torch.arange(count)
        images = ImageSet("noise", pixels, rows % NUM_CLASSES, rows * 3, (), (0.5,), (0.25,))
        needs = self.method.requirements(self.method.config, BATCH_SIZE)
        assert (self.method.num_views, self.method.num_proposals(BATCH_SIZE)) == (needs.num_views, needs.num_proposals)
        settings = ViewSettings(
            VIEWS, preprocessing_for(VIEWS, images), 0, BATCH_SIZE, needs.num_views, needs.num_proposals
        )
        shard: Any = Shard(images, first_epoch=first_epoch)
        self.data = StreamedData(shard, settings, num_images=count, first_epoch=first_epoch)

    def run(self, start: int, stop: int) -> None:
        for step in range(start, stop):
            epoch, position = divmod(step, STEPS_PER_EPOCH)
            output = self.method(self.data.batch(epoch, position), self.generator)
            self.optimizer.zero_grad()
            output.loss.backward()
            self.optimizer.step()
            self.method.after_step(Progress(step + 1, NUM_STEPS, epoch))


@pytest.mark.parametrize("case", [*METHODS, "ebclr, bytes"])
def test_an_epoch_saved_and_continued_elsewhere_is_all_epochs(case: str) -> None:
    assert case in CASES
    undisturbed, first = Streamed(case, seed=0), Streamed(case, seed=0)
    second = Streamed(case, seed=1, first_epoch=1)
    for training in (undisturbed, first):
        training.method.start(draw_images)
    undisturbed.run(0, NUM_STEPS)
    first.run(0, STEPS_PER_EPOCH)
    second.load_bytes(*first.to_bytes())
    second.run(STEPS_PER_EPOCH, NUM_STEPS)
    assert second.to_bytes() == undisturbed.to_bytes()
    assert second.to_bytes() != first.to_bytes()

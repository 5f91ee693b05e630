"""What streamed delivery refuses, decided by what a method's class says before anything is built."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from ebclab.config import ExperimentConfig, compose
from ebclab.data.image_set import ImageSet
from ebclab.data.preprocessing import preprocessing_for
from ebclab.data.views.pipeline import ViewSettings
from ebclab.errors import ConfigError, DataError
from ebclab.training.process_group import ALONE
from ebclab.training.ray_train.streamed import delivery_of, prepare_streamed
from energy_contrast.catalog import METHODS
from energy_contrast.contrastive.simclr import Simclr
from energy_contrast.method import Method

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")  # of Ray's own imports
CPU = torch.device("cpu")
SETTINGS = [
    *("training.batch_size=10", "encoder.width=4", "resources.workers=1"),
    *("data.delivery=stream", "views.recipe=fashion-mnist"),
]


@pytest.fixture
def folder(tmp_path: Path) -> str:
    """A folder of twelve images."""
    for number in range(12):
        Image.fromarray(np.full((8, 8, 3), number, dtype=np.uint8)).save(tmp_path / f"{number}.png")
    return f"data.name=folder:{tmp_path}"


def refusal(method: str, *settings: str) -> str:
    config = compose(method, overrides=[*SETTINGS, *settings])
    with pytest.raises(DataError) as caught:
        delivery_of(config, None, CPU)
    return str(caught.value)


def test_a_misspelt_dataset_is_refused_and_not_said_to_fit() -> None:
    assert refusal("simclr", "data.name=digit", "data.delivery=auto") == (
        "data.name: no such dataset, got 'digit'; did you mean digits?"
    )


@pytest.mark.parametrize(("free", "first"), [(1, "stream"), (1 << 40, "resident")])
def test_a_run_that_has_begun_keeps_its_delivery_however_much_memory_is_free(folder, monkeypatch, free, first):
    config = compose("simclr", overrides=[*SETTINGS, folder, "data.delivery=auto"])
    monkeypatch.setattr("ebclab.training.ray_train.streamed.free_bytes", lambda device: free)
    assert delivery_of(config, None, CPU).delivery == first
    for digest, kept in (("stream-00ff", "stream"), ("00ff", "resident")):
        begun = replace(config, data=replace(config.data, digest=digest))
        assert delivery_of(begun, None, CPU).delivery == kept


def stream_of(config: ExperimentConfig, num_views: int) -> Any:
    """As much of a stream as is read before its shard."""
    images = torch.zeros(12, 3, 8, 8, dtype=torch.uint8)
    rows = torch.arange(12)
    bank = ImageSet("mine", images, rows % 3, rows, ("a", "b", "c", "d"), (0.5,) * 3, (0.5,) * 3)
    settings = ViewSettings(config.views, preprocessing_for(config.views, bank), 0, 10, num_views)
    plan = SimpleNamespace(settings=settings, train=bank, source=bank, digest="digest")
    return SimpleNamespace(plan=plan, bank=bank, holdout=bank, digest="stream-00ff")


class Proposing(Simclr):
    """It asks for proposals where only a built method is asked."""

    def num_proposals(self, batch_size: int) -> int:
        return 3


class ThreeViews(Simclr):
    """It gets another number of views where only a built method is asked."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.num_views = 3


@pytest.mark.parametrize(
    ("method_class", "needs"), [(Proposing, "2 views and 3 proposals"), (ThreeViews, "3 views and 0 proposals")]
)
def test_a_built_method_that_needs_more_than_its_class_said_is_refused(method_class: type[Method], needs: str) -> None:
    config = compose("simclr", overrides=[*SETTINGS, "data.name=folder:unused"])
    with pytest.raises(ConfigError, match=rf"planned for 2 views and 0 proposals, got a method that needs {needs}"):
        prepare_streamed(config, CPU, method_class, ALONE, stream_of(config, num_views=2), None, 0)


def test_a_streamed_method_is_told_the_classes_of_all_training_images() -> None:
    config = compose("supervised", overrides=[*SETTINGS, "data.name=folder:unused"])
    stream = stream_of(config, num_views=1)
    method = prepare_streamed(config, CPU, METHODS["supervised"], ALONE, stream, None, 0).training.method
    assert method.state_dict()["classifier.weight"].shape == (4, 16)  # named, one without an image
    stream.plan.train.labels[7] = -1
    with pytest.raises(ConfigError, match="supervised learns from labels, got 1 of 12 training images without"):
        prepare_streamed(config, CPU, METHODS["supervised"], ALONE, stream, None, 0)

"""What a run needs of the machine before its network is built."""

import gc
import weakref
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from ebclab.config import compose, list_recipes
from ebclab.data.image_set import ImageSet, channel_statistics
from ebclab.errors import ConfigError
from ebclab.training import setup
from ebclab.training.loop import train_step
from energy_contrast.catalog import METHODS
from energy_contrast.contrastive.simclr import Simclr
from energy_contrast.method import Method


@pytest.mark.parametrize("ranks", [1, 2])
def test_views_fit_up_to_the_last_free_byte_and_the_message_has_the_sum(ranks, monkeypatch):
    config = compose("simclr", overrides=["training.batch_size=6"])
    needed = sum(4 for _ in range(6 // ranks) for _ in range(2) for _ in range(3) for _ in range(10) for _ in range(10))
    alone: Any = SimpleNamespace(world_size=ranks)
    arguments = (config, Simclr, 3, 10, torch.device("cpu"), alone)
    monkeypatch.setattr(setup, "free_bytes", lambda device: needed)
    setup.require_room_for_views(*arguments)
    monkeypatch.setattr(setup, "free_bytes", lambda device: needed - 1)
    with pytest.raises(ConfigError) as refused:
        setup.require_room_for_views(*arguments)
    (line,) = refused.value.problems
    assert f"got 10 pixels: {6 // ranks} images x 2 views x 3x10x10 pixels x 4 bytes = " in line


@pytest.mark.parametrize("method_name", ["ebclr", "jem", "vem-image"])
@pytest.mark.parametrize("recipe", list_recipes())
def test_in_every_recipe_an_images_energy_is_its_own(recipe: str, method_name: str) -> None:
    config = compose(method_name, recipe, overrides=["encoder.width=4"])
    method = setup.build_method(config, METHODS[method_name], 3, torch.device("cpu"), 16, num_classes=2)
    assert setup.neighbours_problem(config, method) is None


def test_a_method_that_replaces_its_encoder_is_refused_before_it_trains() -> None:
    class Mine(Simclr):
        def __init__(self, config: Any, encoder: torch.nn.Module) -> None:
            super().__init__(config, encoder)
            self.encoder = torch.nn.Sequential(encoder)

    config = compose("simclr", overrides=["encoder.width=2"])
    with pytest.raises(ConfigError, match=r"which evaluation and export rebuild, got simclr with no tensor conv1\."):
        setup.build_method(config, Mine, 1, torch.device("cpu"))


def test_batch_norm_under_energies_is_a_problem_only_where_images_must_be_alone() -> None:
    def problem(method_name: str, *overrides: str) -> str | None:
        config = compose(method_name, overrides=["encoder.width=2", *overrides])
        return setup.neighbours_problem(
            config, setup.build_method(config, METHODS[method_name], 1, torch.device("cpu"))
        )

    assert problem("simclr") is problem("vem-langevin") is problem("ebclr", "encoder.batch_norm=none") is None
    assert "ebclr: an image's energy depends on its neighbours" in (problem("ebclr") or "")
    assert "neighbours" in (problem("vem-image", "method.key_encoder=shared") or "")


@pytest.mark.parametrize(
    ("size", "got"), [(10**12, "a part of 256.0 TB"), (10**17, "too large a part")], ids=["no room", "no such number"]
)
def test_a_network_for_which_the_memory_has_no_room_is_a_sentence(size: int, got: str) -> None:
    """10^12 outputs of 64 inputs are 256 * 10^12 bytes, more than a process can address; of 10^17, more than 2^63."""
    config = compose("simclr", overrides=["encoder.name=small", f"method.projection_size={size}"])
    with pytest.raises(ConfigError) as refused:
        setup.build_method(config, Simclr, 3, torch.device("cpu"))
    (line,) = refused.value.problems
    assert line == f"encoder, method: the network does not fit in memory, got {got}; make sizes and layers smaller"


@pytest.mark.parametrize("rate", ["scheduled", "constant"])
def test_the_predictors_rate_is_the_peak_where_it_is_constant_and_else_the_schedules(rate: str) -> None:
    """Each step is ``w <- w - rate g``, with the peak written out: 0.2 x 16 / 256; four steps, two of them warm-up."""
    plain = ["name=sgd", "momentum=0", "weight_decay=0", "learning_rate=0.2", "scaling=linear", "warmup_epochs=1"]
    small = ["training.batch_size=16", "training.epochs=2", "encoder.width=4", "data.holdout_rate=0"]
    small += ["training.channels_last=false"]
    narrow = ["method.projection_size=8", "method.prediction_hidden_size=4", f"method.prediction_rate={rate}"]
    optimizer = [f"optimizer.{each}" for each in (*plain, "schedule=cosine")]
    config = compose("simsiam", "digits-demo", overrides=[*small, *narrow, *optimizer])
    pixels = torch.randint(0, 256, (32, 1, 8, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
    images = ImageSet("noise", pixels, torch.zeros(32).long(), torch.arange(32), (), *channel_statistics(pixels))
    split = setup.split_own(config.data, images)
    training = setup.prepare(config, torch.device("cpu"), split, METHODS["simsiam"]).training
    peak = 0.2 * 16 / 256
    for scheduled in (peak / 2, peak, peak, peak / 2):
        before = {name: weight.detach().clone() for name, weight in training.method.named_parameters()}
        train_step(training)
        for name, weight in training.method.named_parameters():
            if weight.grad is not None:
                own = peak if rate == "constant" and name.startswith("predictor.") else scheduled
                torch.testing.assert_close(weight.detach(), before[name] - own * weight.grad, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("method", ["ebclr", "jem", "simclr"])
def test_a_process_holds_the_memory_of_one_run(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Energies of chains refer to their method: without a search for such circles, its replay buffer would stay."""
    small = ["data.train_limit=64", "training.batch_size=32", "encoder.width=4"]
    small += ["method.buffer_size=64"] if method != "simclr" else []
    config, made = compose(method, overrides=small), list[weakref.ref[Method]]()
    alive, build = list[int](), setup.build_method

    def built(*given: Any, **options: Any) -> Method:
        alive.append(sum(earlier() is not None for earlier in made))
        new = build(*given, **options)
        made.append(weakref.ref(new))
        return new

    monkeypatch.setattr(setup, "build_method", built)
    gc.disable()
    try:
        for _ in range(3):
            setup.prepare(config, torch.device("cpu"), None, METHODS[method])
    finally:
        gc.enable()
    assert alive == [0, 0, 0]

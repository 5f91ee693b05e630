"""The untrained encoder of a run is, bit for bit, the one that its method starts with."""

from dataclasses import replace

import pytest
import torch

from ebclab.config import compose
from ebclab.runs.trained_encoder import untrained_encoder
from ebclab.training.setup import build_method
from energy_contrast.catalog import METHODS

SMALL = {"byol": ["method.projection_hidden_size=8"], "simsiam": ["method.projection_size=8"]}
ENCODERS = {"small": ["encoder.width=4"], "resnet18": ["encoder.name=resnet18", "encoder.width=4"]}


@pytest.mark.parametrize(("name", "encoder"), [*((name, "small") for name in METHODS), ("simclr", "resnet18")])
@pytest.mark.filterwarnings("ignore:.*batch norm")
def test_the_encoder_before_the_first_step_is_that_of_the_seed_alone(name: str, encoder: str) -> None:
    config = replace(compose(name, overrides=[*ENCODERS[encoder], *SMALL.get(name, [])]), seed=5)
    untrained = untrained_encoder(config, 3, 16)
    torch.rand(7)  # the global generator is elsewhere by now
    built = build_method(config, METHODS[name], 3, torch.device("cpu"), 16, num_classes=2).encoder
    torch.testing.assert_close(dict(untrained.state_dict()), dict(built.state_dict()), rtol=0, atol=0)
    other = untrained_encoder(replace(config, seed=6), 3, 16)
    assert not torch.equal(other.conv1.weight, untrained.conv1.weight)
    assert not untrained.training


def test_the_global_generator_is_left_as_it_was() -> None:
    before = torch.get_rng_state()
    untrained_encoder(compose("simclr"), 1, 8)
    assert torch.equal(torch.get_rng_state(), before)

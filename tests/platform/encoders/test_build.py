"""From settings to networks: ours and timm's, and refusals as sentences about settings."""

import pytest
import torch

from ebclab.config.encoder import EncoderConfig
from ebclab.encoders import build
from ebclab.encoders.build import new_encoder, room_problems
from ebclab.errors import ConfigError
from energy_contrast.networks import ResNet


def test_our_own_encoders_follow_every_setting() -> None:
    config = EncoderConfig("resnet18", stem="imagenet", width=8, batch_norm="none", activation="leaky_relu")
    encoder = new_encoder(config, 2)
    assert isinstance(encoder, ResNet)
    assert encoder.conv1.weight.shape == (8, 2, 7, 7)
    assert isinstance(encoder.relu, torch.nn.LeakyReLU)
    assert isinstance(encoder.bn1, torch.nn.Identity)


def test_the_initialisation_reaches_the_network() -> None:
    weights = []
    for initialisation in ("kaiming", "torch"):
        torch.manual_seed(0)
        weights.append(new_encoder(EncoderConfig("small", initialisation=initialisation), 1).conv1.weight)
    torch.manual_seed(0)
    assert torch.equal(weights[1], torch.nn.Conv2d(1, 16, 3, bias=False).weight)
    assert not torch.equal(weights[0], weights[1])


def test_the_size_of_images_reaches_networks_that_have_weights_for_it() -> None:
    # an unknown size means timm's own, 160; patches of 16 pixels, and the class token
    patches = {size: new_encoder(EncoderConfig("timm/test_vit"), 3, size).pos_embed.shape[1] for size in (32, 64, 0)}
    assert patches == {32: 2 * 2 + 1, 64: 4 * 4 + 1, 0: 10 * 10 + 1}


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        (EncoderConfig("timm/test_vit"), "encoder: timm/test_vit cannot be built for images of 1 x 8 x 8"),
        (EncoderConfig("timm/test_resnet", batch_norm="none"), "encoder: batch_norm: timm/test_resnet has batch norm"),
        (EncoderConfig("small", stem="imagenet"), "encoder: encoder.stem: small has no such stem"),
        (
            EncoderConfig("small", stem="strided", pooling="quarters"),
            "encoder: encoder.pooling: quarters need maps of 2x2 pixels at least after the last stage, got 1x1",
        ),
    ],
)
def test_refusals_are_mistakes_of_settings(config: EncoderConfig, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        new_encoder(config, 1, 8)


@pytest.mark.parametrize("name", ["small", "resnet50", "wrn28", "pyramidnet-110-84"])
@pytest.mark.parametrize("width", [100_000, 10**6, 10**14])
def test_a_network_that_is_too_wide_for_the_memory_is_refused(name: str, width: int) -> None:
    with pytest.raises(ConfigError, match=r"^encoder, method: the network does not fit in memory, got "):
        new_encoder(EncoderConfig(name, width=width), 3)


def test_layers_that_fit_one_by_one_are_refused_if_all_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    config = EncoderConfig("pyramidnet-110-84", width=8)
    num_bytes = sum(4 * weight.numel() for weight in new_encoder(config, 3).parameters())
    monkeypatch.setattr(build, "free_bytes", lambda _: num_bytes // 2)
    with pytest.raises(ConfigError, match="does not fit in memory"):
        new_encoder(config, 3)


def test_a_network_that_fits_is_not_counted_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its trial without memory does not count in what is made around it."""
    config = EncoderConfig("small", width=12)
    num_bytes = sum(each.numel() * each.element_size() for each in new_encoder(config, 3).state_dict().values())
    build._bytes_of.cache_clear()
    monkeypatch.setattr(build, "free_bytes", lambda _: 3 * num_bytes // 2)
    with room_problems():
        new_encoder(config, 3)


def test_a_trial_for_the_size_of_a_network_changes_no_weight() -> None:
    networks, config = [], EncoderConfig("small", width=16)
    for made in (build._own_encoder, new_encoder):  # the second one is tried first
        build._bytes_of.cache_clear()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(3)
            networks.append((made(config, 1).state_dict(), torch.rand(1)))
    (own, after), (tried, after_trial) = networks
    assert torch.equal(after, after_trial)
    assert all(torch.equal(own[key], tried[key]) for key in own)

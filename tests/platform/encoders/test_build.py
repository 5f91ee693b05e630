"""From settings to networks: ours and timm's, and refusals as sentences; weights by name, shape and digest."""

import hashlib

import pytest
import torch

from ebclab.config.encoder import EncoderConfig
from ebclab.encoders import build
from ebclab.encoders.build import differences, digest_of, new_encoder, room_problems
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


ONE = {"a": torch.zeros(2, 3), "b": torch.ones(4)}


@pytest.mark.parametrize(
    ("weights", "found"),
    [
        (ONE, []),
        ({"b": ONE["b"], "a": ONE["a"]}, []),
        ({"a": ONE["a"]}, ["no tensor b"]),
        ({**ONE, "c": ONE["b"]}, ["an unknown tensor c"]),
        (
            {"a": torch.zeros(3, 2), "c": ONE["b"]},
            ["a of shape (3, 2) instead of (2, 3)", "no tensor b", "an unknown tensor c"],
        ),
    ],
)
def test_every_difference_in_names_and_shapes_is_told(weights: dict[str, torch.Tensor], found: list[str]) -> None:
    assert differences(ONE, weights) == found


def test_the_digest_is_that_of_names_types_shapes_and_bytes_in_order_of_names() -> None:
    text = b"a torch.float32 (2, 3)\n" + bytes(24) + b"b torch.float32 (4,)\n" + b"\x00\x00\x80\x3f" * 4
    assert digest_of(ONE) == digest_of({"b": ONE["b"], "a": ONE["a"]}) == hashlib.sha256(text).hexdigest()


@pytest.mark.parametrize(
    "other",
    [
        {**ONE, "a": torch.tensor([[0.0, 0, 0], [0, 0, -0.0]])},
        {**ONE, "a": torch.zeros(3, 2)},
        {**ONE, "a": torch.zeros(2, 3, dtype=torch.int32)},
        {"A": ONE["a"], "b": ONE["b"]},
        {"a": ONE["a"]},
    ],
)
def test_other_weights_have_another_digest(other: dict[str, torch.Tensor]) -> None:
    assert digest_of(other) != digest_of(ONE)


@pytest.mark.parametrize(
    "tensor", [torch.tensor(7), torch.tensor([True]), torch.zeros(0), torch.ones(2, dtype=torch.bfloat16)]
)
def test_any_tensor_has_a_digest(tensor: torch.Tensor) -> None:
    assert len(digest_of({"t": tensor})) == 64
    assert digest_of({"t": torch.rand(3, 4).T}) != digest_of({"t": torch.rand(3, 4).T})


def test_the_digest_does_not_depend_on_how_memory_is_laid_out() -> None:
    images = torch.rand(2, 3, 4, 4)
    assert digest_of({"t": images}) == digest_of({"t": images.contiguous(memory_format=torch.channels_last)})

"""The sections about the network: ours or timm's, and nothing that a network of timm would silently ignore."""

from __future__ import annotations

import pytest

from ebclab.config import compose, parse_experiment, parse_yaml, to_yaml
from ebclab.config.encoder import EncoderConfig, InitConfig
from ebclab.errors import ConfigError


def test_a_network_of_timm_survives_the_yaml_that_runs_keep() -> None:
    config = compose("simclr", overrides=["encoder.name=timm/test_resnet", "init.weights=timm/test_resnet.r160_in1k"])
    assert config.encoder == EncoderConfig("timm/test_resnet")
    assert parse_yaml(to_yaml(config), "test") == config


@pytest.mark.parametrize(("name", "timm_name"), [("small", ""), ("resnet18", ""), ("timm/resnet18", "resnet18")])
def test_the_prefix_says_whose_network_it_is(name: str, timm_name: str) -> None:
    assert EncoderConfig(name).timm_name == timm_name


def test_every_setting_that_timm_cannot_follow_is_named_beside_a_wrong_name() -> None:
    overrides = ["encoder.name=timm/resnet1", "encoder.stem=imagenet", "encoder.width=8"]
    with pytest.raises(ConfigError) as caught:
        compose("simclr", overrides=[*overrides, "encoder.activation=leaky_relu", "encoder.initialisation=torch"])
    name, stem, width, activation, initialisation = caught.value.problems
    assert name.startswith("encoder.name: no such network in timm")
    assert stem == "encoder.stem: timm/resnet1 has its own, got imagenet; leave it out, or write encoder.stem=cifar"
    assert width == "encoder.width: timm/resnet1 has its own, got 8; leave it out, or write encoder.width=0"
    assert activation.endswith("got leaky_relu; leave it out, or write encoder.activation=relu")
    assert initialisation.endswith("got torch; leave it out, or write encoder.initialisation=kaiming")


def test_settings_without_an_initialisation_have_the_old_one() -> None:
    old = {"method": {"name": "simclr"}, "encoder": {"name": "small", "stem": "cifar", "width": 0}}
    assert parse_experiment(old).encoder.initialisation == "kaiming"
    assert parse_experiment(old).encoder.pooling == "mean"


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("smal", "did you mean small? Known: small, resnet18, resnet50, wrn28, pyramidnet-110-84, timm/NAME"),
        ("Resnet18", "did you mean resnet18? Known: small, resnet18, resnet50, wrn28, pyramidnet-110-84, timm/NAME"),
        ("resnet34", "did you mean timm/resnet34?"),
        ("vit", "known: small, resnet18, resnet50, wrn28, pyramidnet-110-84, timm/NAME"),
    ],
)
def test_a_name_without_the_prefix_is_one_of_ours(name: str, hint: str) -> None:
    assert EncoderConfig(name).problems() == [f"name: no such choice, got {name!r}; {hint}"]


def test_a_digest_needs_weights() -> None:
    assert InitConfig("timm/x", "ab").problems() == []
    assert InitConfig(None, "0123456789abcdef").problems() == [
        "digest: says nothing without init.weights, got 0123456789ab...; leave it out"
    ]


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("pyramidnet-109-84", "name: a PyramidNet has 6 n + 2 layers, got 109; use pyramidnet-110-84"),
        ("pyramidnet-2-9", "name: a PyramidNet has 6 n + 2 layers, got 2; use pyramidnet-8-9"),
        ("pyramidnet-20-0", "name: a PyramidNet grows by one channel at least, got 0; use pyramidnet-20-84"),
        (
            "pyramidnet110",
            "name: a PyramidNet is named by depth and widening, got 'pyramidnet110'; use pyramidnet-110-84",
        ),
        ("PyramidNet-110-84", "name: no such choice, got 'PyramidNet-110-84'; did you mean pyramidnet-110-84?"),
    ],
)
def test_a_pyramidnet_that_cannot_be_is_one_sentence(name: str, problem: str) -> None:
    (found,) = EncoderConfig(name).problems()
    assert found.startswith(problem)
    assert EncoderConfig("pyramidnet-20-12", stem="imagenet", batch_norm="none").problems() == []

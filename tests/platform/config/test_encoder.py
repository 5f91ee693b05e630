"""The sections about the network: ours or timm's, and nothing that a network of timm would silently ignore."""

import re
from collections.abc import Callable

import pytest
import timm

from ebclab.config import compose, encoder, parse_experiment, parse_yaml, to_yaml
from ebclab.config.encoder import EncoderConfig, InitConfig, architecture_problem, weights_problem
from ebclab.errors import ConfigError


def test_a_network_of_timm_survives_the_yaml_that_runs_keep() -> None:
    config = compose("simclr", overrides=["encoder.name=timm/test_resnet", "init.weights=timm/test_resnet.r160_in1k"])
    assert config.encoder == EncoderConfig("timm/test_resnet")
    assert [EncoderConfig(name).timm_name for name in ("small", "timm/resnet18")] == ["", "resnet18"]
    assert parse_yaml(to_yaml(config), "test") == config


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


OURS = "small, resnet18, resnet50, wrn28, pyramidnet-110-84, timm/NAME"
WRONG = [
    ("smal", f"no such choice, got 'smal'; did you mean small? Known: {OURS}"),
    ("resnet34", "no such choice, got 'resnet34'; did you mean timm/resnet34?"),
    ("vit", f"no such choice, got 'vit'; known: {OURS}"),
    ("pyramidnet-109-84", "a PyramidNet has 6 n + 2 layers, got 109; use pyramidnet-110-84"),
    ("pyramidnet-2-9", "a PyramidNet has 6 n + 2 layers, got 2; use pyramidnet-8-9"),
    ("pyramidnet-20-0", "a PyramidNet grows by one channel at least, got 0; use pyramidnet-20-84"),
    ("pyramidnet110", "a PyramidNet is named by depth and widening, got 'pyramidnet110'; use pyramidnet-110-84"),
    ("PyramidNet-110-84", f"no such choice, got 'PyramidNet-110-84'; did you mean pyramidnet-110-84? Known: {OURS}"),
]


@pytest.mark.parametrize(("name", "sentence"), WRONG)
def test_a_name_that_is_none_of_ours_is_one_sentence(name: str, sentence: str) -> None:
    assert EncoderConfig(name).problems() == [f"name: {sentence}"]


def test_a_pyramidnet_may_have_any_stem_and_no_norm() -> None:
    assert EncoderConfig("pyramidnet-20-12", stem="imagenet", batch_norm="none").problems() == []


def test_a_digest_needs_weights() -> None:
    assert InitConfig("timm/x", "ab").problems() == []
    assert InitConfig(None, "0123456789abcdef").problems() == [
        "digest: says nothing without init.weights, got 0123456789ab...; leave it out"
    ]


def test_networks_of_timm_and_weights_by_network_or_tag_are_no_problem() -> None:
    assert [architecture_problem(name) for name in ("resnet18", "test_vit", "convnext_atto")] == [None] * 3
    assert [weights_problem(name) for name in ("resnet18", "resnet18.a1_in1k")] == [None] * 2


NO_NETWORK = f"no such network in timm {timm.__version__}, got timm/"
NO_WEIGHTS = f"timm {timm.__version__} has no weights of this name, got timm/"
UNKNOWN = [
    (architecture_problem, "resnet19", f"{NO_NETWORK}resnet19; did you mean "),
    (architecture_problem, "vit_tiny_patch16_244", "; did you mean timm/vit_tiny_patch16_224 or"),  # the nearest first
    (architecture_problem, "zzzqqq", "; timm.list_models() prints them"),
    (
        architecture_problem,
        "resnet18.a1_in1k",
        "an architecture is wanted, got timm/resnet18.a1_in1k, which names weights too; "
        "write timm/resnet18, and init.weights=timm/resnet18.a1_in1k to start from them",
    ),
    (weights_problem, "resnet18.a1_in2k", f"{NO_WEIGHTS}resnet18.a1_in2k; did you mean timm/resnet18.a1_in1k"),
    (weights_problem, "resnet19", f"{NO_WEIGHTS}resnet19; did you mean "),
    (weights_problem, "resnet19", "timm/resnet18"),
]


@pytest.mark.parametrize(("problem_of", "name", "said"), UNKNOWN)
def test_an_unknown_name_of_timm_brings_right_ones(problem_of: Callable[[str], str], name: str, said: str) -> None:
    problem = problem_of(name)
    assert said in problem
    suggested = re.findall(r"timm/(\S+?)(?: or |\?)", problem.partition("; did you mean ")[2])
    assert len(suggested) <= 3
    assert all(timm.is_model(each.partition(".")[0]) for each in suggested)


def test_a_network_without_weights_is_told() -> None:
    without = next(name for name in timm.list_models() if not timm.models.is_model_pretrained(name))
    assert architecture_problem(without) is None
    assert "has no weights of this name" in (weights_problem(without) or "")


@pytest.mark.parametrize("problem_of", [architecture_problem, weights_problem])
def test_without_timm_the_command_to_install_it_is_named(problem_of, monkeypatch):
    assert len(problem_of(4000 * "n")) < 200
    monkeypatch.setattr(encoder, "find_spec", lambda name: None)
    assert problem_of("resnet18") == ("timm is not installed here; run `pip install 'timm>=1.0.12'`, got timm/resnet18")

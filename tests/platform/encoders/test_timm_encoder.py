"""Networks of timm: the same weights give timm's own numbers, on any number of ranks, and nothing is drawn."""

import logging
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import timm
import torch
from huggingface_hub import constants
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from ebclab.encoders import timm_encoder
from ebclab.encoders.build import differences
from ebclab.encoders.timm_encoder import adapted, arguments_for, build_timm, pretrained, timm_has_batch_norm
from energy_contrast.networks.batch_norm import GlobalBatchNorm, set_groups

SIZES = {"test_resnet": 8, "test_efficientnet": 8, "test_nfnet": 8, "test_vit": 32, "test_convnext": 32}
"""Tiny networks of timm, one of each kind (batch norm, with its activation, none, tokens, layer norm); image sides."""
NUM_RANKS = 2


def built_with(change: Callable[[nn.Module], object], monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every network that timm creates from here on be changed first."""
    create = timm_encoder.create

    def changed(*arguments: Any) -> nn.Module:
        network = create(*arguments)
        change(network)
        return network

    monkeypatch.setattr(timm_encoder, "create", changed)


def own(name: str, network: nn.Module, channels: int, size: int) -> nn.Module:
    """timm's own network with the weights of ``network``."""
    theirs: nn.Module = timm.create_model(name, **arguments_for(name, channels, size))
    theirs.load_state_dict(network.state_dict())
    return theirs


def images(count: int, channels: int, size: int) -> Tensor:
    return torch.rand(count, channels, size, size, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize(("name", "size"), SIZES.items())
@pytest.mark.parametrize("training", [True, False])
def test_features_and_statistics_are_those_of_timms_own_network(name: str, size: int, training: bool) -> None:
    network = build_timm(name, 1, size)
    theirs = own(name, network, 1, size).train(training)
    x = images(4, 1, size)
    ours = network.train(training)(x)
    torch.testing.assert_close(ours, theirs(x))
    assert ours.shape == (4, network.embedding_size)
    torch.testing.assert_close(network.state_dict(), theirs.state_dict())


@pytest.mark.parametrize("off", [torch.no_grad, torch.inference_mode])
def test_a_network_is_the_same_where_the_caller_has_gradients_off(off: Callable[[], Any]) -> None:
    with off():
        network = build_timm("test_vit", 1, 32)
    expected = {name: each.requires_grad for name, each in build_timm("test_vit", 1, 32).named_parameters()}
    assert {name: each.requires_grad for name, each in network.named_parameters()} == expected
    network(images(2, 1, 32)).sum().backward()


@pytest.mark.parametrize(
    ("name", "expected"),
    [("test_resnet", True), ("test_efficientnet", True), ("test_vit", False), ("test_convnext", False)],
)
def test_whether_a_network_has_batch_norm_is_known_and_draws_nothing(name: str, expected: bool) -> None:
    before = torch.get_rng_state()
    assert timm_has_batch_norm(name) is expected
    assert torch.equal(torch.get_rng_state(), before)


def test_epsilon_and_momentum_are_timms(monkeypatch: pytest.MonkeyPatch) -> None:
    def change(network: nn.Module) -> None:
        for module in network.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.eps, module.momentum = 0.5, 0.25

    built_with(change, monkeypatch)
    norms = [m for m in build_timm("test_efficientnet", 1, 8).modules() if isinstance(m, GlobalBatchNorm)]
    assert {(norm.eps, norm.momentum) for norm in norms} == {(0.5, 0.25)}
    theirs = timm.create_model("test_efficientnet").modules()
    assert len(norms) == sum(isinstance(module, nn.BatchNorm2d) for module in theirs)


def test_weights_are_a_function_of_torchs_seed_alone() -> None:
    first, second = (build(seed) for seed in (3, 3))
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert any(not torch.equal(first[name], value) for name, value in build(4).items())


def build(seed: int) -> dict[str, Tensor]:
    torch.manual_seed(seed)
    return dict(build_timm("test_efficientnet", 1, 8).state_dict())


@pytest.mark.parametrize("name", ["ghostnet_050", "tiny_vit_5m_224"])  # a function, and layers, that draw in training
def test_dropout_and_stochastic_depth_are_off(name: str) -> None:
    draws = timm.create_model(name, **arguments_for(name, 3, 64), **({"drop_path_rate": 0.5} if "vit" in name else {}))
    x = images(4, 3, 64)
    assert not torch.equal(draws.train()(x), draws(x))
    quiet = build_timm(name, 3, 64)
    assert torch.equal(quiet(x), quiet(x))


def test_a_network_whose_draws_cannot_be_switched_off_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timm_encoder, "_switch_off_draws", lambda network: None)
    with pytest.raises(ValueError, match=r"timm/ghostnet_050 draws its own random numbers .*; take another network"):
        build_timm("ghostnet_050", 3, 64)


def test_weights_that_the_features_do_not_depend_on_are_frozen(monkeypatch: pytest.MonkeyPatch) -> None:
    spare = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    built_with(lambda network: network.add_module("spare", spare), monkeypatch)
    frozen = [key for key, value in build_timm("test_resnet", 1, 8).named_parameters() if not value.requires_grad]
    assert frozen == ["spare.0.weight", "spare.0.bias", "spare.1.weight", "spare.1.bias"]


@pytest.mark.parametrize(
    ("name", "size", "more", "problem"),
    [
        ("test_vit", 8, {}, r"images of 1 x 8 x 8, got Input height \(8\) should be divisible by patch size \(16\)"),
        ("test_resnet", 8, {"batch_norm": "none"}, r"batch_norm: timm/test_resnet has batch norm, .* got none"),
        ("test_efficientnet", 8, {"batch_norm": "none"}, r"take a network without it, such as timm/convnext_atto"),
        ("no_such", 0, {}, r"timm/no_such cannot be built .*Unknown model \(no_such\)"),
    ],
)
def test_what_cannot_be_built_is_said_in_a_sentence(name: str, size: int, more: dict[str, str], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        build_timm(name, 1, size, **more)


def test_a_network_without_batch_norm_takes_batch_norm_none() -> None:
    assert build_timm("test_nfnet", 1, 8, batch_norm="none").embedding_size == 192


@pytest.mark.parametrize(
    "norm", [nn.SyncBatchNorm(16), nn.BatchNorm2d(16, affine=False), nn.BatchNorm2d(16, momentum=None)]
)
def test_a_norm_that_cannot_be_shared_by_ranks_is_refused(norm: nn.Module, monkeypatch: pytest.MonkeyPatch) -> None:
    built_with(lambda network: network.add_module("other", norm), monkeypatch)
    with pytest.raises(ValueError, match="whose statistics cannot be taken over all ranks, got"):
        build_timm("test_resnet", 1, 8)


def test_a_network_without_one_vector_an_image_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timm_encoder, "create", lambda *arguments: nn.Conv2d(1, 3, 3))
    with pytest.raises(ValueError, match=r"gives no vector for each image, got shape \(1, 3, 6, 6\)"):
        build_timm("test_resnet", 1, 8)


def test_without_timm_the_command_to_install_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timm_encoder, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"run `pip install 'timm>=1\.0\.12'`"):
        build_timm("test_resnet", 1, 8)


def published(monkeypatch: pytest.MonkeyPatch, name: str, **arguments: Any) -> dict[str, Tensor]:
    """Let timm's hub hold random weights of ``name`` with a classifier, and return them."""
    torch.manual_seed(5)
    weights = dict(timm.create_model(name, **arguments).state_dict())
    monkeypatch.setattr("timm.models._builder.load_state_dict_from_hf", lambda *given, **more: dict(weights))
    return weights


def test_adapted_weights_fit_other_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    weights = {k: v for k, v in published(monkeypatch, "test_vit").items() if not k.startswith("head.")}
    network = build_timm("test_vit", 1, 32)
    assert differences(network.state_dict(), weights)
    assert differences(network.state_dict(), adapted("test_vit", weights, 1, 32)) == []


def test_weights_that_cannot_be_fetched_are_a_sentence_and_nothing_else(monkeypatch, caplog):
    retries = logging.getLogger("huggingface_hub.utils._http")

    def fail(*given: Any, **more: Any) -> None:
        retries.warning("Retrying in 1s [Retry 1/5].")
        raise OSError("no route to host\nsecond line")

    monkeypatch.setattr("timm.models._builder.load_state_dict_from_hf", fail)
    with pytest.raises(ValueError, match=r"cannot be fetched, got OSError: no route to host; connect this machine"):
        pretrained("test_resnet")
    assert caplog.text == ""
    assert retries.isEnabledFor(logging.WARNING)


@pytest.mark.parametrize(
    ("is_known", "proxies"), [(True, {}), (False, {}), (False, {"https": "proxy:8080"}), (False, {"no": "localhost"})]
)
def test_where_the_name_of_the_hub_is_unknown_its_library_does_not_try_for_a_minute(monkeypatch, is_known, proxies):
    offline = list[bool]()

    def look_up(host: str, port: int) -> None:
        assert host == "huggingface.co"
        if not is_known:
            raise socket.gaierror("Name or service not known")

    def fail(*given: Any, **more: Any) -> None:
        offline.append(constants.HF_HUB_OFFLINE)
        raise OSError("no route to host")

    monkeypatch.setattr("ebclab.encoders.timm_encoder.getproxies", lambda: proxies)
    monkeypatch.setattr("socket.getaddrinfo", look_up)
    monkeypatch.setattr("timm.models._builder.load_state_dict_from_hf", fail)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    with pytest.raises(ValueError, match="no route to host"):
        pretrained("test_resnet")
    assert offline == [not is_known and "https" not in proxies]
    assert constants.HF_HUB_OFFLINE is False


def test_where_the_name_of_the_hub_is_unknown_the_message_says_so(monkeypatch, tmp_path):
    look_up = Mock(side_effect=socket.gaierror(-2, "Name or service not known"))
    monkeypatch.setattr("ebclab.encoders.timm_encoder.getproxies", dict)
    monkeypatch.setattr("socket.getaddrinfo", look_up)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(
        ValueError, match=r"cannot be fetched, got gaierror: \[Errno -2\] Name or service not known; con"
    ):
        pretrained("resnet18")


def be_a_rank(rank: int, num_ranks: int) -> dict[str, Any]:
    """Pass a share of one batch forward and back, with statistics of the batch and of two groups."""
    found = {}
    for name, size in (("test_efficientnet", 8), ("test_resnet", 8), ("test_vit", 32)):
        for groups in (1, 2):
            torch.manual_seed(0)
            network = build_timm(name, 1, size).double()
            set_groups(network, groups)
            shared = network if num_ranks == 1 else DistributedDataParallel(network, broadcast_buffers=False)
            shared(images(8, 1, size).double().chunk(num_ranks)[rank]).square().mean().backward()
            slopes = {key: value.grad.clone() for key, value in network.named_parameters() if value.requires_grad}
            found[f"{name} {groups}"] = slopes | dict(network.state_dict())
    return found


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_two_ranks_give_the_gradients_and_statistics_of_one(run_ranks: Callable[[str, int], list[Any]]) -> None:
    alone = be_a_rank(0, 1)
    for found in run_ranks(str(Path(__file__)), NUM_RANKS):
        torch.testing.assert_close(found, alone, rtol=1e-9, atol=1e-11)

"""Weight decay reaches the weights it should, on networks of trusted libraries."""

import pytest
import torch
import torchvision
from torch import nn

from ebclab.config import compose
from ebclab.encoders import new_encoder
from ebclab.optimization.groups import parameter_groups
from ebclab.optimization.optimizers import build_optimizer
from energy_contrast.catalog import METHODS


def names_by_group(module: nn.Module, decay_norm_and_bias: bool = False) -> list[set[str]]:
    names = {id(parameter): name for name, parameter in module.named_parameters()}
    groups = parameter_groups(module, 0.1, decay_norm_and_bias)
    return [{names[id(parameter)] for parameter in group["params"]} for group in groups]


def test_resnet18_decays_its_twenty_convolutions_and_the_classifier_weight():
    network = torchvision.models.resnet18()
    decayed, exempt = names_by_group(network)
    convolutions = {f"{name}.weight" for name, layer in network.named_modules() if isinstance(layer, nn.Conv2d)}
    assert len(convolutions) == 20
    assert decayed == convolutions | {"fc.weight"}
    assert len(exempt) == 2 * 20 + 1  # weight and bias of 20 batch norms, and the classifier's bias


def test_a_transformer_encoder_decays_its_matrices_only():
    layer = nn.TransformerEncoderLayer(d_model=8, nhead=2, dim_feedforward=16)
    decayed, _ = names_by_group(layer)
    assert decayed == {"self_attn.in_proj_weight", "self_attn.out_proj.weight", "linear1.weight", "linear2.weight"}


@pytest.mark.parametrize(
    "norm",
    [
        nn.BatchNorm1d(4),
        nn.BatchNorm3d(4),
        nn.SyncBatchNorm(4),
        nn.InstanceNorm2d(4, affine=True),
        nn.GroupNorm(2, 4),
        nn.LayerNorm((4, 3, 3)),  # its parameters have three axes
        nn.RMSNorm((4, 3)),
    ],
    ids=lambda norm: type(norm).__name__,
)
def test_no_norm_layer_is_decayed(norm: nn.Module):
    decayed, exempt = names_by_group(nn.Sequential(nn.Linear(2, 3), norm))
    assert decayed == {"0.weight"}
    assert exempt == {"0.bias", *(f"1.{name}" for name, _ in norm.named_parameters())}


def test_biases_with_two_axes_and_learned_scalars_are_not_decayed():
    module = nn.Linear(2, 3, bias=False)
    module.bias = nn.Parameter(torch.zeros(3, 1))
    module.temperature = nn.Parameter(torch.tensor(0.1))
    assert names_by_group(module) == [{"weight"}, {"bias", "temperature"}]


def test_every_trainable_parameter_is_in_exactly_one_group():
    network = torchvision.models.resnet18()
    grouped = [id(p) for group in parameter_groups(network, 0.1, False) for p in group["params"]]
    assert sorted(grouped) == sorted(id(p) for p in network.parameters())


def test_decay_norm_and_bias_leaves_one_group():
    (group,) = parameter_groups(nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3)), 0.1, True)
    assert len(group["params"]) == 4
    assert group["weight_decay"] == 0.1


def test_frozen_parameters_are_left_out():
    module = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 2).requires_grad_(False))
    assert names_by_group(module) == [{"0.weight"}, {"0.bias"}]


def test_a_shared_parameter_is_listed_once():
    first, second = nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False)
    second.weight = first.weight
    (group,) = parameter_groups(nn.Sequential(first, second), 0.1, False)
    assert len(group["params"]) == 1


def test_nothing_to_train_is_refused():
    with pytest.raises(ValueError, match="module: has no trainable parameter, got Linear"):
        parameter_groups(nn.Linear(2, 3).requires_grad_(False), 0.1, False)


@pytest.mark.parametrize("method", ["simclr", "moco", "simsiam", "byol"])
def test_as_released_weight_decay_reaches_every_weight_that_learns(method: str):
    config = compose(method, "ebclr-as-released", overrides=["encoder.width=2"])
    network = METHODS[method](config.method, new_encoder(config.encoder, 3))
    (group,) = build_optimizer(config.optimizer, network).param_groups
    assert group["weight_decay"] == 1e-4
    learning = {id(p) for p in network.parameters() if p.requires_grad}
    assert {id(p) for p in group["params"]} == learning
    assert {id(p) for p in network.encoder.parameters()} <= learning

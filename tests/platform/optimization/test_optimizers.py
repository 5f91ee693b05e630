"""Each optimizer against a slow float64 loop of its equation; weight decay reaches the weights it should."""

import math

import pytest
import torch
import torchvision
from timm.optim.lars import Lars
from torch import nn

from ebclab.config import compose
from ebclab.config.sections import OptimizerConfig
from ebclab.encoders.build import new_encoder
from ebclab.errors import UserError
from ebclab.optimization.optimizers import build_optimizer, eager, parameter_groups
from ebclab.optimization.schedules import set_weight_decay
from energy_contrast.catalog import METHODS


class Small(nn.Module):
    """A matrix and a bias as float64, one of them all zeros on request."""

    def __init__(self, zero_weight: bool = False) -> None:
        super().__init__()
        values = torch.tensor([[0.5, -1.0], [2.0, 0.25]], dtype=torch.float64)
        self.weight = nn.Parameter(values * 0 if zero_weight else values)
        self.bias = nn.Parameter(torch.tensor([0.1, -0.3], dtype=torch.float64))


def gradient_of(step: int, name: str, values: list[float]) -> list[float]:
    """Any smooth gradient that depends on the step and the weights will do."""
    return [math.sin(1 + step + 3 * i) + 0.1 * value + (0.5 if name == "bias" else 0) for i, value in enumerate(values)]


def train(
    config: OptimizerConfig, module: Small, num_steps: int = 4, decay: float | None = None
) -> dict[str, list[float]]:
    optimizer = build_optimizer(config, module)
    for step in range(num_steps):
        if decay is not None:
            set_weight_decay(optimizer, decay)
        for name, parameter in module.named_parameters():
            gradient = gradient_of(step, name, parameter.detach().flatten().tolist())
            parameter.grad = torch.tensor(gradient, dtype=torch.float64).view_as(parameter)
        optimizer.step()
    return {name: parameter.detach().flatten().tolist() for name, parameter in module.named_parameters()}


def norm(values: list[float]) -> float:
    return math.sqrt(sum(value * value for value in values))


def lars_loop(w: list[float], name: str, *, decay: float, adapted: bool, rate: float, momentum: float) -> list[float]:
    velocity = [0.0] * len(w)
    for step in range(4):
        g = gradient_of(step, name, w)
        trust = 1.0
        if adapted and norm(w) > 0 and norm(g) > 0:
            trust = 0.001 * norm(w) / (norm(g) + decay * norm(w) + 1e-8)
        velocity = [momentum * v + trust * (gi + decay * wi) for v, gi, wi in zip(velocity, g, w, strict=True)]
        w = [wi - rate * v for wi, v in zip(w, velocity, strict=True)]
    return w


def start(name: str) -> list[float]:
    return dict(Small().named_parameters())[name].detach().flatten().tolist()


@pytest.mark.parametrize("decay", [0.0, 0.01])
def test_lars_adapts_weights_with_and_without_decay_and_leaves_biases_to_sgd(decay: float):
    config = OptimizerConfig(name="lars", learning_rate=2.0, momentum=0.9, weight_decay=decay)
    result = train(config, Small())
    weight = lars_loop(start("weight"), "weight", decay=decay, adapted=True, rate=2.0, momentum=0.9)
    bias = lars_loop(start("bias"), "bias", decay=0.0, adapted=False, rate=2.0, momentum=0.9)
    assert result["weight"] == pytest.approx(weight, rel=1e-12)
    assert result["bias"] == pytest.approx(bias, rel=1e-12)


def test_lars_adapts_and_decays_biases_when_asked():
    config = OptimizerConfig(name="lars", learning_rate=2.0, weight_decay=0.01, decay_norm_and_bias=True)
    bias = lars_loop(start("bias"), "bias", decay=0.01, adapted=True, rate=2.0, momentum=0.9)
    assert train(config, Small())["bias"] == pytest.approx(bias, rel=1e-12)


def test_lars_moves_a_weight_that_starts_at_zero():
    config = OptimizerConfig(name="lars", learning_rate=0.1, weight_decay=0.01)
    expected = lars_loop([0.0] * 4, "weight", decay=0.01, adapted=True, rate=0.1, momentum=0.9)
    assert train(config, Small(zero_weight=True))["weight"] == pytest.approx(expected, rel=1e-12)
    assert norm(expected) > 0


def test_captured_steps_of_lars_are_refused():
    with pytest.raises(ValueError, match="steps of lars cannot be captured"):
        build_optimizer(OptimizerConfig(name="lars"), Small(), captured=True)


def test_sgd_is_heavy_ball_momentum_with_decay_on_weights_only():
    config = OptimizerConfig(name="sgd", learning_rate=0.1, momentum=0.8, weight_decay=0.05)
    result = train(config, Small())
    weight = lars_loop(start("weight"), "weight", decay=0.05, adapted=False, rate=0.1, momentum=0.8)
    bias = lars_loop(start("bias"), "bias", decay=0.0, adapted=False, rate=0.1, momentum=0.8)
    assert result["weight"] == pytest.approx(weight, rel=1e-12)
    assert result["bias"] == pytest.approx(bias, rel=1e-12)


@pytest.mark.parametrize("decoupled", [False, True], ids=["adam", "adamw"])
def test_adam_adds_decay_to_the_gradient_and_adamw_to_the_weight(decoupled: bool):
    rate, beta1, beta2, decay = 0.01, 0.8, 0.95, 0.1
    config = OptimizerConfig(
        name="adamw" if decoupled else "adam", learning_rate=rate, beta1=beta1, beta2=beta2, weight_decay=decay
    )
    w = start("weight")
    first, second = [0.0] * 4, [0.0] * 4
    for step in range(4):
        g = gradient_of(step, "weight", w)
        if not decoupled:
            g = [gi + decay * wi for gi, wi in zip(g, w, strict=True)]
        first = [beta1 * m + (1 - beta1) * gi for m, gi in zip(first, g, strict=True)]
        second = [beta2 * v + (1 - beta2) * gi**2 for v, gi in zip(second, g, strict=True)]
        shrunk = [wi * (1 - rate * decay) if decoupled else wi for wi in w]
        scale = [math.sqrt(v / (1 - beta2 ** (step + 1))) + 1e-8 for v in second]
        w = [wi - rate * m / (1 - beta1 ** (step + 1)) / s for wi, m, s in zip(shrunk, first, scale, strict=True)]
    assert train(config, Small())["weight"] == pytest.approx(w, rel=1e-12)


@pytest.mark.parametrize("everything", [False, True])
@pytest.mark.parametrize("name", ["sgd", "adam", "adamw", "lars"])
def test_a_decay_that_is_set_is_one_that_was_built_in(name: str, everything: bool):
    none, some = (OptimizerConfig(name=name, weight_decay=d, decay_norm_and_bias=everything) for d in (0.0, 0.3))
    moved = train(none, Small(), decay=0.3)
    assert moved == train(some, Small())
    without = train(none, Small())
    assert [moved[key] == without[key] for key in ("weight", "bias")] == [False, not everything]


@pytest.mark.parametrize("name", ["sgd", "adam", "adamw", "lars"])
def test_a_restored_optimizer_continues_with_the_same_bits(name: str):
    config = OptimizerConfig(name=name, learning_rate=0.1)
    whole = train(config, Small(), num_steps=4)
    module = Small()
    first = build_optimizer(config, module)
    second = build_optimizer(config, module)
    for step in range(4):
        optimizer = first if step < 2 else second
        if step == 2:
            second.load_state_dict(first.state_dict())
        for key, parameter in module.named_parameters():
            gradient = gradient_of(step, key, parameter.detach().flatten().tolist())
            parameter.grad = torch.tensor(gradient, dtype=torch.float64).view_as(parameter)
        optimizer.step()
    assert {key: p.detach().flatten().tolist() for key, p in module.named_parameters()} == whole


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW, torch.optim.NAdam, Lars])
def test_eager_optimizers_are_those_of_torch(kind: type[torch.optim.Optimizer]):
    """In steps and states, bit for bit: the states of each are read by the other in the middle."""
    options = {"momentum": 0.9} if kind in (torch.optim.SGD, Lars) else {}
    modules = Small(), Small()
    own, eager_one = (
        each(module.parameters(), lr=0.1, **options) for each, module in zip((kind, eager(kind)), modules, strict=True)
    )
    assert isinstance(eager_one, kind)
    for step in range(4):
        for module, optimizer in zip(modules, (own, eager_one), strict=True):
            optimizer.zero_grad()
            sum(weight.sin().sum() * (step + 1) for weight in module.parameters()).backward()
            optimizer.step()
        states = own.state_dict(), eager_one.state_dict()
        assert str(states[0]) == str(states[1])
        own.load_state_dict(states[1])
        eager_one.load_state_dict(states[0])
    for ours, theirs in zip(*(module.parameters() for module in modules), strict=True):
        assert torch.equal(ours, theirs)
        assert ours.grad_fn is theirs.grad_fn is None


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


def test_frozen_parameters_are_left_out():
    module = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 2).requires_grad_(False))
    assert names_by_group(module) == [{"0.weight"}, {"0.bias"}]


def test_a_shared_parameter_is_listed_once():
    first, second = nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False)
    second.weight = first.weight
    (group,) = parameter_groups(nn.Sequential(first, second), 0.1, False)
    assert len(group["params"]) == 1


def test_nothing_to_train_is_refused():
    with pytest.raises(UserError, match="Linear: every weight is frozen"):
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


def test_a_transformer_encoder_decays_its_matrices_only():
    layer = nn.TransformerEncoderLayer(d_model=8, nhead=2, dim_feedforward=16)
    decayed, _ = names_by_group(layer)
    assert decayed == {"self_attn.in_proj_weight", "self_attn.out_proj.weight", "linear1.weight", "linear2.weight"}

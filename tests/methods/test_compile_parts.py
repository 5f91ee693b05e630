"""Compiled parts give the numbers of the parts themselves, in one graph a sampler's step."""

import logging
import shutil
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest
import torch
from small_methods import draw_images, small_encoder, small_method
from torch import Tensor, nn

from energy_contrast.catalog import METHODS
from energy_contrast.method import Batch, Method, Progress
from energy_contrast.networks.drawn import EncoderShape
from energy_contrast.networks.resnet import ResNet
from energy_contrast.sampling_method import SamplingMethod

BATCH_SIZE = 16
NUM_STEPS = 3

CASES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {  # method, its settings, the encoder's
    "moco": ("moco", {"queue_size": 44}, {}),
    "ebclr": ("ebclr", {"buffer_size": 40, "num_steps": 4}, {"batch_norm": "none"}),
    "ebclr, first layer": (
        "ebclr",
        {"buffer_size": 40, "num_steps": 4, "chain_gradient": "first-layer", "num_inner_steps": 2},
        {"batch_norm": "none"},
    ),
    "jem": ("jem", {"buffer_size": 40, "num_steps": 3}, {"batch_norm": "none"}),
    "jem, flat minima": (
        "jem",
        {"buffer_size": 40, "num_steps": 3, "variant": "sada", "chain_gradient": "first-layer", "num_inner_steps": 3},
        {"batch_norm": "none"},
    ),
    "vem-langevin": ("vem-langevin", {"bank_size": 40, "num_steps": 3}, {}),
    "vem-svgd": ("vem-svgd", {"bank_size": 40, "num_steps": 3, "bank_momentum": 0.5, "bank_schedule": "cosine"}, {}),
    "vem-image": ("vem-image", {"bank_size": 40, "num_steps": 3}, {}),
}
ONE_OF_EACH_KIND = ("moco", "ebclr")
"""An encoder beside a queue, and a sampler beside a memory; the others are slow."""


def marked(cases: Iterable[str]) -> list[Any]:
    """Return cases as parameters; all but one of each kind are slow."""
    return [pytest.param(case, marks=() if case in ONE_OF_EACH_KIND else pytest.mark.slow) for case in cases]


SAMPLING = [case for case, (name, _, _) in CASES.items() if issubclass(METHODS[name], SamplingMethod)]


@pytest.fixture(autouse=True)
def _nothing_compiled_before_or_after(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    caplog.set_level(logging.ERROR, "torch")
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    yield
    torch._dynamo.reset()


NewEncoder = Callable[..., nn.Module]


def one_block(**network: Any) -> nn.Module:
    """Return an encoder with little more than one layer of each kind: g++ takes a second for every kernel."""
    return ResNet((1,), EncoderShape(**network))


def build(case: str, new_encoder: NewEncoder = small_encoder) -> Method:
    name, settings, network = CASES[case]
    method = small_method(name, settings, lambda: new_encoder(in_channels=1, width=4, **network))
    method.diagnosing = False
    return method


def train(method: Method) -> tuple[list[float], dict[str, Tensor], dict[str, Tensor]]:
    """Return what three steps give: losses, the state, and the memories; the sampler's step is halved on the way."""
    method.start(draw_images)
    optimizer = torch.optim.SGD([p for p in method.parameters() if p.requires_grad], lr=0.05)
    generator, losses = torch.Generator().manual_seed(7), []
    for step in range(NUM_STEPS):
        views = torch.randn(method.num_views, BATCH_SIZE, 1, 8, 8, generator=generator)
        proposals = torch.randn(method.num_proposals(BATCH_SIZE), 1, 8, 8, generator=generator)
        output = method(Batch(views, torch.arange(BATCH_SIZE) % 4, torch.zeros(0), proposals), generator)
        optimizer.zero_grad()
        output.loss.backward()
        optimizer.step()
        method.after_step(Progress(step + 1, NUM_STEPS, 0))
        method.scale_step(0.5)
        losses.append(output.loss.item())
    memories = [memory.state_dict().items() for memory in method.memories.values()]
    return losses, method.state_dict(), {name: value for items in memories for name, value in items}


def assert_same_numbers(case: str, *encoder: NewEncoder, **options: Any) -> None:
    method = build(case, *encoder)
    method.compile_parts(**options)
    losses, state, memories = train(method)
    eager_losses, eager_state, eager_memories = train(build(case, *encoder))
    assert losses == pytest.approx(eager_losses, rel=1e-4)
    torch.testing.assert_close(state, eager_state, rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(memories, eager_memories, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("case", marked(CASES))
def test_traced_parts_train_to_the_same_numbers(case: str) -> None:
    assert_same_numbers(case, one_block, backend="aot_eager")


@pytest.mark.parametrize("case", marked(SAMPLING))
def test_a_sampler_s_step_is_one_graph_that_a_new_step_size_does_not_compile_anew(case: str) -> None:
    if not hasattr(torch._dynamo.config, "trace_autograd_ops"):
        pytest.skip("this torch cannot trace a gradient taken inside a step")
    graphs: list[str] = []

    def count(graph: torch.fx.GraphModule, inputs: list[Tensor]) -> Any:
        graphs.append("")
        return graph.forward

    method = build(case)
    SamplingMethod.compile_parts(method, backend=count)
    for network in method.modules():
        network._compiled_call_impl = None  # what is counted is the sampler's alone
    train(method)
    assert len(graphs) == 1
    assert not torch._dynamo.utils.counters["graph_break"]


@pytest.mark.slow
@pytest.mark.timeout(900)  # on a busy machine
@pytest.mark.skipif(not (shutil.which("g++") or shutil.which("clang++")), reason="no C++ compiler")
@pytest.mark.parametrize("case", ["ebclr", "ebclr, first layer", "vem-langevin"])
def test_parts_that_were_compiled_for_good_train_to_the_same_numbers(case: str) -> None:
    assert_same_numbers(case, one_block)


def test_a_method_without_a_sampler_compiles_its_encoder() -> None:
    method = small_method("simclr", {})
    method.compile_parts(backend="eager")
    assert method.encoder._compiled_call_impl is not None

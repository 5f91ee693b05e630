"""W ranks equal one: losses, gradients, metrics and states, for every method of the catalogue."""

from __future__ import annotations

import functools
import traceback
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from small_methods import NUM_CLASSES, SMALL, small_method
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from energy_contrast.catalog import METHODS
from energy_contrast.method import Batch, Method, Progress
from energy_contrast.networks.drawn import EncoderShape
from energy_contrast.networks.resnet import ResNet

BATCH_SIZE = 16
NUM_STEPS = 4  # every queue and bank, of at most three batches, is written over and then read
NUM_RANKS = 2
TOLERANCE = 1e-10  # of float64; the promise is 1e-5
METRIC_TOLERANCE = 1e-6  # effective_rank takes roots of eigenvalues that may be zero but for rounding

CONTROLLED: dict[str, Any] = {"ess_target": 0.4, "ess_gain": 0.1}
"""A temperature that moves."""

MOMENTUM: dict[str, Any] = {"bank_momentum": 0.8, "bank_weight_decay": 0.01, "bank_schedule": "cosine"}
"""A bank with an optimizer of its own."""

CASES: dict[str, tuple[str, dict[str, Any]]] = {
    **{name: (name, SMALL.get(name, {})) for name in METHODS},
    "simclr, batch norm in the head, controlled": ("simclr", {"projection_batch_norm": True, **CONTROLLED}),
    "supervised, supcon, controlled": ("supervised", {"objective": "supcon", "label_smoothing": 0.1, **CONTROLLED}),
    "supervised, negatives only": ("supervised", {"objective": "negatives-only"}),
    # with batch norm in the head: near similarities of 1, log-odds blow rounding up
    "simclr, temperature-free": ("simclr", {"objective": "temperature-free", "projection_batch_norm": True}),
    "dhel, kernel, spread": ("dhel", {"objective": "kernel", "kernel_repulsion": 4.0, "spread_weight": 30.0}),
    "dhel, controlled": ("dhel", CONTROLLED),
    "dcl, weighted, controlled": ("dcl", {"weighting": "von-mises-fisher", **CONTROLLED}),
    "lejepa, visreg, three views": (
        "lejepa",
        {"projection_size": 8, "num_slices": 16, "regularizer": "visreg", "regularizer_weight": 0.6, "num_views": 3},
    ),
    "flatclr, controlled": ("flatclr", CONTROLLED),
    "simsiam, as released with EBCLR": ("simsiam", {**SMALL["simsiam"], "projection_scale": True}),
    "byol, as released with EBCLR": (
        "byol",
        {**SMALL["byol"], "directions": "mean", "target_start": "own", "momentum_schedule": "constant"},
    ),
    "moco, symmetric, small queue, controlled": ("moco", {"symmetric": True, "queue_size": 44, **CONTROLLED}),
    "moco, queue below the batch": ("moco", {"queue_size": 12, "batch_norm_groups": 2, "momentum": 0.5}),
    "moco, global batch norm": ("moco", {"batch_norm_groups": 1, "queue_size": 40}),
    "ebclr, the equations as printed, buffer below twice the batch": (
        "ebclr",
        {
            **SMALL["ebclr"],
            "discriminative": "one-sided",
            "references": "both-views",
            "output_penalty": "mean",
            "reinit_rate": 0.35,
            "uniform_rate": 0.5,
            "buffer_size": 24,
        },
    ),
    "ebclr, uniform starts, first layer": (
        "ebclr",
        {**SMALL["ebclr"], "chain_gradient": "first-layer", "num_inner_steps": 3, "uniform_rate": 1.0},
    ),
    "jem, class Gaussians, through the first layer": (
        "jem",
        {**SMALL["jem"], "variant": "plusplus", "chain_gradient": "first-layer", "num_inner_steps": 3},
    ),
    "jem, flat minima": ("jem", {**SMALL["jem"], "variant": "sada", "num_steps": 2, "sharpness_radius": 0.5}),
    "vem-langevin, shared keys, random bank, large moves, momentum": (
        "vem-langevin",
        {
            "bank_size": 24,
            "key_encoder": "shared",
            "bank_init": "random",
            "step_size": 1.0,
            "noise_intensity": 0.2,
            **MOMENTUM,
        },
    ),
    "vem-langevin, printed": ("vem-langevin", {"bank_size": 24, "update": "printed", "step_size": 1.0}),
    "vem-svgd, linear kernel, shared keys, momentum": (
        "vem-svgd",
        {"bank_size": 24, "kernel": "linear", "key_encoder": "shared", **MOMENTUM},
    ),
    "vem-image, shared keys, new starts, bank below the batch": (
        "vem-image",
        {"bank_size": 12, "num_steps": 2, "key_encoder": "shared", "reinit_rate": 0.3},
    ),
}
STAGES = {"vem-svgd": (1, 1)}
"""Encoders with other stages than one block: a shallower one lets the kernel blow rounding up."""

RESUMED = (
    *METHODS,
    "flatclr, controlled",
    "moco, symmetric, small queue, controlled",
    "ebclr, the equations as printed, buffer below twice the batch",
    "vem-image, shared keys, new starts, bank below the batch",
    "vem-svgd, linear kernel, shared keys, momentum",
)
"""Cases that are resumed after their first step: those whose methods keep state between steps."""
assert set(RESUMED) <= CASES.keys()
IN_CHUNKS = " (in chunks)"
CHUNKED = ("simclr", "moco, symmetric, small queue, controlled", "byol", "supervised, supcon, controlled")
"""Cases of one pass of both views, of groups with shuffled keys, of a pass for each view, and of labels."""
RUNS = (*CASES, *(case + IN_CHUNKS for case in CHUNKED))

Run = dict[str, dict[str, Tensor]]
"""What every step computed: losses, metrics, gradients, state and memories; by name, a row for each step."""


def build(case: str, seed: int = 0, batch_norm: str = "global") -> Method:
    name, settings = CASES[case]
    new_encoder = partial(ResNet, STAGES.get(case, (1,)), EncoderShape(in_channels=1, width=8, batch_norm=batch_norm))
    return small_method(name, settings, new_encoder, seed).double()


def share_of_batch(method: Method, step: int, rank: int, num_ranks: int) -> Batch:
    generator = torch.Generator().manual_seed(100 + step)
    views = torch.randn(method.num_views, BATCH_SIZE, 1, 8, 8, generator=generator, dtype=torch.float64)
    proposals = torch.randn(method.num_proposals(BATCH_SIZE), 1, 8, 8, generator=generator, dtype=torch.float64)
    index = torch.randperm(40, generator=generator)[:BATCH_SIZE]  # rows come back, to what was kept of them
    return Batch(
        views.tensor_split(num_ranks, dim=1)[rank],
        (index % NUM_CLASSES).tensor_split(num_ranks)[rank],
        index.tensor_split(num_ranks)[rank],
        proposals.tensor_split(num_ranks)[rank],
    )


def train(
    case: str, rank: int = 0, num_ranks: int = 1, chunks: int = 1, batch_norm: str = "global", *, resumed: bool = False
) -> Run:
    """Train and return what every step computed."""
    method = build(case, batch_norm=batch_norm)
    method.num_chunks = chunks
    method.start(lambda count, generator: torch.randn(count, 1, 8, 8, generator=generator, dtype=torch.float64))
    optimizer, generator = new_optimizer(method), torch.Generator().manual_seed(7)
    run: dict[str, list[dict[str, Tensor]]] = {"loss": [], "metrics": [], "gradients": [], "state": [], "memories": []}
    for step in range(NUM_STEPS):
        if resumed and step == 1:
            method, optimizer, generator = continue_elsewhere(case, method, optimizer, generator)
        if step == 0 or (resumed and step == 1):
            replica = DistributedDataParallel(method, broadcast_buffers=False) if num_ranks > 1 else method
        output = replica(share_of_batch(method, step, rank, num_ranks), generator)
        optimizer.zero_grad()
        output.loss.backward()
        named = method.named_parameters()
        run["gradients"].append({name: weight.grad.clone() for name, weight in named if weight.requires_grad})
        optimizer.step()
        method.after_step(Progress(step + 1, NUM_STEPS, 0))
        run["loss"].append({"loss": output.loss.detach()})
        run["metrics"].append(output.metrics)
        run["state"].append({name: value.clone() for name, value in method.state_dict().items()})
        run["memories"].append(
            {
                f"{name}.{key}": value.clone()
                for name, memory in method.memories.items()
                for key, value in memory.state_dict().items()
            }
        )
    return {what: {name: stacked([step[name] for step in steps]) for name in steps[0]} for what, steps in run.items()}


def stacked(steps: list[Tensor]) -> Tensor:
    """Return what each step left as one tensor; a memory that grows has zeros where it was not yet."""
    if steps[0].ndim != 1:
        return torch.stack(steps)
    return torch.nn.utils.rnn.pad_sequence(steps, batch_first=True)


def new_optimizer(method: Method) -> torch.optim.Optimizer:
    return torch.optim.SGD([p for p in method.parameters() if p.requires_grad], lr=0.1, momentum=0.9)


def continue_elsewhere(
    case: str, method: Method, optimizer: torch.optim.Optimizer, generator: torch.Generator
) -> tuple[Method, torch.optim.Optimizer, torch.Generator]:
    """Return a method, an optimizer and a generator that know nothing but the state of those given."""
    other = build(case, seed=5)
    other.load_state_dict(method.state_dict())
    for name, memory in method.memories.items():
        other.memories[name].load_state_dict(memory.state_dict())
    new = new_optimizer(other)
    new.load_state_dict(optimizer.state_dict())
    return other, new, generator.clone_state()


def be_a_rank(rank: int, num_ranks: int) -> dict[str, Run]:
    """Train every run and return what came out, up to the first that fails."""
    results: dict[str, Run] = {}
    try:
        for name in RUNS:
            case, chunks = case_of(name)
            results[name] = train(case, rank, num_ranks, chunks, resumed=name in RESUMED)
    except Exception:
        results["failure"] = {"case": name, "traceback": traceback.format_exc()}
    return results


def case_of(name: str) -> tuple[str, int]:
    """Return the case of a run, and its chunks."""
    return name.removesuffix(IN_CHUNKS), 2 if name.endswith(IN_CHUNKS) else 1


@functools.cache
def alone(case: str, chunks: int = 1) -> Run:
    return train(case, chunks=chunks)


@pytest.fixture(scope="module")
def ranks(run_ranks: Callable[[str, int], list[dict[str, Run]]]) -> list[dict[str, Run]]:
    """Return what each rank computed, all runs in one set of processes."""
    return run_ranks(__file__, NUM_RANKS)


def result_of(results: dict[str, Run], case: str) -> Run:
    if case not in results:
        pytest.fail("a rank failed: {case}\n{traceback}".format(**results["failure"]))
    return results[case]


def assert_close(one: dict[str, Tensor], many: dict[str, Tensor], where: str, tolerance: float = TOLERANCE) -> None:
    """Compare the steps of ``many`` with those of ``one``.

    Numbers are compared by the relative error of each tensor's norm in each step; integers must be equal.
    """
    assert one.keys() == many.keys(), where
    for name, found in many.items():
        expected = one[name]
        assert found.dtype == expected.dtype, name
        if not expected.is_floating_point():
            assert torch.equal(found, expected), f"{where}: {name}"
        else:
            found, expected = found.reshape(len(found), -1), expected.reshape(len(found), -1)
            errors = (found - expected).norm(dim=1) / expected.norm(dim=1).clamp_min(1e-3)
            assert (errors <= tolerance).all(), f"{where}: {name} differs by {errors.tolist()} from step to step"


def mean_over_ranks(ranks: list[Run], what: str) -> dict[str, Tensor]:
    return {name: sum(run[what][name] for run in ranks) / len(ranks) for name in ranks[0][what]}


@pytest.mark.parametrize("name", RUNS)
def test_two_ranks_on_half_batches_are_one_rank_on_the_whole_batch_and_hold_the_same_bits(ranks, name):
    one, runs = alone(*case_of(name)), [result_of(results, name) for results in ranks]
    for what, tolerance in (("loss", TOLERANCE), ("metrics", METRIC_TOLERANCE)):
        assert_close(one[what], mean_over_ranks(runs, what), what, tolerance)
    for what in ("gradients", "state", "memories"):
        for rank, run in enumerate(runs):
            assert len(run["loss"]["loss"]) == NUM_STEPS
            assert_close(one[what], run[what], f"{what} of rank {rank}")
            torch.testing.assert_close(run[what], runs[0][what], rtol=0, atol=0)

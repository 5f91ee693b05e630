"""Every method with one temperature holds the effective sample size of what its own loss weighs; no other offers to."""

import math
from dataclasses import fields, replace
from typing import Any

import pytest
import torch
from torch import nn

from energy_contrast.catalog import METHODS
from energy_contrast.diagnostics import effective_sample_size
from energy_contrast.ess_control import ControlledMethod, EssController
from energy_contrast.method import Batch, Progress

CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "simclr": ("simclr", {}),
    "simclr, another bound": ("simclr", {"objective": "donsker-varadhan"}),
    "flatclr": ("flatclr", {}),
    "dcl": ("dcl", {}),
    "dcl, weighted": ("dcl", {"weighting": "von-mises-fisher"}),
    "dhel": ("dhel", {}),
    "moco": ("moco", {"queue_size": 30, "batch_norm_groups": 1}),
    "moco, symmetric": ("moco", {"queue_size": 30, "batch_norm_groups": 1, "symmetric": True}),
    "supervised, supcon": ("supervised", {"objective": "supcon"}),
    "supervised, negatives only": ("supervised", {"objective": "negatives-only"}),
}
NUM_CLASSES = 3
SIZE = 8

every_case = pytest.mark.parametrize("case", CASES)


class Pixels(nn.Flatten):
    """An encoder that leaves images as they are."""

    embedding_size = 16


def build(case: str, **settings: Any) -> Any:
    name, own = CASES[case]
    torch.manual_seed(0)
    classes = (NUM_CLASSES,) if METHODS[name].needs_labels else ()
    method = METHODS[name](METHODS[name].Config(**own, **settings), Pixels(), *classes).double()
    method.diagnosing = False
    return method


def batch() -> Batch:
    views = torch.randn(2, SIZE, 1, 4, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    return Batch(views, torch.arange(SIZE) % NUM_CLASSES, torch.arange(SIZE), views.new_empty(0, 1, 4, 4))


def negatives_of(case: str, method: Any) -> list[list[float]]:
    """Return the similarities of each anchor with what its loss pushes it away from, one by one."""
    views, labels = batch().views, (batch().labels.tolist() * 2)
    directions = [p / p.norm() for p in method.head(method.encoder(views.flatten(0, 1))).detach()]
    if case.startswith("moco"):
        anchors = directions if method.config.symmetric else directions[:SIZE]
        return [[float(q @ key) for key in method.queue] for q in anchors]

    def repels(a: int, b: int) -> bool:
        if "supervised" in case:
            return labels[a] != labels[b]
        same_view = a // SIZE == b // SIZE
        return a % SIZE != b % SIZE and (same_view or case != "dhel")

    count = range(2 * SIZE)
    return [[float(directions[a] @ directions[b]) for b in count if repels(a, b)] for a in count]


def slow_ess(similarities: list[list[float]], temperature: float) -> float:
    shares = []
    for row in similarities:
        weights = [math.exp(s / temperature) for s in row]
        shares.append(sum(weights) ** 2 / (len(row) * sum(w * w for w in weights)))
    return sum(shares) / len(shares)


@every_case
@pytest.mark.parametrize("temperature", [1.0, 0.02])
def test_it_reaches_its_target_from_above_and_below(case: str, temperature: float) -> None:
    """The network stands still, so that nothing but the temperature can bring the ESS to its target."""
    method = build(case, temperature=temperature, ess_target=0.5, ess_gain=0.1)
    similarities, history = negatives_of(case, method), []
    for step in range(40):
        with torch.no_grad():
            history.append(method(batch(), torch.Generator()).metrics)
        method._new_keys = []  # a queue that stands still too
        method.after_step(Progress(step + 1, 40, 0))
    assert history[0]["temperature"].item() == pytest.approx(temperature)
    assert history[0]["ess"].item() == pytest.approx(slow_ess(similarities, temperature), rel=1e-6)
    assert abs(history[0]["ess"].item() - 0.5) > 0.2
    assert slow_ess(similarities, history[-1]["temperature"].item()) == pytest.approx(0.5, abs=0.08)


@every_case
def test_the_loss_is_taken_at_the_controlled_temperature(case: str) -> None:
    controlled, constant = build(case, temperature=0.5, ess_target=0.3), build(case, temperature=0.125)
    controlled.controller.beta.fill_(8.0)
    found, expected = (method(batch(), torch.Generator()) for method in (controlled, constant))
    torch.testing.assert_close(found.loss, expected.loss)
    torch.testing.assert_close(found.metrics["info_nce"], expected.metrics["info_nce"])
    gradients = [torch.autograd.grad(output.loss, list(method.head.parameters())) for output, method in
                 ((found, controlled), (expected, constant))]  # fmt: skip
    torch.testing.assert_close(*gradients)


@every_case
def test_without_a_target_nothing_moves_and_no_checkpoint_knows_of_it(case: str) -> None:
    method = build(case, temperature=0.3)
    metrics = method(batch(), torch.Generator()).metrics
    method.after_step(Progress(1, 10, 0))
    assert method.temperature == 0.3
    assert not {"temperature", "ess", "ess_target"} & set(metrics)
    kept = [name for name in method.state_dict() if name.startswith("controller")]
    assert kept == (["controller.beta", "controller.ess", "controller.target"] if case == "flatclr" else [])


@every_case
def test_an_end_without_a_start_is_a_problem(case: str) -> None:
    name, own = CASES[case]
    (problem,) = METHODS[name].Config(**own, ess_target_end=0.2).problems()
    assert problem == "ess_target_end: needs a target to start from, got 0.2; set ess_target too"
    assert METHODS[name].Config(**own, ess_target=0.3, ess_target_end=0.2).problems() == []


@every_case
def test_a_target_that_no_temperature_reaches_is_refused(case: str) -> None:
    """One negative that takes all has an effective sample size of 1/K: the temperature would fall without end."""
    name, own = CASES[case]
    method, few = METHODS[name], max(map(len, negatives_of(case, build(case))))
    if "supervised" in case:
        few = 2 * SIZE - 2  # where no two images share a class
    for setting, settings in (("ess_target", {}), ("ess_target_end", {"ess_target": 0.5})):
        config = method.Config(**own, **settings, **{setting: 1 / few})
        with pytest.raises(
            ValueError, match=f"{setting}: no temperature .* of {few} negatives to 1/{few} or less, got"
        ):
            method.requirements(config, SIZE)
        assert method.requirements(replace(config, **{setting: 1.1 / few}), SIZE).num_views == 2


def test_methods_with_one_temperature_that_scales_nothing_else_have_the_setting_and_no_other_has() -> None:
    offered = {name for name, method in METHODS.items() if "ess_target" in {f.name for f in fields(method.Config)}}
    assert offered == {name for name, method in METHODS.items() if issubclass(method, ControlledMethod)}
    assert offered == {"simclr", "moco", "flatclr", "dcl", "dhel", "supervised"} == {name for name, _ in CASES.values()}


def test_candidates_that_are_not_there_do_not_count() -> None:
    logits = torch.randn(4, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    present = torch.tensor([[1, 1, 1, 1, 1, 1], [1, 0, 1, 0, 1, 0], [0, 0, 0, 1, 0, 0], [0, 0, 0, 0, 0, 0]]).bool()
    expected = [
        effective_sample_size(row[kept][None]).item() for row, kept in list(zip(logits, present, strict=True))[:3]
    ]
    found = effective_sample_size(logits, present).tolist()
    assert found[:3] == pytest.approx(expected)
    assert math.isnan(found[3])


def test_anchors_without_negatives_are_left_out_and_a_batch_of_them_moves_nothing() -> None:
    controller = EssController(temperature=1.0, target=0.3, gain=0.01)
    similarities = torch.tensor([[1.0, 0.0], [0.5, 0.5]])
    controller.observe(similarities, torch.tensor([[True, True], [False, False]]))
    first = slow_ess([[1.0, 0.0]], 1.0)
    assert controller.ess.item() == pytest.approx(first)
    controller.observe(similarities, torch.zeros(2, 2, dtype=torch.bool))
    assert controller.ess.item() == pytest.approx(first)

"""Every method of the catalogue keeps the contract."""

import copy
import dataclasses
import re
from typing import Any

import pytest
import torch
from small_methods import NUM_CLASSES, SMALL, draw_images, small_encoder, small_method
from torch import nn

from energy_contrast.catalog import METHODS
from energy_contrast.classifier import Classifier
from energy_contrast.losses import nt_xent
from energy_contrast.method import Batch, Method, Progress
from energy_contrast.networks.batch_norm import set_groups

from .conftest import DIAGNOSTICS


def build(name: str, **settings: object) -> Method:
    method = small_method(name, {**SMALL.get(name, {}), **settings})
    method.start(draw_images)
    return method


def draw_batch(method: Method, size: int = 8, seed: int = 1) -> Batch:
    views = torch.randn(method.num_views, size, 1, 8, 8, generator=torch.Generator().manual_seed(seed))
    proposals = torch.zeros(method.num_proposals(size), 1, 8, 8)
    labels = torch.arange(size) % NUM_CLASSES if method.needs_labels else torch.full((size,), -1)
    return Batch(views, labels, torch.arange(size), proposals)


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("diagnosing", [False, True])
def test_metrics_are_detached_scalars_and_hold_info_nce_where_views_are_compared(name: str, diagnosing: bool) -> None:
    method = build(name)
    method.diagnosing = diagnosing
    metrics = method(draw_batch(method), torch.Generator()).metrics
    assert ("info_nce" in metrics) == (method.num_views > 1)
    assert all(v.shape == () and not v.requires_grad and v.isfinite() for v in metrics.values())


@pytest.mark.parametrize("name", ["moco", "supervised", "jem", "vem-langevin", "vem-svgd", "vem-image"])
@pytest.mark.parametrize("diagnosing", [False, True])
def test_what_compares_no_images_of_a_batch_takes_a_step_with_one(name: str, diagnosing: bool) -> None:
    method = build(name)
    set_groups(method, 1)
    if name == "moco":
        method.config = dataclasses.replace(method.config, batch_norm_groups=1)
    method.diagnosing = diagnosing
    output = method(draw_batch(method, 1), torch.Generator())
    output.loss.backward()
    assert output.loss.isfinite()
    unknown = {name for name, value in output.metrics.items() if not value.isfinite()}
    assert unknown <= {"uniformity", "embedding_spread"}  # of images that differ


LABELLED = [name for name, method in METHODS.items() if method.needs_labels]


@pytest.mark.parametrize("name", LABELLED)
def test_what_learns_from_labels_classifies_and_needs_two_classes(name: str) -> None:
    method = build(name).eval()
    assert isinstance(method, Classifier)
    images = draw_batch(method, 5).views[0]
    assert method.classify(images).shape == (5, NUM_CLASSES)
    with torch.autocast("cpu", torch.bfloat16):
        assert method.classify(images).dtype == torch.float32
    with pytest.raises(ValueError, match=rf"num_classes: {name} tells classes apart, got 1; use images of two"):
        METHODS[name](METHODS[name].Config(), small_encoder(), 1)


@pytest.mark.parametrize("name", METHODS)
def test_only_what_needs_labels_reads_them(name: str) -> None:
    losses = set()
    for label in (0, 1):
        method = build(name)
        batch = dataclasses.replace(draw_batch(method), labels=torch.full((8,), label))
        losses.add(method(batch, torch.Generator().manual_seed(3)).loss.item())
    assert len(losses) == (2 if name in LABELLED else 1)


def test_keys_are_lower_case_class_names() -> None:
    assert all(key.replace("-", "") == cls.__name__.lower() for key, cls in METHODS.items())


@pytest.mark.parametrize("name", ["flatclr", "dcl", "dhel", "vicreg", "simsiam", "byol"])
def test_what_is_read_is_simclrs_loss_of_the_first_two_views(name: str) -> None:
    method = build(name)
    batch, temperature = draw_batch(method), getattr(method.config, "temperature", 0.2)
    with torch.no_grad():
        if name in ("vicreg", "simsiam", "byol"):  # each view has a pass of its own
            projections = [method.head(method.encoder(views)) for views in batch.views]
        else:
            projections = method.head(method.encoder(batch.views.flatten(0, 1))).split(8)
    expected = nt_xent(*projections[:2], temperature=temperature)
    torch.testing.assert_close(method(batch, torch.Generator()).metrics["info_nce"], expected)


READ = {"info_nce"}
PREDICTED = READ | {"prediction_similarity"}
CHAINS = {"chain_movement", "chain_gradient_norm", "buffer_age", "reinit_share", "chain_saturation"}
BANK = {"bank_movement", "bank_cosine", "bank_effective_rank"}


@pytest.mark.parametrize(
    ("name", "always", "costly"),
    [
        ("simclr", READ, DIAGNOSTICS),
        ("flatclr", READ, DIAGNOSTICS),
        ("moco", READ, DIAGNOSTICS),
        ("simsiam", PREDICTED, DIAGNOSTICS),
        ("byol", PREDICTED, DIAGNOSTICS),
        ("ebclr", READ | {"energy_data", "energy_chains", "energy_gap"}, DIAGNOSTICS | CHAINS),
        ("vem-langevin", READ, DIAGNOSTICS | BANK),
        ("vem-svgd", READ, DIAGNOSTICS | BANK),
        ("vem-image", READ, DIAGNOSTICS | CHAINS | {"bank_cosine"}),
    ],
)
def test_costly_metrics_come_only_while_diagnosing_and_do_not_change_the_loss(name, always, costly):
    method = build(name, **({"symmetric": True} if name == "moco" else {}))
    batch, generator = draw_batch(method), torch.Generator()
    outputs = []
    for diagnosing in (True, False):
        method.diagnosing = diagnosing
        outputs.append(method(batch, generator.manual_seed(3)))
    assert [set(output.metrics) for output in outputs] == [always | costly, always]
    torch.testing.assert_close(outputs[0].loss, outputs[1].loss, rtol=0, atol=0)


def kept_by(method: Method) -> dict[str, Any]:
    """Return copies of weights and memories; running statistics move with every pass."""
    state = {name: value.clone() for name, value in method.state_dict().items() if not re.search("running|num_b", name)}
    memories = {name: copy.deepcopy(memory.state_dict()) for name, memory in method.memories.items()}
    return {"state": state, "memories": memories}


@pytest.mark.parametrize("name", METHODS)
def test_a_pass_moves_nothing_before_the_step_is_over_and_of_two_the_last_counts(name: str) -> None:
    method, other = build(name), build(name)
    first, last = (draw_batch(method, 8, seed) for seed in (1, 2))
    for each in (method, other):
        each(first, torch.Generator().manual_seed(2))
        each.after_step(Progress(1, 10, 0))
    before = kept_by(method)
    for batch, seed in ((first, 3), (last, 4)):
        method(batch, torch.Generator().manual_seed(seed))
    torch.testing.assert_close(kept_by(method), before, rtol=0, atol=0)
    assert all(weight.grad is None for weight in method.parameters())
    other(last, torch.Generator().manual_seed(4))
    for each in (method, other):
        each.after_step(Progress(2, 10, 0))
    torch.testing.assert_close(kept_by(method), kept_by(other), rtol=0, atol=0)
    if method.memories or name.startswith(("moco", "vem")):
        with pytest.raises(AssertionError):
            torch.testing.assert_close(kept_by(method), before, rtol=0, atol=0)


FIRST_LAYER = {"chain_gradient": "first-layer"}
PROBLEMS: list[tuple[str, dict[str, Any], str]] = [
    ("ebclr", {"sigma_min": 0.2, "sigma_max": 0.1}, "sigma_min: must not exceed sigma_max, got 0.2 > 0.1"),
    ("ebclr", {"num_inner_steps": 5},
     "num_inner_steps: has no effect with full gradients, got 5; set chain_gradient=first-layer too"),
    ("ebclr", FIRST_LAYER | {"num_inner_steps": 4}, "num_inner_steps: must divide num_steps = 10, got 4"),
    ("jem", FIRST_LAYER, "chain_gradient: plain takes full gradients"),
    ("jem", {"variant": "plusplus", "num_inner_steps": 5}, "num_inner_steps: has no effect with full gradients, got 5"),
    ("jem", {"variant": "plusplus", **FIRST_LAYER, "num_inner_steps": 3},
     "num_inner_steps: must divide num_steps = 20, got 3"),
    ("flatclr", {"hoelder_exponent": 2.0, "ess_target": 0.3},
     "hoelder_exponent: is a factor of the temperature, which ess_target moves already, got 2"),
    ("flatclr", {"ess_rule": "printed"}, "ess_rule: has no effect without a target, got printed; set ess_target too"),
    ("vem-langevin", {"update": "printed", "noise_schedule": "constant"},
     "noise_schedule: the listing, update=printed, draws its noise by the step alone, got const"),
    ("simclr", {"objective": "nwj", "ess_target": 0.3},
     "ess_target: with nwj the temperature sets the values of the critic too, got 0.3; leave"),
    ("simclr", {"objective": "temperature-free", "ess_target": 0.3},
     "ess_target: temperature-free has no temperature, got 0.3; leave it out, or take another"),
    ("dhel", {"objective": "kernel", "ess_target": 0.3},
     "ess_target: the kernel form has no temperature, got 0.3; leave it out, or set objective"),
    ("supervised", {"ess_target": 0.3},
     "ess_target: cross-entropy has no temperature, got 0.3; leave it out, or set objective=supcon"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "settings", "problem"), PROBLEMS)
def test_settings_that_contradict_each_other_are_named_and_neither_alone_is(name, settings, problem):
    (found,) = METHODS[name].Config(**settings).problems()
    assert found.startswith(problem)


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        *((name, {}) for name in METHODS if hasattr(METHODS[name].Config, "problems")),
        *(("flatclr", {"hoelder_exponent": gamma}) for gamma in (2.0, 0.0, -1.0)),
        ("flatclr", {"ess_rule": "printed", "ess_target": 0.3}),
        ("vem-langevin", {"update": "printed"}),
        ("vem-langevin", {"noise_schedule": "constant"}),
        ("simclr", {"objective": "nwj"}),
        ("simclr", {"objective": "temperature-free"}),
        ("supervised", {"objective": "negatives-only", "ess_target": 0.3}),
        ("dhel", {"objective": "kernel"}),
    ],
)
def test_settings_without_contradictions_have_no_problem(name: str, settings: dict[str, Any]) -> None:
    assert METHODS[name].Config(**settings).problems() == []


LAYERS: list[tuple[str, dict[str, Any], str, list[tuple[int, int]]]] = [
    ("simclr", {"projection_hidden_size": 0, "projection_size": 6}, "head", [(16, 16), (16, 6)]),
    ("simclr", {"projection_hidden_size": 24, "projection_size": 6}, "head", [(16, 24), (24, 6)]),
    ("moco", {"projection_num_layers": 1, "projection_size": 6}, "head", [(16, 6)]),
    ("simsiam", {"projection_num_layers": 2, "projection_hidden_size": 7}, "head", [(16, 7), (7, 32)]),
    ("simsiam", {"projection_size": 12, "prediction_hidden_size": 5}, "predictor", [(12, 5), (5, 12)]),
    ("lejepa", {"projection_size": 3}, "head", [(16, 16), (16, 16), (16, 3)]),
    ("lejepa", {"projection_num_layers": 2, "projection_hidden_size": 7}, "head", [(16, 7), (7, 8)]),
    ("ebclr", {"projection_size": 4}, "head", [(16, 16), (16, 4)]),
    *((name, {"projection_size": 6}, "head", [(16, 6), (6, 6), (6, 6)]) for name in ("vicreg", "barlow")),
    ("supervised", {"objective": "supcon", "projection_hidden_size": 5}, "head", [(16, 5), (5, 128)]),
    *(
        (name, {"projection_hidden_size": 5, "projection_size": 6}, "head", [(16, 5), (5, 6)])
        for name in ("vem-langevin", "vem-svgd", "vem-image")
    ),
]


NORMED = ("simsiam", "lejepa", "vicreg", "barlow")


@pytest.mark.parametrize(("name", "settings", "network", "sizes"), LAYERS)
def test_heads_have_the_layers_asked_for(name, settings, network, sizes):
    layers = getattr(build(name, **settings), network)
    assert [(m.in_features, m.out_features) for m in layers if isinstance(m, nn.Linear)] == sizes
    normed = [m.num_features for m in layers if isinstance(m, nn.modules.batchnorm._BatchNorm)]
    assert normed[: len(sizes) - 1] == ([out for _, out in sizes[:-1]] if name in NORMED else [])


def test_the_batch_norm_of_simclrs_head_is_a_setting_and_ebclrs_head_is_leaky() -> None:
    for wanted in (False, True):
        head = build("simclr", projection_batch_norm=wanted).head
        assert any(isinstance(m, nn.BatchNorm1d) for m in head) == wanted
    assert [type(m).__name__ for m in build("ebclr").head] == ["Linear", "LeakyReLU", "Linear"]
    assert build("ebclr").head[1].negative_slope == 0.2

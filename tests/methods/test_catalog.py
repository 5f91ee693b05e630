"""Every method of the catalogue keeps the contract."""

import dataclasses

import pytest
import torch

from energy_contrast.catalog import METHODS
from energy_contrast.classifier import Classifier
from energy_contrast.losses import nt_xent
from energy_contrast.method import Batch, Method, PixelRange, Progress
from energy_contrast.networks import build_encoder
from energy_contrast.networks.batch_norm import set_groups

from .conftest import DIAGNOSTICS, train_on_two_clusters

NUM_CLASSES = 3


def build(name: str, **settings: object) -> Method:
    torch.manual_seed(0)
    method_class = METHODS[name]
    classes = (NUM_CLASSES,) if method_class.needs_labels else ()
    method = method_class(method_class.Config(**settings), build_encoder("small", in_channels=1, width=4), *classes)
    method.pixel_range = PixelRange((-2.0,), (2.0,))
    method.start(lambda count, generator: torch.randn(count, 1, 8, 8, generator=generator))
    return method


def draw_batch(method: Method, size: int = 8) -> Batch:
    views = torch.randn(method.num_views, size, 1, 8, 8, generator=torch.Generator().manual_seed(1))
    proposals = torch.zeros(method.num_proposals(size), 1, 8, 8)
    labels = torch.arange(size) % NUM_CLASSES if method.needs_labels else torch.full((size,), -1)
    return Batch(views, labels, torch.arange(size), proposals)


@pytest.mark.parametrize("name", METHODS)
def test_a_step_gives_a_scalar_loss_with_gradients_for_every_parameter_that_learns(name: str) -> None:
    method = build(name)
    batch = draw_batch(method)
    method(batch, torch.Generator()).loss.backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in method.parameters() if p.requires_grad)


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


@pytest.mark.parametrize("name", METHODS)
def test_equal_state_and_generator_give_equal_bits(name: str) -> None:
    outputs = []
    for _ in range(2):
        method = build(name)
        output = method(draw_batch(method), torch.Generator().manual_seed(3))
        method.after_step(Progress(step=1, num_steps=10, epoch=0))
        outputs.append((output.loss, output.metrics, method.state_dict()))
    torch.testing.assert_close(outputs[0], outputs[1], rtol=0, atol=0)


@pytest.mark.parametrize("name", METHODS)
def test_embed_is_the_encoder_without_the_head(name: str) -> None:
    method = build(name).eval()
    images = draw_batch(method).views[0]
    torch.testing.assert_close(method.embed(images), method.encoder(images), rtol=0, atol=0)


LABELLED = [name for name, method in METHODS.items() if method.needs_labels]


@pytest.mark.parametrize("name", LABELLED)
def test_what_learns_from_labels_classifies_and_needs_two_classes(name: str) -> None:
    method = build(name).eval()
    assert isinstance(method, Classifier)
    images = draw_batch(method, 5).views[0]
    assert method.classify(images).shape == (5, NUM_CLASSES)
    with torch.autocast("cpu", torch.bfloat16):
        assert method.classify(images).dtype == torch.float32
    encoder = build_encoder("small", in_channels=1, width=4)
    with pytest.raises(ValueError, match=rf"num_classes: {name} tells classes apart, got 1; use images of two"):
        METHODS[name](METHODS[name].Config(), encoder, 1)


@pytest.mark.parametrize("name", METHODS)
def test_only_what_needs_labels_reads_them(name: str) -> None:
    losses = set()
    for label in (0, 1):
        method = build(name)
        batch = dataclasses.replace(draw_batch(method), labels=torch.full((8,), label))
        losses.add(method(batch, torch.Generator().manual_seed(3)).loss.item())
    assert len(losses) == (2 if name in LABELLED else 1)


@pytest.mark.parametrize("name", METHODS)
def test_settings_are_frozen_and_documented(name: str) -> None:
    config = METHODS[name].Config
    assert config.__dataclass_params__.frozen
    assert all(f.metadata["doc"] for f in dataclasses.fields(config))


def test_keys_are_lower_case_class_names() -> None:
    assert all(key.replace("-", "") == cls.__name__.lower() for key, cls in METHODS.items())


@pytest.mark.parametrize("name", ["simclr", "flatclr", "dcl", "dhel", "sogclr", "vicreg", "lejepa", "simsiam", "byol"])
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


@pytest.mark.parametrize("name", ["simclr", "flatclr", "moco", "simsiam", "byol"])
def test_costly_metrics_come_only_while_diagnosing_and_do_not_change_the_loss(name: str) -> None:
    method = build(name, **({"symmetric": True} if name == "moco" else {}))
    batch, generator = draw_batch(method), torch.Generator()
    usual = {"info_nce"} | ({"prediction_similarity"} if name in ("simsiam", "byol") else set())
    outputs = []
    for diagnosing in (True, False):
        method.diagnosing = diagnosing
        outputs.append(method(batch, generator.manual_seed(3)))
    costly = set(outputs[0].metrics) - usual
    assert costly == DIAGNOSTICS if name in ("simclr", "flatclr", "moco") else "effective_rank" in costly
    assert set(outputs[1].metrics) == usual
    torch.testing.assert_close(outputs[0].loss, outputs[1].loss, rtol=0, atol=0)


VEM = {"bank_size": 64, "num_steps": 3, "projection_size": 16, "key_momentum": 0.9}
VEM |= {"temperature": 0.2, "bank_temperature": 0.1}


@pytest.mark.parametrize(
    ("name", "settings", "num_steps", "less"),
    [
        ("simclr", {}, 30, 0.5),
        ("flatclr", {}, 30, 0.5),
        ("moco", {"queue_size": 64, "momentum": 0.9, "batch_norm_groups": 2}, 60, 0.5),
        *((name, VEM, 80, 0.3) for name in ("vem-langevin", "vem-svgd", "vem-image")),
    ],
)
def test_steps_on_two_clusters_lower_info_nce(name, settings, num_steps, less):
    values = [metrics["info_nce"] for metrics in train_on_two_clusters(build(name, **settings), num_steps)]
    worst = values[0] if num_steps == 30 else max(values[:20])  # a queue or bank fills first
    assert sum(values[-5:]) / 5 < worst - less

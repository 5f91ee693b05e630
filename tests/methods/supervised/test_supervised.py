"""Cross-entropy against torch's, contrast with labels against loops of its equations, and what each leaves alone."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from energy_contrast.losses import decoupled, nt_xent, pair_similarities
from energy_contrast.method import Batch
from energy_contrast.supervised.supervised import Supervised, negatives_only_contrast, supervised_contrast

from ..conftest import built, random_batch

SIZE = 7
LABELS = torch.tensor([0, 2, 0, 1, 2, 2, 0])  # class 1 has one image


def build(**settings: object) -> Supervised:
    return built(Supervised, None, 3, projection_size=5, **settings)


def make_batch(method: Supervised, labels: Tensor = LABELS) -> Batch:
    return replace(random_batch(SIZE, num_views=method.num_views), labels=labels)


def gradients(loss: Tensor, method: Supervised) -> tuple[Tensor | None, ...]:
    return torch.autograd.grad(loss, list(method.parameters()), retain_graph=True, allow_unused=True)


def slow_supcon(z: list[Tensor], labels: list[int], temperature: float) -> Tensor:
    """Equation 2, pair by pair."""
    unit = [row / row.norm() for row in z]
    total = torch.zeros((), dtype=torch.float64)
    for i in range(len(z)):
        others = [a for a in range(len(z)) if a != i]
        whole = sum(torch.exp(unit[i] @ unit[a] / temperature) for a in others)
        positives = [p for p in others if labels[p] == labels[i]]
        for p in positives:
            total = total - torch.log(torch.exp(unit[i] @ unit[p] / temperature) / whole) / len(positives)
    return total / len(z)


def slow_negatives_only(z: list[Tensor], labels: list[int], temperature: float) -> Tensor:
    """The definition, pair by pair; an anchor without another class adds 0."""
    unit, half = [row / row.norm() for row in z], len(z) // 2
    total = torch.zeros((), dtype=torch.float64)
    for i in range(len(z)):
        others = [torch.exp(unit[i] @ unit[j] / temperature) for j in range(len(z)) if labels[j] != labels[i]]
        if others:
            total = total - torch.log(torch.exp(unit[i] @ unit[(i + half) % len(z)] / temperature) / sum(others))
    return total / len(z)


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_cross_entropy_is_torchs_with_its_gradients_and_reads_one_view(smoothing: float) -> None:
    method = build(label_smoothing=smoothing)
    batch = make_batch(method)
    assert batch.views.shape[0] == 1
    output = method(batch, torch.Generator())
    logits = method.encoder(batch.views[0]) @ method.classifier.weight.T + method.classifier.bias
    expected = torch.nn.CrossEntropyLoss(label_smoothing=smoothing)(logits, LABELS)
    torch.testing.assert_close(output.loss, expected, rtol=1e-12, atol=0)
    torch.testing.assert_close(gradients(output.loss, method), gradients(expected, method), rtol=1e-10, atol=1e-14)
    right = sum(int(row.argmax()) == int(label) for row, label in zip(logits, LABELS, strict=True)) / SIZE
    assert output.metrics["accuracy"].item() == pytest.approx(right)
    assert output.metrics["cross_entropy"].item() == output.loss.item()


@pytest.mark.parametrize(("objective", "slow"), [("supcon", slow_supcon), ("negatives-only", slow_negatives_only)])
def test_contrast_is_the_papers_equation_with_its_gradients_by_encoder_and_head(objective, slow) -> None:
    method = build(objective=objective, temperature=0.3)
    batch = make_batch(method)
    output = method(batch, torch.Generator())
    embedding = method.encoder(batch.views.flatten(0, 1))
    expected = slow(list(method.head(embedding)), LABELS.tolist() * 2, 0.3)
    torch.testing.assert_close(output.metrics[objective.replace("-", "_")], expected.detach(), rtol=1e-10, atol=0)
    beside = F.cross_entropy(method.classifier(embedding.detach()), LABELS.repeat(2))
    torch.testing.assert_close(output.loss, expected + beside, rtol=1e-10, atol=0)
    got, wanted = gradients(output.loss, method), gradients(expected, method)
    for (name, _), one, other in zip(method.named_parameters(), got, wanted, strict=True):
        if name.startswith("classifier"):  # the contrast does not know it
            assert other is None
        else:
            torch.testing.assert_close(one, other, rtol=1e-8, atol=1e-12)


def test_with_one_image_a_class_supcon_is_simclrs_loss() -> None:
    z = torch.randn(2, SIZE, 5, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    found = supervised_contrast(z.flatten(0, 1), torch.arange(SIZE).repeat(2), temperature=0.2)
    torch.testing.assert_close(found, nt_xent(*z, temperature=0.2), rtol=1e-12, atol=0)


def test_with_one_image_a_class_negatives_only_is_the_decoupled_loss() -> None:
    z = torch.randn(2, SIZE, 5, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    found = negatives_only_contrast(z.flatten(0, 1), torch.arange(SIZE).repeat(2), temperature=0.2)
    torch.testing.assert_close(found, decoupled(*pair_similarities(*z), temperature=0.2), rtol=1e-12, atol=0)


def test_negatives_only_of_a_single_class_is_nothing_and_pulls_nowhere() -> None:
    z = torch.randn(6, 4, generator=torch.Generator().manual_seed(3), dtype=torch.float64).requires_grad_()
    loss = negatives_only_contrast(z, torch.zeros(6, dtype=torch.int64), temperature=0.5)
    assert loss.item() == 0
    assert torch.equal(torch.autograd.grad(loss, z)[0], torch.zeros(6, 4, dtype=torch.float64))


def test_an_anchor_alone_in_its_class_adds_nothing() -> None:
    z = torch.randn(3, 4, generator=torch.Generator().manual_seed(3), dtype=torch.float64).requires_grad_()
    labels = torch.tensor([0, 0, 1])
    loss = supervised_contrast(z, labels, temperature=0.5)
    torch.testing.assert_close(loss, slow_supcon(list(z), labels.tolist(), 0.5))
    assert torch.autograd.grad(loss, z)[0].isfinite().all()


def test_logits_are_those_of_the_classifier_on_the_embedding() -> None:
    method = build().eval()
    images = make_batch(method).views[0]
    torch.testing.assert_close(method.classify(images), method.classifier(method.embed(images)), rtol=0, atol=0)
    other = build().eval()
    with torch.no_grad():
        other.classifier.weight.zero_()
    other.load_state_dict(method.state_dict())
    torch.testing.assert_close(other.classify(images), method.classify(images), rtol=0, atol=0)


@pytest.mark.parametrize(("z", "labels"), [((4, 2), 3), ((4,), 4)])
def test_shapes_that_do_not_fit_are_one_sentence(z: tuple[int, ...], labels: int) -> None:
    for loss in (supervised_contrast, negatives_only_contrast):
        with pytest.raises(ValueError, match=f"{loss.__name__}: vectors and labels do not fit, got"):
            loss(torch.zeros(z), torch.zeros(labels), temperature=0.5)


def test_an_odd_number_of_vectors_is_no_two_views() -> None:
    with pytest.raises(ValueError, match=r"needs two views of each image, got 3 vectors; use \(2B, D\)"):
        negatives_only_contrast(torch.zeros(3, 2), torch.zeros(3), temperature=0.5)

"""The group of attacks: what is attacked, that the encoder stays as it was, and that masked gradients are told."""

import io
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from made_up_card import MadeUpEncoder, made_up_measuring, made_up_set
from PIL import Image
from torch import Tensor, nn

from ebclab.card.card import Findings, Number
from ebclab.card.groups import robustness
from ebclab.card.images import MeasuredSet
from ebclab.card.measuring import CardOptions, Measuring
from ebclab.config.sections import EvaluationConfig
from ebclab.data.holdout import limit
from ebclab.errors import UserError
from ebclab.evaluation.measures.attacks import Classify, PixelClassifier, attackable_pixels, pgd

FEW = CardOptions(EvaluationConfig(batch_size=64), attacked_images=60)


class Rounded(nn.Module):
    """Embeddings that are steps of what another encoder gives: of gradient 0 everywhere.

    Args:
        encoder: The other encoder.
    """

    def __init__(self, encoder: nn.Module) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(self, images: Tensor) -> Tensor:
        """Return embeddings."""
        return (40 * self.encoder(images)).round() / 40


@pytest.fixture(scope="module", autouse=True)
def _few_queries() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(robustness, "_QUERIES", 40)
        yield


@pytest.fixture(scope="module")
def measuring() -> Measuring:
    return made_up_measuring(MadeUpEncoder(), made_up_set(), FEW)


@pytest.fixture(scope="module")
def findings(measuring: Measuring) -> Findings:
    return robustness.measure(measuring)


def _by_name(findings: Findings) -> dict[str, Number]:
    return {number.name: number for number in findings.numbers}


def test_images_are_chosen_by_hash_and_right_as_often_as_the_linear_classifier_is(measuring, findings):
    test = measuring.measured.test
    few = limit(test, 60)
    right = (measuring.test_logits.argmax(dim=1) == test.labels)[torch.isin(test.keys, few.keys)]
    clean = _by_name(findings)["clean"]
    assert clean.num_images == 60
    assert torch.equal(clean.contributions, right.double())


def test_attacks_take_more_the_stronger_they_are_and_what_was_wrong_before_stays_wrong(findings):
    numbers = _by_name(findings)
    assert list(numbers) == ["clean", "fgsm-4", "fgsm-8", "pgd-20", "pgd-20-worst", "square"]
    values = {name: number.value for name, number in numbers.items()}
    assert values["clean"] > values["fgsm-4"] > values["fgsm-8"] >= values["pgd-20-worst"]
    assert values["square"] >= values["pgd-20-worst"]
    assert numbers["pgd-20"].seeds == (0, 1, 2)
    assert min(numbers["pgd-20"].per_seed) >= values["pgd-20-worst"]
    before = numbers["clean"].contributions
    assert int((before == 0).sum()) > 0
    for number in findings.numbers:
        assert bool((number.contributions <= before).all()), number.name
    assert [row[2] for row in findings.tables[0].rows] == ["holds"] * 5
    assert findings.remarks == ()


def test_the_encoder_is_bit_for_bit_as_it_was() -> None:
    encoder = MadeUpEncoder()
    encoder.layers[2].running_mean += 0.3
    measuring = made_up_measuring(encoder, made_up_set(test=12), replace(FEW, seeds=1))
    encoder.layers[2].train()  # a mode that whoever attacks must neither use nor change
    before = {name: value.clone() for name, value in encoder.state_dict().items()}
    robustness.measure(measuring)
    assert all(torch.equal(value, before[name]) for name, value in encoder.state_dict().items())
    assert all(weights.grad is None and weights.requires_grad for weights in encoder.parameters())
    assert encoder.layers[2].training


def test_gradients_of_zero_are_said_to_be_masked() -> None:
    hidden = robustness.measure(made_up_measuring(Rounded(MadeUpEncoder()).eval(), made_up_set(), FEW))
    verdicts = {str(row[0]).split(",")[0]: row[2] for row in hidden.tables[0].rows}
    assert verdicts["no image has a gradient of exactly 0"] == "does not hold"
    assert verdicts["at eps 1"] == "does not hold"
    assert verdicts["Square"] == "does not hold"
    (remark,) = hidden.remarks
    assert remark.startswith("Gradients may be masked")


def test_an_attack_by_gradients_that_finds_nothing_is_told(measuring, monkeypatch):
    def feeble(classify: Classify, x: Tensor, labels: Tensor, *, eps: float, **how: Any) -> Tensor:
        return pgd(classify, x, labels, eps=16 / 255, **how) if eps < 3 / 255 else x

    monkeypatch.setattr(robustness, "pgd", feeble)
    verdicts = {str(row[0]).split(" with")[0]: row[2] for row in robustness.measure(measuring).tables[0].rows}
    assert verdicts["accuracy does not rise"] == "does not hold"
    assert verdicts["PGD leaves no more images right than FGSM"] == "does not hold"


def test_the_same_seeds_give_the_same_numbers_in_any_batches(measuring: Measuring, findings: Findings) -> None:
    small = replace(FEW, settings=EvaluationConfig(batch_size=100))
    again = robustness.measure(made_up_measuring(MadeUpEncoder(), measuring.measured, small))
    assert [number.value for number in again.numbers] == [number.value for number in findings.numbers]


@pytest.mark.parametrize(("side", "read_size"), [(9, 0), (9, 6), (3, 0)])
def test_the_classifier_of_pixels_is_the_one_of_stored_images(side: int, read_size: int) -> None:
    data = made_up_set(side=side, test=12)
    measuring = made_up_measuring(MadeUpEncoder(), data, FEW, read_size=read_size)
    subject = measuring.subject
    model = PixelClassifier(subject.encoder, subject.preprocessing, measuring.classifier)
    logits = model(attackable_pixels(data.test.images, subject.preprocessing))
    assert torch.allclose(logits, measuring.test_logits, atol=1e-4)


def test_the_protocol_says_at_which_size_pixels_were_attacked(findings: Findings) -> None:
    assert "pixels in [0, 1] of 4 x 4, as stored, seen at 4 x 4" in findings.numbers[0].protocol
    large = robustness.measure(made_up_measuring(MadeUpEncoder(), made_up_set(side=9, test=12), FEW))
    assert "pixels in [0, 1] of 4 x 4, after the resize of 9 x 9" in large.numbers[0].protocol


def test_the_picture_has_three_rows_of_the_images_that_were_misled(findings: Findings) -> None:
    (picture,) = findings.pictures
    with Image.open(io.BytesIO(picture.png)) as image:
        width, height = image.size
    columns = picture.note.count(" as ")
    assert 1 <= columns <= 8
    assert width == 20 + columns * (96 + 12) - 12 + 20
    assert height == 20 + 3 * (96 + 16 + 12) - 12 + 20


def test_a_classifier_that_is_always_wrong_has_nothing_to_attack(measuring: Measuring) -> None:
    data = measuring.measured
    guesses = measuring.test_logits.argmax(dim=1)
    wrong = MeasuredSet("made-up", data.train, replace(data.test, labels=(guesses + 1) % 3))
    found = robustness.measure(made_up_measuring(measuring.subject.encoder, wrong, FEW))
    assert all(number.value == 0 for number in found.numbers)
    assert found.pictures == ()


@pytest.mark.slow
def test_autoattack_leaves_no_more_images_right_than_pgd_when_it_is_asked_for() -> None:
    data = made_up_set(classes=4, test=16, noise=90.0)
    options = replace(FEW, attacked_images=5, autoattack=True)
    numbers = _by_name(robustness.measure(made_up_measuring(MadeUpEncoder(), data, options)))
    assert numbers["autoattack"].value <= numbers["pgd-20-worst"].value
    assert "3 target classes" in numbers["autoattack"].protocol


def test_autoattack_needs_its_package_and_four_classes(measuring, monkeypatch):
    asked = made_up_measuring(MadeUpEncoder(), measuring.measured, replace(FEW, autoattack=True))
    with pytest.raises(UserError, match="at least 4 classes, got 3"):
        robustness.measure(asked)
    monkeypatch.setitem(sys.modules, "pyautoattack", None)
    monkeypatch.setattr(robustness, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"run `pip install 'pyautoattack>=0.2'`"):
        robustness.measure(asked)

"""The group of calibration: which images a temperature comes from, and that its numbers are those of the equations."""

from dataclasses import replace

import pytest
import torch
from made_up_card import MadeUpEncoder, made_up_measuring, made_up_set

from ebclab.card.card import Findings, Number
from ebclab.card.groups import calibration
from ebclab.card.images import MeasuredSet
from ebclab.card.measuring import Measuring


@pytest.fixture(scope="module")
def measuring() -> Measuring:
    return made_up_measuring(MadeUpEncoder(), made_up_set(noise=80.0))


@pytest.fixture(scope="module")
def findings(measuring: Measuring) -> Findings:
    return calibration.measure(measuring)


def _by_name(findings: Findings) -> dict[str, Number]:
    return {number.name: number for number in findings.numbers}


def test_every_number_is_there_before_and_after_scaling_and_biased_errors_have_no_interval(findings):
    both = {"ece-15", "ece-20", "mce-15", "mce-20", "adaptive-ece-15", "classwise-ece-15", "brier", "nll"}
    scaled = {f"{name}-scaled" for name in both}
    assert set(_by_name(findings)) == both | scaled | {"accuracy", "temperature"}
    numbers = _by_name(findings)
    assert [numbers[name].low for name in ("ece-15", "adaptive-ece-15", "classwise-ece-15", "mce-15")] == [None] * 4
    assert all(numbers[name].low is not None for name in ("accuracy", "brier", "nll"))
    for table, bins in zip(findings.tables, (15, 20), strict=False):
        assert len(table.rows) == bins
        assert sum(int(row[1]) for row in table.rows) == sum(int(row[4]) for row in table.rows) == 90


def test_numbers_are_those_of_the_softmax_and_of_the_temperature_shown(measuring, findings):
    numbers, labels = _by_name(findings), measuring.measured.test.labels
    for suffix, temperature in (("", 1.0), ("-scaled", numbers["temperature"].value)):
        probabilities = (measuring.test_logits / temperature).softmax(dim=1)
        likelihood = probabilities[torch.arange(len(labels)), labels]
        brier = (probabilities.square().sum(dim=1) + 1 - 2 * likelihood).mean()
        assert numbers[f"nll{suffix}"].value == pytest.approx(float(-likelihood.log().mean()), rel=1e-9)
        assert numbers[f"brier{suffix}"].value == pytest.approx(float(brier), rel=1e-9)
    assert numbers["ece-15"].value != numbers["ece-15-scaled"].value


def test_the_temperature_is_best_on_held_out_images_and_knows_no_test_image(measuring, findings):
    temperature = _by_name(findings)["temperature"].value
    labels = measuring.measured.parts[1].labels

    def held_out_nll(at: float) -> float:
        likelihood = (measuring.held_out_logits / at).softmax(dim=1)[torch.arange(len(labels)), labels]
        return float(-likelihood.log().mean())

    assert held_out_nll(temperature) < min(held_out_nll(1.02 * temperature), held_out_nll(temperature / 1.02))
    data = measuring.measured
    wrong = MeasuredSet("made-up", data.train, replace(data.test, labels=data.test.labels.roll(1)))
    other = calibration.measure(made_up_measuring(measuring.subject.encoder, wrong))
    assert _by_name(other)["temperature"].value == temperature
    assert _by_name(other)["ece-15"].value > 0.3  # and the test labels do count for the error


def test_an_error_that_chance_alone_makes_is_said_to_be_one(measuring: Measuring, findings: Findings) -> None:
    error, _, most = findings.tables[2].rows[0][1:]
    assert any("unscaled" in remark for remark in findings.remarks) == (error <= most)
    data = measuring.measured
    wrong = MeasuredSet("made-up", data.train, replace(data.test, labels=data.test.labels.roll(1)))
    other = calibration.measure(made_up_measuring(measuring.subject.encoder, wrong))
    assert not any("unscaled" in remark for remark in other.remarks)


def test_a_temperature_at_the_end_of_its_range_is_remarked() -> None:
    easy = made_up_measuring(MadeUpEncoder(), made_up_set(noise=2.0))  # right about every held-out image
    assert any("No temperature between 0.01 and 100" in remark for remark in calibration.measure(easy).remarks)

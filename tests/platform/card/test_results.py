"""Numbers of a card by hand and by slow loops, its cache of features, and the random weights that a seed decides."""

import math
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch.nn import functional

from ebclab.card.card import Better, accuracy, interval_of_mean, mean_over_images, two_samples
from ebclab.card.subject import Subject, open_subject
from ebclab.config.encoder import EncoderConfig
from ebclab.data.preprocessing import Preprocessing
from ebclab.encoders.build import digest_of, seeded_encoder
from ebclab.errors import DivergedError
from ebclab.evaluation.answers import wilson_interval
from ebclab.export.card import CardFacts
from ebclab.export.encoder_folder import save_encoder


def test_an_accuracy_is_the_mean_over_its_seeds_with_wilsons_interval() -> None:
    right = torch.tensor([[True, True, False, True], [True, False, False, True]])
    number = accuracy("a", "A", right, torch.arange(4), protocol="p", seeds=(3, 4))
    assert number.value == pytest.approx(5 / 8)
    assert number.per_seed == (0.75, 0.5)
    assert number.std == pytest.approx(0.125 * 2**0.5)
    assert (number.low, number.high) == pytest.approx(wilson_interval(5 / 8, 4))
    assert number.contributions.tolist() == [1.0, 0.5, 0.0, 1.0]


def test_a_mean_has_students_interval_over_images() -> None:
    values = torch.tensor([1.0, 2.0, 3.0, 6.0])  # mean 3, standard deviation sqrt(14 / 3)
    number = mean_over_images("m", "M", values, torch.arange(4), protocol="p", better="higher")
    half = 3.182446305284263 * (14 / 3) ** 0.5 / 2  # Student's 97.5 % point with 3 degrees of freedom, from a table
    assert (number.value, number.low, number.high) == pytest.approx((3.0, 3.0 - half, 3.0 + half))
    loss = mean_over_images("m", "M", values, torch.arange(4), protocol="p", better="lower")
    ends = (3.0 / math.exp(half / 3), 3.0 * math.exp(half / 3))  # of the logarithm, whose deviation is half / 3
    assert (loss.value, loss.low, loss.high) == pytest.approx((3.0, *ends))


@pytest.mark.parametrize(("better", "values"), [("lower", [-1.0, 3.0]), ("neither", [0.0, 2.0]), ("lower", [0.0, 0.0])])
def test_what_may_be_negative_or_is_0_has_ends_at_equal_distances(better: Better, values: list[float]) -> None:
    number = mean_over_images("m", "M", torch.tensor(values), torch.arange(2), protocol="p", better=better)
    assert number.low + number.high == pytest.approx(2 * sum(values) / 2)


def test_the_interval_of_a_skewed_loss_holds_the_truth_more_often_than_students() -> None:
    """NLL of a classifier whose margins are normal, 1,000 sets of 100 images: the truth is a mean of a million."""
    draw = torch.Generator().manual_seed(0)

    def losses(*shape: int) -> torch.Tensor:
        return functional.softplus(-5 - 3 * torch.randn(shape, generator=draw, dtype=torch.float64))

    truth, held = float(losses(1_000_000).mean()), {"lower": 0, "neither": 0}
    for row in losses(1_000, 1, 100).numpy():
        for better in held:
            low, high = interval_of_mean(row, 0.05, better)  # type: ignore[arg-type]
            held[better] += low <= truth <= high
            assert better == "neither" or low > 0
    assert held["neither"] < held["lower"] - 20
    assert held["lower"] > 890


def test_one_image_has_no_interval() -> None:
    number = mean_over_images("m", "M", torch.tensor([2.0]), torch.arange(1), protocol="p", better="lower")
    assert (number.low, number.high) == (None, None)


def test_contributions_of_two_samples_have_the_variance_of_both() -> None:
    first, second = torch.tensor([0.9, 0.8, 1.0, 0.7]).double(), torch.tensor([0.6, 1.0]).double()
    value = 0.83
    first, second = first - first.mean() + value, second - second.mean() + value
    found = two_samples(value, first, second)
    assert float(found.mean()) == pytest.approx(value)
    total, slow = len(first) + len(second), 0.0
    for part in (first, second):  # Var(first) / m + Var(second) / n, m and n in the divisor
        slow += sum((float(each) - value) ** 2 for each in part) / len(part) / len(part)
    assert float(((found - value) ** 2).sum()) / total**2 == pytest.approx(slow)


def test_a_second_look_reads_the_file_and_gives_the_same_bits(tmp_path, subject, make, measured):
    first = make(tmp_path).features(measured.test)
    assert subject.encoder.passes == 1
    again = make(tmp_path).features(replace(measured.test, images=measured.test.images.clone()))
    assert subject.encoder.passes == 1
    assert torch.equal(first, again)
    assert len(list(tmp_path.iterdir())) == 1


def test_other_weights_or_images_are_computed_anew(tmp_path, subject, make, measured):
    make(tmp_path).features(measured.test)
    changed = measured.test.images.clone()
    changed[0, 0, 0, 0] += 1
    make(tmp_path).features(replace(measured.test, images=changed))
    make(tmp_path, subject=replace(subject, digest="others")).features(measured.test)
    assert subject.encoder.passes == 3
    assert len(list(tmp_path.iterdir())) == 3


@pytest.mark.parametrize("at", [-1, -40, 3])
def test_a_file_with_a_flipped_bit_is_computed_again(tmp_path, subject, make, measured, at):
    first = make(tmp_path).features(measured.test)
    (path,) = tmp_path.iterdir()
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)
    assert torch.equal(make(tmp_path).features(measured.test), first)
    assert subject.encoder.passes == 2


def test_features_that_are_no_numbers_are_refused_and_not_kept(tmp_path, subject, make, measured):
    with torch.no_grad():
        subject.encoder.weight.fill_(float("nan"))
    with pytest.raises(DivergedError, match="NaN or infinity for 90 of 90 images"):
        make(tmp_path).features(measured.test)
    assert list(tmp_path.iterdir()) == []


OLD_RUN = Path(__file__).parents[2] / "folders" / "made_by_0.1" / "runs" / "finished"
SMALL = EncoderConfig(name="small", width=4)


def check(subject: Subject) -> None:
    """The same names and shapes as the subject's, the same bits for a seed, others for another; no generator moves."""
    before = torch.get_rng_state()
    first, again, other = (subject.random_weights(seed) for seed in (3, 3, 4))
    assert torch.equal(torch.get_rng_state(), before)
    shapes = {name: value.shape for name, value in subject.encoder.state_dict().items()}
    assert {name: value.shape for name, value in first.state_dict().items()} == shapes
    assert digest_of(first.state_dict()) == digest_of(again.state_dict())
    assert len({digest_of(each.state_dict()) for each in (first, other, subject.encoder)}) == 3


def test_of_a_run_it_is_the_runs_network_and_of_an_exported_folder_the_one_described_there(tmp_path):
    shutil.copytree(OLD_RUN, tmp_path / "run")
    check(open_subject(str(tmp_path / "run")))
    check(exported(tmp_path / "out", SMALL))


def exported(folder: Path, architecture: EncoderConfig) -> Subject:
    """Export an encoder with the random weights of seed 0."""
    facts, seen = CardFacts("title", "simclr", "method: {name: simclr}\n"), Preprocessing(8, (0.5,), (0.25,))
    with seeded_encoder(architecture, 0, 1) as encoder:
        save_encoder(folder, encoder, architecture=architecture, in_channels=1, preprocessing=seen, facts=facts)
    return open_subject(str(folder))


def test_networks_with_the_same_weights_are_not_the_same_encoder(tmp_path: Path) -> None:
    """Their features would be taken for one another's."""
    mean, quarters = (exported(tmp_path / each, replace(SMALL, pooling=each)) for each in ("mean", "quarters"))  # type: ignore[arg-type]
    assert digest_of(mean.encoder.state_dict()) == digest_of(quarters.encoder.state_dict())
    assert mean.digest != quarters.digest

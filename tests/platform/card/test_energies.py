"""The group of energies, against loops over images, on a made-up energy; what has no energy is refused."""

import math
from dataclasses import replace
from pathlib import Path

import numpy
import pytest
import torch
from PIL import Image
from scipy import stats
from torch import Tensor, nn

from ebclab.card.card import Findings
from ebclab.card.groups import energies
from ebclab.card.images import MeasuredSet, OutsideSet
from ebclab.card.measure import CardTask
from ebclab.card.measuring import Measuring
from ebclab.data.image_grid import Tile, draw_grid
from ebclab.data.image_set import ImageSet
from ebclab.data.views.pipeline import make_views
from ebclab.evaluation.measures.geometry import VIEWS
from ebclab.export.energies import Energies
from energy_contrast.sampling_method import ImageEnergy

from .conftest import Cosines, MakeMeasuring, striped


@pytest.fixture
def measuring(make: MakeMeasuring, measured: MeasuredSet) -> Measuring:
    outside = OutsideSet("folder:/other stripes", "far", striped("other", 40, 5_000, 3), measured.test)
    made = make(outside=(outside,))
    made.__dict__["method"] = Cosines(made.subject.encoder)  # of no run
    return made


@pytest.fixture
def found(measuring: Measuring) -> Findings:
    return energies.measure(measuring)


def values(findings: Findings) -> dict[str, float]:
    return {number.name: number.value for number in findings.numbers}


def embedded(measuring: Measuring, images: ImageSet | Tensor) -> list[list[float]]:
    """Return unit embeddings of images, or of views, in float64."""
    pixels = images if isinstance(images, Tensor) else measuring.subject.preprocessing(images.images)
    with torch.no_grad():
        vectors = measuring.subject.encoder(pixels).double()
    return (vectors / vectors.square().sum(dim=1, keepdim=True).sqrt()).tolist()


def energy(vector: list[float], references: list[list[float]]) -> float:
    return -math.log(sum(math.exp(sum(a * b for a, b in zip(vector, each, strict=True))) for each in references))


def test_means_and_quantiles_are_those_of_energies_by_loops(measuring: Measuring, found: Findings) -> None:
    train = embedded(measuring, measuring.measured.train)
    sets = {"test": measuring.measured.test, "far-folder-other-stripes": measuring.outside[0].outside}
    expected = {name: [energy(v, train) for v in embedded(measuring, images)] for name, images in sets.items()}
    # a training image against the references of the other nine tenths, as if those were as many as all
    expected["train"] = []
    for place, vector in enumerate(train):
        others = [each for number, each in enumerate(train) if number % 10 != place % 10]
        expected["train"].append(energy(vector, others) + math.log(len(others) / len(train)))
    numbers = values(found)
    for name, each in expected.items():
        assert numbers[f"{name}-mean"] == pytest.approx(sum(each) / len(each), abs=1e-5)
        for at in (5, 50, 95):
            assert numbers[f"{name}-q{at:02d}"] == pytest.approx(float(numpy.percentile(each, at)), abs=1e-5)
    assert all(number.contributions is None for number in found.numbers if "nats" in number.unit)
    # -log of a tenth fewer references is log(10/9) higher, which the protocol says is subtracted
    assert "less log(10/9)" in next(number.protocol for number in found.numbers if number.name == "train-mean")


def test_pairs_are_ranked_by_energy_beside_cosine(measuring: Measuring, found: Findings) -> None:
    test, preprocessing = measuring.measured.test, measuring.subject.preprocessing
    views = make_views(test.images, test.keys, VIEWS, preprocessing, seed=0, epoch=0)
    first, second = (embedded(measuring, each) for each in views)
    cosine = numpy.array(first) @ numpy.array(second).T
    n = len(test)
    numbers = values(found)
    assert numbers["pair-same"] == pytest.approx(-cosine.diagonal().mean(), abs=1e-5)
    assert numbers["pair-other"] == pytest.approx(-(cosine.sum() - cosine.trace()) / (n * n - n), abs=1e-5)
    right = float((cosine.argmax(axis=1) == numpy.arange(n)).mean())
    assert numbers["pair-found-energy"] == numbers["pair-found-cosine"] == pytest.approx(right)
    assert numbers["pair-rank-correlation"] == pytest.approx(1, abs=1e-6)  # this energy is minus the cosine


@pytest.mark.parametrize("levels", [0, 1000, 3])
def test_the_rank_correlation_is_spearmans_and_none_of_equal_pairs(levels: int) -> None:
    values = torch.rand(2, 12, 12, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    energy, cosine = (values * levels).floor()
    same = torch.eye(12, dtype=torch.bool)
    found = {each.name: each.value for each in energies._of_pairs(energy, cosine, same, torch.arange(12))}
    if not levels:
        assert "pair-rank-correlation" not in found
        return
    expected = stats.spearmanr(energy.flatten(), -cosine.flatten()).statistic
    assert found["pair-rank-correlation"] == pytest.approx(expected)


def test_pictures_have_ten_images_and_the_asked_pairs_at_each_end(make, measuring, monkeypatch):
    drawn = []

    def draw(rows: list[list[Tile]], names: list[str]) -> Image.Image:
        drawn.append((list(names), [[tuple(tile.pixels.shape) for tile in row] for row in rows]))
        return draw_grid(rows, names=names)

    monkeypatch.setattr(energies, "draw_grid", draw)
    made = make(options=replace(measuring.options, pairs=3))
    made.__dict__["method"] = measuring.method
    pictures = energies.measure(made).pictures
    assert [picture.name for picture in pictures] == ["images", "pairs-same", "pairs-other"]
    assert all(picture.png.startswith(b"\x89PNG") for picture in pictures)
    rankings = [f"{end} by {by}" for end in ("nearest", "farthest") for by in ("p(v, v')", "cosine")]
    pairs = (rankings, [[(1, 6, 6 + 2 + 6)] * 3] * 4)
    assert drawn == [(["likeliest", "unlikeliest"], [[(1, 6, 6)] * 10] * 2), pairs, pairs]


def test_the_first_pairs_are_the_smallest_with_no_view_twice() -> None:
    values = torch.tensor([[0.0, 1.0, 2.0], [3.0, 9.0, 4.0], [5.0, 0.5, 9.0]])
    every = torch.ones(3, 3, dtype=torch.bool)
    assert energies._first(values, every, 3) == [(0, 0), (2, 1), (1, 2)]
    assert energies._first(values, ~torch.eye(3, dtype=torch.bool), 9) == [(2, 1), (0, 2), (1, 0)]
    assert energies._ranks(values, values != 9)[0].tolist() == [1, 3, 4]


class Alone(ImageEnergy):
    """An energy of images that needs no references and gives none of pairs."""

    def encode_references(self, images: Tensor) -> Tensor:
        return images.new_zeros(len(images), 0)

    def image_energy(self, images: Tensor, references: Tensor) -> Tensor:
        return images.flatten(1).mean(dim=1)


def test_an_energy_without_pairs_has_a_remark_in_their_place(make: MakeMeasuring, measured: MeasuredSet) -> None:
    made = make()
    made.__dict__["method"] = Alone()
    found = energies.measure(made)
    mean = float(made.subject.preprocessing(measured.train.images).mean())
    assert values(found)["train-mean"] == pytest.approx(mean, abs=1e-5)  # no reference, so none is left out
    assert [picture.name for picture in found.pictures] == ["images"]
    assert found.remarks == (
        "Pairs of views are not ranked: energies of pairs are defined for ebclr, vem-langevin, vem-svgd, vem-image, "
        "got doubling.",
    )


def test_energies_of_an_export_are_of_images_at_the_cards_size(make: MakeMeasuring, measured: MeasuredSet) -> None:
    encoder = nn.Sequential(nn.MaxPool2d(2), nn.AdaptiveAvgPool2d(2), nn.Flatten())  # of any size
    plain, train = replace(make().subject, encoder=encoder), measured.train
    stored = Energies(Cosines(plain.encoder), plain.preprocessing, torch.empty(0, 0))
    stored = stored.with_references(train.images, "training images")
    scaled = replace(plain, energies=stored).scaled(4, "bicubic")
    found = energies.measure(make(subject=scaled))
    references = embedded(make(subject=plain), train)
    expected = [energy(v, references) for v in embedded(make(subject=scaled), measured.test)]
    assert values(found)["test-mean"] == pytest.approx(sum(expected) / len(expected), abs=1e-5)
    assert "references: training images, at the export's own size" in found.numbers[0].protocol


def test_an_encoder_without_a_method_is_left_out_in_one_sentence(make: MakeMeasuring, tmp_path: Path) -> None:
    task = CardTask(make(), ("energies",), None)
    result = task.known("energies", "1")
    assert result.problem == (
        "energies need energies.json and energies.safetensors beside an encoder, got doubling, made up; name a run, or "
        "export one with energies"
    )

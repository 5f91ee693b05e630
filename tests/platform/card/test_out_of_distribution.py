"""The group of outside images: its numbers against scikit-learn and closed forms on a made-up encoder and energy."""

from dataclasses import replace

import numpy
import pytest
import torch
from made_up_card import measuring_of
from scipy import special, stats
from sklearn.metrics import roc_auc_score
from torch import Tensor, nn

from ebclab.card.card import Findings, Number
from ebclab.card.groups import out_of_distribution
from ebclab.card.images import MeasuredSet, OutsideSet
from ebclab.card.measuring import Measuring
from ebclab.card.subject import Subject
from ebclab.data.image_set import ImageSet
from ebclab.data.preprocessing import Preprocessing
from ebclab.errors import DataError
from energy_contrast.sampling_method import ImageEnergy

SIDE, CLASSES = 3, 3


class Distance(nn.Module, ImageEnergy):
    """``E(x) = |x - mean of references|^2 / 2``, whose gradient has the length ``|x - mean|``; or of minus that."""

    def __init__(self, sign: float = 1.0) -> None:
        super().__init__()
        self.sign = sign

    def encode_references(self, images: Tensor) -> Tensor:
        return images.flatten(1)

    def image_energy(self, images: Tensor, references: Tensor) -> Tensor:
        return self.sign * (images.flatten(1) - references.mean(dim=0)).square().sum(dim=1) / 2


def image_set(name: str, count: int, seed: int, level: int = 0, spread: int = 60) -> ImageSet:
    """Return images of random pixels around the mean of their class, all brighter by ``level``."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(count) % CLASSES
    means = 40 + 60 * torch.eye(SIDE * SIDE)[:CLASSES] + level
    pixels = (
        (means[labels] + spread * torch.rand(count, SIDE * SIDE, generator=generator)).clamp(0, 255).to(torch.uint8)
    )
    keys = torch.arange(count) + 1_000 * seed
    return ImageSet(name, pixels.view(count, 1, SIDE, SIDE), labels, keys, (), (0.5,), (0.25,))


DATA = MeasuredSet("dots", image_set("dots", 240, 0), image_set("dots", 60, 1))
NEAR = OutsideSet("bright", "near", image_set("bright", 52, 2, level=15), DATA.test)
DIM = OutsideSet("dim", "near", image_set("dim", 53, 3, level=-20), DATA.test)
FAR = OutsideSet("folder:/noise & co", "far", image_set("noise", 50, 4, spread=215), DATA.test)


def measuring(*outside: OutsideSet, method: nn.Module | None = None) -> Measuring:
    prepared = Preprocessing(SIDE, (0.5,), (0.25,))
    subject = Subject("made up", "here", nn.Flatten(), prepared, 1, "a test", "d" * 64)
    made = measuring_of(subject, DATA, outside=outside)
    made.__dict__["method"] = method  # of no run
    return made


def number(findings: Findings, name: str) -> Number:
    (found,) = (each for each in findings.numbers if each.name == name)
    return found


def area(inside: Tensor, outside: Tensor) -> float:
    labels = numpy.r_[numpy.zeros(len(inside)), numpy.ones(len(outside))]
    return float(roc_auc_score(labels, torch.cat([inside, outside]).numpy()))


def pixels(images: ImageSet) -> Tensor:
    return ((images.images.double() / 255 - 0.5) / 0.25).flatten(1)


def distances(images: ImageSet) -> Tensor:
    return (pixels(images) - pixels(DATA.train).mean(dim=0)).norm(dim=1)


@pytest.fixture(scope="module")
def found() -> Findings:
    return out_of_distribution.measure(measuring(NEAR, FAR, DIM, method=Distance()))


def test_every_detector_has_its_numbers_on_every_set_and_they_are_those_of_scikit_learn(found: Findings) -> None:
    sets = {"near-bright": NEAR, "near-dim": DIM, "far-folder-noise-co": FAR}
    detectors = 9 + 2
    assert len(found.numbers) == len({each.name for each in found.numbers}) == 2 * detectors * len(sets)
    head = measuring(NEAR).classifier
    for key, each in sets.items():
        energies = [-head.logits(pixels(images)).logsumexp(dim=1) for images in (each.inside, each.outside)]
        assert number(found, f"{key}-energy-auroc").value == pytest.approx(area(*energies), abs=1e-3)
        # scores are in float32: neighbouring images may change places
        own = area(distances(each.inside), distances(each.outside))
        assert number(found, f"{key}-own-energy-auroc").value == pytest.approx(own, abs=1e-6)
        assert number(found, f"{key}-own-energy-slope-auroc").value == pytest.approx(own, abs=1e-6)
        flagged = number(found, f"{key}-own-energy-fpr95")
        threshold = distances(each.outside).sort().values[int(0.05 * len(each.outside))]  # all but 5 % lie at or above
        assert flagged.value == pytest.approx(float((distances(each.inside) >= threshold).double().mean()))


def test_detectors_know_nothing_of_the_training_images_that_are_held_out() -> None:
    noise = image_set("dots", 240, 9, spread=215).images
    others = torch.where(DATA.is_held_out[:, None, None, None], noise, DATA.train.images)
    made = measuring(NEAR)
    made.measured = replace(DATA, train=replace(DATA.train, images=others))
    assert not torch.equal(made.features(made.measured.train), measuring(NEAR).features(DATA.train))
    found = [out_of_distribution.measure(each) for each in (made, measuring(NEAR))]
    for name in ("near-bright-knn-auroc", "near-bright-mahalanobis-auroc", "near-bright-mahalanobis-fpr95"):
        assert len({number(each, name).value for each in found}) == 1, name


def loop_over_pairs(inside: list[float], outside: list[float]) -> tuple[float, float]:
    """Return the interval on the logit by DeLong's variance and Welch's degrees of freedom, all sums written out."""
    m, n = len(inside), len(outside)
    v = [sum(1.0 if x < y else 0.5 if x == y else 0.0 for y in outside) / n for x in inside]
    w = [sum(1.0 if x < y else 0.5 if x == y else 0.0 for x in inside) / m for y in outside]
    mean = sum(v) / m
    first = sum((each - mean) ** 2 for each in v) / (m - 1) / m
    second = sum((each - mean) ** 2 for each in w) / (n - 1) / n
    freedom = int((first + second) ** 2 / (first**2 / (m - 1) + second**2 / (n - 1)))
    half = stats.t.ppf(0.975, freedom) * (first + second) ** 0.5 / (mean * (1 - mean))
    low, high = (float(special.expit(special.logit(mean) + sign * half)) for sign in (-1, 1))
    return low, high


def test_an_interval_is_delongs_on_the_logit_and_contributions_have_its_variance(found: Findings) -> None:
    x, y = distances(DATA.test), distances(NEAR.outside)
    won = (x[:, None] < y[None]).double()  # no ties
    variance = float(won.mean(dim=1).var() / len(x) + won.mean(dim=0).var() / len(y))
    measured = number(found, "near-bright-own-energy-auroc")
    assert (measured.low, measured.high) == pytest.approx(loop_over_pairs(x.tolist(), y.tolist()), abs=1e-9)
    assert float(measured.contributions.mean()) == pytest.approx(measured.value)
    of_mean = float(measured.contributions.var()) / len(measured.contributions)
    assert of_mean == pytest.approx(variance, rel=0.02)  # N / (N - 1), n / (n - 1): DeLong's to first order
    assert measured.num_images == 112
    assert "DeLong" in measured.protocol
    assert "positive class" in measured.protocol
    assert "references: 240 training images of dots, chosen by hash" in measured.protocol


def test_tables_keep_near_and_far_apart(found: Findings) -> None:
    overview = found.tables[0]
    assert overview.columns == ("detector", "near: bright", "near: dim", "far: folder:/noise & co", "near, mean")
    for row in overview.rows:
        assert row[4] == pytest.approx((row[1] + row[2]) / 2, abs=0.011)
    sets = [table.title.split(" against")[0] for table in found.tables[1:]]
    assert sets == ["bright (near)", "folder:/noise & co (far)", "dim (near)"]
    assert len(out_of_distribution.measure(measuring(NEAR)).tables) == 1


def test_a_plot_shows_shares_of_every_set(found: Findings) -> None:
    assert [each.title.split(",")[0] for each in found.plots] == ["Energy of the logits", "The method's own energy"]
    for each in found.plots:
        lines = {trace["name"]: trace["y"] for trace in each.figure["data"]}
        assert list(lines) == ["inside: dots", "near: bright", "far: folder:/noise &amp; co", "near: dim"]
        for shares in lines.values():
            assert sum(shares) == pytest.approx(1, abs=1e-3)


FEW = replace(DIM, name="few", outside=DIM.outside.rows(torch.arange(8)))
SAME = OutsideSet("same", "near", image_set("same", 50, 8), DATA.test)


@pytest.mark.parametrize(("outside", "verdict"), [(NEAR, "worse"), (SAME, "within noise")])
def test_the_own_energy_is_compared_with_the_best_detector(outside: OutsideSet, verdict: str) -> None:
    findings = out_of_distribution.measure(measuring(outside, method=Distance()))
    (remark,) = findings.remarks
    plain = [each for each in findings.numbers if each.name.endswith("auroc") and "own" not in each.name]
    best = max(plain, key=lambda each: each.value)
    own = number(findings, f"near-{outside.name}-own-energy-auroc")
    low, high = stats.ttest_rel(own.contributions, best.contributions).confidence_interval()
    gap = own.value - best.value
    assert f"AUROC of {100 * own.value:.1f} %" in remark
    assert f", {100 * best.value:.1f} %; {100 * gap:+.1f} points ({100 * low:+.1f} to {100 * high:+.1f})" in remark
    assert f", {verdict}. That detector is the best on these very images" in remark


@pytest.mark.parametrize(("sign", "gap"), [(1.0, "+0.0"), (-1.0, "-100.0")])
def test_an_energy_is_not_compared_by_an_interval_where_sets_do_not_overlap(sign: float, gap: str) -> None:
    (remark,) = out_of_distribution.measure(measuring(FAR, method=Distance(sign))).remarks
    assert f"100.0 %; the difference is {gap} points, without an interval, since the sets do not overlap." in remark


def test_an_energy_is_not_compared_by_an_interval_on_few_images_and_the_table_says_why() -> None:
    findings = out_of_distribution.measure(measuring(FEW, method=Distance()))
    assert findings.remarks[0].endswith("points, without an interval, since there are fewer than 50 images of a kind.")
    assert {row[2:4] for row in findings.tables[0].rows} == {(None, None)}
    assert "no interval, since with fewer than 50 images of a kind" in findings.tables[0].note


def test_without_an_energy_there_is_none() -> None:
    for method in (None, nn.Identity()):
        findings = out_of_distribution.measure(measuring(NEAR, method=method))
        assert len(findings.numbers) == 18
        assert not findings.remarks
        assert len(findings.plots) == 1


def test_sets_that_do_not_overlap_have_wilsons_interval_and_nothing_to_compare_by() -> None:
    """DeLong's variance is 0 there and says nothing about other images. Wilson's of k of k starts at k / (k + z^2)."""
    white = OutsideSet("white", "far", image_set("white", 55, 5, level=215), DATA.test)
    findings = out_of_distribution.measure(measuring(white))
    measured = number(findings, "far-white-mahalanobis-auroc")
    assert (measured.value, measured.low, measured.high) == pytest.approx((1, 55 / (55 + 1.959964**2), 1), abs=1e-6)
    assert measured.contributions is None
    assert not measured.images
    assert "interval of about 95 %" in findings.tables[0].note


def test_two_sets_of_one_name_keep_apart() -> None:
    names = {each.name for each in out_of_distribution.measure(measuring(NEAR, NEAR)).numbers}
    assert {"near-bright-energy-auroc", "near-bright--2-energy-auroc"} <= names


def test_one_image_is_too_few() -> None:
    with pytest.raises(
        DataError, match=r"--ood: alone needs two images and two test images .* got 1 and 60; use larger"
    ):
        OutsideSet("alone", "far", image_set("alone", 1, 6), DATA.test)

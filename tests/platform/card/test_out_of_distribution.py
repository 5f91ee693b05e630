"""Outside images: none of the card's own, fitting the encoder; numbers against scikit-learn and closed forms."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy
import pytest
import torch
from made_up_card import measuring_of
from PIL import Image
from scipy import special, stats
from sklearn.metrics import roc_auc_score
from torch import Tensor, nn

from ebclab.card.card import Findings, Number
from ebclab.card.groups import out_of_distribution
from ebclab.card.images import MeasuredSet, OutsideSet, named_set, outside_set
from ebclab.card.measuring import Measuring
from ebclab.card.subject import Subject, open_subject
from ebclab.config.sections import DataConfig
from ebclab.data.holdout import limit
from ebclab.data.image_set import ImageSet
from ebclab.data.preprocessing import Preprocessing
from ebclab.errors import DataError, UserError
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


def subject(channels: int = 1) -> Subject:
    preprocessing = Preprocessing(8, (0.5,) * channels, (0.25,) * channels)
    return Subject("made up", "here", nn.Flatten(), preprocessing, channels, "a test", "d" * 64)


@pytest.fixture(scope="module")
def digits() -> MeasuredSet:
    return named_set("digits", subject(), None)


@pytest.mark.parametrize("name", ["inverted", "rotated"])
def test_altered_images_and_those_that_they_are_told_from_are_halves_of_the_test_set(digits, name):
    found = outside_set(name, subject(), digits, None)
    inside, outside = set(found.inside.keys.tolist()), set(found.outside.keys.tolist())
    assert not inside & outside
    assert inside | outside == set(digits.test.keys.tolist())
    assert 0.35 < len(inside) / len(digits.test) < 0.65
    assert found.kind == "near"
    rows = {int(key): image for key, image in zip(digits.test.keys, digits.test.images, strict=True)}
    for key, image in zip(found.outside.keys[:5].tolist(), found.outside.images, strict=False):
        before = rows[key][0].numpy()
        expected = 255 - before if name == "inverted" else numpy.rot90(before)
        assert numpy.array_equal(image[0].numpy(), expected)
    for key, image in zip(found.inside.keys.tolist(), found.inside.images, strict=True):
        assert torch.equal(image, rows[key])


@pytest.mark.parametrize(("train", "test"), [(0, 0), (500, 100), (0, 100), (500, 0)])
def test_images_of_the_card_or_some_of_them_are_not_outside(digits: MeasuredSet, train: int, test: int) -> None:
    sentence = "--ood: near=digits has the images that the card is measured on; name another"
    few = limit(digits.train, train), limit(digits.test, test)
    for measured in (MeasuredSet("digits", *few), MeasuredSet("mine", *reversed(few))):
        with pytest.raises(DataError, match=sentence):
            outside_set("near=digits", subject(), measured, None)


def test_a_folder_without_a_test_part_is_not_outside_of_what_is_held_out_of_it(tmp_path: Path) -> None:
    pixels = numpy.random.default_rng(0)
    for number in range(40):
        place = tmp_path / "set" / "ab"[number % 2]
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels.integers(0, 256, (8, 8), dtype=numpy.uint8)).save(place / f"{number}.png")
    name = f"folder:{tmp_path}/set"
    measured = named_set(name, subject(), None)
    assert measured.tests_held_out
    with pytest.raises(DataError, match="has the images that the card is measured on"):
        outside_set(name, subject(), measured, None)


def colour_folder(place: Path) -> str:
    for part in ("train", "test"):
        for label in ("a", "b"):
            folder = place / part / label
            folder.mkdir(parents=True)
            for number in range(3):
                colours = torch.randint(256, (8, 8, 3), dtype=torch.uint8).numpy()
                Image.fromarray(colours).save(folder / f"{number}.png")
    return f"folder:{place}"


def test_channels_are_those_of_the_encoder_or_a_sentence(digits: MeasuredSet, tmp_path: Path) -> None:
    colours = named_set(colour_folder(tmp_path), subject(3), None)
    assert colours.test.images.shape[1] == 3
    grey = outside_set("digits", subject(3), colours, None).outside  # grey images are repeated
    assert torch.equal(grey.images, digits.test.images.expand(-1, 3, -1, -1))
    assert grey.mean == digits.test.mean * 3


def test_colour_images_are_refused_by_an_encoder_of_grey_ones(digits, monkeypatch):
    from ebclab.card import images

    def load(*args: object, **options: object) -> object:
        parts = (digits.train, digits.test)
        return tuple(replace(part, name="wide", images=part.images.expand(-1, 3, -1, -1)) for part in parts)

    monkeypatch.setattr(images, "load_both", load)
    with pytest.raises(
        DataError, match=r"wide: made up takes images of 1 channel\(s\), got 3; choose a dataset with as many"
    ):
        outside_set("far=wide", subject(1), digits, None)


@pytest.mark.parametrize(
    ("given", "kind"), [("rotated", "near"), ("far=rotated", "far"), ("near=inverted", "near"), ("far=inverted", "far")]
)
def test_altered_images_are_near_unless_somebody_says_far(digits: MeasuredSet, given: str, kind: str) -> None:
    assert outside_set(given, subject(), digits, None).kind == kind


@pytest.mark.parametrize("given", ["folder:{}/kind=rotated", "far=folder:{}/kind=rotated"])
def test_a_place_that_ends_like_an_alteration_is_read(digits: MeasuredSet, tmp_path: Path, given: str) -> None:
    colour_folder(tmp_path / "kind=rotated")
    found = outside_set(given.format(tmp_path), subject(3), named_set("digits", subject(3), None), None)
    assert (found.kind, len(found.outside), len(found.inside)) == ("far", 6, len(digits.test))


def test_all_images_of_a_folder_without_parts_are_outside(digits: MeasuredSet, tmp_path: Path) -> None:
    colour_folder(tmp_path)
    measured = named_set("digits", subject(3), None)
    assert len(outside_set(f"far=folder:{tmp_path / 'train'}", subject(3), measured, None).outside) == 6


@pytest.mark.parametrize("given", ["beside=digits", "=digits", "near=", ""])
def test_what_is_neither_near_nor_far_is_a_sentence(digits: MeasuredSet, given: str) -> None:
    with pytest.raises(UserError, match="--ood: must be NAME, near=NAME or far=NAME, got"):
        outside_set(given, subject(), digits, None)


def test_images_are_scaled_as_asked_for_and_not_as_the_encoders_own_were(tmp_path: Path) -> None:
    draw = numpy.random.default_rng(0)
    for place in range(4):  # the path has train and test, one class each
        for part in ("train", "test"):
            folder = tmp_path / part / f"class{place % 2}"
            folder.mkdir(parents=True, exist_ok=True)
            Image.fromarray(draw.integers(0, 256, (23, 31), dtype=numpy.uint8)).save(folder / f"{place}.png")
    asked = subject().scaled(12, "bicubic")
    data = SimpleNamespace(data=DataConfig(name="digits", colour="grey", resize=10))
    of_run: Any = SimpleNamespace(config=data, preprocessing=subject().preprocessing)
    by_pillow = []
    for path in sorted((tmp_path / "test").rglob("*.png")):
        with Image.open(path) as picture:
            square = picture.convert("L").crop((4, 0, 27, 23)).resize((12, 12), Image.Resampling.BICUBIC)
            by_pillow.append(torch.from_numpy(numpy.array(square)))
    expected = torch.stack(by_pillow)[:, None]
    for encoder in (asked, replace(asked, trained=of_run)):
        assert torch.equal(named_set(f"folder:{tmp_path}", encoder, None).test.images, expected)
    stored = torch.from_numpy(draw.integers(0, 256, (2, 1, 8, 8), dtype=numpy.uint8))  # of a set of arrays
    larger = [Image.fromarray(each[0].numpy()).resize((12, 12), Image.Resampling.BICUBIC) for each in stored]
    pixels = torch.stack([torch.from_numpy(numpy.array(each)) for each in larger])[:, None].float() / 255
    seen = asked.preprocessing
    torch.testing.assert_close(seen(stored), (pixels - seen.mean[0]) / seen.std[0])
    assert len({asked.digest, subject().digest, subject().scaled(12, "bilinear").digest}) == 3
    assert "12 x 12, bicubic" in asked.origin


def test_the_origin_of_an_encoder_of_timm_says_how_images_are_scaled(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = nn.Conv2d(3, 2, 3), 224, (0.5,) * 3, (0.5,) * 3
    monkeypatch.setattr("ebclab.card.subject.weights_problem", lambda name: None)
    monkeypatch.setattr("ebclab.card.subject.pretrained_encoder", lambda name: loaded)
    known = open_subject("timm/net")
    whole = "timm's weights for net; images resized to 224 x 224, bilinear, without timm's own crop"
    assert (known.origin, known.preprocessing.read_size) == (whole, 0)
    assert known.scaled(0, "bicubic").origin == "timm's weights for net; images scaled to 224 x 224, bicubic"


def test_image_files_of_several_sizes_are_scaled_to_what_the_encoder_takes(tmp_path: Path) -> None:
    draw = numpy.random.default_rng(0)
    for part in ("train", "test"):
        for place, shape in enumerate([(23, 31), (15, 15)]):
            (tmp_path / part).mkdir(exist_ok=True)
            Image.fromarray(draw.integers(0, 256, shape, dtype=numpy.uint8)).save(tmp_path / part / f"{place}.png")
    plain, asked = subject(), subject().scaled(12, "bicubic")
    of_run: Any = SimpleNamespace(
        config=SimpleNamespace(data=DataConfig(name="digits", colour="grey")), preprocessing=plain.preprocessing
    )
    for encoder, side, how in ((plain, 8, "BILINEAR"), (asked, 12, "BICUBIC")):
        with Image.open(tmp_path / "test" / "0.png") as picture:
            square = picture.crop((4, 0, 27, 23)).resize((side, side), Image.Resampling[how])
            expected = torch.from_numpy(numpy.array(square))[None]
        for each in (encoder, replace(encoder, trained=of_run)):
            test = named_set(f"folder:{tmp_path}", each, None).test
            assert test.images.shape == (2, 1, side, side)
            assert (test.images == expected).flatten(1).all(dim=1).any()
    of_run.config.data = DataConfig(name=f"folder:{tmp_path}", colour="grey")
    with pytest.raises(DataError, match=r"data\.resize: the images must be of one size"):
        named_set(None, replace(plain, trained=of_run), None)

"""Few labels, fine-tuning and transfer on tiny images and encoders; of several labels an image, mean AP by hand."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from made_up_card import measuring_of
from made_up_voc import AREA, ELEVEN_POINT, write_voc
from scipy import stats
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import precision_recall_curve, top_k_accuracy_score
from sklearn.preprocessing import StandardScaler
from torch import nn

from ebclab.card.card import Findings
from ebclab.card.groups import classification, fine_tuning
from ebclab.card.images import MeasuredSet, named_set, short_names
from ebclab.card.measure import CardTask
from ebclab.card.measuring import Measuring
from ebclab.card.subject import Subject
from ebclab.data.class_labels import one_class_problem
from ebclab.data.holdout import label_list
from ebclab.data.image_set import ImageSet
from ebclab.data.preprocessing import Preprocessing
from ebclab.data.sources.load import load_split
from ebclab.errors import DataError
from ebclab.evaluation.answers import images_key
from ebclab.evaluation.multi_label import average_precisions

CLASSES = ("left", "right", "all")


@pytest.fixture(autouse=True)
def _few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fine_tuning, "LEAST_STEPS", 4)
    monkeypatch.setattr(fine_tuning, "PERCENTS", (5, 20))


def part(count: int, seed: int, *, side: int = 4, name: str = "made-up") -> ImageSet:
    """Images (count, 1, side, side): bright on the left, on the right, or everywhere; with much noise."""
    generator = torch.Generator().manual_seed(seed)
    pixels = torch.randint(0, 100, (count, 1, side, side), generator=generator, dtype=torch.uint8)
    labels = torch.arange(count) % 3
    half = side // 2
    pixels[labels != 1, :, :, :half] += 120
    pixels[labels != 0, :, :, half:] += 120
    return ImageSet(name, pixels, labels, torch.arange(count) + 10_000 * seed, CLASSES, (0.5,), (0.25,))


def a_set(name: str = "made-up", side: int = 4, count: int = 120) -> MeasuredSet:
    return MeasuredSet(name, part(count, 1, side=side, name=name), part(60, 2, side=side, name=name))


def network(seed: int) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return nn.Sequential(
            nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten()
        ).eval()


def a_subject(random_weights: Callable[[int], nn.Module] | None = network) -> Subject:
    made = Subject("tiny", "nowhere", network(100), Preprocessing(4, (0.5,), (0.25,)), 1, "made up", "0" * 64)
    return replace(made, random_weights=random_weights)


def measuring(
    subject: Subject | None = None,
    data: MeasuredSet | None = None,
    others: tuple[MeasuredSet, ...] = (),
    seeds: int = 2,
) -> Measuring:
    subject, data = subject or a_subject(), data or a_set()
    return measuring_of(subject, data, others=others, seeds=seeds, fine_tuning_epochs=3)


def by_name(findings: Findings) -> dict[str, float]:
    return {number.name: number.value for number in findings.numbers}


def test_few_labels_reports_frozen_fine_tuned_and_from_scratch_for_each_share() -> None:
    work = measuring()
    found = fine_tuning.measure_few_labels(work)
    names = ("frozen", "fine-tuned", "from-scratch", "gain")
    assert [number.name for number in found.numbers] == [f"{name}-{p}-percent" for p in (5, 20) for name in names]
    for number in found.numbers:
        assert number.seeds == (0, 1)
        assert number.num_images == 60
        assert number.images == images_key(work.measured.test.keys)
        assert float(number.contributions.mean()) == pytest.approx(number.value, abs=1e-12)
        assert number.std == pytest.approx(abs(number.per_seed[0] - number.per_seed[1]) / 2**0.5, abs=1e-12)
    values = by_name(found)
    for percent in (5, 20):
        gained = values[f"fine-tuned-{percent}-percent"] - values[f"from-scratch-{percent}-percent"]
        assert values[f"gain-{percent}-percent"] == pytest.approx(gained, abs=1e-12)
    assert values["frozen-20-percent"] > 0.8  # three classes: chance is a third
    assert "2 images of each class" in found.numbers[0].protocol
    assert "by 2-fold cross-validation among the labelled images" in found.numbers[0].protocol
    assert len(found.plots) == 1
    (table,) = found.tables
    assert [row[:3] for row in table.rows] == [(5, 0, 6), (5, 1, 6), (20, 0, 24), (20, 1, 24)]
    sums = [label_list(work.measured.train, percent, seed, 3).digest for percent in (5, 20) for seed in (0, 1)]
    assert [row[-1] for row in table.rows] == sums


def test_only_labels_of_the_list_are_looked_at() -> None:
    # Wrong labels for all other training images change nothing: neither a penalty, nor a rate, nor an answer.
    data = a_set()
    work = measuring(data=data, seeds=1)
    lists = (label_list(data.train, 20, 0, 3),)
    known = torch.zeros(len(data.train), dtype=torch.bool)
    known[lists[0].rows] = True
    hidden = torch.where(known, data.train.labels, (data.train.labels + 1) % 3)
    wrong = MeasuredSet(data.name, replace(data.train, labels=hidden), data.test)
    both = fine_tuning.beginnings(work.subject)
    first = fine_tuning._on_lists(work, lists, both)
    second = fine_tuning._on_lists(measuring(data=wrong, seeds=1), lists, both)
    assert first.choices == second.choices
    for name, number in first.numbers.items():
        assert number.per_seed == second.numbers[name].per_seed


def test_a_share_that_is_too_small_is_a_remark_and_nothing_at_all_an_error() -> None:
    found = fine_tuning.measure_few_labels(measuring(data=a_set(count=45), seeds=1))
    assert {number.name.rpartition("-")[0].rpartition("-")[2] for number in found.numbers} == {"20"}
    assert found.remarks == (
        "made-up: 5 % of 45 training images is less than one for each of 3 classes; measure on a larger set",
    )
    assert found.plots == ()
    with pytest.raises(DataError, match="20 % of 9 training images is less than one for each of 3 classes"):
        fine_tuning.measure_few_labels(measuring(data=a_set(count=9)))


@pytest.mark.parametrize("random_weights", [None, network])
def test_an_encoder_without_weights_has_frozen_numbers_and_a_remark(random_weights):
    # However it was made: raw pixels beside a run know the run's network.
    pixels = replace(a_subject(random_weights), encoder=nn.Flatten(), label="raw pixels")
    found = fine_tuning.measure_few_labels(measuring(pixels, seeds=1))
    assert [number.name for number in found.numbers] == ["frozen-5-percent", "frozen-20-percent"]
    assert found.remarks == ("raw pixels: there are no weights to fine-tune",)
    with pytest.raises(DataError, match="raw pixels: there are no weights to fine-tune"):
        fine_tuning.measure(measuring(pixels))


def test_a_gain_of_nothing_on_these_images_is_no_certainty() -> None:
    right = torch.ones(2, 60, dtype=torch.bool)
    number = fine_tuning.gain("gain", "gain", {"fine-tuned": right, "from-scratch": right}, measuring(), "p")
    half = stats.t.ppf(0.975, 61) * (1 / 61 / 62) ** 0.5  # 60 images without a difference, two halves with one
    assert (number.value, number.low, number.high) == (0.0, pytest.approx(-half), pytest.approx(half))


def test_fine_tuning_measures_every_dataset_beside_random_weights() -> None:
    work = measuring(others=(a_set("else where", side=6),), seeds=1)
    before = {name: value.clone() for name, value in work.subject.encoder.state_dict().items()}
    found = fine_tuning.measure(work)
    names = ["fine-tuned", "from-scratch", "gain"]
    assert [number.name for number in found.numbers] == [*names, *(f"else-where-{name}" for name in names)]
    assert found.tables[0].title == "Learning rates tried"
    assert [row[:2] for row in found.tables[0].rows] == [
        (name, weights) for name in ("made-up", "else where") for weights in ("fine-tuned", "supervised from scratch")
    ]
    values = by_name(found)
    assert values["gain"] == pytest.approx(values["fine-tuned"] - values["from-scratch"], abs=1e-12)
    for name, value in work.subject.encoder.state_dict().items():
        assert torch.equal(value, before[name])
    again = fine_tuning.measure(measuring(others=(a_set("else where", side=6),), seeds=1))
    assert by_name(again) == values  # to the bit


def test_from_scratch_begins_with_the_random_weights_of_each_seed() -> None:
    made: list[int] = []

    def random_weights(seed: int) -> nn.Module:
        made.append(seed)
        return network(seed)

    fine_tuning.measure(measuring(a_subject(random_weights), seeds=2))
    assert made == [0, 0, 1]  # the rate is chosen with the first seed, then each seed is trained


def test_transfer_gives_the_numbers_of_classification_there() -> None:
    other = MeasuredSet("folder:/data/Other_Set", part(90, 3, side=6), part(45, 4, side=6))
    found = classification.measure_transfer(measuring(others=(other,)))
    there = classification.measure(measuring(data=other))
    assert by_name(found) == {f"folder-other-set-{name}": value for name, value in by_name(there).items()}
    assert all("6 x 6 pixels scaled to 4 x 4" in number.protocol for number in found.numbers)
    assert all(number.images == images_key(other.test.keys) for number in found.numbers)
    held = classification.measure_transfer(measuring(others=(replace(other, tests_held_out=True),)))
    for test_part, both in ((False, found), (True, held)):
        assert all(("no test part" in number.protocol) == test_part for number in both.numbers)


def unlabelled() -> MeasuredSet:
    data = a_set("no labels")
    return replace(data, train=replace(data.train, labels=data.train.labels.where(data.train.keys % 2 == 0, -1)))


def one_class() -> MeasuredSet:
    data = a_set("one class")
    same = {"class_names": (), "labels": torch.zeros(120, dtype=torch.int64)}
    return MeasuredSet(
        data.name, replace(data.train, **same), replace(data.test, **{**same, "labels": same["labels"][:60]})
    )


def more_classes_in_the_test_set() -> MeasuredSet:
    data = a_set("more classes")
    labels = data.test.labels.clone()
    labels[0] = 3
    return replace(data, test=replace(data.test, labels=labels))


PROBLEMS = [
    (unlabelled, "no labels: 60 images have no label; choose a labelled dataset"),
    (one_class, one_class_problem("one class")),
    (
        more_classes_in_the_test_set,
        "more classes: every class needs a training image, got none of 1 of 4 classes, 3 for one; add some, or choose "
        "another dataset",
    ),
]


@pytest.mark.parametrize(("make", "sentence"), PROBLEMS)
def test_labels_that_do_not_serve_are_one_sentence(make: Callable[[], MeasuredSet], sentence: str) -> None:
    found = classification.measure_transfer(measuring(others=(make(), a_set("good"))))
    assert found.remarks == (sentence,)
    assert {number.name.partition("-")[0] for number in found.numbers} == {"good"}
    with pytest.raises(DataError) as caught:
        classification.measure_transfer(measuring(others=(make(),)))
    assert str(caught.value) == sentence
    assert fine_tuning.measure(measuring(others=(make(),), seeds=1)).remarks == (sentence,)
    task = CardTask(measuring(data=make()), ("few-labels", "fine-tuning"), None)
    assert [getattr(task.known(group, "0"), "problem", "") for group in task.groups] == [sentence] * 2


def test_names_of_datasets_are_plain_and_different() -> None:
    names = ("mnist", "folder:/a/Birds 2", "folder:/b/birds_2", "own:mnist", "folder:/c/?")
    short = ["mnist", "folder-birds-2", "folder-birds-2-2", "own-mnist", "folder"]
    assert short_names([a_set(name) for name in names]) == short


def test_top_5_of_few_labels_is_that_of_scikit_learn_and_contains_top_1(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fine_tuning, "PERCENTS", (20,))
    parts = [load_split("digits", None, split).rows(torch.arange(150)) for split in ("train", "test")]
    subject = replace(a_subject(), preprocessing=Preprocessing(8, (0.5,), (0.25,)))
    work = measuring(subject=subject, data=MeasuredSet("digits", *parts), seeds=1)
    findings = fine_tuning.measure_few_labels(work)
    values, labels = by_name(findings), work.measured.test.labels
    (row,) = findings.tables[0].rows
    rate = float(dict(zip(findings.tables[0].columns, row, strict=True))["rate, fine-tuned"])
    chosen = label_list(work.measured.train, 20, 0, 10)
    task = fine_tuning.task_on(work)
    model = fine_tuning.fine_tuned(subject.encoder, work.measured.train.rows(chosen.rows), task, rate=rate, seed=0)
    with torch.no_grad():
        logits = model(subject.preprocessing(work.measured.test.images)).double().numpy()
    for top, suffix in ((1, ""), (5, "-top5")):
        expected = top_k_accuracy_score(labels.numpy(), logits, k=top)
        assert values[f"fine-tuned-20-percent{suffix}"] == pytest.approx(expected)
    for name in ("frozen", "fine-tuned", "from-scratch"):
        assert values[f"{name}-20-percent"] < values[f"{name}-20-percent-top5"] < 1
    assert fine_tuning.within(torch.zeros(3, 9), torch.tensor([0, 4, 5])).tolist() == [
        [True, False, False],
        [True, True, False],
    ]


NAMES = ("row", "column")


def _marked(measured: MeasuredSet) -> MeasuredSet:
    """Images that have a bright row, a bright column, both or neither; every eleventh is difficult."""

    def marked(part: Any) -> Any:
        generator = torch.Generator().manual_seed(len(part))
        marks = (torch.rand(len(part), 2, generator=generator) < 0.4).to(torch.int8)
        pixels = torch.randint(0, 180, part.images.shape, generator=generator, dtype=torch.uint8)
        pixels[marks[:, 0] == 1, :, 2] += 60
        pixels[marks[:, 1] == 1, :, :, 3] += 60
        marks[::11] = -1
        return replace(part, images=pixels, labels=torch.full((len(part),), -1), class_names=NAMES, marks=marks)

    return MeasuredSet("voc:marked", marked(measured.train), marked(measured.test))


def test_average_precisions_of_the_made_up_set_are_those_worked_out_by_hand(tmp_path: Path) -> None:
    wide: Any = SimpleNamespace(
        trained=None, in_channels=3, label="wide", preprocessing=Preprocessing(8, (0.0,) * 3, (1.0,) * 3)
    )
    voc = named_set(f"voc:{write_voc(tmp_path)}", wide, None)
    assert voc.test.images.shape == (10, 3, 8, 8)  # photographs of all sizes, at the encoder's
    scores = voc.test.images.float().mean(dim=(2, 3))[:, [0, 2]]  # red for cats, blue for dogs
    for interpolation, expected in (("area", AREA), ("11-point", ELEVEN_POINT)):
        found = average_precisions(scores, voc.test.marks, interpolation, voc.test.class_names)  # type: ignore[arg-type]
        assert found.tolist() == pytest.approx([expected["cat"], expected["dog"]], abs=1e-12)


def test_transfer_gives_the_mean_ap_of_scikit_learns_classifiers(make, measured):
    other = _marked(measured)
    measuring = make(others=(other,))
    found = {each.name: each for each in classification.measure_transfer(measuring).numbers}
    assert set(found) == {"voc-marked-map-11-point", "voc-marked-map-area"}
    l2 = float(found["voc-marked-map-area"].protocol.partition(", l2 ")[2].partition(" ")[0])
    x, test_x = (measuring.features(part).double().numpy() for part in (other.train, other.test))
    scaler = StandardScaler().fit(x)
    areas, points = [], []
    for label in range(2):
        marks, test_marks = (part.marks[:, label].numpy() for part in (other.train, other.test))  # type: ignore[index]
        known, counts = marks >= 0, test_marks >= 0
        model = LogisticRegression(C=1 / (known.sum() * l2), tol=1e-8, max_iter=5_000)
        model.fit(scaler.transform(x[known]), marks[known])
        scores = model.decision_function(scaler.transform(test_x[counts]))
        precision, recall, _ = precision_recall_curve(test_marks[counts], scores)
        best = np.maximum.accumulate(precision)  # recall falls along the arrays
        areas.append(float(np.sum((recall[:-1] - recall[1:]) * best[:-1])))
        points.append(float(np.mean([precision[recall >= tenth - 1e-12].max() for tenth in np.arange(11) / 10])))
    assert found["voc-marked-map-area"].value == pytest.approx(np.mean(areas), abs=1e-6)
    assert found["voc-marked-map-11-point"].value == pytest.approx(np.mean(points), abs=1e-6)
    assert 0.6 < found["voc-marked-map-area"].value < 0.999  # better than chance, and no trivial ranking


@pytest.mark.parametrize("as_other", [False, True])
def test_fine_tuning_gives_the_mean_ap_of_scikit_learn(make, measured, monkeypatch, as_other):
    monkeypatch.setattr(fine_tuning, "LEAST_STEPS", 10)
    marked = _marked(measured)
    few = replace(make().options, fine_tuning_epochs=2)
    measuring = make(others=(marked,), options=few) if as_other else make(options=few).elsewhere(marked)
    task_of_card = CardTask(measuring, ("fine-tuning", "few-labels"), None)
    refused = [getattr(task_of_card.known(group, "0"), "problem", "") for group in task_of_card.groups]
    assert refused == ["", "" if as_other else marked.label_problem]
    found = {each.name: each for each in fine_tuning.measure(measuring).numbers}
    prefix, here = ("voc-marked-" if as_other else ""), measuring.elsewhere(marked)
    rate = float(found[f"{prefix}fine-tuned-map-area"].protocol.partition("learning rate ")[2].partition(",")[0])
    task = fine_tuning.task_on(here)
    assert task.num_classes == 2
    areas = []
    for seed in measuring.seeds:
        model = fine_tuning.fine_tuned(measuring.subject.encoder, marked.train, task, rate=rate, seed=seed)
        scores = fine_tuning.predicted_logits(model, marked.test, task)
        areas.append(np.mean([_area(scores[:, label], marked.test.marks[:, label]) for label in range(2)]))  # type: ignore[index]
    assert found[f"{prefix}fine-tuned-map-area"].per_seed == pytest.approx(areas, abs=1e-6)
    assert {name for name in found if name.startswith(f"{prefix}f")} == {
        f"{prefix}{begin}-{key}" for begin in ("fine-tuned", "from-scratch") for key in ("map-11-point", "map-area")
    }
    assert np.mean(areas) > 0.6  # chance is 0.4


def _area(scores: torch.Tensor, marks: torch.Tensor) -> float:
    counts = marks >= 0
    precision, recall, _ = precision_recall_curve(marks[counts], scores[counts])
    best = np.maximum.accumulate(precision)  # recall falls along the arrays
    return float(np.sum((recall[:-1] - recall[1:]) * best[:-1]))


def test_single_labels_are_refused_in_a_sentence_and_a_class_without_images_is_named(make, measured):
    other = _marked(measured)
    assert (
        "its images may have several labels each, which only the groups transfer and fine-tuning of"
        in other.label_problem
    )
    empty = other.test.marks.clone()
    empty[:, 1] = empty[:, 1].clamp(max=0)
    lacking = replace(other, test=replace(other.test, marks=empty))
    with pytest.raises(DataError, match="an AP of column needs an image with it, got none of "):
        classification.measure_transfer(make(others=(lacking,)))

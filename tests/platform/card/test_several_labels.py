"""Transfer to images with several labels: mean AP by hand, against scikit-learn, and what is refused."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from made_up_voc import AREA, ELEVEN_POINT, write_voc
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import precision_recall_curve
from sklearn.preprocessing import StandardScaler

from ebclab.card.groups import classification, fine_tuning
from ebclab.card.images import MeasuredSet, named_set
from ebclab.card.measure import CardTask
from ebclab.data.preprocessing import Preprocessing
from ebclab.errors import DataError
from ebclab.evaluation.multi_label import average_precisions

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

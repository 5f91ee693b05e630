"""Scores during training against closed forms, slow loops and scikit-learn, and which of them may be chosen by."""

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args, get_type_hints

import numpy as np
import pytest
import torch
from made_up_card import made_up_images
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss, roc_auc_score
from sklearn.neighbors import KNeighborsClassifier
from sklearn.preprocessing import StandardScaler
from torch import nn

from ebclab.config import compose
from ebclab.config.sections import EvaluationConfig, ViewsConfig
from ebclab.data.holdout import held_out, label_list, limit
from ebclab.data.image_set import ImageSet
from ebclab.data.preprocessing import Preprocessing
from ebclab.data.views.pipeline import make_views
from ebclab.errors import ConfigError, DataError
from ebclab.evaluation.answers import table_of
from ebclab.evaluation.linear import few_labels_head
from ebclab.evaluation.measures.geometry import TEMPERATURES, VIEWS, geometry
from ebclab.evaluation.measures.out_of_distribution import altered_half
from ebclab.evaluation.monitor import MEASURES, NEIGHBOUR, HoldoutScores, Monitored, halves, holdout_scores
from ebclab.evaluation.objectives import (
    ANSWERED,
    LABELLED_MONITORS,
    MONITOR_OF,
    NEED_LABELS,
    NUMBERS,
    OBJECTIVES,
    SHARES,
    labels_problem,
)

PLAIN = Preprocessing(4, (0.0,), (1.0,))
HINTS = get_type_hints(EvaluationConfig)


@pytest.fixture
def monitored() -> Monitored:
    """Pixels of 150 and 90 made-up images as embeddings."""
    bank, holdout = made_up_images(150), made_up_images(90, seed=1)
    config = EvaluationConfig(knn_neighbours=5, linear_l2=1e-2)
    return Monitored(nn.Flatten(), bank, holdout, PLAIN, config, "cpu")


def _pixels(images: ImageSet) -> np.ndarray:
    return images.images.flatten(1).double().numpy() / 255


def test_settings_name_all_monitors_and_objectives_and_no_others() -> None:
    assert set(get_args(HINTS["objective"])) == set(OBJECTIVES)
    assert set(get_args(get_args(HINTS["monitor"])[0])) == set(MEASURES)
    assert set(ANSWERED) < set(NEED_LABELS) < set(OBJECTIVES)
    assert set(SHARES) < set(OBJECTIVES)
    assert set(LABELLED_MONITORS) < set(MEASURES)


def test_what_a_degenerate_encoder_wins_by_is_no_objective() -> None:
    traps = ("alignment", "log_k_saturation", "ess", "ece", "information", "information_share")
    assert {name for name, number in NUMBERS.items() if number.trap} == {f"holdout_{name}" for name in traps}
    with pytest.raises(
        ConfigError, match=r"evaluation.objective: no such choice, got 'holdout_nll'; .*minus_holdout_nll"
    ):
        compose("simclr", overrides=["evaluation.objective=holdout_nll"])
    with pytest.raises(ConfigError, match=r"evaluation.monitor: .*'calibraton'"):
        compose("simclr", overrides=["evaluation.monitor=[calibraton]"])


@pytest.mark.parametrize("name", MEASURES)
def test_a_monitor_gives_the_numbers_that_it_announces(monitored: Monitored, name: str) -> None:
    found = MEASURES[name](monitored)
    numbers = [number for number in NUMBERS.values() if number.monitor == name]
    assert list(found) == [number.name for number in numbers]
    assert all(math.isfinite(value) for value in found.values())
    assert all(0 <= found[number.name] <= 1 for number in numbers if number.is_share)


def test_calibration_is_that_of_scikit_learns_probabilities(monitored: Monitored) -> None:
    found = MEASURES["calibration"](monitored)
    scaler = StandardScaler().fit(_pixels(monitored.bank))
    model = LogisticRegression(C=1 / (150 * 1e-2), tol=1e-8, max_iter=2_000)
    model.fit(scaler.transform(_pixels(monitored.bank)), monitored.bank.labels.numpy())
    p, y = model.predict_proba(scaler.transform(_pixels(monitored.holdout))), monitored.holdout.labels.numpy()
    assert found["holdout_nll"] == pytest.approx(log_loss(y, p), rel=1e-3)
    assert found["holdout_brier"] == pytest.approx(((p - np.eye(3)[y]) ** 2).sum(axis=1).mean(), rel=1e-3)
    bins = np.minimum((p.max(axis=1) * 15).astype(int), 14)
    gaps = [
        abs((p.argmax(axis=1) == y)[bins == b].mean() - p.max(axis=1)[bins == b].mean()) * (bins == b).mean()
        for b in set(bins)
    ]
    assert found["holdout_ece"] == pytest.approx(sum(gaps), abs=2e-3)


def test_geometry_is_of_views_that_are_the_same_for_every_encoder(monitored: Monitored) -> None:
    few = monitored.holdout
    with torch.no_grad():
        views = make_views(few.images, few.keys, VIEWS, PLAIN, seed=0, epoch=0).double()
    measures = geometry(*views.flatten(2), torch.from_numpy(_pixels(few)))
    as_named = ("uniformity", "effective_rank", "info_nce", "log_k_saturation")
    expected = {f"holdout_{name}": getattr(measures, name) for name in as_named}
    expected |= {"holdout_alignment": measures.distances.mean().item(), "holdout_ess": measures.effective_sample_size}
    assert MEASURES["geometry"](monitored) == pytest.approx(expected, rel=1e-4)


def test_fgsm_and_pgd_of_a_linear_model_move_each_margin_by_the_norm_of_its_weights() -> None:
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(90, 170, (120, 1, 2, 2), generator=generator, dtype=torch.uint8)  # far from black and white
    noise = torch.randn(120, generator=generator) * 12
    labels = (images[:, 0, 0, 0].double() + noise > images[:, 0, 1, 1]).long()
    parts = [ImageSet("lines", images[r], labels[r], torch.arange(120)[r], (), (0.0,), (1.0,)) for r in
             (slice(0, 80), slice(80, 120))]  # fmt: skip
    monitored = Monitored(nn.Flatten(), *parts, Preprocessing(2, (0.0,), (1.0,)), EvaluationConfig(), "cpu")
    weights, biases = monitored.head.weights, monitored.head.biases
    x, y = torch.from_numpy(_pixels(parts[1])), parts[1].labels
    sign = 2 * y - 1
    margin = sign * (x @ (weights[:, 1] - weights[:, 0]) + biases[1] - biases[0])
    expected = float((margin > 8 / 255 * (weights[:, 1] - weights[:, 0]).abs().sum()).double().mean())
    assert 0.2 < expected < float((margin > 0).double().mean())  # the attack does something, and not everything
    assert MEASURES["robustness"](monitored) == {"holdout_fgsm": expected, "holdout_pgd": expected}


def test_outside_images_are_told_by_the_distance_to_the_fiftieth_neighbour(monitored: Monitored) -> None:
    inside, outside = altered_half(monitored.holdout, "inverted", halves(monitored.holdout.keys))
    bank = _pixels(monitored.bank)
    bank /= np.linalg.norm(bank, axis=1, keepdims=True)
    distances = []
    for part in (inside, outside):
        z = _pixels(part)
        z /= np.linalg.norm(z, axis=1, keepdims=True)
        distances.append(np.sort(np.linalg.norm(z[:, None] - bank[None], axis=2), axis=1)[:, NEIGHBOUR - 1])
    expected = roc_auc_score([0] * len(inside) + [1] * len(outside), np.concatenate(distances))
    found = MEASURES["out-of-distribution"](monitored)["holdout_auroc_inverted"]
    assert found == pytest.approx(expected, abs=1e-3)
    few = replace(monitored, bank=monitored.bank.rows(torch.arange(49)))
    with pytest.raises(DataError, match="out-of-distribution needs 50 images that are trained on, got 49"):
        MEASURES["out-of-distribution"](few)


def test_held_out_images_are_halved_by_another_hash_than_the_one_that_held_them_out() -> None:
    keys = torch.arange(20_000)
    held = keys[held_out(keys, 0.1)]
    assert held_out(held, 0.5).all()  # what would leave no image on the other side
    assert halves(held).double().mean() == pytest.approx(0.5, abs=0.05)


def test_few_labels_are_a_tenth_of_the_bank_with_the_penalty_cross_validated(monitored: Monitored) -> None:
    bank, holdout = made_up_images(150, noise=200), made_up_images(90, seed=1, noise=200)
    listed = label_list(bank, 10, 0, 3)
    x, held = (torch.from_numpy(_pixels(part)).float() for part in (bank, holdout))
    y = bank.labels[listed.rows]
    assert len(y) == 15
    head = few_labels_head(x[listed.rows], y, listed, usual_l2=1e-2)
    expected = float((head.logits(held.double()).argmax(dim=1) == holdout.labels).double().mean())
    found = MEASURES["few-labels"](replace(monitored, bank=bank, holdout=holdout))
    assert found == {"holdout_few_labels": pytest.approx(expected, abs=1 / 90)}


def _scores(monitored: Monitored, objective: str, *monitors: str) -> HoldoutScores:
    config = replace(monitored.config, objective=objective)  # type: ignore[arg-type]
    parts = (monitored.bank, monitored.holdout)
    return holdout_scores(monitored.encoder, *parts, PLAIN, config, CROPS, device="cpu", monitors=monitors)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_every_objective_is_measured_and_larger_when_better(monitored: Monitored, objective: str) -> None:
    scores = _scores(monitored, objective)
    assert objective in scores.by_name
    assert (scores.answers is not None) == (objective in ANSWERED)
    name = objective.removeprefix("minus_")
    if name != objective:
        assert NUMBERS[name].better == "lower"
        assert scores.by_name[objective] == -scores.by_name[name]


def test_information_is_of_what_the_loss_compares_in_the_views_trained_on(monitored: Monitored) -> None:
    weight = torch.randn(16, 5, generator=torch.Generator().manual_seed(0))
    still = replace(monitored, views=ViewsConfig(recipe="none"), project=lambda x: x.flatten(1) @ weight)
    found = MEASURES["information"](still)
    z = torch.from_numpy(_pixels(monitored.holdout)) @ weight.double()
    unit = (z / z.norm(dim=1, keepdim=True)).numpy()
    estimates = [
        np.log(90) + np.mean([row[i] - np.log(np.exp(row).sum()) for i, row in enumerate(unit @ unit.T / tau)])
        for tau in TEMPERATURES
    ]
    assert found["holdout_information"] == pytest.approx(max(estimates), rel=1e-4)
    assert found["holdout_information_share"] == pytest.approx(max(estimates) / math.log(90), rel=1e-4)
    cropped = replace(still, views=ViewsConfig(crop_scale_min=0.1))
    assert MEASURES["information"](cropped)["holdout_information"] < found["holdout_information"]


def test_monitors_add_their_numbers_and_say_what_they_took(monitored: Monitored) -> None:
    scores = _scores(monitored, "holdout_knn", "geometry", "calibration")
    plain = _scores(monitored, "holdout_knn")
    assert scores.by_name.items() >= plain.by_name.items()
    assert scores.by_name.keys() - plain.by_name.keys() == {
        number.name for number in NUMBERS.values() if number.monitor in ("geometry", "calibration")
    }
    assert scores.seconds.keys() == {"geometry", "calibration"}
    assert not plain.seconds


def test_what_images_without_labels_cannot_have_is_refused() -> None:
    assert not labels_problem(EvaluationConfig(), 7)
    assert not labels_problem(EvaluationConfig(monitor=("calibration",)), 0)
    wants = EvaluationConfig(monitor=("geometry", "calibration", "robustness"))
    assert labels_problem(wants, 1_234).startswith(
        "evaluation.monitor: calibration, robustness needs labels of two classes, got 1,234"
    )
    silent = EvaluationConfig(monitor=("geometry",))
    assert "evaluation.objective: holdout_knn needs labels" in labels_problem(silent, 7)
    assert not labels_problem(replace(silent, objective="holdout_effective_rank"), 7)


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        (["evaluation.knn_every=0"], "evaluation.monitor: nothing is scored with knn_every=0, got geometry"),
        (
            ["evaluation.knn_every=2", "evaluation.monitor_every=3"],
            "evaluation.monitor_every: .* got 3; take a multiple",
        ),
        (["data.holdout_rate=0"], "evaluation.monitor: monitors look at held-out images, got geometry"),
    ],
)
def test_monitors_that_would_never_be_measured_are_refused(settings: list[str], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        compose("simclr", overrides=["evaluation.monitor=[geometry]", *settings])


def test_the_page_names_every_monitor_its_numbers_and_what_may_be_chosen_by() -> None:
    page = (Path(__file__).parents[3] / "docs" / "evaluation.md").read_text(encoding="utf-8")
    section = page.partition("\n## During training\n")[2].partition("\n## ")[0]
    told = set(re.findall(r"`([a-z_-]+)`", section))
    assert told >= {*MEASURES, *NUMBERS, *(each.objective for each in NUMBERS.values() if each.objective)}


CROPS = ViewsConfig(recipe="none", crop_scale_min=0.5)


def _of_digits(
    parts: Sequence[ImageSet],
    objective: str,
    encoder: nn.Module | None = None,
    views: ViewsConfig = CROPS,
    monitors: tuple[str, ...] = (),
    **settings: Any,
) -> HoldoutScores:
    config = EvaluationConfig(**{"knn_neighbours": 1, "objective": objective, **settings})
    seen, encoder = Preprocessing(8, (0.0,), (1.0,)), encoder or nn.Flatten()
    return holdout_scores(encoder, *parts, seen, config, views, device="cpu", monitors=monitors)


@pytest.mark.parametrize("bank_limit", [0, 300, 5000])
def test_the_usual_score_is_knn_of_held_out_images_against_the_bank(digits, bank_limit):
    bank, holdout = limit(digits[0], bank_limit), digits[1]
    assert len(bank) == (300 if bank_limit == 300 else 1400)
    model = KNeighborsClassifier(1, metric="cosine").fit(bank.images.flatten(1).double().numpy(), bank.labels.numpy())
    expected = model.predict(holdout.images.flatten(1).double().numpy()) == holdout.labels.numpy()
    measured = _of_digits(digits, "holdout_knn", knn_bank_limit=bank_limit)
    found = table_of([measured.answers])[0]
    assert found.mean() == pytest.approx(measured.by_name["holdout_knn"], abs=1e-12)
    assert np.abs(found - expected).sum() <= 2  # two bank images may be equally near but for rounding


def test_the_encoder_goes_on_training(digits: tuple[ImageSet, ImageSet]) -> None:
    net = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Flatten()).train()
    before = {name: value.clone() for name, value in net.state_dict().items()}
    for objective in {MONITOR_OF.get(name, name): name for name in OBJECTIVES}.values():  # one of each monitor
        _of_digits(digits, objective, net, knn_bank_limit=200)
    assert all(torch.equal(value, net.state_dict()[name]) for name, value in before.items())
    assert net.training


def test_what_cannot_be_scored_is_one_sentence(digits: tuple[ImageSet, ImageSet]) -> None:
    train, holdout = digits
    unlabelled = replace(train, labels=torch.full_like(train.labels, -1))
    with pytest.raises(DataError, match=r"digits: .* label for every image, got 1,400 of 1,400 without"):
        _of_digits((unlabelled, holdout), "holdout_knn")
    with pytest.raises(DataError, match="at most the 5 available training images, got 20"):
        _of_digits(digits, "holdout_knn", knn_neighbours=20, knn_bank_limit=5)
    # the training part has all classes; the few of its images that are compared with have not
    sentence = (
        "monitor calibration, which looks at 8 images that are trained on, at most evaluation.knn_bank_limit, and 397 "
        "held out: labels: a classifier needs an image of every class"
    )
    with pytest.raises(DataError, match=sentence):
        _of_digits(digits, "holdout_knn", monitors=("calibration",), knn_bank_limit=8)


def test_the_linear_objective_is_scikit_learns_logistic_regression(digits: tuple[ImageSet, ImageSet]) -> None:
    train, holdout = digits
    scores = _of_digits(digits, "holdout_linear", linear_l2=1e-2, knn_bank_limit=0).by_name
    x, held = (part.images.flatten(1).double().numpy() for part in (train, holdout))
    scaler = StandardScaler().fit(x)
    model = LogisticRegression(C=1 / (1400 * 1e-2), tol=1e-6, max_iter=1000)
    expected = model.fit(scaler.transform(x), train.labels.numpy()).score(scaler.transform(held), holdout.labels)
    assert scores["holdout_linear"] == pytest.approx(expected, abs=1 / 397)
    assert set(scores) == {"holdout_knn", "holdout_linear"}


def test_the_effective_rank_is_that_of_the_held_out_embeddings_and_needs_no_labels(digits):
    unlabelled = [replace(part, labels=torch.full_like(part.labels, -1)) for part in digits]
    scores = _of_digits(unlabelled, "effective_rank").by_name
    sigma = np.linalg.svd(unlabelled[1].images.flatten(1).double().numpy() / 255, compute_uv=False)
    share = sigma[sigma > 1e-9] / sigma.sum()
    assert scores == {"effective_rank": pytest.approx(np.exp(-(share * np.log(share)).sum()), rel=1e-4)}


class Constant(nn.Module):
    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return torch.ones(len(images), 4)


def test_alignment_and_uniformity_are_better_where_views_agree_and_images_do_not(digits):
    def measure(encoder: nn.Module, views: ViewsConfig) -> float:
        return _of_digits(digits, "alignment_uniformity", encoder, views).by_name["alignment_uniformity"]

    assert measure(Constant(), CROPS) == pytest.approx(0.0, abs=1e-5)  # all agree: both terms vanish
    unit = torch.nn.functional.normalize(digits[1].images.flatten(1).double(), dim=1)
    distances = torch.cdist(unit, unit).square()[~torch.eye(397, dtype=torch.bool)]
    expected = -float(torch.exp(-2 * distances).mean().log())  # views that do not move leave uniformity alone
    assert measure(nn.Flatten(), ViewsConfig(recipe="none")) == pytest.approx(expected, rel=1e-4)
    assert measure(nn.Flatten(), CROPS) < expected
    assert measure(nn.Flatten(), CROPS) == measure(nn.Flatten(), CROPS)


class Counted(nn.Flatten):
    """Pixels as embeddings; remembers how many views each pass has."""

    def __init__(self) -> None:
        super().__init__()
        self.passes: list[int] = []

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        self.passes.append(len(images))
        return super().forward(images)


def test_a_pass_has_two_views_of_a_batch_of_images_at_most(digits: tuple[ImageSet, ImageSet]) -> None:
    encoder = Counted()
    in_batches = _of_digits(digits, "alignment_uniformity", encoder, batch_size=50).by_name["alignment_uniformity"]
    assert max(encoder.passes) == 2 * 50
    at_once = _of_digits(digits, "alignment_uniformity", batch_size=512).by_name["alignment_uniformity"]
    assert in_batches == pytest.approx(at_once, abs=1e-6)
    with pytest.raises(
        DataError, match=r"evaluation\.objective: alignment_uniformity compares images, got 1 held-out image"
    ):
        _of_digits((digits[0], digits[1].rows(torch.tensor([0]))), "alignment_uniformity")

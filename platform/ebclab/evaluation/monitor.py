"""Scores of an encoder during training, on held-out training images and never on the test set.

Shapes: n images of the bank, m held-out images, D features, K classes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property

import torch
from torch import Tensor, nn
from torch.nn import functional

from ebclab.config.sections import EvaluationConfig, ViewsConfig
from ebclab.data.class_labels import num_unlabelled
from ebclab.data.hashing import hash_words, unit_interval
from ebclab.data.holdout import LabelList, label_list, limit
from ebclab.data.image_set import ImageSet
from ebclab.data.preprocessing import Preprocessing
from ebclab.errors import DataError
from ebclab.evaluation.answers import Answers, Score
from ebclab.evaluation.evaluate import PROBES
from ebclab.evaluation.features import Encoder, compute_features, require_labels
from ebclab.evaluation.linear import FeatureSplit, LinearHead, few_labels_head, fit_head, require_every_class
from ebclab.evaluation.measures.attacks import PixelClassifier, attackable_pixels, fgsm, pgd, random_start
from ebclab.evaluation.measures.calibration import (
    bin_table,
    brier_contributions,
    calibration_error,
    equal_width,
    nll_contributions,
)
from ebclab.evaluation.measures.geometry import MOST_IMAGES, MOST_IN_POOL, geometry, two_views, view_information
from ebclab.evaluation.measures.out_of_distribution import Alteration, altered_half, auroc
from ebclab.evaluation.objectives import ANSWERED, MONITOR_OF, NEED_LABELS
from ebclab.evaluation.progress import silent
from energy_contrast.diagnostics import alignment, effective_rank, uniformity

NEIGHBOUR = 50
"""k of the nearest-neighbour distance that is the out-of-distribution score (Sun et al., 2022)."""

_HALVES_SALT = 0x68616C766573
_BINS = 15
_PERCENT = 10  # of the labels
_EPS = 8 / 255
_STEPS = 20  # of PGD, a quarter of eps each
_ATTACKED = 200  # images


@dataclass(frozen=True)
class HoldoutScores:
    """Scores of an encoder on held-out images."""

    by_name: dict[str, float]  # the objective, the kNN accuracy if there are labels, and the metrics of monitors
    answers: Answers | None  # of the objective's probe; None if the objective is not computed from answers
    seconds: dict[str, float] = field(default_factory=dict)  # additional time of each monitor


def holdout_scores(
    encoder: Encoder,
    train: ImageSet,
    holdout: ImageSet,
    preprocessing: Preprocessing,
    config: EvaluationConfig,
    views: ViewsConfig,
    *,
    device: torch.device | str,
    monitors: Sequence[str] = (),
    project: Encoder | None = None,
) -> HoldoutScores:
    """Return the scores of an encoder on held-out images.

    ``holdout_knn`` and ``holdout_linear`` are accuracies in [0, 1] on held-out images of probes fitted on (a subset of)
    the training images. With a limited bank they are lower than with all training images, but comparable: all
    epochs and trials use the same bank. ``effective_rank`` is that of the held-out embeddings, as in
    RankMe (arXiv:2210.02885). ``alignment_uniformity`` is the negative sum of both (arXiv:2005.10242) for two
    fixed views of at most 2,048 held-out images, so that higher is better. The metrics of monitors, and the objectives
    derived from them, are defined in ``objectives.py``.
    """
    bank = limit(train, config.knn_bank_limit)
    monitored = Monitored(encoder, bank, holdout, preprocessing, config, device, views, project)
    labelled = monitored.is_labelled
    if config.objective in NEED_LABELS or labelled:
        for images in (bank, holdout):
            require_labels(images)

    held = monitored.held  # (m, D)
    probed = {"holdout_knn": monitored.score("knn")} if labelled else {}
    if config.objective == "holdout_linear":
        probed["holdout_linear"] = monitored.score("linear")
    scores = {name: score.value for name, score in probed.items()}
    if config.objective == "effective_rank":
        scores["effective_rank"] = float(effective_rank(held))
    elif config.objective == "alignment_uniformity":
        first, second = _two_views(monitored, "evaluation.objective: alignment_uniformity", MOST_IMAGES, encoder, views)
        spread = (uniformity(first) + uniformity(second)) / 2
        scores["alignment_uniformity"] = -float(alignment(first, second) + spread)
    seconds = {}
    for name in _with_objective(monitors, config.objective):
        began = time.monotonic()
        with _said_of(name, bank, holdout):
            scores |= MEASURES[name](monitored)
        seconds[name] = time.monotonic() - began
    if config.objective not in scores:
        scores[config.objective] = -scores[config.objective.removeprefix("minus_")]
    answers = probed[config.objective].answers if config.objective in probed else None
    return HoldoutScores(scores, answers, seconds)


def require_images(train: ImageSet, holdout: ImageSet, config: EvaluationConfig) -> None:
    """Refuse monitors of a run before it trains whose images are too few, or lack a class."""
    bank = limit(train, config.knn_bank_limit)
    for name in _with_objective(config.monitor, config.objective):
        if name in _NEEDS:
            with _said_of(name, bank, holdout):
                _NEEDS[name](bank, holdout)


def _with_objective(monitors: Sequence[str], objective: str) -> list[str]:
    """Return the monitors with the one that measures the objective, if one does."""
    own = [] if objective in ANSWERED else [MONITOR_OF.get(objective, "")]
    return [name for name in dict.fromkeys((*monitors, *own)) if name]


@contextmanager
def _said_of(name: str, bank: ImageSet, holdout: ImageSet) -> Iterator[None]:
    """Name the monitor and its images in a problem with them."""
    try:
        yield
    except DataError as error:
        sizes = f"{len(bank):,} images that are trained on, at most evaluation.knn_bank_limit, and {len(holdout):,}"
        raise DataError(f"monitor {name}, which looks at {sizes} held out: {error}") from error


@dataclass(frozen=True)
class Monitored:
    """An encoder with held-out images and a bank; features and classifiers are computed once, when first used."""

    encoder: Encoder  # maps preprocessed images to embeddings; must be on ``device``
    bank: ImageSet  # training images, at most ``evaluation.knn_bank_limit``
    holdout: ImageSet
    preprocessing: Preprocessing
    config: EvaluationConfig
    device: torch.device | str
    views: ViewsConfig = field(default_factory=ViewsConfig)  # that are trained on
    project: Encoder | None = None  # maps preprocessed images to what the loss compares; None means the embeddings

    @property
    def is_labelled(self) -> bool:
        return not (num_unlabelled(self.bank.labels) or bool((self.holdout.labels < 0).any()))

    @property
    def num_classes(self) -> int:
        """K: the largest label of both sets, plus 1."""
        return _num_classes(self.bank, self.holdout)

    @cached_property
    def held(self) -> Tensor:
        """(m, D) features of the held-out images."""
        return self.embed(self.holdout)

    @cached_property
    def known(self) -> Tensor:
        """(n, D) features of the bank."""
        return self.embed(self.bank)

    @cached_property
    def _split(self) -> FeatureSplit:
        known, held = self.known, self.held
        labels = [part.labels.to(known.device) for part in (self.bank, self.holdout)]
        return FeatureSplit(known, labels[0], held, labels[1], self.holdout.keys, self.num_classes)

    def score(self, probe: str) -> Score:
        """Return the score of a probe on the held-out images, by seed 0."""
        return PROBES[probe](self._split, replace(self.config, linear_seeds=1), 0, silent)

    @cached_property
    def head(self) -> LinearHead:
        return fit_head(self.known.cpu(), self.bank.labels, self.num_classes, self.config.linear_l2)

    def embed(self, images: ImageSet) -> Tensor:
        """Return embeddings (n, D) of images, on ``device``."""
        return compute_features(
            self.encoder, images.images, self.preprocessing, batch_size=self.config.batch_size, device=self.device
        ).to(self.device)


def _num_classes(bank: ImageSet, holdout: ImageSet) -> int:
    return int(max(bank.labels.max(), holdout.labels.max())) + 1


def _require_every_class(bank: ImageSet, holdout: ImageSet) -> None:
    require_every_class(bank.labels, _num_classes(bank, holdout))


def _known_labels(bank: ImageSet, holdout: ImageSet) -> LabelList:
    """Return the images of the bank whose labels are known to few-labels."""
    return label_list(bank, _PERCENT, 0, _num_classes(bank, holdout))


def _geometry(monitored: Monitored) -> dict[str, float]:
    views = _two_views(monitored, "evaluation.monitor: geometry", MOST_IMAGES, _module(monitored))
    measures = geometry(*views, monitored.held.cpu())
    return {
        "holdout_alignment": float(measures.distances.mean()),
        "holdout_uniformity": measures.uniformity,
        "holdout_effective_rank": measures.effective_rank,
        "holdout_info_nce": measures.info_nce,
        "holdout_log_k_saturation": measures.log_k_saturation,
        "holdout_ess": measures.effective_sample_size,
    }


def _information(monitored: Monitored) -> dict[str, float]:
    encoder = monitored.project or monitored.encoder
    views = _two_views(monitored, "evaluation.monitor: information", MOST_IN_POOL, encoder, monitored.views)
    estimate = view_information(*views, monitored.device)
    return {"holdout_information": estimate.nats, "holdout_information_share": estimate.nats / estimate.bound}


def _two_views(
    monitored: Monitored, where: str, most: int, encoder: Encoder, recipe: ViewsConfig | None = None
) -> tuple[Tensor, Tensor]:
    few = limit(monitored.holdout, most)
    if len(few) < 2:
        raise DataError(f"{where} compares images, got {len(few)} held-out image(s); hold more out")
    return two_views(
        encoder,
        few,
        monitored.preprocessing,
        batch_size=monitored.config.batch_size,
        device=monitored.device,
        recipe=recipe,
    )


def _calibration(monitored: Monitored) -> dict[str, float]:
    labels = monitored.holdout.labels
    logits = monitored.head.logits(monitored.held.cpu().double())  # (m, K)
    probabilities = logits.softmax(dim=1)
    table = bin_table(probabilities.amax(dim=1), logits.argmax(dim=1) == labels, equal_width(_BINS))
    return {
        "holdout_nll": float(nll_contributions(logits, labels).mean()),
        "holdout_brier": float(brier_contributions(probabilities, labels).mean()),
        "holdout_ece": calibration_error(table),
    }


def _few_labels(monitored: Monitored) -> dict[str, float]:
    bank = monitored.bank
    labels = _known_labels(bank, monitored.holdout)
    x, y = monitored.known.cpu()[labels.rows], bank.labels[labels.rows]
    head = few_labels_head(x, y, labels, usual_l2=monitored.config.linear_l2)
    right = head.logits(monitored.held.cpu().double()).argmax(dim=1) == monitored.holdout.labels
    return {"holdout_few_labels": float(right.double().mean())}


def _altered(bank: ImageSet, holdout: ImageSet) -> Tensor:
    """Return which held-out images out-of-distribution alters, (m,) bool; refuse too few images."""
    if len(bank) < NEIGHBOUR:
        raise DataError(
            f"evaluation.monitor: out-of-distribution needs {NEIGHBOUR} images that are trained on, got "
            f"{len(bank)}; leave it out"
        )

    is_altered = halves(holdout.keys)
    if bool(is_altered.all() or not is_altered.any()):
        raise DataError(
            "evaluation.monitor: out-of-distribution compares two halves of the held-out images, got "
            f"{int(is_altered.sum())} of {len(is_altered)} in one of them; hold more out"
        )
    return is_altered


def _out_of_distribution(monitored: Monitored) -> dict[str, float]:
    is_altered = _altered(monitored.bank, monitored.holdout)

    def score(alteration: Alteration) -> float:
        inside, outside = altered_half(monitored.holdout, alteration, is_altered)
        return auroc(*(neighbour_distance(monitored.known, monitored.embed(part)) for part in (inside, outside))).value

    return {"holdout_auroc_rotated": score("rotated"), "holdout_auroc_inverted": score("inverted")}


def halves(keys: Tensor) -> Tensor:
    """Return which held-out images are altered, (n,) bool, by a hash independent of that of the held-out split."""
    return unit_interval(hash_words(_HALVES_SALT, keys)) < 0.5


def neighbour_distance(bank: Tensor, queries: Tensor) -> Tensor:
    """Return ``|z/|z| - z_(k)|``, (m,): distance to the k-th nearest neighbour in the bank, unit features, k = 50.

    Sun et al. (2022), equation 3.
    """
    known, unit = functional.normalize(bank, dim=1), functional.normalize(queries, dim=1)
    blocks = torch.split(unit, 4_096)  # a block of scores (4096, n) at a time
    cosines = torch.cat([(block @ known.T).topk(NEIGHBOUR, dim=1).values[:, -1] for block in blocks])
    return (2 - 2 * cosines).clamp_min(0).sqrt()


def _robustness(monitored: Monitored) -> dict[str, float]:
    few = limit(monitored.holdout, _ATTACKED)
    model = PixelClassifier(_module(monitored), monitored.preprocessing, monitored.head).to(monitored.device)
    right: dict[str, list[Tensor]] = {"holdout_fgsm": [], "holdout_pgd": []}
    size = monitored.config.batch_size
    parts = (torch.split(each, size) for each in (few.images, few.labels, few.keys))
    for images, labels, keys in zip(*parts, strict=True):
        x = attackable_pixels(images, monitored.preprocessing).to(monitored.device)
        y = labels.to(monitored.device)
        start = random_start(x, keys, eps=_EPS, seed=0)
        moved = {
            "holdout_fgsm": fgsm(model, x, y, _EPS),
            "holdout_pgd": pgd(model, x, y, eps=_EPS, step=_EPS / 4, steps=_STEPS, start=start),
        }
        with torch.no_grad():
            stays = (model(x).argmax(dim=1) == y).cpu()
            for name, pixels in moved.items():
                right[name].append(stays & (model(pixels).argmax(dim=1) == y).cpu())
    return {name: float(torch.cat(rows).double().mean()) for name, rows in right.items()}


def _module(monitored: Monitored) -> nn.Module:
    if not isinstance(monitored.encoder, nn.Module):
        raise TypeError(f"an encoder that is not a module has no views and no gradients, got {type(monitored.encoder)}")
    return monitored.encoder


_NEEDS: dict[str, Callable[[ImageSet, ImageSet], object]] = {
    "calibration": _require_every_class,
    "few-labels": _known_labels,
    "out-of-distribution": _altered,
    "robustness": _require_every_class,
}
"""Refusals of bank and held-out images, by monitor."""

MEASURES: dict[str, Callable[[Monitored], dict[str, float]]] = {
    "classification": lambda monitored: {"holdout_linear": monitored.score("linear").value},
    "geometry": _geometry,
    "information": _information,
    "calibration": _calibration,
    "few-labels": _few_labels,
    "out-of-distribution": _out_of_distribution,
    "robustness": _robustness,
}
"""The function that measures each monitor, by name."""

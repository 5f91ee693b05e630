"""Functions that measure the monitors, by name."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from ebclab.data.hashing import hash_words, unit_interval
from ebclab.data.holdout import limit
from ebclab.data.label_lists import label_list
from ebclab.errors import DataError
from ebclab.evaluation.adaptation.few_labels import few_labels_head
from ebclab.evaluation.measures.altered import Alteration, altered_half
from ebclab.evaluation.measures.attacks import fgsm, pgd, random_start
from ebclab.evaluation.measures.calibration import (
    bin_table,
    brier_contributions,
    calibration_error,
    equal_width,
    nll_contributions,
)
from ebclab.evaluation.measures.geometry import MOST_IMAGES, geometry, two_views
from ebclab.evaluation.measures.information import MOST_IN_POOL, view_information
from ebclab.evaluation.measures.rankings import auroc
from ebclab.evaluation.monitors.monitored import Monitored
from ebclab.evaluation.pixel_classifier import PixelClassifier, attackable_pixels
from ebclab.evaluation.protocols import LBFGS

NEIGHBOUR = 50
"""k of the nearest-neighbour distance that is the out-of-distribution score (Sun et al., 2022)."""

_HALVES_SALT = 0x68616C766573
_BINS = 15
_PERCENT = 10  # of the labels
_EPS = 8 / 255
_STEPS = 20  # of PGD, a quarter of eps each
_ATTACKED = 200  # images


def _classification(monitored: Monitored) -> dict[str, float]:
    return {"holdout_linear": monitored.score("linear").value}


def _geometry(monitored: Monitored) -> dict[str, float]:
    few = limit(monitored.holdout, MOST_IMAGES)
    if len(few) < 2:
        raise DataError(
            f"evaluation.monitor: geometry compares images, got {len(few)} held-out image(s); hold more out"
        )
    views = two_views(
        _module(monitored),
        few,
        monitored.preprocessing,
        batch_size=monitored.config.batch_size,
        device=monitored.device,
    )
    found = geometry(*views, monitored.held.cpu())
    return {
        "holdout_alignment": float(found.distances.mean()),
        "holdout_uniformity": found.uniformity,
        "holdout_effective_rank": found.effective_rank,
        "holdout_info_nce": found.info_nce,
        "holdout_log_k_saturation": found.log_k_saturation,
        "holdout_ess": found.effective_sample_size,
    }


def _information(monitored: Monitored) -> dict[str, float]:
    few = limit(monitored.holdout, MOST_IN_POOL)
    if len(few) < 2:
        raise DataError(
            f"evaluation.monitor: information compares images, got {len(few)} held-out image(s); hold more out"
        )
    views = two_views(
        monitored.project or monitored.encoder,
        few,
        monitored.preprocessing,
        batch_size=monitored.config.batch_size,
        device=monitored.device,
        recipe=monitored.views,
    )
    found = view_information(*views, monitored.device)
    return {"holdout_information": found.nats, "holdout_information_share": found.nats / found.bound}


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
    labels = label_list(bank, _PERCENT, 0, monitored.num_classes)
    x, y = monitored.known.cpu()[labels.rows], bank.labels[labels.rows]
    head = few_labels_head(LBFGS, x, y, labels, usual_l2=monitored.config.linear_l2).head
    right = head.logits(monitored.held.cpu().double()).argmax(dim=1) == monitored.holdout.labels
    return {"holdout_few_labels": float(right.double().mean())}


def _out_of_distribution(monitored: Monitored) -> dict[str, float]:
    if len(monitored.bank) < NEIGHBOUR:
        raise DataError(
            f"evaluation.monitor: out-of-distribution needs {NEIGHBOUR} images that are trained on, got "
            f"{len(monitored.bank)}; leave it out"
        )

    is_altered = halves(monitored.holdout.keys)
    if bool(is_altered.all() or not is_altered.any()):
        raise DataError(
            "evaluation.monitor: out-of-distribution tells two halves of the held-out images apart, got "
            f"{int(is_altered.sum())} of {len(is_altered)} in one of them; hold more out"
        )

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
    known, asked = functional.normalize(bank, dim=1), functional.normalize(queries, dim=1)
    blocks = torch.split(asked, 4_096)  # a block of scores (4096, n) at a time
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
        raise TypeError(f"an encoder that is no module has no views and no gradients, got {type(monitored.encoder)}")
    return monitored.encoder


MEASURES: dict[str, Callable[[Monitored], dict[str, float]]] = {
    "classification": _classification,
    "geometry": _geometry,
    "information": _information,
    "calibration": _calibration,
    "few-labels": _few_labels,
    "out-of-distribution": _out_of_distribution,
    "robustness": _robustness,
}
"""The function that measures each monitor of ``numbers.MONITORS``, by name."""

"""Out-of-distribution detection: by detectors on features, and by the method's own energy."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import NamedTuple

import plotly.graph_objects as go
import torch
from torch import Tensor

from ebclab.card.card import Findings, Number, mean_over_images, two_samples
from ebclab.card.images import OutsideSet, slug, unique_names
from ebclab.card.measuring import LABELS, OUTSIDE, OWN_CLASSIFIER, Group, Measuring
from ebclab.data.image_set import ImageSet
from ebclab.data.sources.location import short_name
from ebclab.document.document import Plot, Table
from ebclab.evaluation.measures.out_of_distribution import (
    FEWEST,
    OVERLAPPING,
    RECALL,
    Auroc,
    Detector,
    auroc,
    auroc_interval,
    false_positive_rate,
    fit_detectors,
    precision_recall_area,
    variances,
)
from ebclab.export.energies import Energies
from ebclab.interval import POINTS
from ebclab.reports.comparable import as_text
from ebclab.reports.plots import BLUE, BROWN, GREEN, GREY, ORANGE, PURPLE, RED, plot

_PROTOCOL = (
    f"interval of about 95 % by DeLong's variance on the logit; Wilson's where fewer than {OVERLAPPING} images of a "
    f"kind overlap the other, none with fewer than {FEWEST} images of a kind"
)
_ENERGY, _OWN, _SLOPE = "energy", "own-energy", "own-energy-slope"
_OWN_PROBABILITY = "own-max-probability"
_FEWEST_BINS, _MOST_BINS = 10, 60
_COLOURS = (ORANGE, RED, PURPLE, GREEN, BROWN, GREY)


class _Ranking(NamedTuple):
    """Results of one detector on one out-of-distribution set."""

    detector: Detector
    auroc: Number  # without an interval if there are few images, without contributions if they do not vary
    fpr: Number  # at 95 % recall
    auprs: tuple[float, float]  # with outside, and with inside, as the positive class


def measure(measuring: Measuring) -> Findings:
    """Return the metrics of all detectors on each out-of-distribution set, and histograms of energies."""
    head = measuring.classifier  # raises DataError if the set is too small
    fitted, remarks = fit_detectors(measuring.part_features[0], measuring.measured.parts[0].labels, head)
    detectors = (*_plain(measuring, fitted), *_own(measuring), *_own_probability(measuring))
    sets = measuring.outside
    ranked = [
        (outside, [_ranking(detector, name, outside) for detector in detectors])
        for name, outside in zip(set_names(sets), sets, strict=True)
    ]
    numbers = [number for _, rankings in ranked for each in rankings for number in (each.auroc, each.fpr)]
    tables = [_overview(ranked)] if len(sets) > 1 else []
    tables += [_of_one_set(rankings, outside) for outside, rankings in ranked]
    plots = [_histogram(each, measuring) for each in detectors if each.name in (_ENERGY, _OWN)]
    has_own = any(each.name == _OWN for each in detectors)
    compared = [_own_against_plain(rankings, outside) for outside, rankings in ranked if has_own]
    return Findings(tuple(numbers), tuple(tables), tuple(plots), remarks=(*remarks, *compared, *measuring.code_not_run))


def _plain(measuring: Measuring, fitted: Sequence[Detector]) -> list[Detector]:
    """Return the detectors on features and logits; scores of an image set, which several sets may share, are kept."""
    head, count = measuring.classifier, len(measuring.measured.parts[0])
    words = (
        f"features and logits of the linear classifier, {measuring.classifier_in_words}, fitted like the "
        f"detector on {count:,} training images"
    )

    def scores_by(score: Callable[[Tensor, Tensor], Tensor]) -> Callable[[ImageSet], Tensor]:
        def scores(images: ImageSet) -> Tensor:
            features = measuring.features(images)
            return score(features, head.logits(features.double()))

        return cache(scores)

    return [replace(each, protocol=f"{each.protocol}; {words}", score=scores_by(each.score)) for each in fitted]


def _own(measuring: Measuring) -> list[Detector]:
    """Return detectors by the energy of the encoder's own method and by its gradient norm; empty if it has none."""
    own = measuring.energies
    if own is None:
        return []
    energies = _energies(measuring, own)
    words = (
        "the whole method at the same checkpoint, batch norm in eval mode, images without augmentation or noise, "
        f"references: {own.source or 'none'}"
    )
    return [
        Detector(
            _OWN,
            "the method's own energy",
            f"E(x) = -log p(x) up to a constant, of {measuring.subject.label} as docs/evaluation.md has it; {words}",
            lambda images: energies(images)[:, 0],
        ),
        Detector(
            _SLOPE,
            "slope of the method's own energy",
            f"|grad_x E(x)| by preprocessed pixels: the negated approximate mass of JEM (section 5.3.3); {words}",
            lambda images: energies(images)[:, 1],
        ),
    ]


def _own_probability(measuring: Measuring) -> list[Detector]:
    """Return the detector by the highest probability of the method's own classifier; empty if it is none."""
    if not measuring.has_own_classifier:
        return []
    return [
        Detector(
            _OWN_PROBABILITY,
            "maximum probability of the method's own classifier",
            f"-max_k softmax(logits)_k (Hendrycks & Gimpel, 2017) of {OWN_CLASSIFIER}",
            cache(lambda images: -measuring.own_logits(images).softmax(dim=1).amax(dim=1)),
        )
    ]


def _energies(measuring: Measuring, own: Energies) -> Callable[[ImageSet], Tensor]:
    compared = own.references.to(measuring.device)

    def energy_and_slope(batch: Tensor) -> Tensor:
        with torch.enable_grad():
            pixels = batch.detach().requires_grad_()
            energy = own.method.image_energy(pixels, compared)
            (gradient,) = torch.autograd.grad(energy.sum(), pixels)
        return torch.stack([energy.detach(), gradient.flatten(1).norm(dim=1)], dim=1)

    return cache(
        lambda images: measuring.compute(
            energy_and_slope, images, f"energies of {len(images):,} images of {images.name}"
        )
    )


def set_names(sets: Sequence[OutsideSet]) -> list[str]:
    """Return a unique key for each set, of lowercase letters, digits and hyphens."""
    return unique_names((slug(f"{each.kind}-{short_name(each.name)}") for each in sets), "--")


def _ranking(detector: Detector, key: str, sets: OutsideSet) -> _Ranking:
    inside, outside = detector.score(sets.inside), detector.score(sets.outside)
    area = auroc(inside, outside)
    where = f"{sets.kind}: {sets.name}"
    protocol = (
        f"{detector.protocol}; {len(outside):,} images of {sets.name} are the positive class, against {len(inside):,} "
        f"of {sets.inside.name}"
    )
    number = mean_over_images(
        f"{key}-{detector.name}-auroc",
        f"AUROC, {detector.title}, {where}",
        two_samples(area.value, area.inside, area.outside),
        torch.cat([sets.inside.keys, sets.outside.keys]),
        protocol=f"{protocol}; ties count half; {_PROTOCOL}",
        better="higher",
    )
    fpr = Number(
        f"{key}-{detector.name}-fpr95",
        f"FPR95, {detector.title}, {where}",
        false_positive_rate(inside, outside),
        f"share of inside images flagged where {100 * RECALL:.0f} % of the outside is, as OpenOOD v1.5; {protocol}",
        len(inside) + len(outside),
        better="lower",
    )
    auprs = precision_recall_area(outside, inside), precision_recall_area(-inside, -outside)
    return _Ranking(detector, _with_interval(number, area), fpr, auprs)


def _with_interval(number: Number, area: Auroc) -> Number:
    """Give an AUROC its own interval in place of a mean's, and no contributions if DeLong's variance is 0.

    That variance says nothing about other images, so there would be nothing to compare by.
    """
    low, high = auroc_interval(area) or (None, None)
    if sum(variances(area)) == 0:
        return replace(number, low=low, high=high, contributions=None, images="")
    return replace(number, low=low, high=high)


def _percent(value: float | None) -> float | None:
    return None if value is None else round(100 * value, 2)


def _of_one_set(rankings: Sequence[_Ranking], sets: OutsideSet) -> Table:
    rows = tuple(
        (each.detector.title, *map(_percent, (area.value, area.low, area.high, each.fpr.value, *each.auprs)))
        for each in rankings
        for area in [each.auroc]
    )
    return Table(
        f"{sets.name} ({sets.kind}) against {len(sets.inside):,} images of {sets.inside.name}",
        ("detector", "AUROC, %", "from", "to", "FPR95, %", "AUPR-out, %", "AUPR-in, %"),
        rows,
        f"{_note(rankings)} AUPR by trapezoids; by chance AUPR-out is "
        f"{100 * len(sets.outside) / (len(sets.inside) + len(sets.outside)):.1f} %, AUROC 50 %, FPR95 95 %.",
    )


def _note(rankings: Sequence[_Ranking]) -> str:
    """Return what the columns "from" and "to" are, or why they are empty."""
    if any(each.auroc.low is None for each in rankings):
        return f"AUROCs have no interval, since with fewer than {FEWEST} images of a kind it would be too short."
    return (
        "From and to are an interval of about 95 % of the AUROC, for other images of both kinds; a wide one where "
        f"fewer than {OVERLAPPING} images of a kind overlap the other."
    )


def _overview(ranked: Sequence[tuple[OutsideSet, Sequence[_Ranking]]]) -> Table:
    """Return AUROC by detector and set, near sets before far ones, with means over kinds of several sets."""
    ordered = sorted(ranked, key=lambda each: each[0].kind == "far")
    places = {kind: [at for at, (each, _) in enumerate(ordered) if each.kind == kind] for kind in ("near", "far")}
    several = {f"{kind}, mean": each for kind, each in places.items() if len(each) > 1}
    rows = []
    for of_detector in zip(*(rankings for _, rankings in ordered), strict=True):
        values = [each.auroc.value for each in of_detector]
        means = [sum(values[at] for at in each) / len(each) for each in several.values()]
        rows.append((of_detector[0].detector.title, *map(_percent, (*values, *means))))
    columns = ("detector", *(f"{each.kind}: {each.name}" for each, _ in ordered), *several)
    return Table("AUROC by detector and set, %", columns, tuple(rows))


def _own_against_plain(rankings: Sequence[_Ranking], sets: OutsideSet) -> str:
    """Return a sentence that compares the method's own energy with the best detector on features."""
    (own,) = (each for each in rankings if each.detector.name == _OWN)
    plain = [each for each in rankings if each.detector.name not in (_OWN, _SLOPE, _OWN_PROBABILITY)]
    best = max(plain, key=lambda each: each.auroc.value)
    text = f"{sets.name} ({sets.kind}): the method's own energy has an AUROC of {100 * own.auroc.value:.1f} %, "
    text += f"the best of {len(plain)} detectors on features, {best.detector.title}, {100 * best.auroc.value:.1f} %; "
    if own.auroc.low is None or own.auroc.contributions is None or best.auroc.contributions is None:
        why = f"there are fewer than {FEWEST} images of a kind" if own.auroc.low is None else "the sets do not overlap"
        points = POINTS.number(own.auroc.value - best.auroc.value)
        return f"{text}the difference is {points}, without an interval, since {why}."
    gap = mean_over_images(  # DeLong, paired
        "difference",
        "difference of AUROC",
        own.auroc.contributions - best.auroc.contributions,
        torch.arange(own.auroc.num_images),
        protocol="paired by images",
        better="higher",
    )
    verdict = "within noise" if gap.interval.is_noise else "better" if gap.value > 0 else "worse"
    text += f"{POINTS.interval(gap.interval)}, {verdict}"
    return f"{text}. That detector is the best on these very images, which favours it."


def _histogram(detector: Detector, measuring: Measuring) -> Plot:
    samples = {f"inside: {measuring.measured.name}": detector.score(measuring.measured.test)}
    samples |= {f"{each.kind}: {each.name}": detector.score(each.outside) for each in measuring.outside}
    title = f"{detector.title[:1].upper()}{detector.title[1:]}, inside and outside"
    note = "The further to the right, the more an image looks like outside. The less the lines overlap, the better"
    return histogram(title, note, f"{detector.title}, nats", samples)


def histogram(title: str, note: str, axis: str, samples: Mapping[str, Tensor]) -> Plot:
    """Return histograms of numbers by name (n,) as lines, the first in blue."""
    samples = {name: numbers.double() for name, numbers in samples.items()}
    pooled = torch.cat(list(samples.values()))
    low, high = (float(torch.quantile(pooled[:: max(1, len(pooled) // 100_000)], at)) for at in (0.002, 0.998))
    count = max(_FEWEST_BINS, min(_MOST_BINS, int(min(map(len, samples.values())) ** 0.5)))
    edges = torch.linspace(low, high if high > low else low + 1, count + 1, dtype=torch.float64)
    centres = [round(float(each), 4) for each in (edges[1:] + edges[:-1]) / 2]
    figure = go.Figure()
    for (name, numbers), colour in zip(samples.items(), (BLUE, *_COLOURS * len(samples)), strict=False):
        bins = torch.bucketize(numbers, edges[1:-1], right=True)
        shares = torch.bincount(bins, minlength=count).double() / len(numbers)
        figure.add_scatter(
            x=centres,
            y=[round(float(share), 5) for share in shares],
            name=as_text(name),
            mode="lines",
            line={"shape": "hvh", "color": colour, "width": 2},
            hovertemplate="%{y:.1%}",
        )
    figure.update_xaxes(title=axis)
    figure.update_yaxes(title="share of images", tickformat=".0%", rangemode="tozero")
    return plot(title, f"{note}; what is beyond the ends is in the first and last bin.", figure)


GROUP = Group(
    name="out-of-distribution",
    title="Images from outside",
    doc="AUROC, FPR95 and AUPR of nine detectors on features and logits, and of the method's own energy and classifier",
    source="OpenOOD v1.5 (Zhang et al., 2023); DeLong et al. (1988); JEM (Grathwohl et al., 2020)",
    needs=(LABELS, OUTSIDE),
    looks_at=("train", "test", "outside"),
    measure=measure,
)

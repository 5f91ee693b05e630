"""Energies by the encoder's own method: their distribution, the likeliest images, and pairs of views by p(v, v')."""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor
from torch.nn import functional

from ebclab.card.card import Better, Findings, Number, Unit, accuracy, mean_over_images
from ebclab.card.groups.out_of_distribution import histogram, set_names
from ebclab.card.measuring import ENERGY, Group, Measuring
from ebclab.data.holdout import limit
from ebclab.data.image_grid import Tile, as_png, draw_grid
from ebclab.data.image_set import ImageSet
from ebclab.data.views.pipeline import make_views
from ebclab.document.document import Picture
from ebclab.errors import UserError
from ebclab.evaluation.measures.geometry import VIEWS, VIEWS_IN_WORDS
from ebclab.evaluation.samples import as_bytes
from ebclab.export.energies import REFERENCES, Energies, no_pair_energy
from energy_contrast.sampling_method import PairEnergy

_QUANTILES = (0.05, 0.5, 0.95)
_SHOWN = 10  # images at each end
_PAIRED = 1_000  # test images whose views are paired
_FOLDS = 10
_FRAME = 2  # white columns between the views of a pair


def measure(measuring: Measuring) -> Findings:
    """Return the distributions of energies, and the pictures of images and pairs at their ends."""
    own = measuring.energies
    if own is None:
        raise UserError(measuring.subject.energy_problem)
    data = measuring.measured
    test, train = own.energy(data.test.images, measuring.on_progress), _of_training(measuring, own)
    sets = {"test": ("test images", data.test.keys, test)}
    sets["train"] = ("training images", limit(data.train, REFERENCES).keys, train)
    for name, each in zip(set_names(measuring.outside), measuring.outside, strict=True):
        energies = own.energy(each.outside.images, measuring.on_progress)
        sets[name] = (f"images of {each.kind}: {each.name}", each.outside.keys, energies)
    numbers = [number for name, each in sets.items() for number in _distribution(name, *each, measuring, own)]
    note = "To the left is what the method takes to be likely"
    plot = histogram("Energies of images", note, "energy, nats", {title: each for title, _, each in sets.values()})
    pictures = [_ends(data.test, test)]
    if not isinstance(own.method, PairEnergy):
        remark = f"Pairs of views are not ranked: {no_pair_energy(measuring.subject.label)}."
        return Findings(tuple(numbers), plots=(plot,), pictures=tuple(pictures), remarks=(remark,))
    more, drawn = _pairs(measuring, own, own.method)
    return Findings((*numbers, *more), plots=(plot,), pictures=(*pictures, *drawn))


def _of_training(measuring: Measuring, own: Energies) -> Tensor:
    """Return energies of training images, each against the references other than itself.

    Where these images are the references, each tenth is compared with the other nine, as if those were as many.
    """
    train = limit(measuring.measured.train, REFERENCES).images
    if own.references.shape[1] == 0:
        return own.energy(train, measuring.on_progress)
    vectors = own.with_references(train, "").references
    count = len(vectors)
    if vectors.shape != own.references.shape or not torch.allclose(vectors, own.references, atol=1e-4) or count < 2:
        return own.energy(train, measuring.on_progress)  # the references are other images
    energies = torch.empty(count)
    for number in range(min(_FOLDS, count)):
        mine = torch.arange(count) % _FOLDS == number
        others = replace(own, references=own.references[~mine])
        energies[mine] = others.energy(train[mine]) + math.log(len(others.references) / count)
    return energies


def _distribution(
    name: str, title: str, keys: Tensor, energies: Tensor, measuring: Measuring, own: Energies
) -> list[Number]:
    """Return the mean and quantiles of the energies (n,) of one set of images."""
    protocol = (
        f"E(x) = -log p(x) up to a constant, by {measuring.subject.label}, without augmentation; "
        f"references: {own.source or 'none'}"
    )
    if name == "train":
        protocol += "; each tenth of them against the other nine, less log(10/9), if the images are the references"
    mean = mean_over_images(
        f"{name}-mean", f"mean energy, {title}", energies, keys, protocol=protocol, better="neither", unit="nats"
    )
    quantiles = torch.quantile(energies.double(), torch.tensor(_QUANTILES, dtype=torch.float64)).tolist()
    rest: tuple[str, int, Better, Unit] = (protocol, len(energies), "neither", "nats")
    return [
        replace(mean, contributions=None, images=""),  # energies of two encoders do not compare
        *(
            Number(f"{name}-q{100 * at:02.0f}", f"{100 * at:.0f} % of {title} are below", value, *rest)
            for at, value in zip(_QUANTILES, quantiles, strict=True)
        ),
    ]


def _ends(test: ImageSet, energies: Tensor) -> Picture:
    order = energies.argsort(stable=True).tolist()
    rows = [
        [Tile(test.images[place], f"E {energies[place]:.2f}") for place in places]
        for places in (order[:_SHOWN], order[: -_SHOWN - 1 : -1])
    ]
    note = "Above, the test images with the lowest energy, the lowest first; below, those with the highest."
    png = as_png(draw_grid(rows, names=("likeliest", "unlikeliest")))
    return Picture("images", "The likeliest and the unlikeliest", note, png)


def _pairs(measuring: Measuring, own: Energies, method: PairEnergy) -> tuple[list[Number], list[Picture]]:
    """Return what pair energies say of views of test images, and pictures of pairs beside cosine's ranking."""
    few = limit(measuring.measured.test, _PAIRED)
    encoder = measuring.encoder
    size = own.references.shape[1]

    def vectors(views: Tensor) -> Tensor:
        return torch.cat([method.encode_references(views), method.encode_second(views), encoder(views)], dim=1)

    first, second = measuring.two_views(vectors, few)
    energy = method.pair_energy(first[:, :size], second[:, size : 2 * size]).double()  # (n, n)
    cosine = functional.normalize(first[:, 2 * size :], dim=1) @ functional.normalize(second[:, 2 * size :], dim=1).T
    same = torch.eye(len(few), dtype=torch.bool)
    numbers = _of_pairs(energy, cosine, same, few.keys)
    pictures = [
        _picture(measuring, few, energy, cosine, same, "same", "Two views of one image"),
        *([_picture(measuring, few, energy, cosine, ~same, "other", "Views of two images")] if len(few) > 1 else []),
    ]
    return numbers, pictures


def _of_pairs(energy: Tensor, cosine: Tensor, same: Tensor, keys: Tensor) -> list[Number]:
    """Return numbers of pair energies and cosines (n, n) of first views with second views."""
    n = len(keys)
    own = torch.arange(n)
    words = f"{VIEWS_IN_WORDS}; {n:,} test images, all pairs of a first and a second view"
    equal = mean_over_images(
        "pair-same",
        "pair energy, two views of one image",
        energy.diagonal(),
        keys,
        protocol=f"E(v, v') = -log p(v, v') up to a constant; {words}",
        better="neither",
        unit="nats",
    )
    numbers = [replace(equal, contributions=None, images="")]
    if n > 1:
        value = float(energy[~same].mean())
        numbers.append(
            Number("pair-other", "pair energy, views of two images", value, equal.protocol, n, "neither", "nats")
        )
        value = float(torch.corrcoef(torch.stack([_shared_ranks(each) for each in (energy, -cosine)]))[0, 1])
        protocol = f"Spearman's, of the ranks of all pairs by pair energy and by the cosine of embeddings; {words}"
        title = "rank correlation with cosine"
        if math.isfinite(value):  # there is none where all pairs are alike
            numbers.append(Number("pair-rank-correlation", title, value, protocol, n, "neither", "plain"))
    for name, by, wanted in (("energy", "pair energy", energy), ("cosine", "cosine of embeddings", -cosine)):
        right = wanted.argmin(dim=1) == own
        protocol = f"share of first views whose nearest second view, by {by}, is of the same image; {words}"
        numbers.append(accuracy(f"pair-found-{name}", f"same image found by {by}", right, keys, protocol=protocol))
    return numbers


def _shared_ranks(values: Tensor) -> Tensor:
    """Return the ranks (n n,) of values (n, n) from 1; equal values share the mean of theirs."""
    _, places, counts = torch.unique(values.flatten(), return_inverse=True, return_counts=True)
    ranks: Tensor = counts.cumsum(0) - (counts.double() - 1) / 2
    return ranks[places]


def _picture(
    measuring: Measuring, few: ImageSet, energy: Tensor, cosine: Tensor, allowed: Tensor, name: str, title: str
) -> Picture:
    """Return a picture of the nearest and the farthest of the allowed pairs, by pair energy and by cosine."""
    preprocessing, count = measuring.subject.preprocessing, measuring.options.pairs
    ends = {"nearest by p(v, v')": energy, "nearest by cosine": -cosine}
    ends |= {"farthest by p(v, v')": -energy, "farthest by cosine": cosine}
    chosen = [_first(values, allowed, count) for values in ends.values()]
    rows = sorted({place for pairs in chosen for pair in pairs for place in pair})
    views = make_views(few.images[rows], few.keys[rows], VIEWS, preprocessing, seed=0, epoch=0)
    levels = as_bytes(views, preprocessing.pixel_range)
    at = {place: row for row, place in enumerate(rows)}
    by_energy, by_cosine = _ranks(energy, allowed), _ranks(-cosine, allowed)
    drawn = [
        [
            Tile(
                _beside(levels[0, at[i]], levels[1, at[j]]),
                f"E {energy[i, j]:.2f} #{by_energy[i, j]:,}  cos {cosine[i, j]:.3f} #{by_cosine[i, j]:,}",
            )
            for i, j in pairs
        ]
        for pairs in chosen
    ]
    note = (
        f"Of {int(allowed.sum()):,} pairs of a first and a second view of {len(few):,} test images: the nearest and "
        "the farthest by pair energy and by the cosine of embeddings, no view twice in a row. Below each pair both "
        "numbers, and its place (#) in both rankings."
    )
    return Picture(f"pairs-{name}", title, note, as_png(draw_grid(drawn, names=list(ends))))


def _first(values: Tensor, allowed: Tensor, count: int) -> list[tuple[int, int]]:
    """Return at most ``count`` allowed pairs of smallest value (n, n), no row and no column twice."""
    left = values.masked_fill(~allowed, math.inf)
    pairs: list[tuple[int, int]] = []
    while len(pairs) < count and bool((left < math.inf).any()):
        i, j = divmod(int(left.argmin()), len(left))
        pairs.append((i, j))
        left[i], left[:, j] = math.inf, math.inf
    return pairs


def _ranks(values: Tensor, allowed: Tensor) -> Tensor:
    """Return the places (n, n) of the allowed pairs by their values, from 1; 0 for others."""
    ranks = torch.zeros(values.shape, dtype=torch.int64)
    ranks[allowed] = values[allowed].argsort(stable=True).argsort() + 1
    return ranks


def _beside(first: Tensor, second: Tensor) -> Tensor:
    return torch.cat([first, first.new_full((*first.shape[:2], _FRAME), 255), second], dim=2)


GROUP = Group(
    name="energies",
    title="Energies",
    headline="test-mean",
    doc="energies of images and of pairs of views by the encoder's own method, with the likeliest and unlikeliest",
    source="EBCLR (Kim & Ye, 2022), eq. 8 and 20; VEM (Du et al.), eq. 2; JEM (Grathwohl et al., 2020), eq. 7",
    needs=(ENERGY,),
    is_quick=False,
    measure=measure,
)

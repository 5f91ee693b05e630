"""Adversarial robustness: accuracy of the linear classifier under L-infinity attacks on pixels."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from itertools import pairwise
from typing import NamedTuple

import plotly.graph_objects as go
import torch
from torch import Tensor

from ebclab.card.card import Findings, Number, accuracy
from ebclab.card.measuring import LABELS, Group, Measuring
from ebclab.data.holdout import limit
from ebclab.data.image_grid import Tile, as_png, draw_grid
from ebclab.document.document import Picture, Plot, Table
from ebclab.errors import UserError
from ebclab.evaluation.measures.attacks import (
    PixelClassifier,
    attackable_pixels,
    clearly_more,
    fgsm,
    loss_gradients,
    pgd,
    random_start,
    square_search,
)
from ebclab.formatting import how_to_install
from ebclab.hardware import draws_put_back
from ebclab.reports.plots import BLUE, ORANGE, PURPLE, plot

LEVELS = (2, 4, 8, 16)
"""Values of eps at which PGD is tried, in 255ths."""

_USUAL = 8  # the standard eps for small images, in 255ths
_STEPS = 20
_QUERIES = 200
_SHOWN = 8  # images in the picture

_Attack = Callable[[Tensor, Tensor, Tensor], Tensor]  # pixels, labels, keys -> pixels


class _Target:
    """A classifier of pixels, and the test images on which it is attacked; ``right`` is its per-image correctness."""

    def __init__(self, measuring: Measuring) -> None:
        subject = measuring.subject
        model = PixelClassifier(subject.encoder, subject.preprocessing, measuring.classifier)
        self.measuring, self.model = measuring, model.to(measuring.device)
        self.images = limit(measuring.measured.test, measuring.options.attacked_images)
        self.right = torch.ones(len(self.images), dtype=torch.bool)  # (n,) without an attack
        self.right = self.under(lambda x, labels, keys: x, "images before an attack")

    def batch(self, rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return pixels, labels and keys of rows (b,), on the device."""
        device, images = self.measuring.device, self.images
        pixels = attackable_pixels(images.images[rows].to(device), self.measuring.subject.preprocessing)
        return pixels, images.labels[rows].to(device), images.keys[rows].to(device)

    def under(self, attack: _Attack, what: str) -> Tensor:
        """Return per-image correctness (n,) under an attack; images that were wrong without it stay wrong."""
        still = self.right.clone()
        for rows in self._right_rows(what):
            pixels, labels, keys = self.batch(rows)
            moved = attack(pixels, labels, keys)
            with torch.no_grad():
                still[rows] = (self.model(moved).argmax(dim=1) == labels).cpu()
        return still

    def without_gradient(self) -> int:
        """Return the number of correctly classified images whose gradient is exactly 0."""
        count = 0
        for rows in self._right_rows("gradients"):
            pixels, labels, _ = self.batch(rows)
            count += int((loss_gradients(self.model, pixels, labels) == 0).flatten(1).all(dim=1).sum())
        return count

    def fgsm(self, level: int) -> _Attack:
        """Return FGSM with eps of ``level`` / 255."""
        return lambda x, labels, keys: fgsm(self.model, x, labels, level / 255)

    def pgd(self, level: int, seed: int) -> _Attack:
        """Return PGD-20 with eps of ``level`` / 255 from a random start, with steps of a quarter of eps."""
        eps = level / 255
        return lambda x, labels, keys: pgd(
            self.model,
            x,
            labels,
            eps=eps,
            step=eps / 4,
            steps=_STEPS,
            start=random_start(x, keys, eps=eps, seed=seed),
        )

    def _right_rows(self, what: str) -> Iterator[Tensor]:
        """Yield rows of correctly classified images, in chunks of a quarter of the batch size to limit memory."""
        rows, size = self.right.nonzero()[:, 0], max(1, self.measuring.options.settings.batch_size // 4)
        for start in range(0, len(rows), size):
            yield rows[start : start + size]
            self.measuring.on_progress(min(start + size, len(rows)), len(rows), what)


class _Outcomes(NamedTuple):
    """Per-image correctness (n,) under each attack."""

    fgsm: dict[int, Tensor]  # by level
    pgd: Tensor  # (P, n), one row per seed
    curve: dict[int, Tensor]  # PGD by level, the first seed
    unbounded: Tensor  # PGD at eps = 1, from the image itself
    square: Tensor
    autoattack: Tensor | None


_Check = tuple[str, str, bool]
"""A check for masked gradients: what should hold, what was found, and whether it holds."""


def measure(measuring: Measuring) -> Findings:
    """Return accuracies under attack, and checks for masked gradients."""
    if measuring.options.autoattack and find_spec("pyautoattack") is None:
        raise UserError(f"AutoAttack: pyautoattack is not installed; run {how_to_install('attack')}")
    if measuring.options.autoattack and (classes := measuring.measured.num_classes) < 4:
        raise UserError(f"AutoAttack: its standard version needs at least 4 classes, got {classes}; leave it out")
    target = _Target(measuring)
    outcomes = _attacked(target)
    checks = _checks(target, outcomes)
    table = Table(
        "Are gradients masked?",
        ("check", "found", ""),
        tuple((words, found, "holds" if holds else "does not hold") for words, found, holds in checks),
        "More, fewer and rise mean beyond two standard errors. Where a check does not hold, attacks by gradients miss "
        "what there is to find, and accuracies under them are too high.",
    )
    failed = "; ".join(f"{words}: {found}" for words, found, holds in checks if not holds)
    remark = f"Gradients may be masked, accuracies under attack too high. What should hold and does not: {failed}."
    return Findings(
        tuple(_numbers(target, outcomes)),
        tables=(table,),
        plots=(_curve(target, outcomes),),
        pictures=_picture(target, outcomes),
        remarks=(remark,) if failed else (),
    )


def _attacked(target: _Target) -> _Outcomes:
    model, eps, seeds = target.model, _USUAL / 255, target.measuring.seeds
    by_fgsm = {level: target.under(target.fgsm(level), f"FGSM at {level}/255") for level in (_USUAL // 2, _USUAL)}
    by_pgd = [target.under(target.pgd(_USUAL, seed), f"PGD-{_STEPS}, seed {seed}") for seed in seeds]
    curve = {
        level: by_pgd[0]
        if level == _USUAL
        else target.under(target.pgd(level, seeds[0]), f"PGD-{_STEPS} at {level}/255")
        for level in LEVELS
    }
    unbounded = target.under(
        lambda x, y, _: pgd(model, x, y, eps=1.0, step=0.25, steps=_STEPS, start=x), f"PGD-{_STEPS} at eps 1"
    )
    square = target.under(
        lambda x, y, keys: square_search(model, x, y, keys, eps=eps, queries=_QUERIES, seed=0), "Square"
    )
    whole = target.under(_autoattack(target, eps), "AutoAttack") if target.measuring.options.autoattack else None
    return _Outcomes(by_fgsm, torch.stack(by_pgd), curve, unbounded, square, whole)


def _numbers(target: _Target, outcomes: _Outcomes) -> list[Number]:
    seeds, protocol = target.measuring.seeds, _protocol(target)

    def number(name: str, title: str, right: Tensor, words: str, seeds: Sequence[int] = ()) -> Number:
        return accuracy(name, title, right, target.images.keys, protocol=f"{words}; {protocol}", seeds=seeds)

    at, steps = f"{_USUAL}/255", f"{_STEPS} steps of {_USUAL // 4}/255"
    numbers = [
        number("clean", "accuracy without an attack", target.right, "no attack"),
        *[
            number(f"fgsm-{level}", f"FGSM, {level}/255", right, "one step of eps")
            for level, right in outcomes.fgsm.items()
        ],
        number(f"pgd-{_STEPS}", f"PGD-{_STEPS}, {at}", outcomes.pgd, f"{steps}, a random start a seed", seeds),
    ]
    if len(seeds) > 1:
        words = f"{steps}; right from each of {len(seeds)} random starts"
        worst = outcomes.pgd.all(dim=0)
        numbers.append(number(f"pgd-{_STEPS}-worst", f"PGD-{_STEPS}, {at}, {len(seeds)} starts", worst, words))
    words = f"random search by scores alone, {_QUERIES} queries an image, seed 0"
    numbers.append(number("square", f"Square, {at}", outcomes.square, words))
    if outcomes.autoattack is not None:
        words = (
            f"standard version of pyautoattack: APGD-CE, APGD-T and FAB-T with {_targets(target)} target classes, "
            "Square with 5,000 queries; seed 0"
        )
        numbers.append(number("autoattack", f"AutoAttack, {at}", outcomes.autoattack, words))
    return numbers


def _protocol(target: _Target) -> str:
    images, seen = target.images.images, target.measuring.subject.preprocessing.image_size
    pixels = target.batch(torch.arange(1))[0]
    side, stored = (f"{each.shape[-2]} x {each.shape[-1]}" for each in (pixels, images))
    resized = "as stored" if pixels.shape == images[:1].shape else f"after the resize of {stored}"
    return (
        f"L-infinity, pixels in [0, 1] of {side}, {resized}, seen at {seen} x {seen}; cross entropy of logistic "
        f"regression on the frozen encoder, {target.measuring.classifier_in_words}; "
        f"{len(target.images):,} test images chosen by hash; those wrong without an attack count as wrong"
    )


def _checks(target: _Target, outcomes: _Outcomes) -> list[_Check]:
    """Return checks for masked gradients (Carlini et al., 2019, section 4); each states what is expected to hold."""
    chance, count = 1 / target.measuring.measured.num_classes, len(target.images)
    still = _share(outcomes.unbounded)
    spread = 2 * (still * (1 - still) / count) ** 0.5
    zero, worst = target.without_gradient(), outcomes.pgd.all(dim=0)
    levels = [target.right, *outcomes.curve.values()]
    rises = [clearly_more(later, earlier) for earlier, later in pairwise(levels)]
    return [
        ("no image has a gradient of exactly 0", f"{zero:,} of {int(target.right.sum()):,} have", zero == 0),
        (
            f"accuracy does not rise with eps: 0, {', '.join(f'{level}/255' for level in LEVELS)}",
            ", ".join(f"{_share(right):.1%}" for right in levels),
            not any(rises),
        ),
        ("at eps 1, accuracy is no better than chance", f"{still:.1%}", still - spread <= chance),
        (
            "PGD leaves no more images right than FGSM",
            f"{_share(outcomes.pgd[0]):.1%} against {_share(outcomes.fgsm[_USUAL]):.1%}",
            not clearly_more(outcomes.pgd[0], outcomes.fgsm[_USUAL]),
        ),
        (
            "Square, which knows no gradient, leaves no fewer images right than PGD",
            f"{_share(outcomes.square):.1%} against {_share(worst):.1%}",
            not clearly_more(worst, outcomes.square),
        ),
    ]


def _share(right: Tensor) -> float:
    return float(right.double().mean())


def _curve(target: _Target, outcomes: _Outcomes) -> Plot:
    figure = go.Figure()
    curve = {f"{level}/255": right for level, right in outcomes.curve.items()}
    ticks = {"0": target.right, **curve, "1": outcomes.unbounded}
    lines = (
        (f"PGD-{_STEPS}", BLUE, "lines+markers", "circle", list(ticks), list(ticks.values())),
        ("FGSM", ORANGE, "markers", "diamond", [f"{e}/255" for e in outcomes.fgsm], list(outcomes.fgsm.values())),
        ("Square", PURPLE, "markers", "square", [f"{_USUAL}/255"], [outcomes.square]),
    )
    for name, colour, mode, symbol, x, rights in lines:
        figure.add_scatter(
            x=x,
            y=[_share(right) for right in rights],
            mode=mode,
            marker={"color": colour, "size": 9, "symbol": symbol},
            line={"color": colour, "width": 1.5},
            name=name,
            hovertemplate="eps %{x}<br>%{y:.1%}",
        )
    figure.update_xaxes(title="eps: largest change of a pixel", type="category")
    figure.update_yaxes(title="accuracy", tickformat=".0%", range=[-0.03, 1.03])
    note = (
        "Where gradients lead the attack, PGD falls from left to right and ends at 0: at eps 1 any image may become "
        "any other. FGSM and Square should be on PGD's line or above it."
    )
    return plot("Accuracy under attack", note, figure)


def _picture(target: _Target, outcomes: _Outcomes) -> tuple[Picture, ...]:
    misled = target.right & ~outcomes.pgd[0]
    chosen = misled if bool(misled.any()) else target.right
    rows = chosen.nonzero()[:_SHOWN, 0]
    if len(rows) == 0:
        return ()
    clean, labels, keys = target.batch(rows)
    moved = target.pgd(_USUAL, target.measuring.seeds[0])(clean, labels, keys)
    with torch.no_grad():
        guesses = target.model(moved).argmax(dim=1)
    names = target.images.class_names
    words = [
        tuple((names[k] if k < len(names) else str(k))[:14] for k in pair)
        for pair in zip(labels.tolist(), guesses.tolist(), strict=True)
    ]
    captions = [*zip(*words, strict=True), [""] * len(rows)]
    shown = (clean, moved, 0.5 + (moved - clean) * 255 / (2 * _USUAL))
    levels = [(pixels * 255).round().clamp(0, 255).to(torch.uint8) for pixels in shown]
    png = as_png(draw_grid([[*map(Tile, *each)] for each in zip(levels, captions, strict=True)]))
    told = ", ".join(f"{before} as {after}" for before, after in words)
    note = (
        f"Above, test images; in the middle, what PGD-{_STEPS} at {_USUAL}/255 made of them; below, the difference, "
        f"from -{_USUAL}/255 (black) to +{_USUAL}/255 (white). Taken for: {told}."
    )
    return (Picture("attacked", "Attacked images", note, png),)


def _targets(target: _Target) -> int:
    return min(9, target.measuring.measured.num_classes - 1)


def _autoattack(target: _Target, eps: float) -> _Attack:
    """Return AutoAttack's standard version (Croce & Hein, 2020), with at most K - 1 target classes."""
    from pyautoattack import AutoAttack

    device = target.measuring.device
    attack = AutoAttack(lambda pixels: target.model(pixels).float(), eps=eps, seed=0, device=device)
    attack.apgd_targeted.n_target_classes = attack.fab.n_target_classes = _targets(target)

    def moved(pixels: Tensor, labels: Tensor, keys: Tensor) -> Tensor:
        with draws_put_back(device):  # it seeds torch's global generators
            found: Tensor = attack.run_standard_evaluation(pixels, labels, batch_size=len(pixels))[0]
        return found

    return moved


GROUP = Group(
    name="robustness",
    title="Adversarial robustness",
    doc="accuracy under FGSM, PGD-20, Square and, when asked for, AutoAttack; whether gradients are masked; minutes",
    source="Goodfellow et al. (2015); Madry et al. (2018); Andriushchenko et al. (2020); Croce & Hein (2020); checks "
    "of Carlini et al. (2019)",
    needs=(LABELS,),
    headline="pgd-20",
    is_quick=False,
    looks_at=("train",),
    measure=measure,
)

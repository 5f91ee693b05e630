"""Calibration of the linear classifier's probabilities, before and after temperature scaling."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
from plotly.subplots import make_subplots
from torch import Tensor

from ebclab.card.card import Findings, Number, Unit, accuracy, mean_over_images
from ebclab.card.measuring import LABELS, OWN_CLASSIFIER, Group, Measuring
from ebclab.document.document import Plot, Table
from ebclab.evaluation.measures.calibration import (
    TEMPERATURES,
    BinTable,
    bin_table,
    brier_contributions,
    calibrated_errors,
    calibration_error,
    classwise_contributions,
    equal_mass,
    equal_width,
    error_contributions,
    fit_temperature,
    largest_error,
    nll_contributions,
)
from ebclab.reports.plots import BLUE, GREY, ORANGE, PURPLE, plot

BINS = (15, 20)
"""15: the common choice; 20: the tables of VEM. Metrics with a single number of bins have that of the options."""

_DRAWS = 1_000


class _Probabilities(NamedTuple):
    """The logits of the test images at one temperature."""

    suffix: str  # appended to metric names
    words: str  # appended to metric titles
    protocol: str
    logits: Tensor  # (n, K)
    labels: Tensor
    keys: Tensor
    usual: int  # bins of metrics with a single number of them

    @property
    def counts(self) -> tuple[int, ...]:
        """The numbers of bins of ECE and MCE."""
        return tuple(dict.fromkeys((*BINS, self.usual)))

    @property
    def label(self) -> str:
        return self.words.removeprefix(", ") or "unscaled"

    @property
    def confidences(self) -> Tensor:
        return self.logits.softmax(dim=1).amax(dim=1)

    @property
    def right(self) -> Tensor:
        return self.logits.argmax(dim=1) == self.labels

    def bins(self, num_bins: int) -> BinTable:
        return bin_table(self.confidences, self.right, equal_width(num_bins))


def measure(measuring: Measuring) -> Findings:
    """Return calibration on the test images; the temperature is fitted on held-out training images."""
    data, held = measuring.measured, measuring.measured.parts[1]
    temperature = fit_temperature(measuring.held_out_logits, held.labels)
    classifier = (
        f"softmax of logistic regression, {measuring.classifier_in_words}, fitted on the other {len(data.parts[0]):,}"
    )
    fitted = f"logits divided by {temperature:.4g}, the temperature of least NLL on the held-out images"
    test, logits = data.test, measuring.test_logits
    rest = (test.labels, test.keys, measuring.options.bins)
    states = [
        _Probabilities("", "", f"{classifier}; unscaled", logits, *rest),
        _Probabilities("-scaled", ", scaled", f"{classifier}; {fitted}", logits / temperature, *rest),
    ]
    if measuring.has_own_classifier:
        states.append(_Probabilities("-own", ", own classifier", OWN_CLASSIFIER, measuring.own_test_logits, *rest))
    top = states[0]
    numbers = [accuracy("accuracy", "accuracy", top.right, top.keys, protocol=classifier)]
    numbers += [number for pair in zip(*map(_numbers, states), strict=True) for number in pair]
    least = (
        f"{classifier}; least NLL on the held-out images, between {TEMPERATURES[0]:g} and {TEMPERATURES[1]:g}; "
        "above 1 the classifier is too sure"
    )
    numbers.append(Number("temperature", "temperature", temperature, least, len(held), "neither", "plain"))
    chance, remarks = _chance(states)
    if temperature in TEMPERATURES:
        remarks.append(
            f"No temperature between {TEMPERATURES[0]:g} and {TEMPERATURES[1]:g} is best on the {len(held):,} held-out "
            f"images, so the end of the range, {temperature:g}, was taken; numbers after scaling say little."
        )
    tables = (*[_bins(count, states) for count in top.counts], chance)
    remarks += measuring.code_not_run
    return Findings(tuple(numbers), tables, (_reliability(states),), remarks=tuple(remarks))


def _numbers(state: _Probabilities) -> list[Number]:
    """Return the metrics of one temperature, in the same order before and after scaling."""
    scores, right, probabilities, usual = state.confidences, state.right, state.logits.softmax(dim=1), state.usual
    numbers = []
    for count in state.counts:
        contributions = error_contributions(scores, right, state.bins(count))
        words = f"{count} equal bins of the confidence"
        numbers.append(_without_interval(state, f"ece-{count}", f"ECE, {count} bins", contributions, words))
    numbers += [_largest(state, count) for count in state.counts]
    adaptive = bin_table(scores, right, equal_mass(scores, usual))
    least, most = int(adaptive.counts.min()), int(adaptive.counts.max())
    words = f"{len(adaptive.counts)} bins of {least:,} to {most:,} images of the confidence"
    contributions, title = error_contributions(scores, right, adaptive), f"adaptive ECE, {usual} bins"
    numbers.append(_without_interval(state, f"adaptive-ece-{usual}", title, contributions, words))
    classwise = classwise_contributions(probabilities, state.labels, usual)
    words = f"{usual} equal bins of every class's probability, mean over {state.logits.shape[1]} classes"
    title = f"classwise ECE, {usual} bins"
    numbers.append(_without_interval(state, f"classwise-ece-{usual}", title, classwise, words))
    brier, words = brier_contributions(probabilities, state.labels), "squared errors of all classes, 0 to 2"
    numbers.append(_mean(state, "brier", "Brier score", brier, words, "plain"))
    nll = nll_contributions(state.logits, state.labels)
    return [*numbers, _mean(state, "nll", "NLL", nll, "-log of the right class's probability", "nats")]


def _mean(state: _Probabilities, name: str, title: str, contributions: Tensor, words: str, unit: Unit) -> Number:
    return mean_over_images(
        name + state.suffix,
        title + state.words,
        contributions,
        state.keys,
        protocol=f"{words}; {state.protocol}",
        better="lower",
        unit=unit,
    )


def _without_interval(state: _Probabilities, name: str, title: str, contributions: Tensor, words: str) -> Number:
    """Return a metric without interval: the estimate is biased upwards, so a t interval would be misleading."""
    return replace(_mean(state, name, title, contributions, words, "share"), low=None, high=None)


def _largest(state: _Probabilities, count: int) -> Number:
    table = state.bins(count)
    worst = int(table.gaps.abs().argmax())
    low, high = table.edges[worst : worst + 2].tolist()
    protocol = (
        f"largest gap of {count} equal bins, that of {low:.2f} to {high:.2f}, which holds "
        f"{int(table.counts[worst]):,} image(s); {state.protocol}"
    )
    name, title = f"mce-{count}{state.suffix}", f"MCE, {count} bins{state.words}"
    return Number(name, title, largest_error(table), protocol, int(table.counts.sum()), "lower")


def _chance(states: Sequence[_Probabilities]) -> tuple[Table, list[str]]:
    """Return the ECE that chance alone causes, and a remark for each measured ECE that is no larger."""
    rows: list[tuple[str | float, ...]] = []
    remarks = []
    for state in states:
        error = calibration_error(state.bins(state.usual))
        drawn = calibrated_errors(state.confidences, equal_width(state.usual), _DRAWS, torch.Generator().manual_seed(0))
        mean, most = float(drawn.mean()), float(drawn.quantile(0.95))
        rows.append((state.label, *[round(100 * value, 2) for value in (error, mean, most)]))
        if error <= most:
            remarks.append(
                f"ECE of the classifier ({state.label}), {error:.2%}, is no sign of bad calibration: with "
                f"{len(state.labels):,} images a perfectly calibrated one shows up to {most:.2%} in 95 of 100 cases."
            )
    columns = ("classifier", "ECE, %", "calibrated: mean, %", "calibrated: 95 % of draws below, %")
    note = (
        f"ECE, {states[0].usual} bins, beside that of a perfectly calibrated classifier with the same confidences: "
        f"each image is right with the chance that its confidence says; {_DRAWS:,} draws, seed 0."
    )
    return Table("What chance alone adds to the ECE", columns, tuple(rows), note), remarks


def _bins(count: int, states: Sequence[_Probabilities]) -> Table:
    rows = []
    tables = [state.bins(count) for state in states]
    for b in range(count):
        low, high = tables[0].edges[b : b + 2].tolist()
        rows.append((f"{low:.3f} to {high:.3f}", *[cell for table in tables for cell in _cells(table, b)]))
    heads = ("n", "mean confidence, %", "accuracy, %")
    columns = ("confidence", *heads, *[f"{head} ({each.label})" for each in states[1:] for head in heads])
    return Table(f"{count} bins", columns, tuple(rows), "A bin holds its lower end; the last one both ends.")


def _cells(table: BinTable, b: int) -> tuple[int | float | None, ...]:
    count = int(table.counts[b])
    values = (table.confidences[b], table.accuracies[b])
    return (count, *[round(100 * float(value), 2) if count else None for value in values])


def _reliability(states: Sequence[_Probabilities]) -> Plot:
    """Return a reliability diagram: accuracy against confidence, above the number of images in each bin."""
    figure = make_subplots(rows=2, cols=1, shared_xaxes=True, row_heights=[0.7, 0.3], vertical_spacing=0.06)
    line = {"color": GREY, "width": 1, "dash": "dot"}
    figure.add_scatter(x=[0, 1], y=[0, 1], mode="lines", line=line, name="calibrated", hoverinfo="skip")
    for state, colour in zip(states, (ORANGE, BLUE, PURPLE), strict=False):
        name, table = state.label, state.bins(state.usual)
        held = table.counts > 0
        figure.add_scatter(
            x=table.confidences[held].tolist(),
            y=table.accuracies[held].tolist(),
            text=[f"{count:,} images" for count in table.counts[held].tolist()],
            mode="lines+markers",
            marker={"color": colour, "size": (5 + 15 * (table.counts[held] / len(state.labels)).sqrt()).tolist()},
            line={"color": colour, "width": 1},
            cliponaxis=False,
            name=name,
            hovertemplate="confidence %{x:.1%}<br>accuracy %{y:.1%}<br>%{text}",
        )
        centres = (table.edges[:-1] + table.edges[1:]) / 2
        figure.add_bar(
            x=centres.tolist(),
            y=table.counts.tolist(),
            marker={"color": colour},
            showlegend=False,
            name=name,
            hovertemplate="%{y:,} images",
            row=2,
            col=1,
        )
    figure.update_xaxes(range=[0, 1], tickformat=".0%")
    figure.update_xaxes(title="confidence", row=2, col=1)
    figure.update_yaxes(title="accuracy", tickformat=".0%", range=[-0.03, 1.03], row=1, col=1)
    figure.update_yaxes(title="images", rangemode="tozero", row=2, col=1)
    note = (
        f"{states[0].usual} bins of the confidence: below the dotted line the classifier is too sure, above it too "
        "modest. Bars: how many test images are in each point; small points, of few images, say little."
    )
    return plot("Reliability", note, figure, height=480)


GROUP = Group(
    name="calibration",
    title="Calibration",
    doc="ECE and MCE, adaptive and classwise ECE, Brier score, NLL; before and after a temperature; of the method's "
    "own classifier, if it is one",
    source="Guo et al. (2017); VEM, eq. 16-19; Nguyen & O'Connor (2015); Kull et al. (2019); Brier (1950)",
    needs=(LABELS,),
    headline="ece-15-scaled",
    looks_at=("train", "test"),
    measure=measure,
)

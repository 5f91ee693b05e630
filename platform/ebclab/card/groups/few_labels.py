"""Label efficiency: accuracy with 1 % and 10 % of the labels, with a frozen encoder and with fine-tuning."""

from __future__ import annotations

from typing import NamedTuple

import plotly.graph_objects as go
import torch
from torch import Tensor

from ebclab.card.card import Findings, Number, accuracy
from ebclab.card.groups.fine_tuning import (
    Beginning,
    beginnings,
    choice_in_words,
    chosen_rate,
    gain,
    logits_of_test_images,
    task_on,
    within,
)
from ebclab.card.measuring import Group, Measuring
from ebclab.data.holdout import LabelList, label_list
from ebclab.document.document import Plot, Table
from ebclab.errors import DataError
from ebclab.evaluation.linear import PENALTIES, few_labels_head, num_folds
from ebclab.reports.plots import BLUE, GREY, ORANGE, plot

PERCENTS = (1, 10)

_COLOURS = {"frozen": BLUE, "fine-tuned": ORANGE, "from-scratch": GREY}


class _Measured(NamedTuple):
    """Results with one fraction of the labels."""

    lists: tuple[LabelList, ...]
    numbers: dict[str, Number]
    choices: dict[str, list[str]]


def measure(measuring: Measuring) -> Findings:
    """Return test accuracies with 1 % and 10 % of the labels, one label list per seed."""
    data, remarks = measuring.measured, []
    both: tuple[Beginning, ...] = ()
    try:
        both = beginnings(measuring.subject)
    except DataError as error:
        remarks.append(str(error))
    measured = []
    for percent in PERCENTS:
        try:
            lists = tuple(label_list(data.train, percent, seed, data.num_classes) for seed in measuring.seeds)
        except DataError as error:
            remarks.append(str(error))
            continue
        measured.append(_on_lists(measuring, lists, both))
    if not measured:
        raise DataError(remarks[-1])
    numbers = tuple(number for each in measured for number in each.numbers.values())
    plots = (_plot(measured),) if len(measured) > 1 else ()
    return Findings(numbers, tables=(_table(measured),), plots=plots, remarks=tuple(remarks))


class _Way(NamedTuple):
    """Answers of one way to use the labels."""

    title: str
    protocol: str
    right: Tensor  # (S, 2, n) of the test set, as ``within`` has them
    choices: list[str]  # the hyperparameter chosen on each list


def _on_lists(measuring: Measuring, lists: tuple[LabelList, ...], both: tuple[Beginning, ...]) -> _Measured:
    percent, words = lists[0].percent, _list_in_words(measuring, lists[0])
    ways = {"frozen": _frozen(measuring, lists), **{each.name: _trained(measuring, lists, each) for each in both}}
    numbers = {name: _number(measuring, name, way, lists[0]) for name, way in ways.items()}
    if both:
        protocol = f"right after fine-tuning minus right from scratch, image by image, {words}; both as above"
        title = f"gain over the same network from scratch, {percent} % of the labels"
        right = {each.name: ways[each.name].right[:, 0] for each in both}
        numbers["gain"] = gain(f"gain-{percent}-percent", title, right, measuring, protocol)
    if measuring.measured.num_classes > 5:
        numbers |= {f"{name}-top5": _number(measuring, name, way, lists[0], top=5) for name, way in ways.items()}
    return _Measured(lists, numbers, {name: way.choices for name, way in ways.items()})


def _number(measuring: Measuring, name: str, way: _Way, first: LabelList, top: int = 1) -> Number:
    return accuracy(
        f"{name}-{first.percent}-percent" + (f"-top{top}" if top > 1 else ""),
        f"{way.title}, {first.percent} % of the labels" + (f", top {top}" if top > 1 else ""),
        way.right[:, int(top > 1)],
        measuring.measured.test.keys,
        protocol=f"{way.protocol}; {_list_in_words(measuring, first)}",
        seeds=measuring.seeds,
    )


def _frozen(measuring: Measuring, lists: tuple[LabelList, ...]) -> _Way:
    """Measure logistic regression on frozen features; what is chosen is its penalty."""
    data, l2 = measuring.measured, measuring.options.settings.linear_l2
    x, test_x = measuring.features(data.train), measuring.features(data.test).double()
    right, penalties = [], []
    for each in lists:
        labelled = x[each.rows], data.train.labels[each.rows]
        head = few_labels_head(*labelled, each, usual_l2=l2, on_progress=measuring.on_progress)
        right.append(within(head.logits(test_x), data.test.labels))
        penalties.append(f"{head.l2:g}")
    return _Way("frozen, logistic regression", _frozen_words(lists[0]), torch.stack(right), penalties)


def _trained(measuring: Measuring, lists: tuple[LabelList, ...], beginning: Beginning) -> _Way:
    """Measure fine-tuning; what is chosen is its learning rate."""
    right, rates = [], []
    for each in lists:
        labelled, folds = measuring.measured.train.rows(each.rows), num_folds(each)
        held_out = each.fold(0, folds) if folds > 1 else torch.zeros(len(labelled), dtype=torch.bool)
        parts = labelled.rows(~held_out), labelled.rows(held_out)  # no label outside the list is used
        what = f"{beginning.title}, {len(labelled):,} labels, list {each.seed}"
        rate = chosen_rate(beginning, *parts, measuring, seed=each.seed, what=what).rate
        rates.append(f"{rate:g}")
        logits = logits_of_test_images(beginning, labelled, measuring, rate=rate, seed=each.seed, what=what)
        right.append(within(logits, measuring.measured.test.labels))
    return _Way(beginning.title, _trained_words(measuring, beginning, lists[0]), torch.stack(right), rates)


def _list_in_words(measuring: Measuring, first: LabelList) -> str:
    count, name = len(first.rows), measuring.measured.name
    return f"{count:,} labelled images of {name}, {first.size_in_words}, a list by hash for each seed (see the table)"


def _frozen_words(first: LabelList) -> str:
    folds = num_folds(first)
    choice = (
        f"chosen from {PENALTIES[-1]:g} to {PENALTIES[0]:g} by {folds}-fold cross-validation among the labelled images"
        if folds > 1
        else "as evaluation.linear_l2 says, since a class has a single image"
    )
    return f"logistic regression to convergence on standardised frozen features, l2 {choice}"


def _trained_words(measuring: Measuring, beginning: Beginning, first: LabelList) -> str:
    task, folds = task_on(measuring), num_folds(first)
    begin = "the encoder's weights" if beginning.name == "fine-tuned" else "random weights, others for each list"
    choice = choice_in_words(task, f"one of {folds} parts of the labelled images, then trained on all of them")
    if folds < 2:
        choice = "fixed, since a class has a single image"
    return f"from {begin}: {task.in_words} ({task.epochs_for(len(first.rows)):,} epochs here); learning rate {choice}"


def _table(measured: list[_Measured]) -> Table:
    titles = {"frozen": "l2", "fine-tuned": "rate, fine-tuned", "from-scratch": "rate, from scratch"}
    chosen = [name for name in titles if name in measured[0].choices]
    rows: tuple[tuple[str | int, ...], ...] = tuple(
        (
            each.lists[place].percent,
            each.lists[place].seed,
            len(each.lists[place].rows),
            *(each.choices[name][place] for name in chosen),
            each.lists[place].digest,
        )
        for each in measured
        for place in range(len(each.lists))
    )
    columns = ("labels, %", "seed", "images", *(titles[name] for name in chosen), "SHA-256 of the keys")
    note = "A list has the same images for every encoder. The sum is of the keys in ascending order, 8 bytes each."
    return Table("Lists of labels", columns, rows, note)


def _plot(measured: list[_Measured]) -> Plot:
    figure = go.Figure()
    for name, colour in _COLOURS.items():
        points = [(len(each.lists[0].rows), each.numbers[name]) for each in measured if name in each.numbers]
        if not points:
            continue
        figure.add_scatter(
            x=[count for count, _ in points],
            y=[number.value for _, number in points],
            error_y={"type": "data", "array": [number.std or 0.0 for _, number in points]},
            mode="lines+markers",
            name=points[0][1].title.rpartition(",")[0],
            line={"color": colour},
            marker={"size": 8},
            hovertemplate="%{x:,} labels: %{y:.1%}<extra></extra>",
        )
    figure.update_xaxes(title="labelled images", type="log", tickvals=[len(each.lists[0].rows) for each in measured])
    figure.update_yaxes(title="test accuracy", tickformat=".0%")
    count = len(measured[0].lists)
    note = f"Means over {count} lists of labels; bars are one standard deviation over them."
    return plot("Accuracy by number of labels", note, figure)


GROUP = Group(
    name="few-labels",
    title="Few labels",
    doc="top 1 and top 5 with 1 % and 10 % of the labels: logistic regression on frozen features, all weights "
    "fine-tuned, and the same network from scratch",
    source="Chen et al. (2020), SimCLR, section 4.3 and appendix B.5; lists by hash in place of published ones",
    needs=("labels",),
    is_quick=False,
    looks_at=("train", "test"),
    measure=measure,
)

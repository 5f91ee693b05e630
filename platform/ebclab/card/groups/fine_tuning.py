"""Fine-tuning on all labels and on few, beside random initialization and a frozen encoder with few labels.

``L = mean over a batch of -log softmax(W f(view) + b)_y``, minimised by a protocol of ``FINE_TUNING``, without weight
decay; for images with several labels, the mean over their marks that count of ``log(1 + exp(-t (W f(view) + b)_k))``, t
= 1 if an image has class k, else -1. The given encoder is not modified: a copy of it is trained.

Shapes: n labelled images, m others, B images of a batch, D features, K classes.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from statistics import mean, stdev
from typing import NamedTuple

import plotly.graph_objects as go
import torch
from torch import Tensor, nn
from torch.nn import functional

from ebclab.card.card import Findings, Number, accuracy, mean_over_images
from ebclab.card.groups.classification import PRECISIONS
from ebclab.card.images import MeasuredSet, short_names
from ebclab.card.measuring import LABELS, LABELS_OR_MARKS, Group, Measuring
from ebclab.card.subject import Subject
from ebclab.config.sections import USUAL_VIEWS, VIEW_RECIPES, ViewsConfig
from ebclab.data.hashing import hash_words
from ebclab.data.holdout import LabelList, label_list
from ebclab.data.image_set import ImageSet
from ebclab.data.preprocessing import Preprocessing
from ebclab.data.views.pipeline import make_views
from ebclab.document.document import Plot, Table
from ebclab.errors import DataError, DivergedError
from ebclab.evaluation.comparison import CHANCE
from ebclab.evaluation.features import check_images, compute_features
from ebclab.evaluation.linear import PENALTIES, few_labels_head, num_folds
from ebclab.evaluation.multi_label import average_precisions, mean_precision
from ebclab.evaluation.progress import OnProgress, silent
from ebclab.evaluation.protocols import FINE_TUNING, FineTuningProtocol
from ebclab.evaluation.seeds_and_images import difference_over_images
from ebclab.hardware import draws_put_back
from ebclab.optimization.optimizers import eager
from ebclab.optimization.schedules import learning_rate_at
from ebclab.reports.plots import BLUE, GREY, ORANGE, plot

LEAST_STEPS = 200
"""Minimum number of optimizer steps, however few images there are."""

_ORDER_SALT = 0x66696E6574756E65
_LAYER_SALT = 0x6E65776C61796572


@dataclass(frozen=True)
class FineTuningTask:
    """Settings that are the same for every encoder that is fine-tuned on a dataset."""

    num_classes: int  # K
    preprocessing: Preprocessing
    views: ViewsConfig  # augmentation of training images
    epochs: int  # passes over the labelled images, but no fewer than ``LEAST_STEPS`` steps
    batch_size: int  # images per forward pass in prediction
    device: torch.device
    protocol: FineTuningProtocol = FINE_TUNING["simclr"]
    on_progress: OnProgress = silent

    def epochs_for(self, count: int) -> int:
        """Return the number of passes over ``count`` labelled images."""
        return max(self.epochs, math.ceil(LEAST_STEPS / self.batches(count)))

    @property
    def in_words(self) -> str:
        """The recipe in words, complete enough to reproduce it."""
        flips, chosen = "flips half of the time" if self.views.flip_rate else "no flips", self.protocol
        tested = f"; tested on the central {100 * chosen.test_crop:g} % of each side" if chosen.test_crop < 1 else ""
        return (
            f"all weights and a new linear layer, {chosen.optimizer_in_words}, no weight decay, batches of "
            f"{chosen.batch_size}, {self.epochs} epochs and no fewer than {LEAST_STEPS} steps, batch norm in training "
            f"mode, crops of {100 * chosen.smallest_crop:g} to 100 % of the area, {flips}{tested}"
        )

    def batches(self, count: int) -> int:
        """Return the number of batches of an epoch of ``count`` images."""
        return math.ceil(count / self.protocol.batch_size)


class ChosenRate(NamedTuple):
    """The learning rate that was best on held-out images."""

    rate: float
    # held-out, or mean AP, of each rate of the protocol, 0 if training diverged; empty if nothing was chosen
    accuracies: tuple[float, ...]


def light_views(dataset: str, protocol: FineTuningProtocol = FINE_TUNING["simclr"]) -> ViewsConfig:
    """Return the views that fine-tuning trains on, the same for every encoder.

    Images are flipped if the dataset's usual views flip them; images of unknown datasets are not, since a mirror image
    may have a different label. A protocol may flip all.
    """
    usual = USUAL_VIEWS.get(dataset)
    flip_rate = VIEW_RECIPES[usual].settings["flip_rate"] if usual else 0.0
    if protocol.flips_all:
        flip_rate = 0.5
    return ViewsConfig(crop_scale_min=protocol.smallest_crop, flip_rate=flip_rate)


def fine_tuned(
    encoder: nn.Module, labelled: ImageSet, task: FineTuningTask, *, rate: float, seed: int, what: str = "fine-tuning"
) -> nn.Module:
    """Return a trained copy of ``encoder`` with a linear layer, from preprocessed images (B, C, H, W) to logits (B, K).

    On a CPU, the same arguments give bitwise identical results: the order of the images and their views are derived
    from hashes, and all other random numbers are drawn from torch's generator, seeded with ``seed`` and restored
    afterwards. The seed is that of the linear layer, the order of the images, their views, and dropout.
    """
    check_images(labelled.images, task.preprocessing)
    if not any(parameter.requires_grad for parameter in encoder.parameters()):
        raise DataError(f"fine-tuning: an encoder with weights to train is needed, {type(encoder).__name__} has none")
    with draws_put_back(task.device):
        torch.manual_seed(int(hash_words(_LAYER_SALT, seed)))  # other random numbers than a new encoder's weights
        copied = copy.deepcopy(encoder).to(task.device)
        one = compute_features(copied, labelled.images[:1], task.preprocessing, batch_size=1, device=task.device)
        layer = nn.Linear(one.shape[1], task.num_classes)
        model: nn.Sequential = (
            nn.Sequential(copied, layer.to(task.device)).to(memory_format=torch.channels_last).train()
        )
        optimizer = _optimizer(model, task.protocol, rate)
        epochs, steps = task.epochs_for(len(labelled)), task.batches(len(labelled))
        for epoch in range(epochs):
            for step, rows in enumerate(_epoch(labelled.keys, seed, epoch, steps)):
                for group in optimizer.param_groups:
                    group["lr"] = learning_rate_at(
                        epoch * steps + step,
                        peak=rate,
                        num_steps=epochs * steps,
                        warmup_steps=0,
                        schedule=task.protocol.schedule,
                        final_rate=0.0,
                    )
                _step(model, optimizer, labelled.rows(rows), task, seed, epoch)
            task.on_progress(epoch + 1, epochs, what)
    return model.eval()


def predicted_logits(model: nn.Module, images: ImageSet, task: FineTuningTask) -> Tensor:
    """Return the logits (m, K) of each image, without augmentation."""
    pixels, seen = images.images, task.preprocessing
    if task.protocol.test_crop < 1:
        pixels = _central(pixels, task.protocol.test_crop)
        seen = replace(seen, read_size=seen.image_size if seen.read_size else 0)  # scaled once
    try:
        return compute_features(model, pixels, seen, batch_size=task.batch_size, device=task.device)
    except DivergedError as error:
        raise DivergedError(
            f"fine-tuning: training diverged, the network gives NaN or infinity for images of {images.name}; the "
            f"encoder's features are too large for rates of {min(task.protocol.rates):g} and more"
        ) from error


def choose_rate(
    encoder: nn.Module,
    fitted: ImageSet,
    held_out: ImageSet,
    task: FineTuningTask,
    *,
    seed: int,
    what: str = "fine-tuning",
) -> ChosenRate:
    """Return the learning rate with which a fine-tuned copy of ``encoder`` has the highest held-out accuracy.

    If no images are held out, it is the first rate.
    """
    rates = task.protocol.rates
    if len(held_out) == 0 or len(rates) == 1:
        return ChosenRate(rates[0], ())
    accuracies = []
    for rate in rates:
        model = fine_tuned(encoder, fitted, task, rate=rate, seed=seed, what=f"{what}, rate {rate:g}")
        try:
            accuracies.append(_score(predicted_logits(model, held_out, task), held_out))
        except DivergedError:
            accuracies.append(0.0)
    best = max(range(len(rates)), key=lambda place: accuracies[place])  # the first of equals
    return ChosenRate(rates[best], tuple(accuracies))


def _score(logits: Tensor, images: ImageSet) -> float:
    if images.marks is not None:
        return mean_precision(logits.double(), images.marks, images.class_names)
    return float((logits.argmax(dim=1) == images.labels).double().mean())


def _loss(logits: Tensor, batch: ImageSet) -> Tensor:
    if batch.marks is None:
        return functional.cross_entropy(logits, batch.labels.to(logits.device))
    marks = batch.marks.to(logits)
    counts = (marks >= 0).to(logits)
    found = functional.binary_cross_entropy_with_logits(logits, marks.clamp(min=0), counts, reduction="sum")
    return found / counts.sum().clamp(min=1)


def _central(images: Tensor, share: float) -> Tensor:
    """Return the central square of images (n, C, H, W) whose side is ``share`` of the shorter one."""
    height, width = images.shape[-2:]
    side = max(1, round(share * min(height, width)))
    top, left = (height - side) // 2, (width - side) // 2
    return images[..., top : top + side, left : left + side]


def _optimizer(model: nn.Module, protocol: FineTuningProtocol, rate: float) -> torch.optim.Optimizer:
    if protocol.optimizer == "nadam":
        return eager(torch.optim.NAdam)(model.parameters(), lr=rate, betas=(0.9, 0.999))
    return eager(torch.optim.SGD)(model.parameters(), lr=rate, momentum=0.9, nesterov=True)


def _epoch(keys: Tensor, seed: int, epoch: int, batches: int) -> Iterator[Tensor]:
    """Yield the rows (B,) of each batch of an epoch; batch sizes differ by at most one."""
    order = torch.argsort(hash_words(_ORDER_SALT, seed, epoch, keys), stable=True)
    yield from torch.tensor_split(order, batches)


def _step(
    model: nn.Module, optimizer: torch.optim.Optimizer, batch: ImageSet, task: FineTuningTask, seed: int, epoch: int
) -> None:
    pixels, keys = batch.images.to(task.device), batch.keys.to(task.device)
    pixels = task.preprocessing.as_read(pixels)
    views = make_views(
        pixels, keys, task.views, task.preprocessing, seed=seed, epoch=epoch, num_views=1, channels_last=True
    )
    loss = _loss(model(views[0]), batch)
    optimizer.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()


class Beginning(NamedTuple):
    """Initial weights of fine-tuning."""

    name: str
    title: str  # name of the trained result in tables
    encoder: Callable[[int], nn.Module]  # for a seed


def beginnings(subject: Subject) -> tuple[Beginning, Beginning]:
    """Return the encoder itself, and the same network with random weights."""
    trainable = any(parameter.requires_grad for parameter in subject.encoder.parameters())
    if subject.random_weights is None or not trainable:
        raise DataError(f"{subject.label}: there are no weights to fine-tune")
    return (
        Beginning("fine-tuned", "fine-tuned", lambda seed: subject.encoder),
        Beginning("from-scratch", "supervised from scratch", subject.random_weights),
    )


def task_on(measuring: Measuring) -> FineTuningTask:
    """Return the fine-tuning task on the dataset of ``measuring``, the same for all initial weights."""
    options, data = measuring.options, measuring.measured
    protocol = FINE_TUNING[options.fine_tuning]
    return FineTuningTask(
        num_classes=data.num_classes,
        preprocessing=measuring.subject.preprocessing,
        views=light_views(data.name, protocol),
        epochs=options.fine_tuning_epochs or protocol.epochs,
        batch_size=options.settings.batch_size,
        device=measuring.device,
        protocol=protocol,
        on_progress=measuring.on_progress,
    )


def within(logits: Tensor, labels: Tensor) -> Tensor:
    """Return whether each label has the largest logit, and one of the five largest, (2, n) bool."""
    hits = logits.sort(dim=1, descending=True, stable=True).indices == labels[:, None]  # equal ones as argmax has them
    return torch.stack([hits[:, 0], hits[:, :5].any(dim=1)])


def gain(name: str, title: str, right: dict[str, Tensor], measuring: Measuring, protocol: str) -> Number:
    """Return the gain in accuracy over training from scratch, paired by image, by answers (S, n) of both."""
    difference = right["fine-tuned"].double() - right["from-scratch"].double()
    keys = measuring.measured.test.keys
    number = mean_over_images(
        name, title, difference, keys, protocol=protocol, better="higher", unit="share", seeds=measuring.seeds
    )
    low, high = difference_over_images(difference.mean(dim=0).cpu().numpy(), CHANCE)
    return replace(number, low=low, high=high)


def choice_in_words(task: FineTuningTask, where: str) -> str:
    """Return how the learning rate is chosen, as text; ``where`` says on which images, empty if on none."""
    rates = sorted(task.protocol.rates)
    return f"chosen from {', '.join(f'{rate:g}' for rate in rates)} on {where}" if where and len(rates) > 1 else "fixed"


def measure(measuring: Measuring) -> Findings:
    """Return accuracies after fine-tuning and from scratch, on the card's dataset and on all further datasets."""
    both = beginnings(measuring.subject)
    numbers: list[Number] = []
    rows: list[tuple[str | float, ...]] = []
    remarks = []
    others = zip(short_names(measuring.others), measuring.others, strict=True)
    for prefix, data in [("", measuring.measured), *((f"{short}-", other) for short, other in others)]:
        if data.label_problem and not data.may_have_several_labels:
            remarks.append(data.label_problem)
            continue
        more, rates_tried = _on_one(measuring.elsewhere(data), both, prefix)
        numbers += more
        rows += rates_tried
    note = (
        "Each trained on the images that are not held out, with the first seed. No test image was looked at for this."
    )
    rates = task_on(measuring).protocol.rates
    columns = (
        "dataset",
        "weights",
        *(f"rate {rate:g}: held-out accuracy or mean AP, %" for rate in rates),
        "rate taken",
    )
    table = Table("Learning rates tried", columns, tuple(rows), note)
    return Findings(tuple(numbers), tables=(table,), remarks=tuple(remarks))


def _on_one(
    measuring: Measuring, both: tuple[Beginning, Beginning], prefix: str
) -> tuple[list[Number], list[tuple[str | float, ...]]]:
    data, seeds, task = measuring.measured, measuring.seeds, task_on(measuring)
    on = f" on {data.name}" if prefix else ""
    numbers, rows, right = [], [], {}
    for beginning in both:
        what = f"{beginning.title}, {data.name}"
        chosen = choose_rate(beginning.encoder(seeds[0]), *data.parts, task, seed=seeds[0], what=what)
        accuracies = chosen.accuracies or (None,) * len(task.protocol.rates)
        shares = ["not asked" if share is None else round(100 * share, 2) for share in accuracies]
        rows.append((data.name, beginning.title, *shares, f"{chosen.rate:g}"))
        logits = []
        for seed in seeds:
            named = f"{what}, seed {seed}"
            model = fine_tuned(beginning.encoder(seed), data.train, task, rate=chosen.rate, seed=seed, what=named)
            logits.append(predicted_logits(model, data.test, task))
        name, title = f"{prefix}{beginning.name}", f"{beginning.title}{on}"
        protocol = _protocol(beginning, data, task, chosen)
        if data.test.marks is not None:
            numbers += _mean_precisions(logits, data.test, data.test.marks, name, title, protocol, seeds)
            continue
        right[beginning.name] = torch.stack([within(each, data.test.labels)[0] for each in logits])
        numbers.append(accuracy(name, title, right[beginning.name], data.test.keys, protocol=protocol, seeds=seeds))
    if not right:
        return numbers, rows
    title = f"gain over the same network from scratch{on}"
    protocol = "right after fine-tuning minus right from scratch, image by image; both as above"
    return [*numbers, gain(f"{prefix}gain", title, right, measuring, protocol)], rows


def _mean_precisions(
    logits: list[Tensor], test: ImageSet, marks: Tensor, name: str, title: str, protocol: str, seeds: tuple[int, ...]
) -> list[Number]:
    numbers = []
    for key, (interpolation, words) in PRECISIONS.items():
        found = [
            float(average_precisions(each.double().cpu(), marks.cpu(), interpolation, test.class_names).mean())
            for each in logits
        ]
        std = stdev(found) if len(found) > 1 else None
        number = Number(f"{name}-{key}", f"{title}, {words}", mean(found), protocol, len(test), "higher")
        numbers.append(replace(number, seeds=seeds, per_seed=tuple(found), std=std))
    return numbers


def _protocol(beginning: Beginning, data: MeasuredSet, task: FineTuningTask, chosen: ChosenRate) -> str:
    begin = "the encoder's weights" if beginning.name == "fine-tuned" else "random weights, others for each seed"
    held_out = len(data.parts[1])
    choice = choice_in_words(task, f"{held_out:,} held-out training images" if held_out else "")
    loss = "" if data.train.marks is None else "mean logistic loss of the marks of all classes, "
    return (
        f"from {begin}: {loss}{task.in_words}; learning rate {chosen.rate:g}, {choice}; then trained on all "
        f"{len(data.train):,} training images"
    )


GROUP = Group(
    name="fine-tuning",
    title="Fine-tuning",
    doc="top 1, or mean AP, after all weights were trained on all labels, also on every further dataset, beside "
    "random weights",
    source="Chen et al. (2020), SimCLR, appendices B.5 and B.8.2, with small batches; FlatNCE, appendix E.3, by name",
    needs=(LABELS_OR_MARKS,),
    is_quick=False,
    measure=measure,
)


PERCENTS = (1, 10)

_COLOURS = {"frozen": BLUE, "fine-tuned": ORANGE, "from-scratch": GREY}


class _Measured(NamedTuple):
    """Results with one fraction of the labels."""

    lists: tuple[LabelList, ...]
    numbers: dict[str, Number]
    choices: dict[str, list[str]]


def measure_few_labels(measuring: Measuring) -> Findings:
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
    right, rates, task, data = [], [], task_on(measuring), measuring.measured
    for each in lists:
        labelled, folds = data.train.rows(each.rows), num_folds(each)
        held_out = each.fold(0, folds) if folds > 1 else torch.zeros(len(labelled), dtype=torch.bool)
        parts = labelled.rows(~held_out), labelled.rows(held_out)  # no label outside the list is used
        what = f"{beginning.title}, {len(labelled):,} labels, list {each.seed}"
        encoder = beginning.encoder(each.seed)
        rate = choose_rate(encoder, *parts, task, seed=each.seed, what=what).rate
        rates.append(f"{rate:g}")
        model = fine_tuned(encoder, labelled, task, rate=rate, seed=each.seed, what=what)
        right.append(within(predicted_logits(model, data.test, task), data.test.labels))
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


FEW_LABELS = Group(
    name="few-labels",
    title="Few labels",
    doc="top 1 and top 5 with 1 % and 10 % of the labels: logistic regression on frozen features, all weights "
    "fine-tuned, and the same network from scratch",
    source="Chen et al. (2020), SimCLR, section 4.3 and appendix B.5; lists by hash in place of published ones",
    needs=(LABELS,),
    is_quick=False,
    looks_at=("train", "test"),
    measure=measure_few_labels,
)

"""Fine-tuning: accuracy after training all weights on all labels, compared with random initialization."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from statistics import mean, stdev
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ebclab.card.card import Findings, Number, accuracy, mean_over_images
from ebclab.card.groups.transfer import PRECISIONS
from ebclab.card.images import MeasuredSet, short_names
from ebclab.card.measuring import Group, Measuring
from ebclab.card.subject import Subject
from ebclab.data.image_set import ImageSet
from ebclab.document.document import Table
from ebclab.errors import DataError
from ebclab.evaluation.comparison import CHANCE
from ebclab.evaluation.fine_tuning import (
    ChosenRate,
    FineTuningTask,
    choose_rate,
    fine_tuned,
    light_views,
    predicted_logits,
)
from ebclab.evaluation.multi_label import average_precisions
from ebclab.evaluation.protocols import FINE_TUNING
from ebclab.evaluation.seeds_and_images import difference_over_images


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
    )


def chosen_rate(
    beginning: Beginning, fitted: ImageSet, held_out: ImageSet, measuring: Measuring, *, seed: int, what: str
) -> ChosenRate:
    """Return the learning rate that is best on held-out images."""
    encoder, task = beginning.encoder(seed), task_on(measuring)
    return choose_rate(encoder, fitted, held_out, task, seed=seed, on_progress=measuring.on_progress, what=what)


def logits_of_test_images(
    beginning: Beginning, labelled: ImageSet, measuring: Measuring, *, rate: float, seed: int, what: str
) -> Tensor:
    """Return the logits (n, K) of the test images after training on ``labelled``."""
    task, encoder = task_on(measuring), beginning.encoder(seed)
    model = fine_tuned(encoder, labelled, task, rate=rate, seed=seed, on_progress=measuring.on_progress, what=what)
    return predicted_logits(model, measuring.measured.test, task)


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
    """Return the metrics on one dataset, and table rows of the learning rates tried."""
    data, seeds = measuring.measured, measuring.seeds
    on = f" on {data.name}" if prefix else ""
    numbers, rows, right = [], [], {}
    for beginning in both:
        what = f"{beginning.title}, {data.name}"
        chosen = chosen_rate(beginning, *data.parts, measuring, seed=seeds[0], what=what)
        accuracies = chosen.accuracies or (None,) * len(task_on(measuring).protocol.rates)
        shares = ["not asked" if share is None else round(100 * share, 2) for share in accuracies]
        rows.append((data.name, beginning.title, *shares, f"{chosen.rate:g}"))
        logits = [
            logits_of_test_images(
                beginning, data.train, measuring, rate=chosen.rate, seed=seed, what=f"{what}, seed {seed}"
            )
            for seed in seeds
        ]
        name, title = f"{prefix}{beginning.name}", f"{beginning.title}{on}"
        protocol = _protocol(beginning, data, task_on(measuring), chosen)
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
    needs=("labels or marks",),
    is_quick=False,
    measure=measure,
)

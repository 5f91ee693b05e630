"""Before a sweep starts: what it is launched with, checks of that, and how long it will take.

The checks are made so that its trials do not all fail for the same reason.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from ebclab.config import ExperimentConfig
from ebclab.config.recipes import fitting_warmup
from ebclab.data.class_labels import num_unlabelled
from ebclab.data.fitting import fitting_batch
from ebclab.data.holdout import Split, limit
from ebclab.data.preprocessing import preprocessing_for
from ebclab.errors import ConfigError, UserError
from ebclab.evaluation.evaluate import evaluate_encoder
from ebclab.evaluation.features import compute_features, placed
from ebclab.evaluation.monitor import require_images
from ebclab.evaluation.objectives import NEED_LABELS, labels_problem
from ebclab.hardware import num_cores, resolve_device, set_threads
from ebclab.runs.initial_weights import InitialWeights
from ebclab.runs.trained_encoder import untrained_encoder
from ebclab.sweeps.display import SweepDisplay
from ebclab.sweeps.folder import SweepFolder
from ebclab.sweeps.plan import WARMUP, SweepPlan, trial_config
from ebclab.sweeps.resources import Limits
from ebclab.sweeps.space.space import SHIPPED, Point, Settings
from ebclab.training.captured import AS_THEY_ARE
from ebclab.training.loggers import require_installed
from ebclab.training.loop import train_step
from ebclab.training.setup import LargeBatchError, prepare, require_batches
from energy_contrast.method import Method

BATCH_SIZE = "training.batch_size"


class WarmStart(NamedTuple):
    """An earlier sweep that a sweep learns from."""

    address: str | None = None  # None if there is none
    results: Sequence[tuple[Point, float]] = ()  # its points in the space of the new sweep, and their objectives


@dataclass(frozen=True)
class SweepLaunch:
    """What a launch trains, and with what."""

    folder: SweepFolder
    plan: SweepPlan
    methods: Mapping[str, type[Method]]
    split: Split
    display: SweepDisplay
    limits: Limits
    warm_start: WarmStart
    weights: InitialWeights | None  # initial weights of all trials' encoders; None means random weights

    def require_runnable(self) -> list[str]:
        """Refuse trials that could not be trained on the images or not be judged by them; return warnings."""
        return require_runnable(self.plan, self.split, self.methods, self.weights)


def require_runnable(
    plan: SweepPlan, split: Split, methods: Mapping[str, type[Method]], weights: InitialWeights | None = None
) -> list[str]:
    """Refuse a sweep whose trials could not be trained on these images or not be judged by them; return warnings."""
    require_judgeable(plan, split)
    return require_trainable(plan, split, methods, weights)


def require_judgeable(plan: SweepPlan, split: Split) -> None:
    """Check that the objective can be measured on the images, and that the loggers are installed."""
    require_installed(plan.config.training.loggers)
    objective = plan.config.evaluation.objective
    if len(split.holdout) == 0:
        raise UserError(
            f"data.holdout_rate: a sweep chooses by held-out images, got none of {len(split.train):,}; "
            "hold a larger share out"
        )
    if plan.config.data.confirm_rate and not (split.confirm and len(split.confirm)):
        raise UserError(
            f"data.confirm_rate: confirming runs have no images to be scored on, got none of {len(split.train):,}; "
            "keep a larger share for them"
        )
    parts = [part.labels for part in (split.train, split.holdout, split.confirm) if part]
    unlabelled = num_unlabelled(torch.cat(parts))
    if objective in NEED_LABELS and unlabelled:
        raise UserError(
            f"evaluation.objective: {objective} needs labels of two classes, got {unlabelled:,} images without; "
            "use effective_rank or alignment_uniformity"
        )
    if problem := labels_problem(plan.config.evaluation, unlabelled):
        raise UserError(problem)
    for scored in (split.holdout, split.confirm):
        if scored is not None:
            require_images(split.train, scored, plan.config.evaluation)


def require_trainable(
    plan: SweepPlan, split: Split, methods: Mapping[str, type[Method]], weights: InitialWeights | None = None
) -> list[str]:
    """Refuse a space or a budget with which trials could not be trained; return warnings.

    Each setting is tried at both ends of its range, with all others at the run's own values: the method is built, its
    batches must fit the images and the groups of batch norm, and its memories must fit the device. The initial weights
    must fit the network.
    """
    method_class = methods[plan.config.method_name]
    own: list[str] = []  # problems of the run's own settings; reported once, not for every end
    small, large = set[int](), set[int]()  # batch sizes for which the images are enough, or too few
    problems: dict[str, None] = {}  # ordered, each line once
    warnings = list(_shorter_warmup(plan))
    for settings in _one_at_a_time(plan):
        named = ", ".join(f"{name}={value}" for name, value in settings.items()) or "the run's own settings"
        try:
            for epochs in {plan.epochs, plan.config.training.epochs}:
                config = trial_config(plan.config, settings, seed=plan.config.seed, epochs=epochs)
            warning = require_batches(config, method_class, split, weights)
            small.add(config.training.batch_size)
            if warning and warning not in warnings:
                warnings.append(f"{plan.space.where}, {named}: {warning}" if settings else warning)
        except LargeBatchError:
            large.add(config.training.batch_size)
        except ConfigError as error:
            new = [line for line in error.problems if line not in own]
            problems |= dict.fromkeys(f"{plan.space.where}, {named}: {line}" for line in new)
            own = own if settings else error.problems
    if large:
        problems[_large_batches(plan, small - large, large, len(split.train))] = None
    if problems:
        raise ConfigError(list(problems))
    return warnings


def _large_batches(plan: SweepPlan, small: set[int], large: set[int], images: int) -> str:
    """Return the line about batch sizes for which the training images are too few; for ``small`` ones they are not."""
    size, remedies = fitting_batch(images, images), list[str]()
    if searched := plan.space.by_name.get(BATCH_SIZE):
        kept = f"leave {BATCH_SIZE} out"
        if len(chosen := [each for each in searched.choices if each in small]) > 1:
            kept, size = f"write {BATCH_SIZE}: {{choice: {chosen}}}", chosen[-1]
        remedies.append(f"in a space of your own, named by --space ({SHIPPED} has some to copy), {kept}")
    if plan.config.training.batch_size in large:
        remedies.append(f"add --set {BATCH_SIZE}={size}")
    got = ", ".join(map(str, sorted(large)))
    return (
        f"{plan.space.where}: {BATCH_SIZE}: the {images:,} training images are too few for a batch and the method's "
        f"proposals, got {got}; {' and '.join(remedies)}"
    )


def _shorter_warmup(plan: SweepPlan) -> Iterator[str]:
    """Yield a line if trials of the search are shorter than the warm-up, which is then shortened in them."""
    usual, whole = plan.config.optimizer.warmup_epochs, plan.config.training.epochs
    shorter = fitting_warmup(usual, whole, plan.epochs)
    if shorter != usual and WARMUP not in plan.space.by_name:
        yield (
            f"{WARMUP}: {shorter:g} instead of {usual:g} in the search, since --epochs is {plan.epochs} instead of "
            f"the run's {whole}"
        )


def _one_at_a_time(plan: SweepPlan) -> Iterator[Settings]:
    yield {}
    own = plan.start
    point = plan.space.point_of(own)
    for moved in plan.space.ends_beside(point) if point else ():
        yield {name: value for name, value in plan.space.settings(moved).items() if value != own[name]}


_MEASURE_SECONDS = 3.0
_MOST_STEPS = 20
_SAMPLED = 1024  # images
_FORWARD_SHARE = 1 / 6  # cost of one image forward, as a share of a step with two views and a backward pass


def epoch_seconds(
    config: ExperimentConfig, split: Split, methods: Mapping[str, type[Method]], *, threads: int
) -> float:
    """Return about how long an epoch of a run takes in this process, scoring included, from a few steps.

    Trials with other batch sizes or memories may be slower or faster.
    """
    device = resolve_device(config.resources.device, deterministic=config.resources.deterministic)
    set_threads(min(threads, num_cores()))  # machines of the cluster may have more cores
    enough = _MOST_STEPS + AS_THEY_ARE + 2
    longer = replace(config, training=replace(config.training, epochs=max(config.training.epochs, enough)))
    prepared = prepare(longer, device, split, methods[config.method_name])
    prepared.training.method.start(prepared.draw)
    for _ in range(1 if prepared.training.captured is None else AS_THEY_ARE + 1):  # the last of these is recorded
        float(train_step(prepared.training)["loss"])  # the first allocates memory; a number waits for the device
    steps, started = 0, time.perf_counter()
    while steps < _MOST_STEPS and (steps == 0 or time.perf_counter() - started < _MEASURE_SECONDS):
        float(train_step(prepared.training)["loss"])
        steps += 1
    step_seconds = (time.perf_counter() - started) / steps
    scored = min(len(split.train), config.evaluation.knn_bank_limit or len(split.train)) + len(split.holdout)
    score_seconds = step_seconds / config.training.batch_size * _FORWARD_SHARE * scored
    return step_seconds * prepared.training.data.num_batches + score_seconds


def reading_seconds(config: ExperimentConfig, probe: str, split: Split, num_test: int) -> float:
    """Return about how long one run's reading of the test images takes in this process, from a part of the images.

    The features of all labelled and test images are computed; the work of kNN grows with the product of both numbers.
    """
    labelled, sample = sum(map(len, split.parts)), limit(split.train, _SAMPLED)
    device, seen = resolve_device(config.resources.device), preprocessing_for(config.views, sample)
    encoder = placed(untrained_encoder(config, sample.images.shape[1], seen.image_size), device)
    settings = replace(config.evaluation, knn_neighbours=min(config.evaluation.knn_neighbours, len(sample)))

    def features(images: Tensor) -> float:
        started = time.perf_counter()
        compute_features(encoder, images, seen, batch_size=settings.batch_size, device=device)
        return time.perf_counter() - started

    features(sample.images[: settings.batch_size])  # the first batch allocates memory
    of_features, started = features(sample.images), time.perf_counter()
    evaluate_encoder(encoder, sample, sample, seen, settings, device=device, only=(probe,))
    of_probe = max(0.0, time.perf_counter() - started - 2 * of_features)
    larger = labelled * num_test / len(sample) ** 2 if probe == "knn" else labelled / len(sample)
    return of_features * (labelled + num_test) / len(sample) + of_probe * larger

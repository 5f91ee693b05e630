"""Forecasts how long training and reading test images take, from a few steps measured on this machine."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace

from torch import Tensor

from ebclab.config import ExperimentConfig
from ebclab.data.holdout import Split, limit
from ebclab.data.preprocessing import preprocessing_for
from ebclab.evaluation.evaluate import evaluate_encoder
from ebclab.evaluation.features import compute_features
from ebclab.hardware import num_cores, resolve_device, set_threads
from ebclab.runs.trained_encoder import untrained_encoder
from ebclab.training.captured import AS_THEY_ARE
from ebclab.training.loop import train_step
from ebclab.training.setup import prepare
from energy_contrast.method import Method

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
    encoder = untrained_encoder(config, sample.images.shape[1], seen.image_size).to(device)
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

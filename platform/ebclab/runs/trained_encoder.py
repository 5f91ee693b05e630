"""Reads the trained encoder back from a run folder, with everything needed to use it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from ebclab.config import ExperimentConfig
from ebclab.data.preprocessing import Preprocessing
from ebclab.encoders.build import differences, first_of, seeded_encoder
from ebclab.errors import RunError
from ebclab.runs import checkpoint
from ebclab.runs.folder import RunFolder
from ebclab.storage.reading import typed
from energy_contrast.method import Method

_PREFIX = "encoder."
_LARGEST_SIDE = 1 << 14  # pixels
_MOST_CLASSES = 1 << 20


@dataclass(frozen=True, kw_only=True)
class _Facts:
    """Facts in a checkpoint about its weights and about the images that its encoder takes."""

    in_channels: int
    image_size: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    epochs_done: int  # epochs behind its weights
    data_digest: str = ""  # digest of the images that it was trained on; empty if there is none
    num_classes: int = 0  # number of classes of a method that read labels; else 0
    # what was wrong with the run when the checkpoint was saved, e.g. that it had collapsed
    findings: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class TrainedEncoder(_Facts):
    """The encoder of a run."""

    encoder: nn.Module  # the network, in evaluation mode
    preprocessing: Preprocessing  # prepares images for it
    config: ExperimentConfig  # the run's settings
    kind: checkpoint.Kind  # the kind of checkpoint that it was read from
    step: int  # optimizer steps behind its weights
    finished: bool  # whether the run has finished


def load_trained_encoder(
    run: RunFolder,
    kind: checkpoint.Kind = "last",
    methods: Mapping[str, type[Method]] | None = None,
    step: int | None = None,
) -> TrainedEncoder:
    """Rebuild the encoder of a run from its newest intact checkpoint of ``kind``, or from the one after ``step`` steps.

    A run whose method is not in the catalogue needs ``methods``.
    """
    config = run.read_config(methods)
    saved = run.load(kind, step)
    if saved is None and step is not None:
        raise RunError(f"{run.address}: no {kind} checkpoint after step {step}; train it with training.keep_every")
    if saved is None:
        raise RunError(f"{run.address}: the run has no {kind} checkpoint yet; train it first")
    facts = _read_facts(saved.facts, run.address, saved.step)
    encoder = untrained_encoder(config, facts.in_channels, facts.image_size)
    weights = encoder_weights(saved)
    if differing := differences(encoder.state_dict(), weights, types=True):
        raise RunError(
            f"{run.address}: the checkpoint at step {saved.step} does not hold the encoder of config.yaml, got "
            f"{first_of(differing, most=1)}; restore config.yaml, or "
            "delete the checkpoint's folder"
        )
    encoder.load_state_dict(weights)
    return TrainedEncoder(
        encoder=encoder.eval(),
        preprocessing=Preprocessing(facts.image_size, facts.mean, facts.std, config.data.resize, config.data.decoding),
        config=config,
        kind=kind,
        step=saved.step,
        finished=run.result.exists(),
        **vars(facts),
    )


def _read_facts(content: Mapping[str, Any], where: str, step: int) -> _Facts:
    try:
        facts = typed(content, _Facts)
    except ValueError as error:
        raise RunError(f"{where}: the checkpoint at step {step} is damaged, {error}; delete its folder") from error
    numbers = (*facts.mean, *facts.std)
    is_fitting = len(facts.mean) == len(facts.std) == facts.in_channels and facts.image_size in range(1, _LARGEST_SIDE)
    if facts.num_classes not in range(_MOST_CLASSES):
        raise RunError(
            f"{where}: the checkpoint at step {step} is damaged, got {facts.num_classes} classes; delete its folder"
        )
    if not is_fitting or not all(map(math.isfinite, numbers)) or min(facts.std) <= 0:
        raise RunError(
            f"{where}: the checkpoint at step {step} is damaged, got images of {facts.in_channels} channels and "
            f"{facts.image_size} pixels with mean {facts.mean} and std {facts.std}; delete its folder"
        )
    return facts


def encoder_weights(saved: checkpoint.Checkpoint) -> dict[str, Tensor]:
    """Return only the weights of the encoder, under its own parameter names."""
    return {key.removeprefix(_PREFIX): value for key, value in saved.model.items() if key.startswith(_PREFIX)}


def untrained_encoder(config: ExperimentConfig, in_channels: int, image_size: int) -> nn.Module:
    """Return the run's encoder with the random weights of its seed, as before the first step without ``init``."""
    with seeded_encoder(config.encoder, config.seed, in_channels, image_size) as encoder:
        return encoder.eval()

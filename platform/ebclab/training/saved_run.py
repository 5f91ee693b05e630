"""A run folder read back: the trained encoder and what is needed to use it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import nn

from ebclab.config import ExperimentConfig
from ebclab.data.preprocessing import Preprocessing
from ebclab.errors import RunError
from ebclab.training import checkpoint
from ebclab.training.prepare import new_encoder
from ebclab.training.run_folder import RunFolder
from energy_contrast.method import Method

_PREFIX = "encoder."


@dataclass(frozen=True)
class TrainedEncoder:
    """An encoder as a run left it.

    Attributes:
        encoder: In evaluation mode.
        preprocessing: What it expects of images.
        config: The run's settings.
        in_channels: Channels of its input.
        step: Optimizer steps done.
        epochs_done: Epochs done.
        finished: The run has finished.
    """

    encoder: nn.Module
    preprocessing: Preprocessing
    config: ExperimentConfig
    in_channels: int
    step: int
    epochs_done: int
    finished: bool


def load_trained_encoder(
    run: RunFolder, kind: checkpoint.Kind = "last", methods: Mapping[str, type[Method]] | None = None
) -> TrainedEncoder:
    """Rebuild the encoder of a run from its newest sound checkpoint of ``kind``.

    Args:
        run: The run folder.
        kind: "last", "best" (by held-out kNN) or "kept".
        methods: Own methods by name, when the run was not made with one of the catalogue.

    Raises:
        RunError: There is no run or no such checkpoint.
    """
    config = run.read_config(methods)
    found = checkpoint.load(run.checkpoints, kind)
    if found is None:
        raise RunError(f"{run.path}: the run has no {kind} checkpoint yet; train it first")
    facts = found.facts
    encoder = untrained_encoder(config, facts["in_channels"])
    weights = {key.removeprefix(_PREFIX): v for key, v in found.model.items() if key.startswith(_PREFIX)}
    encoder.load_state_dict(weights)
    return TrainedEncoder(
        encoder=encoder.eval(),
        preprocessing=Preprocessing(facts["image_size"], tuple(facts["mean"]), tuple(facts["std"])),
        config=config,
        in_channels=facts["in_channels"],
        step=found.step,
        epochs_done=facts["epochs_done"],
        finished=run.result_path.exists(),
    )


def untrained_encoder(config: ExperimentConfig, in_channels: int) -> nn.Module:
    """Return the run's encoder as it was before its first step."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        return new_encoder(config.encoder, in_channels).eval()

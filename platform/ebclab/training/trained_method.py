"""Rebuilds the whole method of a run (encoder, heads, banks) without reading images."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch

from ebclab.config.experiment import methods_of
from ebclab.errors import RunError
from ebclab.runs.checkpoint import Checkpoint
from ebclab.runs.folder import RunFolder
from ebclab.runs.trained_encoder import TrainedEncoder
from ebclab.training.fitting import load_model
from ebclab.training.setup import build_method
from energy_contrast.method import Method


def load_trained_method(
    run: RunFolder,
    trained: TrainedEncoder,
    device: torch.device,
    methods: Mapping[str, type[Method]] | None = None,
) -> Method:
    """Return the method that ``trained`` is the encoder of, from the same checkpoint, in eval mode.

    Its memories (replay buffers) are empty, since filling them would need training images.

    Args:
        trained: The encoder, as read from there.
        methods: Own methods by name, for a run whose method is not in the catalogue.
    """
    return method_from(weights_behind(run, trained), trained, device, run.address, methods)


def weights_behind(run: RunFolder, trained: TrainedEncoder) -> Checkpoint:
    """Return the checkpoint that an encoder was read from, without the state that only training needs."""
    saved = run.load(trained.kind)
    if saved is None or saved.step != trained.step:
        found = "none" if saved is None else f"step {saved.step}"
        raise RunError(
            f"{run.address}: the {trained.kind} checkpoint was of step {trained.step} a moment ago, got {found}; "
            "the run continues, measure it again when it has finished"
        )
    return replace(saved, state=None, memories={})


def method_from(
    saved: Checkpoint,
    trained: TrainedEncoder,
    device: torch.device,
    where: str,
    methods: Mapping[str, type[Method]] | None = None,
) -> Method:
    """Return the method of a checkpoint, in eval mode, its memories empty.

    Args:
        saved: The checkpoint behind ``trained``.
        trained: The method's encoder.
        where: The run, for messages.
        methods: Own methods by name.
    """
    config = replace(trained.config, training=replace(trained.config.training, compile=False))
    preprocessing, classes = trained.preprocessing, trained.num_classes
    method_class = methods_of(config, (methods or {}).get(config.method_name))[config.method_name]
    method = build_method(
        config, method_class, trained.in_channels, device, preprocessing.image_size, num_classes=classes
    )
    load_model(method, saved, where)
    method.pixel_range = preprocessing.pixel_range
    return method.eval()

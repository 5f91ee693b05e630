"""Rebuilds the whole method of a run, heads and banks beside the encoder, without reading images."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch

from ebclab.errors import RunError
from ebclab.runs.folder import RunFolder
from ebclab.runs.trained_encoder import TrainedEncoder
from ebclab.training.fitting import load_model
from ebclab.training.setup import build_method
from energy_contrast.catalog import METHODS
from energy_contrast.method import Method


def load_trained_method(
    run: RunFolder,
    trained: TrainedEncoder,
    device: torch.device,
    methods: Mapping[str, type[Method]] | None = None,
) -> Method:
    """Return the method whose encoder ``trained`` is, from the same checkpoint, in eval mode.

    Its memories (replay buffers) are empty: they begin with training images, which are not read.

    Args:
        run: The run folder.
        trained: The encoder, as it was read from there.
        device: Where the method goes.
        methods: Own methods by name, for a run whose method is not in the catalogue.

    Raises:
        RunError: The checkpoint is gone, or does not fit the settings.
    """
    config = replace(trained.config, training=replace(trained.config.training, compile=False))
    saved = run.load(trained.kind)
    if saved is None or saved.step != trained.step:
        found = "none" if saved is None else f"step {saved.step}"
        raise RunError(
            f"{run.address}: the {trained.kind} checkpoint was of step {trained.step} a moment ago, got {found}; "
            "the run goes on, measure it again when it has finished"
        )
    preprocessing, classes = trained.preprocessing, trained.num_classes
    method_class = {**METHODS, **(methods or {})}[config.method_name]
    method = build_method(
        config, method_class, trained.in_channels, device, preprocessing.image_size, num_classes=classes
    )
    load_model(method, saved, run.address)
    method.pixel_range = preprocessing.pixel_range
    return method.eval()

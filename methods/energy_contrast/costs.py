"""What a method costs at its default settings: passes through the encoder, copies of it, and memory."""

from __future__ import annotations

from typing import NamedTuple

import torch

from energy_contrast.method import Method, Passes
from energy_contrast.networks.encoders import build_encoder


class Costs(NamedTuple):
    """What a method costs beside the network that it trains.

    Attributes:
        passes: Images passed through the encoder and its copies, for each image of the batch.
        num_copies: Number of slow copies of the encoder.
        kept_bytes: Bytes that each rank keeps from step to step, networks not counted.
    """

    passes: Passes
    num_copies: int
    kept_bytes: int


def default_costs(method: type[Method], shape: tuple[int, int, int], num_images: int) -> Costs:
    """Return what a method costs at its default settings. It is built with a small encoder; no step is run.

    Args:
        method: Its class.
        shape: (C, H, W) of a view.
        num_images: Images of the training set.

    >>> from energy_contrast.contrastive.simclr import Simclr
    >>> default_costs(Simclr, (3, 32, 32), 50_000)
    Costs(passes=Passes(forward=2, backward=2), num_copies=0, kept_bytes=0)

    Source: ours.
    """
    config, classes = method.Config(), (2,) if method.needs_labels else ()
    with torch.random.fork_rng(devices=[]):
        encoder = build_encoder("small", in_channels=shape[0])
        built = method(config, encoder, *classes)
    num_copies = sum(type(part) is type(encoder) for part in built.children()) - 1
    return Costs(method.passes(config), num_copies, built.kept_bytes(shape, num_images))

"""Measures raw pixels and the untrained encoder: features that no one trained, by the same protocol as runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn

from ebclab.config import ExperimentConfig
from ebclab.data.holdout import limit
from ebclab.data.image_set import ImageSet
from ebclab.data.photograph import Reading
from ebclab.data.preprocessing import Preprocessing, preprocessing_for
from ebclab.data.sources.load import load_both
from ebclab.errors import DataError, EbclabError, RunError, TrainingError, UserError
from ebclab.evaluation.evaluate import evaluate_encoder
from ebclab.evaluation.features import placed
from ebclab.evaluation.progress import OnProgress, in_lines, silent
from ebclab.formatting import size
from ebclab.hardware import free_bytes, num_cores, resolve_device, set_threads
from ebclab.runs.jobs import Each, Kept, one_by_one
from ebclab.runs.references import PIXELS, REFERENCES, Name, Protocol, Reference, References, seed_of
from ebclab.runs.trained_encoder import untrained_encoder


def measure_references(
    path: Path, protocol: Protocol, seeds: Sequence[int], on_progress: OnProgress = silent, each: Each = one_by_one
) -> References:
    """Measure the references of runs that ``path`` does not have yet; each is written as soon as it is known.

    An error of one of them is raised when the others have been measured.
    """
    known, errors = References.read(path), list[EbclabError]()
    wanted = dict.fromkeys((name, seed_of(name, seed)) for name in REFERENCES for seed in seeds)
    there = {(each.name, each.key, each.seed) for each in known.references}
    missing = [(name, seed) for name, seed in wanted if (name, protocol.key(name), seed) not in there]
    for _, outcome in each(partial(_measured, protocol, Kept(load_both), on_progress), missing):
        if isinstance(outcome, EbclabError):
            errors.append(outcome)
            continue
        known = References((*known.references, outcome))
        known.write(path)
    if errors:
        raise errors[0]
    return known


def _measured(
    protocol: Protocol, load: Kept[tuple[ImageSet, ImageSet]], on_progress: OnProgress, job: tuple[Name, int]
) -> Reference:
    """Return what a reference of these initial weights scores."""
    (name, seed), config = job, protocol.config

    def report(done: int, total: int, what: str) -> None:
        on_progress(done, total, f"{name}: {what}")

    train, test = load(config.data.name, config.data.root, Reading.of(config.data))
    train = limit(train, protocol.train_limit)
    if name == PIXELS:
        _require_room(train, test)
    device = resolve_device(config.resources.device)
    set_threads(min(config.resources.threads, num_cores()))
    encoder, as_input = reference_encoder(name, replace(config, seed=seed), preprocessing_for(config.views, train))
    rows = evaluate_encoder(
        placed(encoder, device),
        train,
        test,
        as_input,
        config.evaluation,
        device=device,
        only=(protocol.probe,),
        seed=seed,
        on_progress=report,
    )
    score = rows[protocol.probe]
    if score.answers is None:
        raise RunError(f"{name}: the probe {protocol.probe} does not say which images it is right about")
    return Reference(name, protocol.key(name), seed, score.value, score.answers)


def pixel_bytes(*parts: ImageSet) -> int:
    """Return the size of raw pixels as features, in float32."""
    return 4 * sum(part.images.numel() for part in parts)


def _require_room(*parts: ImageSet) -> None:
    """Refuse raw pixels that would take more than half of the free memory: probes hold them twice."""
    needed, free = pixel_bytes(*parts), free_bytes(torch.device("cpu"))
    if 2 * needed > free:
        raise DataError(
            f"{PIXELS} of {parts[0].name}: do not fit into memory twice, got {size(needed)}, {size(free)} free"
        )


def try_references(
    path: Path,
    wanted: Iterable[tuple[Protocol, Sequence[int]]],
    say: Callable[[str], None],
    each: Each = one_by_one,
) -> None:
    """Measure the references of runs of several protocols, each with its seeds; a failure is only said, once."""
    said = set[str]()
    for protocol, seeds in wanted:
        try:
            measure_references(path, protocol, seeds, in_lines(say) if each is one_by_one else silent, each)
        except (UserError, TrainingError) as error:
            if str(error) not in said:
                say(f"not all of raw pixels and the untrained encoder were measured: {error}")
            said.add(str(error))


class _Pixels(nn.Module):
    """Flattened pixels as the embedding (B, C * H * W)."""

    def forward(self, images: Tensor) -> Tensor:
        return images.flatten(1)


def pixels_of(preprocessing: Preprocessing) -> tuple[nn.Module, Preprocessing]:
    """Return raw pixels in [0, 1] as an encoder, with the preprocessing that they need."""
    channels = len(preprocessing.mean)
    return _Pixels().eval(), replace(preprocessing, mean=(0.0,) * channels, std=(1.0,) * channels)


def reference_encoder(
    name: Name, config: ExperimentConfig, preprocessing: Preprocessing
) -> tuple[nn.Module, Preprocessing]:
    """Return a reference beside a run, with its preprocessing; raw pixels are those of images as they are stored."""
    if name == PIXELS:
        return pixels_of(replace(preprocessing, image_size=0, read_size=0))
    return untrained_encoder(config, len(preprocessing.mean), preprocessing.image_size), preprocessing

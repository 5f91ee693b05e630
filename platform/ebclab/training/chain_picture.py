"""Draws chains of images as the sampler of a trained run moves them, into a picture in the run folder."""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import torch

from ebclab.config.experiment import methods_of
from ebclab.data.own_images import Images
from ebclab.errors import RunError, UserError
from ebclab.evaluation.chain_picture import draw_chains
from ebclab.hardware import num_cores, resolve_device, set_threads
from ebclab.methods_by_name import catalogue
from ebclab.runs import checkpoint
from ebclab.runs.folder import RunFolder
from ebclab.storage import atomic
from ebclab.training.fitting import load_model
from ebclab.training.setup import prepare
from energy_contrast.method import Method
from energy_contrast.sampling_method import SamplingMethod

FILE = "chains.png"
_NUM_CHAINS = 8
_NUM_STEPS = 40


def picture_chains(
    where: str | Path,
    *,
    checkpoint_kind: checkpoint.Kind = "last",
    data_root: str | Path | None = None,
    images: Images | None = None,
    methods: Mapping[str, type[Method]] | None = None,
) -> str:
    """Draw chains that start at views of training images, and return the path or address of the picture.

    Args:
        where: The run: its folder, or its address in an object store.
        checkpoint_kind: "last" or "best".
        data_root: Folder that holds datasets; None means the run's own.
        images: The run's own training images in place of its dataset.
        methods: Own methods by name, for runs that were made with one.

    Raises:
        UserError: There is no such run or checkpoint, or its method moves no images.
    """
    run = RunFolder.at(where).of("reader").pull((checkpoint_kind,))
    config = run.read_config({**catalogue(), **(methods or {})})
    known = methods_of(config, (methods or {}).get(config.method_name))
    if data_root is not None:
        config = replace(config, data=replace(config.data, root=str(data_root)))
    method_class = known[config.method_name]
    if not _moves_images(method_class):
        able = ", ".join(name for name, each in known.items() if _moves_images(each))
        raise UserError(f"--only: chains of images are drawn for {able}, got a run of {config.method_name}")
    saved = run.load(checkpoint_kind)
    if saved is None:
        raise RunError(f"{run.address}: the run has no {checkpoint_kind} checkpoint yet; train it first")
    device = resolve_device(config.resources.device)
    set_threads(min(config.resources.threads, num_cores()))  # the run's machine may have more
    training = prepare(config, device, images, method_class).training
    method = training.method
    load_model(method, saved, run.address)
    generator = torch.Generator(device=device).manual_seed(config.seed)
    pixels = method.pixel_range
    batch = training.data.batch(0, 0)
    trace = method.eval().trace_chains(batch, generator, _NUM_STEPS) if isinstance(method, SamplingMethod) else None
    if trace is None or pixels is None:
        raise UserError(f"--only: no image moves in this run, got method {config.method_name}")
    few = trace._replace(positions=trace.positions[:, :_NUM_CHAINS], energies=trace.energies[:, :_NUM_CHAINS])
    try:
        picture = io.BytesIO()
        draw_chains(few, pixels).save(picture, "PNG")
        atomic.write_bytes(run.path / FILE, picture.getvalue())
    except OSError as error:
        raise RunError(
            f"{run.address_of(run.path / FILE)}: cannot be written, got {error.strerror or error}; make room, or copy "
            "the run to a disk that can be written to"
        ) from error
    run.send(FILE)
    return str(run.path / FILE) if run.remote is None else (run.remote / FILE).address


def _moves_images(method_class: type[Method]) -> bool:
    return issubclass(method_class, SamplingMethod) and method_class.trace_chains is not SamplingMethod.trace_chains

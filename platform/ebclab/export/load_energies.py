"""Loads the energies of a run or of an exported folder."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from ebclab.config.addresses import expanded, is_address, name_hosts
from ebclab.data.holdout import limit, limited
from ebclab.data.image_set import STREAMED
from ebclab.data.photograph import Reading
from ebclab.data.sources.image_source import read_rows
from ebclab.data.sources.load import open_source
from ebclab.data.sources.location import short_name
from ebclab.encoders.build import DESCRIPTION, ENERGIES, HEADS
from ebclab.errors import UserError
from ebclab.export.description import read_description
from ebclab.export.encoder_folder import LoadedEncoder, device_named, load_encoder
from ebclab.export.energies import REFERENCES, Energies, energies_of, no_energy, read_energies, vector_size
from ebclab.export.place import present_folder
from ebclab.hardware import resolve_device
from ebclab.runs.evaluate import checkpoint_name, images_of_run
from ebclab.runs.folder import RunFolder
from ebclab.runs.trained_encoder import TrainedEncoder, load_trained_encoder
from ebclab.training.restore import load_trained_method


def load_energies(
    path: str | Path, device: str = "cpu", *, checkpoint: str = "last", data_root: str | Path | None = None
) -> Energies:
    """Return the energies of images and of pairs of views by a run, or by an exported folder that has them.

    Args:
        path: The run (folder or address) or the exported folder.
        device: Device to compute on.
        checkpoint: "last" or "best", of a run.
        data_root: Folder of datasets, from which a run's reference images are read; None means the run's own.

    Raises:
        UserError: There is no such run or folder, it has no energies, or the reference images cannot be read.
    """
    name_hosts(path)
    place = device_named(device)
    if is_export(str(path)):
        found = energies_in(expanded(str(path)))
        if found is None:
            raise UserError(f"{path}: {no_heads('neither')}")
        return found.to(place)
    kind = checkpoint_name(checkpoint)
    run = RunFolder.at(path).of("reader").pull((kind,))
    trained = load_trained_encoder(run, kind)
    return energies_of_run(run, trained, place, str(data_root) if data_root else None)


def is_export(where: str) -> bool:
    """Return whether ``where`` names the folder of an exported encoder."""
    return not is_address(where) and (present_folder(expanded(where)) / DESCRIPTION).is_file()


def no_heads(got: str) -> str:
    """Return why an encoder without its method has no energies, as part of a sentence."""
    return f"energies need {ENERGIES} and {HEADS} beside an encoder, got {got}; name a run, or export one with energies"


def energies_in(folder: Path, loaded: LoadedEncoder | None = None) -> Energies | None:
    """Return the energies in an exported folder, whose encoder may be ``loaded`` already; None if it has none."""
    folder = present_folder(folder)
    if not any((folder / name).exists() for name in (ENERGIES, HEADS)):
        return None
    encoder, preprocessing, _ = loaded or load_encoder(folder)
    description, _ = read_description(folder / DESCRIPTION)
    architecture = description.architecture.architecture()
    return read_energies(folder, encoder.state_dict(), architecture, description.in_channels, preprocessing)


def energies_of_run(
    run: RunFolder,
    trained: TrainedEncoder,
    device: torch.device | None = None,
    data_root: str | None = None,
) -> Energies:
    """Return the energies of a run's method, with reference images of the run's training set.

    None as device or data root means that of the run's settings.
    """
    config = trained.config
    if problem := no_energy(config):
        raise UserError(f"{run.address}: {problem}")
    method = load_trained_method(run, trained, device or resolve_device(config.resources.device))
    more = {"num_classes": trained.num_classes, "where": run.address}
    found = energies_of(method, config, trained.preprocessing, **more)
    if not vector_size(config):
        return found
    images = _reference_images(trained, data_root)
    words = f"{len(images):,} training images of {short_name(config.data.name)}, chosen by hash"
    return found.with_references(images, words)


def _reference_images(trained: TrainedEncoder, data_root: str | None) -> Tensor:
    """Return at most ``REFERENCES`` training images (M, C, H, W) of a run; of a stream, no others are read."""
    data = trained.config.data
    if not data.digest.startswith(STREAMED):
        return limit(images_of_run(trained, None, data_root, needs_test=False)[1], REFERENCES).images
    source = open_source(data.name, "train", Reading.of(data))
    return read_rows(source, source.index.at(limited(source.index.keys, REFERENCES))).images

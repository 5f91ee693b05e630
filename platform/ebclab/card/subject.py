"""An encoder that a card is about: of a run, an exported folder, timm's by name, or a reference beside a run."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from ebclab.config import to_yaml
from ebclab.config.addresses import expanded, is_address
from ebclab.config.timm_names import TIMM, weights_problem
from ebclab.data.preprocessing import Preprocessing
from ebclab.encoders import digest_of, new_encoder
from ebclab.encoders.timm_encoder import create, pretrained_encoder
from ebclab.encoders.weights import DESCRIPTION
from ebclab.errors import UserError
from ebclab.export.description import read_description
from ebclab.export.encoder_folder import load_encoder
from ebclab.runs import checkpoint
from ebclab.runs.folder import RunFolder
from ebclab.runs.trained_encoder import TrainedEncoder, load_trained_encoder, untrained_encoder
from ebclab.training.trained_method import weights_behind


@dataclass(frozen=True)
class Subject:
    """A frozen encoder with everything that a card needs of it.

    Attributes:
        label: What tables call it.
        address: Path, address or name, as the user may write it again.
        encoder: Maps preprocessed images (B, C, H, W) to embeddings (B, D); in eval mode.
        preprocessing: Prepares images for it.
        in_channels: C.
        origin: One line about where it comes from.
        digest: SHA-256 of its network, its weights and its preprocessing: the same digest means the same features.
        settings: Digest of the run's settings without its seed: runs that share it differ in the seed alone. Empty for
            what is no run.
        seed: The run's seed; None for what is no run.
        trained: What was read from the run's folder, also of references beside a run; None elsewhere.
        run: The run's folder; None for what is no run, and for references.
        random_weights: Makes the same network with random weights of a seed; None for what has no weights.
        saved: The checkpoint behind ``trained``, where the run's folder is out of reach, as in a worker elsewhere.
    """

    label: str
    address: str
    encoder: nn.Module
    preprocessing: Preprocessing
    in_channels: int
    origin: str
    digest: str
    settings: str = ""
    seed: int | None = None
    trained: TrainedEncoder | None = None
    run: RunFolder | None = None
    random_weights: Callable[[int], nn.Module] | None = field(default=None, compare=False, repr=False)
    saved: checkpoint.Checkpoint | None = field(default=None, compare=False, repr=False)

    def without_folder(self) -> Subject:
        """Return the same encoder with everything in memory that groups read from its run's folder.

        Raises:
            RunError: The run has gone on meanwhile, and the checkpoint is gone.
        """
        if self.run is None or self.trained is None:
            return self
        return replace(self, run=None, saved=weights_behind(self.run, self.trained))


def open_subject(where: str, checkpoint_kind: checkpoint.Kind = "last") -> Subject:
    """Return the encoder that ``where`` names.

    Args:
        where: A run (folder or address), an exported folder, or timm/NAME for timm's own weights.
        checkpoint_kind: "last" or "best", of a run.

    Raises:
        UserError: There is no such encoder, or it cannot be read.
    """
    if where.startswith(TIMM):
        return _of_timm(where)
    if is_export(where):
        return _of_export(where)
    return _of_run(RunFolder.at(where), checkpoint_kind)


def is_export(where: str) -> bool:
    """Return whether ``where`` names the folder of an exported encoder."""
    return not is_address(where) and (expanded(where) / DESCRIPTION).is_file()


def references(subject: Subject) -> list[Subject]:
    """Return what an encoder must beat to be of use: itself before its first step (of a run), and raw pixels.

    Args:
        subject: The encoder that they stand beside.
    """
    beside = [_pixels(subject)]
    trained = subject.trained
    if trained is not None:
        encoder = untrained_encoder(trained.config, trained.in_channels, trained.preprocessing.image_size)
        beside.insert(
            0,
            replace(
                subject,
                label="untrained encoder",
                encoder=encoder,
                origin="the same network before its first step",
                digest=_digest(encoder, subject.preprocessing, trained.config.encoder.architecture()),
                settings=f"untrained {subject.settings}",
                run=None,
            ),
        )
    return beside


def _of_run(run: RunFolder, kind: checkpoint.Kind) -> Subject:
    run = run.of("reader").pull((kind,))
    trained = load_trained_encoder(run, kind)
    config = trained.config
    state = "" if trained.finished else ", not finished"
    any_seed = to_yaml(replace(config, seed=0))
    return Subject(
        label=config.method_name,
        address=run.address,
        encoder=trained.encoder,
        preprocessing=trained.preprocessing,
        in_channels=trained.in_channels,
        origin=f"run of {config.method_name}, seed {config.seed}, {kind} checkpoint, step {trained.step}, "
        f"{trained.epochs_done} epochs on {config.data.name}{state}",
        digest=_digest(trained.encoder, trained.preprocessing, config.encoder.architecture()),
        settings=hashlib.sha256(any_seed.encode()).hexdigest(),
        seed=config.seed,
        trained=trained,
        run=run,
        random_weights=lambda seed: untrained_encoder(
            replace(config, seed=seed), trained.in_channels, trained.preprocessing.image_size
        ),
    )


def _of_export(where: str) -> Subject:
    loaded = load_encoder(where)
    folder = expanded(where).resolve()
    description, _ = read_description(folder / DESCRIPTION)
    return Subject(
        label=folder.name,
        address=str(folder),
        encoder=loaded.encoder,
        preprocessing=loaded.preprocessing,
        in_channels=len(loaded.preprocessing.mean),
        origin="exported encoder",
        digest=_digest(loaded.encoder, loaded.preprocessing, description.architecture.architecture()),
        random_weights=lambda seed: _seeded(
            seed, lambda: new_encoder(description.architecture, description.in_channels, description.input_size)
        ),
    )


def _of_timm(where: str) -> Subject:
    name = where.removeprefix(TIMM)
    if problem := weights_problem(name):
        raise UserError(problem)
    try:
        encoder, size, mean, std = pretrained_encoder(name)
    except ValueError as error:
        raise UserError(f"{where}: {error}") from error
    preprocessing = Preprocessing(size, mean, std)
    return Subject(
        label=where,
        address=where,
        encoder=encoder.eval(),
        preprocessing=preprocessing,
        in_channels=len(mean),
        origin=f"timm's weights for {name}",
        digest=_digest(encoder, preprocessing, {"name": where}),
        random_weights=lambda seed: _seeded(seed, lambda: create(name, len(mean), 0)),
    )


def _seeded(seed: int, make: Callable[[], nn.Module]) -> nn.Module:
    """Return what ``make`` makes with the random numbers of ``seed``; torch's generator is as it was afterwards."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return make().eval()


class _Pixels(nn.Module):
    """The pixels themselves as an embedding (B, C H W)."""

    def forward(self, images: Tensor) -> Tensor:
        return images.flatten(1)


def _pixels(subject: Subject) -> Subject:
    """Return raw pixels in [0, 1] at the size that the encoder sees."""
    seen = subject.preprocessing
    channels = subject.in_channels
    plain = Preprocessing(seen.image_size, (0.0,) * channels, (1.0,) * channels, seen.read_size, seen.decoding)
    return replace(
        subject,
        label="raw pixels",
        encoder=_Pixels().eval(),
        preprocessing=plain,
        origin=f"pixels in [0, 1] at {seen.image_size} x {seen.image_size}",
        digest=_digest(_Pixels(), plain, {}),
        settings="",
        seed=None,
        run=None,
        random_weights=None,
    )


def _digest(encoder: nn.Module, preprocessing: Preprocessing, architecture: Mapping[str, Any]) -> str:
    """Return the SHA-256 of what decides an encoder's features: network, weights and preprocessing.

    Weights do not tell all of a network: two that differ in pooling have the same before their first step.
    """
    facts = json.dumps([architecture, type(encoder).__name__, digest_of(encoder.state_dict()), asdict(preprocessing)])
    return hashlib.sha256(facts.encode()).hexdigest()

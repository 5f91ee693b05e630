"""The encoder that a card evaluates: of a run, an exported folder, a timm model, or a reference baseline of a run."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ebclab.config import to_yaml
from ebclab.config.addresses import expanded
from ebclab.config.encoder import TIMM, weights_problem
from ebclab.config.sections import EvaluationConfig
from ebclab.data.photograph import Resampling
from ebclab.data.preprocessing import Preprocessing
from ebclab.data.sources.location import distinct_name
from ebclab.encoders.build import DESCRIPTION, digest_of, new_encoder
from ebclab.encoders.timm_encoder import create, pretrained_encoder
from ebclab.errors import UserError
from ebclab.evaluation.features import compute_features, placed
from ebclab.evaluation.progress import OnProgress
from ebclab.export.description import read_description
from ebclab.export.encoder_folder import load_encoder
from ebclab.export.energies import Energies, no_energy
from ebclab.export.load_energies import energies_in, is_export, no_heads
from ebclab.export.place import present_folder
from ebclab.formatting import count
from ebclab.hardware import resolve_device
from ebclab.methods_by_name import catalogue
from ebclab.runs import checkpoint
from ebclab.runs.folder import RunFolder
from ebclab.runs.measured_references import pixels_of
from ebclab.runs.references import PIXELS, UNTRAINED
from ebclab.runs.trained_encoder import TrainedEncoder, load_trained_encoder, untrained_encoder
from ebclab.training.restore import weights_behind

_RESIZED = "; images resized to "  # in the origin of a network of timm, whose own evaluation scales otherwise


@dataclass(frozen=True)
class Subject:
    """A frozen encoder with everything that a card needs to evaluate it."""

    label: str  # name in tables
    address: str  # path, address or name that opens the encoder again
    encoder: nn.Module  # maps preprocessed images (B, C, H, W) to embeddings (B, D); in eval mode
    preprocessing: Preprocessing
    in_channels: int  # C
    origin: str  # one line about where it comes from
    digest: str  # SHA-256 of its network, weights and preprocessing: equal digests mean equal features
    settings: str = ""  # digest of the run's settings without its seed; empty if the encoder is not of a run
    seed: int | None = None  # of the run; None if the encoder is not of a run
    # what was read from the run's folder, also for references of a run; None otherwise
    trained: TrainedEncoder | None = None
    run: RunFolder | None = None  # None for references and for encoders that are not of a run
    # the same network with random weights by a seed; None if it has no weights
    random_weights: Callable[[int], nn.Module] | None = field(default=None, compare=False, repr=False)
    # the checkpoint of ``trained``, if the run's folder cannot be accessed, e.g. in a remote worker
    saved: checkpoint.Checkpoint | None = field(default=None, compare=False, repr=False)
    # energies that an exported folder holds; None if it has none, and for runs
    energies: Energies | None = field(default=None, compare=False, repr=False)

    @property
    def evaluation(self) -> EvaluationConfig:
        """Settings of the run for its evaluation; the defaults if the encoder is not of a run."""
        return self.trained.config.evaluation if self.trained else EvaluationConfig()

    @property
    def paper(self) -> str:
        """Return authors, title, year and address of the paper of the run's method; empty if there is none."""
        method = catalogue().get(self.trained.config.method_name) if self.run and self.trained else None
        return method.paper if method else ""

    @property
    def device_name(self) -> str:
        """The setting ``resources.device`` of the run, or ``auto``."""
        return self.trained.config.resources.device if self.trained else "auto"

    @property
    def energy_problem(self) -> str:
        """Why images have no energy by this encoder's method, as part of a sentence; empty if they have."""
        if self.energies is not None:
            return ""
        if self.trained is not None and (self.run is not None or self.saved is not None):
            return no_energy(self.trained.config)
        return no_heads(f"{self.address}, {self.origin}" if self.trained is None else self.label)

    def features(self, images: Tensor, on_progress: OnProgress, what: str) -> Tensor:
        """Return the features (n, D) of images (n, C, H, W), on the device of the settings."""
        device = resolve_device(self.device_name)
        return compute_features(
            placed(self.encoder, device),
            images,
            self.preprocessing,
            batch_size=self.evaluation.batch_size,
            device=device,
            on_progress=on_progress,
            what=what,
        )

    def card_folder(self, dataset: str | None = None) -> Path | None:
        """Return the folder of a run's card: ``card``, or ``card-<dataset>`` if that is not its own; None: no run."""
        if self.run is None:
            return None
        own = self.trained.config.data.name if self.trained else ""
        return self.run.own("card" if dataset in (None, own) else f"card-{distinct_name(dataset)}")

    def scaled(self, side: int, resampling: Resampling) -> Subject:
        """Return the same encoder on images whose largest central squares are scaled to ``side`` pixels."""
        preprocessing = self.preprocessing.scaled(side, resampling)
        side = preprocessing.image_size
        digest = hashlib.sha256(f"{self.digest} {side} {resampling}".encode()).hexdigest()
        origin = f"{self.origin.partition(_RESIZED)[0]}; images scaled to {side} x {side}, {resampling}"
        energies = self.energies  # of an export: its references stay as they were stored
        if energies is not None:
            words = f"{energies.source}, at the export's own size" if energies.source else ""
            energies = replace(energies, preprocessing=preprocessing, source=words)
        return replace(self, preprocessing=preprocessing, digest=digest, origin=origin, energies=energies)

    def without_folder(self) -> Subject:
        """Return the same encoder with all that groups read from its run's folder loaded into memory."""
        if self.run is None or self.trained is None:
            return self
        return replace(self, run=None, saved=weights_behind(self.run, self.trained))


def open_subject(where: str, checkpoint_kind: checkpoint.Kind = "last") -> Subject:
    """Return the encoder of a run (folder or address), an exported folder, or of timm/NAME with timm's own weights."""
    if where.startswith(TIMM):
        return _of_timm(where)
    if is_export(where):
        return _of_export(where)
    return _of_run(RunFolder.at(where), checkpoint_kind)


def references(subject: Subject) -> list[Subject]:
    """Return the baselines of an encoder: for a run, the untrained encoder; and raw pixels, at its input size."""
    beside, trained, preprocessing = list[Subject](), subject.trained, subject.preprocessing
    if trained is not None:
        encoder = untrained_encoder(trained.config, trained.in_channels, trained.preprocessing.image_size)
        beside.append(
            replace(
                subject,
                label=UNTRAINED,
                encoder=encoder,
                origin="the same network before its first step",
                digest=_digest(encoder, preprocessing, trained.config.encoder.architecture()),
                settings=f"untrained {subject.settings}",
                run=None,
            )
        )
    pixels, plain = pixels_of(preprocessing)
    return [
        *beside,
        replace(
            subject,
            label=PIXELS,
            encoder=pixels,
            preprocessing=plain,
            origin=f"pixels in [0, 1] at {preprocessing.image_size} x {preprocessing.image_size}",
            digest=_digest(pixels, plain, {}),
            settings="",
            seed=None,
            run=None,
            random_weights=None,
            energies=None,
        ),
    ]


def _of_run(run: RunFolder, kind: checkpoint.Kind) -> Subject:
    run = run.of("reader").pull((kind,))
    trained = load_trained_encoder(run, kind)
    config = trained.config
    state = "".join(["" if trained.finished else ", not finished", *(f"; {text}" for text in trained.findings)])
    any_seed = to_yaml(replace(config, seed=0))
    if not trained.finished or kind != "last":  # as far along and chosen alike, or not the same thing with another seed
        any_seed += f"# {kind}" + ("" if trained.finished else f", {trained.epochs_done} epochs")
    return Subject(
        label=config.method_name,
        address=run.address,
        encoder=trained.encoder,
        preprocessing=trained.preprocessing,
        in_channels=trained.in_channels,
        origin=f"run of {config.method_name}, seed {config.seed}, {kind} checkpoint, step {trained.step}, "
        f"{count(trained.epochs_done, 'epoch')} on {config.data.name}{state}",
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
    description, _ = read_description(present_folder(folder) / DESCRIPTION)
    energies = energies_in(folder, loaded)
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
        energies=energies,
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
        origin=f"timm's weights for {name}{_RESIZED}{size} x {size}, bilinear, without timm's own crop",
        digest=_digest(encoder, preprocessing, {"name": where}),
        random_weights=lambda seed: _seeded(seed, lambda: create(name, len(mean), 0)),
    )


def _seeded(seed: int, make: Callable[[], nn.Module]) -> nn.Module:
    """Return the result of ``make`` under ``seed``, in eval mode; restores the state of torch's CPU generator."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return make().eval()


def _digest(encoder: nn.Module, preprocessing: Preprocessing, architecture: Mapping[str, Any]) -> str:
    """Return the SHA-256 of what determines an encoder's features: network, weights and preprocessing.

    Weights do not identify a network: two that differ in pooling have equal weights before their first step.
    """
    prepared = asdict(preprocessing)
    if preprocessing.resampling == "bilinear":  # as when there was no other
        del prepared["resampling"]
    facts = json.dumps([architecture, type(encoder).__name__, digest_of(encoder.state_dict()), prepared])
    return hashlib.sha256(facts.encode()).hexdigest()

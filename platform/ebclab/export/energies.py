"""Energies of images and of pairs of views, by the whole method: its encoder, its heads and reference images.

An export holds them in energies.json (method, settings, what the references are) and energies.safetensors (heads, key
networks, banks, references).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from pydantic import NonNegativeInt
from safetensors.torch import save as serialise
from torch import Tensor

from ebclab.config import ExperimentConfig
from ebclab.config.experiment import parse_experiment, to_mapping
from ebclab.config.yaml_text import Plain
from ebclab.data.preprocessing import Preprocessing
from ebclab.encoders.build import ENERGIES, HEADS, differences
from ebclab.errors import DataError, UserError
from ebclab.evaluation.features import compute_features
from ebclab.evaluation.progress import OnProgress, silent
from ebclab.methods_by_name import catalogue
from ebclab.storage.reading import read_json, typed, with_checksum
from ebclab.storage.tensors import read_tensors
from ebclab.training.setup import build_method
from energy_contrast.method import Method
from energy_contrast.sampling_method import ImageEnergy, PairEnergy

FORMAT_VERSION = 1
REFERENCES = 4_096
"""Number of training images, chosen by hash, that energies use as references; all if there are fewer."""

_CPU = torch.device("cpu")
_ENCODER, _REFERENCES = "encoder.", "references"


@dataclass(frozen=True, eq=False)
class Energies:
    """Energies in nats, each up to one constant of the trained method: low for what the method takes to be likely.

    Energies of two methods, or of two runs, have different constants: do not compare them.
    """

    method: ImageEnergy  # the whole method, in eval mode on ``device``
    preprocessing: Preprocessing  # prepares images for it
    references: Tensor  # (M, P) vectors of the reference images, on the CPU; (M, 0) if it needs none
    source: str = ""  # description of the reference images
    device: torch.device = _CPU  # device to compute on
    batch_size: int = 256  # images per forward pass
    # the settings of the run, or of what an export keeps of it; None for a method of no run
    config: ExperimentConfig | None = None
    num_classes: int = 0  # number of classes of a method that read labels; else 0
    where: str = ""  # the run or folder, for messages

    def energy(self, images: Tensor, on_progress: OnProgress = silent) -> Tensor:
        """Return the energies E(x) of single images, float32 (N,) in nats: ``p(x)`` is proportional to ``exp(-E(x))``.

        Args:
            images: (N, C, H, W), uint8 or float in [0, 1].
            on_progress: Called with images done, images in all and a description.
        """
        references = self.references.to(self.device)
        found = self._of_each(
            lambda batch: self.method.image_energy(batch, references)[:, None], images, "energies", on_progress
        )
        return found[:, 0]

    def pair_energy(self, first: Tensor, second: Tensor) -> Tensor:
        """Return the energies E(v, v') of pairs of views, float32 (N, M) in nats: low where they look alike.

        ``p(v, v')`` is proportional to ``exp(-E(v, v'))``; entry [n, m] is of the pair (first[n], second[m]).

        Args:
            first: (N, C, H, W) views v, uint8 or float in [0, 1].
            second: (M, C, H, W) views v', likewise.
        """
        if not isinstance(self.method, PairEnergy):
            raise UserError(f"{self.where}: {no_pair_energy(self.config.method_name if self.config else 'a method')}")
        v = self._of_each(self.method.encode_references, first, "first views")
        return self.method.pair_energy(v, self._of_each(self.method.encode_second, second, "second views"))

    def to(self, device: torch.device) -> Energies:
        """Move the method to a device."""
        if isinstance(self.method, Method):
            self.method.to(device)
        return replace(self, device=device)

    def with_references(self, images: Tensor, source: str, on_progress: OnProgress = silent) -> Energies:
        """Return these energies with other reference images (M, C, H, W)."""
        vectors = self._of_each(self.method.encode_references, images, "references", on_progress)
        return replace(self, references=vectors, source=source if vectors.shape[1] else "")

    @property
    def digest(self) -> str:
        """SHA-256 of everything that the energies depend on beside the encoder."""
        return hashlib.sha256(b"".join(self.files().values())).hexdigest()

    def files(self) -> dict[str, bytes]:
        """Return the content of energies.json and energies.safetensors by name."""
        assert self.config is not None
        assert isinstance(self.method, Method)
        settings, batch_size = to_mapping(self.config)["method"], self.config.training.batch_size
        facts = _EnergyFacts(FORMAT_VERSION, settings, batch_size, self.num_classes, self.source)
        state = self.method.state_dict()
        own = {name: tensor for name, tensor in state.items() if not name.startswith(_ENCODER)}
        tensors = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in own.items()}
        return {
            ENERGIES: (json.dumps(with_checksum(asdict(facts)), indent=2) + "\n").encode(),
            HEADS: serialise({**tensors, _REFERENCES: self.references}, {"format": "pt"}),
        }

    def _of_each(self, function: Any, images: Tensor, what: str, on_progress: OnProgress = silent) -> Tensor:
        if not isinstance(images, Tensor) or images.dim() != 4:
            got = tuple(images.shape) if isinstance(images, Tensor) else type(images).__name__
            raise DataError(f"images: a tensor (N, C, H, W) is needed, got {got}")
        return compute_features(
            function,
            images,
            self.preprocessing,
            batch_size=self.batch_size,
            device=self.device,
            on_progress=on_progress,
            what=f"{what} of {len(images):,} images",
        )


def no_energy(config: ExperimentConfig) -> str:
    """Return why images have no energy by the method of a run, as part of a sentence; empty if they have."""
    kind = catalogue().get(config.method_name)
    if kind is None:
        return f"the code of {config.method_name} is not run to measure, so energies by it are not known"
    if issubclass(kind, ImageEnergy):
        return ""
    able = ", ".join(name for name, kind in catalogue().items() if issubclass(kind, ImageEnergy))
    return f"energies are defined for {able}, got a run of {config.method_name}"


def no_pair_energy(name: str) -> str:
    """Return why pairs of views have no energy by a method, as part of a sentence."""
    able = ", ".join(known for known, kind in catalogue().items() if issubclass(kind, PairEnergy))
    return f"energies of pairs are defined for {able}, got {name}"


def vector_size(config: ExperimentConfig) -> int:
    """Return the size of a method's reference vectors; 0 if its energy needs no references."""
    return int(getattr(config.method, "projection_size", 0))


def energies_of(method: Method, config: ExperimentConfig, preprocessing: Preprocessing, **more: Any) -> Energies:
    """Return the energies of a method, without reference images; ``more`` are further attributes."""
    assert isinstance(method, ImageEnergy)
    device = next(method.parameters()).device
    return Energies(method, preprocessing, torch.empty(0, 0), config=config, device=device, **more)


@dataclass(frozen=True)
class _EnergyFacts:
    """The content of energies.json."""

    format_version: int
    method: Plain
    batch_size: int
    num_classes: NonNegativeInt
    references: str


def read_energies(
    folder: Path,
    weights: Mapping[str, Tensor],
    architecture: Mapping[str, Any],
    in_channels: int,
    preprocessing: Preprocessing,
) -> Energies:
    """Return the energies in an exported folder; ``architecture`` is the ``encoder`` section of its run."""
    again = "export the run again"
    where = folder / ENERGIES
    try:
        facts = typed(read_json(where, remedy=again, error=UserError), _EnergyFacts)
        if facts.format_version > FORMAT_VERSION:
            raise ValueError(f"written by a newer ebclab, got format_version {facts.format_version}; update ebclab")
        training = {"batch_size": facts.batch_size}  # some settings of a method must fit it
        config = parse_experiment({"method": facts.method, "encoder": dict(architecture), "training": training})
        if problem := no_energy(config):
            raise ValueError(problem)
        method_class = catalogue()[config.method_name]
        method = build_method(
            config, method_class, in_channels, _CPU, preprocessing.image_size, num_classes=facts.num_classes
        )
        where = folder / HEADS
        tensors = read_tensors(where)
        references = tensors.pop(_REFERENCES, None)
        size = vector_size(config)
        if references is None or references.dim() != 2 or references.shape[1] != size or (size and not len(references)):
            got = "none" if references is None else tuple(references.shape)
            raise ValueError(f"references (M, {size}) are needed, got {got}")
        state = {**tensors, **{f"{_ENCODER}{name}": tensor for name, tensor in weights.items()}}
        if wrong := differences(method.state_dict(), state):
            raise ValueError(f"tensors do not match {ENERGIES}, got {wrong[0]}")
        method.load_state_dict(state)
    except (OSError, ValueError, UserError) as error:
        text = str(error) if str(error).startswith(str(where)) else f"{where}: {error}"
        raise UserError(text if again in text or "update" in text else f"{text}; {again}") from error
    found = energies_of(method.eval(), config, preprocessing, num_classes=facts.num_classes, where=str(folder))
    return replace(found, references=references, source=facts.references)

"""The contract between a method and its trainer.

Shapes: V views, B images of this rank, C channels, H x W pixels, P proposals, D embedding size.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from energy_contrast.diagnostics import diagnose
from energy_contrast.networks.chunks import pass_in_chunks


@dataclass(frozen=True)
class Batch:
    """One rank's share of a global batch.

    Attributes:
        views: (V, B, C, H, W) float.
        labels: (B,) int64 in [0, K), or -1 where unknown; read only by methods that need labels.
        index: (B,) int64 row numbers of the training set, the same on every rank and device.
        proposals: (P, C, H, W) float, fresh views of images outside the global batch: this rank's part of the
            ``Requirements.num_proposals`` views of all ranks, split as by ``torch.tensor_split`` (the first ranks may
            have one more than the last). Empty for most methods.
    """

    views: Tensor
    labels: Tensor
    index: Tensor
    proposals: Tensor


@dataclass(frozen=True)
class Requirements:
    """What a method needs for training, known from its settings before anything is built.

    Attributes:
        num_views: Views of each image in a batch.
        num_proposals: Fresh views of other training images that come with each global batch.
        batch_norm_groups: Groups of the global batch whose batch norm statistics are computed separately.
        images_alone: The encoder should treat each image independently of its batch, because energies of images move
            chains. An encoder with batch norm is not refused, but an image's energy then depends on its batch.
        labels: Every image needs a label, and the method is built with the number of classes.
    """

    num_views: int
    num_proposals: int = 0
    batch_norm_groups: int = 1
    images_alone: bool = False
    labels: bool = False


class Passes(NamedTuple):
    """How many images a training step passes through the encoder and its copies, for each image of the batch.

    Attributes:
        forward: Images in forward passes; views and the images of chains both count.
        backward: Those of them that also take a backward pass, to weights or to pixels.
    """

    forward: int
    backward: int


class StepOutput(NamedTuple):
    """Result of one forward pass: a loss to differentiate and detached scalars to log."""

    loss: Tensor  # (); its mean over ranks is the global loss
    metrics: dict[str, Tensor]  # name -> (); always holds "info_nce" for contrastive methods


class Progress(NamedTuple):
    """Where a run stands after an optimizer step."""

    step: int  # optimizer steps done, the one just made included
    num_steps: int  # optimizer steps of the whole run as planned at this step; a run may be extended later
    epoch: int  # epochs completed before this step


class Memory(Protocol):
    """State that outlives a step and is too large or too special for a module buffer."""

    def state_dict(self) -> dict[str, Tensor]: ...

    def load_state_dict(self, state: dict[str, Tensor]) -> None: ...


class PixelRange(NamedTuple):
    """Values of black and white in views, one for each channel; noise and samplers may exceed them."""

    low: tuple[float, ...]
    high: tuple[float, ...]


Draw = Callable[[int, torch.Generator], Tensor]
"""``draw(count, generator)`` returns (count, C, H, W) views of training images."""


class Method(nn.Module, ABC):
    """A method: an encoder, the parts around it (heads, copies, memories), and the loss of one step.

    Keep what outlives a step in a parameter, a buffer or one of ``memories``: a resume restores nothing else.

    Args:
        config: The method's frozen config dataclass.
        encoder: Maps images (B, C, H, W) to embeddings (B, D) and has ``embedding_size`` D.
        num_classes: K; passed only to methods that need labels.

    Attributes:
        Config: The config dataclass of this method.
        num_views: How many views of each image ``forward`` expects.
        needs_labels: Whether ``forward`` reads labels.
        paper: Authors, title, year and address of the paper that proposed the method; empty if there is none.
        not_in_chunks: Why a batch cannot pass in chunks; empty where ``forward`` calls encoders by ``encode`` alone.
        diagnosing: Set by the caller before ``forward``, like ``training``: when False, ``forward``
            skips the diagnostics that cost time and returns the cheap metrics only.
        num_chunks: Chunks in which ``encode`` passes this rank's images; set by the caller before training.
        memories: State outside the module's buffers by name; saved beside the model under these names.
        pixel_range: Black and white in views; set by the caller before ``start`` if known, else None.
        num_images: Size of the training set, which every ``Batch.index`` is below; set by the caller before ``start``
            if known, else None.
    """

    Config: ClassVar[type]
    num_views: int = 2
    needs_labels: ClassVar[bool] = False
    has_negatives: ClassVar[bool] = True  # without, InfoNCE is only measured, and may lie at chance while a run learns
    paper: ClassVar[str] = ""
    not_in_chunks: ClassVar[str] = "its forward is not known to call its encoders by encode alone"

    def __init__(self, config: Any, encoder: nn.Module, num_classes: int = 0) -> None:
        super().__init__()
        self.config = config
        self.encoder = encoder
        self.diagnosing = True
        self.num_chunks = 1
        self.memories: dict[str, Memory] = {}
        self.pixel_range: PixelRange | None = None
        self.num_images: int | None = None

    @classmethod
    def requirements(cls, config: Any, batch_size: int) -> Requirements:
        """Return what the method needs for training, without building it.

        A method with another number of views sets ``num_views``. One that needs proposals, groups of batch norm or
        images by themselves overrides this:
        ``return replace(super().requirements(config, batch_size), num_proposals=...)``.

        Args:
            config: The method's config.
            batch_size: Images of a global batch.

        Raises:
            ValueError: If the settings do not allow such a batch.
        """
        return Requirements(cls.num_views, labels=cls.needs_labels)

    @classmethod
    def passes(cls, config: Any) -> Passes:
        """Return how often a training step goes through the encoder, without building anything.

        Every view once, with gradient; a method that does more overrides this. Steps that go through the first layer
        alone, and ``start``, are not counted.

        Args:
            config: The method's config.
        """
        num_views = cls.requirements(config, 1).num_views
        return Passes(num_views, num_views)

    def num_proposals(self, batch_size: int) -> int:
        """Return the number of proposals in ``requirements`` for a global batch of ``batch_size`` images.

        Raises:
            ValueError: If the settings do not allow such a batch.
        """
        return self.requirements(self.config, batch_size).num_proposals

    def memory_bytes(self, shape: tuple[int, int, int]) -> int:
        """Return how many bytes ``memories`` take on each rank for views of ``shape`` (C, H, W).

        Raises:
            ValueError: If they do not fit into the memory of the device they live on.
        """
        return 0

    def kept_bytes(self, shape: tuple[int, int, int], num_images: int) -> int:
        """Return how many bytes each rank keeps from step to step beside networks and copies of them.

        Buffers of the method and of its parts without weights: queues, banks, controllers. A method with ``memories``
        adds these.

        Args:
            shape: (C, H, W) of a view.
            num_images: Images of the training set.
        """
        parts = (part for part in self.children() if next(part.parameters(), None) is None)
        return sum(buffer.nbytes for buffer in (*self.buffers(recurse=False), *(b for p in parts for b in p.buffers())))

    def require_images_of(self, shape: tuple[int, int, int]) -> None:
        """Check that ``memories``, loaded from a checkpoint, hold images of the views' ``shape`` (C, H, W).

        Raises:
            ValueError: If they hold images of another shape, or none.
        """

    def start(self, draw: Draw) -> None:
        """Prepare state from training data, once per new run and never on resume.

        Raises:
            ValueError: If the settings do not fit these images.
        """

    @abstractmethod
    def forward(self, batch: Batch, generator: torch.Generator) -> StepOutput:
        """Compute the loss of one step.

        Args:
            batch: This rank's share of the global batch.
            generator: The only source of randomness; its state is the same on every rank.

        Returns:
            The loss and the metrics, both on the batch's device.
        """

    def measure(
        self, info_nce: Tensor, vectors: Tensor, positive: Tensor, negatives: Tensor, *, temperature: float | Tensor
    ) -> dict[str, Tensor]:
        """Return the metrics of a step that compares two views; the costly ones only while ``diagnosing``.

        Args:
            info_nce: () InfoNCE of the similarities, in nats.
            vectors: (2B, P) what is compared, the first view's rows before the second's.
            positive: (N,) similarity of each anchor with its positive.
            negatives: (N, K) similarities with its negatives.
            temperature: tau, divides similarities.

        Returns:
            ``info_nce``, detached, and what ``diagnose`` returns.
        """
        metrics = {"info_nce": info_nce.detach()}
        if self.diagnosing:
            metrics |= diagnose(vectors, positive, negatives, info_nce=info_nce, temperature=temperature)
        return metrics

    def after_step(self, progress: Progress) -> None:
        """Update what does not learn by gradient (averages, queues, controllers) after a step."""

    def at_constant_rate(self) -> list[nn.Parameter]:
        """Return the weights whose learning rate stays at its peak, whatever the schedule of the others."""
        return []

    def scale_step(self, factor: float) -> None:
        """Multiply the step of the method's sampler by ``factor``; nothing happens where there is no sampler."""

    def not_recorded(self) -> str:
        """Return why a step cannot be recorded and replayed as a CUDA graph, as ``SETTING: why``; empty if it can.

        A replay repeats the recorded operations on the same tensors at the same addresses, with the Python numbers of
        the recording. That excludes steps that synchronise with the device, that compute new numbers on the host, or
        that move their memories.
        """
        return ""

    def compile_parts(self, **options: Any) -> None:
        """Compile the parts in which a step spends its time; call once, after the weights are on their final device.

        Args:
            options: Arguments of ``torch.compile``.
        """
        self.encoder.compile(**options)

    def encode(self, images: Tensor, encoder: nn.Module | None = None) -> Tensor:
        """Return the embeddings (N, D) of a step's images (N, C, H, W), in ``num_chunks`` chunks.

        Args:
            images: Of this rank, whose loss compares embeddings and never pixels.
            encoder: A copy of ``encoder`` in its place.
        """
        return pass_in_chunks(self.encoder if encoder is None else encoder, images, self.num_chunks)

    def embed(self, images: Tensor) -> Tensor:
        """Return the embeddings (B, D) that downstream tasks use, of images (B, C, H, W)."""
        embedding: Tensor = self.encoder(images)
        return embedding

    def project(self, images: Tensor) -> Tensor:
        """Return the outputs (B, P) of ``head`` of images (B, C, H, W); their embeddings where there is no head."""
        head = getattr(self, "head", None)
        projection: Tensor = self.embed(images) if head is None else head(self.embed(images))
        return projection

"""Networks of timm as encoders whose results do not depend on the number of ranks.

The names of timm's weights are kept. Modifications: batch norms are replaced by ours over the global batch, dropout
and stochastic depth are disabled (their random numbers would differ between ranks and are not part of checkpoints), and
weights that the features do not depend on are frozen (ranks would wait for their gradients).

Shapes: C channels, S x S pixels, D embedding size.
"""

from __future__ import annotations

import copy
import logging
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any, NamedTuple
from urllib.parse import urlsplit
from urllib.request import getproxies

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd

from ebclab.config.encoder import NO_TIMM, TIMM
from energy_contrast.networks.batch_norm import GlobalBatchNorm, GlobalBatchNorm1d, GlobalBatchNorm2d

_BUILD_ERRORS = (AssertionError, RuntimeError, ValueError, TypeError, IndexError, KeyError, ZeroDivisionError)


class _GlobalBatchNormAct2d(GlobalBatchNorm2d):
    """Batch norm over the global batch with activation, as in timm's ``BatchNormAct2d``; ``drop`` comes before it."""

    def __init__(self, num_features: int, drop: nn.Module, act: nn.Module) -> None:
        super().__init__(num_features)
        self.drop, self.act = drop, act

    def forward(self, x: Tensor) -> Tensor:
        """Normalise (B, C, H, W) and activate."""
        activated: Tensor = self.act(self.drop(super().forward(x)))
        return activated


@torch.inference_mode(False)  # the caller may have disabled gradients, needed by _freeze_unused
@torch.enable_grad()
def build_timm(name: str, in_channels: int, image_size: int = 0, *, batch_norm: str = "global") -> nn.Module:
    """Return timm's network ``name`` without its classifier, initialised from torch's global generator.

    Its ``embedding_size`` is D. An image size of 0 means timm's default for the network; ``batch_norm`` is ``global``,
    or ``none`` to refuse a network that has batch norm.
    """
    size = image_size or int(_facts(name).input_size[-1])
    try:
        network = create(name, in_channels, image_size)
        _switch_off_draws(network)
        output = network.eval()(torch.zeros(1, in_channels, size, size))
        draws = _draws(network.train(), torch.zeros(2, in_channels, size, size))
    except _BUILD_ERRORS as error:
        raise ValueError(
            f"{TIMM}{name} cannot be built for images of {in_channels} x {size} x {size}, got "
            f"{_first_line(error)}; set another views.image_size, or take another network"
        ) from error
    if not isinstance(output, Tensor) or output.ndim != 2:
        got = f"shape {tuple(output.shape)}" if isinstance(output, Tensor) else type(output).__name__
        raise ValueError(f"{TIMM}{name} gives no vector for each image, got {got}; take another network")
    if draws:
        raise ValueError(f"{TIMM}{name} draws its own random numbers while it trains; take another network")
    _freeze_unused(network, output)
    _share_batch_norms(name, network, batch_norm)
    network.embedding_size = output.shape[1]  # type: ignore[assignment]
    return network.train()


def timm_has_batch_norm(name: str) -> bool:
    """Return whether timm's network ``name`` has batch norm."""
    try:
        with torch.random.fork_rng(devices=[]):
            network = create(name, 3, 0)  # RGB, timm's default
    except _BUILD_ERRORS as error:
        raise ValueError(f"{TIMM}{name} cannot be built, got {_first_line(error)}; take another network") from error
    return any(_is_batch_norm(module) for module in network.modules())


def pretrained(name: str) -> dict[str, Tensor]:
    """Return timm's pretrained weights for ``name``, with or without a tag, without the classifier."""
    return dict(_pretrained_network(name).state_dict())


class PretrainedEncoder(NamedTuple):
    """An unmodified timm network with pretrained weights."""

    encoder: nn.Module  # maps normalised images to embeddings; in eval mode
    image_size: int  # side of its images in pixels
    mean: tuple[float, ...]  # channel means for normalisation
    std: tuple[float, ...]  # channel standard deviations for normalisation


def pretrained_encoder(name: str) -> PretrainedEncoder:
    """Return timm's network ``name`` with pretrained weights, and the normalisation of its images."""
    network = _pretrained_network(name).eval()
    facts = network.pretrained_cfg
    size = int(facts["input_size"][-1])  # type: ignore[index]
    with torch.no_grad():
        output = network(torch.zeros(1, int(facts["input_size"][0]), size, size))  # type: ignore[index]
    if not isinstance(output, Tensor) or output.ndim != 2:
        raise ValueError(f"{TIMM}{name} gives no vector for each image; take another network")
    mean, std = (tuple(map(float, facts[key])) for key in ("mean", "std"))  # type: ignore[index]
    return PretrainedEncoder(network, size, mean, std)


def _pretrained_network(name: str) -> nn.Module:
    architecture, timm = name.partition(".")[0], _timm()  # importing timm first: the hub's library sets its level then
    hub = logging.getLogger("huggingface_hub")
    level = hub.level
    hub.setLevel(logging.CRITICAL)  # it logs every retry; the error below reports the outcome
    try:
        with _hub_that_answers():
            network: nn.Module = timm.create_model(name, pretrained=True, num_classes=0)
    except Exception as error:  # any failure of the download: no network, no disk space, no such file
        problem, *_ = _first_line(error).split(". ")  # the Hub's advice after it is cut off within a sentence
        raise ValueError(
            f"the weights cannot be fetched, got {type(error).__name__}: {problem}; connect this machine "
            f"to the network once, or export an encoder of {TIMM}{architecture} elsewhere and name its folder"
        ) from error
    finally:
        hub.setLevel(level)
    return network


@contextmanager
def _hub_that_answers() -> Iterator[None]:
    """Let the Hub's library use its own files alone where the Hub's name is unknown; else it tries for a minute.

    If these do not suffice, what the look-up of the name raised is raised, instead of "offline mode is enabled".
    """
    from huggingface_hub import constants
    from huggingface_hub.errors import LocalEntryNotFoundError, OfflineModeIsEnabled

    was = constants.HF_HUB_OFFLINE
    unknown: OSError | None = None
    try:
        if not getproxies().keys() & {"https", "all"}:  # a proxy looks the name up
            socket.getaddrinfo(urlsplit(constants.ENDPOINT).hostname, 443)
    except OSError as error:
        constants.HF_HUB_OFFLINE, unknown = True, error
    try:
        yield
    except (LocalEntryNotFoundError, OfflineModeIsEnabled) as error:
        if unknown is None:
            raise
        raise unknown from error
    finally:
        constants.HF_HUB_OFFLINE = was


def adapted(name: str, weights: Mapping[str, Tensor], in_channels: int, image_size: int) -> dict[str, Tensor]:
    """Return weights of ``pretrained`` adapted by timm to other images: first layer and positions resampled."""
    try:
        network = create(name, in_channels, image_size, pretrained=True, overlay={"state_dict": dict(weights)})
    except _BUILD_ERRORS as error:
        raise ValueError(f"timm cannot fit them to such images, got {_first_line(error)}") from error
    return dict(network.state_dict())


def create(
    name: str,
    in_channels: int,
    image_size: int,
    *,
    pretrained: bool = False,
    overlay: Mapping[str, Mapping[str, Tensor]] | None = None,
) -> nn.Module:
    """Return timm's network without its classifier, built with ``arguments_for``."""
    arguments, given = arguments_for(name, in_channels, image_size), {}
    if overlay:
        given["pretrained_cfg_overlay"] = overlay
    network: nn.Module = _timm().create_model(name, pretrained=pretrained, **arguments, **given)
    return network


def arguments_for(name: str, in_channels: int, image_size: int) -> dict[str, int]:
    """Return the keyword arguments of ``timm.create_model``; the size is included only if weights depend on it."""
    arguments = {"in_chans": in_channels, "num_classes": 0}
    if image_size and takes_one_size(name):
        arguments["img_size"] = image_size
    return arguments


def takes_one_size(name: str) -> bool:
    """Return whether the network has a fixed input size."""
    return bool(_facts(name).fixed_input_size)


def first_and_last_layer(name: str) -> tuple[Any, Any]:
    """Return timm's names of the first layer and of the classifier; each may be a tuple of names."""
    return _facts(name).first_conv, _facts(name).classifier


def _timm() -> Any:
    if find_spec("timm") is None:
        raise ValueError(NO_TIMM)
    import timm  # imported here: takes seconds

    return timm


def _facts(name: str) -> Any:
    return _timm().models.get_pretrained_cfg(name, allow_unregistered=True) or _timm().models.PretrainedCfg()


def _switch_off_draws(network: nn.Module) -> None:
    from timm.layers.drop import DropBlock2d, DropPath

    for module in network.modules():
        if isinstance(module, _DropoutNd):
            module.p = 0.0
        elif isinstance(module, DropPath | DropBlock2d):
            module.drop_prob = 0.0
        if isinstance(vars(module).get("drop_rate"), float):  # for networks that call the function instead of a module
            module.drop_rate = 0.0  # type: ignore[assignment]


@torch.no_grad()
def _draws(network: nn.Module, images: Tensor) -> bool:
    """Return whether a forward pass in training mode draws from torch's generator; the network is not modified."""
    before = torch.get_rng_state()
    copy.deepcopy(network)(images)
    return not torch.equal(before, torch.get_rng_state())


def _share_batch_norms(name: str, network: nn.Module, batch_norm: str) -> None:
    """Replace every batch norm by ours, with its weights and statistics."""
    replaced: dict[nn.Module, GlobalBatchNorm] = {}
    for parent in list(network.modules()):
        for key, child in list(parent.named_children()):
            if not _is_batch_norm(child):
                continue
            if batch_norm == "none":
                raise ValueError(
                    f"batch_norm: {TIMM}{name} has batch norm, which cannot be left out, got none; write "
                    f"batch_norm=global, or take a network without it, such as {TIMM}convnext_atto"
                )
            if child not in replaced:
                replaced[child] = _shared(name, child)
            setattr(parent, key, replaced[child])


def _is_batch_norm(module: nn.Module) -> bool:
    return isinstance(module, _BatchNorm) or "running_var" in dict(module.named_buffers(recurse=False))


def _shared(name: str, norm: nn.Module) -> GlobalBatchNorm:
    from timm.layers.norm_act import BatchNormAct2d

    kinds = (nn.BatchNorm1d, nn.BatchNorm2d, BatchNormAct2d)
    if type(norm) not in kinds or not (norm.affine and norm.track_running_stats and norm.momentum is not None):
        raise ValueError(
            f"{TIMM}{name} has a layer whose statistics cannot be taken over all ranks, got {norm}; "
            "take another network"
        )
    size = int(norm.num_features)  # type: ignore[arg-type]
    shared: GlobalBatchNorm
    if isinstance(norm, BatchNormAct2d):
        shared = _GlobalBatchNormAct2d(size, norm.drop, norm.act)
    else:
        shared = GlobalBatchNorm1d(size) if isinstance(norm, nn.BatchNorm1d) else GlobalBatchNorm2d(size)
    shared.eps, shared.momentum = float(norm.eps), float(norm.momentum)  # type: ignore[arg-type]
    shared.load_state_dict(norm.state_dict())
    for parameter, before in zip(shared.parameters(), norm.parameters(), strict=True):
        parameter.requires_grad_(before.requires_grad)
    return shared


def _freeze_unused(network: nn.Module, output: Tensor) -> None:
    learning = [parameter for parameter in network.parameters() if parameter.requires_grad]
    slopes = torch.autograd.grad(output.sum(), learning, allow_unused=True)
    for parameter, slope in zip(learning, slopes, strict=True):
        parameter.requires_grad_(slope is not None)


def _first_line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)[:200]

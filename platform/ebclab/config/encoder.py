"""The sections about the network, its architecture and its initial weights, and the names of timm's networks.

timm is imported only if one of its networks is named, because that takes seconds.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from difflib import get_close_matches
from importlib.util import find_spec
from typing import ClassVar, Literal

from ebclab.config.addresses import shortened
from ebclab.config.names import did_you_mean
from ebclab.formatting import how_to_install
from energy_contrast.settings import setting

TIMM = "timm/"
"""Prefix of the name of a network of timm."""
NO_TIMM = f"timm is not installed here; run {how_to_install('timm')}"

_NUM_SUGGESTED = 3

OWN_ENCODERS = ("small", "resnet18", "resnet50", "wrn28", "pyramidnet-110-84")


@dataclass(frozen=True)
class EncoderConfig:
    """The encoder: the network that is trained for its embeddings."""

    __pydantic_config__: ClassVar = {"extra": "forbid"}  # for `encoder.json`, in which pydantic validates this class
    name: str = setting(
        "small",
        "small: three residual blocks for 8 to 32 pixels; resnet18; resnet50; wrn28: WRN-28-10, as in JEM; "
        "pyramidnet-DEPTH-WIDENING, as in pyramidnet-110-84; "
        "timm/NAME: a network of timm.",
    )
    stem: Literal["cifar", "strided", "imagenet"] = setting(
        "cifar",
        "First layers of our own encoders. cifar: 3x3, stride 1, no max-pool; strided: 3x3, stride 2, a quarter of the "
        "arithmetic; imagenet: 7x7, stride 2, max-pool, not for small.",
    )
    width: int = setting(
        0,
        "Channels of the first stage, of PyramidNets before it; 0 means 16 for small and PyramidNets, 160 for wrn28 "
        "and 64 for the others.",
        unit="channels",
        minimum=0,
    )
    batch_norm: Literal["global", "none"] = setting(
        "global", "global: batch norm over the whole global batch; none: no normalisation, convolutions get biases."
    )
    activation: Literal["relu", "leaky_relu"] = setting(
        "relu", "Of our own encoders; leaky_relu has slope 0.2. Networks of timm have their own."
    )
    initialisation: Literal["kaiming", "torch"] = setting(
        "kaiming",
        "Random weights of the convolutions of our own encoders. kaiming: normal, as in torchvision's networks; "
        "torch: uniform, as torch makes every convolution.",
    )
    pooling: Literal["mean", "quarters"] = setting(
        "mean",
        "What our own encoders make of the last stage. mean: averages over all pixels; quarters: averages over each "
        "quarter of the image, four times the features, which say where something is.",
    )

    @property
    def timm_name(self) -> str:
        """timm's name of the network; empty for our own."""
        return self.name.removeprefix(TIMM) if self.name.startswith(TIMM) else ""

    def architecture(self) -> dict[str, str | int]:
        """Return the settings that define the architecture; ``initialisation`` is not among them.

        ``pooling`` mean is left out, as in descriptions that are older than the setting.
        """
        unsaid = {"initialisation", *(["pooling"] if self.pooling == "mean" else [])}
        return {name: value for name, value in asdict(self).items() if name not in unsaid}

    def problems(self) -> list[str]:
        """Return what is wrong across fields, one sentence each, empty when all is well."""
        if self.timm_name:
            problem = architecture_problem(self.timm_name)
            return ([f"name: {problem}"] if problem else []) + self._meaningless_with_timm()
        if self.name.startswith("pyramidnet"):
            return self._pyramid_problems()
        if self.name not in OWN_ENCODERS:
            hint = did_you_mean(self.name, (*OWN_ENCODERS, f"{TIMM}NAME"))
            if self.name and architecture_problem(self.name) is None:
                hint = f"did you mean {TIMM}{self.name}?"
            return [f"name: no such choice, got {shortened(repr(self.name))}; {hint}"]
        if self.name == "small" and self.stem == "imagenet":
            return [f"stem: the small encoder has no such stem, got {self.stem}; use strided, or encoder.name=resnet18"]
        return []

    def _pyramid_problems(self) -> list[str]:
        """Return what is wrong with the numbers in a PyramidNet's name; torch is imported only for these names."""
        from energy_contrast.networks.pyramidnet import pyramid_size

        try:
            pyramid_size(self.name)
        except ValueError as error:
            return [f"name: {error}"]
        return []

    def _meaningless_with_timm(self) -> list[str]:
        """Return a line for each setting of our own encoders that was changed but has no effect on networks of timm."""
        ours = ("stem", "width", "activation", "initialisation", "pooling")
        own = {field.name: field.default for field in fields(self) if field.name in ours}
        return [
            f"{name}: {shortened(self.name)} has its own, got {value}; leave it out, or write encoder.{name}={default}"
            for name, default in own.items()
            if (value := getattr(self, name)) != default
        ]


@dataclass(frozen=True)
class InitConfig:
    """Initial weights of the encoder of a new run."""

    weights: str | None = setting(
        None,
        "Exported encoder or finished run (a folder), or timm/NAME: pretrained by timm; none means random weights.",
    )
    digest: str = setting("", "SHA-256 of these weights, written down when the run begins; empty: not known yet.")

    def problems(self) -> list[str]:
        """Return what is wrong across fields, one sentence each, empty when all is well."""
        if self.digest and self.weights is None:
            return [f"digest: says nothing without init.weights, got {self.digest[:12]}...; leave it out"]
        return []


def architecture_problem(name: str) -> str | None:
    """Return what is wrong with ``name`` as a network of timm, or None."""
    shown = shortened(f"{TIMM}{name}")
    if find_spec("timm") is None:
        return f"{NO_TIMM}, got {shown}"
    import timm

    architecture, dot, _ = name.partition(".")
    if timm.is_model(architecture) and dot:
        return (
            f"an architecture is wanted, got {shown}, which names weights too; "
            f"write {TIMM}{architecture}, and init.weights={shown} to start from them"
        )
    if timm.is_model(name):
        return None
    return f"no such network in timm {timm.__version__}, got {shown}; {_nearest(name, timm.list_models())}"


def weights_problem(name: str) -> str | None:
    """Return what is wrong with ``name`` as weights that timm can fetch, or None.

    Args:
        name: Without the prefix: a network, or a network and its tag as in resnet18.a1_in1k.
    """
    shown = shortened(f"{TIMM}{name}")
    if find_spec("timm") is None:
        return f"{NO_TIMM}, got {shown}"
    import timm

    known = timm.list_pretrained()
    if name in known or timm.models.is_model_pretrained(name):
        return None
    names = [*dict.fromkeys(each.partition(".")[0] for each in known), *known] if "." not in name else known
    return f"timm {timm.__version__} has no weights of this name, got {shown}; {_nearest(name, names)}"


def _nearest(name: str, names: Iterable[str]) -> str:
    close = get_close_matches(name.lower(), list(names), n=_NUM_SUGGESTED, cutoff=0.5)
    if not close:
        return "timm.list_models() prints them"
    return f"did you mean {' or '.join(TIMM + each for each in close)}?"

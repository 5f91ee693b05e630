"""Initial weights of the encoder of a new run: reads them once, checks their digest, loads them.

They are loaded before a method copies its encoder, and only into a run without a checkpoint.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from safetensors.torch import save as serialise
from torch import Tensor, nn

from ebclab.config import ExperimentConfig
from ebclab.config.addresses import form_problem, host_problem
from ebclab.config.encoder import TIMM, EncoderConfig, InitConfig, weights_problem
from ebclab.encoders.build import DESCRIPTION, WEIGHTS, differences, digest_of, first_of
from ebclab.encoders.timm_encoder import adapted, pretrained
from ebclab.errors import ConfigError, RunError, UserError
from ebclab.runs.folder import RunFolder
from ebclab.runs.trained_encoder import encoder_weights
from ebclab.storage import atomic
from ebclab.storage.object_store import remote_at
from ebclab.storage.reading import read_json_object
from ebclab.storage.tensors import read_tensors


@dataclass(frozen=True)
class InitialWeights:
    """Weights to start from."""

    source: str  # the folder or timm/NAME that they come from
    tensors: Mapping[str, Tensor]  # the weights by name


def with_digest(
    config: ExperimentConfig, recorded: InitConfig | None
) -> tuple[ExperimentConfig, InitialWeights | None]:
    """Return ``config`` with the digest of its initial weights, and the weights themselves if they had to be read.

    ``recorded`` is the section ``init`` that an earlier launch of the same run or sweep saved; None for a new one.
    """
    init = config.init
    if init.weights is None:
        return config, None
    known = init.digest
    if not known and recorded is not None and recorded.weights == init.weights:
        known = recorded.digest
        if known and not Path(init.weights).exists():  # gone, or timm/NAME: trust the recorded digest
            return _digested(config, known), None
    if init.digest and recorded is not None:
        return config, None
    weights = read_initial_weights(init.weights, known)
    return _digested(config, digest_of(weights.tensors)), weights


def _digested(config: ExperimentConfig, digest: str) -> ExperimentConfig:
    return replace(config, init=replace(config.init, digest=digest))


def read_initial_weights(source: str, digest: str = "") -> InitialWeights:
    """Return the weights of an exported encoder, of a finished run (its newest checkpoint), or of timm/NAME.

    They must have the ``digest``, if it is known.
    """
    weights = InitialWeights(source, _tensors_of(source))
    got = digest_of(weights.tensors)
    if digest and got != digest:
        raise UserError(
            f"init.weights: other weights than those of init.digest are in {source} now, got {got[:12]}..., "
            f"expected {digest[:12]}...; restore them, or start another run (--resume continues without them)"
        )
    return weights


def _tensors_of(source: str) -> dict[str, Tensor]:
    if source.startswith(TIMM):
        return _of_timm(source.removeprefix(TIMM))
    if problem := form_problem(source) or host_problem(source):
        raise UserError(f"init.weights: {problem}")
    run = (RunFolder(Path(source)) if remote_at(source) is None else RunFolder.at(source)).of("reader").pull(("last",))
    if (run.path / DESCRIPTION).is_file() and (run.path / WEIGHTS).is_file():
        return _load(run.path / WEIGHTS, "export the encoder again", f"{run.address}: {WEIGHTS}")
    if not run.config_path.is_file():
        raise UserError(
            f"init.weights: neither an exported encoder nor a run, got {source}; "
            f"name a folder that `ebclab export` made, a finished run, or {TIMM}NAME"
        )
    if not run.result.is_file():
        raise UserError(
            f"init.weights: the run has not finished, got {source}; finish it, or export it now and name the export"
        )
    newest = run.load()
    if newest is None:
        raise UserError(f"init.weights: the run's weights are gone, got no checkpoint in {run.address}")
    return encoder_weights(newest)


def _of_timm(name: str) -> dict[str, Tensor]:
    if problem := weights_problem(name):
        raise ConfigError(f"init.weights: {problem}")
    try:
        return pretrained(name)
    except ValueError as error:
        raise ConfigError(f"init.weights: {TIMM}{name}: {error}") from error


def _load(path: Path, advice: str, where: str = "") -> dict[str, Tensor]:
    try:
        return read_tensors(path)
    except (OSError, ValueError) as error:
        raise UserError(f"init.weights: {where or path} is damaged ({error}); {advice}") from error


def keep_weights(path: Path, weights: InitialWeights) -> None:
    """Write initial weights to ``path``, unless the file exists."""
    if not path.exists():
        atomic.write_bytes(path, serialise({name: tensor.contiguous() for name, tensor in weights.tensors.items()}))


def kept_weights(path: Path, init: InitConfig, where: str = "") -> InitialWeights:
    """Return the weights that ``keep_weights`` wrote, with the digest in ``init``; messages call the file ``where``."""
    tensors = _load(path, "restore it, or start over", where)
    if init.digest and digest_of(tensors) != init.digest:
        raise UserError(f"{where or path}: not the weights of init.digest, got other ones; restore it, or start over")
    return InitialWeights(init.weights or str(path), tensors)


def start_from(
    encoder: nn.Module, config: EncoderConfig, weights: InitialWeights, in_channels: int, image_size: int
) -> None:
    """Load initial weights into a new encoder.

    ``new_encoder`` built it from ``config``, ``in_channels`` and ``image_size``, which is 0 if not known yet.
    """
    tensors, source = weights.tensors, weights.source
    same_network = bool(config.timm_name) and source.removeprefix(TIMM).partition(".")[0] == config.timm_name
    if source.startswith(TIMM) and same_network and differences(encoder.state_dict(), tensors):
        try:
            tensors = adapted(config.timm_name, tensors, in_channels, image_size)
        except ValueError as error:
            raise ConfigError(f"init.weights: {source}: {error}") from error
    if differing := differences(encoder.state_dict(), tensors):
        raise ConfigError(
            f"init.weights: weights of {_named(source)} do not fit {config.name} for {in_channels} channels, got "
            f"{first_of(differing)}; set the encoder section to what the weights were made for"
        )
    encoder.load_state_dict(dict(tensors))


def _named(source: str) -> str:
    """Return ``source``, and the name of its network if it is an export."""
    try:
        content = read_json_object(Path(source) / DESCRIPTION)
        return f"{source} ({content['architecture']['name']} for {content['in_channels']} channels)"
    except (RunError, KeyError, TypeError):
        return source

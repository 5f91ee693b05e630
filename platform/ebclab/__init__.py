"""Experiment platform for energy-based and contrastive self-supervised learning of visual encoders.

    config = ebclab.compose("flatclr", recipe="digits-demo")
    run = ebclab.pretrain(config, runs="runs")
    scores = ebclab.evaluate(run.path)
    table = ebclab.open_run(run.path).metrics
    page = ebclab.report(run.path)
    encoder, preprocessing, info = ebclab.load_encoder("exported")
    energy = ebclab.load_energies(run.path).energy(images)
    found = ebclab.compare(ebclab.ComparisonRequest(methods=("simclr", "dcl"), batch_sizes=(64,)))
    page = ebclab.reproduce(ebclab.ReproduceRequest("ebclr/table1")).folder.page

The names are imported lazily on first use, so that ``import ebclab`` is fast.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # for type checkers and editors, which do not evaluate __getattr__
    from ebclab.comparisons.compare import compare as compare
    from ebclab.comparisons.request import ComparisonRequest as ComparisonRequest
    from ebclab.config import ExperimentConfig as ExperimentConfig
    from ebclab.config import compose_for_user
    from ebclab.data.image_set import ImageSet as ImageSet
    from ebclab.export import load_encoder as load_encoder
    from ebclab.export.load_energies import load_energies as load_energies
    from ebclab.reports.report import report as report
    from ebclab.reproductions.reproduce import reproduce as reproduce
    from ebclab.reproductions.request import ReproduceRequest as ReproduceRequest
    from ebclab.runs.evaluate import evaluate_run
    from ebclab.runs.record import open_run as open_run
    from ebclab.sweeps.plan import make_plan as make_plan
    from ebclab.sweeps.request import SweepRequest as SweepRequest
    from ebclab.sweeps.sweep import sweep as sweep
    from ebclab.training.callbacks import Callback as Callback
    from ebclab.training.callbacks import RunView as RunView
    from ebclab.training.pretrain import pretrain as pretrain

    compose = compose_for_user
    evaluate = evaluate_run
    __version__: str

_HOMES = {
    "Callback": "ebclab.training.callbacks:Callback",
    "ComparisonRequest": "ebclab.comparisons.request:ComparisonRequest",
    "ExperimentConfig": "ebclab.config:ExperimentConfig",
    "ImageSet": "ebclab.data.image_set:ImageSet",
    "ReproduceRequest": "ebclab.reproductions.request:ReproduceRequest",
    "RunView": "ebclab.training.callbacks:RunView",
    "SweepRequest": "ebclab.sweeps.request:SweepRequest",
    "compare": "ebclab.comparisons.compare:compare",
    "compose": "ebclab.config:compose_for_user",
    "evaluate": "ebclab.runs.evaluate:evaluate_run",
    "load_encoder": "ebclab.export:load_encoder",
    "load_energies": "ebclab.export.load_energies:load_energies",
    "make_plan": "ebclab.sweeps.plan:make_plan",
    "open_run": "ebclab.runs.record:open_run",
    "pretrain": "ebclab.training.pretrain:pretrain",
    "report": "ebclab.reports.report:report",
    "reproduce": "ebclab.reproductions.reproduce:reproduce",
    "sweep": "ebclab.sweeps.sweep:sweep",
}

__all__ = [*_HOMES]


def __getattr__(name: str) -> Any:
    """Import a public name on first use (PEP 562)."""
    if name == "__version__":
        return _version()
    if name not in _HOMES:
        raise AttributeError(f"module 'ebclab' has no attribute {name!r}; it has {', '.join(__all__)}")
    module, _, attribute = _HOMES[name].partition(":")
    return getattr(import_module(module), attribute)


def __dir__() -> list[str]:
    """Return the public names."""
    return sorted([*_HOMES, "__version__"])


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("ebclab")
    except PackageNotFoundError as error:
        raise AttributeError("ebclab runs from a source folder that is not installed, so it has no version") from error

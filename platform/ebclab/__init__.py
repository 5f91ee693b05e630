"""Experiment platform for energy-based and contrastive self-supervised learning of visual encoders.

    config = ebclab.compose("flatclr", recipe="digits-demo")
    run = ebclab.pretrain(config, runs="runs")
    scores = ebclab.evaluate(run.path)
    table = ebclab.open_run(run.path).metrics
    page = ebclab.report(run.path)
    folder, warnings = ebclab.export_run(run.path, "exported")
    encoder, preprocessing, info = ebclab.load_encoder(folder)
    alike = ebclab.search(ebclab.SearchRequest(encoder=str(run.path), images=("mine.png",))).tables
    energy = ebclab.load_energies(run.path).energy(ebclab.load_split("digits", root=None, split="test").images)
    chains = ebclab.sample(run.path, ebclab.SampleRequest(num_steps=200)).samples
    found = ebclab.compare(ebclab.ComparisonRequest(methods=("simclr", "dcl"), batch_sizes=(64,)))
    page = ebclab.reproduce(ebclab.ReproduceRequest("ebclr/table1")).folder.page

The names are imported lazily on first use, so that ``import ebclab`` is fast.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # for type checkers and editors, which do not evaluate __getattr__
    from ebclab.card.request import SearchRequest as SearchRequest
    from ebclab.card.search import search as search
    from ebclab.comparisons.compare import compare as compare
    from ebclab.comparisons.request import ComparisonRequest as ComparisonRequest
    from ebclab.config import ExperimentConfig as ExperimentConfig
    from ebclab.config import compose_for_user
    from ebclab.data.image_set import ImageSet as ImageSet
    from ebclab.data.sources.load import load_split as load_split
    from ebclab.export import load_encoder as load_encoder
    from ebclab.export.load_energies import load_energies as load_energies
    from ebclab.export.run import export_run as export_run
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
    from ebclab.training.sample_request import SampleRequest as SampleRequest
    from ebclab.training.samples import sample_chains

    compose = compose_for_user
    evaluate = evaluate_run
    sample = sample_chains
    __version__: str

_HOMES = {
    "Callback": "ebclab.training.callbacks:Callback",
    "ComparisonRequest": "ebclab.comparisons.request:ComparisonRequest",
    "ExperimentConfig": "ebclab.config:ExperimentConfig",
    "ImageSet": "ebclab.data.image_set:ImageSet",
    "ReproduceRequest": "ebclab.reproductions.request:ReproduceRequest",
    "RunView": "ebclab.training.callbacks:RunView",
    "SampleRequest": "ebclab.training.sample_request:SampleRequest",
    "SearchRequest": "ebclab.card.request:SearchRequest",
    "SweepRequest": "ebclab.sweeps.request:SweepRequest",
    "compare": "ebclab.comparisons.compare:compare",
    "compose": "ebclab.config:compose_for_user",
    "evaluate": "ebclab.runs.evaluate:evaluate_run",
    "export_run": "ebclab.export.run:export_run",
    "load_encoder": "ebclab.export:load_encoder",
    "load_energies": "ebclab.export.load_energies:load_energies",
    "load_split": "ebclab.data.sources.load:load_split",
    "make_plan": "ebclab.sweeps.plan:make_plan",
    "open_run": "ebclab.runs.record:open_run",
    "pretrain": "ebclab.training.pretrain:pretrain",
    "report": "ebclab.reports.report:report",
    "reproduce": "ebclab.reproductions.reproduce:reproduce",
    "sample": "ebclab.training.samples:sample_chains",
    "search": "ebclab.card.search:search",
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

"""Sweep folders on disk whose trials never trained: every number is written by hand."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from ebclab.config import compose
from ebclab.evaluation.answers import Answers
from ebclab.reports import sweep_plots
from ebclab.storage import object_store as store
from ebclab.storage.filesystem import Location
from ebclab.storage.object_store import COPIES
from ebclab.sweeps.folder import SweepFolder
from ebclab.sweeps.log import SweepLog
from ebclab.sweeps.plan import make_plan, write_plan
from ebclab.sweeps.request import SweepRequest
from ebclab.sweeps.space.space import parse_space

SPACE: dict[str, Any] = {
    "optimizer.learning_rate": {"loguniform": [1e-4, 1e-1]},
    "method.temperature": {"uniform": [0.1, 1.0]},
    "training.batch_size": {"choice": [64, 128, 256]},
}
START = {"optimizer.learning_rate": 0.01, "method.temperature": 0.5, "training.batch_size": 64}


class Folder:
    """A sweep's folder that tests fill.

    Attributes:
        path: Where it lies.
        log: Its log.
    """

    def __init__(self, path: Path, *overrides: str, **asked: Any) -> None:
        path.mkdir(parents=True)
        own = [f"{name}={value}" for name, value in START.items()]
        config = compose("simclr", overrides=["training.epochs=4", "encoder.width=4", *own, *overrides])
        self.plan = make_plan(config, SweepRequest(space=parse_space({"parameters": SPACE}, "test"), **asked))
        self.path, folder = path, SweepFolder(path)
        write_plan(folder.plan, self.plan)
        self.log = SweepLog(folder.log)
        environment = {"processor": "abacus", "cores": 2, "machine": "wood", "device": "cpu", "threads": 1}
        command = ["/bin/ebclab", "sweep", "simclr", "--name", "a b"]
        self.log.append("started", concurrent=2, gpus_per_trial=0.5, environment={**environment, "command": command})

    def search(self, number: int, values: list[float], state: str = "finished", reason: str = "", **more: Any) -> None:
        """Write a trial that measured ``values``, ten seconds an epoch, at settings that follow from its number."""
        point = {
            "optimizer.learning_rate": 10 ** (-4 + 3 * (number * 0.37 % 1)),
            "method.temperature": 0.1 + 0.9 * (number * 0.61 % 1),
            "training.batch_size": (64, 128, 256)[number % 3],
        } | more.pop("point", {})
        self._trial(f"{number:04d}", "search", number, point, 0, values, state, reason, **more)

    def confirm(self, source: str, seed: int, value: float, answers: Answers | None = None) -> None:
        """Write a finished confirming run, and which images it is right about where that is known."""
        settings = self.log.trials[source].settings if source != "baseline" else START
        self._trial(f"confirm-{source}-seed{seed}", "confirm", 0, settings, seed, [value] * 4, "finished", "")
        if answers is not None:
            self.log.append("answered", trial=f"confirm-{source}-seed{seed}", **answers.to_mapping())

    def confirm_all(self, values: Mapping[str, Sequence[float]]) -> None:
        """Write finished confirming runs of several sources, one for each value, with the seeds 1, 2 and so on."""
        for source, by_seed in values.items():
            for seed, value in enumerate(by_seed, start=1):
                self.confirm(source, seed, value)

    def _trial(
        self,
        name: str,
        kind: str,
        number: int,
        point: dict[str, Any],
        seed: int,
        values: list[float],
        state: str,
        reason: str,
        metrics: dict[str, float] | None = None,
        seconds: float = 10.0,  # an epoch
    ) -> None:
        shared = {"trial": name, "kind": kind, "number": number, "seed": seed, "epochs": 4}
        self.log.append("trial", **shared, point=point if kind == "search" else {}, settings=point)
        self.log.append("running", trial=name)
        for epoch, value in enumerate(values, start=1):
            told = {"epoch": epoch, "objective": value, "seconds": seconds * epoch, "metrics": metrics or {}}
            self.log.append("epoch", trial=name, **told)
        if state != "running":
            self.log.append("ended", trial=name, state=state, reason=reason, seconds=seconds * len(values))

    def fill(self) -> None:
        """Write twelve trials, three of them stopped and one diverged, and three confirmed settings."""
        for number in range(8):
            top = 0.5 + 0.02 * number
            metrics = {"ess": 0.1 * number, "log_k_saturation": 0.4}
            self.search(number, [top - 0.1, top - 0.05, top - 0.01, top], metrics=metrics)
        self.search(8, [0.3], "stopped", "rung 1: 0.3 is below 0.4, the best third of 8 others")
        self.search(9, [0.31, 0.32], "stopped", "no gain in 2 epochs: 0.32 after 0.32")
        self.search(10, [0.33, 0.34], "stopped", "collapsed: effective_rank 1.1, below 1.5 for 3 epochs")
        self.search(11, [0.35, 0.01], "diverged", "loss is nan at step 7")
        values = {"0007": (0.60, 0.62, 0.64), "0006": (0.59, 0.62, 0.63), "baseline": (0.50, 0.51, 0.52)}
        self.confirm_all(values)


@pytest.fixture
def sweep_folder(tmp_path: Path) -> Callable[..., Folder]:
    """Make a sweep's folder with a plan of twelve trials; keywords are those of ``make_plan``."""

    def make(name: str = "sweep", *overrides: str, **asked: Any) -> Folder:
        return Folder(tmp_path / name, *overrides, **{"trials": 12, "top": 2, "seeds": 3, **asked})

    return make


@pytest.fixture
def _without_plots_of_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages have none of the plots about settings, to draw which takes most of a page's time."""
    monkeypatch.setattr(sweep_plots, "OF_SETTINGS", ())


@pytest.fixture
def filled(sweep_folder: Callable[..., Folder]) -> Folder:
    """A sweep's folder with twelve trials and three confirmed settings."""
    folder = sweep_folder()
    folder.fill()
    return folder


@pytest.fixture
def bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The address of a bucket that is the folder of this disk in which sweeps lie."""
    monkeypatch.setenv(COPIES, str(tmp_path / "copies"))
    monkeypatch.setattr(
        store, "_place", lambda root: Location(root.replace("s3://bucket", f"file://{tmp_path}"), "storage")
    )
    return "s3://bucket"

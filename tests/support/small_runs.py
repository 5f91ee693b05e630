"""What tests of runs share: small images, listeners, and what a run folder holds."""

import json
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from ebclab.config import ExperimentConfig, compose, load_yaml_file, parse_experiment
from ebclab.data.holdout import Split
from ebclab.data.image_set import ImageSet
from ebclab.errors import EbclabError
from ebclab.runs import checkpoint
from ebclab.runs.folder import NEEDED, RunFolder
from ebclab.runs.stop_request import StopFlag
from ebclab.storage.mirror import Syncer
from ebclab.training.display import Listener
from ebclab.training.loop import Training
from ebclab.training.pretrain import pretrain
from ebclab.training.process_group import Ranks
from ebclab.training.rank import train_rank
from ebclab.training.setup import RunSpec, prepare
from energy_contrast.catalog import METHODS


class Notes(Listener):
    """Keeps what a run says."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def note(self, text: str) -> None:
        self.lines.append(text)


class At(Listener):
    """Does something once, after the log record of a step."""

    def __init__(self, step: int, work: Callable[[], object]) -> None:
        self._step, self._work, self._done = step, work, False

    def on_log(self, step: int, *_: Any) -> None:
        if step == self._step and not self._done:
            self._done = True
            self._work()


class Killed(Listener):
    """Ends the process, as far as the run can tell, once a step is logged."""

    def __init__(self, step: int) -> None:
        self._step = step

    def on_log(self, step: int, *_: Any) -> None:
        if step >= self._step:
            raise KeyboardInterrupt


class Watcher:
    """Writes down what the loop of training reports; asks to stop after a given step."""

    def __init__(self, stop_after: int = 10**9) -> None:
        self.events: list[Any] = []
        self.logs: list[dict[str, float]] = []
        self._stop_after = stop_after
        self._step = 0

    def on_log(self, step: int, epoch: int, metrics: dict[str, float]) -> None:
        self.events.append(("log", step, epoch))
        self.logs.append(metrics)
        self._step = step

    def on_epoch(self, step: int, epochs_done: int) -> None:
        self.events.append(("epoch", step, epochs_done))

    def on_stop(self, step: int) -> None:
        self.events.append(("stop", step))

    def on_step(self, step: int) -> None:
        """Nothing."""

    def should_stop(self) -> bool:
        return self._step >= self._stop_after


def small_images(seed: int = 0, name: str = "mine", num_classes: int = 2) -> ImageSet:
    """Return 40 grey images of noise, with labels and names of classes."""
    pixels = torch.randint(256, (40, 1, 8, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))
    names = tuple("abcde"[:num_classes])
    return ImageSet(name, pixels, torch.arange(40) % num_classes, torch.arange(40), names, (0.5,), (0.3,))


def small_config(*overrides: str, method: str = "simclr") -> ExperimentConfig:
    """Return settings for one epoch of two steps on ``small_images``."""
    small = ["training.epochs=1", "training.batch_size=16", "encoder.width=4", "evaluation.knn_every=0"]
    return compose(method, overrides=[*small, "resources.threads=1", *overrides])


def small_run(runs: Path, name: str, *overrides: str, method: str = "simclr", **given: Any) -> Path:
    """Train a run of ``small_config`` on ``small_images``, or on other images that are given; return its folder."""
    given = {"images": small_images(), "display": Listener()} | given
    return pretrain(small_config(*overrides, method=method), runs=runs, name=name, **given).path


def settings_of(run: Path) -> ExperimentConfig:
    """Return the settings that a run has recorded."""
    return parse_experiment(load_yaml_file(run / "config.yaml"))


def content_of(folder: Path) -> dict[Path, bytes]:
    """Return every file of a folder."""
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def saved_in(run: Path, kind: checkpoint.Kind = "last") -> checkpoint.Checkpoint:
    """Return a run's newest checkpoint."""
    found = checkpoint.load(run / "checkpoints", kind)
    assert found is not None
    return found


def encoder_of(run: Path) -> dict[str, Tensor]:
    """Return the weights of a run's encoder."""
    return {key[8:]: value for key, value in saved_in(run).model.items() if key.startswith("encoder.")}


def records_of(run: Path, kind: str, event: str = "") -> list[dict[str, Any]]:
    """Return the records of one kind in the log of a run, or its events of one name."""
    records = map(json.loads, (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines())
    return [each for each in records if each["kind"] == kind and (not event or each["event"] == event)]


def untimed(run: Path, *kinds: str) -> list[dict[str, Any]]:
    """Return the measurements in the log of a run, but for times."""
    timed = ("kind", "seconds", "images_per_second")
    measured = (each for kind in kinds for each in records_of(run, kind))
    return [{key: value for key, value in each.items() if key not in timed} for each in measured]


def train_as(
    ranks: Ranks,
    run: RunFolder,
    config: ExperimentConfig,
    listener: Listener | None = None,
    images: Split | None = None,
    *,
    replayable: bool = True,
) -> tuple[Training, EbclabError | None]:
    """Train a run on the CPU as one of its ranks; return its training, and the error that ended it."""
    method = METHODS[config.method_name]
    prepared = replace(prepare(config, torch.device("cpu"), images, method, ranks), replayable=replayable)
    spec = RunSpec(run, config, method, images, ())
    try:
        with run.claim(NEEDED) if ranks.rank == 0 else nullcontext(Syncer()) as syncer:
            train_rank(spec, prepared, listener or Listener(), StopFlag(), syncer)
    except EbclabError as error:
        return prepared.training, error
    return prepared.training, None


@contextmanager
def one_folder() -> Iterator[Path]:
    """Yield a folder that all ranks of this process group see, until all have left it."""
    with tempfile.TemporaryDirectory() as own:
        place = [own]
        dist.broadcast_object_list(place)  # rank 0's
        yield Path(place[0])
        dist.barrier()

"""A run that is killed before any of its file operations goes on, and ends in the same bits as one that was not."""

from functools import cache, partial
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
import torch
from kill_points import Loss, killed_everywhere
from store_requests import killed_before_change
from torch import nn

from ebclab.config import ExperimentConfig, compose, yaml_text
from ebclab.data.image_set import ImageSet
from ebclab.data.preprocessing import Preprocessing
from ebclab.evaluation.answers import Answers
from ebclab.evaluation.monitor import HoldoutScores
from ebclab.runs import checkpoint, resume
from ebclab.runs.folder import NEEDED, RunFolder
from ebclab.runs.resume import EarlierLaunches
from ebclab.runs.stop_request import StopFlag
from ebclab.storage import atomic, lease
from ebclab.storage.mirror import whole_checkpoints
from ebclab.storage.object_store import COPIES, RemoteFolder, Store
from ebclab.training import rank
from ebclab.training.display import Listener
from ebclab.training.loop import Training
from ebclab.training.rank import train_rank
from ebclab.training.setup import DataFacts, Prepared, RunSpec
from energy_contrast.method import Batch, Progress, StepOutput
from energy_contrast.samplers import Sampler
from energy_contrast.sampling_method import SamplingMethod

CONFIG = compose("ebclr", overrides=["training.epochs=2", "training.log_every=1"])
_MORE = "training.keep_every=2", "training.average_weights=0.7"
LONGER = compose("ebclr", overrides=["training.epochs=4", "training.log_every=1", *_MORE])
NO_IMAGES = ImageSet("none", torch.zeros(0, 1, 1, 1), torch.zeros(0), torch.zeros(0), (), (0.0,), (1.0,))
FACTS = DataFacts(1, 1, (0.0,), (1.0,), "d", train_images=2, holdout_images=0, num_classes=0)
STEP_THAT_FAILS = 3  # the first of the second epoch, until the sampler's step is smaller


class Draws:
    """A memory: the last thing that the method drew."""

    def __init__(self) -> None:
        self.last = torch.zeros(1)

    def state_dict(self) -> dict[str, torch.Tensor]:
        return {"last": self.last}

    def load_state_dict(self, state: dict[str, torch.Tensor]) -> None:
        self.last = state["last"].clone()


class Tiny(SamplingMethod):
    """Fits noise with two weights; its numbers stop being finite in one step, while its sampler's step is too large."""

    def __init__(self) -> None:
        super().__init__(None, nn.Linear(2, 1))
        self.register_buffer("done", torch.zeros((), dtype=torch.int64))
        self.memories = {"draws": Draws()}

    def new_sampler(self) -> Sampler:
        raise AssertionError("nothing is sampled here")

    def forward(self, batch: Batch, generator: torch.Generator) -> StepOutput:
        self.memories["draws"].last = drawn = torch.randn(4, 2, generator=generator)
        loss = (self.encoder(drawn + batch.views.flatten()) ** 2).mean() * self.step_scale
        failing = self.done == STEP_THAT_FAILS - 1 and self.step_scale == 1
        return StepOutput(loss, {"energy": loss.detach() * (torch.nan if failing else 1)})

    def after_step(self, progress: Progress) -> None:
        self.done.fill_(progress.step)


class TwoBatches:
    """Each batch is one image whose one pixel says which batch it is."""

    num_batches = 2

    def batch(self, epoch: int, position: int) -> Batch:
        none = torch.zeros(1, dtype=torch.int64)
        return Batch(torch.full((1, 1, 1, 1, 1), 2.0 * epoch + position), none, none, torch.zeros(0, 1, 1, 1))


@pytest.fixture(autouse=True)
def _without_what_takes_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rank, "SummaryWriter", MagicMock())  # nobody reads TensorBoard here
    monkeypatch.setattr(rank, "describe_environment", lambda *_: {"ranks": 1})
    monkeypatch.setattr(resume, "to_yaml", cache(resume.to_yaml))
    read = cache(partial(yaml_text.from_yaml, where="config.yaml"))
    monkeypatch.setattr(yaml_text, "from_yaml", lambda text, where: read(text))


def launch(folder: Path, config: ExperimentConfig = CONFIG) -> None:
    """Start or continue the run on a disk."""
    pretrain(RunFolder(folder / "runs" / "tiny"), config)


def pretrain(run: RunFolder, config: ExperimentConfig = CONFIG) -> None:
    """Start or continue the run as ``pretrain`` does, from looking at its folder to its result."""
    earlier = EarlierLaunches(run.pull_free(NEEDED))
    if earlier.state_of(config) == "finished":
        return
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        method = Tiny()
    optimizer = torch.optim.SGD(method.parameters(), lr=0.1, momentum=0.9)
    generator = torch.Generator().manual_seed(1)
    training = Training(method, optimizer, generator, TwoBatches(), lambda step: 0.1 / (1 + step), config.training)
    draw: Any = None  # the method starts from nothing
    prepared = Prepared(training, draw, NO_IMAGES, NO_IMAGES, Preprocessing(1, (0.0,), (1.0,)), FACTS, "digest")
    spec = RunSpec(run, config, Tiny, None, ())
    with earlier.claim(config) as syncer:
        train_rank(spec, prepared, Listener(), StopFlag(), syncer)


def end_of(run: RunFolder) -> dict[str, Any]:
    """What a run leaves, but for times: names, bits, measurements and its result."""
    last = checkpoint.load(run.checkpoints)
    result = run.read_result()
    plain = {key: value for key, value in result.to_mapping().items() if key not in _OF_TIME}
    measured = [record for record in run.metrics.records() if record["kind"] == "train"]
    optimizer = last.state["optimizer"]["state"]
    return {
        "model": {name: value.tolist() for name, value in last.model.items()},
        "weights": {name: value.tolist() for name, value in last.state.get("weights", {}).items()},
        "momenta": [optimizer[number]["momentum_buffer"].tolist() for number in sorted(optimizer)],
        "generator": last.state["generator"].tolist(),
        "drawn": last.memories["draws"]["last"].tolist(),
        "measured": [(record["step"], record["energy"]) for record in measured],
        "health": [(told["step"], told["action"]) for told in run.metrics.records() if told.get("event") == "health"],
        "result": plain | {"metrics": (plain["metrics"] or {}).get("energy")},
    }


_OF_TIME = ("seconds", "finished", "images_per_second")


@pytest.mark.parametrize("loss", ["power cut", pytest.param("power cut after removals", marks=pytest.mark.slow)])
def test_a_run_that_went_back_ends_in_the_same_bits_wherever_it_was_killed(tmp_path: Path, loss: Loss) -> None:
    (tmp_path / "whole").mkdir()
    launch(tmp_path / "whole")
    expected = end_of(RunFolder(tmp_path / "whole" / "runs" / "tiny"))
    (went_back,) = expected["result"]["health"]
    assert (went_back["action"], went_back["step"], went_back["to_step"]) == ("roll_back", 3, 2)
    assert expected["health"] == [(3, "roll_back")]
    assert [step for step, _ in expected["measured"]] == [1, 2, 3, 4]
    points, had_one = 0, False
    for folder in killed_everywhere(tmp_path, lambda folder: None, launch, loss):
        points += 1
        checkpoints = folder / "runs" / "tiny" / "checkpoints"
        has_one = checkpoint.newest_step(checkpoints) > 0 or checkpoint.latest_path(checkpoints) is not None
        assert has_one >= had_one, points  # once there is a whole one, there always is
        had_one = has_one
        launch(folder)
        assert end_of(RunFolder(folder / "runs" / "tiny")) == expected, points
        left = {path.name for path in checkpoints.iterdir()}
        assert left - {"last-0000000000", "last-0000000002"} == {"last-0000000002.001", "last-0000000004"}, points
    assert points > 100


@pytest.mark.parametrize("torn", ['{"kind": "event", "st', '{"kind": "event", "step": 0, "event": "started"}\n{"ki'])
def test_a_run_whose_disk_was_full_at_its_first_records_has_no_torn_line(tmp_path: Path, torn: str) -> None:
    run = RunFolder(tmp_path / "runs" / "tiny")
    launch(tmp_path)
    run.result.unlink()
    for path in run.checkpoints.iterdir():
        atomic.remove_folder(path)
    run.metrics.path.write_text(torn)
    launch(tmp_path)
    lines = run.metrics.path.read_text().splitlines()
    assert len(lines) == len([*run.metrics.records()])
    assert run.metrics.newest_ranks() == 1


@pytest.mark.parametrize("part", ["the roll-back", pytest.param("the whole run", marks=pytest.mark.slow)])
def test_a_run_in_a_store_that_went_back_survives_any_kill_with_its_bits(
    part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def new_run(name: str) -> RunFolder:
        monkeypatch.setenv(COPIES, str(tmp_path / "copies" / name))
        (tmp_path / name).mkdir()
        return RunFolder.at(RemoteFolder(f"file://{tmp_path}/{name}", "tiny"))

    with killed_before_change(10_000) as requests:
        pretrain(new_run("whole"))
    expected = end_of(RunFolder.at(RemoteFolder(f"file://{tmp_path}/whole", "tiny").of("reader")).pull(NEEDED))
    began, ended = (
        next(number for number, request in enumerate(requests) if f"checkpoints/{name}/" in request)
        for name in ("last-0000000002.001", "last-0000000004")
    )
    points = range(began, ended + 1) if part == "the roll-back" else range(len(requests) + 1)
    for number in points:
        run, had_one = new_run(f"{number}"), number >= began
        with killed_before_change(number) as made:
            pretrain(run)
        has_one = bool(whole_checkpoints(Store(run.remote).names(), "last"))
        assert has_one >= had_one, made
        monkeypatch.setenv(COPIES, str(tmp_path / "copies" / f"{number} elsewhere"))
        run = RunFolder.at(run.remote)
        assert (run.pull(NEEDED).load() is not None) == has_one, made
        with monkeypatch.context() as patch:
            patch.setattr(lease, "LIFETIME", 0.0)  # the dead process is forgotten
            pretrain(run)
        assert end_of(run.pull(NEEDED)) == expected, made
        left = {path.name for path in run.checkpoints.iterdir()}
        assert left - {"last-0000000000", "last-0000000002"} == {"last-0000000002.001", "last-0000000004"}, made
    assert len(points) > 5


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_longer_run_with_best_and_kept_checkpoints_does_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed without a power cut."""

    def scores(config: Any, prepared: Prepared) -> Any:
        """Score the weights by a number that rises and falls from epoch to epoch."""
        weight = prepared.training.method.encoder.weight
        answers = Answers.of(torch.tensor([[True, False]]), torch.arange(2))
        return lambda with_monitors: HoldoutScores(
            {"holdout_knn": torch.sin(100 * weight.detach().sum()).item()}, answers
        )

    monkeypatch.setattr(rank, "_monitor", scores)
    (tmp_path / "whole").mkdir()
    launch(tmp_path / "whole", LONGER)
    expected, names = end_of(RunFolder(tmp_path / "whole/runs/tiny")), _checkpoints(tmp_path / "whole")
    assert [event["action"] for event in expected["result"]["health"]] == ["roll_back"]
    best = expected["result"]["best"]
    assert 2 < best["step"] < 8  # it was replaced at least once, and not by the end
    assert {"kept-0000000004", "kept-0000000008", f"best-{best['step']:010d}"} < names
    points = 0
    for folder in killed_everywhere(tmp_path, lambda folder: None, lambda folder: launch(folder, LONGER)):
        points += 1
        launch(folder, LONGER)
        assert end_of(RunFolder(folder / "runs/tiny")) == expected, points
        assert _checkpoints(folder) == names, points
        for kind in ("best", "kept"):
            ours, its = (checkpoint.load(each / "runs/tiny/checkpoints", kind) for each in (folder, tmp_path / "whole"))
            assert torch.equal(ours.model["encoder.weight"], its.model["encoder.weight"]), points
        assert (folder / "runs/tiny/answers.json").read_bytes() == (
            tmp_path / "whole/runs/tiny/answers.json"
        ).read_bytes()
    assert points > 200


def _checkpoints(folder: Path) -> set[str]:
    """Return the names of the checkpoints that nothing replaces: the older of the last two may be another launch's."""
    paths = (folder / "runs" / "tiny" / "checkpoints").iterdir()
    return {path.name for path in paths if not path.name.startswith("last-") or path.name.endswith("8")}

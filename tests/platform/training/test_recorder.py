"""The recorder's counters: what a resume takes over, what a roll-back takes back, and which score is the best."""

import time
from dataclasses import asdict, replace
from pathlib import Path
from unittest.mock import MagicMock

import pytest
import torch
from small_runs import Killed, small_run
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from ebclab.config import compose
from ebclab.errors import RunError
from ebclab.evaluation.answers import Answers
from ebclab.evaluation.monitor import HoldoutScores
from ebclab.runs import checkpoint
from ebclab.runs.folder import RunFolder
from ebclab.runs.stop_request import StopFlag
from ebclab.runs.summary import BestScore
from ebclab.storage.mirror import Syncer
from ebclab.training.display import Listener
from ebclab.training.health.findings import FindingRules
from ebclab.training.recorder import Recorder
from ebclab.training.setup import RunSpec, prepare
from energy_contrast.catalog import METHODS

TINY = ["data.train_limit=72", "training.batch_size=32", "training.epochs=4", "encoder.width=4"]
BEST = BestScore("holdout_knn", value=0.75, epoch=2, step=4)
ANSWERS = Answers.of(torch.tensor([[True, False, True]]), torch.tensor([3, 1, 2]))


def recorder(
    path: Path,
    *scores: float,
    began: float | None = None,
    resumed: checkpoint.Checkpoint | None = None,
    listener: Listener | None = None,
) -> Recorder:
    """A recorder of a tiny run whose epochs get ``scores``."""
    config = compose("simclr", overrides=[*TINY, "evaluation.objective=holdout_knn"])
    prepared = prepare(config, torch.device("cpu"), None, METHODS["simclr"])
    left = iter(scores)
    return Recorder(
        RunSpec(RunFolder(path), config, METHODS["simclr"], None, ()),
        prepared,
        score=lambda monitored: HoldoutScores({"holdout_knn": next(left)}, ANSWERS),
        listener=listener or Listener(),
        stop=StopFlag(),
        writer=MagicMock(),
        syncer=Syncer(),
        health=None,
        began=time.monotonic() if began is None else began,
        resumed=resumed,
        rules=FindingRules(),
        require_in_place=lambda: None,
    )


def saved(best: BestScore) -> checkpoint.Checkpoint:
    state = {"best": asdict(best), "metrics": {"loss": 3.0}, "seconds": 1000.0}
    return checkpoint.Checkpoint(4, {"scores": {"holdout_knn": 0.5}}, {}, state, {})


def test_a_new_run_begins_with_nothing(tmp_path: Path) -> None:
    new = recorder(tmp_path)
    assert (new.best, new.last_metrics, new.last_scores) == (None, None, {})
    assert 0 <= new.seconds < 100


def keep_best(folder: Path, step: int) -> None:
    checkpoint.save(folder / "checkpoints", "best", checkpoint.Checkpoint(step, {}, {"w": torch.ones(1)}, None, {}))


def test_a_resume_takes_over_counters_and_adds_its_own_time(tmp_path: Path) -> None:
    keep_best(tmp_path, BEST.step)
    resumed = recorder(tmp_path, began=time.monotonic() - 50, resumed=saved(BEST))
    assert (resumed.best, resumed.last_metrics, resumed.last_scores) == (BEST, {"loss": 3.0}, {"holdout_knn": 0.5})
    assert 1050 <= resumed.seconds < 1150


@pytest.mark.parametrize("is_there", [True, False])
def test_after_going_back_the_best_counts_while_its_checkpoint_is_there(tmp_path: Path, is_there: bool) -> None:
    one = recorder(tmp_path)
    one.best, one.last_metrics = replace(BEST, value=0.9, step=6), {"loss": 1.0}
    if is_there:
        keep_best(tmp_path, 4)
    one.return_to(saved(BEST))
    assert one.best == (BEST if is_there else None)
    assert (one.last_metrics, one.last_scores) == ({"loss": 3.0}, {"holdout_knn": 0.5})
    assert one.seconds < 1000  # the time of this launch is not undone, and that of the checkpoint not added


def test_a_best_checkpoint_of_a_killed_launch_gives_way_to_the_next_best(tmp_path: Path) -> None:
    keep_best(tmp_path, 6)  # of a step that is made again, perhaps by other threads and with another score
    resumed = recorder(tmp_path, 0.5, 0.25, resumed=saved(BEST))
    for epoch in (3, 4):
        resumed.training.step = 2 * epoch
        resumed.on_epoch(2 * epoch, epoch)
    (path,) = (tmp_path / "checkpoints").glob("best-*")
    assert resumed.best == BestScore("holdout_knn", value=0.5, epoch=3, step=checkpoint.step_of(path))
    model = checkpoint.load(tmp_path / "checkpoints", "best")
    assert model.facts["scores"] == {"holdout_knn": 0.5}


def test_a_stop_saves_its_step_where_a_damaged_checkpoint_of_it_lies(tmp_path: Path) -> None:
    for step in (3, 2):  # the resume found the later one damaged
        checkpoint.save(tmp_path / "checkpoints", "last", checkpoint.Checkpoint(step, {}, {"w": torch.ones(1)}, {}, {}))
    (tmp_path / "checkpoints/last-0000000003/model.safetensors").write_text("damaged")
    stopped = recorder(tmp_path)
    stopped.training.step = 3
    stopped.on_stop(3)
    assert checkpoint.newest_step(tmp_path / "checkpoints") == 3
    names = sorted(path.name for path in (tmp_path / "checkpoints").iterdir())
    stopped.on_stop(3)  # saved already
    assert sorted(path.name for path in (tmp_path / "checkpoints").iterdir()) == names


def test_a_listener_may_end_a_run_once_all_of_an_epoch_is_on_disk(tmp_path: Path) -> None:
    class Ending(Listener):
        def on_epoch(self, step: int, epoch: int, metrics: dict[str, float]) -> None:
            raise SystemExit(f"{step} {epoch} {metrics['holdout_knn']}")

    one = recorder(tmp_path, 0.5, listener=Ending())
    one.training.step = 2
    with pytest.raises(SystemExit, match=r"^2 1 0\.5$"):
        one.on_epoch(2, 1)
    assert {path.name.partition("-")[0] for path in one.run.checkpoints.iterdir()} == {"best", "last"}
    assert [record["holdout_knn"] for record in one.run.metrics.records()] == [0.5]


def test_the_first_of_equal_scores_is_the_best(tmp_path: Path) -> None:
    one = recorder(tmp_path, 0.5, 0.75, 0.75, 0.25)
    best = []
    for epoch in range(1, 5):
        one.on_epoch(2 * epoch, epoch)
        best.append(one.best and one.best.epoch)
    assert best == [1, 2, 2, 2]
    assert one.last_scores == {"holdout_knn": 0.25}


def test_the_last_epoch_writes_the_answers_before_its_checkpoint(tmp_path: Path) -> None:
    made = recorder(tmp_path, 0.5, 0.75)
    made.on_epoch(2, 3)
    assert made.run.read_answers() is None  # not the last epoch
    seen: list[bool] = []
    made.save = lambda *_, **__: seen.append(made.run.answers_path.exists())  # type: ignore[method-assign]
    made.on_epoch(4, 4)
    assert seen == [True]
    assert made.run.read_answers() == ANSWERS


def test_one_flipped_bit_in_the_answers_of_a_run_is_noticed(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    run.write_answers(ANSWERS)
    text = run.answers_path.read_text()
    run.answers_path.write_text(text.replace(ANSWERS.right[0], "IA=="))
    with pytest.raises(RunError, match=rf"^{run.answers_path}: cannot be read, got its content does not match"):
        run.read_answers()


@pytest.mark.parametrize("checkpoint_every", [1, 4])
def test_tensorboard_shows_no_step_twice_after_a_kill(checkpoint_every: int, tmp_path: Path) -> None:
    often = ["training.epochs=4", "training.log_every=1", f"training.checkpoint_every={checkpoint_every}"]
    with pytest.raises(KeyboardInterrupt):
        small_run(tmp_path, "run", *often, display=Killed(5))
    small_run(tmp_path, "run", *often)
    board = EventAccumulator(str(tmp_path / "run" / "tensorboard")).Reload()
    assert [event.step for event in board.Scalars("train/loss")] == list(range(1, 9))

"""A run whose folder is removed, renamed or replaced while it trains: a sentence, and nothing written elsewhere."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from small_runs import At, Notes, content_of

from ebclab.config import compose
from ebclab.errors import RunError, TrainingError
from ebclab.runs.folder import RunFolder
from ebclab.training import recorder
from ebclab.training.pretrain import pretrain

TINY = [  # two steps an epoch
    *("data.train_limit=72", "training.batch_size=32", "resources.threads=1", "training.log_every=1"),
    *("training.epochs=3", "encoder.width=4"),
]


def _removed(run: Path) -> None:
    shutil.rmtree(run)


def _renamed(run: Path) -> None:
    run.rename(run.with_name("elsewhere"))


def _replaced(run: Path) -> None:
    run.rename(run.with_name("elsewhere"))
    shutil.copytree(run.with_name("elsewhere"), run)


def _parent_renamed(run: Path) -> None:
    run.parent.rename(run.parent.with_name("moved"))


def _files(folder: Path) -> dict[Path, bytes]:
    """Return what is in a run folder, but for TensorBoard's file, which its writer closes by name."""
    return {path: content for path, content in content_of(folder).items() if path.parent.name != "tensorboard"}


@pytest.mark.parametrize("gone", [_removed, _renamed, _replaced, _parent_renamed])
@pytest.mark.parametrize("step", [3, 4], ids=["within an epoch", "at its end"])
def test_the_run_stops_with_a_sentence(
    tmp_path: Path, gone: Callable[[Path], None], step: int, capsys: pytest.CaptureFixture[str]
) -> None:
    run, seen = tmp_path / "runs" / "run", dict[Path, bytes]()

    def act() -> None:
        gone(run)
        seen.update(_files(run) if run.exists() else {})

    with pytest.raises(TrainingError, match="the folder was removed, renamed or replaced") as error:
        pretrain(compose("simclr", overrides=TINY), runs=run.parent, name="run", display=At(step, act))
    assert str(error.value).startswith(f"{run}: ")
    assert "Traceback" not in capsys.readouterr().err
    assert run.exists() == (gone is _replaced)
    if gone is _replaced:
        assert _files(run) == seen
    if gone in (_renamed, _replaced):
        shutil.rmtree(run, ignore_errors=True)
        run.with_name("elsewhere").rename(run)  # the way out that the sentence names
        done = pretrain(compose("simclr", overrides=TINY), runs=run.parent, name="run")
        assert not done.was_finished


def test_a_folder_that_goes_while_scores_are_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, measure = tmp_path / "runs" / "run", recorder.check_weights

    def measure_slowly(*given: Any) -> None:
        measure(*given)
        _removed(run)

    monkeypatch.setattr(recorder, "check_weights", measure_slowly)
    with pytest.raises(TrainingError, match="the folder was removed"):
        pretrain(compose("simclr", overrides=TINY), runs=run.parent, name="run")
    assert not run.exists()


def _checkpoints_removed(run: Path) -> None:
    shutil.rmtree(run / "checkpoints")


def _checkpoints_renamed(run: Path) -> None:
    (run / "checkpoints").rename(run / "kept for later")


def _checkpoints_replaced(run: Path) -> None:
    _checkpoints_renamed(run)
    shutil.copytree(run / "kept for later", run / "checkpoints")


@pytest.mark.parametrize("gone", [_checkpoints_removed, _checkpoints_renamed, _checkpoints_replaced])
def test_a_run_whose_checkpoints_alone_go_stops_and_writes_nothing_more(
    tmp_path: Path, gone: Callable[[Path], None]
) -> None:
    run, seen = tmp_path / "runs" / "run", dict[Path, bytes]()

    def act() -> None:
        gone(run)
        seen.update(_files(run))

    with pytest.raises(TrainingError, match="the folder was removed, renamed or replaced") as error:
        pretrain(compose("simclr", overrides=TINY), runs=run.parent, name="run", display=At(4, act))
    assert str(error.value).startswith(f"{run / 'checkpoints'}: ")
    assert _files(run) == seen
    assert (run / "checkpoints").exists() == (gone is _checkpoints_replaced)


def test_a_run_without_the_checkpoints_it_had_begins_anew_and_says_so(tmp_path: Path) -> None:
    run, config = tmp_path / "runs" / "run", compose("simclr", overrides=[*TINY, "training.epochs=1"])
    pretrain(config, runs=run.parent, name="run")
    undisturbed = (run / "metrics.jsonl").read_text()
    (run / "result.json").unlink()
    shutil.rmtree(run / "checkpoints")
    with pytest.raises(
        RunError,
        match=r"^.*/run: nothing to resume, no checkpoint in .*/run/checkpoints, though its log "
        "reaches step 2; put the folder back, or leave --resume out to start over$",
    ):
        pretrain(config, runs=run.parent, name="run", resume=True)
    assert (run / "metrics.jsonl").read_text() == undisturbed
    display = Notes()
    assert pretrain(config, runs=run.parent, name="run", display=display).summary.steps == 2
    assert "starts over: it has no checkpoint, and its log reached step 2" in display.lines
    records = list(RunFolder.at(run).metrics.records())
    assert [record.get("reached") for record in records if record.get("event") == "started"] == [None, 2]
    assert [record["step"] for record in records if record["kind"] == "train"] == [1, 2]


def test_a_finished_run_without_checkpoints_is_not_extended(tmp_path: Path) -> None:
    run, config = tmp_path / "runs" / "run", compose("simclr", overrides=[*TINY, "training.epochs=1"])
    pretrain(config, runs=run.parent, name="run")
    shutil.rmtree(run / "checkpoints")
    before = _files(run)
    with pytest.raises(
        RunError,
        match=r"^.*/run: nothing to resume from, the finished run has no checkpoint in "
        r".*/run/checkpoints any more; put the folder back, or replace the run by --overwrite$",
    ):
        pretrain(config, runs=run.parent, name="run", extend=2)
    assert _files(run) == before

"""A run whose folder is removed, renamed or replaced while it trains: a sentence, and nothing written elsewhere."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ebclab.config import compose
from ebclab.errors import TrainingError
from ebclab.training import recorder
from ebclab.training.display import SilentDisplay
from ebclab.training.pretrain import pretrain

TINY = ["data.train_limit=64", "training.batch_size=32", "resources.threads=1", "training.log_every=1"]


def _removed(run: Path) -> None:
    shutil.rmtree(run)


def _renamed(run: Path) -> None:
    run.rename(run.with_name("elsewhere"))


def _replaced(run: Path) -> None:
    run.rename(run.with_name("elsewhere"))
    shutil.copytree(run.with_name("elsewhere"), run)


def _parent_renamed(run: Path) -> None:
    run.parent.rename(run.parent.with_name("moved"))


class Once(SilentDisplay):
    """Does something after the log record of a step."""

    def __init__(self, step: int, work: Callable[[], None]) -> None:
        self._step, self._work, self.done = step, work, False

    def update(self, step: int, *_: Any) -> None:
        if step == self._step and not self.done:
            self.done = True
            self._work()


def _files(folder: Path) -> dict[Path, bytes]:
    """Return what lies in a run folder, but for TensorBoard's file, which its writer closes by name."""
    files = [path for path in folder.rglob("*") if path.is_file() and path.parent.name != "tensorboard"]
    return {path.relative_to(folder): path.read_bytes() for path in files}


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
        pretrain(compose("simclr", overrides=TINY), runs=run.parent, name="run", display=Once(step, act))
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

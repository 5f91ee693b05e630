"""A run whose folder is removed, renamed or replaced while it trains: a sentence, and nothing written elsewhere."""

import shutil
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


def _files(folder: Path) -> dict[Path, bytes]:
    """Return what is in a run folder, but for TensorBoard's file, which its writer closes by name."""
    return {path: content for path, content in content_of(folder).items() if path.parent.name != "tensorboard"}


def removed(folder: Path) -> None:
    shutil.rmtree(folder)


def renamed(folder: Path) -> None:
    folder.rename(folder.with_name("elsewhere"))


def replaced(folder: Path) -> None:
    renamed(folder)
    shutil.copytree(folder.with_name("elsewhere"), folder)


def parent_renamed(folder: Path) -> None:
    folder.parent.rename(folder.parent.with_name("moved"))


@pytest.mark.parametrize(
    ("gone", "part", "step"),
    [
        # within an epoch, and at its end
        *((gone, "", step) for gone in (removed, renamed, replaced, parent_renamed) for step in (3, 4)),
        *((gone, "checkpoints", 4) for gone in (removed, renamed, replaced)),
    ],
)
def test_the_run_stops_with_a_sentence_and_writes_nothing_more(gone, part, step, tmp_path, capsys):
    run, seen = tmp_path / "runs" / "run", dict[Path, bytes]()

    def act() -> None:
        gone(run / part)
        seen.update(_files(run) if run.exists() else {})

    with pytest.raises(TrainingError, match="the folder was removed, renamed or replaced") as error:
        pretrain(compose("simclr", overrides=TINY), runs=run.parent, name="run", display=At(step, act))
    assert str(error.value).startswith(f"{run / part}: ")
    assert "Traceback" not in capsys.readouterr().err
    assert (run / part).exists() == (gone is replaced)
    assert (_files(run) if run.exists() else {}) == seen
    if not part and gone in (renamed, replaced):
        shutil.rmtree(run, ignore_errors=True)
        run.with_name("elsewhere").rename(run)  # the way out that the sentence names
        done = pretrain(compose("simclr", overrides=TINY), runs=run.parent, name="run")
        assert not done.was_finished


def test_a_folder_that_goes_while_scores_are_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, measure = tmp_path / "runs" / "run", recorder.check_weights

    def measure_slowly(*given: Any) -> None:
        measure(*given)
        removed(run)

    monkeypatch.setattr(recorder, "check_weights", measure_slowly)
    with pytest.raises(TrainingError, match="the folder was removed"):
        pretrain(compose("simclr", overrides=TINY), runs=run.parent, name="run")
    assert not run.exists()


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

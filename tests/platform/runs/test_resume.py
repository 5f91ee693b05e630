"""Entering a run again: its state, and what a store holds when the process dies while it writes its settings."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Never

import pytest
from run_files import summary_of
from small_runs import content_of
from store_requests import killed_before_change

from ebclab.config import ExperimentConfig, compose, to_mapping, to_yaml
from ebclab.errors import RunError
from ebclab.runs.folder import NEEDED, RunFolder
from ebclab.runs.resume import MAY_CHANGE, EarlierLaunches
from ebclab.storage import lease
from ebclab.storage.object_store import RemoteFolder, Store


def settings(epochs: int, workers: int = 0, extended: str = "[]") -> ExperimentConfig:
    more = [f"training.epochs={epochs}", f"training.extended={extended}", f"resources.workers={workers}"]
    return compose("simclr", overrides=more)


LONGER = settings(3, extended="[2]")
"""What a run of two epochs has once it was extended to three."""


def finish(folder: Path, epochs: int) -> None:
    """Leave a run that has finished ``epochs`` epochs, with a checkpoint in name only."""
    checkpoint = folder / "checkpoints" / "last-0000000004"
    checkpoint.mkdir(parents=True)
    (checkpoint / "model.safetensors").write_text("weights")
    (checkpoint / "manifest.json").write_text(json.dumps({"files": {"model.safetensors": ""}}))
    (folder / "config.yaml").write_text(to_yaml(settings(epochs)))
    (folder / "result.json").write_text(json.dumps(summary_of(epochs=epochs).to_mapping()))


@pytest.fixture
def run(remote: RemoteFolder) -> RunFolder:
    """A run in a store, as the user's process has it."""
    return RunFolder.at(remote)


def test_a_run_is_new_unfinished_or_finished(tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "run")
    assert EarlierLaunches(run).state_of(settings(2)) == "new"
    finish(run.path, epochs=2)
    assert EarlierLaunches(run, resume=True).state_of(settings(2)) == "finished"
    assert EarlierLaunches(run, resume=True, extend=3).state_of(LONGER) == "unfinished"
    for other in (settings(1), settings(3), LONGER, replace(settings(2), seed=1)):
        with pytest.raises(RunError, match=r"run: this name belongs to a run with other settings(?s:.)* in the run, "):
            EarlierLaunches(run).state_of(other)
    (run.path / "result.json").unlink()
    assert EarlierLaunches(run, resume=True).state_of(settings(2)) == "unfinished"
    shutil.rmtree(run.checkpoints)
    assert EarlierLaunches(run).state_of(settings(2)) == "new"
    with pytest.raises(RunError, match="the run has no checkpoint yet; leave --resume out to start it"):
        EarlierLaunches(run, resume=True).state_of(settings(2))


def test_settings_that_may_change_exist_and_name_their_effect() -> None:
    keys = {
        f"{section}.{name}" for section, names in to_mapping(settings(2)).items() if section != "seed" for name in names
    }
    assert MAY_CHANGE.keys() <= keys
    others = {"data.root", "training.loggers"}
    assert {key for key in keys if key.startswith("resources.")} == MAY_CHANGE.keys() - others
    allowed = ("nothing", "rounding", "where the images are; they must be the same")
    assert all(reason.startswith(allowed) for reason in MAY_CHANGE.values())


@pytest.mark.parametrize(
    "left", ["checkpoints/", "tensorboard/", ".config.yaml.0123abcd", ".ray/driver", "error.txt", ".lock"]
)
def test_what_a_launch_makes_before_its_settings_blocks_no_name(tmp_path: Path, left: str) -> None:
    run = RunFolder(tmp_path / "run")
    path = run.path / left
    (path if left.endswith("/") else path.parent).mkdir(parents=True)
    if not left.endswith("/"):
        path.write_text("left")
    assert EarlierLaunches(run).state_of(settings(2)) == "new"
    with EarlierLaunches(run).claim(settings(2)):
        assert run.read_config() == settings(2)


@pytest.mark.parametrize("own", ["thesis.tex", "checkpoints/model.pt", "notes/error.txt", "metrics.jsonl"])
def test_a_folder_with_a_file_of_the_user_is_no_run(tmp_path: Path, own: str) -> None:
    run = RunFolder(tmp_path / "run")
    (run.path / own).parent.mkdir(parents=True)
    (run.path / own).write_text("own")
    with pytest.raises(RunError, match="the folder holds something that is not a run; choose another --name"):
        EarlierLaunches(run).state_of(settings(2))


def test_a_link_to_elsewhere_or_a_file_in_place_of_the_folder_is_no_run(tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "run")
    run.path.mkdir()
    (run.path / "link").symlink_to(tmp_path)
    with pytest.raises(RunError, match="holds something that is not a run"):
        EarlierLaunches(run).state_of(settings(2))
    (tmp_path / "file").write_text("own")
    with pytest.raises(RunError, match="holds something that is not a run"):
        EarlierLaunches(RunFolder(tmp_path / "file")).state_of(settings(2))


def test_a_claim_leaves_settings_and_no_result_on_a_disk(tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "run")
    finish(run.path, epochs=2)
    with EarlierLaunches(run).claim(LONGER):
        assert run.read_config() == LONGER
        assert run.read_result() is None
    new = RunFolder(tmp_path / "new")
    with EarlierLaunches(new).claim(settings(3)):
        assert sorted(path.name for path in new.path.iterdir()) == [".lock", "checkpoints", "config.yaml"]


@pytest.mark.parametrize("was_there", [False, True])
def test_a_run_that_another_process_has_trained_meanwhile_is_left_alone(tmp_path: Path, was_there: bool) -> None:
    run = RunFolder(tmp_path / "run")
    if was_there:
        finish(run.path, epochs=2)
    earlier = EarlierLaunches(run)
    shutil.rmtree(run.path, ignore_errors=True)
    finish(run.path, epochs=3)
    before = content_of(run.path)
    with pytest.raises(RunError, match=r"run: another process has trained here since this one looked"):
        earlier.claim(LONGER).__enter__()
    assert {path: content for path, content in content_of(run.path).items() if path.name != ".lock"} == before


def test_a_result_that_another_process_has_written_meanwhile_is_kept(tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "run")
    finish(run.path, epochs=2)
    before = content_of(run.path)  # a launch that looked while the other trained saw the same settings, and no result
    with pytest.raises(RunError, match=r"run: another process has trained here since this one looked"):
        EarlierLaunches(run).claim(settings(2)).__enter__()
    assert {path: content for path, content in content_of(run.path).items() if path.name != ".lock"} == before


@pytest.mark.parametrize("requests", range(8))
def test_a_killed_claim_leaves_no_old_result_beside_new_settings(requests, run, there, monkeypatch):
    finish(there, epochs=2)
    finished = False
    with killed_before_change(requests):
        with EarlierLaunches(run.pull(NEEDED)).claim(LONGER):
            (run.path / "metrics.jsonl").write_text("one line")
        finished = True
    assert finished == (requests >= 5)  # lease, result, settings, log, lease
    monkeypatch.setattr(lease, "LIFETIME", 0.0)
    other = run.of("worker").pull(NEEDED)
    if other.read_result() is not None:
        assert other.read_config() == settings(2)
    state = EarlierLaunches(other, resume=True, extend=3).state_of(LONGER)
    assert state == "unfinished"
    with EarlierLaunches(other).claim(LONGER):
        assert [path.name for path in other.checkpoints.iterdir()] == ["last-0000000004"]
    assert other.pull().read_config() == LONGER
    assert not (there / "result.json").exists()


@pytest.mark.parametrize(("workers", "logged"), [(0, "of this process"), (2, "of a worker")])
def test_whoever_trains_brings_the_run_to_the_store(workers: int, logged: str, run: RunFolder, there: Path) -> None:
    finish(there, epochs=2)
    with EarlierLaunches(run.pull(NEEDED)).claim(settings(3, workers)):
        assert (there / "config.yaml").read_text() == to_yaml(settings(3, workers))
        assert not (there / "result.json").exists()
        (there / "metrics.jsonl").write_text("of a worker")
        (run.path / "metrics.jsonl").write_text("of this process")
    assert (there / "metrics.jsonl").read_text() == logged


def test_a_finished_run_in_a_store_is_found_and_nothing_is_written(run, there, monkeypatch):
    def refuse(*_: object) -> Never:
        raise AssertionError("a store that is only read was written to")

    finish(there, epochs=2)
    for kind in ("upload", "write", "delete"):
        monkeypatch.setattr(Store, kind, refuse)
    assert EarlierLaunches(run.pull_free(NEEDED)).state_of(settings(2)) == "finished"

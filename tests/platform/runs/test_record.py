"""A run read back: measurements as tables, whatever kills, resumes and other versions left in its log."""

import fcntl
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import ebclab
from ebclab.config import compose, to_yaml
from ebclab.errors import RunError, UserError
from ebclab.runs.folder import RunFolder
from ebclab.runs.record import open_run


def a_run(path: Path, *overrides: str) -> RunFolder:
    """A run of two epochs of four steps, without a log."""
    path.mkdir(parents=True)
    run = RunFolder.at(path)
    run.config_path.write_text(to_yaml(compose("simclr", overrides=["training.epochs=2", *overrides])))
    return run


def log(run: RunFolder, *records: tuple[str, int, dict[str, Any]]) -> None:
    for kind, step, values in records:
        run.metrics.append(kind, step, **values)


def train(*steps: int, **values: float) -> Sequence[tuple[str, int, dict[str, Any]]]:
    return [("train", step, {"epoch": (step - 1) // 4, "seconds": step / 2, **values}) for step in steps]


def test_measurements_are_columns_and_what_was_not_measured_is_none(tmp_path: Path) -> None:
    run = a_run(tmp_path / "one")
    log(run, ("event", 0, {"event": "started", "ranks": 1, "num_steps": 8}), *train(2, loss=3.0))
    log(run, *train(4, loss=math.nan, ess=0.5), ("epoch", 4, {"epoch": 1, "seconds": 2.5, "holdout_knn": 0.5}))
    record = ebclab.open_run(run.path)
    assert record.metrics["step"] == [2, 4]
    assert record.metrics["epoch"] == [0, 0]
    assert record.metrics["ess"] == [None, 0.5]
    loss = record.metrics["loss"]
    assert loss[0] == 3.0
    assert math.isnan(loss[1] or 0)
    assert record.scores == {"step": [4], "epoch": [1], "seconds": [2.5], "holdout_knn": [0.5]}
    assert (record.state, record.step, record.steps_per_epoch, record.epochs_done) == ("unfinished", 4, 4, 1)
    assert record.seconds == 2.5


def test_lines_that_a_resumed_run_made_again_stand_once(tmp_path: Path) -> None:
    """A log of 2, 4, 6, then, from a checkpoint of step 2 on, 4 again: the second 4 counts, and 6 was not made anew."""
    run = a_run(tmp_path / "one")
    log(run, *train(2, loss=3.0), *train(4, loss=2.0), *train(6, loss=1.0), *train(4, loss=2.5))
    log(run, ("epoch", 4, {"epoch": 1, "holdout_knn": 0.25}), ("epoch", 4, {"epoch": 1, "holdout_knn": 0.5}))
    record = open_run(run.path)
    assert (record.metrics["step"], record.metrics["loss"]) == ([2, 4], [3.0, 2.5])
    assert record.scores["holdout_knn"] == [0.5]


def test_the_speed_of_an_unfinished_run_leaves_out_the_first_interval(tmp_path: Path) -> None:
    run = a_run(tmp_path / "one")
    for step, rate in ((1, 1.0), (2, 10.0), (4, 30.0)):
        log(run, *train(step, images_per_second=rate))
    rate_found = open_run(run.path).images_per_second
    assert (rate_found.mean, rate_found.std) == (20.0, 10.0)


def test_a_run_is_running_while_a_process_holds_it(tmp_path: Path) -> None:
    run = a_run(tmp_path / "one")
    with (run.path / ".lock").open("a") as lock:
        assert open_run(run.path).state == "unfinished"
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert open_run(run.path).state == "running"


def test_a_run_that_has_logged_nothing_has_empty_tables_and_of_a_damaged_environment_nothing(tmp_path: Path) -> None:
    run = a_run(tmp_path / "one")
    (run.path / "environment.json").write_text(json.dumps([1]))
    record = open_run(run.path)
    assert record.environment == {}
    assert record.metrics == record.scores == record.callbacks == {"step": []}
    assert (record.step, record.epochs_done, record.seconds, record.images_per_second) == (0, 0, None, None)


def test_lines_of_others_and_numbers_of_steps_that_are_none_are_left_out(tmp_path: Path) -> None:
    run = a_run(tmp_path / "one")
    log(run, ("event", 0, {"event": "started", "num_steps": 8}), *train(2, loss=3.0))
    for steps in ("eight", [8], None):
        log(run, ("event", 2, {"event": "resumed", "num_steps": steps}))
    with run.metrics.path.open("a") as file:
        file.write('{"kind": "own", "step": 3}\n{"kind": "train", "step": 4, "lo')
    assert open_run(run.path).metrics["step"] == [2]
    assert open_run(run.path).steps_per_epoch == 4


def test_settings_of_an_unknown_method_or_an_older_version_are_read(tmp_path: Path) -> None:
    run = a_run(tmp_path / "one")
    text = run.config_path.read_text()
    run.config_path.write_text("\n".join(line for line in text.splitlines() if "log_every" not in line))
    assert open_run(run.path).settings["training.log_every"] == compose("simclr").training.log_every  # today's default
    run.config_path.write_text(text.replace("name: simclr", "name: mine"))
    record = open_run(run.path)
    assert (record.settings["method.name"], record.settings["training.epochs"]) == ("mine", 2)


@pytest.mark.parametrize("damage", ["config.yaml", "result.json"])
def test_a_damaged_file_is_named(tmp_path: Path, damage: str) -> None:
    run = a_run(tmp_path / "one")
    (run.path / damage).write_text("{")
    with pytest.raises(UserError, match=damage):
        open_run(run.path)


def test_a_folder_that_is_no_run_is_refused_with_the_nearest(tmp_path: Path) -> None:
    a_run(tmp_path / "runs" / "first")
    with pytest.raises(RunError, match=r"no run here.*did you mean .*first\?"):
        open_run(tmp_path / "runs" / "frst")
    with pytest.raises(RunError, match=r"no run here.*did you mean .*runs/first\?"):
        open_run(tmp_path / "frst")
    with pytest.raises(RunError, match=r"no run here.*name the folder around it, .*first$"):
        open_run(tmp_path / "runs" / "first" / "config.yaml")

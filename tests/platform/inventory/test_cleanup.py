"""What may be deleted: never a winner's weights, never what somebody works in or would go on from."""

import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from kill_points import LOSSES, copies_of, killed_everywhere
from typer.testing import CliRunner

from ebclab.cli.runs import app
from ebclab.errors import RunError
from ebclab.inventory import deletion as cleaning
from ebclab.inventory.deletion import find_named, find_waste, remove
from ebclab.inventory.listing import room, room_freed
from ebclab.sweeps.folder import SweepFolder
from ebclab.sweeps.log import SweepLog
from ebclab.sweeps.plan import SweepPlan, write_plan

from .conftest import worked_in

Plans = Callable[..., SweepPlan]


def checkpoints(run: Path, *names: str, size: int = 1000) -> None:
    for name in names:
        (run / "checkpoints" / name).mkdir(parents=True)
        (run / "checkpoints" / name / "model.safetensors").write_bytes(b"x" * size)


class Sweep:
    """A sweep's folder; its trials have checkpoints of 1,000 bytes."""

    def __init__(self, path: Path, plan: SweepPlan) -> None:
        self.folder = SweepFolder(path)
        self.folder.trials.mkdir(parents=True)
        write_plan(self.folder.plan, plan)
        self.log = SweepLog(self.folder.log)

    def add(self, name: str, value: float, state: str = "finished", kind: str = "search") -> None:
        facts = {"kind": kind, "number": len(self.log.trials), "point": {}, "settings": {}, "seed": 0, "epochs": 2}
        self.log.append("trial", trial=name, **facts)
        self.log.append("epoch", trial=name, epoch=2, objective=value, seconds=1.0, metrics={})
        if state != "running":
            self.log.append("ended", trial=name, state=state, reason="", seconds=1.0)
        checkpoints(self.folder.trials / name, "last-0000000004", "best-0000000002", "kept-0000000002")


@pytest.fixture
def hunt(tmp_path: Path, sweep_plan: Plans) -> Sweep:
    """A finished sweep of five trials: 0001 and 0002 rank best and are confirmed."""
    sweep = Sweep(tmp_path / "sweeps" / "hunt", sweep_plan(trials=5, top=2, seeds=1))
    sweep.add("0000", 0.1)
    sweep.add("0001", 0.9)
    sweep.add("0002", 0.8)
    sweep.add("0003", 0.7, "stopped")
    sweep.add("0004", 0.0, "diverged")
    sweep.add("confirm-0001-seed1", 0.9, kind="confirm")
    sweep.add("confirm-0002-seed1", 0.1, kind="confirm")
    (sweep.folder.path / ".ray" / "tune").mkdir(parents=True)
    (sweep.folder.path / ".ray" / "tune" / "tuner.pkl").write_bytes(b"x" * 50)
    sweep.folder.result.write_text("{}")
    return sweep


def found(tmp_path: Path) -> set[str]:
    whole = find_waste(tmp_path / "runs", tmp_path / "sweeps")
    return {waste.path.relative_to(tmp_path).as_posix() for waste in whole}


def test_sweeps_of_comparisons_and_runs_of_reproductions_are_cleaned_and_deleted_whole(tmp_path, hunt, monkeypatch):
    for whole, file, inside in (
        ("comparisons/c", "comparison.yaml", "sweeps"),
        ("reproductions/r", "plan.json", "runs"),
    ):
        (tmp_path / whole / inside).mkdir(parents=True)
        (tmp_path / whole / file).touch()
    hunt.folder.path.rename(tmp_path / "comparisons/c/sweeps/hunt")
    run = tmp_path / "reproductions/r/runs/one"
    (run / ".ray").mkdir(parents=True)
    (run / "config.yaml").touch()
    monkeypatch.chdir(tmp_path)
    wastes = find_waste(*map(Path, ("runs", "sweeps", "comparisons", "reproductions")))
    there = {f"comparisons/c/{path}" for path in SPENT} | {"comparisons/c/sweeps/hunt/.ray"}
    assert {str(waste.path) for waste in wastes} == there | {"reproductions/r/runs/one/.ray"}
    with worked_in(run), pytest.raises(RunError, match="another process works on this reproduction; wait for it"):
        find_named(["r"], None, None)
    for found in find_named(["c", "r"], None, None):
        cleaning.delete(found)
    assert [*Path("comparisons").iterdir(), *Path("reproductions").iterdir()] == []


SPENT = {
    f"sweeps/hunt/trials/{trial}/checkpoints/{name}"
    for trial in ("0000", "0003", "0004")
    for name in ("last-0000000004", "best-0000000002")
}


def test_only_search_trials_that_are_over_and_not_best_lose_their_checkpoints(hunt: Sweep, tmp_path: Path) -> None:
    assert found(tmp_path) == SPENT | {"sweeps/hunt/.ray"}


def test_what_is_removed_is_what_was_found_and_its_size_is_told(hunt: Sweep, tmp_path: Path) -> None:
    before = room([tmp_path])
    waste = find_waste(tmp_path / "runs", tmp_path / "sweeps")
    assert remove(waste) == (6 * 1000 + 50, [])
    assert before - room([tmp_path]) == 6 * 1000 + 50
    assert not any(entry.path.exists() for entry in waste)
    left = {path.parent.parent.name for path in hunt.folder.trials.glob("*/checkpoints/last-*")}
    assert left == {"0001", "0002", "confirm-0001-seed1", "confirm-0002-seed1"}
    assert len(list(hunt.folder.trials.glob("*/checkpoints/kept-*"))) == 7  # somebody asked for these
    assert found(tmp_path) == set()


def test_what_a_process_works_in_is_left_alone_also_if_it_began_after_the_question(hunt: Sweep, tmp_path: Path) -> None:
    waste = find_waste(tmp_path / "runs", tmp_path / "sweeps")
    with worked_in(hunt.folder.trials / "0003"):
        assert found(tmp_path) == {path for path in SPENT if "/0003/" not in path} | {"sweeps/hunt/.ray"}
    with worked_in(hunt.folder.path):
        assert found(tmp_path) == set()
        assert remove(waste) == (0, [hunt.folder.path])
    assert all(entry.path.exists() for entry in waste)


def test_what_has_become_a_winner_since_the_question_stays(hunt: Sweep, tmp_path: Path) -> None:
    waste = find_waste(tmp_path / "runs", tmp_path / "sweeps")
    hunt.log.append("epoch", trial="0000", epoch=2, objective=0.95, seconds=1.0, metrics={})
    remove(waste)
    assert (hunt.folder.trials / "0000" / "checkpoints" / "last-0000000004").is_dir()
    assert not (hunt.folder.trials / "0003" / "checkpoints" / "last-0000000004").exists()


def test_an_unfinished_sweep_keeps_what_it_goes_on_with(hunt: Sweep, tmp_path: Path) -> None:
    hunt.folder.result.unlink()
    hunt.add("0005", 0.0, "running")
    hunt.add("0006", 0.0, "interrupted")
    assert found(tmp_path) == SPENT | {"sweeps/hunt/.ray"}


def test_a_population_is_cleaned_only_when_it_has_finished(tmp_path: Path, sweep_plan: Plans) -> None:
    plan = sweep_plan(trials=4, top=1, seeds=1, scheduler="pbt", search="random")
    sweep = Sweep(tmp_path / "sweeps" / "hunt", plan)
    for number in range(4):
        sweep.add(f"000{number}", 0.1 * number)
    clone = {"trial": "0003", "point": {}, "settings": {}, "generation": 1, "epoch": 2}
    sweep.log.append("cloned", **clone)
    sweep.log.append("ended", trial="0003", state="finished", reason="", seconds=1.0)
    checkpoints(sweep.folder.trials / "0003-g1", "last-0000000006")
    assert found(tmp_path) == set()
    sweep.folder.result.write_text("{}")
    # the best one is 0003, and what it is now lies in 0003-g1; where it came from is spent
    assert {path.split("/")[3] for path in found(tmp_path)} == {"0000", "0001", "0002", "0003"}


def test_of_runs_only_what_ray_left_goes(tmp_path: Path) -> None:
    for name in ("one", "two", "no-run"):
        checkpoints(tmp_path / "runs" / name, "last-0000000004")
        (tmp_path / "runs" / name / ".ray").mkdir()
        if name != "no-run":
            (tmp_path / "runs" / name / "config.yaml").write_text("seed: 0\n")
    assert found(tmp_path) == {"runs/one/.ray", "runs/two/.ray"}
    with worked_in(tmp_path / "runs" / "two"):
        assert found(tmp_path) == {"runs/one/.ray"}


def test_a_sweep_whose_plan_cannot_be_read_is_left_alone(hunt, tmp_path, caplog):
    hunt.folder.plan.write_text("format: 1\n")
    assert found(tmp_path) == {"sweeps/hunt/.ray"}
    assert "its trials are left alone" in caplog.text


def test_a_file_with_a_second_name_elsewhere_frees_nothing(tmp_path: Path) -> None:
    checkpoints(tmp_path / "a", "last-1")
    (tmp_path / "b").mkdir()
    os.link(tmp_path / "a" / "checkpoints" / "last-1" / "model.safetensors", tmp_path / "b" / "same")
    assert room([tmp_path]) == 1000
    assert room_freed([tmp_path / "a"]) == 0
    assert room_freed([tmp_path / "a", tmp_path / "b"]) == 1000


def test_what_cannot_be_removed_is_named(hunt: Sweep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(cleaning.shutil, "rmtree", refuse)
    with pytest.raises(RunError, match=r"\.ray: cannot be removed, got Permission denied"):
        remove(find_waste(tmp_path / "runs", tmp_path / "sweeps"))


@pytest.mark.parametrize("loss", LOSSES)
def test_a_killed_removal_leaves_no_checkpoint_in_part_and_the_next_one_takes_the_rest(tmp_path, sweep_plan, loss):
    sweep = Sweep(tmp_path / "before" / "sweeps" / "hunt", sweep_plan(trials=2, top=0))
    sweep.add("0000", 0.1)
    sweep.add("0001", 0.9)
    for path in sweep.folder.trials.glob("*/checkpoints/*"):
        (path / "manifest.json").write_text("{}")

    def clean(folder: Path) -> None:
        remove(find_waste(folder / "runs", folder / "sweeps"))

    for folder in killed_everywhere(tmp_path, copies_of(tmp_path / "before"), clean, loss):
        trials = folder / "sweeps" / "hunt" / "trials"
        for path in trials.glob("*/checkpoints/[!.]*"):
            assert {file.name for file in path.iterdir()} == {"manifest.json", "model.safetensors"}
        clean(folder)
        assert [path.name for path in (trials / "0000" / "checkpoints").iterdir()] == ["kept-0000000002"]
        assert len(list((trials / "0001" / "checkpoints").iterdir())) == 3


def test_a_log_whose_trials_are_named_like_ways_out_deletes_nothing_elsewhere(hunt, tmp_path, caplog):
    precious = tmp_path / "runs" / "precious"
    checkpoints(precious, "last-0000000004", "best-0000000002")
    (precious / "config.yaml").write_text("seed: 0\n")
    before = sorted(precious.rglob("*"))
    for name in ("../../../runs/precious", str(precious), "..", "0000/../../../../runs/precious"):
        facts = {"kind": "search", "number": 9, "point": {}, "settings": {}, "seed": 0, "epochs": 2}
        hunt.log.append("trial", trial="0009", **facts)
        text = hunt.folder.log.read_text().replace('"0009"', json.dumps(name))
        hunt.folder.log.write_text(text)
        with hunt.folder.log.open("a") as log:
            log.write(
                json.dumps({"event": "ended", "trial": name, "state": "failed", "reason": "", "seconds": 1}) + "\n"
            )
    result = CliRunner().invoke(
        app, ["clean", "--runs", str(tmp_path / "runs"), "--sweeps", str(tmp_path / "sweeps"), "--yes"]
    )
    assert result.exit_code == 0, result.output
    assert sorted(precious.rglob("*")) == before
    assert "lines cannot be read" in caplog.text
    assert not (hunt.folder.trials / "0000" / "checkpoints" / "last-0000000004").exists()  # its own trials are cleaned


def test_a_trial_that_copied_weights_more_often_than_there_are_folders_is_no_work(hunt: Sweep, tmp_path: Path) -> None:
    clone = {"trial": "0003", "point": {}, "settings": {}, "generation": 10**18, "epoch": 2}
    hunt.log.append("cloned", **clone)
    hunt.log.append("ended", trial="0003", state="stopped", reason="", seconds=1.0)
    started = time.monotonic()
    assert found(tmp_path) == SPENT | {"sweeps/hunt/.ray"}
    assert time.monotonic() - started < 5


@pytest.mark.parametrize(
    "link", ["sweeps/hunt", *(f"sweeps/hunt/trials{inside}" for inside in ("", "/0000", "/0000/checkpoints"))]
)
def test_what_a_link_leads_to_elsewhere_is_left_alone(hunt: Sweep, tmp_path: Path, link: str) -> None:
    os.rename(tmp_path / link, tmp_path / "elsewhere")
    (tmp_path / link).symlink_to(tmp_path / "elsewhere")
    assert not any(path.startswith(f"{link}/") and path != f"{link}/.ray" for path in found(tmp_path))
    if link == "sweeps/hunt":
        assert found(tmp_path) == set()


def test_the_named_folder_itself_may_be_a_link(hunt: Sweep, tmp_path: Path) -> None:
    os.rename(tmp_path / "sweeps", tmp_path / "disk")
    (tmp_path / "sweeps").symlink_to(tmp_path / "disk")
    assert found(tmp_path) == SPENT | {"sweeps/hunt/.ray"}


def test_what_killed_saves_left_goes_and_nothing_beside_it(tmp_path: Path, hunt: Sweep) -> None:
    run, trial = tmp_path / "runs" / "alone", hunt.folder.trials / "0001"  # a winner, whose checkpoints stay
    hidden = (".last-0000000006.0a1b2c3d", ".best-0000000004.0a1b2c3d", ".kept-0000000004.0a1b2c3d")
    for folder in (run, trial):
        checkpoints(folder, *hidden)
    checkpoints(run, "last-0000000006", "best-0000000004", "kept-0000000004")
    (run / "config.yaml").write_text("{}")
    with worked_in(trial):
        found = find_waste(tmp_path / "runs", tmp_path / "none")
        assert {waste.path.name for waste in found if waste.owner == run} == set(hidden)
        assert not any(trial in waste.path.parents for waste in find_waste(tmp_path / "none", tmp_path / "sweeps"))
    with worked_in(run):
        assert find_waste(tmp_path / "runs", tmp_path / "none") == []
    remove(find_waste(tmp_path / "runs", tmp_path / "sweeps"))
    left = {path.name for path in (run / "checkpoints").iterdir()}
    assert left == {"last-0000000006", "best-0000000004", "kept-0000000004"}
    left = {path.name for path in (trial / "checkpoints").iterdir()}
    assert left == {"last-0000000004", "best-0000000002", "kept-0000000002"}

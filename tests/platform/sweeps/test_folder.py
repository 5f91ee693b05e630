"""Who may enter the folder of a sweep: nobody beside a living process, nobody with another plan, nobody by mistake."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from made_up_trials import made_up_result

from ebclab.errors import RunError, UserError
from ebclab.reports.reading import read_sweep
from ebclab.storage.lease import leased
from ebclab.storage.object_store import COPIES
from ebclab.sweeps.folder import SweepFolder
from ebclab.sweeps.plan import SweepPlan
from ebclab.sweeps.results import ConfirmedSettings, SweepResult
from ebclab.sweeps.sweep import earlier_results, sweep
from energy_contrast.catalog import METHODS

Plans = Callable[..., SweepPlan]


@pytest.fixture
def stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SweepFolder:
    """A sweep in a store."""
    monkeypatch.setenv(COPIES, str(tmp_path / "copies"))
    return SweepFolder.at(f"file://{tmp_path}/store/mine")


@pytest.fixture
def folder(tmp_path: Path) -> SweepFolder:
    return SweepFolder(tmp_path / "sweeps" / "mine")


def look(folder: SweepFolder, plan: SweepPlan, *, resume: bool = False) -> SweepResult | None:
    return folder.finished_result(folder.earlier_plan(METHODS, resume=resume), plan)


def finish(folder: SweepFolder, plan: SweepPlan) -> SweepResult:
    """Leave the folder as a sweep that has ended."""
    winner = ConfirmedSettings(source="0003", settings={}, seeds=(0,), values=(0.5,), seeds_asked=0, mean=0.5)
    result = made_up_result(folder.address, winner)
    with folder.claim_for(plan):
        folder.result.write_text(json.dumps(result.to_mapping()))
    return result


def test_a_new_sweep_has_its_folder_and_plan_once_it_is_claimed(sweep_plan: Plans, folder: SweepFolder) -> None:
    plan = sweep_plan()
    assert look(folder, plan) is None
    assert not folder.path.exists()  # looking makes nothing
    with folder.claim_for(plan):
        assert folder.trials.is_dir()
        assert folder.read_plan().to_mapping() == plan.to_mapping()
        assert not folder.result.exists()
    assert look(folder, plan) is None
    assert look(folder, plan, resume=True) is None


def test_a_second_claim_of_the_folder_is_one_sentence_until_the_first_ends(sweep_plan, folder):
    plan = sweep_plan()
    with folder.claim_for(plan):
        before = folder.plan.stat().st_mtime_ns
        with (
            pytest.raises(RunError, match="mine: another process works on this sweep; wait for it or stop it"),
            folder.claim_for(replace(plan, trials=99)),
        ):
            pass
        assert folder.plan.stat().st_mtime_ns == before
        with SweepFolder(folder.path.with_name("other")).claim_for(plan):
            pass
    with folder.claim_for(plan):
        pass


def test_a_folder_with_something_else_in_it_is_left_alone(sweep_plan: Plans, folder: SweepFolder) -> None:
    folder.path.mkdir(parents=True)
    assert look(folder, sweep_plan()) is None  # empty: it may be used
    (folder.path / ".lock").touch()
    assert look(folder, sweep_plan()) is None
    (folder.path / "thesis.tex").touch()
    with pytest.raises(RunError, match="holds something that is not a sweep; choose another --name"):
        look(folder, sweep_plan())
    (folder.path.with_name("file")).touch()
    with pytest.raises(RunError, match="not a sweep"):
        look(SweepFolder(folder.path.with_name("file")), sweep_plan())


def test_empty_folders_that_a_deleted_sweep_leaves_in_a_copy_are_no_obstacle(sweep_plan, tmp_path, stored):
    plan, there = sweep_plan(), tmp_path / "store" / "mine"
    with stored.claim_for(plan):
        (stored.path / "tensorboard" / "0000").mkdir(parents=True)
        (stored.path / "tensorboard" / "0000" / "events").touch()
    assert (there / "sweep.yaml").is_file()
    shutil.rmtree(there)
    left = SweepFolder.at(stored.address).pull()
    assert {path.name for path in left.path.iterdir() if path.is_dir()} >= {"trials", "tensorboard"}
    assert look(left, plan) is None
    with left.claim_for(plan):
        assert (there / "sweep.yaml").is_file()


def test_what_is_said_of_a_sweep_in_a_store_names_its_address(sweep_plan, tmp_path, stored):
    address, plan = stored.address, sweep_plan()

    def said(work: Callable[[], object]) -> str:
        with pytest.raises(UserError) as caught:
            work()
        assert "copies" not in str(caught.value)
        return str(caught.value)

    assert said(stored.read_plan) == f"{address}: no sweep here, sweep.yaml is missing; `ebclab sweep` makes sweeps"
    assert said(lambda: read_sweep(address)).startswith(f"{address}: no sweep here")
    assert said(lambda: earlier_results(address, plan)).startswith(f"{address}: no sweep here")
    with stored.claim_for(plan):
        pass
    other = replace(plan, epochs=plan.epochs + 1)
    assert said(lambda: look(stored, other)).startswith(f"{address}: this sweep was started with other settings")
    for text, problem in (("[]", "sweep.yaml"), ("search: tpe", "sweep.yaml is not a sweep's plan")):
        (tmp_path / "store" / "mine" / "sweep.yaml").write_text(text)
        assert said(lambda: read_sweep(address)).startswith(f"{address}: {problem}")
    (tmp_path / "store" / "mine" / "trials.jsonl").write_text("{\n")
    (problem,) = SweepFolder.at(address).pull().read_log().problems
    assert problem.startswith(f"{address}/trials.jsonl: 1 of its lines cannot be read")


def test_a_sweep_in_a_store_is_read_without_a_touch_of_the_copy_that_a_sweep_works_in(sweep_plan, stored):
    with stored.claim_for(sweep_plan()):
        (stored.trials / "0000").mkdir()
        (stored.trials / "0000" / "new.txt").write_text("not uploaded yet")
        stored.log.write_text("")
        read = read_sweep(stored.address).folder
        assert read.path != stored.path
        assert read.run("0000").path == read.trials / "0000"
        with pytest.raises(RunError, match="no finished trial"):
            earlier_results(stored.address, sweep_plan())
        assert (stored.trials / "0000" / "new.txt").exists()
        assert stored.log.exists()


def test_a_sweep_killed_before_it_had_written_its_plan_begins_again(sweep_plan, folder, monkeypatch):
    def die(path: Path, plan: SweepPlan) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("ebclab.sweeps.folder.write_plan", die)
        with pytest.raises(KeyboardInterrupt), folder.claim_for(sweep_plan()):
            pass
    assert look(folder, sweep_plan()) is None
    with folder.claim_for(sweep_plan()):
        assert folder.trials.is_dir()


def test_there_is_nothing_to_resume_where_no_sweep_is(sweep_plan: Plans, folder: SweepFolder) -> None:
    with pytest.raises(RunError, match="nothing to resume, no sweep of this name; leave --resume out to start one"):
        look(folder, sweep_plan(), resume=True)
    assert not folder.path.exists()


@pytest.mark.parametrize("resume", [False, True])
def test_another_plan_is_refused_whether_resumed_by_word_or_by_name(sweep_plan, folder, resume):
    finish(folder, sweep_plan())
    with pytest.raises(RunError, match=r"rules\.scheduler: asha in the sweep, median now"):
        look(folder, sweep_plan(scheduler="median"), resume=resume)
    with pytest.raises(UserError, match="may grow, not shrink"):
        look(folder, sweep_plan(trials=3), resume=resume)


@pytest.mark.parametrize("resume", [False, True])
def test_the_result_of_a_finished_sweep_is_given_again(sweep_plan: Plans, folder: SweepFolder, resume: bool) -> None:
    result = finish(folder, sweep_plan())
    assert look(folder, sweep_plan(), resume=resume) == result
    assert look(folder, sweep_plan("resources.threads=2"), resume=resume) == result
    folder.result.write_text("{")
    with pytest.raises(RunError, match=r"mine.result\.json: not the result of a sweep, got "):
        look(folder, sweep_plan(), resume=resume)


@pytest.mark.parametrize("changes", [{"trials": 20}, {"top": 5}, {"seeds": 4}, {"baseline": False}])
def test_a_finished_sweep_of_which_more_is_asked_has_something_to_do(sweep_plan, folder, changes):
    finish(folder, sweep_plan())
    more = replace(sweep_plan(), **changes)
    assert look(folder, more) is None
    with folder.claim_for(more):
        assert not folder.result.exists()  # it says what has finished, and this has not
    assert look(folder, more) is None
    assert folder.read_plan().to_mapping() == more.to_mapping()


def test_a_second_launch_of_a_sweep_in_a_store_leaves_the_copy_that_the_first_one_works_in(sweep_plan, stored):
    remote = stored.remote
    with leased(remote, "works on this sweep"):
        stored.path.mkdir(parents=True)
        stored.log.write_text("newer than in the store")
        with pytest.raises(RunError, match="another process works on this sweep"):
            sweep(sweep_plan(), sweeps=remote.root, name="mine")
        assert stored.log.read_text() == "newer than in the store"


@pytest.mark.parametrize("name", ["../../runs/precious", "/precious", "..", ""])
def test_a_trial_has_no_folder_elsewhere(folder: SweepFolder, name: str) -> None:
    with pytest.raises(RunError, match="not the name of a trial's run, got "):
        folder.run(name)

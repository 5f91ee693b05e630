"""Going on from another trial's weights on disk: links, not copies, whole or done again after a kill."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from ebclab.config import to_yaml
from ebclab.errors import RunError
from ebclab.runs import checkpoint
from ebclab.runs.checkpoint import Checkpoint
from ebclab.runs.folder import RunFolder
from ebclab.runs.resume import find
from ebclab.sweeps.folder import SweepFolder
from ebclab.sweeps.plan import SweepPlan, trial_config
from ebclab.sweeps.policies.population import explore
from ebclab.sweeps.ray_tune.clone import clone_run
from ebclab.sweeps.ray_tune.trial_worker import as_recorded
from ebclab.sweeps.trial import Epoch, Trial

POINT = {"optimizer.learning_rate": 0.01, "method.temperature": 0.5}
OTHER = {"optimizer.learning_rate": 0.00001, "method.temperature": 0.1}


def trial(name: str, point: dict[str, Any], **changes: Any) -> Trial:
    """A trial that has done two epochs of six."""
    curve = {1: Epoch(0.1, 1.0), 2: Epoch(0.2, 2.0)}
    return Trial(name, "search", 0, point, point, 0, 6, state="waiting", curve=curve, **changes)


def save(runs: Path, plan: SweepPlan, one: Trial, *steps: int) -> RunFolder:
    """Make the run folder of a trial with a checkpoint at each of ``steps``."""
    run = RunFolder(runs / one.run_name)
    run.checkpoints.mkdir(parents=True)
    run.config_path.write_text(to_yaml(trial_config(plan.config, one.settings, seed=0, epochs=6)))
    for step in steps:
        state: dict[str, Any] = {"optimizer": {}}
        memories = {"bank": {"rows": torch.full((3,), float(step))}}
        weights = {"weight": torch.full((2,), float(step))}
        checkpoint.save(run.checkpoints, "last", Checkpoint(step, {"epochs_done": step}, weights, state, memories))
    return run


@pytest.fixture
def plan(sweep_plan: Callable[..., SweepPlan]) -> SweepPlan:
    return sweep_plan("seed=5", scheduler="pbt", trials=4)


def test_the_folders_of_a_clone_are_on_the_disk_before_its_checkpoint_is(
    plan: SweepPlan, tmp_path: Path, disk: Any
) -> None:
    bad, good = trial("bad", OTHER), trial("good", POINT)
    save(tmp_path / "trials", plan, good, 1)
    disk.events.clear()
    clone_run(SweepFolder(tmp_path), plan, bad, good)
    made = [disk.events.index(("sync", folder, b"")) for folder in ("trials", "trials/bad-g1")]
    renamed = [index for index, event in enumerate(disk.events) if event[0] == "rename"]
    assert max(made) < min(renamed)


def test_the_clone_has_the_donors_newest_checkpoint_and_settings_near_the_donors(
    plan: SweepPlan, tmp_path: Path
) -> None:
    bad, good = trial("bad", OTHER), trial("good", POINT)
    save(tmp_path / "trials", plan, good, 1, 2)
    point, settings = clone_run(SweepFolder(tmp_path), plan, bad, good)
    assert point == explore(POINT, plan.space, seed=5, trial_id="bad", epoch=2, resample_rate=0.25)
    assert settings == plan.space.settings(point)
    run = RunFolder(tmp_path / "trials" / "bad-g1")
    found = checkpoint.load(run.checkpoints)
    assert found is not None
    assert found.step == 2
    assert torch.equal(found.model["weight"], torch.full((2,), 2.0))
    assert torch.equal(found.memories["bank"]["rows"], torch.full((3,), 2.0))
    assert [path.name for path in run.checkpoints.iterdir()] == ["last-0000000002"]


def test_the_loop_takes_the_clone_for_an_unfinished_run_with_the_trials_own_settings_and_where_its_weights_are_from(
    plan: SweepPlan, tmp_path: Path
) -> None:
    bad, good = trial("bad", OTHER), trial("good", POINT)
    save(tmp_path / "hunt" / "trials", plan, good, 2)
    _, settings = clone_run(SweepFolder(tmp_path / "hunt"), plan, bad, good)
    config = trial_config(plan.config, settings, seed=bad.seed, epochs=bad.epochs)
    run = RunFolder(tmp_path / "hunt" / "trials" / "bad-g1")
    recorded = run.read_config()
    assert recorded.training.copied_weights == "hunt/good after epoch 2"
    assert as_recorded(config, run) == recorded
    assert find(run, recorded, resume=True) == "unfinished"


def test_settings_of_a_clone_are_not_taken_for_those_of_a_run_from_the_start(plan: SweepPlan, tmp_path: Path) -> None:
    bad, good = trial("bad", OTHER), trial("good", POINT)
    save(tmp_path / "hunt" / "trials", plan, good, 2)
    _, settings = clone_run(SweepFolder(tmp_path / "hunt"), plan, bad, good)
    clone, plain = RunFolder(tmp_path / "hunt" / "trials" / "bad-g1"), RunFolder(tmp_path / "plain")
    refused = "settings of a population's member that continued with the weights of hunt/good after epoch 2, so that "
    with pytest.raises(RunError, match=f"^{plain.path}: {refused}"):
        find(plain, clone.read_config(), resume=False)
    assert not plain.path.exists()
    config = trial_config(plan.config, settings, seed=bad.seed, epochs=bad.epochs)
    assert find(plain, config, resume=False) == "new"
    plain.path.mkdir()
    plain.config_path.write_text(to_yaml(config))
    with pytest.raises(RunError, match=r"copied_weights:  in the run, hunt/good after epoch 2 now"):
        find(plain, clone.read_config(), resume=False)
    shutil.rmtree(clone.checkpoints)
    with pytest.raises(RunError, match=refused):
        find(clone, clone.read_config(), resume=False)


def test_the_files_are_the_donors_own_and_live_on_when_the_donor_deletes_its_names(
    plan: SweepPlan, tmp_path: Path
) -> None:
    bad, good = trial("bad", OTHER), trial("good", POINT)
    donor = save(tmp_path / "trials", plan, good, 2)
    clone_run(SweepFolder(tmp_path), plan, bad, good)
    copies = sorted((tmp_path / "trials" / "bad-g1" / "checkpoints" / "last-0000000002").iterdir())
    assert len(copies) == 4  # manifest, model, state, memory
    for copy in copies:
        assert os.path.samefile(copy, donor.checkpoints / "last-0000000002" / copy.name)
    shutil.rmtree(donor.path)
    found = checkpoint.load(
        RunFolder(tmp_path / "trials" / "bad-g1").checkpoints
    )  # reads every byte against its checksum
    assert found is not None
    assert found.step == 2


def test_a_new_checkpoint_of_the_donor_does_not_change_the_clone(plan: SweepPlan, tmp_path: Path) -> None:
    bad, good = trial("bad", OTHER), trial("good", POINT)
    donor = save(tmp_path / "trials", plan, good, 2)
    clone_run(SweepFolder(tmp_path), plan, bad, good)
    weights = {"weight": torch.full((2,), 9.0)}
    checkpoint.save(donor.checkpoints, "last", Checkpoint(2, {"epochs_done": 2}, weights, {}, {}))
    found = checkpoint.load(RunFolder(tmp_path / "trials" / "bad-g1").checkpoints)
    assert found is not None
    assert torch.equal(found.model["weight"], torch.full((2,), 2.0))


def test_a_donor_that_has_gone_on_gives_what_it_had_at_the_exchange(plan: SweepPlan, tmp_path: Path) -> None:
    bad, good = trial("bad", OTHER), trial("good", POINT)
    save(tmp_path / "trials", plan, good, 2, 3)  # steps, and epochs as well
    clone_run(SweepFolder(tmp_path), plan, bad, good)
    assert [path.name for path in RunFolder(tmp_path / "trials" / "bad-g1").checkpoints.iterdir()] == [
        "last-0000000002"
    ]
    save(tmp_path / "trials", plan, trial("far", POINT), 3, 4)  # what it had then is gone
    clone_run(SweepFolder(tmp_path), plan, bad, trial("far", POINT))
    assert [path.name for path in RunFolder(tmp_path / "trials" / "bad-g1").checkpoints.iterdir()] == [
        "last-0000000004"
    ]


def test_where_links_are_refused_the_files_are_copied(
    plan: SweepPlan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(source: Path, target: Path) -> None:
        raise OSError("no links here")

    monkeypatch.setattr(os, "link", refuse)
    bad, good = trial("bad", OTHER), trial("good", POINT)
    donor = save(tmp_path / "trials", plan, good, 2)
    clone_run(SweepFolder(tmp_path), plan, bad, good)
    name = Path("checkpoints", "last-0000000002", "model.safetensors")
    assert (tmp_path / "trials" / "bad-g1" / name).read_bytes() == (donor.path / name).read_bytes()
    assert checkpoint.load(RunFolder(tmp_path / "trials" / "bad-g1").checkpoints) is not None


def test_a_half_made_folder_of_a_killed_sweep_is_replaced_by_an_equal_clone(plan: SweepPlan, tmp_path: Path) -> None:
    bad, good = trial("bad", OTHER), trial("good", POINT)
    save(tmp_path / "trials", plan, good, 2)
    first = clone_run(SweepFolder(tmp_path), plan, bad, good)
    run = RunFolder(tmp_path / "trials" / "bad-g1")
    text = run.config_path.read_text()
    shutil.rmtree(run.checkpoints / "last-0000000002")
    (run.checkpoints / ".last-0000000002.abc").mkdir()
    run.config_path.write_text("half")
    assert clone_run(SweepFolder(tmp_path), plan, bad, good) == first
    assert run.config_path.read_text() == text
    assert [path.name for path in run.checkpoints.iterdir()] == ["last-0000000002"]


def test_clones_of_clones_have_folders_of_their_own_and_take_the_donors_present_run(
    plan: SweepPlan, tmp_path: Path
) -> None:
    bad, good = trial("bad", OTHER, generation=1), trial("good", POINT, generation=2)
    save(tmp_path / "trials", plan, trial("good", POINT), 1)
    save(tmp_path / "trials", plan, good, 2)
    save(tmp_path / "trials", plan, bad, 2)
    clone_run(SweepFolder(tmp_path), plan, bad, good)
    assert sorted(path.name for path in (tmp_path / "trials").iterdir()) == ["bad-g1", "bad-g2", "good", "good-g2"]
    found = checkpoint.load(RunFolder(tmp_path / "trials" / "bad-g2").checkpoints)
    assert found is not None
    assert found.step == 2


def test_a_donor_without_a_checkpoint_is_one_sentence_and_nothing_is_made(plan: SweepPlan, tmp_path: Path) -> None:
    bad, good = trial("bad", OTHER), trial("good", POINT)
    save(tmp_path / "trials", plan, good)
    with pytest.raises(RunError, match="good: has no checkpoint to continue from"):
        clone_run(SweepFolder(tmp_path), plan, bad, good)
    assert not (tmp_path / "trials" / "bad-g1").exists()

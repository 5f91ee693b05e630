"""Going on from another trial's weights on disk: links, not copies, whole or done again after a kill."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from made_up_trials import made_up_trial

from ebclab.config import to_yaml
from ebclab.errors import RunError
from ebclab.runs import checkpoint
from ebclab.runs.checkpoint import Checkpoint
from ebclab.runs.folder import RunFolder
from ebclab.runs.resume import EarlierLaunches
from ebclab.sweeps.folder import SweepFolder
from ebclab.sweeps.log import Trial
from ebclab.sweeps.plan import SweepPlan, trial_config
from ebclab.sweeps.policies.population import explore
from ebclab.sweeps.ray_tune.phase import clone_run
from ebclab.sweeps.ray_tune.trial_worker import as_recorded

POINT = {"optimizer.learning_rate": 0.01, "method.temperature": 0.5}
OTHER = {"optimizer.learning_rate": 0.00001, "method.temperature": 0.1}


def trial(name: str, point: dict[str, Any], **changes: Any) -> Trial:
    """A trial that has done two epochs of six."""
    return made_up_trial(name, [0.1, 0.2], point=point, settings=point, epochs=6, state="waiting", **changes)


BAD, GOOD = trial("bad", OTHER), trial("good", POINT)


class Population:
    """The folder of a sweep in which trials copy from each other."""

    def __init__(self, path: Path, plan: SweepPlan) -> None:
        self.folder, self.plan = SweepFolder(path), plan

    def save(self, one: Trial, *steps: int) -> RunFolder:
        """Make the run folder of a trial with a checkpoint at each of ``steps``, which are epochs too."""
        run = RunFolder(self.folder.trials / one.run_name)
        run.checkpoints.mkdir(parents=True, exist_ok=True)
        run.config_path.write_text(to_yaml(trial_config(self.plan.config, one.settings, seed=0, epochs=6)))
        for step in steps:
            weights, rows = torch.full((2,), float(step)), torch.full((3,), float(step))
            state = Checkpoint(step, {"epochs_done": step}, {"weight": weights}, {}, {"bank": {"rows": rows}})
            checkpoint.save(run.checkpoints, "last", state)
        return run

    def clone(self, trial: Trial = BAD, donor: Trial = GOOD) -> tuple[Any, Any]:
        return clone_run(self.folder, self.plan, trial, donor)

    def run(self, name: str = "bad-g1") -> RunFolder:
        return self.folder.run(name)

    def step(self, name: str = "bad-g1") -> int:
        """The step of the only checkpoint of a run, of which every byte and every value is as ``save`` made it."""
        run = self.run(name)
        found = checkpoint.load(run.checkpoints)
        assert [path.name for path in run.checkpoints.iterdir()] == [f"last-{found.step:010d}"]
        assert torch.equal(found.model["weight"], torch.full((2,), float(found.step)))
        assert torch.equal(found.memories["bank"]["rows"], torch.full((3,), float(found.step)))
        return found.step


@pytest.fixture
def population(sweep_plan: Callable[..., SweepPlan], tmp_path: Path) -> Population:
    return Population(tmp_path / "hunt", sweep_plan("seed=5", scheduler="pbt", trials=4))


def test_the_folders_of_a_clone_are_on_the_disk_before_its_checkpoint_is(population: Population, disk: Any) -> None:
    population.save(GOOD, 1)
    disk.events.clear()
    population.clone()
    made = [disk.events.index(("sync", folder, b"")) for folder in ("hunt/trials", "hunt/trials/bad-g1")]
    renamed = [index for index, event in enumerate(disk.events) if event[0] == "rename"]
    assert max(made) < min(renamed)


@pytest.mark.parametrize(
    ("trial", "donor", "saved", "name", "step"),
    [
        (BAD, GOOD, [1, 2], "bad-g1", 2),
        (BAD, GOOD, [2, 3], "bad-g1", 2),  # a donor that has gone on gives what it had at the exchange,
        (BAD, GOOD, [3, 4], "bad-g1", 4),  # or its newest if that is gone
        (trial("bad", OTHER, generation=1), trial("good", POINT, generation=2), [2], "bad-g2", 2),
    ],
)
def test_a_clone_has_the_weights_of_the_exchange_and_settings_nearby(population, trial, donor, saved, name, step):
    population.save(GOOD, 1)  # also of a donor that trains in another folder by now
    population.save(donor, *saved)
    point, settings = population.clone(trial, donor)
    assert point == explore(POINT, population.plan.space, seed=5, trial_id="bad", epoch=2, resample_rate=0.25)
    assert settings == population.plan.space.settings(point)
    assert population.step(name) == step


def test_a_clone_is_an_unfinished_run_that_says_whose_weights_it_has(population: Population) -> None:
    population.save(GOOD, 2)
    _, settings = population.clone()
    config = trial_config(population.plan.config, settings, seed=BAD.seed, epochs=BAD.epochs)
    run = population.run()
    recorded = run.read_config()
    assert recorded.training.copied_weights == "hunt/good after epoch 2"
    assert as_recorded(config, EarlierLaunches(run)) == recorded
    assert EarlierLaunches(run, resume=True).state_of(recorded) == "unfinished"


def test_settings_of_a_clone_are_not_taken_for_those_of_a_run_from_the_start(population, tmp_path):
    population.save(GOOD, 2)
    _, settings = population.clone()
    clone, plain = population.run(), RunFolder(tmp_path / "plain")
    refused = "settings of a population's member that continued with the weights of hunt/good after epoch 2, so that "
    with pytest.raises(RunError, match=f"^{plain.path}: {refused}"):
        EarlierLaunches(plain).state_of(clone.read_config())
    assert not plain.path.exists()
    config = trial_config(population.plan.config, settings, seed=BAD.seed, epochs=BAD.epochs)
    assert EarlierLaunches(plain).state_of(config) == "new"
    plain.path.mkdir()
    plain.config_path.write_text(to_yaml(config))
    with pytest.raises(RunError, match=r"copied_weights:  in the run, hunt/good after epoch 2 now"):
        EarlierLaunches(plain).state_of(clone.read_config())
    shutil.rmtree(clone.checkpoints)
    with pytest.raises(RunError, match=refused):
        EarlierLaunches(clone).state_of(clone.read_config())


def test_files_are_linked_and_nothing_that_the_donor_does_changes_them(population: Population) -> None:
    donor = population.save(GOOD, 2)
    population.clone()
    copies = sorted((population.run().checkpoints / "last-0000000002").iterdir())
    assert len(copies) == 4  # manifest, model, state, memory
    for copy in copies:
        assert os.path.samefile(copy, donor.checkpoints / "last-0000000002" / copy.name)
    other = Checkpoint(2, {"epochs_done": 2}, {"weight": torch.full((2,), 9.0)}, {}, {})
    checkpoint.save(donor.checkpoints, "last", other)
    assert population.step() == 2
    shutil.rmtree(donor.path)
    assert population.step() == 2


def test_where_links_are_refused_the_files_are_copied(population: Population, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(source: Path, target: Path) -> None:
        raise OSError("no links here")

    monkeypatch.setattr(os, "link", refuse)
    population.save(GOOD, 2)
    population.clone()
    assert population.step() == 2


def test_a_half_made_folder_of_a_killed_sweep_is_replaced_by_an_equal_clone(population: Population) -> None:
    population.save(GOOD, 2)
    first, run = population.clone(), population.run()
    text = run.config_path.read_text()
    shutil.rmtree(run.checkpoints / "last-0000000002")
    (run.checkpoints / ".last-0000000002.abc").mkdir()
    run.config_path.write_text("half")
    assert population.clone() == first
    assert run.config_path.read_text() == text
    assert population.step() == 2


def test_a_donor_without_a_checkpoint_is_one_sentence_and_nothing_is_made(population: Population) -> None:
    population.save(GOOD)
    with pytest.raises(RunError, match="good: has no checkpoint to continue from"):
        population.clone()
    assert not population.run().path.exists()

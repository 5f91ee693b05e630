"""Population based training on disk: makes a run that starts from another run's checkpoint with new settings."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path

from ebclab.config import to_yaml
from ebclab.errors import RunError
from ebclab.storage import atomic
from ebclab.storage.mirror import MANIFEST
from ebclab.storage.reading import read_json_object
from ebclab.sweeps.folder import SweepFolder
from ebclab.sweeps.plan import SweepPlan, trial_config
from ebclab.sweeps.policies.population import explore
from ebclab.sweeps.space.space import Point, Settings
from ebclab.sweeps.trial import Trial


def clone_run(folder: SweepFolder, plan: SweepPlan, trial: Trial, donor: Trial) -> tuple[Point, Settings]:
    """Make the next run folder of ``trial`` from the newest checkpoint of ``donor``, with settings near the donor's.

    The checkpoint's files are linked where the file system allows it, otherwise copied: checkpoints never change, and
    the donor may delete its own. The trial's new point and settings are returned.
    """
    epoch = trial.epochs_done
    rate = plan.population.resample_rate
    point = explore(donor.point, plan.space, seed=plan.config.seed, trial_id=trial.id, epoch=epoch, resample_rate=rate)
    settings = plan.space.settings(point)
    donated = folder.run(donor.run_name).pull(("last",))
    paths = sorted(donated.checkpoints.glob("last-*"))
    if not paths:
        raise RunError(f"{donated.path}: has no checkpoint to continue from; restore its folder")
    source = next((path for path in paths if _epochs_done(path) == epoch), paths[-1])  # or the newest, if it is gone
    run = folder.run(f"{trial.id}-g{trial.generation + 1}")
    if run.path.exists():  # left by a sweep that was killed before the clone was in its log
        shutil.rmtree(run.path)
    run.clear_store()
    atomic.make_folder(run.checkpoints)
    config = trial_config(plan.config, settings, seed=trial.seed, epochs=trial.epochs)
    done = _epochs_done(source)
    copied = f"{folder.path.name}/{donor.run_name} after epoch {epoch if done is None else done}"
    config = replace(config, training=replace(config.training, copied_weights=copied))
    atomic.write_text(run.config_path, to_yaml(config))
    with atomic.new_folder(run.checkpoints / source.name) as aside:
        for file in source.iterdir():
            _link(file, aside / file.name)
    run.send()
    return point, settings


def _epochs_done(path: Path) -> int | None:
    """Return how many epochs were done at a checkpoint; None when it cannot be read."""
    try:
        done: int = read_json_object(path / MANIFEST)["facts"]["epochs_done"]
    except (RunError, KeyError, TypeError):
        return None
    return done


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:  # another file system, or one without links
        shutil.copyfile(source, target)

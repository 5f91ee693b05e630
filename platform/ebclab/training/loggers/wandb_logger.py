"""Weights & Biases: configured by its own environment variables, such as ``WANDB_MODE`` and ``WANDB_PROJECT``."""

from __future__ import annotations

import os
import uuid
from collections.abc import Mapping

import wandb

from ebclab.storage.own_folder import own_folder
from ebclab.training.loggers.run_logger import PROJECT, Ending, LoggedRun


class WandbLogger:
    """A run in Weights & Biases. Only settings and numbers are sent; not console, code, git state or command line.

    Args:
        identity: Id of the run of an earlier launch; empty makes a new one.
    """

    def __init__(self, run: LoggedRun, identity: str) -> None:
        self._id = identity or uuid.uuid4().hex
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", PROJECT),
            name=run.name,
            group=run.sweep or None,
            id=self._id,
            resume="allow",
            config=dict(run.settings),
            dir=str(own_folder(run.folder, "wandb").parent),
            reinit="create_new",  # leaves a run of the user's open
            settings=wandb.Settings(
                console="off",
                disable_code=True,
                disable_git=True,
                disable_job_creation=True,
                x_disable_meta=True,
                x_save_requirements=False,
                silent=True,
            ),
        )

    @property
    def identity(self) -> str:
        """Id of the run."""
        return self._id

    def write(self, values: Mapping[str, float], step: int) -> None:
        """Pass the numbers of a step to wandb's own process, which drops steps that a resume repeats."""
        self._run.log(dict(values), step=step)

    def close(self, ending: Ending) -> None:
        """Wait until all is written or sent."""
        self._run.finish(exit_code=0 if ending == "finished" else 1)

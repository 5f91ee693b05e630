"""Checks before a sweep starts, so that its trials do not all fail for the same reason."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch

from ebclab.data.class_labels import num_unlabelled
from ebclab.data.holdout import Split
from ebclab.errors import ConfigError, UserError
from ebclab.evaluation.monitor import require_images
from ebclab.evaluation.objectives import NEED_LABELS, labels_problem
from ebclab.runs.initial_weights import InitialWeights
from ebclab.sweeps.plan import SweepPlan, trial_config
from ebclab.sweeps.space.space import Settings
from ebclab.training.loggers import require_installed
from ebclab.training.setup import require_batches
from energy_contrast.method import Method


def require_runnable(
    plan: SweepPlan, split: Split, methods: Mapping[str, type[Method]], weights: InitialWeights | None = None
) -> list[str]:
    """Refuse a sweep whose trials could not be trained on these images or not be judged by them; return warnings."""
    require_judgeable(plan, split)
    return require_trainable(plan, split, methods, weights)


def require_judgeable(plan: SweepPlan, split: Split) -> None:
    """Check that the objective can be measured on the images, and that the loggers are installed."""
    require_installed(plan.config.training.loggers)
    objective = plan.config.evaluation.objective
    if len(split.holdout) == 0:
        raise UserError(
            f"data.holdout_rate: a sweep chooses by held-out images, got none of {len(split.train):,}; "
            "hold a larger share out"
        )
    if plan.config.data.confirm_rate and not (split.confirm and len(split.confirm)):
        raise UserError(
            f"data.confirm_rate: confirming runs have no images to be scored on, got none of {len(split.train):,}; "
            "keep a larger share for them"
        )
    parts = [part.labels for part in (split.train, split.holdout, split.confirm) if part]
    unlabelled = num_unlabelled(torch.cat(parts))
    if objective in NEED_LABELS and unlabelled:
        raise UserError(
            f"evaluation.objective: {objective} needs labels of two classes, got {unlabelled:,} images without; "
            "use effective_rank or alignment_uniformity"
        )
    if problem := labels_problem(plan.config.evaluation, unlabelled):
        raise UserError(problem)
    for scored in (split.holdout, split.confirm):
        if scored is not None:
            require_images(split.train, scored, plan.config.evaluation)


def require_trainable(
    plan: SweepPlan, split: Split, methods: Mapping[str, type[Method]], weights: InitialWeights | None = None
) -> list[str]:
    """Refuse a space or a budget with which trials could not be trained; return warnings.

    Each setting is tried at both ends of its range, with all others at the run's own values: the method is built, its
    batches must fit the images and the groups of batch norm, and its memories must fit the device. The initial weights
    must fit the network.
    """
    method_class = methods[plan.config.method_name]
    own: list[str] = []  # problems of the run's own settings; reported once, not for every end
    problems: dict[str, None] = {}  # ordered, each line once
    warnings: list[str] = []
    for settings in _one_at_a_time(plan):
        named = ", ".join(f"{name}={value}" for name, value in settings.items()) or "the run's own settings"
        try:
            for epochs in {plan.epochs, plan.config.training.epochs}:
                config = trial_config(plan.config, settings, seed=plan.config.seed, epochs=epochs)
            warning = require_batches(config, method_class, split, weights)
            if warning and warning not in warnings:
                warnings.append(f"{plan.space.where}, {named}: {warning}" if settings else warning)
        except (ConfigError, ValueError) as error:
            lines = error.problems if isinstance(error, ConfigError) else [str(error)]
            problems |= dict.fromkeys(f"{plan.space.where}, {named}: {line}" for line in lines if line not in own)
            own = own if settings else lines
    if problems:
        raise ConfigError(list(problems))
    return warnings


def _one_at_a_time(plan: SweepPlan) -> Iterator[Settings]:
    yield {}
    own = plan.start
    point = plan.space.point_of(own)
    for moved in plan.space.ends_beside(point) if point else ():
        yield {name: value for name, value in plan.space.settings(moved).items() if value != own[name]}

"""Warm start: results of an earlier sweep for the search of a new one."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import chain
from pathlib import Path
from typing import Any

from ebclab.config import to_mapping
from ebclab.data.holdout import CHOOSE_IMAGES
from ebclab.errors import RunError, UserError
from ebclab.evaluation.objectives import MEASURED_WITH
from ebclab.sweeps.folder import SweepFolder
from ebclab.sweeps.plan import SweepPlan
from ebclab.sweeps.space.check import own_settings
from energy_contrast.method import Method

_MUST_AGREE = ("evaluation.objective", *(f"data.{name}" for name in CHOOSE_IMAGES))


def earlier_results(
    where: str | Path, plan: SweepPlan, methods: Mapping[str, type[Method]] | None = None
) -> list[tuple[dict[str, Any], float]]:
    """Return points in the new sweep's space and their objectives, from the finished trials of an earlier sweep.

    A setting that the earlier sweep did not search has the value it ran with. Points outside the space are left out.

    Args:
        where: The earlier sweep: its folder, or its address in an object store.
        plan: The plan of the new sweep.
        methods: Methods by name; None means the catalogue.
    """
    folder = SweepFolder.at(where).of("reader").pull()
    before = folder.read_plan(methods)
    old, new = to_mapping(before.config), to_mapping(plan.config)
    measured = MEASURED_WITH.get(plan.config.evaluation.objective, [*chain(*MEASURED_WITH.values())])
    searched = {parameter.name for parameter in plan.space.parameters}
    same = [*_MUST_AGREE, *(f"evaluation.{name}" for name in measured), *(f"encoder.{name}" for name in new["encoder"])]
    differ = [
        f"{key}: {old[section][name]} there, {new[section][name]} here"
        for key in same
        if key not in searched
        for section, name in [key.split(".")]
        if old[section][name] != new[section][name]
    ]
    if before.config.method_name != plan.config.method_name:
        differ.append(f"method.name: {before.config.method_name} there, {plan.config.method_name} here")
    if before.epochs != plan.epochs:
        differ.append(f"--epochs: {before.epochs} there, {plan.epochs} here")
    if differ:
        lines = "".join(f"\n  {line}" for line in differ)
        raise UserError(
            f"--warm-start: {folder.address} measured something else; leave it out, or make these agree:{lines}"
        )
    fixed = own_settings(plan.space, before.config)
    points = []
    for trial in folder.read_log().of_kind("search"):
        point = plan.space.point_of({**fixed, **trial.settings})
        last = trial.last.objective if trial.last else math.nan
        if trial.state == "finished" and point is not None and math.isfinite(last):
            points.append((point, last))
    if not points:
        raise RunError(
            f"--warm-start: {folder.address} has no finished trial inside this space; leave it out or widen the space"
        )
    return points

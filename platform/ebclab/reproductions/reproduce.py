"""Reproduce a study: plan it, train and measure its runs, write the page."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ebclab.errors import UserError
from ebclab.reproductions.document import write_table
from ebclab.reproductions.folder import ReproductionFolder
from ebclab.reproductions.plan import StudyPlan, plan_study
from ebclab.reproductions.request import ReproduceRequest
from ebclab.reproductions.run import run_plan
from ebclab.reproductions.study import load_study
from ebclab.reproductions.table import ReproducedTable, table_of_plan
from ebclab.terminal import say
from ebclab.training.display import choose_display
from ebclab.training.listener import Listener


@dataclass(frozen=True)
class ReproductionRun:
    """Result of reproducing a study."""

    folder: ReproductionFolder
    table: ReproducedTable  # our numbers beside the published


def plan_of_request(request: ReproduceRequest) -> tuple[StudyPlan, ReproductionFolder]:
    """Return the plan of a request and its folder; nothing is written."""
    if request.study is None:
        raise UserError("reproduce: name a study, such as ebclr/table1; `ebclab reproduce --list` shows all")
    if problems := request.problems():
        raise UserError("\n".join(problems))
    plan = plan_study(
        load_study(request.study),
        request.scale,
        seeds=range(request.seeds or 0),
        data_root=request.data_root,
        assignments=request.assignments,
        images=request.places,
    )
    return plan, ReproductionFolder.of_plan(plan, request.to)


def reproduce(
    request: ReproduceRequest, *, note: Callable[[str], None] | None = None, display: Listener | None = None
) -> ReproductionRun:
    """Run a table or figure of a paper, or resume it, and set our numbers beside the published.

    A run that cannot be trained or measured is named in ``table.failures``; the other runs continue.

    Args:
        note: Called with a line of text when a run starts, ends or fails; if None, the line goes to stderr.
        display: Progress display of each run; if None, it is chosen by the terminal (none at scale smoke).

    Returns:
        The results, which are also written to its folder.
    """
    plan, folder = plan_of_request(request)
    outcomes = run_plan(
        plan,
        folder,
        data_root=request.data_root,
        note=note or (lambda text: say(text, err=True)),
        display=display or (None if plan.scale == "smoke" else choose_display()),
        at_once=request.at_once,
    )
    table = table_of_plan(plan, outcomes, request.assignments)
    write_table(table, folder)
    return ReproductionRun(folder, table)

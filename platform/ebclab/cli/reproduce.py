"""``ebclab reproduce``: reruns a table or figure of a paper and compares it with the published numbers."""

from __future__ import annotations

import textwrap
from collections import Counter
from typing import TYPE_CHECKING, Annotated

import typer

from ebclab.cli.options import Json, takes
from ebclab.errors import UserError
from ebclab.formatting import count
from ebclab.reproductions.request import SCALES, ReproduceRequest
from ebclab.terminal import say

if TYPE_CHECKING:
    from ebclab.reproductions.plan import ReproductionFolder, StudyPlan
    from ebclab.reproductions.table import ReproducedTable

_WIDTH = 79


@takes(ReproduceRequest)
def reproduce(
    request: ReproduceRequest,
    list_studies: Annotated[
        bool, typer.Option("--list", help="List studies, their costs and claims, and what is not a study.")
    ] = False,
    show: Annotated[bool, typer.Option("--show", help="Only print the runs and their cost.")] = False,
    as_json: Json = False,
) -> None:
    """Run a table or figure of a paper again, or a study of your own, with its claims answered.

    Repeating a command continues where it stopped; nothing is trained or measured twice.

    Examples:

    ebclab reproduce ebclr/table1

    ebclab reproduce my-question.yaml --scale paper --seeds 3
    """
    if list_studies:
        return _list()
    if show and as_json:
        raise UserError("--json: is for results, and --show measures none; leave one of them out")
    from ebclab.reproductions.reproduce import plan_of_request
    from ebclab.reproductions.reproduce import reproduce as run_study

    if show:
        return _show(*plan_of_request(request))
    found = run_study(request)
    if as_json:
        import json

        say(json.dumps(found.table.to_mapping(), indent=2))
    else:
        _print(found.table)
        say(f"wrote {found.folder.address_of(found.folder.page)}")
    if found.table.failures:
        raise typer.Exit(1)


def _list() -> None:
    """Print each study's title, number of claims, cost and images at each scale, and what is not a study."""
    from ebclab.reproductions.cost import estimate
    from ebclab.reproductions.plan import needs_images, plan_study
    from ebclab.reproductions.study import list_studies, load_study, without_study

    for name in list_studies():
        study = load_study(name)
        plans = {scale: plan_study(study, scale) for scale in SCALES}
        say(f"{name}: {study.about.title} ({count(len(study.claims), 'claim')})")
        for scale, plan in plans.items():
            if plan.runs:
                cost = estimate(plan)
                words = f"{cost.in_words()}, {count(cost.runs, 'run')}, {', '.join(plan.datasets)}"
            else:
                lacks = dict.fromkeys(kind for cell in plan.cells for kind in cell.lacks)
                whys = dict.fromkeys(cell.not_run for cell in plan.cells if not cell.lacks)
                words = "not run: " + "; ".join([*whys, *([needs_images(lacks)] if lacks else [])])
            _echo(words, f"  {scale:5}  ")
    _echo("smoke, quick and small: time on two processor cores; paper: hours of one GPU; all of it estimated")
    say("\nno study")
    for name, reason in without_study().items():
        _echo(f"{name}: {reason}", "  ")


def _show(plan: StudyPlan, folder: ReproductionFolder) -> None:
    from ebclab.reproductions.cost import estimate

    about, cost = plan.study.about, estimate(plan)
    _echo(about.title)
    _echo(about.asks)
    alike = Counter[str]()  # runs that differ in the seed alone
    for name, config in plan.runs.items():
        facts = (
            f"{config.method_name} on {config.data.name}, {config.encoder.name}, "
            f"{count(config.training.epochs, 'epoch')}, batch {config.training.batch_size}"
        )
        measured = " and ".join(f'"{plan.study.columns[cell.column].title}"' for cell in plan.cells_of(name))
        alike[f"{name.removesuffix(f'-seed{config.seed}')}: {facts}; for {measured}"] += 1
    for line, number in alike.items():
        _echo(line + (f"; {number} runs" if number > 1 else ""), "  ")
    for claim in plan.study.claims:
        _echo(f"claim: {claim.says}", "  ")
    for title, why in plan.left_out.items():
        _echo(f"not run at this scale: {title}: {why}")
    _echo(f"{count(len(plan.seeds), 'seed')} ({', '.join(map(str, plan.seeds))}): {plan.seeds_from}")
    basis = "" if cost.seconds is None else f" on {cost.device}, estimated: {cost.basis}"
    _echo(f"{count(cost.runs, 'run')}, {cost.in_words()}{basis}")
    say(f"folder: {folder.address}")


def _print(table: ReproducedTable) -> None:
    """Print our numbers next to the published ones, one line per cell."""
    from ebclab.document.document import Remark
    from ebclab.document.text import print_blocks
    from ebclab.reproductions.document import beside_the_paper, claims_asked, cost_in_words

    title = f"{table.plan.study.about.title} ({table.plan.scale})"
    printed = table.plan.study.has_numbers
    lines = [table.learnt] if table.learnt else []
    lines += [
        f"claim: {each.says} {each.answer}: {each.why}{f'; in print: {each.in_print}' if printed else ''}"
        for each in table.claims
    ]
    lines += [*([claims_asked(table)] if table.claims else []), *table.stand_ins]
    lines += [f"not run at this scale: {name}: {why}" for name, why in table.plan.left_out.items()]
    lines += [f"no number: {line}" for line in table.failures]
    lines += [text for text in (table.what_it_shows, table.what_seeds_say, cost_in_words(table)) if text]
    print_blocks([beside_the_paper(table, title=title, with_not_run=False), *map(Remark, lines)])


def _echo(text: str, indent: str = "") -> None:
    say(textwrap.fill(text, _WIDTH, initial_indent=indent, subsequent_indent=" " * (len(indent) + 2)))

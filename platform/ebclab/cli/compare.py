"""``ebclab compare``: compares methods at equal budgets, with simultaneous confidence intervals."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import typer

from ebclab.cli.options import TrialOptions, refuse_given, takes
from ebclab.comparisons.request import ComparisonRequest
from ebclab.config.options import given_of, option, option_problems, word_of
from ebclab.config.recipes import name_hosts_in
from ebclab.document.document import Remark, Table, numeric
from ebclab.document.text import print_blocks, print_facts
from ebclab.errors import TrainingError, UserError
from ebclab.methods_by_name import is_import_name
from ebclab.terminal import say

if TYPE_CHECKING:
    from ebclab.comparisons.compare import ComparisonRun
    from ebclab.comparisons.plan import ComparisonFolder, ComparisonPlan


@dataclass(frozen=True, kw_only=True)
class CompareOptions(TrialOptions):
    """Options of ``ebclab compare``; omitted ones of a request are taken from the comparison ``--name``, if any."""

    given: Mapping[str, Any] = given_of(ComparisonRequest)
    at_once: int = option(1, "Number of searches that run at once, in a process each.", minimum=1, panel="Resources")
    name: str | None = option(None, "Name of the comparison; default: METHODS-DATASET.", panel="Results")
    comparisons: str = option(
        "comparisons", "Folder of comparisons, or an address such as s3://bucket/comparisons.", is_place_of_results=True
    )
    pilot: int | None = option(
        None, "First run the first method's default settings with N other seeds.", metavar="N", panel="Budget"
    )
    page: bool = option(False, "Write the page from what --name has measured so far; train nothing.", panel="Results")
    show: bool = option(False, "Only print the plan, its cost and the longest time.", panel="Options")

    def __post_init__(self) -> None:
        if problems := option_problems(self):
            raise UserError("\n".join(problems))

    def request(self) -> ComparisonRequest:
        """Return the request; options that the command omits are taken from the comparison of this name."""
        given, assignments = self.given, self.given.get("assignments", ())
        name_hosts_in(setting[setting.partition("=")[0].rfind(":") + 1 :] for setting in assignments)
        if (saved := self._saved()) is not None:
            self._require_named(saved)
            new = tuple(text for text in assignments if text not in saved.assignments)
            return replace(saved, **{**given, "assignments": (*saved.assignments, *new)})
        return ComparisonRequest(**{"methods": (), "batch_sizes": (), **given})

    def require_possible(self) -> None:
        """Refuse options from which no comparison can be made, regardless of an existing comparison."""
        from ebclab.comparisons.plan import make_comparison
        from ebclab.comparisons.power import pilot_plan

        plan = make_comparison(ComparisonRequest(**{"methods": (), "batch_sizes": (), **self.given}))
        if self.pilot is not None:
            pilot_plan(plan, self.pilot)

    def require_as_saved(self) -> None:
        """Refuse options of the request that are not those of the comparison ``--name``."""
        if self.given and (saved := self._saved()) is not None and (asked := self.request()) != saved:
            words = [word_of(each) for each in fields(saved) if getattr(asked, each.name) != getattr(saved, each.name)]
            raise UserError(
                f"--page: shows the comparison as it is, got another {' and '.join(words)}; leave it out, or leave out "
                "--page to let the comparison grow"
            )

    def _saved(self) -> ComparisonRequest | None:
        """Return the request of the comparison ``--name``; None without a name, or if it is new and methods given."""
        from ebclab.comparisons.plan import ComparisonFolder
        from ebclab.config.names import require_folder_name

        if self.name is None:
            return None
        require_folder_name(self.name)
        folder = ComparisonFolder.named(self.comparisons, self.name)
        folder = folder.of("reader").pull()
        if "methods" in self.given and not folder.plan.is_file():
            return None
        return folder.read_plan().request.as_applied()

    def _require_named(self, saved: ComparisonRequest) -> None:
        """Refuse to import a method that only the file of a comparison names."""
        unnamed = [name for name in saved.methods if is_import_name(name) and name not in self.given.get("methods", ())]
        if unnamed:
            raise UserError(
                f"METHOD: a file alone does not choose which code is run, got {', '.join(unnamed)}; write the methods "
                f"again: {' '.join(saved.methods)}"
            )


@takes(CompareOptions)
def compare(given: CompareOptions) -> None:
    """Tune every method alike, confirm with new seeds, and say which differences are more than noise.

    Repeating a command continues a comparison; more methods, batch sizes, trials and seeds let it grow.

    Examples:

    ebclab compare simclr flatclr --dataset digits --batch-size 64 --name mine

    ebclab compare --name mine --seeds 12
    """
    if given.page:
        not_for_page = ("pilot", "show", "at_once", "gpus_per_trial", "concurrent")
        refuse_given(given, not_for_page, "is not for --page, which only writes a page, got {}; leave one out")
        from ebclab.comparisons.compare import page_of
        from ebclab.comparisons.plan import ComparisonFolder
        from ebclab.config.names import require_folder_name

        if given.name is None:
            raise UserError("--page: of which comparison, got no --name; write --name NAME")
        given.require_as_saved()
        folder = ComparisonFolder.named(given.comparisons, require_folder_name(given.name))
        return _print_result(page_of(folder))
    request, limits = given.request(), given.limits()
    if given.show or given.pilot is not None:
        from ebclab.comparisons.compare import plan_of_request, run_pilot

        plan, folder, _ = plan_of_request(request, comparisons=given.comparisons, name=given.name, limits=limits)
        if given.pilot is not None:
            run_pilot(plan, folder, given.pilot, limits)
        if given.show:
            return _print_plan(plan, folder)
    from ebclab.comparisons.compare import compare as run_comparison

    found = run_comparison(
        request, comparisons=given.comparisons, name=given.name, limits=limits, at_once=given.at_once
    )
    _print_result(found)


def _print_plan(plan: ComparisonPlan, folder: ComparisonFolder) -> None:
    """Print the search spaces and searches of a comparison, with their maximum cost, and what it can find."""
    from ebclab.comparisons.compare import check_searches, reading_cost, seconds_of_epochs
    from ebclab.comparisons.document import facts
    from ebclab.comparisons.findings import ComparisonFindings, read_findings
    from ebclab.comparisons.power import pilot_seconds, planned_power, power_facts, power_warnings
    from ebclab.formatting import clock
    from ebclab.runs.jobs import Kept
    from ebclab.sweeps.space.check import describe_space
    from ebclab.training.setup import load_images

    load = Kept(load_images)
    not_begun = ComparisonFindings(plan)
    _, warnings = check_searches(not_begun, load=load)
    for method in plan.request.methods:
        planned = next(planned for planned in plan.sweeps if planned.method == method)
        rows = tuple(describe_space(planned.plan.space, planned.plan.config))
        print_blocks([Table(f"{method} ({planned.plan.space.where})", ("setting", "range", "default"), rows)])
    seconds = seconds_of_epochs(plan, load=load)
    longest = [each.longest_seconds(seconds[each.key]) for each in plan.sweeps]
    searches = [
        (
            each.name,
            numeric("until the time is over" if each.arm == "practice" else str(each.runs)),
            each.config.training.epochs,
            numeric(clock(each.run_seconds(seconds[each.key]))),
            numeric(clock(together)),
        )
        for each, together in zip(plan.sweeps, longest, strict=True)
    ]
    print_blocks([Table("searches", ("search", "runs", "epochs", "a run", "together"), tuple(searches))])
    total, (reads, reading) = sum(longest), reading_cost(plan, load)
    pilot = pilot_seconds(folder)
    lines, powers = facts(not_begun), planned_power(read_findings(folder, plan), folder)
    lines |= {
        "longest time": (
            f"{clock(total + reading + pilot)}: {clock(total)} of training, one run after the other, divided by how "
            f"many run at once, and {clock(reading)} for {reads} readings of the test images, one after the other"
            + f"; {clock(pilot)} of the pilot, which is done"
            * bool(pilot)
        ),
        **power_facts(powers),
        "plan": plan.digest,
    }
    print_facts(lines)
    print_blocks(Remark(f"warning: {line}") for line in [*warnings, *power_warnings(powers)])


def _print_result(found: ComparisonRun) -> None:
    """Print whether anything was learnt, two tables, the other conclusions and the location of the page."""
    from ebclab.comparisons.document import answer, differences, tuned_and_default
    from ebclab.comparisons.power import measured_power, power_facts, power_warnings
    from ebclab.evaluation.comparison import few_seeds

    findings = found.findings
    first, *rest = answer(findings)
    print_blocks([Remark(first)])
    print_blocks(_by_task(tuned_and_default(findings), columns=4))
    print_blocks(_by_task(differences(findings), columns=3))
    few = few_seeds(findings.request.seeds)
    powers = measured_power(findings)
    warnings = [f"warning: {line}" for line in power_warnings(powers)]
    print_blocks(Remark(line) for line in [*rest, *([few] if few else []), *warnings])
    address = found.folder.address_of(found.folder.page)
    print_facts({**power_facts(powers), "plan": findings.plan.digest, "page": address})
    for line in found.failed:
        say(f"not measured: {line}", err=True)
    if found.failed:
        raise typer.Exit(TrainingError.exit_code)


def _by_task(made: Table, columns: int) -> list[Table]:
    """Return a table per task, named in the first column, with the next ``columns`` columns."""
    tasks = dict.fromkeys(row[0] for row in made.rows)
    kept = slice(1, columns + 1)
    return [
        Table(f"{made.title}: {task}", made.columns[kept], tuple(row[kept] for row in made.rows if row[0] == task))
        for task in tasks
    ]

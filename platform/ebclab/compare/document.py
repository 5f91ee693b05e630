"""The document of a comparison: conclusions, the plan, tables, plots and limitations."""

from __future__ import annotations

from collections.abc import Sequence

from ebclab.compare.findings import ComparisonFindings
from ebclab.compare.folder import PlanVersion
from ebclab.compare.plan import RULES
from ebclab.compare.plots import plots
from ebclab.compare.power import measured_power, power_facts, power_warnings
from ebclab.compare.tables import tables
from ebclab.compare.wording import METRICS, answer, margin_words, what_intervals_say, what_it_does_not_show
from ebclab.document.document import Document, Facts, Folded, Items, Remark, Section
from ebclab.formatting import clock
from ebclab.reports.machine import command_in_words, machine_in_words, versions_in_words


def comparison_document(findings: ComparisonFindings, versions: Sequence[PlanVersion]) -> Document:
    """Return the document of a comparison with all versions of its plan."""
    digest = findings.measured.plan.digest
    title = " · ".join(findings.request.methods)
    warnings = [f"Not complete: {line}" for line in _problems(findings)]
    powers = measured_power(findings)
    warnings += [*_old(findings), *(f"Little power: {line}" for line in power_warnings(powers))]
    warnings += [f"The plan grew when there were numbers already: {line}" for line in _growth(versions)]
    head = [*(Remark(line, "lead") for line in answer(findings)), *(Remark(line, "warning") for line in warnings)]
    written = f"{digest}, of comparison.yaml, which was written before any number"
    plan = (
        Facts.of({**facts(findings), **power_facts(powers), "digest": written}),
        Folded("How settings are chosen and compared", (Items(RULES, is_ordered=True),)),
        Remark(what_intervals_say(findings), "note"),
    )
    made, drawn = tables(findings), plots(findings)
    first = 2 + bool(findings.gaps_of("learnt"))
    sections = (
        Section(title, tuple(head), is_head=True),
        Section("The plan", plan),
        Section("Results", (*made[:first], *drawn[:2])),
        Section("Plots", tuple(drawn[2:])),
        Section("More numbers", tuple(made[first:])),
        Section("What this does not show", (Items(tuple(what_it_does_not_show(findings))),)),
    )
    files = "All numbers: comparison.json beside this page; tables: comparison.md."
    return Document(title, "comparison", f"comparison · plan {digest}", sections, files)


def facts(findings: ComparisonFindings) -> dict[str, str]:
    """Return the settings of the comparison as text, by label."""
    plan, request = findings.measured.plan, findings.request
    config = plan.sweeps[0].plan.config
    epochs = sorted({planned.plan.config.training.epochs for planned in plan.sweeps})
    why = (
        ", so that runs at default settings take equal seconds, to the nearest epoch"
        if request.budget == "seconds"
        else ""
    )
    but = f" except for {', '.join(request.may_differ)}" if request.may_differ else ""
    made = {
        "methods": ", ".join(request.methods),
        "images": ", ".join(dict.fromkeys(task.dataset for task in plan.tasks)),
        "batch size": ", ".join(map(str, dict.fromkeys(task.batch_size for task in plan.tasks))),
        "encoder, views": f"{config.encoder.name}, {config.views.recipe}; the same for all{but}",
        "epochs": f"{epochs[0]}, the same for all" if len(epochs) == 1 else f"{epochs[0]} to {epochs[-1]}{why}",
        "search": f"{request.trials} random draws for each method and batch size, one seed each",
        "confirmed with": f"{request.seeds} other seeds, the same for all methods",
        "compared": f"{METRICS[request.metric]} accuracy on the test images; margin {margin_words(request)}",
        "pairs": f"each with {request.reference}" if request.reference else "every method with every other",
    }
    if request.practice_seconds:
        made["in practice"] = f"TPE and ASHA for {clock(request.practice_seconds)} of training each"
    if request.repeats > 1:
        made["repeats"] = f"{request.repeats} whole searches"
    return made | _made_by(findings)


def _made_by(findings: ComparisonFindings) -> dict[str, str]:
    """Return command, commit, versions and machine of the processes that ran the searches; empty if none has begun."""
    environments = [each.environment for each in findings.measured.sweeps]
    texts = {
        "command": [command_in_words(each) for each in environments],
        "commit": [str(each.get("commit") or "") for each in environments],
        "versions": [versions_in_words(each) for each in environments],
        "machine": [machine_in_words(each, "a trial") for each in environments],
    }
    if not environments:
        return {}
    found = {name: "; ".join(dict.fromkeys(filter(None, lines))) for name, lines in texts.items()}
    return {name: text or "not written down" for name, text in found.items()}


def _old(findings: ComparisonFindings) -> list[str]:
    """Return a line for accuracies that older versions measured with other labelled images than the plan says."""
    old = [each.planned.name for each in findings.measured.sweeps if not each.is_by_plan]
    why = "measured by an older version with all training images as labelled ones, not with those of data.train_limit"
    return [f"{', '.join(old)}: {why}; another --name measures them again"] if old else []


def _problems(findings: ComparisonFindings) -> list[str]:
    """Return what is missing, one line each."""
    begun = {each.planned.name for each in findings.measured.sweeps}
    missing = [planned.name for planned in findings.measured.plan.sweeps if planned.name not in begun]
    lines = [f"{each.planned.name}: {each.problem}" for each in findings.measured.sweeps if each.problem]
    return [*lines, f"not begun: {', '.join(missing)}"] if missing else lines


def _growth(versions: Sequence[PlanVersion]) -> list[str]:
    """Return one line for each extension of the plan."""
    return [f"{version.time}: {'; '.join(version.grown)} (plan {version.digest})" for version in versions[1:]]

"""The document of a comparison: conclusions, the plan, tables, plots and limitations; and the files that hold it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from ebclab.comparisons.findings import ComparisonFindings, Gap, Side
from ebclab.comparisons.measured import MeasuredSweep, SettingsRuns
from ebclab.comparisons.plan import RULES, ComparisonFolder, PlanVersion
from ebclab.comparisons.plots import plots
from ebclab.comparisons.power import measured_power, power_facts, power_warnings
from ebclab.comparisons.tables import tables
from ebclab.comparisons.wording import METRICS, answer, margin_words, what_intervals_say, what_it_does_not_show
from ebclab.document.document import Document, Facts, Folded, Items, Remark, Section
from ebclab.formatting import clock
from ebclab.interval import Interval
from ebclab.reports.place import write_result
from ebclab.runs.environment import command_in_words, versions_in_words
from ebclab.sweeps.log import finite


def comparison_document(findings: ComparisonFindings, versions: Sequence[PlanVersion]) -> Document:
    """Return the document of a comparison with all versions of its plan."""
    digest = findings.plan.digest
    title = " · ".join(findings.request.methods)
    warnings = [f"Not complete: {line}" for line in _problems(findings)]
    powers = measured_power(findings)
    warnings += [*_old(findings), *(f"Little power: {line}" for line in power_warnings(powers))]
    warnings += [
        f"The plan grew when there were numbers already: {each.time}: {'; '.join(each.grown)} (plan {each.digest})"
        for each in versions[1:]
    ]
    head = [*(Remark(line, "lead") for line in answer(findings)), *(Remark(line, "warning") for line in warnings)]
    written = f"{digest}, of comparison.yaml, which was written before any number"
    if len(versions) > 1:
        written = f"{digest}, of comparison.yaml, which grew from {versions[0].digest}, written before any number"
    plan = (
        Facts.of({**facts(findings), **power_facts(powers), "digest": written}),
        Folded("How settings are chosen and compared", (Items(RULES, is_ordered=True),)),
        Remark(what_intervals_say(findings), "note"),
    )
    (results, more), drawn = tables(findings), plots(findings)
    sections = (
        Section(title, tuple(head), is_head=True),
        Section("The plan", plan),
        Section("Results", (*results, *drawn[:2])),
        Section("Plots", tuple(drawn[2:])),
        Section("More numbers", tuple(more)),
        Section("What this does not show", (Items(tuple(what_it_does_not_show(findings))),)),
    )
    files = "All numbers: comparison.json beside this page; tables: comparison.md."
    return Document(title, "comparison", f"comparison · plan {digest}", sections, files)


def facts(findings: ComparisonFindings) -> dict[str, str]:
    """Return the settings of the comparison as text, by label."""
    plan, request = findings.plan, findings.request
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
    """Return what ran the searches, and the machines of their trials; empty if none has begun."""
    environments = [each.environment for each in findings.sweeps]
    texts = {
        "command": [command_in_words(each) for each in environments],
        "commit": [str(each.get("commit") or "") for each in environments],
        "versions": [versions_in_words(each) for each in environments],
        "machine": [machine for each in findings.sweeps for machine in each.machines],
    }
    if not environments:
        return {}
    found = {name: "; ".join(dict.fromkeys(filter(None, lines))) for name, lines in texts.items()}
    return {name: text or "not written down" for name, text in found.items()}


def _old(findings: ComparisonFindings) -> list[str]:
    """Return a line for accuracies that older versions measured with other labelled images than the plan says."""
    old = [each.planned.name for each in findings.sweeps if not each.is_by_plan]
    why = "measured by an older version with all training images as labelled ones, not with those of data.train_limit"
    return [f"{', '.join(old)}: {why}; another --name measures them again"] if old else []


def _problems(findings: ComparisonFindings) -> list[str]:
    begun = {each.planned.name for each in findings.sweeps}
    missing = [planned.name for planned in findings.plan.sweeps if planned.name not in begun]
    lines = [f"{each.planned.name}: {each.problem}" for each in findings.sweeps if each.problem]
    return [*lines, f"not begun: {', '.join(missing)}"] if missing else lines


def write_findings(folder: ComparisonFolder, findings: ComparisonFindings) -> None:
    """Write the numbers, the tables and the page of a comparison."""
    versions = folder.read_versions()
    write_result(folder.result, finite(as_mapping(findings, versions)), comparison_document(findings, versions))


def as_mapping(findings: ComparisonFindings, versions: Sequence[PlanVersion]) -> dict[str, object]:
    """Return all numbers of the page as plain values; the result is deterministic."""
    return {
        "format": 1,
        "plan": findings.plan.digest,
        "plans": [asdict(version) for version in versions],
        "answer": answer(findings),
        "methods": [_method(each) for each in findings.searches],
        "references": [
            {"name": name, "task": asdict(task), "methods": methods, **value.as_mean()}
            for (task, name, value), methods in findings.references_at.items()
        ],
        "differences": [_gap(gap) for gap in findings.gaps],
        "power": [each.to_mapping() for each in measured_power(findings)],
        "overall": [_overall(findings, method) for method in findings.overall],
        "improvements": [
            {"one": one, "other": other, **_ends("probability", chance)}
            for (one, other), chance in findings.improvements.items()
        ],
        "times_to_a_score": list(map(asdict, findings.paces)),
        "practice": [
            {"method": each.method, "task": asdict(each.task), "seconds": each.search_seconds}
            | {"tuned": _runs(each.tuned)}
            for each in findings.sweeps
            if each.planned.arm == "practice"
        ],
    }


def _ends(name: str, found: Interval) -> dict[str, float | None]:
    return {name: found.mean, "low": found.low, "high": found.high}


def _overall(findings: ComparisonFindings, method: str) -> dict[str, object]:
    sweeps = [each for each in findings.searches if each.method == method]
    draws = [draw for each in sweeps for draw in each.draws]
    rest = {"search_seconds": sum(each.search_seconds for each in sweeps), "lost": sum(draw.is_lost for draw in draws)}
    return {"method": method, **_ends("iqm", findings.overall[method]), **rest, "draws": len(draws)}


def _method(each: MeasuredSweep) -> dict[str, object]:
    tuned, default = each.accuracy("tuned"), each.accuracy("default")
    return {
        "method": each.method,
        "task": asdict(each.task),
        "tuned": _runs(each.tuned) | {"interval": tuned and tuned.as_mean()},
        "default": _runs(each.default) | {"interval": default and default.as_mean()},
        "found_better": each.found_better,
        "draws": [asdict(draw) for draw in each.draws],
        "curve": asdict(each.curve) if each.curve else None,
        "importance": dict(each.importance or {}),
        "search_seconds": each.search_seconds,
        "test_readings": each.test_readings,
        "problem": each.problem,
    }


def _runs(runs: SettingsRuns | None) -> dict[str, object]:
    """Return runs as plain values, without per-image answers."""
    if runs is None:
        return {}
    return {
        "source": runs.source,
        "settings": runs.settings,
        "held_out": dict(runs.held_out.by_seed),
        "tested": {probe: dict(measured.by_seed) for probe, measured in runs.tested.items()},
        "curves": [asdict(curve) for curve in runs.curves],
        "lost": runs.lost,
    }


def _gap(gap: Gap) -> dict[str, object]:
    return {
        "family": gap.family,
        "one": _side(gap.one),
        "other": _side(gap.other),
        **gap.difference.as_difference(),
        "verdict": gap.verdict,
        "seeds_ahead": gap.seeds_ahead,
        "seeds": len(gap.by_seed),
    }


def _side(side: Side) -> dict[str, object]:
    return {"method": side.method, "settings": side.settings, "arm": side.arm, **asdict(side.task)}

"""Write the results of a comparison: comparison.json, comparison.md and the HTML page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from ebclab.compare.findings import ComparisonFindings, Gap, MethodAt, Side
from ebclab.compare.folder import ComparisonFolder, PlanVersion
from ebclab.compare.measured import SettingsRuns
from ebclab.compare.plan import RULES
from ebclab.compare.plots import plots
from ebclab.compare.tables import as_markdown, tables
from ebclab.compare.wording import METRICS, answer, margin_words, what_intervals_say, what_it_does_not_show
from ebclab.formatting import clock, escape_markdown
from ebclab.reports.html import page_frame, templates
from ebclab.storage import atomic
from ebclab.storage.checksum import with_checksum
from ebclab.sweeps.log import finite

_FORMAT = 1


def write_findings(folder: ComparisonFolder, findings: ComparisonFindings, versions: Sequence[PlanVersion]) -> None:
    """Write the numbers, the tables and the page of a comparison.

    Args:
        folder: The folder of the comparison.
        findings: Its results.
        versions: All versions of its plan.
    """
    atomic.write_json(folder.result, with_checksum(finite(as_mapping(findings, versions))))
    atomic.write_text(folder.table, render_markdown(findings, versions))
    atomic.write_text(folder.page, render_page(findings, versions))


def as_mapping(findings: ComparisonFindings, versions: Sequence[PlanVersion]) -> dict[str, Any]:
    """Return all numbers of the page as plain values; the result is deterministic."""
    return {
        "format": _FORMAT,
        "plan": findings.measured.plan.digest,
        "plans": [asdict(version) for version in versions],
        "answer": answer(findings),
        "methods": [_method(findings, each) for each in findings.methods_at],
        "differences": [_gap(findings, gap) for gap in findings.gaps],
        "overall": [asdict(each) for each in findings.overall],
        "improvements": [asdict(each) for each in findings.improvements],
        "times_to_a_score": [asdict(each) | {"task": each.task._asdict()} for each in findings.paces],
        "practice": [
            {"method": each.planned.method, "task": each.planned.task._asdict(), "seconds": each.search_seconds}
            | {"tuned": _runs(findings, each.tuned)}
            for each in findings.measured.sweeps
            if each.planned.arm == "practice"
        ],
    }


def _method(findings: ComparisonFindings, each: MethodAt) -> dict[str, Any]:
    sweep = each.sweep
    return {
        "method": each.method,
        "task": each.task._asdict(),
        "tuned": _runs(findings, sweep.tuned) | {"interval": each.tuned and each.tuned._asdict()},
        "default": _runs(findings, sweep.default) | {"interval": each.default and each.default._asdict()},
        "found_better": sweep.found_better,
        "draws": [asdict(draw) for draw in sweep.draws],
        "curve": asdict(each.curve) if each.curve else None,
        "importance": dict(sweep.importance or {}),
        "search_seconds": sweep.search_seconds,
        "test_readings": sweep.test_readings,
        "problem": sweep.problem,
    }


def _runs(findings: ComparisonFindings, runs: SettingsRuns | None) -> dict[str, Any]:
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


def _gap(findings: ComparisonFindings, gap: Gap) -> dict[str, Any]:
    return {
        "family": gap.family,
        "one": _side(gap.one),
        "other": _side(gap.other),
        **asdict(gap.difference),
        "verdict": gap.verdict(findings.margin),
        "seeds_ahead": gap.seeds_ahead,
        "seeds": gap.seeds,
    }


def _side(side: Side) -> dict[str, Any]:
    return {"method": side.method, "settings": side.settings, "arm": side.arm, **side.task._asdict()}


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
    but = f" but for {', '.join(request.may_differ)}" if request.may_differ else ""
    made = {
        "methods": ", ".join(request.methods),
        "images": ", ".join(dict.fromkeys(task.dataset for task in plan.tasks)),
        "images a batch": ", ".join(map(str, dict.fromkeys(task.batch_size for task in plan.tasks))),
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
    return made


def _title(findings: ComparisonFindings) -> str:
    return " · ".join(findings.request.methods)


def _problems(findings: ComparisonFindings) -> list[str]:
    """Return what is missing, one line each."""
    begun = {each.planned.name for each in findings.measured.sweeps}
    missing = [planned.name for planned in findings.measured.plan.sweeps if planned.name not in begun]
    lines = [f"{each.planned.name}: {each.problem}" for each in findings.measured.sweeps if each.problem]
    return [*lines, f"not begun: {', '.join(missing)}"] if missing else lines


def _growth(versions: Sequence[PlanVersion]) -> list[str]:
    """Return one line for each extension of the plan."""
    return [f"{version.time}: {'; '.join(version.grown)} (plan {version.digest})" for version in versions[1:]]


def render_markdown(findings: ComparisonFindings, versions: Sequence[PlanVersion]) -> str:
    """Return the results as Markdown: conclusions, settings, tables and limitations."""
    lines = [f"# {escape_markdown(_title(findings))}\n", *(f"{escape_markdown(line)}\n" for line in answer(findings))]
    lines += [f"- **{escape_markdown(name)}**: {escape_markdown(text)}" for name, text in facts(findings).items()]
    lines += [f"- **plan**: {escape_markdown(findings.measured.plan.digest)}", ""]
    lines += [f"- not complete: {escape_markdown(line)}" for line in _problems(findings)]
    lines += [f"- the plan grew: {escape_markdown(line)}" for line in _growth(versions)]
    lines += ["", escape_markdown(what_intervals_say(findings)), "", *as_markdown(tables(findings))]
    limits = map(escape_markdown, what_it_does_not_show(findings))
    lines += ["## What this does not show\n", *(f"- {line}" for line in limits), ""]
    return "\n".join(lines)


def render_page(findings: ComparisonFindings, versions: Sequence[PlanVersion]) -> str:
    """Return the page as one self-contained HTML file."""
    drawn = plots(findings)
    context: Mapping[str, Any] = {
        "title": _title(findings),
        "answer": answer(findings),
        "facts": facts(findings),
        "digest": findings.measured.plan.digest,
        "rules": RULES,
        "problems": _problems(findings),
        "growth": _growth(versions),
        "intervals": what_intervals_say(findings),
        "limits": what_it_does_not_show(findings),
        "tables": tables(findings),
        "plots": drawn,
        **page_frame(drawn=bool(drawn)),
    }
    return templates("ebclab.compare").get_template("comparison.html.j2").render(context)

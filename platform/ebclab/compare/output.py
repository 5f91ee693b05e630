"""Write the results of a comparison: comparison.json, comparison.md and the HTML page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from ebclab.compare.document import comparison_document
from ebclab.compare.findings import ComparisonFindings, Gap, MethodAt, Overall, Side
from ebclab.compare.folder import ComparisonFolder, PlanVersion
from ebclab.compare.measured import SettingsRuns
from ebclab.compare.power import measured_power
from ebclab.compare.wording import answer
from ebclab.document.html import as_page
from ebclab.document.markdown import as_markdown
from ebclab.interval import Interval
from ebclab.storage import atomic
from ebclab.storage.checksum import with_checksum
from ebclab.sweeps.log import finite

_FORMAT = 1


def write_findings(folder: ComparisonFolder, findings: ComparisonFindings, versions: Sequence[PlanVersion]) -> None:
    """Write the numbers, the tables and the page of a comparison.

    Args:
        versions: All versions of its plan.
    """
    atomic.write_json(folder.result, with_checksum(finite(as_mapping(findings, versions))))
    document = comparison_document(findings, versions)
    atomic.write_text(folder.table, as_markdown(document))
    atomic.write_text(folder.page, as_page(document))


def as_mapping(findings: ComparisonFindings, versions: Sequence[PlanVersion]) -> dict[str, Any]:
    """Return all numbers of the page as plain values; the result is deterministic."""
    return {
        "format": _FORMAT,
        "plan": findings.measured.plan.digest,
        "plans": [asdict(version) for version in versions],
        "answer": answer(findings),
        "methods": [_method(findings, each) for each in findings.methods_at],
        "references": [
            {"name": name, "task": task._asdict(), "methods": methods, **value.as_mean()}
            for (task, name, value), methods in findings.references_at.items()
        ],
        "differences": [_gap(findings, gap) for gap in findings.gaps],
        "power": [each.to_mapping() for each in measured_power(findings)],
        "overall": [_overall(each) for each in findings.overall],
        "improvements": [
            {"one": each.one, "other": each.other, **_ends("probability", each.probability)}
            for each in findings.improvements
        ],
        "times_to_a_score": [asdict(each) | {"task": each.task._asdict()} for each in findings.paces],
        "practice": [
            {"method": each.planned.method, "task": each.planned.task._asdict(), "seconds": each.search_seconds}
            | {"tuned": _runs(findings, each.tuned)}
            for each in findings.measured.sweeps
            if each.planned.arm == "practice"
        ],
    }


def _ends(name: str, found: Interval) -> dict[str, float | None]:
    """Return a number under its name, and the ends of its interval."""
    return {name: found.mean, "low": found.low, "high": found.high}


def _overall(each: Overall) -> dict[str, Any]:
    rest = {"search_seconds": each.search_seconds, "lost": each.lost, "draws": each.draws}
    return {"method": each.method, **_ends("iqm", each.iqm), **rest}


def _method(findings: ComparisonFindings, each: MethodAt) -> dict[str, Any]:
    sweep = each.sweep
    return {
        "method": each.method,
        "task": each.task._asdict(),
        "tuned": _runs(findings, sweep.tuned) | {"interval": each.tuned and each.tuned.as_mean()},
        "default": _runs(findings, sweep.default) | {"interval": each.default and each.default.as_mean()},
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
        **gap.difference.as_difference(),
        "verdict": gap.verdict(findings.margin),
        "seeds_ahead": gap.seeds_ahead,
        "seeds": gap.seeds,
    }


def _side(side: Side) -> dict[str, Any]:
    return {"method": side.method, "settings": side.settings, "arm": side.arm, **side.task._asdict()}

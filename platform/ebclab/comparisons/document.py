"""The document of a comparison: conclusions, the plan, tables, plots and limitations; and the files that hold it.

Tables are text, the same on the page, in the Markdown file and in the terminal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from ebclab.comparisons.findings import ComparisonFindings, Gap, MeasuredSweep, SettingsRuns, Side
from ebclab.comparisons.plan import RULES, ComparisonFolder, PlanVersion
from ebclab.comparisons.plots import plots
from ebclab.comparisons.power import measured_power, power_facts, power_warnings
from ebclab.comparisons.wording import (
    VERDICTS,
    answer,
    not_the_same,
    shared_gpu,
    what_intervals_say,
    what_it_does_not_show,
)
from ebclab.config.check import short
from ebclab.document.document import Document, Facts, Folded, Items, Remark, Section, Table
from ebclab.formatting import PROBES, clock, count
from ebclab.interval import PERCENT, POINTS, Interval, NumberFormat
from ebclab.reports.comparable import LEAST_TRIALS
from ebclab.reports.place import write_result
from ebclab.reports.reading import verdict
from ebclab.runs.environment import command_in_words, versions_in_words
from ebclab.runs.references import REFERENCES
from ebclab.sweeps.log import finite

_CHANCE = NumberFormat(digits=2)


def tables(findings: ComparisonFindings) -> tuple[list[Table], list[Table]]:
    """Return the tables that have rows: those of the results, and those of more numbers."""
    results = [was_anything_learnt(findings), tuned_and_default(findings), differences(findings)]
    more = [
        asked(findings),
        practice(findings),
        over_all_tasks(findings),
        after_trials(findings),
        paces(findings),
        what_was_tuned(findings),
        Table(
            "What was not the same",
            ("setting", "default of each method"),
            tuple(not_the_same(findings.plan)),
            "Settings outside `method` that differ between methods before tuning. Everything else is equal.",
        ),
    ]
    return [table for table in results if table.rows], [table for table in more if table.rows]


def was_anything_learnt(findings: ComparisonFindings) -> Table:
    """Return what each method is above raw pixels and the untrained encoder, with default and with tuned settings."""
    both = (*findings.gaps_of("learnt"), *findings.gaps_of("learnt by default"))
    gaps = {(gap.one, gap.other.settings): gap for gap in both}
    rows = []
    places = [(each.task, each.method) for each in findings.searches]
    for side in sorted(
        dict.fromkeys(side for side, _ in gaps), key=lambda side: places.index((side.task, side.method))
    ):
        cells = list[str]()
        for gap in (gaps.get((side, name)) for name in REFERENCES):
            cells += [POINTS.difference(gap.difference), verdict(gap.difference)] if gap else ["-", "not measured"]
        rows.append((findings.named(side.task), side.method, side.settings, *cells))
    heads = ("on", "method", "settings", *(head for name in REFERENCES for head in (f"over {name}", "verdict")))
    note = (
        "Raw pixels and the encoder with the random weights of the same seeds, measured as the runs are: same probe, "
        "labelled images and test images. A method that is not above both has not been shown to learn what is in "
        "neither. The intervals of tuned settings hold together, and so do those of default settings."
    )
    return Table("Was anything learnt?", heads, tuple(rows), note)


def tuned_and_default(findings: ComparisonFindings) -> Table:
    """Return the accuracies of each method on each task with default and tuned settings, and of the references."""
    metric = PROBES[findings.request.metric]
    gains = {(gap.one.method, gap.one.task): gap for gap in findings.gaps_of("gain")}
    rows: list[tuple[str, ...]] = []
    for task in findings.tasks:
        mine = [each for each in findings.searches if each.task == task]
        rows += [
            (
                findings.named(task),
                each.method,
                PERCENT.interval(each.accuracy("default"), "-"),
                PERCENT.interval(each.accuracy(), "-"),
                _gain(each, gains.get((each.method, task))),
                _draws(each),
                clock(each.search_seconds),
                clock(each.tuned.seconds) if each.tuned and each.tuned.curves else "-",
            )
            for each in mine
        ]
        for (on, name, value), methods in findings.references_at.items():
            if on == task:
                of = f" of {', '.join(methods)}" if len(methods) < len(mine) else ""
                rows.append((findings.named(task), name + of, *[PERCENT.interval(value)] * 2, "", "", "", ""))
    scores = (f"default, {metric} %", f"tuned, {metric} %")
    heads = ("on", "method", *scores, "tuning gained", "draws", "search", "a run")
    note = (
        f"Means over {findings.request.seeds} seeds, with 95 % intervals, on the test images. Draws that diverged or "
        "failed count as the worst. Times are of training: of the whole search, and of one confirming run."
        f"{shared_gpu(findings)}"
    )
    if findings.references_at:
        note += " Raw pixels and the untrained encoder have nothing to tune: the same number twice."
    return Table("Default and tuned", heads, tuple(rows), note)


def _gain(at: MeasuredSweep, gap: Gap | None) -> str:
    if gap is not None:
        return ", ".join(_found(gap))
    if at.problem:
        return at.problem
    if at.found_better:
        is_lost = at.default is not None and at.default.all_lost
        return f"every run of the default settings {'was lost' if is_lost else 'has yet to read the test images'}"
    return "nothing better was found" if at.accuracy() is not None else ""


def _found(gap: Gap | None) -> tuple[str, str]:
    """Return a difference and its verdict as text."""
    return ("-", "") if gap is None else (POINTS.difference(gap.difference), VERDICTS[gap.verdict])


def _draws(at: MeasuredSweep) -> str:
    lost = sum(draw.is_lost for draw in at.draws)
    return f"{len(at.draws)}" + (f", {lost} lost" if lost else "")


def differences(findings: ComparisonFindings) -> Table:
    """Return the differences between tuned methods, and those at default settings."""
    before = findings.by_pair("default")
    rows = tuple(
        (findings.named(gap.one.task), gap.name, *_found(gap), gap.ahead, *_found(before.get(gap.pair)))
        for gap in findings.gaps_of("tuned")
    )
    heads = ("on", "difference", "both tuned", "verdict", "seeds ahead", "both by default", "verdict there")
    note = (
        f"The margin is {findings.request.margin_in_words}; whether a difference is larger is judged by two one-sided "
        "tests, whose interval is narrower than the one shown."
    )
    return Table("Differences between methods", heads, rows, note)


def asked(findings: ComparisonFindings) -> Table:
    """Return the differences specified in advance."""
    rows = tuple(
        (*(f"{side.method}, {findings.named(side.task)}" for side in (gap.one, gap.other)), *_found(gap), gap.ahead)
        for gap in findings.gaps_of("asked")
    )
    return Table("Asked beforehand", ("one", "other", "one over other, tuned", "verdict", "seeds ahead"), rows)


def practice(findings: ComparisonFindings) -> Table:
    """Return the differences between methods tuned by TPE and ASHA with equal time budgets."""
    rows = []
    for gap in findings.gaps_of("practice"):
        sweeps = [sweep for side in (gap.one, gap.other) if (sweep := findings.sweep(side))]
        seconds, trials = (clock(each.search_seconds) for each in sweeps), (str(len(each.draws) + 1) for each in sweeps)
        place = findings.named(gap.one.task)
        rows.append((place, gap.name, *_found(gap), " and ".join(seconds), " and ".join(trials)))
    heads = ("on", "difference", "tuned by TPE and ASHA", "verdict", "search", "trials")
    return Table("Tuned as in practice, for equal seconds", heads, tuple(rows))


def over_all_tasks(findings: ComparisonFindings) -> Table:
    """Return the results of each method over all tasks, with its probability of improvement over each other one."""
    rows = []
    for method, mean in findings.overall.items():
        against = [findings.improvements.get((method, other)) for other in findings.whole]
        seconds = sum(each.search_seconds for each in findings.searches if each.method == method)
        rows.append(
            (method, PERCENT.interval(mean), *(_CHANCE.interval(each, "-") for each in against), clock(seconds))
        )
    heads = ("method", "interquartile mean, %", *(f"chance over {other}" for other in findings.whole), "all searches")
    note = (
        "Over all tasks. The chance that a run of the row's method, tuned, scores higher than a run of the column's on "
        "a task drawn at random; intervals by a bootstrap over seeds within tasks, each for itself, and none where all "
        "runs agree; with few seeds they are too narrow."
    )
    return Table("Over all tasks", heads, tuple(rows), note)


def after_trials(findings: ComparisonFindings) -> Table:
    """Return the expected best score after 1, 2, 4, ... random draws."""
    most = findings.request.trials
    counts = [n for n in (1, 2, 4, 8, 16, 24, 32, 48, 64, 96) if n < most] + [most]
    rows = []
    for each in findings.searches:
        if each.curve is None:
            continue
        default = each.default_draw
        found = [f"{100 * each.curve.expected[n - 1]:.1f}" if n <= len(each.curve.trials) else "-" for n in counts]
        shown = f"{100 * default.score:.1f}" if default else "-"
        rows.append((findings.named(each.task), each.method, shown, *found))
    note = (
        "Held-out score in per cent, one seed a draw: the mean of the best among n draws, without bias. The search "
        "chooses by this score; it is of other images than the accuracies above, and not to be compared with them."
    )
    heads = ("on", "method", "default", *(count(n, "draw") for n in counts))
    return Table("Expected best after n draws", heads, tuple(rows), note)


def paces(findings: ComparisonFindings) -> Table:
    """Return the times of methods to the target, and to the final scores of the methods they are compared with."""
    rows = tuple(
        (
            findings.named(pace.task),
            pace.method,
            f"{100 * pace.score:.1f}: " + ("the target" if pace.goal == "target" else f"final score of {pace.goal}"),
            "never" if pace.epochs is None else f"{pace.epochs:g}",
            "never" if pace.share is None else f"{pace.share:.2f}",
            "never" if pace.seconds is None else f"{pace.seconds:.1f}",
        )
        for pace in findings.paces
    )
    note = (
        "Medians over the seeds of the tuned settings, by the held-out score after each epoch; never: half of the runs "
        "or more did not get there. A share of the epochs is what EBCLR's paper calls relative efficiency."
        f"{shared_gpu(findings)}"
    )
    return Table("Time to a score", ("on", "method", "score, %", "epochs", "share of epochs", "seconds"), rows, note)


def what_was_tuned(findings: ComparisonFindings) -> Table:
    """Return the settings chosen by the search, the default ones, and the importance of each setting."""
    rows = []
    for each in findings.searches:
        shares, default = each.importance or {}, each.default
        for name, value in each.tuned.settings.items() if each.tuned else ():
            share = f"{shares[name]:.0%}" if name in shares else "-"
            before = short(default.settings[name]) if default else "-"
            rows.append((findings.named(each.task), each.method, name, before, short(value), share))
    note = (
        "Share: how much of the variance of the held-out score over the space the setting explains alone (fANOVA), "
        "scaled to 100 % in sum for each method and task. With fewer than ten draws a setting it is rough, and chance "
        "has its part in it."
    )
    if not any(each.importance for each in findings.searches):
        note = f"Share of the variance of the held-out score: not known of fewer than {LEAST_TRIALS} trials."
    return Table("What was tuned", ("on", "method", "setting", "default", "tuned", "share"), tuple(rows), note)


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
        "compared": f"{PROBES[request.metric]} accuracy on the test images; margin {request.margin_in_words}",
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

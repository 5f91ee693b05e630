"""The document of a comparison: conclusions, the plan, tables, plots and limitations; and the files that hold it.

Tables are text, the same on the page, in the Markdown file and in the terminal.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict

from ebclab.comparisons.findings import ComparisonFindings, Family, Gap, MeasuredSweep, SettingsRuns, Side, Verdict
from ebclab.comparisons.plan import RULES, ComparisonFolder, ComparisonPlan, PlanVersion, different_settings
from ebclab.comparisons.plots import plots
from ebclab.comparisons.power import measured_power, power_facts, power_warnings
from ebclab.config.check import short, shown
from ebclab.document.document import Document, Facts, Folded, Items, Remark, Section, Table
from ebclab.evaluation.comparison import CHANCE, few_seeds
from ebclab.formatting import PROBES, clock, count
from ebclab.interval import PERCENT, POINTS, Interval, NumberFormat
from ebclab.reports.comparable import LEAST_TRIALS
from ebclab.reports.place import write_result
from ebclab.reports.reading import BY, MOST, all_learnt, measured_for_all, some, verdict
from ebclab.runs.environment import command_in_words, versions_in_words
from ebclab.runs.references import REFERENCES
from ebclab.sweeps.log import finite

_CHANCE = NumberFormat(digits=2)
VERDICTS: dict[Verdict, str] = {
    "ahead": "ahead, beyond noise",
    "behind": "behind, beyond noise",
    "equal": "no difference larger than the margin",
    "open": "within noise",
    "no interval": "no interval",
}


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
        f"{findings.shared_gpu}"
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
        f"{findings.shared_gpu}"
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
    warnings += [*_old(findings), *(f"{line[0].upper()}{line[1:]}." for line in power_warnings(powers))]
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
    files = "All numbers: comparison.json beside this page; accuracies: comparison.csv; tables: comparison.md and .tex."
    return Document(title, "comparison", f"comparison · plan {digest}", sections, files)


def facts(findings: ComparisonFindings) -> dict[str, str]:
    """Return the settings of the comparison as text, by label."""
    plan, request = findings.plan, findings.request
    config = plan.sweeps[0].config
    epochs = sorted({planned.config.training.epochs for planned in plan.sweeps})
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


def answer(findings: ComparisonFindings) -> list[str]:
    """Return the conclusions in a few sentences: first whether anything was learnt, then who is ahead."""
    done, planned = findings.pairs_done
    so_far = f"So far: {done} of {count(planned, 'pair')}. " if done < planned else ""
    tuned = findings.gaps_of("tuned")
    if not tuned:
        nothing = (
            "Nothing can be compared yet: fewer than two methods have been measured with all seeds on the same task."
        )
        return [so_far + nothing, *([learnt(findings)] if any(each.accuracy() for each in findings.searches) else [])]
    lines = [so_far + learnt(findings), *(_leads(findings, tuned) or _no_lead(findings, tuned))]
    equal = [gap for gap in tuned if gap.verdict == "equal"]
    if equal:
        named = [f"{gap.one.method} and {gap.other.method} at {findings.named(gap.one.task)}" for gap in equal]
        lines.append(f"No difference larger than {findings.request.margin_in_words}: {some(named)}.")
    lines += [*_was_it_tuning(findings), *_could_it_choose(findings)]
    for gap in findings.gaps_of("asked"):
        lines.append(
            f"Asked beforehand: {findings.at(gap.one)} against {findings.at(gap.other)}: "
            f"{POINTS.difference(gap.difference)}, {VERDICTS[gap.verdict]}."
        )
    return lines


def learnt(findings: ComparisonFindings) -> str:
    """Return whether the tuned methods are above raw pixels and the untrained encoder, beyond noise."""
    places: dict[Side, list[Gap]] = {}
    for gap in findings.gaps_of("learnt"):
        places.setdefault(gap.one, []).append(gap)
    measured = [each for each in findings.searches if each.accuracy()]
    over = {
        findings.at(side): {name: gap.difference for name in REFERENCES for gap in gaps if gap.other.settings == name}
        for side, gaps in places.items()
    }
    if not measured_for_all(over) or len(places) < len(measured):
        return (
            "Whether anything was learnt is not known: raw pixels and the untrained encoder were not measured by the "
            "same protocol; the command of this comparison, repeated, measures them."
        )
    measured_only = " that was measured" if len(places) < len(findings.tasks) * len(findings.request.methods) else ""
    note = " A lead among such methods says little about learning."
    return all_learnt(over, f"tuned method{measured_only}", note=note)


def _no_lead(findings: ComparisonFindings, tuned: Sequence[Gap]) -> list[str]:
    by_default = findings.gaps_of("default")
    leads = [gap for gap in by_default if gap.lead]
    which = "tuned or with default settings, " if by_default and not leads else "tuned, "
    in_any = f", in any of {len(tuned)} differences" if len(tuned) > 1 else ""
    return [f"No method, {which}is ahead of another by more than noise and {findings.request.margin_in_words}{in_any}."]


def _leads(findings: ComparisonFindings, tuned: Sequence[Gap]) -> list[str]:
    """Return a sentence for each pair of methods with a difference beyond noise, the largest first."""
    found: dict[tuple[str, str], list[tuple[float, str]]] = {}
    before = findings.by_pair("default")
    for gap in tuned:
        if gap.lead:
            first, second = gap.lead
            sign = 1 if first is gap.one else -1
            place = f"at {findings.named(first.task)} by {BY.interval(sign * gap.difference)}"
            if default := before.get(gap.pair):
                place += f", with default settings by {POINTS.interval(sign * default.difference)}"
                place += {True: ", within noise", None: ", no interval"}.get(default.difference.is_noise, "")
            found.setdefault((first.method, second.method), []).append((sign * gap.difference.mean, place))
    pairs = sorted(found.items(), key=lambda pair: max(gain for gain, _ in pair[1]), reverse=True)
    lines = [
        f"{first} is ahead of {second}, both tuned alike: {some([place for _, place in places])}."
        for (first, second), places in pairs[:MOST]
    ]
    if rest := pairs[MOST:]:
        lines.append(f"So are {some([f'{one} of {other}' for (one, other), _ in rest])}; the table has them.")
    return lines


def _was_it_tuning(findings: ComparisonFindings) -> Iterator[str]:
    """Yield the effects of tuning: leads at default settings that vanish when tuned, losses, and gains beyond noise."""
    tuned, gone = findings.by_pair("tuned"), []
    for gap in findings.gaps_of("default"):
        after = tuned.get(gap.pair)
        if gap.lead and after is not None and after.verdict != gap.verdict:
            first, second = gap.lead
            gone.append(f"{first.method} over {findings.at(second)}")
    if gone:
        yield f"Leads with default settings that are not there when both are tuned: {some(gone)}."
    gains = findings.gaps_of("gain")
    if losses := [gap for gap in gains if gap.difference.is_noise is False and gap.difference.mean < 0]:
        yield (
            "The chosen settings are worse than the default ones by more than noise, so that a lead over them may be "
            f"that of an unlucky choice; in points: {_gains(findings, losses)}."
        )
    if lower := [gap for gap in gains if gap.difference.is_noise is not False and gap.difference.mean < 0]:
        yield (
            "The default settings score higher than the tuned ones, though not beyond noise; in points: "
            f"{_gains(findings, lower)}."
        )
    if better := [gap for gap in gains if gap.verdict == "ahead"]:
        yield f"Tuning is worth more than noise, in points: {_gains(findings, better)}."
    kept = [each for each in findings.searches if each.accuracy() and not each.found_better]
    if kept:
        named = [findings.at(each) for each in kept]
        yield f"No draw was better than the default settings, which count as tuned: {some(named)}."


def _could_it_choose(findings: ComparisonFindings) -> Iterator[str]:
    unsure = [
        f"{findings.at(each)}, {100 * each.choice[0]:.1f} and {100 * each.choice[1]:.1f}"
        for each in findings.searches
        if each.choice and each.choice[2] > CHANCE
    ]
    if unsure:
        yield (
            "The search could not choose: by an F test, its draws differ no more than the luck of a seed explains; "
            "standard deviations of held-out scores, in points, over draws and of one setting by its seed: "
            f"{some(unsure)}."
        )


def _gains(findings: ComparisonFindings, gaps: Sequence[Gap]) -> str:
    return some([f"{findings.at(gap.one)}, {100 * gap.difference.mean:+.1f}" for gap in gaps])


def what_intervals_say(findings: ComparisonFindings) -> str:
    """Return an explanation of the intervals of differences."""
    families: dict[Family, str] = {
        "tuned": "between tuned methods",
        "default": "between default settings",
        "gain": "of tuned over default settings",
    }
    numbers = {words: len(findings.gaps_of(family)) for family, words in families.items()}
    there = ", ".join(f"{words} ({number})" for words, number in numbers.items() if number)
    together = (
        f" The intervals of each kind hold together: {there}. In at least 95 of 100 comparisons all of a kind contain "
        "the true value, and the chance is shared by all that were planned. Whether a difference is larger than the "
        "margin is judged by two one-sided tests with the same chance each, whose interval is narrower."
    )
    return (
        "An interval of a difference says how far it would move with other seeds and other test images; runs with the "
        "same seed are compared with each other, and so are answers about the same image."
        f"{together if there else ''} Intervals of single accuracies are 95 % each. "
        "With few seeds or a few hundred images all of them are rather too wide than too short. "
        f"{few_seeds(findings.request.seeds)}"
    ).strip()


def what_it_does_not_show(findings: ComparisonFindings) -> list[str]:
    """Return the limitations of the comparison, one text each."""
    plan = findings.plan
    config = plan.sweeps[0].config
    known = [each.curve.known_until for each in findings.searches if each.curve]
    lines = [
        f"One encoder ({config.encoder.name}), {_epochs(plan)}; other encoders and longer training may rank otherwise.",
        f"Tuned means the best of {findings.request.trials} random draws of a method's search space, chosen by one "
        "seed each on held-out images.",
    ]
    if findings.request.budget == "seconds":
        lines.append(
            "Seconds are equal at default settings alone: a draw that makes a step dearer or cheaper keeps the epochs "
            "of its method; the table has the seconds of a run."
        )
    if findings.shared_gpu:
        timed = (
            " Epochs for equal seconds were timed with one run alone." if findings.request.budget == "seconds" else ""
        )
        lines.append(
            f"{findings.shared_gpu.strip()} A search runs more at once than its last confirming runs do, and a method "
            f"with fewer runs has fewer beside each: seconds do not say which method is faster.{timed}"
        )
    if known and min(known) < findings.request.trials:
        end = f"an upper end only up to {count(min(known), 'draw')}" if min(known) else "no upper end"
        lines.append(
            f"With {count(findings.request.trials, 'draw')} the bands of the tuning curves have {end}: what more "
            "tuning could reach is not known (about seven draws are needed for each)."
        )
    if _is_any_lost(findings):
        seeds = findings.request.seeds
        lines.append(
            "Some runs were lost. An interval knows of lost runs only what its seeds met: where one run in ten is lost,"
            f" none of {seeds} is in {0.9**seeds:.0%} of comparisons, and the interval is then of sound runs alone."
        )
    if findings.request.repeats == 1:
        lines.append("The search was made once for each method; another search may choose other settings (--repeat 3).")
    return lines


def _is_any_lost(findings: ComparisonFindings) -> bool:
    sweeps = findings.sweeps
    confirmed = [runs for each in sweeps for runs in (each.tuned, each.default) if runs]
    return any(draw.is_lost for each in sweeps for draw in each.draws) or any(runs.lost for runs in confirmed)


def _epochs(plan: ComparisonPlan) -> str:
    numbers = sorted({planned.config.training.epochs for planned in plan.sweeps})
    if len(numbers) == 1:
        return f"{numbers[0]} epochs"
    why = ", for equal seconds at default settings" if plan.request.budget == "seconds" else ""
    return f"{numbers[0]} to {numbers[-1]} epochs{why}"


def not_the_same(plan: ComparisonPlan) -> list[tuple[str, str]]:
    """Return the settings outside ``method`` that differ between methods by default, with their values as text."""
    found: dict[str, str] = {}
    for task in plan.tasks:
        configs = {
            planned.method: planned.config for planned in plan.sweeps if planned.task == task and planned.arm == "draws"
        }
        sections = ("data", "views", "encoder", "optimizer", "training", "evaluation")
        for key, values in different_settings(configs, sections).items():
            found.setdefault(key, ", ".join(f"{method} {shown(value)}" for method, value in values.items()))
    return list(found.items())


def write_findings(folder: ComparisonFolder, findings: ComparisonFindings) -> list[str]:
    """Write the numbers, the tables and the page of a comparison; return the names of the files."""
    versions = folder.read_versions()
    content, document = finite(as_mapping(findings, versions)), comparison_document(findings, versions)
    return write_result(folder.result, content, document, accuracies(findings))


def accuracies(findings: ComparisonFindings) -> Table:
    """Return the accuracies on the test images for other programs: a row for each method and each reference."""
    found = [
        (each.task, each.method, settings, each.accuracy(settings))
        for each in findings.searches
        for settings in ("default", "tuned")
    ]
    found += [(task, name, "", value) for task, name, value in findings.references_at]
    rows = tuple(
        (task.dataset, task.batch_size, task.repeat, name, settings, value.mean, value.low, value.high, value.std)
        for task, name, settings, value in found
        if value is not None
    )
    heads = ("dataset", "batch size", "repeat", "method", "settings", "accuracy", "low", "high", "std")
    return Table("", heads, rows)


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

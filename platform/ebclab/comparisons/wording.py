"""Texts of a comparison: conclusions, explanation of intervals, settings that differ, and limitations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ebclab.comparisons.findings import ComparisonFindings, Family, Gap, Side, Verdict
from ebclab.comparisons.plan import ComparisonPlan, different_settings
from ebclab.config.check import shown
from ebclab.evaluation.comparison import CHANCE, few_seeds
from ebclab.formatting import count
from ebclab.interval import POINTS
from ebclab.reports.reading import BY, MOST, all_learnt, measured_for_all, some
from ebclab.runs.references import REFERENCES

VERDICTS: dict[Verdict, str] = {
    "ahead": "ahead, beyond noise",
    "behind": "behind, beyond noise",
    "equal": "no difference larger than the margin",
    "open": "within noise",
    "no interval": "no interval",
}


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
    families: tuple[Family, ...] = ("tuned", "default", "gain")
    numbers = {family: len(findings.gaps_of(family)) for family in families}
    return (
        "An interval of a difference says how far it would move with other seeds and other test images; runs with the "
        "same seed are compared with each other, and so are answers about the same image. The intervals between tuned "
        f"methods ({numbers['tuned']}), between default settings ({numbers['default']}) and of tuned over default "
        f"settings ({numbers['gain']}) each hold together: in at least 95 of 100 comparisons all of a kind contain the "
        "true value, and the chance is shared by all that were planned. Whether a difference is larger than the margin "
        "is judged by two one-sided tests with the same chance each, whose interval is narrower. Intervals of single "
        "accuracies are 95 % each. "
        "With few seeds or a few hundred images all of them are rather too wide than too short. "
        f"{few_seeds(findings.request.seeds)}"
    ).strip()


def shared_gpu(findings: ComparisonFindings) -> str:
    """Return a caveat about seconds, after a space, where trials shared a GPU; empty if none did."""
    most = max((each.sharing for each in findings.sweeps), default=0)
    return f" Up to {most} runs shared a GPU: the seconds of a run depend on what ran beside it." if most > 1 else ""


def what_it_does_not_show(findings: ComparisonFindings) -> list[str]:
    """Return the limitations of the comparison, one text each."""
    plan = findings.plan
    config = plan.sweeps[0].plan.config
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
    if shared := shared_gpu(findings).strip():
        timed = (
            " Epochs for equal seconds were timed with one run alone." if findings.request.budget == "seconds" else ""
        )
        lines.append(
            f"{shared} A search runs more at once than its last confirming runs do, and a method with fewer runs has "
            f"fewer beside each: seconds do not say which method is faster.{timed}"
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
    numbers = sorted({planned.plan.config.training.epochs for planned in plan.sweeps})
    if len(numbers) == 1:
        return f"{numbers[0]} epochs"
    why = ", for equal seconds at default settings" if plan.request.budget == "seconds" else ""
    return f"{numbers[0]} to {numbers[-1]} epochs{why}"


def not_the_same(plan: ComparisonPlan) -> list[tuple[str, str]]:
    """Return the settings outside ``method`` that differ between methods by default, with their values as text."""
    found: dict[str, str] = {}
    for task in plan.tasks:
        configs = {
            planned.method: planned.plan.config
            for planned in plan.sweeps
            if planned.task == task and planned.arm == "draws"
        }
        sections = ("data", "views", "encoder", "optimizer", "training", "evaluation")
        for key, values in different_settings(configs, sections).items():
            found.setdefault(key, ", ".join(f"{method} {shown(value)}" for method, value in values.items()))
    return list(found.items())

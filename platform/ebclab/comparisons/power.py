"""Statistical power of a comparison: which true differences it finds, and how often it finds a tie.

Two methods are run with R seeds in common and tested on n images. d_{r,i} is 1 if only the first method is right about
image i with seed r, -1 if only the second is, and 0 otherwise. With the true difference delta and with normal shifts
a_r of the seeds,

    m_r = delta + a_r,    a_r ~ N(0, sigma^2)
    P(d_{r,i} = 1)  = max(q + m_r, 2 m_r, 0) / 2
    P(d_{r,i} = -1) = max(q - m_r, -2 m_r, 0) / 2

so that E d_{r,i} = m_r, and the two disagree about the share max(q, |m_r|) of the images. About a share k of the
images, one draw is common to all seeds (methods differ); about the others, each seed has its own (runs differ). In
the terms of ``ebclab.evaluation.seeds_and_images``, for small m_r: sigma_a = sigma, sigma_b^2 = k q and
sigma_e^2 = (1 - k) q.

Simulated comparisons go through the interval and the verdict of the page. The draws of a simulated comparison are the
same for every delta, so that it has one smallest delta at which it says "ahead"; the power at delta is the share of
comparisons for which that is at most delta.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from ebclab.comparisons.findings import (
    ComparisonFindings,
    SettingsRuns,
    Side,
    Verdict,
    read_findings,
    read_sweep,
    verdict_of,
)
from ebclab.comparisons.plan import ComparisonFolder, ComparisonPlan, PlannedSweep, Task
from ebclab.config import ExperimentConfig
from ebclab.data.photograph import Reading
from ebclab.data.sources.load import load_split
from ebclab.data.sources.location import last_part
from ebclab.errors import UserError
from ebclab.evaluation.answers import table_of
from ebclab.evaluation.comparison import CHANCE
from ebclab.evaluation.seeds_and_images import Sums, Table, VarianceParts, interval_of_difference
from ebclab.formatting import count
from ebclab.interval import Interval
from ebclab.inventory.listing import folders_with
from ebclab.storage.kinds import COMPARISON
from ebclab.sweeps.plan import SweepPlan

WANTED = 0.8
"""Share of comparisons in which a difference is to be found."""
MOST_SEEDS = 64
PILOT_SEEDS_APART = 500
"""Offset of the pilot's seeds from those of the comparison."""
_STEPS, _CLOSE = 12, 0.01  # of the search for the smallest difference; a share of it
_LIMITS = (0.05, 0.2, 0.8)  # of the true difference, tried in turn: higher ones take longer
OWN = "measured in its own runs"
_ASSUMED_SHARE = "; the share at all seeds alike is assumed"
_FARTHEST = 6.0  # standard deviations of a seed's shift that are simulated


class Noise(NamedTuple):
    """What makes differences between two methods uncertain."""

    spread: float  # standard deviation of the accuracy of one method between seeds, as measured on the test images
    seeds: float  # sigma
    disagreement: float  # q
    kept: float  # k
    source: str  # where the numbers are from, as the end of a sentence


ASSUMED = Noise(0.005, 0.005 * 2**0.5, 0.1, 0.1, "all assumed, since nothing is measured yet")
"""What is assumed before anything is measured; the shifts of two methods with one seed are independent."""


class Design(NamedTuple):
    """What is simulated."""

    noise: Noise  # what makes the difference uncertain
    seeds: int  # R
    images: int  # n
    chance: float  # probability that an interval misses
    margin: float  # smallest relevant difference, in [0, 1]


@dataclass(frozen=True)
class Power:
    """What a comparison can find at some places; numbers of accuracies are in [0, 1]."""

    places: tuple[Task, ...]  # where methods are compared, with all repeats of the search
    design: Design  # what is simulated
    differences: int  # number of differences whose intervals hold together
    # smallest true difference found to be ahead in 80 of 100 comparisons; None if none up to 0.8 is
    found: float | None
    ties: float  # share of true ties of which it is found that no difference is larger than the margin
    at_margin: float  # share of comparisons in which a true difference of the margin is found
    # smallest number of seeds, up to 64 or those of the plan, with which that is found in 80 of 100; None if none is
    seeds_for_margin: int | None
    images_suffice: bool  # whether that is found in 80 of 100 without any noise of seeds

    def to_mapping(self) -> dict[str, object]:
        """Return the numbers as plain values."""
        design = self.design._asdict() | {"noise": self.design.noise._asdict()}
        simulated = {"simulated": _times(self.design.images)}
        places = [{"dataset": each.dataset, "batch_size": each.batch_size} for each in self.places]
        return vars(self) | {"places": places, "design": design} | simulated


class _Simulated:
    """The draws of one simulated comparison, for true differences up to a limit."""

    def __init__(self, design: Design, limit: float, rng: np.random.Generator) -> None:
        noise, self.seeds = design.noise, design.seeds
        self._design, self._disagreement = design, noise.disagreement
        normal = rng.standard_normal(max(MOST_SEEDS, self.seeds))[: self.seeds]
        self._shifts = noise.seeds * np.clip(normal, -_FARTHEST, _FARTHEST)
        self._reach = min(1.0, max(noise.disagreement, limit + _FARTHEST * noise.seeds))
        self._num_common = round(noise.kept * design.images)
        self._common = _uniform_below(self._reach, self._num_common, rng)[1]
        width = design.images - self._num_common
        cells, self._own = _uniform_below(self._reach, self.seeds * width, rng)
        self._counts = np.diff(np.searchsorted(cells, width * np.arange(self.seeds + 1)))
        self._image = cells - np.repeat(width * np.arange(self.seeds), self._counts)

    def sums(self, difference: float) -> Sums:
        """Return the sums of the table of d for a true difference."""
        shift = np.clip(difference + self._shifts, -self._reach, self._reach)
        first = np.maximum(np.maximum(self._disagreement + shift, 2 * shift), 0) / 2
        second = self._reach - np.maximum(np.maximum(self._disagreement - shift, -2 * shift), 0) / 2
        own = (self._own < np.repeat(first, self._counts)).astype(np.int8)
        own -= self._own >= np.repeat(second, self._counts)
        common = (self._common < first[:, None]).astype(np.int8) - (self._common >= second[:, None])
        by_image = np.zeros(self._design.images)
        by_image[: len(self._common)] = common.sum(axis=0)
        by_image[self._num_common :] = np.bincount(self._image, own, self._design.images - self._num_common)
        by_seed = common.sum(axis=1) + np.bincount(np.repeat(np.arange(self.seeds), self._counts), own, self.seeds)
        return Sums(by_seed.astype(float), by_image, float(np.count_nonzero(own) + np.count_nonzero(common)))

    def intervals(self, difference: float) -> tuple[tuple[float, float], tuple[float, float]]:
        """Return the interval of the page for a true difference, and that of its two one-sided tests."""
        sums, chance = self.sums(difference), self._design.chance
        return interval_of_difference(sums, chance), interval_of_difference(sums, 2 * chance)

    def verdict(self, difference: float) -> Verdict:
        """Return what the page says of a true difference."""
        whole, narrow = (Interval(difference, *ends) for ends in self.intervals(difference))
        return verdict_of(whole, narrow, self._design.margin)

    def smallest_found(self, limit: float) -> float:
        """Return the smallest true difference that is found to be ahead; infinite if it is above the limit.

        Both ends of the interval move nearly as far as the true difference, so that each step is Newton's with slope 1.
        """
        found = limit
        for step in range(_STEPS):
            (low, _), (_, high) = self.intervals(found)
            beyond = min(low, high - self._design.margin)  # above 0: ahead
            if step == 0 and beyond < 0:
                return np.inf
            found = min(limit, max(0.0, found - beyond))
            if abs(beyond) < _CLOSE * found:
                break
        return found


def _uniform_below(
    reach: float, count: int, rng: np.random.Generator
) -> tuple[np.ndarray[Any, np.dtype[np.int64]], np.ndarray[Any, np.dtype[np.float64]]]:
    """Return the places and the values of those of ``count`` uniform numbers in [0, 1) that are below ``reach``.

    The first eight bits of all are drawn, the others only of those that may be below.
    """
    first = np.frombuffer(rng.bytes(count), dtype=np.uint8)
    places = np.flatnonzero(first <= min(255, int(256 * reach)))
    values = (first[places] + rng.random(len(places))) / 256
    is_below = values < reach
    return places[is_below], values[is_below]


def _times(images: int) -> int:
    return 250 if images <= 2_000 else 100


def _simulations(design: Design, limit: float, key: int) -> Iterator[_Simulated]:
    for number in range(_times(design.images)):
        yield _Simulated(design, limit, np.random.default_rng([key, number]))


def share_of(design: Design, difference: float, verdict: Verdict, key: int) -> float:
    """Return the share of simulated comparisons that give a verdict of a true difference."""
    found = [each.verdict(difference) == verdict for each in _simulations(design, difference, key)]
    return sum(found) / len(found)


def smallest_difference(design: Design, key: int) -> float | None:
    """Return the smallest true difference that is found to be ahead in 80 of 100; None if none is."""
    times = _times(design.images)
    enough = round(WANTED * times)
    for limit in _LIMITS:
        found = list[float]()
        for each in _simulations(design, limit, key):
            found.append(each.smallest_found(limit))
            if found.count(np.inf) > times - enough:
                break
        else:
            return sorted(found)[enough - 1]
    return None


@lru_cache(maxsize=256)
def _power(design: Design, differences: int, key: int) -> Power:
    """Return what a comparison can find, without its places."""
    margin = design.margin

    def is_found(seeds: int) -> bool:
        return share_of(design._replace(seeds=seeds), margin, "ahead", key) >= WANTED

    fewest: int | None = None
    without_seeds = Noise(0, 0, design.noise.kept * design.noise.disagreement, 1, "")
    suffices = share_of(design._replace(noise=without_seeds, seeds=2), margin, "ahead", key) >= WANTED
    if suffices:
        low, high = 1, design.seeds
        while high < MOST_SEEDS and not is_found(high):
            low, high = high, min(MOST_SEEDS, 2 * high)
        if high < MOST_SEEDS or is_found(high):
            while high - low > 1:
                middle = (low + high) // 2
                low, high = (low, middle) if is_found(middle) else (middle, high)
            fewest = high
    return Power(
        (),
        design,
        differences,
        smallest_difference(design, key),
        share_of(design, 0.0, "equal", key),
        share_of(design, margin, "ahead", key),
        fewest,
        suffices,
    )


def _powers(findings: ComparisonFindings, known: Mapping[Task, tuple[Noise, int]]) -> tuple[Power, ...]:
    """Return what a comparison can find at places with known noise and number of test images; like ones together."""
    alike: dict[tuple[Noise, int], list[Task]] = {}
    for place, given in known.items():
        alike.setdefault(given, []).append(place)
    differences, key = findings.pairs_done[1], int(findings.plan.digest, 16)
    made = []
    for (noise, images), places in alike.items():
        design = Design(noise, findings.request.seeds, images, CHANCE / differences, findings.margin)
        made.append(replace(_power(design, differences, key), places=tuple(places)))
    return tuple(made)


def measured_power(findings: ComparisonFindings) -> tuple[Power, ...]:
    """Return what a comparison can find, by the noise of its own runs; places without runs are left out."""
    known = {place: _noise_at(findings, place, OWN) for place in _places(findings)}
    return _powers(findings, {place: noise for place, noise in known.items() if noise is not None})


def planned_power(findings: ComparisonFindings, folder: ComparisonFolder) -> tuple[Power, ...]:
    """Return what a comparison can find, by the noise that is known before it runs, or else by an assumed one."""
    plan = findings.plan
    piloted, known = _pilot_noise(plan, folder), dict[Task, tuple[Noise, int] | None]()
    configs = {_place(each.task): each.plan.config for each in plan.sweeps}
    whole = {plan.request.seeds: findings}
    for place in _places(findings):
        over = [each.seeds_over for each in findings.searches if _place(each.task) == place]
        seeds = min((number for number in over if number > 1), default=plan.request.seeds)
        if seeds not in whole:  # the comparison has grown, or was interrupted
            whole[seeds] = read_findings(folder, _with_seeds(plan, seeds))
        known[place] = _noise_at(whole[seeds], place, OWN)
        if known[place] is None and piloted is not None:
            known[place] = piloted, num_test_images(configs[place])
    earlier = _earlier(folder) if None in known.values() else []
    sure = {
        place: found or _noise_before(earlier, plan, place) or (ASSUMED, num_test_images(configs[place]))
        for place, found in known.items()
    }
    return _powers(findings, sure)


def num_test_images(config: ExperimentConfig) -> int:
    """Return the number of test images."""
    return len(load_split(config.data.name, config.data.root, "test", Reading.of(config.data)))


def _with_seeds(plan: ComparisonPlan, seeds: int) -> ComparisonPlan:
    """Return the plan with another number of seeds."""
    sweeps = tuple(replace(each, plan=replace(each.plan, seeds=seeds)) for each in plan.sweeps)
    return replace(plan, request=replace(plan.request, seeds=seeds), sweeps=sweeps)


def _places(findings: ComparisonFindings) -> list[Task]:
    return list(dict.fromkeys(map(_place, findings.tasks)))


def _place(task: Task) -> Task:
    """Return what all repeats of the search on a task share."""
    return replace(task, repeat=0)


def pilot_plan(plan: ComparisonPlan, num_seeds: int) -> SweepPlan:
    """Return the plan of the pilot: the first method's default settings, once as a search and once for each seed."""
    if num_seeds < 2:
        raise UserError(f"--pilot: how far seeds scatter takes at least two, got {num_seeds}; write --pilot 4")
    first = plan.sweeps[0].plan
    config = replace(first.config, seed=first.config.seed + PILOT_SEEDS_APART)
    return replace(first, config=config, trials=1, seeds=num_seeds, baseline=False, tested="winner")


def read_pilot(plan: ComparisonPlan, folder: ComparisonFolder) -> SettingsRuns | None:
    """Return the runs of the pilot of a comparison; None if there is none, or none with these settings."""
    pilot, first = folder.pilot.of("reader").pull(), plan.sweeps[0]
    if not (pilot.plan.is_file() and pilot.log.is_file()):
        return None
    saved = pilot.read_plan()
    if _kind(saved.config) != _kind(first.plan.config) or saved.config.method_name != first.method:
        return None
    return read_sweep(PlannedSweep(first.method, first.task, "draws", saved), pilot.read_log()).tuned


def pilot_seconds(folder: ComparisonFolder) -> float:
    """Return how long the pilot of a comparison trained; 0 if there is none."""
    return sum(trial.seconds for trial in folder.pilot.of("reader").pull().read_log().trials.values())


def _pilot_noise(plan: ComparisonPlan, folder: ComparisonFolder) -> Noise | None:
    runs, first = read_pilot(plan, folder), plan.sweeps[0]
    if runs is None or len(runs.held_out.answers) < 2:
        return None
    table = table_of(list(runs.held_out.answers.values()))
    by = f"by {len(table)} pilot runs of {first.where}, on {count(table.shape[1], 'held-out image')}"
    return noise_of_runs([table], f"measured {by}{_ASSUMED_SHARE}")


def _earlier(folder: ComparisonFolder) -> list[tuple[ComparisonFolder, ComparisonPlan]]:
    """Return the other comparisons beside a folder on a disk, the newest first; unreadable ones are left out."""
    if folder.remote is not None:
        return []
    found = []
    beside = [each for each in folders_with(folder.path.parent, COMPARISON.settings) if each != folder.path]
    for path in sorted(beside, key=lambda each: -os.lstat(each / COMPARISON.settings).st_mtime):
        with suppress(UserError, OSError):
            other = ComparisonFolder(path)
            found.append((other, other.read_plan()))
    return found


def _noise_before(
    earlier: Sequence[tuple[ComparisonFolder, ComparisonPlan]], own: ComparisonPlan, place: Task
) -> tuple[Noise, int] | None:
    """Return the noise in the newest earlier comparison with such runs, None if there is none.

    Results of other comparisons are not read: that takes a tenth of a second for each sweep.
    """
    for folder, plan in earlier:
        if _is_like(plan, own, place):
            with suppress(UserError, OSError):
                findings, source = read_findings(folder, plan), f"measured in the comparison {folder.path.name}"
                if noise := _noise_at(findings, place, source):
                    return noise
    return None


def _is_like(other: ComparisonPlan, own: ComparisonPlan, place: Task) -> bool:
    """Return whether another comparison has runs of the same kind at a place."""
    kinds = [{_kind(each.plan.config) for each in plan.sweeps if _place(each.task) == place} for plan in (other, own)]
    return other.request.metric == own.request.metric and bool(kinds[0]) and kinds[0] <= kinds[1]


def _kind(config: ExperimentConfig) -> tuple[Any, ...]:
    """Return the settings of which the noise of a run is."""
    data, training = config.data, config.training
    return data.name, data.train_limit, config.encoder, training.batch_size, training.epochs


def _noise_at(findings: ComparisonFindings, place: Task, source: str) -> tuple[Noise, int] | None:
    """Return the noise of tuned runs at a place, and the number of test images; None if there are too few runs.

    Runs of two methods say what their difference does; those of one method say it with the assumed share k.
    """
    pairs = []
    for gap in findings.gaps_of("tuned"):
        one, other = findings.score(gap.one), findings.score(gap.other)
        if _place(gap.one.task) == place and one and other and one.answers and other.answers and len(gap.by_seed) > 1:
            seeds = [seed for seed in one.answers if seed in other.answers]
            tables = [table_of([each.answers[seed] for seed in seeds]) for each in (one, other)]
            pairs.append((tables[0], tables[1]))
    if pairs:
        return noise_of_pairs(pairs, source), pairs[0][0].shape[1]
    found = []
    for each in findings.searches:
        runs = findings.score(Side(each.method, each.task))
        if _place(each.task) == place and runs and len(runs.answers) > 1:
            found.append(table_of(list(runs.answers.values())))
    return (noise_of_runs(found, source + _ASSUMED_SHARE), found[0].shape[1]) if found else None


def noise_of_pairs(pairs: Sequence[tuple[Table, Table]], source: str) -> Noise:
    """Return the noise of differences: mean variance components of pairs of tables with the same seeds and images."""
    seeds, disagreement, kept, spread = [], [], [], []
    for one, other in pairs:
        sigma, image, rest = _components(one - other)
        seeds.append(sigma)
        disagreement.append(((one - other) ** 2).mean())
        kept.append(image / (image + rest) if image + rest else 0.0)
        spread += [each.mean(axis=1).var(ddof=1) for each in (one, other)]
    return _noise(spread, seeds, disagreement, kept, source)


def noise_of_runs(tables: Sequence[Table], source: str) -> Noise:
    """Return the noise of a difference between two methods, each of which scatters as these tables do.

    Two methods disagree where two seeds do, 2 sigma_e^2, and further on the assumed share k of all disagreement.
    """
    found = [_components(table) for table in tables]
    kept = ASSUMED.kept
    disagreement = [2 * rest / (1 - kept) for _, _, rest in found]
    spread = [table.mean(axis=1).var(ddof=1) for table in tables]
    return _noise(spread, [2 * sigma for sigma, _, _ in found], disagreement, [kept], source)


def _noise(spread: Any, seeds: Any, disagreement: Any, kept: Any, source: str) -> Noise:
    """Return the noise of means of variances and shares."""
    means = [float(np.mean(each)) for each in (spread, seeds, disagreement, kept)]
    return Noise(means[0] ** 0.5, max(0.0, means[1]) ** 0.5, means[2], means[3], source)


def _components(table: Table) -> tuple[float, float, float]:
    """Return sigma_a^2, sigma_b^2 and sigma_e^2 of a table, by its mean squares."""
    seeds, images = table.shape
    parts = VarianceParts.of(table)
    both, image = parts.seeds * seeds, parts.images * images  # sigma_a^2 + sigma_e^2 / n, sigma_b^2
    rest = max(0.0, float(table.var()) - both - image)
    return both - rest / images, image, rest


def power_facts(powers: Sequence[Power]) -> dict[str, str]:
    """Return what a comparison can find, and by which simulation, by label; empty if nothing is known."""
    texts = {"can find": _can_find, "simulated": _simulated}
    return {
        label: "; ".join(_where(power, powers) + text(power) for power in powers)
        for label, text in texts.items()
        if powers
    }


def power_warnings(powers: Sequence[Power]) -> list[str]:
    """Return one line if there are places where the margin is not found, which names them and what it takes."""
    blind = [
        f"{_where(power, powers, ' ')}found in {100 * power.at_margin:.0f} of 100 such comparisons, {_remedy(power)}"
        for power in powers
        if power.at_margin < WANTED
    ]
    margin = points(powers[0].design.margin) if blind else ""
    unlikely = f"the plan is unlikely to detect its own margin, a true difference of {margin}"
    return [f"{unlikely}: {'; '.join(blind)}"] if blind else []


def _where(power: Power, powers: Sequence[Power], end: str = ": ") -> str:
    """Return the places of a group, as the start of a sentence; empty if there is one group."""
    if len(powers) == 1:
        return ""
    several = len({place.dataset for each in powers for place in each.places}) > 1
    named = [f"{place.batch_size}{f' of {last_part(place.dataset)}' * several}" for place in power.places]
    return f"at batch size {' and '.join(named)}{end}"


def _can_find(power: Power) -> str:
    found = "no true difference" if power.found is None else f"a true difference of {points(power.found)}"
    return (
        f"{found} is found ahead, beyond noise, in 80 of 100 such comparisons, a true tie as no difference larger than "
        f"the margin in {100 * power.ties:.0f} of 100"
    )


def _simulated(power: Power) -> str:
    design, noise, times = power.design, power.design.noise, _times(power.design.images)
    error = 100 * (WANTED * (1 - WANTED) / times) ** 0.5
    return (
        f"{times} times, to ±{error:.0f} of 100, with {count(design.seeds, 'seed')}, "
        f"{count(design.images, 'test image')} and {count(power.differences, 'difference')}; a method's accuracy "
        f"scatters by {points(noise.spread)} between seeds, and two methods disagree about {noise.disagreement:.1%} of "
        f"the images, {noise.kept:.0%} of that at all seeds alike ({noise.source})"
    )


def _remedy(power: Power) -> str:
    if not power.images_suffice:
        return f"and {count(power.design.images, 'test image')} do not allow 80 of 100, however many seeds"
    if power.seeds_for_margin is None:
        return f"and 80 of 100 take more than {max(MOST_SEEDS, power.design.seeds)} seeds"
    return f"and 80 of 100 take --seeds {power.seeds_for_margin}"


def points(share: float) -> str:
    """Return a difference of accuracies in points, with two digits."""
    return count(float(f"{100 * share:.2g}"), "point")

"""Which true difference a comparison finds: against closed forms in limits, and where it is said."""

import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from made_up_comparison import MadeUp, request_for, right, write_confirmation, write_search
from scipy import stats

from ebclab.cli import main
from ebclab.comparisons import power
from ebclab.comparisons.document import write_findings
from ebclab.comparisons.findings import ComparisonFindings, read_findings
from ebclab.comparisons.plan import ComparisonFolder, ComparisonPlan, PlannedSweep, Task, make_comparison
from ebclab.comparisons.power import (
    ASSUMED,
    Design,
    Noise,
    measured_power,
    noise_of_pairs,
    noise_of_runs,
    pilot_plan,
    pilot_seconds,
    planned_power,
    power_facts,
    power_warnings,
    share_of,
    smallest_difference,
)
from ebclab.errors import UserError
from ebclab.evaluation.answers import table_of
from ebclab.storage.reading import read_json
from ebclab.sweeps.log import SweepLog
from ebclab.sweeps.plan import write_plan

Make = Callable[..., MadeUp]
NO_SEEDS = Noise(0.0, 0.0, 0.1, 1.0, "")
NO_IMAGES = Noise(0.01, 0.01, 0.0, 0.0, "")


@pytest.fixture
def many(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulate 1,000 comparisons: the standard error of a share is 1.6 % at most."""
    monkeypatch.setattr(power, "_times", lambda images: 1_000)


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulate 20 comparisons, for tests of what is said."""
    monkeypatch.setattr(power, "_times", lambda images: 20)


def paired_test(difference: float, images: int, chance: float) -> float:
    """Return the power of the normal test of the paired answers about images, 10 % of which differ."""
    error = ((0.1 - difference**2) / images) ** 0.5
    return float(stats.norm.sf(stats.norm.isf(chance / 2) - difference / error))


def t_test(difference: float, seeds: int, chance: float) -> float:
    """Return the power of Student's t test over seeds whose differences scatter by one point."""
    return float(stats.nct.sf(stats.t.isf(chance / 2, seeds - 1), seeds - 1, difference * seeds**0.5 / 0.01))


@pytest.mark.parametrize(
    ("noise", "seeds", "images", "chance", "difference", "expected"),
    [
        (NO_SEEDS, 3, 2_000, 0.05, 0.02, paired_test(0.02, 2_000, 0.05)),
        (NO_SEEDS, 3, 2_000, 0.05, 0.01, paired_test(0.01, 2_000, 0.05)),
        (NO_SEEDS, 8, 4_000, 0.05 / 6, 0.02, paired_test(0.02, 4_000, 0.05 / 6)),
        (NO_IMAGES, 3, 6_000, 0.05, 0.03, t_test(0.03, 3, 0.05)),
        (NO_IMAGES, 8, 6_000, 0.05, 0.01, t_test(0.01, 8, 0.05)),
        (NO_IMAGES, 8, 6_000, 0.05 / 6, 0.02, t_test(0.02, 8, 0.05 / 6)),
        (NO_IMAGES, 70, 2_000, 0.05, 0.003, t_test(0.003, 70, 0.05)),  # more seeds than are looked through
    ],
)
def test_the_power_is_that_of_the_test_over_images_or_over_seeds_alone(
    many: None, noise: Noise, seeds: int, images: int, chance: float, difference: float, expected: float
) -> None:
    design = Design(noise, seeds, images, chance, 1e-6)
    assert share_of(design, difference, "ahead", 1) == pytest.approx(expected, abs=0.05)


def test_the_smallest_difference_is_found_in_80_of_100(many: None) -> None:
    design = Design(NO_IMAGES, 5, 6_000, 0.05, 1e-6)
    found = smallest_difference(design, 1)
    assert t_test(found, 5, 0.05) == pytest.approx(0.8, abs=0.04)


def test_the_seeds_that_the_margin_needs_are_those_of_the_t_test() -> None:
    made = power._power(Design(NO_IMAGES, 4, 6_000, 0.05, 0.007), 1, 1)
    expected = next(seeds for seeds in range(2, 65) if t_test(0.007, seeds, 0.05) >= 0.8)
    assert made.seeds_for_margin == pytest.approx(expected, abs=3)  # 100 comparisons
    assert made.at_margin < 0.8
    assert made.images_suffice


def test_true_ties_are_found_as_often_as_two_one_sided_tests_find_them(many: None) -> None:
    error = (0.1 / 4_000) ** 0.5
    within = 0.012 - stats.norm.isf(0.05) * error
    found = share_of(Design(NO_SEEDS, 3, 4_000, 0.05, 0.012), 0.0, "equal", 1)
    assert found == pytest.approx(2 * stats.norm.cdf(within / error) - 1, abs=0.05)


def test_the_same_plan_gives_the_same_numbers_and_another_one_others(few: None) -> None:
    design = Design(ASSUMED, 3, 500, 0.05, 0.005)
    assert smallest_difference(design, 7) == smallest_difference(design, 7) != smallest_difference(design, 8)


def drawn(seeds: int, images: int) -> tuple[Any, Any]:
    """Return answers of two methods: 1 in 10 images is wrong by a draw of its own, 1 in 20 of the first one's."""
    generator = np.random.default_rng(0)
    differ = generator.random(images) < 0.05
    luck = 0.02 * generator.standard_normal((2, seeds, 1))
    one, other = (generator.random((2, seeds, images)) < 0.9 + luck).astype(float)
    return np.where(differ, 1.0, one), np.where(differ, 0.0, other)


def test_noise_is_measured_as_it_was_drawn() -> None:
    one, other = drawn(40, 4_000)
    by_pair, by_run = noise_of_pairs([(one, other)], ""), noise_of_runs([other], "")
    rest = 0.95 * 2 * 0.9 * 0.1
    assert by_pair.disagreement == pytest.approx(0.05 + rest, abs=0.01)
    assert by_pair.kept == pytest.approx(0.05 * 0.95 / (0.05 * 0.95 + rest), abs=0.03)
    assert by_pair.seeds == pytest.approx(0.95 * 0.02 * 2**0.5, rel=0.25)  # 40 seeds
    assert by_run.seeds == pytest.approx(0.95 * 0.02 * 2**0.5, rel=0.35)
    assert by_run.disagreement == pytest.approx(rest / (1 - ASSUMED.kept), abs=0.01)
    assert by_run.spread == pytest.approx(other.mean(axis=1).std(ddof=1), rel=1e-9)


def test_every_form_of_the_page_says_what_it_can_find(few, made_up, tmp_path, capsys, monkeypatch):
    comparison = made_up(request_for("simclr", "dcl", batch_sizes=(32, 64)), {"dcl": {"tuned_runs": (120, 152, 140)}})
    folder, found = comparison.folder, comparison.findings()
    write_findings(folder, found)
    (saved,) = read_json(folder.result)["power"]
    assert [place["batch_size"] for place in saved["places"]] == [32, 64]
    assert saved["design"]["noise"]["source"] == "measured in its own runs"
    assert (saved["design"]["seeds"], saved["design"]["images"], saved["design"]["chance"]) == (3, 200, 0.05 / 2)
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["compare", "--page", "--name", "comparison", "--comparisons", str(tmp_path)]) == 0
    terminal = capsys.readouterr().out
    assert all(len(line) <= 80 for line in terminal.splitlines() if "page:" not in line)
    for text in (folder.page.read_text(), folder.table.read_text(), " ".join(terminal.split())):
        assert f"a true difference of {power.points(saved['found'])} is found ahead, beyond noise, in 80 of 100" in text
        assert "he plan is unlikely to detect its own margin, a true difference of 0.5 points: found in" in text
        assert "of 100 such comparisons, and 200 test images do not allow 80 of 100, however many seeds" in text


def test_before_it_runs_the_noise_is_that_of_a_like_comparison_or_assumed(few, made_up, tmp_path, monkeypatch):
    def read(folder: ComparisonFolder, plan: ComparisonPlan) -> ComparisonFindings:
        results_read.append(folder.path.name)
        return read_findings(folder, plan)

    results_read: list[str] = []
    monkeypatch.setattr(power, "read_findings", read)
    earlier = made_up(request_for("simclr", "dcl"), {"dcl": {"tuned_runs": (120, 152, 140)}})
    for number, damaged in enumerate(("", "format: 1"), start=1):
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / "comparison.yaml").write_text(damaged)
    now = type(earlier.folder)(tmp_path / "now")
    sources = []
    for more in ({}, {"epochs": 3}, {"batch_sizes": (32,)}, {"metric": "linear"}, {"seeds": 8}):
        (told,) = planned_power(read_findings(now, make_comparison(request_for("dhel", "simclr", **more))), now)
        sources.append((told.design.noise.source, told.design.images))
    like, unlike = ("measured in the comparison comparison", 200), (ASSUMED.source, 355)
    assert sources == [like, unlike, unlike, unlike, like]
    assert results_read == ["comparison", "comparison"]  # of like ones alone
    assert not os.path.lexists(now.path)


def test_a_grown_comparison_is_planned_by_the_noise_that_all_methods_have(few: None, made_up: Make) -> None:
    """Of five seeds, the first three are over for both methods and all five for SimCLR."""
    simclr = {"tuned_runs": (120, 152, 140, 150, 149), "default_runs": (140, 141, 139, 140, 142)}
    comparison = made_up(request_for("simclr", "dcl", seeds=5), {"simclr": simclr})
    counts = ((150, 152, 151), simclr["tuned_runs"][:3])
    tables = [table_of([right(each, seed) for seed, each in enumerate(runs, start=1)]) for runs in counts]
    (told,) = planned_power(comparison.findings(), comparison.folder)
    expected = noise_of_pairs([(tables[0], tables[1])], "measured in its own runs")
    assert told.design.noise[:4] == pytest.approx(expected[:4])
    assert told.design.noise.source == expected.source
    assert told.design.seeds == 5
    (shown,) = measured_power(comparison.findings())  # of the runs of SimCLR
    assert shown.design.noise.kept == ASSUMED.kept
    assert shown.design.noise.source == "measured in its own runs; the share at all seeds alike is assumed"


def test_a_margin_that_is_seen_is_no_warning_and_groups_are_named(few: None) -> None:
    one, other = (power._power(Design(noise, 8, 2_000, 0.05, 0.04), 1, 1) for noise in (NO_SEEDS, ASSUMED))
    assert power_warnings([one, other]) == []
    at = [replace(each, places=(Task("digits", size),)) for each, size in ((one, 16), (other, 64))]
    told = power_facts(at)["can find"]
    assert told.startswith("at batch size 16: a true difference of ")
    assert "; at batch size 64: a true difference of " in told
    assert power_facts([]) == {}


@pytest.mark.parametrize(
    ("noise", "margin", "words"),
    [
        (NO_IMAGES, 0.007, "of 100 such comparisons, and 80 of 100 take --seeds "),
        (NO_IMAGES, 0.002, "of 100 such comparisons, and 80 of 100 take more than 64 seeds"),
        (NO_SEEDS, 0.01, "of 100 such comparisons, and 6,000 test images do not allow 80 of 100, however many seeds"),
    ],
)
def test_a_margin_that_is_not_seen_is_a_warning_with_what_it_takes(few, noise, margin, words):
    (line,) = power_warnings([power._power(Design(noise, 4, 6_000, 0.05, margin), 1, 1)])
    assert line.startswith(
        f"the plan is unlikely to detect its own margin, a true difference of {power.points(margin)}: found in"
    )
    assert words in line


def test_a_pilot_says_how_far_seeds_scatter_before_an_earlier_comparison_does(few, made_up, tmp_path):
    """Three runs of SimCLR are right about 150, 152 and 157 of 200 held-out images."""
    earlier = made_up(request_for("simclr", "dcl"))
    plan, folder = make_comparison(request_for("simclr", "dcl", batch_sizes=(64, 32))), earlier.folder
    now = type(folder)(tmp_path / "now")
    pilot = PlannedSweep("simclr", plan.tasks[0], "draws", pilot_plan(plan, 3))
    assert not {*pilot.plan.confirming_seeds, pilot.plan.config.seed} & {0, *plan.sweeps[0].plan.confirming_seeds}
    now.pilot.trials.mkdir(parents=True)
    write_plan(now.pilot.plan, pilot.plan)
    log = SweepLog(now.pilot.log)
    write_search(log, pilot, {"default": 0.75, "draws": ()})
    write_confirmation(log, pilot, {"tuned_runs": (150, 152, 157)})
    (told,) = planned_power(read_findings(now, plan), now)
    assert [place.batch_size for place in told.places] == [64, 32]
    assert told.design.noise.spread == pytest.approx(np.std([0.75, 0.76, 0.785], ddof=1))
    by = "measured by 3 pilot runs of simclr at batch size 64, on 200 held-out images"
    assert told.design.noise.source.startswith(by)
    assert pilot_seconds(now) == 2.0 + 3 * 3.0
    for other in (request_for("dcl", "simclr"), request_for("simclr", "dcl", epochs=3)):
        found = read_findings(now, make_comparison(other))
        assert all(by not in each.design.noise.source for each in planned_power(found, now))


@pytest.mark.parametrize("number", [1, 0, -2])
def test_a_pilot_takes_two_seeds(number: int) -> None:
    with pytest.raises(UserError, match=f"--pilot: how far seeds scatter takes at least two, got {number}"):
        pilot_plan(make_comparison(request_for("simclr", "dcl")), number)

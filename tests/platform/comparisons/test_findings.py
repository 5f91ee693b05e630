"""What a comparison says it found: who is chosen, which differences hold together, what tuning took away."""

import re
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from made_up_comparison import COLLAPSED, IMAGES, MadeUp, Scores, request_for, right

from ebclab.comparisons.document import (
    answer,
    comparison_document,
    facts,
    over_all_tasks,
    tuned_and_default,
    what_it_does_not_show,
)
from ebclab.comparisons.findings import WORST, Side, verdict_of
from ebclab.comparisons.plan import Task
from ebclab.document.text import as_markdown
from ebclab.evaluation.answers import table_of
from ebclab.evaluation.seeds_and_images import difference_interval
from ebclab.interval import Interval

Make = Callable[..., MadeUp]
TASK = Task("digits", 64)


def seeds_of(count: int) -> tuple[int, ...]:
    """Return the images that six runs are right about, with a little noise."""
    return tuple(count + shift for shift in (0, 1, 0, 2, 1, 0))


@pytest.mark.parametrize(
    ("whole", "narrow", "verdict"),
    [
        ((0.01, 0.03), (0.012, 0.028), "ahead"),
        ((-0.03, -0.01), (-0.028, -0.012), "behind"),
        ((-0.01, 0.03), (-0.007, 0.027), "open"),
        ((-0.003, 0.004), (-0.002, 0.003), "equal"),
        ((-0.006, 0.006), (-0.005, 0.005), "equal"),  # by the tests alone
        ((-0.007, 0.006), (-0.0051, 0.005), "open"),
        ((0.001, 0.004), (0.002, 0.003), "equal"),  # beyond noise, and too small to matter
        ((0.001, 0.02), (0.003, 0.018), "ahead"),
        ((None, None), (None, None), "no interval"),
    ],
)
def test_a_verdict_reads_the_interval_and_two_one_sided_tests_against_the_margin(whole, narrow, verdict):
    assert verdict_of(Interval(0.0, *whole), Interval(0.0, *narrow), 0.005) == verdict


def test_the_best_draw_is_tuned_and_default_settings_are_no_draw(made_up: Make) -> None:
    found = made_up(request_for("simclr", "dcl")).findings()
    sweep = found.searches[0]
    assert [draw.score for draw in sweep.draws] == [0.4, 0.6, 0.3]
    assert sweep.default_draw.score == 0.5
    assert (sweep.tuned.source, sweep.default.source) == ("0002", "baseline")
    assert list(sweep.tuned.tested["knn"].by_seed.values()) == [0.75, 0.76, 0.755]
    assert sweep.found_better


@pytest.mark.parametrize("lost", [None, COLLAPSED])
def test_a_seed_that_diverged_or_collapsed_is_wrong_about_every_image(made_up: Make, lost: int | None) -> None:
    # (140 + 0 + 139) / 200 / 3 = 0.465: the default settings have a score, and tuning gained more than half of it.
    found = made_up(request_for("simclr", "dcl"), {"simclr": {"default_runs": (140, lost, 139)}}).findings()
    default = found.searches[0].default
    assert (default.lost, len(default.curves)) == (1, 2)
    assert list(default.score.by_seed.values()) == [0.7, WORST, 0.695]
    assert table_of([default.score.answers[2]]).sum() == 0
    row = next(row for row in tuned_and_default(found).rows if row[1] == "simclr")
    assert row[2].startswith("46.5 (")
    assert row[4].startswith("+29.0 points")


@pytest.mark.parametrize(("runs", "ends_known"), [((120, 121, 122), False), ((149, 151, 153), True)])
def test_a_chance_of_improvement_has_no_interval_where_all_runs_agree(
    made_up: Make, runs: tuple[int, ...], ends_known: bool
) -> None:
    """A bootstrap of them would be 1.00 to 1.00, which simulated comparisons with three seeds miss in three of four."""
    found = made_up(request_for("simclr", "dcl"), {"dcl": {"tuned_runs": runs}}).findings()
    chance, back = (found.improvements[pair] for pair in (("simclr", "dcl"), ("dcl", "simclr")))
    assert chance.mean + back.mean == pytest.approx(1)
    assert (chance.low is not None, back.high is not None) == (ends_known, ends_known)
    assert ends_known or (chance.mean, back.mean) == (1.0, 0.0)
    (row,) = (row for row in over_all_tasks(found).rows if row[0] == "simclr")
    assert ("(" in row[3]) == ends_known


def test_default_settings_that_were_never_measured_are_not_said_to_be_as_good(made_up: Make) -> None:
    lost = {"simclr": {"default_runs": (None, COLLAPSED, None)}}
    found = made_up(request_for("simclr", "dcl"), lost).findings()
    row = next(row for row in tuned_and_default(found).rows if row[1] == "simclr")
    assert (row[2], row[4]) == ("-", "every run of the default settings was lost")


def test_where_no_draw_is_better_the_default_settings_are_the_tuned_ones(made_up: Make) -> None:
    found = made_up(request_for("simclr", "dcl"), {"simclr": {"default": 0.7}}).findings()
    sweep = found.searches[0]
    assert sweep.tuned is sweep.default
    assert not sweep.found_better
    assert [gap.one.method for gap in found.gaps_of("gain")] == ["dcl"]


def test_a_draw_that_diverged_counts_as_the_worst(made_up: Make) -> None:
    found = made_up(request_for("simclr", "dcl"), {"simclr": {"draws": (None, 0.6, 0.3)}}).findings()
    draws = found.searches[0].draws
    assert (draws[0].score, draws[0].state) == (WORST, "diverged")
    curve = found.searches[0].curve
    assert curve.expected[0] == pytest.approx((0.0 + 0.6 + 0.3) / 3)
    assert found.searches[0].draws[0].is_lost


def test_differences_are_over_seeds_and_images_and_share_the_chance_to_miss(made_up: Make) -> None:
    by_method = {"simclr": {"tuned_runs": (180, 182, 181)}, "dcl": {}, "dhel": {"tuned_runs": (150, 150, 153)}}
    found = made_up(request_for("simclr", "dcl", "dhel"), by_method).findings()
    gaps = {(gap.one.method, gap.other.method): gap for gap in found.gaps_of("tuned")}
    assert list(gaps) == [("dcl", "simclr"), ("dhel", "simclr"), ("dhel", "dcl")]
    tables = [
        np.stack([table_of([right(count, seed)])[0] for seed, count in enumerate(counts, start=1)])
        for counts in ((150, 152, 151), (180, 182, 181))
    ]
    low, high = difference_interval(tables[0], tables[1], 0.05 / 3)
    gap = gaps["dcl", "simclr"]
    assert (gap.difference.low, gap.difference.high) == pytest.approx((low, high))
    assert gap.difference.mean == pytest.approx(-30 / IMAGES)
    assert (gap.seeds_ahead, len(gap.by_seed)) == (0, 3)
    assert (gap.ahead, gaps["dhel", "dcl"].ahead) == ("0 of 3", "1 of 3, 1 equal")  # 150, 150 and 153 of 150, 152, 151


def test_that_no_difference_is_larger_takes_two_one_sided_tests_with_the_chance_of_the_interval(made_up: Make) -> None:
    """Their interval may miss twice as often, in one of ten comparisons of one pair, and is narrower."""
    runs = {"simclr": (150, 152, 151), "dcl": (151, 150, 152)}
    found = made_up(
        request_for("simclr", "dcl"), {name: {"tuned_runs": each} for name, each in runs.items()}
    ).findings()
    dcl, simclr = (
        np.stack([table_of([right(count, seed)])[0] for seed, count in enumerate(runs[name], start=1)])
        for name in ("dcl", "simclr")
    )
    whole, narrow = (max(map(abs, difference_interval(dcl, simclr, chance))) for chance in (0.05, 0.1))
    assert narrow < whole
    for margin, verdict in ((1.001 * narrow, "equal"), (0.999 * narrow, "open"), ((narrow + whole) / 2, "equal")):
        plan = replace(found.plan, request=replace(found.request, margin=100 * margin))
        (gap,) = replace(found, plan=plan).gaps_of("tuned")
        assert gap.verdict == verdict


def test_the_chance_is_shared_by_what_was_planned_not_by_what_is_there(made_up: Make) -> None:
    request = request_for("simclr", "dcl", "dhel")
    whole = made_up(request).findings()
    some = replace(whole, sweeps=tuple(each for each in whole.sweeps if each.method != "dhel"))
    (gap,) = some.gaps_of("tuned")
    assert gap == next(
        each for each in whole.gaps_of("tuned") if each.one.method == "dcl" and each.other.method == "simclr"
    )


def test_a_reference_leaves_fewer_differences_that_are_surer(made_up: Make) -> None:
    every = made_up(request_for("simclr", "dcl", "dhel")).findings()
    few = replace(every, plan=replace(every.plan, request=replace(every.request, reference="simclr")))
    assert [(gap.one.method, gap.other.method) for gap in few.gaps_of("tuned")] == [
        ("dcl", "simclr"),
        ("dhel", "simclr"),
    ]
    widths = [gap.difference.high - gap.difference.low for gap in (few.gaps_of("tuned")[0], every.gaps_of("tuned")[0])]  # type: ignore[operator]
    assert widths[0] < widths[1]


def test_a_question_is_answered_across_batch_sizes(made_up: Make) -> None:
    request = request_for("simclr", "dcl", batch_sizes=(32, 64), questions=("dcl@32,simclr@64",))
    found = made_up(request, {"dcl": {"tuned_runs": (190, 191, 192)}}).findings()
    (gap,) = found.gaps_of("asked")
    assert (gap.one.task.batch_size, gap.other.task.batch_size) == (32, 64)
    assert any(
        line.startswith("Asked beforehand: dcl at batch size 32 against simclr at batch size 64")
        for line in answer(found)
    )


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (("folder:/sets/birds", "parquet:s3://bucket/fish?scheme=http"), ("birds", "fish")),
        (("digits", "folder:/sets/birds/"), ("digits", "birds")),
        (("folder:/a/birds", "parquet:/b/birds"), ("folder:/a/birds", "parquet:/b/birds")),
        (("folder:/a/birds",), ("",)),
    ],
)
def test_datasets_are_called_by_their_last_part_where_that_tells_them_apart(made_up, names, said):
    found = made_up(request_for("simclr", "dcl")).findings()
    tasks = [Task(name, 16) for name in names]
    sweep = found.plan.sweeps[0]
    plan = replace(found.plan, sweeps=tuple(replace(sweep, task=task) for task in tasks))
    changed = replace(found, plan=plan)
    ends = [f", {name}" if name else "" for name in said]
    assert [changed.named(task) for task in tasks] == [f"batch size 16{end}" for end in ends]


@pytest.mark.parametrize(
    ("simclr", "dcl", "said"),
    [
        (
            (120, 100),
            (180, 101),
            [
                r"dcl is ahead of simclr, both tuned alike: at batch size 64 by 30.0 points \(.*, "
                r"with default settings by \+0\.5 points \(.*, within noise\."
            ],
        ),
        (
            (180, 100),
            (180, 150),
            [
                r"No method, tuned, is ahead of another by more than noise and 0\.5 points\.",
                "Leads with default settings that are not there when both are tuned: dcl over simclr at batch size 64",
                r"Tuning is worth more than noise, in points: simclr at batch size 64, \+40\.0",
            ],
        ),
        (
            (120, 160),
            (160, 160),
            [r".* worse than the default .*an unlucky choice; in points: simclr at batch size 64, -20\.0\."],
        ),
    ],
)
def test_the_answer_names_leads_beyond_noise_and_what_tuning_did_to_them(made_up, simclr, dcl, said):
    """Images that the runs of tuned and of default settings are right about, of 200, at six seeds."""
    runs = {
        name: {"tuned_runs": seeds_of(tuned), "default_runs": seeds_of(default)}
        for name, (tuned, default) in (("simclr", simclr), ("dcl", dcl))
    }
    lines = answer(made_up(request_for("simclr", "dcl", seeds=6), runs).findings())
    for pattern in said:
        assert any(re.match(pattern, line) for line in lines), pattern


def test_time_to_a_score_is_the_median_over_seeds_and_never_counts_as_infinite(made_up: Make) -> None:
    by_method = {"simclr": {"tuned_runs": (160, 120, None)}, "dcl": {"tuned_runs": (170, 171, 172)}}
    found = made_up(request_for("simclr", "dcl", target=70.0), by_method).findings()
    goals = {(pace.method, pace.goal): pace for pace in found.paces}
    assert goals["simclr", "target"].epochs is None  # 0.8 after two epochs, never, diverged
    assert (goals["dcl", "target"].epochs, goals["dcl", "target"].seconds) == (2, 3.0)
    final = goals["dcl", "simclr"]
    assert final.score == pytest.approx((0.8 + 0.6) / 2)
    assert final.share == 1.0


@pytest.mark.parametrize(
    ("asked", "dcl", "said"),
    [
        (
            {},
            {},
            (
                "One encoder (small), 2 epochs",
                "The search was made once",
                "Tuned means the best of 3 random draws of a method's search space",  # which may be the user's own
                "have no upper end: what more tuning could reach",
            ),
        ),
        ({}, {"draws": (None, 0.6, 0.3)}, ("where one run in ten is lost, none of 3 is in 73% of comparisons",)),
        ({}, {"default_runs": (140, COLLAPSED, 139)}, ("where one run in ten is lost, none of 3 is in 73%",)),  # 0.9^3
        ({"trials": 6}, {}, ("only up to 1 draw: what",)),  # about seven are needed for each, as the sentence says
        ({"trials": 24}, {}, ("only up to 3 draws: what",)),
    ],
)
def test_limits_are_said(made_up: Make, asked: dict[str, int], dcl: Scores, said: tuple[str, ...]) -> None:
    spread = {"draws": tuple(0.5 + 0.01 * number for number in range(asked.get("trials", 3)))}
    found = made_up(request_for("simclr", "dcl", **asked), {"simclr": spread, "dcl": spread | dcl}).findings()
    lines = "\n".join(what_it_does_not_show(found))
    assert all(each in lines for each in said)
    assert ("lost" in lines) == bool(dcl)


def test_other_epochs_are_said_to_be_for_equal_seconds_only_where_they_are(made_up: Make) -> None:
    """Runs of two epochs and of three, once because it was allowed and once because seconds are equal."""
    asked = request_for(
        "simclr", "dcl", epochs=None, may_differ=("training.epochs",),
        assignments=("simclr:training.epochs=2", "dcl:training.epochs=3"),
    )  # fmt: skip
    found = made_up(asked).findings()
    said = (facts(found)["epochs"], what_it_does_not_show(found)[0].partition(";")[0])
    assert said == ("2 to 3", "One encoder (small), 2 to 3 epochs")
    plan = replace(found.plan, request=replace(found.request, budget="seconds"))
    timed = replace(found, plan=plan)
    assert facts(timed)["epochs"] == "2 to 3, so that runs at default settings take equal seconds, to the nearest epoch"
    assert "2 to 3 epochs, for equal seconds at default settings" in what_it_does_not_show(timed)[0]


def test_settings_whose_every_run_diverged_are_wrong_about_everything_and_said(made_up: Make) -> None:
    found = made_up(request_for("simclr", "dcl"), {"simclr": {"tuned_runs": (None, None, None)}}).findings()
    assert found.searches[0].problem == "every run of the chosen settings was lost"
    assert [gap.family for gap in found.gaps] == ["default", "gain"]  # no images are known on which it is wrong


@pytest.mark.parametrize(
    ("draws", "problem"),
    [((0.4, 0.6), "3 of 4 trials of the search are over; another draw may be chosen"), ((0.4, 0.6, 0.3), "")],
)
def test_a_search_that_lacks_a_single_draw_is_not_complete(made_up, draws, problem):
    """Three draws and the default settings are planned, and everything that came out on top has been run again."""
    found = made_up(request_for("simclr", "dcl"), {"simclr": {"draws": draws}}).findings()
    assert [each.problem for each in found.searches] == [problem, ""]


PLACE = "at batch size 64"
BOTH = "raw pixels and the untrained encoder"


@pytest.mark.parametrize(
    ("simclr", "dcl", "references", "said", "details"),
    [
        (180, 170, (100, 90), f"Every tuned method is above {BOTH}, beyond noise; the least: dcl {PLACE}, +35.", []),
        (
            180,
            150,
            (150, 90),
            f"Not every tuned method is above {BOTH} beyond noise: dcl {PLACE} is within noise of raw pixels, +0.3 ",
            [],
        ),
        (
            120,
            130,
            (150, 90),
            f"No tuned method is above {BOTH} beyond noise. Below raw pixels: simclr {PLACE} by 14.7 points (",
            [f"; dcl {PLACE} by 9.7 points (", "). A lead among such methods says little"],
        ),
        (
            100,
            120,
            (150, 120),
            f"No tuned method is above {BOTH} beyond noise. Below raw pixels: simclr {PLACE} by 24.7 points (",
            [
                f" Below the untrained encoder: simclr {PLACE} by 9.7 points (",
                f"). Within noise of the untrained encoder: dcl {PLACE}. A lead",
            ],
        ),
        (
            120,
            120,
            (120, 150),
            f"No tuned method is above {BOTH} beyond noise. Within noise of raw pixels: all. Below the untrained ",
            [],
        ),
        (180, 170, None, "Whether anything was learnt is not known: ", ["repeated, measures them"]),
    ],
)
def test_the_first_sentence_says_whether_anything_was_learnt(made_up, simclr, dcl, references, said, details):
    """Means of 200 images: the runs are right about 2/3 of an image more than they are asked to be."""
    runs = {"simclr": {"tuned_runs": seeds_of(simclr)}, "dcl": {"tuned_runs": seeds_of(dcl)}}
    comparison = made_up(request_for("simclr", "dcl", seeds=6), {name: each | DULL for name, each in runs.items()})
    if references is not None:
        comparison.refer(pixels=references[0], untrained=references[1])
    first = answer(comparison.findings())[0]
    assert first.startswith(said)
    for detail in details:
        assert detail in first


DULL: Scores = {"default_runs": (140, 141, 139, 140, 141, 139)}


def test_a_method_whose_every_run_was_lost_is_not_said_to_be_above_anything(made_up: Make) -> None:
    comparison = made_up(request_for("simclr", "dcl"), {"dcl": {"tuned_runs": (None, COLLAPSED, None)}})
    comparison.refer(pixels=100, untrained=90)
    nothing, learnt, *_ = answer(comparison.findings())
    assert nothing.endswith("fewer than two methods have been measured with all seeds on the same task.")
    assert learnt.startswith(f"Every tuned method that was measured is above {BOTH}, beyond noise; the least: simclr")


def test_no_difference_of_accuracies_is_beyond_all_of_the_images(made_up: Make) -> None:
    """One of three runs diverged: Student's interval alone is four times as wide as the scale."""
    found = made_up(request_for("simclr", "dcl"), {"dcl": {"tuned_runs": (199, None, 199)}}).findings()
    (gap,) = found.gaps_of("gain")[1:]
    assert (gap.difference.low, gap.difference.high) == (-1.0, 1.0)


def test_a_method_is_paired_with_its_references_by_seed_and_image(made_up: Make) -> None:
    comparison = made_up(request_for("simclr", "dcl"))
    comparison.refer(pixels=145, untrained=90)
    gaps = [gap for gap in comparison.findings().gaps_of("learnt") if gap.one == Side("simclr", TASK)]
    runs = np.stack([table_of([right(count, seed)])[0] for seed, count in enumerate((150, 152, 151), start=1)])
    pixels = np.stack([table_of([right(145, 0)])[0]] * 3)
    untrained = np.stack([table_of([right(90, seed)])[0] for seed in (1, 2, 3)])
    for gap, table in zip(gaps, (pixels, untrained), strict=True):  # two methods, two references
        expected = difference_interval(runs, table, 0.05 / 4)
        assert (gap.difference.low, gap.difference.high) == pytest.approx(expected)


def test_a_comparison_that_is_not_over_counts_its_pairs(made_up: Make) -> None:
    found = made_up(request_for("simclr", "dcl", "dhel", batch_sizes=(32, 64))).findings()
    few = [each for each in found.sweeps if each.planned.method != "dhel" and each.planned.task == TASK]
    some = replace(found, sweeps=tuple(few))
    assert answer(some)[0].startswith("So far: 1 of 6 pairs. ")
    assert not answer(found)[0].startswith("So far")
    one = replace(found, sweeps=tuple(few[:1]))
    assert answer(one)[0].startswith("So far: 0 of 6 pairs. Nothing can be compared yet")


@pytest.mark.parametrize(
    ("draws", "default", "said"),
    [
        ((0.4, 0.6, 0.3), (140, 141, 139), None),
        ((0.752, 0.760, 0.755), (140, 141, 139), "The search could not choose"),
        ((0.4, 0.6, 0.3), (152, 153, 151), "The default settings score higher"),
        ((0.4, 0.45, 0.3), (140, 141, 139), "No draw was better"),
    ],
)
def test_the_answer_says_what_tuning_could_not_do(made_up, draws, default, said):
    lines = answer(
        made_up(request_for("simclr", "dcl"), {"simclr": {"draws": draws, "default_runs": default}}).findings()
    )
    known = ("The search could not choose", "The default settings score higher", "No draw was better")
    assert [start for start in known for line in lines if line.startswith(start)] == ([said] if said else [])


def test_runs_that_older_versions_measured_otherwise_are_not_compared_with_others(made_up: Make) -> None:
    found = made_up(request_for("simclr", "dcl", assignments=("data.train_limit=160",))).findings()
    assert not any(each.is_by_plan for each in found.sweeps)  # logs without a limit: all training images
    assert len(found.gaps_of("tuned")) == 1
    assert "simclr-digits-b64, dcl-digits-b64: measured by an older version" in as_markdown(
        comparison_document(found, ())
    )
    first, second = found.sweeps
    mixed = replace(found, sweeps=(replace(first, train_limit=160), second))
    assert mixed.gaps_of("tuned") == ()

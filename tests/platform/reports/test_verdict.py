"""What the page says of the winner: how sure it is, against whom, on which images, and what few seeds cannot tell."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from pages import Page
from scipy import stats

from ebclab.evaluation.answers import Answers, table_of
from ebclab.evaluation.comparison import Measurements, difference
from ebclab.evaluation.seeds_and_images import difference_interval, mean_interval
from ebclab.interval import Interval
from ebclab.reports.document import lead, write_report
from ebclab.reports.reading import against, all_learnt, measured_for_all, read_sweep
from ebclab.runs.references import PIXELS, UNTRAINED
from ebclab.sweeps.results import SeedScores, SettingsTest

pytestmark = pytest.mark.usefixtures("_without_plots_of_settings")

Folders = Callable[..., Any]


def page_of(folder: Any) -> str:
    """Return the text of the page about a sweep, its plots left out."""
    return Page(Path(write_report([folder.path], folder.path / "page.html")).read_text()).words


def test_the_winner_is_named_with_what_is_within_noise_of_it_and_of_the_start(filled):
    """Without answers: paired differences over three seeds, one of three differences each, in points.

    Against 0006: 1, 0, 1; against the start: 10, 11, 12, so 11 -+ t_2 / sqrt(3), far beyond 0 but for t_2 = 7.65.
    """
    record = read_sweep(filled.path)
    assert [entry.source for entry in record.confirmed] == ["0007", "0006", "baseline"]
    assert record.start_place == 2
    half = stats.t.isf(0.05 / 3 / 2, 2) / 3**0.5
    assert lead(record).startswith(
        f"Winner: trial 0007, 62.0% over 3 seeds (95 %: {62 - 2 * half:.1f}% to {62 + 2 * half:.1f}%). "
        f"Within noise of trial 0006. "
        f"Better than the starting settings by +11.0 points (95 %: +{11 - half:.1f} to +{11 + half:.1f}). "
        "3 seeds are few: read this as a hint (why: below)."
    )


@pytest.mark.parametrize(
    ("of_start", "said"),
    [
        ((0.61, 0.59, 0.60), " On the test images that is within noise: +0.0 points (-3.3 to +3.3) by kNN."),
        ((0.20, 0.21, 0.22), ""),
        ((0.99, 0.98, 1.00), " On the test images it is the other way round: -39.0 points (-42.3 to -35.7) by kNN."),
        ((0.6, 0.6, 0.6), ""),  # the same at every seed: no interval
    ],
)
def test_what_the_test_images_say_otherwise_of_a_gain_is_said(sweep_folder, of_start, said):
    """Paired differences at three seeds are -1, 1 and 0 points, or shifted; for three settings alpha is 0.05 / 3."""
    folder, seeds = sweep_folder(), (1, 2, 3)
    folder.fill()
    for source, values in (("0007", (0.6, 0.6, 0.6)), ("baseline", of_start)):
        SettingsTest(source, seeds, {"knn": SeedScores.of(Measurements.of(seeds, values, []), 3)}).write(folder.log)
    half = stats.t.isf(0.05 / 3 / 2, 2) / 3**0.5
    text = lead(read_sweep(folder.path))
    assert ("On the test images" in text) == bool(said)
    ends = {"-3.3": -half, "+3.3": half, "-42.3": -39 - half, "-35.7": half - 39}
    for written, end in ends.items():
        said = said.replace(written, f"{end:+.1f}")
    assert said in text


def test_a_gain_that_the_test_images_alone_show_is_said_to_be_beyond_noise_there(sweep_folder: Folders) -> None:
    """Paired differences on held-out images are 2, 2 and -1 points, and on the test images 40, 41 and 42."""
    folder, seeds = sweep_folder(top=1), (1, 2, 3)
    folder.search(0, [0.5, 0.6, 0.7, 0.8])
    folder.confirm_all({"0000": (0.60, 0.62, 0.64), "baseline": (0.58, 0.60, 0.65)})
    for source, values in (("0000", (0.60, 0.62, 0.64)), ("baseline", (0.20, 0.21, 0.22))):
        SettingsTest(source, seeds, {"knn": SeedScores.of(Measurements.of(seeds, values, []), 2)}).write(folder.log)
    half = stats.t.isf(0.05 / 2, 2) / 3**0.5  # two settings are one pair
    ends = f"+41.0 points (+{41 - half:.1f} to +{41 + half:.1f})"
    assert f"is within noise. On the test images it is beyond noise: {ends} by kNN." in lead(read_sweep(folder.path))


def test_without_confirmation_the_best_trial_is_called_unconfirmed(sweep_folder: Folders) -> None:
    folder = sweep_folder()
    folder.search(0, [0.4, 0.5, 0.5, 0.5])
    assert "Best trial so far: 0000 with 50.0%. One seed, not confirmed" in lead(read_sweep(folder.path))


def test_an_objective_that_is_no_number_in_any_trial_is_no_best_one(sweep_folder: Folders) -> None:
    folder = sweep_folder()
    folder.search(0, [0.4, float("nan")])
    assert lead(read_sweep(folder.path)).startswith("No trial measured a number")
    folder.search(1, [0.3, 0.3])
    assert "Best trial so far: 0001 with 30.0%" in lead(read_sweep(folder.path))


def test_one_seed_is_neither_within_noise_of_a_reference_nor_below_it() -> None:
    one = {score: Measurements.of([0], [score], [None]) for score in (0.5, 0.6, 0.7)}
    ahead, behind = (difference(one[score], one[0.6], 1) for score in (0.7, 0.5))
    assert against(PIXELS, ahead) == "+10.0 points from raw pixels, with no interval (one seed)"
    assert all_learnt({"a": {PIXELS: ahead}, "b": {PIXELS: behind}}, "row") == (
        "No row is above raw pixels beyond noise. With no interval over raw pixels: a (one seed); b (one seed)."
    )


def confirm_all(folder: Any, wrong: dict[str, list[list[int]]], num_images: int = 141) -> dict[str, list[Answers]]:
    """Write confirming runs that are wrong about the given images, seed by seed; return their answers by source."""
    given: dict[str, list[Answers]] = {}
    for source, by_seed in wrong.items():
        for seed, images in enumerate(by_seed, start=1):
            right = torch.ones(1, num_images, dtype=torch.bool)
            right[0, images] = False
            answers = Answers.of(right, torch.arange(num_images))
            given.setdefault(source, []).append(answers)
            folder.confirm(source, seed, right.double().mean().item(), answers)
    return given


def test_two_seeds_that_tie_are_neither_certain_nor_an_interval_without_width(sweep_folder: Folders) -> None:
    """134 of 141 right at both seeds against 133: 95.0 % and 94.3 %, once called +0.7 (+0.7 to +0.7), beyond noise."""
    folder = sweep_folder(top=1, seeds=2)
    folder.search(0, [0.5, 0.6, 0.7, 0.8])
    wrong = {"0000": [list(range(7))] * 2, "baseline": [list(range(3, 11))] * 2}
    given = confirm_all(folder, wrong)
    part = read_sweep(folder.path)
    tables = [table_of(given[source]) for source in ("0000", "baseline")]
    low, high = mean_interval(tables[0], 0.05 / 2)
    assert (part.confirmed[0].low, part.confirmed[0].high) == pytest.approx((low, high))
    gap = part.differences[1]
    assert (gap.low, gap.high) == pytest.approx(difference_interval(*tables, 0.05))
    words = lead(part)
    assert f"95.0% over 2 seeds (95 %: {low:.1%} to {high:.1%})" in words
    assert "is within noise" in words
    assert "2 seeds are few" in words
    page = page_of(folder)
    assert "beyond noise" not in page
    assert "+0.7 to +0.7" not in page
    assert "95.0% to 95.0%" not in page
    assert "other images in place of these 141" in page
    assert "by chance in 50% of such sweeps (two-sided sign test; below 5 % takes 6 seeds)" in page


def test_a_sweep_without_answers_says_that_its_intervals_are_over_seeds_only_and_has_none_for_a_tie(sweep_folder):
    folder = sweep_folder(top=1, seeds=2)
    folder.search(0, [0.5, 0.6, 0.7, 0.8])
    folder.confirm_all({"0000": (0.95, 0.95), "baseline": (0.943, 0.943)})
    part = read_sweep(folder.path)
    assert part.confirmed[0].low is None
    assert "It is +0.7 points better than the starting settings; the same at every seed: no interval." in lead(part)
    page = page_of(folder)
    assert "beyond noise" not in page
    assert "none: all seeds the same" in page
    assert "with other seeds; other images may move it as much, and that is not in it" in page


def test_the_page_says_that_the_winner_was_chosen_and_on_which_images(sweep_folder: Folders) -> None:
    folder = sweep_folder()
    folder.fill()
    page = page_of(folder)
    assert "chosen as the best of 3; so that its luck is not taken for a gain, the intervals are wide enough" in page
    assert "scored on the same held-out images as the search" in page
    apart = sweep_folder("apart", confirm_split=True)
    apart.fill()
    page = page_of(apart)
    assert "scored on another 10% of the training images" in page
    assert "which no trial was trained on and no search saw" in page


@pytest.mark.parametrize(
    ("trial", "start", "said"),
    [
        (6 * (0.4,), (0.60, 0.61, 0.62, 0.60), "these score higher: the starting settings (4 of 6)."),
        ((0.60, 0.61, 0.62, 0.60), 6 * (0.4,), "these score higher: trial 0008 (4 of 6)."),
    ],
)
def test_a_winner_of_more_finished_runs_is_not_said_to_be_better(sweep_folder, trial, start, said):
    """The page had "Better than the starting settings by -20.7 points", and "nothing better" of 20 points more."""
    folder = sweep_folder(top=1, seeds=6)
    for number in range(9):
        folder.search(number, [0.3, 0.4, 0.5, 0.6 + 0.01 * number])
    for source, values in {"0008": trial, "baseline": start}.items():
        folder.confirm_all({source: [value + 0.001 * (seed % 2) for seed, value in enumerate(values, start=1)]})
    answer = lead(read_sweep(folder.path))
    assert f"Where their runs finished, {said}" in answer
    assert "etter than" not in answer


def test_a_winner_behind_the_start_at_the_seeds_that_both_finished_is_said_to_be_worse(sweep_folder: Folders) -> None:
    """Two more seeds lift the mean of the trial to 63.3 %; at the four that it shares with the start it is behind.

    There the differences are -9, -10, -11 and -10 points: -10 -+ t_3 sqrt(2/3) / 2, of two settings.
    """
    folder = sweep_folder(top=1, seeds=6)
    for number in range(9):
        folder.search(number, [0.3, 0.4, 0.5, 0.6 + 0.01 * number])
    folder.confirm_all({"0008": (0.5, 0.5, 0.5, 0.5, 0.9, 0.9), "baseline": (0.59, 0.60, 0.61, 0.60)})
    half = stats.t.isf(0.05 / 2, 3) * (2 / 3) ** 0.5 / 2
    answer = lead(read_sweep(folder.path))
    assert answer.startswith("Winner: trial 0008, 63.3% over 6 seeds (")
    said = f"Worse than the starting settings by -10.0 points (95 %: {-10 - half:.1f} to {-10 + half:.1f})."
    assert answer.endswith(said)


def test_with_five_seeds_nothing_is_said_of_few(sweep_folder: Folders) -> None:
    folder = sweep_folder(top=1, seeds=5, baseline=False)
    folder.search(0, [0.5, 0.6, 0.7, 0.8])
    folder.confirm_all({"0000": (0.91, 0.92, 0.93, 0.94, 0.95)})
    assert "seeds are few" not in page_of(folder)


def with_test_scores(folder: Any, *readings: list[str]) -> None:
    """Write readings of the test set into a sweep's log, and scores of winner and start."""
    for runs in readings:
        folder.log.append("test_read", runs=runs)
    draw = torch.Generator().manual_seed(1)
    for source, share in (("0007", 0.9), ("baseline", 0.6)):
        right = torch.rand(3, 355, generator=draw) < share
        answers = [Answers.of(row[None], torch.arange(355)) for row in right]
        scores = SeedScores.of(Measurements.of((1, 2, 3), right.double().mean(dim=1).tolist(), answers), 3)
        SettingsTest(source, (1, 2, 3), {"knn": scores}).write(folder.log)


def test_the_page_has_the_gain_on_the_test_set_with_its_interval_and_every_reading_of_it(filled):
    assert "Test setnot read" in page_of(filled)
    with_test_scores(filled, ["confirm-0007-seed1", "confirm-baseline-seed1"])
    part = read_sweep(filled.path)
    tables = [table_of(scores["knn"].answers) for scores in (part.test, part.test_of_start)]
    gap = part.test_gain["knn"]
    assert (gap.low, gap.high) == pytest.approx(difference_interval(*tables, 0.05 / 3))
    assert gap.images == 355
    page = page_of(filled)
    assert f"+{100 * gap.mean:.1f} ({100 * (gap.low or 0):+.1f} to {100 * (gap.high or 0):+.1f})" in page
    assert "read once, after the choice, for trial 0007 (seed 1) and the starting settings (seed 1); nothing" in page
    with_test_scores(filled, ["confirm-0007-seed1", "confirm-0007-seed2", "confirm-baseline-seed1"])
    page = page_of(filled)
    first = "1. for trial 0007 (seed 1) and the starting settings (seed 1)"
    assert f"read 2 times, because the sweep was resumed: {first}; 2. for trial 0007 (seed 1, 2)" in page
    assert "read once" not in page


@pytest.mark.parametrize(
    ("beside", "expected"),
    [
        ([], []),
        ([[]], []),
        ([[PIXELS], [UNTRAINED]], []),
        ([[UNTRAINED, PIXELS], [UNTRAINED]], [UNTRAINED]),
        ([[UNTRAINED, PIXELS]], [PIXELS, UNTRAINED]),
    ],
)
def test_a_reference_counts_where_every_result_was_compared_with_it(beside, expected):
    over = {str(row): dict.fromkeys(names, Interval(0.1)) for row, names in enumerate(beside)}
    assert measured_for_all(over) == expected

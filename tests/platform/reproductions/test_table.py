"""Ours beside the published numbers: differences, intervals, and what a page says and escapes."""

import json

import pytest

from ebclab.document.html import as_page
from ebclab.document.text import as_markdown
from ebclab.interval import Interval
from ebclab.reproductions.document import as_rows, shown_difference, shown_ours, shown_published, table_document
from ebclab.reproductions.measure import Found, RunOutcome, Wanted
from ebclab.reproductions.plan import plan_study
from ebclab.reproductions.study import PublishedNumber, Study
from ebclab.reproductions.table import ReproducedTable, table_of_plan

KNN, ESS = Wanted("knn", ""), Wanted("log/ess", "")


def _table(study: Study, knn: list[float], scale: str = "smoke") -> ReproducedTable:
    """Return a table whose first row has these kNN accuracies, a seed each, and whose second row has 0.25."""
    plan = plan_study(study, scale, seeds=range(len(knn)))  # type: ignore[arg-type]
    outcomes = {}
    for row, values in (("cold", knn), ("warm", [0.25] * len(knn))):
        for seed, value in enumerate(values):
            numbers = {KNN: Found(value, "kNN, 20 neighbours"), ESS: Found(0.125, "ess")}
            outcomes[f"{row}-seed{seed}"] = RunOutcome(30.0, numbers)
    return table_of_plan(plan, outcomes)


def test_a_cell_holds_ours_the_papers_and_the_difference_in_the_units_of_the_paper(study: Study):
    table = _table(study, [0.625])
    cold, ess, warm, _ = table.cells
    assert (cold.ours, cold.published, cold.difference) == (Interval(62.5), PublishedNumber(50.0), 12.5)
    assert (shown_ours(cold, len(table.plan.seeds)), shown_difference(cold)) == (["62.5"], "+12.5")
    assert (ess.ours, ess.published, ess.difference) == (Interval(0.125), None, None)
    assert (shown_ours(ess, len(table.plan.seeds)), shown_difference(ess)) == (["0.125"], "")
    assert warm.published is None
    assert table.seconds == 60.0
    page = as_page(table_document(table))
    assert 0 < page.index("<dt>kNN</dt><dd>kNN, 20 neighbours</dd>") < page.index("<dt>ESS</dt><dd>ess</dd>")
    assert "One seed" in table.what_seeds_say


def test_several_seeds_have_a_mean_and_students_interval(study: Study):
    # values 40, 50, 60: mean 50, standard deviation 10, t of 2 degrees of freedom at 95 % 4.302653
    cell = _table(study, [0.4, 0.5, 0.6]).cells[0]
    half = 4.302653 * 10 / 3**0.5
    assert (cell.ours.mean, cell.ours.std) == (pytest.approx(50.0), pytest.approx(10.0))
    assert (cell.ours.low, cell.ours.high) == (pytest.approx(50 - half, abs=1e-3), pytest.approx(50 + half, abs=1e-3))
    assert cell.seeds == (0, 1, 2)


def test_a_seed_that_failed_is_left_out_and_counted(study: Study):
    plan = plan_study(study, "smoke", seeds=[0, 1])
    good = RunOutcome(1.0, {KNN: Found(0.5, ""), ESS: Found(0.1, "")})
    lost = RunOutcome(problem="the loss is nan")
    outcomes = {run: lost if run == "cold-seed1" else good for run in plan.runs}
    table = table_of_plan(plan, outcomes)
    assert (table.cells[0].ours, table.cells[0].seeds, table.cells[0].problem) == (Interval(50.0), (0,), "")
    assert "1 of 2 seeds" in as_page(table_document(table))
    assert "| 50.0 (1 of 2 seeds) |" in as_markdown(table_document(table))


def test_a_smoke_run_never_speaks_of_a_reproduction(study: Study):
    table = _table(study, [0.5])
    assert table.cells[0].difference == 0.0
    for text in (as_page(table_document(table)), as_markdown(table_document(table)), json.dumps(table.to_mapping())):
        assert "say nothing about the paper" in text
        assert "reproduced" not in text.lower()


def test_a_scale_that_is_not_run_says_so_in_every_cell(study: Study):
    table = table_of_plan(plan_study(study, "paper"), {})
    assert [shown_ours(cell, len(table.plan.seeds)) for cell in table.cells] == [["not run at this scale"]] * 4
    assert table.plan.left_out == {"kNN, ESS": "nobody has the images"}
    assert "nobody has the images" in as_markdown(table_document(table))


@pytest.mark.parametrize(("value", "text"), [(99.3, "99.3"), (72.59, "72.59"), (65.0, "65.0"), (None, "collapsed")])
def test_a_published_number_is_shown_as_it_was_printed(value: float | None, text: str):
    assert shown_published(PublishedNumber(value), "percent") == text
    assert shown_published(None, "percent") == ""
    assert shown_published(PublishedNumber(value, 0.1), "percent") in (f"{text} ± 0.10", "collapsed")


def test_numbers_are_rows_for_other_programs(study: Study):
    rows = as_rows(_table(study, [0.4, 0.5, 0.6])).rows
    half = pytest.approx(4.302653 * 10 / 3**0.5, abs=1e-3)
    row, column, unit, mean, low, high, *rest = rows[0]
    assert (row, column, unit, *rest) == ("cold", "kNN", "percent", 3, 50.0, pytest.approx(0.0))
    assert (mean, mean - low, high - mean) == (pytest.approx(50.0), half, half)
    assert rows[3][:4] == ("warm", "ESS", "plain", 0.125)
    assert rows[3][6:] == (3, None, None)

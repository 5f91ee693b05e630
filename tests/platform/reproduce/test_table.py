"""Ours beside the published numbers: differences, intervals, and what a page says and escapes."""

from __future__ import annotations

import json
from html.parser import HTMLParser

import pytest

from ebclab.reproduce.markdown import render_table_markdown
from ebclab.reproduce.measure import Found, Wanted
from ebclab.reproduce.page import render_table_page
from ebclab.reproduce.plan import plan_study
from ebclab.reproduce.run import RunOutcome
from ebclab.reproduce.study import PublishedNumber, Study, parse_study
from ebclab.reproduce.table import ReproducedTable, table_of_plan
from ebclab.reproduce.wording import shown_difference, shown_ours, shown_published

from .conftest import TINY, study_mapping

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
    assert (cold.ours, cold.published, cold.difference) == (62.5, PublishedNumber(50.0), 12.5)
    assert (shown_ours(cold, len(table.plan.seeds)), shown_difference(cold)) == ("62.5", "+12.5")
    assert (ess.ours, ess.published, ess.difference) == (0.125, None, None)
    assert (shown_ours(ess, len(table.plan.seeds)), shown_difference(ess)) == ("0.125", "")
    assert warm.published is None
    assert table.seconds == 60.0
    page = render_table_page(table)
    assert 0 < page.index("<dt>kNN</dt><dd>kNN, 20 neighbours</dd>") < page.index("<dt>ESS</dt><dd>ess</dd>")
    assert "One seed" in table.what_seeds_say


def test_several_seeds_have_a_mean_and_students_interval(study: Study):
    # values 40, 50, 60: mean 50, standard deviation 10, t of 2 degrees of freedom at 95 % 4.302653
    cell = _table(study, [0.4, 0.5, 0.6]).cells[0]
    half = 4.302653 * 10 / 3**0.5
    assert (cell.ours, cell.std) == (pytest.approx(50.0), pytest.approx(10.0))
    assert (cell.low, cell.high) == (pytest.approx(50 - half, abs=1e-3), pytest.approx(50 + half, abs=1e-3))
    assert cell.seeds == (0, 1, 2)


def test_a_seed_that_failed_is_left_out_and_counted(study: Study):
    plan = plan_study(study, "smoke", seeds=[0, 1])
    good = RunOutcome(1.0, {KNN: Found(0.5, ""), ESS: Found(0.1, "")})
    lost = RunOutcome(problem="the loss is nan")
    outcomes = {run: lost if run == "cold-seed1" else good for run in plan.runs}
    table = table_of_plan(plan, outcomes)
    assert (table.cells[0].ours, table.cells[0].seeds, table.cells[0].problem) == (50.0, (0,), "")
    assert "1 of 2 seeds" in render_table_page(table)
    assert "| 50.0 (1 of 2 seeds) |" in render_table_markdown(table)


def test_a_smoke_run_never_speaks_of_a_reproduction(study: Study):
    table = _table(study, [0.5])
    assert table.cells[0].difference == 0.0
    for text in (render_table_page(table), render_table_markdown(table), json.dumps(table.to_mapping())):
        assert "say nothing about the paper" in text
        assert "reproduced" not in text.lower()


def test_a_scale_that_is_not_run_says_so_in_every_cell(study: Study):
    table = table_of_plan(plan_study(study, "paper"), {})
    assert {shown_ours(cell, len(table.plan.seeds)) for cell in table.cells} == {"not run at this scale"}
    assert table.not_run == {"kNN, ESS": "nobody has the images"}
    assert "nobody has the images" in render_table_markdown(table)


class Tags(HTMLParser):
    """The elements and addresses of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[str] = []
        self.addresses: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note an element, and where it leads."""
        self.elements.append(tag)
        self.addresses += [value or "" for name, value in attrs if name in ("href", "src")]


def test_the_page_escapes_whatever_a_study_says_and_asks_nobody_for_anything():
    evil = "<script>alert(1)</script><img src=x onerror=y>|`*"
    about = {"title": evil, "asks": evil, "source": evil, "numbers": evil, "unknown": evil, "released": [evil]}
    columns = {"knn": {"title": evil, "measure": "knn"}, "ess": {"title": "ESS", "measure": "log/ess", "unit": "plain"}}
    rows = {name: row | {"title": evil} for name, row in study_mapping()["rows"].items()}
    scales = {"smoke": {"set": TINY, "differs": [evil], "columns": {"ess": {"not_run": evil}, "knn": {"here": evil}}}}
    study = parse_study("own/table9", study_mapping(about=about, columns=columns, rows=rows, scales=scales), "x")
    table = _table(study, [0.5])
    found = Tags(render_table_page(table))
    assert {"script", "img"}.isdisjoint(found.elements)
    assert found.addresses == []
    assert "<script" not in render_table_markdown(table)
    assert "<img" not in render_table_markdown(table)


@pytest.mark.parametrize(("value", "text"), [(99.3, "99.3"), (72.59, "72.59"), (65.0, "65.0"), (None, "collapsed")])
def test_a_published_number_is_shown_as_it_was_printed(value: float | None, text: str):
    assert shown_published(PublishedNumber(value), "percent") == text
    assert shown_published(None, "percent") == ""
    assert shown_published(PublishedNumber(value, 0.1), "percent") in (f"{text} ± 0.10", "collapsed")

"""Columns at epochs of one run, efficiencies, and images of one's own: what is planned, kept and looked up."""

from pathlib import Path
from typing import Any

import pytest

from ebclab.errors import ConfigError
from ebclab.reproductions.document import shown_ours
from ebclab.reproductions.measure import Found, RunOutcome, Wanted
from ebclab.reproductions.plan import ReproductionFolder, plan_study
from ebclab.reproductions.reproduce import run_plan
from ebclab.reproductions.study import Study
from ebclab.reproductions.table import ReproducedTable, table_of_plan

from .conftest import TINY, refused, study_mapping, study_of


def _study(columns: dict[str, Any], rows: dict[str, Any] | None = None, **changes: Any) -> Study:
    given = rows or {name: {"title": name, "method": "simclr"} for name in ("x", "y")}
    about = study_mapping()["about"] | {"unknown": "No number."}
    return study_of(about=about, columns=columns, rows=given, published={}, **changes)


CURVE = {name: {"title": name, "measure": "knn", "epoch": epoch} for name, epoch in (("e2", 2), ("e4", 4), ("e6", 6))}


def test_epochs_of_a_row_are_of_one_run_that_keeps_their_checkpoints():
    scales = {"smoke": {"set": [*TINY, "training.epochs=6"]}}
    plan = plan_study(_study(CURVE, scales=scales), "smoke")
    assert list(plan.runs) == ["x-seed0", "y-seed0"]
    assert {run.training.keep_every for run in plan.runs.values()} == {2}
    assert [cell.wanted.epoch for cell in plan.cells[:3]] == [2, 4, 0]  # the last epoch is the usual checkpoint


def test_an_epoch_that_a_run_does_not_have_is_refused_before_training():
    scales = {"smoke": {"set": [*TINY, "training.epochs=5"]}}
    with pytest.raises(ConfigError) as caught:
        plan_study(_study(CURVE, scales=scales), "smoke")
    assert [line.partition(";")[0] for line in caught.value.problems] == [
        f"some/table9, smoke, {row}-seed0: measured after epoch 6, and trained for 5" for row in ("x", "y")
    ]


def test_a_time_is_not_in_per_cent():
    measures = {"e": "seconds-per-epoch", "t": "seconds-to/knn/0.5"}
    with pytest.raises(ConfigError) as caught:
        _study(
            {name: {"title": name, "measure": measure} for name, measure in measures.items()},
            scales={"smoke": {"set": TINY}},
        )
    assert caught.value.problems == [
        f"table9.yaml: columns.{name}.unit: a time is not in per cent, got {measure}; write seconds or hours"
        for name, measure in measures.items()
    ]


def test_a_card_or_a_time_has_no_epoch_and_a_probe_no_images_from_outside():
    columns = {
        "t": {"title": "t", "measure": "seconds-per-epoch", "unit": "hours", "epoch": 1},
        "c": {"title": "c", "measure": "card/calibration/ece-20", "epoch": 1},
        "k": {"title": "k", "measure": "knn", "outside": "near=inverted"},
        "f": {"title": "f", "measure": "efficiency/x/none"},
    }
    changes = {"t": {"epoch": 2}, "c": {"epoch": 2, "outside": "far=mnist"}, "k": {"epoch": 2, "outside": "far=mnist"}}
    with pytest.raises(ConfigError) as caught:
        _study(columns, scales={"smoke": {"set": TINY, "columns": changes}})
    assert [line.partition(",")[0] for line in caught.value.problems] == [
        "table9.yaml: columns.t.epoch: seconds-per-epoch is measured at the end alone",
        "table9.yaml: columns.c.epoch: card is measured at the end alone",
        "table9.yaml: columns.k.outside: knn has no images from outside; choose a measure of a card",
        "table9.yaml: columns.f.measure: no such cell",
        "table9.yaml: scales.smoke.columns.t.epoch: seconds-per-epoch is measured at the end alone",
        "table9.yaml: scales.smoke.columns.c.epoch: card is measured at the end alone",
        "table9.yaml: scales.smoke.columns.k.outside: knn has no images from outside; choose a measure of a card",
    ]


SHARES = {
    "knn": {"title": "kNN", "measure": "knn"},
    "share": {"title": "share", "measure": "efficiency/x/knn", "unit": "plain"},
}
ROWS = {"x": {"title": "x", "method": "simclr", "only": ["knn"]}, "y": {"title": "y", "method": "simclr"}}


@pytest.mark.parametrize(("last", "share"), [(0.30, 0.25), (0.31, 0.5), (0.70, 1.0), (0.71, None)])
def test_an_efficiency_is_the_share_of_epochs_after_which_the_other_row_is_there(last: float, share: float | None):
    scales = {"smoke": {"set": [*TINY, "training.epochs=4"]}}
    plan = plan_study(_study(SHARES, ROWS, scales=scales), "smoke")
    assert [(cell.row, cell.column) for cell in plan.cells] == [("x", "knn"), ("y", "knn"), ("y", "share")]
    assert plan.wanted_of("x-seed0") == [Wanted("knn", ""), *(Wanted("knn", "", epoch) for epoch in (1, 2, 3))]
    assert plan.wanted_of("y-seed0") == [Wanted("knn", "")]
    curve = dict(zip(plan.wanted_of("x-seed0"), (0.7, 0.3, 0.5, 0.4), strict=True))
    outcomes = {
        "x-seed0": RunOutcome(1.0, {wanted: Found(value, "") for wanted, value in curve.items()}),
        "y-seed0": RunOutcome(1.0, {Wanted("knn", ""): Found(last, "")}),
    }
    cell = table_of_plan(plan, outcomes).cells[-1]
    assert (cell.ours and cell.ours.mean) == share
    assert ("never reaches" in cell.problem) == (share is None)


def test_an_efficiency_without_the_other_rows_run_says_why_it_has_no_number():
    claims = [{"says": "It needs half.", "between": "y/share", "bounds": [0.4, 0.6]}]
    plan = plan_study(_study(SHARES, ROWS, scales={"smoke": {"set": TINY}}, claims=claims), "smoke")
    outcomes = {
        "x-seed0": RunOutcome(problem="the loss is nan"),
        "y-seed0": RunOutcome(1.0, {Wanted("knn", ""): Found(0.3, "")}),
    }
    table = table_of_plan(plan, outcomes)
    assert (table.cells[-1].ours, table.cells[-1].problem) == (None, "the loss is nan")
    assert table.claims[0].why == "the loss is nan"


TIMES = (10.0, 25.0, 45.0, 100.0)  # seconds after each of four epochs


def _timed(*curves: tuple[float, ...], claims: list[dict[str, Any]] | None = None) -> ReproducedTable:
    """Return the time to 50 % of runs with these accuracies after each epoch, a seed each."""
    columns = {"t": {"title": "t", "measure": "seconds-to/knn/0.5", "unit": "seconds"}}
    rows = {"x": {"title": "x", "method": "simclr"}}
    scales = {"smoke": {"set": [*TINY, "training.epochs=4", "training.keep_every=1"]}}
    plan = plan_study(_study(columns, rows, scales=scales, claims=claims or []), "smoke", seeds=range(len(curves)))
    knn = [Wanted("knn", "", epoch) for epoch in (1, 2, 3, 0)]
    seconds = [Wanted("log/seconds", "", epoch) for epoch in (1, 2, 3, 4)]
    assert set(plan.wanted_of("x-seed0")) == {*knn, *seconds}
    outcomes = {
        f"x-seed{seed}": RunOutcome(
            100.0, {wanted: Found(value, "") for wanted, value in zip(knn + seconds, curve + TIMES, strict=True)}
        )
        for seed, curve in enumerate(curves)
    }
    return table_of_plan(plan, outcomes)


@pytest.mark.parametrize(
    ("curve", "shown"),
    [
        ((0.5, 0.6, 0.7, 0.8), "10.0"),
        ((0.1, 0.49, 0.8, 0.9), "45.0"),  # not between the second and the third
        ((0.1, 0.2, 0.3, 0.5), "100.0"),
        ((0.1, 0.6, 0.49, 0.7), "100.0"),  # what is lost again does not count
        ((0.1, 0.499, 0.3, 0.2), "not reached in 4 epochs: at most 49.90 %"),
        ((0.1, 0.6, 0.7, 0.4), "reached and lost in 4 epochs: 40.00 % at the end"),
    ],
)
def test_a_time_to_a_target_is_that_of_the_first_epoch_that_keeps_it(curve: tuple[float, ...], shown: str):
    table = _timed(curve)
    assert shown_ours(table.cells[0], 1) == [shown]
    assert (table.cells[0].problem == shown) == (table.cells[0].ours is None)
    assert "first of 4 measured epochs from which on none is below 50 %" in table.cells[0].detail


def test_seeds_that_do_not_reach_a_target_are_counted_and_leave_a_claim_open():
    claims = [{"says": "It is quick.", "between": "x/t", "bounds": [-1000, 1000]}]
    early, late, never = (0.6, 0.6, 0.6, 0.6), (0.1, 0.6, 0.6, 0.6), (0.1, 0.1, 0.2, 0.1)
    whole, some, none = (
        _timed(*curves, claims=claims) for curves in ([early, late], [early, late, never], [never] * 2)
    )
    assert whole.claims[0].answer == "holds"
    assert whole.cells[0].not_reached == ""
    text, _, seeds = shown_ours(some.cells[0], 3)
    assert (text, seeds) == ("17.5", "(reached by 2 of 3 seeds)")
    assert some.cells[0].to_mapping()["not_reached"] == "not reached in 4 epochs: at most 20.00 %"
    assert (some.claims[0].answer, some.claims[0].why) == (
        "cannot be told",
        "reached by 2 of 3 seeds, whose mean leaves out the others",
    )
    assert shown_ours(none.cells[0], 2) == ["not reached in 4 epochs: at most 20.00 %"]
    assert none.claims[0].answer == "cannot be told"
    assert none.claims[0].why.endswith("not reached in 4 epochs: at most 20.00 %")


def test_a_scale_may_have_another_target_and_nothing_else():
    columns = {"t": {"title": "t", "measure": "seconds-to/knn/0.9", "unit": "seconds"}, "k": {"title": "k"}}
    change = {"t": {"measure": "seconds-to/linear/0.25"}}
    scales = {"smoke": {"set": [*TINY, "training.keep_every=1"], "columns": change}}
    plan = plan_study(_study(columns, scales=scales), "smoke")
    assert (plan.cells[0].target, plan.cells[0].wanted) == (0.25, Wanted("linear", ""))
    scales = {"smoke": {"columns": {"t": {"measure": "knn"}, "k": {"measure": "seconds-to/knn/0.5"}}}}
    lines = refused(columns=columns, published={}, about=study_mapping()["about"] | {"unknown": "?"}, scales=scales)
    assert [line.partition(",")[0] for line in lines] == [
        f"scales.smoke.columns.{name}.measure: replaces times to a target alone" for name in columns
    ]


def test_a_run_is_measured_after_its_first_epoch_and_after_its_last(tmp_path: Path):
    columns = {
        "last": {"title": "last", "measure": "knn", "epoch": 2},
        "first": {"title": "first", "measure": "knn", "epoch": 1},
        "top5": {"title": "top 5", "measure": "top5", "epoch": 1},
        "linear": {"title": "top 1", "measure": "linear", "epoch": 1},
        "loss": {"title": "loss", "measure": "log/ess", "epoch": 1, "unit": "plain"},
    }
    rows = {"x": {"title": "x", "method": "simclr", "set": ["optimizer.learning_rate=0.5"]}}
    scales = {"smoke": {"set": [*TINY, "training.epochs=2"]}}
    plan = plan_study(_study(columns, rows, scales=scales), "smoke")
    outcomes = run_plan(plan, ReproductionFolder(tmp_path / "here"))
    cells = {cell.column: cell.ours.mean if cell.ours else 0.0 for cell in table_of_plan(plan, outcomes).cells}
    assert cells["first"] != cells["last"]
    assert cells["top5"] > cells["linear"]
    run = tmp_path / "here" / "runs" / "x-seed0"
    assert [path.name for path in sorted((run / "checkpoints").glob("kept-*"))] == [
        "kept-0000000002",
        "kept-0000000004",
    ]
    assert "kept" not in (run / "evaluation.json").read_text()  # the run's own scores are those of its end

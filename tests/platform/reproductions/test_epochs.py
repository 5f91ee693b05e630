"""Columns at epochs of one run, efficiencies, and images of one's own: what is planned, kept and looked up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ebclab.errors import ConfigError
from ebclab.reproductions.folder import ReproductionFolder
from ebclab.reproductions.measure import Found, RunOutcome, Wanted
from ebclab.reproductions.plan import plan_study
from ebclab.reproductions.reproduce import run_plan
from ebclab.reproductions.study import Study
from ebclab.reproductions.table import table_of_plan

from .conftest import TINY, study_mapping, study_of


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
        f"own/table9, smoke, {row}-seed0: measured after epoch 6, and trained for 5" for row in ("x", "y")
    ]


def test_a_card_or_a_time_has_no_epoch_and_a_probe_no_images_from_outside():
    columns = {
        "t": {"title": "t", "measure": "seconds-per-epoch", "epoch": 1},
        "c": {"title": "c", "measure": "card/calibration/ece-20", "epoch": 1},
        "k": {"title": "k", "measure": "knn", "outside": "near=inverted"},
        "f": {"title": "f", "measure": "efficiency/x/none"},
    }
    with pytest.raises(ConfigError) as caught:
        _study(columns)
    assert [line.partition(",")[0] for line in caught.value.problems] == [
        "table9.yaml: columns.t.epoch: seconds-per-epoch is measured at the end alone",
        "table9.yaml: columns.c.epoch: card is measured at the end alone",
        "table9.yaml: columns.k.outside: knn has no images from outside; choose a measure of a card",
        "table9.yaml: columns.f.measure: no such cell",
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

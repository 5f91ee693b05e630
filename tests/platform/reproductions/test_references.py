"""Raw pixels and the untrained encoder beside the rows of a study."""

import json
from dataclasses import replace

import pytest
from made_up_comparison import IMAGES, right

from ebclab.document.text import as_markdown
from ebclab.reproductions.document import beside_the_paper, table_document
from ebclab.reproductions.measure import Found, RunOutcome
from ebclab.reproductions.plan import ReproductionFolder, plan_study
from ebclab.reproductions.plots import plots
from ebclab.reproductions.reproduce import run_plan
from ebclab.reproductions.table import table_of_plan
from ebclab.runs import measured_references as measuring
from ebclab.runs.evaluate import evaluate_run
from ebclab.runs.references import PIXELS, UNTRAINED, Reference, References

from .conftest import TINY, study_mapping, study_of

NO_NORM = {"title": "warm", "method": "simclr", "set": ["encoder.batch_norm=none"]}


def _table(
    scores, *, scale="small", seeds=(0, 1, 2), encoder_of_warm="the same", measured=(PIXELS, UNTRAINED), titles=None
):
    """Return a table whose rows are right about so many of 200 images, beside references that are about so many."""
    rows = study_mapping()["rows"] | ({} if encoder_of_warm == "the same" else {"warm": NO_NORM})
    rows = {name: row | {"title": (titles or {}).get(name, name)} for name, row in rows.items()}
    plan = plan_study(study_of(rows=rows), scale, seeds=seeds, assignments=TINY)
    outcomes = {}
    for row, number in scores.items():
        for cell in (each for each in plan.cells if each.row == row and each.column == "knn"):
            for run in cell.runs.values():
                outcomes[run] = RunOutcome(1.0, {cell.wanted: Found(number / IMAGES, "kNN", right(number))})
    for cell in plan.cells:  # the other column has no reference
        for run in cell.runs.values():
            outcomes[run].numbers.setdefault(cell.wanted, Found(0.5, "ess"))
    made = [
        Reference(name, protocol.key(name), seed, number / IMAGES, right(number))
        for protocol, _ in plan.protocols
        for name, number in ((PIXELS, 60), (UNTRAINED, 80))
        if name in measured
        for seed in (seeds if name == UNTRAINED else (0,))
    ]
    return table_of_plan(plan, outcomes, References(tuple(dict.fromkeys(made))))


def test_references_are_what_evaluation_says_of_a_run_and_are_measured_once(tmp_path, monkeypatch):
    plan = plan_study(study_of(), "small", seeds=[0, 1], assignments=TINY)
    folder = ReproductionFolder(tmp_path / "here")
    outcomes = run_plan(plan, folder)
    known = References.read(folder.references)
    assert sorted((each.name, each.seed) for each in known.references) == [(PIXELS, 0), (UNTRAINED, 0), (UNTRAINED, 1)]
    for each in known.references:
        run = folder.path / "runs" / f"cold-seed{each.seed}"
        evaluated = evaluate_run(run, only=["knn"], references=True).rows[each.name]["knn"]
        assert (each.value, each.answers) == (evaluated.value, evaluated.answers)
    monkeypatch.setattr(measuring, "evaluate_encoder", None)
    assert run_plan(plan, folder) == outcomes
    table = table_of_plan(plan, outcomes, known).to_mapping()
    assert [(each["name"], each["column"]) for each in table["references"]] == [(PIXELS, "knn"), (UNTRAINED, "knn")]
    json.dumps(table)


@pytest.mark.parametrize(
    ("scores", "said"),
    [
        (
            {"cold": 180, "warm": 160},
            "Every row is above raw pixels and the untrained encoder, beyond noise; the least: ",
        ),
        ({"cold": 180, "warm": 81}, "Not every row is above raw pixels and the untrained encoder beyond noise: warm "),
        (
            {"cold": 40, "warm": 50},
            "No row is above raw pixels and the untrained encoder beyond noise. Below raw pixels: cold (kNN) ",
        ),
    ],
)
def test_a_page_says_first_whether_anything_was_learnt(scores, said):
    table = _table(scores)
    text = as_markdown(table_document(table))
    assert said in text
    assert text.index(said) < text.index("A small run shows")
    assert table.to_mapping()["learnt"].startswith(said)


def test_references_are_rows_of_the_table_and_those_of_one_encoder_alone_name_it():
    # 60 and 80 of 200 images
    text = as_markdown(table_document(_table({"cold": 180, "warm": 160})))
    cells = [line.split("|") for line in text.splitlines() if line.startswith(("| raw pixels", "| untrained"))]
    assert [(name.strip(), ours.split()[0]) for _, name, _, ours, *_ in cells] == [
        ("raw pixels", "30.0"),
        ("untrained encoder", "40.0"),
    ]
    text = as_markdown(table_document(_table({"cold": 180, "warm": 160}, encoder_of_warm="without norm")))
    names = [line.split("|")[1].strip() for line in text.splitlines() if line.startswith(("| raw", "| untrained"))]
    assert names == ["raw pixels", "untrained encoder (of cold)", "untrained encoder (of warm)"]


def test_a_column_where_rows_have_no_run_shares_the_row_of_its_reference():
    table = _table({"cold": 180, "warm": 160})
    _, untrained = table.beside
    rows = {"a": {"title": "a", "method": "simclr"}, "b": {"title": "b", "method": "simclr"}}
    plan = replace(table.plan, study=study_of(rows=study_mapping()["rows"] | rows))

    def names(*places):  # (column, rows with one encoder) of an untrained encoder
        beside = tuple(replace(untrained, column=column, rows=rows) for column, rows in places)
        shown = beside_the_paper(replace(table, plan=plan, beside=beside, cells=())).rows
        return [each[0].text + "".join(each[0].small) for each in shown]

    both = [("knn", ("cold", "a")), ("knn", ("warm", "b"))]
    assert len(names(*both)) == 2
    assert names(*both, ("ess", ("cold",)), ("ess", ("b",))) == names(*both)
    assert len(names(*both, ("ess", ("cold",)), ("ess", ("a",)))) == 4


@pytest.mark.parametrize("measured", [PIXELS, UNTRAINED])
def test_a_reference_that_is_missing_is_not_spoken_of(measured):
    said = _table({"cold": 180, "warm": 40}, measured=(measured,)).learnt
    the = {PIXELS: "raw pixels", UNTRAINED: "the untrained encoder"}
    assert said.startswith(f"Not every row is above {the[measured]} beyond noise: warm (kNN) is below {the[measured]}")
    assert not any(name in said for reference, name in the.items() if reference != measured)


def test_of_one_seed_that_was_measured_nothing_can_be_told():
    table = _table({"cold": 180, "warm": 160})
    outcomes = {run: RunOutcome(problem="nan") for run in table.plan.runs}
    wanted = next(cell.wanted for cell in table.plan.cells if cell.column == "knn")
    outcomes |= {f"{row}-seed0": RunOutcome(1.0, {wanted: Found(0.9, "kNN", right(180))}) for row in ("cold", "warm")}
    keys = [protocol for protocol, _ in table.plan.protocols]
    made = tuple(Reference(PIXELS, each.key(PIXELS), 0, 0.3, right(60)) for each in keys)
    said = table_of_plan(table.plan, outcomes, References(made)).learnt
    assert said.startswith("With one seed it cannot be told")


def test_one_seed_or_no_reference_is_said_and_smoke_has_none():
    one = _table({"cold": 180, "warm": 160}, seeds=(0,))
    assert one.to_mapping()["learnt"].startswith("With one seed it cannot be told whether a row is above raw pixels")
    smoke = _table({"cold": 180, "warm": 160}, scale="smoke")
    assert (smoke.to_mapping()["learnt"], smoke.beside) == ("", ())
    plan = one.plan
    unmeasured = table_of_plan(plan, {run: RunOutcome(problem="the loss is nan") for run in plan.runs})
    assert unmeasured.to_mapping()["learnt"].startswith("Whether anything was learnt is not known")


def test_a_plot_has_every_number_its_references_and_the_published_ones():
    knn, ess = plots(_table({"cold": 180, "warm": 160}))
    traces = {each["name"]: (list(each["x"]), list(each["y"])) for each in knn.figure["data"]}
    assert traces["kNN"] == (pytest.approx([90.0, 80.0]), ["cold", "warm"])
    assert traces["kNN, published"] == ([50.0], ["cold"])
    lines = [(round(each["x0"], 9), each["y0"], each["y1"]) for each in knn.figure["layout"]["shapes"]]
    # raw pixels and the untrained encoder, at the place of each row
    assert lines == [(30.0, -0.5, 0.5), (30.0, 0.5, 1.5), (40.0, -0.5, 0.5), (40.0, 0.5, 1.5)]
    low, high = knn.figure["layout"]["xaxis"]["range"]
    assert 0 <= low < 30 < 90 < high <= 100
    assert [list(each["x"]) for each in ess.figure["data"]] == [[0.5, 0.5]]
    assert plots(_table({"cold": 180, "warm": 160}, scale="smoke")) == ()


def test_one_measure_at_several_epochs_of_a_run_is_a_curve():
    columns = {f"e{epoch}": {"title": f"epoch {epoch}", "measure": "knn", "epoch": epoch} for epoch in (1, 2, 3)}
    study = study_of(columns=columns, published={"cold": {"e3": 50.0}}, scales={"small": {"seeds": [0]}})
    plan = plan_study(study, "small", assignments=[*TINY, "training.epochs=3"])
    by_run = {run: {} for run in plan.runs}
    for place, cell in enumerate(plan.cells):
        by_run[cell.runs[0]][cell.wanted] = Found(place / 10, "")
    (curve,) = plots(table_of_plan(plan, {run: RunOutcome(1.0, numbers) for run, numbers in by_run.items()}))
    cold, printed, warm = curve.figure["data"]
    assert (list(cold["x"]), list(cold["y"])) == ([1, 2, 3], [0.0, 10.0, 20.0])
    assert (list(printed["x"]), list(printed["y"])) == ([3], [50.0])
    assert (list(warm["x"]), list(warm["y"])) == ([1, 2, 3], [30.0, 40.0, 50.0])


def test_a_plot_shows_negative_numbers_and_rows_whose_titles_are_numbers():
    titles = {"cold": "0.1", "warm": "0.5"}
    knn, ess = plots(_table({"cold": 180, "warm": 160}, titles=titles))
    assert list(knn.figure["data"][0]["y"]) == ["0.1", "0.5"]
    assert knn.figure["layout"]["yaxis"]["type"] == ess.figure["layout"]["yaxis"]["type"] == "category"
    table = _table({"cold": 180, "warm": 160})
    wanted = next(cell.wanted for cell in table.plan.cells if cell.column == "ess")
    numbers = {run: Found(-2.0 - place, "") for place, run in enumerate(table.plan.runs)}
    below = {run: RunOutcome(1.0, {wanted: found}) for run, found in numbers.items()}
    (drawn,) = plots(table_of_plan(table.plan, below))
    low, high = drawn.figure["layout"]["xaxis"]["range"]
    assert low < -7 < -2 < high


def test_plots_of_one_unit_have_different_titles():
    columns = {f"c{n}": {"title": f"column {n}", "measure": f"log/m{n}", "unit": "plain"} for n in range(19)}
    plan = plan_study(study_of(columns=columns, published={"cold": {"c0": 0.5}}), "small", seeds=[0])
    wanted = {cell.wanted for cell in plan.cells}
    outcomes = {run: RunOutcome(1.0, {each: Found(0.5, "") for each in wanted}) for run in plan.runs}
    titles = [each.title for each in plots(table_of_plan(plan, outcomes))]
    assert len(titles) > 1
    assert len({*titles}) == len(titles)
    assert titles[0].startswith("column 0, column 1 and ")

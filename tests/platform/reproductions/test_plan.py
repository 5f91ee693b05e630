"""From studies to runs: what lies over what, which cells share a run, what a plan costs."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from ebclab.config import compose
from ebclab.document.html import as_page
from ebclab.encoders.build import new_encoder
from ebclab.errors import ConfigError
from ebclab.reproductions import cost as cost_module
from ebclab.reproductions.cost import ARITHMETIC, GPU_FLOPS, MULTIPLICATIONS, PROBE_SECONDS, SECONDS_PER_RUN, estimate
from ebclab.reproductions.document import beside_the_paper, cost_in_words, table_document
from ebclab.reproductions.measure import RunOutcome
from ebclab.reproductions.plan import plan_study
from ebclab.reproductions.study import Scale, Study, load_study
from ebclab.reproductions.table import LEFT_OUT, table_of_plan

from .conftest import TINY, refused, study_mapping, study_of

ROOT = Path(__file__).parents[3]


def test_cells_with_the_same_settings_share_a_run(study: Study):
    plan = plan_study(study, "smoke")
    assert list(plan.runs) == ["cold-seed0", "warm-seed0"]
    assert [cell.column for cell in plan.cells_of("cold-seed0")] == ["knn", "ess"]
    columns = study_mapping()["columns"]
    columns["ess"] = columns["ess"] | {"set": ["method.projection_size=32"]}
    apart = plan_study(study_of(columns=columns), "smoke")
    assert list(apart.runs) == ["cold-seed0", "cold-ess-seed0", "warm-seed0", "warm-ess-seed0"]
    assert apart.runs["cold-ess-seed0"].method.projection_size == 32


def test_a_row_may_have_another_number_of_the_card_in_a_column():
    columns = study_mapping()["columns"] | {"ece": {"title": "ECE", "measure": "card/calibration/ece-20"}}
    rows = study_mapping()["rows"]
    rows["warm"] = rows["warm"] | {"columns": {"ece": {"measure": "card/calibration/ece-20-own"}}}
    plan = plan_study(study_of(columns=columns, rows=rows), "smoke")
    measures = {cell.row: cell.wanted.measure for cell in plan.cells if cell.column == "ece"}
    assert measures == {"cold": "card/calibration/ece-20", "warm": "card/calibration/ece-20-own"}
    assert list(plan.runs) == ["cold-seed0", "warm-seed0"]
    rows["warm"]["columns"] = {"knn": {"measure": "card/calibration/nll"}, "ece": {"measure": "card/calibratio/nll"}}
    assert [line.partition(",")[0] for line in refused(columns=columns, rows=rows)] == [
        "rows.warm.columns.knn.measure: replaces numbers of a card alone",
        "rows.warm.columns.ece.measure: no such group of the card",
    ]


def test_a_run_of_each_seed_differs_in_the_seed_alone(study: Study):
    one, other = (plan_study(study, "smoke", seeds=[3, 5]).runs[f"cold-seed{seed}"] for seed in (3, 5))
    assert (one.seed, other.seed) == (3, 5)
    assert (one.method, one.data, one.training) == (other.method, other.data, other.training)


def test_later_layers_lie_over_earlier_ones():
    # row < column < its cell < all studies at the scale < scale < its row < its column < the user
    columns = {"knn": {"title": "kNN", "measure": "knn", "set": ["training.epochs=3", "method.temperature=0.2"]}}
    rows = study_mapping()["rows"]
    cell = ["method.temperature=0.3", "optimizer.beta1=0.8"]
    rows["cold"] = rows["cold"] | {"columns": {"knn": {"set": cell}}}
    scales = {
        "smoke": {
            "set": ["training.epochs=4", "training.log_every=5"],
            "rows": {"cold": {"set": ["training.log_every=6", "optimizer.momentum=0.6"]}},
            "columns": {"knn": {"set": ["optimizer.momentum=0.7", "evaluation.knn_neighbours=7"]}},
        }
    }
    study = study_of(columns=columns, rows=rows, scales=scales)
    assert plan_study(study, "smoke").runs["warm-knn-seed0"].method.temperature == 0.2  # the column's
    config = plan_study(study, "smoke", assignments=["evaluation.knn_neighbours=8"]).runs["cold-knn-seed0"]
    assert config.method.temperature == 0.3  # the cell's, over the column's and the row's
    assert config.optimizer.beta1 == 0.8
    assert config.data.train_limit == 64  # what all studies have at this scale
    assert config.training.epochs == 4  # the scale's, over the column's and that of all studies
    assert config.training.log_every == 6  # the scale's row, over the scale
    assert config.optimizer.momentum == 0.7  # the scale's column, over its row
    assert config.evaluation.knn_neighbours == 8  # the user's


def test_a_scale_or_a_column_that_is_left_out_has_no_runs_and_says_why(study: Study):
    plan = plan_study(study, "paper")
    assert not plan.runs
    assert {cell.not_run for cell in plan.cells} == {"nobody has the images"}
    assert estimate(plan).in_words() == "none"


def test_wrong_settings_of_all_runs_are_said_at_once_with_file_scale_and_run():
    rows = study_mapping()["rows"]
    rows["cold"] = rows["cold"] | {"method": "simclrr"}
    rows["warm"] = rows["warm"] | {"set": ["method.temprature=1"]}
    with pytest.raises(ConfigError) as caught:
        plan_study(study_of(rows=rows), "smoke")
    first, second = caught.value.problems
    assert first.startswith("some/table9, smoke, cold: method.name: no such method, got 'simclrr'; did you")
    assert "warm: method.temprature: no such setting; did you mean method.temperature?" in second


@pytest.mark.parametrize(
    ("scale", "settings", "run", "device"),
    [
        # 10,000 images x 2 epochs at 1,050 images a second, a tenth held out; probes on 60,000 images, also with raw
        # pixels and with the untrained encoder
        (
            "small",
            ["data.name=fashion-mnist", "training.epochs=2", "data.holdout_rate=0.1"],
            10_000 * 0.9 * 2 / 1_050 + 2 * 60_000 * PROBE_SECONDS,
            "two cores",
        ),
        # an epoch of CIFAR-10 by SimCLR: 50,000 images x 2 views x 3 passes x 2 operations a multiplication
        (
            "paper",
            ["data.name=cifar10", "data.holdout_rate=0", "encoder.name=resnet18", "training.epochs=1"],
            50_000 * 2 * 3 * 2 * MULTIPLICATIONS["resnet18"] / GPU_FLOPS,
            "GPU",
        ),
    ],
)
def test_two_runs_cost_their_images_or_their_operations(scale, settings, run, device):
    cost = estimate(plan_study(study_of(scales={scale: {"set": settings}}), scale))
    assert (cost.seconds, cost.device) == (pytest.approx(2 * (run + SECONDS_PER_RUN)), device)


def test_an_efficiency_costs_a_probe_of_the_other_row_after_each_epoch():
    columns = {"knn": {"title": "kNN", "measure": "knn"}}
    rows = study_mapping()["rows"]
    rows["cold"] = rows["cold"] | {"only": ["knn"]}
    scales = {"small": {"set": ["data.name=fashion-mnist", "training.epochs=4"]}}
    without = estimate(plan_study(study_of(columns=columns, rows=rows, scales=scales), "small"))
    columns["share"] = {"title": "efficiency", "measure": "efficiency/cold/knn", "unit": "plain"}
    cost = estimate(plan_study(study_of(columns=columns, rows=rows, scales=scales), "small"))
    assert cost.seconds - without.seconds == pytest.approx(3 * 60_000 * PROBE_SECONDS)  # the fourth is measured anyway


@pytest.mark.parametrize(
    ("scale", "given"),
    [
        ("paper", "encoder.name=small"),
        ("paper", "encoder.stem=imagenet"),
        ("paper", "encoder.width=8"),
        ("paper", "data.name=folder:mine"),
        ("small", "encoder.name=resnet50"),  # two cores were timed with the small encoder of usual width alone
        ("small", "encoder={name: small, width: 64}"),
    ],
)
def test_what_was_never_counted_has_no_estimate(scale: Scale, given: str):
    """An encoder that no study has ended in a KeyError after the training; images of the user's cost nothing."""
    scales = {scale: {"set": ["data.name=cifar10", "encoder.name=resnet18", "training.epochs=1"]}}
    own = [given, "views.recipe=flatclr-cifar"]
    plan = plan_study(study_of(scales=scales), scale, assignments=own)
    table = table_of_plan(plan, {name: RunOutcome(problem="none") for name in plan.runs})
    assert (table.expected.seconds, table.expected.in_words()) == (None, "no estimate")
    assert cost_in_words(table) == f"{len(plan.runs)} runs, 0:00 of training; no estimate"
    alone = replace(table, plan=replace(plan, runs=dict([*plan.runs.items()][:1]), cells=()))
    assert cost_in_words(alone) == "1 run, 0:00 of training; no estimate"
    assert "How that was estimated" not in as_page(table_document(table))


@pytest.mark.slow
@pytest.mark.parametrize("name", MULTIPLICATIONS)
def test_the_multiplications_of_an_encoder_are_those_that_torch_counts(name: str):
    with torch.device("meta"):
        config = compose("simclr", overrides=["data.name=cifar10", f"encoder.name={name}"]).encoder
        encoder = new_encoder(config, 3)
        with FlopCounterMode(display=False) as counter:
            encoder(torch.empty(1, 3, 32, 32))
    assert counter.get_total_flops() / 2 == pytest.approx(MULTIPLICATIONS[name], rel=0.03)


def test_the_arithmetic_of_methods_is_that_of_the_measured_table():
    text = (ROOT / "benchmarks" / "results" / "steps.md").read_text(encoding="utf-8")
    counted = {
        name: float(times) for name, times in re.findall(r"^\| ([\w-]+) \| \d+ \| ([\d.]+)x", text, re.MULTILINE)
    }
    assert len(counted) > 10
    assert {name: ARITHMETIC.get(name, 1.0) for name in counted} == counted
    assert cost_module.SHARED_KEYS * counted["vem-langevin"] == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("scale", "own", "repeats", "given", "seeds", "seeds_from"),
    [
        ("paper", None, 3, (), (0, 1, 2), "as in the paper"),
        ("paper", None, 0, (), (0,), "the paper does not say how often"),
        ("paper", [4, 5], 3, (), (4, 5), "the study's at this scale"),
        ("paper", [4, 5], 3, [1], (1,), "--seeds"),
        ("small", [4, 5], 3, (), (4, 5), "the study's at this scale"),
        ("smoke", None, 3, (), (0,), "one, as at every scale where the study names none"),
    ],
)
def test_runs_are_repeated_as_often_as_in_the_paper_unless_told(scale, own, repeats, given, seeds, seeds_from):
    about, scales = study_mapping()["about"] | {"repeats": repeats}, {"smoke": {"set": TINY}, "small": {}, "paper": {}}
    scales[scale] |= {} if own is None else {"seeds": own}
    study = study_of(about=about, scales=scales)
    plan = plan_study(study, scale, seeds=given)
    assert (plan.seeds, plan.seeds_from) == (seeds, seeds_from)
    assert {run.seed for run in plan.runs.values()} == set(seeds)


@pytest.mark.parametrize(
    ("assignment", "said"),
    [
        ("seed=7", "--set seed: every run has its own seed, got 7; use --seeds"),
        (
            "method.temprature=1",
            "some/table9, smoke, cold and 1 more: method.temprature: no such setting; did you mean",
        ),
    ],
)
def test_a_mistake_that_all_runs_share_is_said_once(study: Study, assignment: str, said: str):
    with pytest.raises(ConfigError) as caught:
        plan_study(study, "smoke", assignments=[assignment])
    (line,) = caught.value.problems
    assert line.startswith(said)


def test_a_data_root_is_a_path_whatever_it_looks_like(study: Study):
    assert str(plan_study(study, "smoke", data_root="null").runs["cold-seed0"].data.root).endswith("/null")


TABLE = load_study("ebclr/table1")


@pytest.mark.parametrize(
    ("rows", "datasets", "cells"),
    [
        (["ebclr", "simclr"], ["mnist"], "ebclr/mnist simclr/mnist simclr/mnist-efficiency"),
        (["simclr"], ["mnist", "cifar10"], "simclr/mnist simclr/cifar10"),  # an efficiency needs EBCLR's run
        (["moco-per-image"], [], "moco-per-image/mnist moco-per-image/fashion-mnist moco-per-image/cifar10"),
    ],
)
def test_rows_and_datasets_leave_runs_as_they_are_in_the_whole(rows: list[str], datasets: list[str], cells: str):
    whole = plan_study(TABLE, "small", seeds=[0])
    part = plan_study(TABLE, "small", seeds=[0], rows=rows, datasets=datasets)
    run = [f"{cell.row}/{cell.column}" for cell in part.cells if cell.runs]
    assert run == cells.split()
    names = {f"{row}-{column.removesuffix('-efficiency')}-seed0" for row, _, column in (c.partition("/") for c in run)}
    assert part.runs == {name: config for name, config in whole.runs.items() if name in names}
    table = table_of_plan(part, {name: RunOutcome(problem="lost") for name in part.runs})
    assert {part.why for claim in table.claims for part in claim.parts} - {"lost"} == {LEFT_OUT}
    heads = [head.above for head in beside_the_paper(table).heads[1:]]
    columns = dict.fromkeys(f"{TABLE.columns[cell.column].title}" for cell in part.cells)
    assert [head.removesuffix(", %") for head in dict.fromkeys(heads)] == list(columns)


def test_a_number_on_other_images_than_its_run_needs_both():
    study = load_study("ebclr/table2")
    both = plan_study(study, "small", seeds=[0], datasets=["mnist", "fashion-mnist"])
    assert (len(both.runs), both.datasets) == (20, ["mnist", "fashion-mnist"])
    with pytest.raises(ConfigError, match="--rows, --datasets: nothing of ebclr/table2 at scale small is run with"):
        plan_study(study, "small", datasets=["mnist"])


@pytest.mark.parametrize(
    ("rows", "datasets", "said"),
    [
        (["simclrr"], [], ["--rows: not in ebclr/table1 at scale small, got simclrr; did you mean simclr?"]),
        (
            ["bylo"],
            ["cifar100"],  # not at this scale
            [
                "--rows: not in ebclr/table1 at scale small, got bylo; did you mean byol?",
                "--datasets: not in ebclr/table1 at scale small, got cifar100; did you mean cifar10?",
            ],
        ),
    ],
)
def test_unknown_rows_and_datasets_are_refused_at_once(rows: list[str], datasets: list[str], said: list[str]):
    with pytest.raises(ConfigError) as caught:
        plan_study(TABLE, "small", rows=rows, datasets=datasets)
    assert [line.partition(" Known")[0] for line in caught.value.problems] == said

"""The studies that are shipped: every run has valid settings at every scale, and their numbers are the papers'."""

from dataclasses import replace
from functools import cache

import pytest

from ebclab.config import compose
from ebclab.config.names import is_folder_name
from ebclab.errors import UserError
from ebclab.reproductions.answers import StudyNumbers
from ebclab.reproductions.cost import estimate
from ebclab.reproductions.plan import plan_study
from ebclab.reproductions.request import SCALES
from ebclab.reproductions.study import PublishedNumber, list_studies, load_study, paper_of, without_study

from .printed import PRINTED

STUDIES = list_studies()
study_named = cache(load_study)


def test_studies_stand_in_the_order_of_their_numbers():
    assert [name for name in STUDIES if name.startswith("vem/table")] == [
        f"vem/table{number}" for number in (1, 2, "3a", "3b", 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14)
    ]
    assert STUDIES.index("ebclr/figure1") < STUDIES.index("ebclr/table1") < STUDIES.index("ebclr/appendix-e1")
    assert STUDIES.index("flatnce/figure6") < STUDIES.index("flatnce/figure-s1")


@pytest.mark.parametrize("name", STUDIES)
def test_every_run_of_a_study_has_valid_settings_at_every_scale(name: str):
    study = study_named(name)
    assert paper_of(study).differs, "no facts about the paper"
    assert paper_of(study).cite
    for scale in SCALES:
        plan = plan_study(study, scale, seeds=[0])
        assert [(cell.row, cell.column) for cell in plan.cells] == [
            (row, column) for row, columns in study.columns_of.items() for column in columns
        ]
        assert all(cell.not_run or cell.runs for cell in plan.cells)
        assert all(is_folder_name(run) for run in plan.runs)
        assert len(set(plan.runs.values())) == len(plan.runs), "two runs with the same settings"
        for run in plan.runs.values():
            assert run.encoder.name != "wrn28" or run.encoder.initialisation == "torch", "not JEM's network"
        if scale != "paper":
            assert plan.runs, f"nothing is run at scale {scale}"
            assert {run.encoder.name for run in plan.runs.values()} == {"small"}
        if scale == "smoke":
            assert plan.datasets == ["digits"]
            assert estimate(plan).seconds < 70
        if scale == "quick":
            assert plan.seeds == (0,)
            assert {run.data.train_limit for run in plan.runs.values()} == {2000}
            assert estimate(plan).seconds < 60 * 60
        if scale == "small":
            assert set(plan.datasets) <= {"mnist", "fashion-mnist", "cifar10"}
            assert estimate(plan).seconds < 24 * 3600


def _by(row: str, *columns: str) -> list[tuple[str, str]]:
    return [(row, column) for column in columns]


_EBCLR = {"SimSiam": "simsiam", "BYOL": "byol", "SimCLR": "simclr", "MoCo v2": "moco", "EBCLR": "ebclr"}
_VEM = {"MoCo": "moco", "SimCLR": "simclr", "VEM-Langevin": "langevin", "VEM-SVGD": "svgd"}
_FLAT = {"SimCLR": "simclr", "FlatCLR": "flatclr"}
_SETS, _BATCHES = ("mnist", "fashion-mnist", "cifar10", "cifar100"), (16, 64, 128)
_DIRECTIONS = ("mnist-to-fashion", "fashion-to-mnist", "cifar10-to-100", "cifar100-to-10")
_NETS = {"ResNet18": "resnet18", "ResNet50": "resnet50", "PyramidNet": "pyramidnet"}
_FIVE = ("cifar10", "cifar100", "cifar100-top5", "tiny", "tiny-top5")
_EPOCHS = range(10, 101, 10)
_TARGETS = ("cifar10", "cifar100", "voc2007", "flowers", "caltech", "sun397")
_WITHOUT_CALTECH = [name for name in _TARGETS if name != "caltech"]


def _rows(names: dict[str, str], *columns: str) -> dict[str, list[tuple[str, str]]]:
    return {label: _by(row, *columns) for label, row in names.items()}


def _in_parts(parts: dict[str, str], names: dict[str, str], *columns: str) -> dict[str, list[tuple[str, str]]]:
    """Return the cells of a table with a row for each part and method; columns have a place for the part."""
    return {
        f"{part} {label}": _by(row, *(column.format(key) for column in columns))
        for part, key in parts.items()
        for label, row in names.items()
    }


_BATCHED = [f"{name}-{batch}" for name in _SETS for batch in _BATCHES]
CELLS: dict[str, dict[str, list[tuple[str, str]]]] = {
    "ebclr/table1": {
        label: _by(row, *(key for name in _SETS for key in (name, f"{name}-efficiency")))
        for label, row in _EBCLR.items()
        if row != "ebclr"
    }
    | {"EBCLR": _by("ebclr", *_SETS)},
    "ebclr/table2": _rows(_EBCLR, *_DIRECTIONS),
    "ebclr/table3": _rows({"SimCLR": "simclr", "EBCLR": "ebclr"}, *_BATCHED)
    | {"Rel. Eff.": _by("simclr", *(f"{name}-efficiency" for name in _BATCHED))},
    "vem/table1": _rows(_VEM, *_FIVE),
    "vem/table2": _in_parts(_NETS, _VEM, *(f"{{}}-{name}" for name in _FIVE)),
    "vem/table3a": _in_parts({"CIFAR10": "c10", "CIFAR100": "c100", "ImageNet200": "tiny"}, _VEM, "{}-4", "{}-8"),
    "vem/table3b": _in_parts(_NETS, _VEM, "{}-100-to-10", "{}-10-to-100"),
    "vem/table4": _in_parts(
        {"CIFAR10": "c10", "CIFAR100": "c100"},
        {"SimCLR": "simclr", "VEM-Langevin": "langevin"},
        *(f"{net}-{{}}-{error}" for net in _NETS.values() for error in ("ece", "mce")),
    ),
    "vem/table5": {"AUROC": [(row, "auroc") for row in ("simclr", "moco", "jem", "langevin", "svgd")]},
    "vem/table6": _rows(
        {"SimCLR(Baseline)": "simclr", "VEM-Feature": "feature", "VEM-Image": "image"}, "linear", "hours"
    ),
    "vem/table7": _rows({"JEM": "jem", "VEM-Langevin": "langevin"}, "c10-ece", "c10-mce", "c100-ece", "c100-mce"),
    "vem/table8": {"Time": [(row, "epoch") for row in ("image", "langevin", "svgd", "simclr", "moco")]},
    "vem/table9": _in_parts({"ResNet18": "resnet18", "ResNet50": "resnet50"}, _VEM, "{}", "{}-top5"),
    "vem/table10": _rows(_VEM, "e400", "e1000"),
    "vem/table11": _rows(_VEM, "b128", "b256", "b512"),
    "vem/table12": _rows(
        {"VEM-Langevin": "langevin", "VEM-SVGD": "svgd"}, *(f"m{size}" for size in (1024, 2048, 4096, 8192, 16384))
    ),
    "vem/table13": _rows(_VEM, "d64", "d128", "d256"),
    "vem/table14": {
        name: [(f"s{first + place}", "linear") for place in range(4)] for name, first in (("SGLD", 1), ("SVGD", 5))
    },
    "flatnce/table2": _rows(_FLAT, *(f"e{epoch}" for epoch in _EPOCHS)),
    "flatnce/table3": _rows(_FLAT, *_TARGETS),
    "flatnce/table-s2": {f"{label} linear": _by(row, *_WITHOUT_CALTECH) for label, row in _FLAT.items()}
    | {
        f"{label} fine-tuned": _by(row, *(f"{name}-tuned" for name in _WITHOUT_CALTECH)) for label, row in _FLAT.items()
    },
    "flatnce/table-s3": {
        f"{label} top {top}": _by(row, *(f"t{top}-{epoch}" for epoch in _EPOCHS))
        for label, row in _FLAT.items()
        for top in (1, 5)
    },
    "flatnce/table-s4": _rows(_FLAT, "p1", "p1-top5", "p10", "p10-top5")
    | {"Supervised": _by("simclr", "p1-scratch", "p1-scratch-top5", "p10-scratch", "p10-scratch-top5")},
    "flatnce/figure5": _rows(_FLAT, "start", "end"),
    "eb-jepa/cifar10": {
        label: [(row, "linear") for row in rows]
        for label, rows in {
            "Best Accuracy": ("sigreg", "vicreg"),
            "SIGReg": ("sigreg-10", "sigreg-1", "sigreg-100", "sigreg-0.1"),
            "VICReg": ("vicreg-1-10", "vicreg-10-10", "vicreg-100-100"),
        }.items()
    },
    "speedrun/cifar10-90": {"ResNet18": _by("simclr", "seconds", "knn")},
}
"""The cells of each printed row, in the order of print."""


def _as_printed(text: str) -> PublishedNumber:
    value, _, spread = text.partition("±")
    return PublishedNumber(None if value == "~" else float(value), float(spread) if spread else None)


@pytest.mark.parametrize("name", PRINTED)
def test_a_study_has_every_number_that_its_table_prints_and_no_other(name: str):
    printed = {
        cell: _as_printed(text)
        for label, numbers in PRINTED[name].items()
        for cell, text in zip(CELLS[name][label], numbers.split(), strict=True)
    }
    study = study_named(name)
    given = {(row, column): number for row, cells in study.published.items() for column, number in cells.items()}
    assert given == printed
    has_spread = any(number.spread is not None for number in printed.values())
    assert (study.about.repeats >= 2) == has_spread


def test_studies_of_drawn_figures_have_no_numbers():
    drawn = [name for name in STUDIES if name not in PRINTED]
    assert drawn
    for name in drawn:
        study = study_named(name)
        assert not study.published
        assert study.claims, name


def test_what_the_papers_print_contradicts_two_of_their_claims():
    refuted = {
        (name, claim.says, part.compares)
        for name in STUDIES
        for claim in StudyNumbers(study_named(name), {}, {}).answers
        if claim.in_print == "does not hold"
        for part in claim.parts
        if part.in_print is False
    }
    assert refuted == {
        ("ebclr/table1", "EBCLR is above every baseline on every dataset.", "MNIST, EBCLR - BYOL"),  # both 99.3
        ("vem/table1", "VEM-SVGD is slightly above VEM-Langevin.", "CIFAR-10, VEM-SVGD - VEM-Langevin"),
    }


@pytest.mark.parametrize(
    ("name", "images"),
    [
        ("vem/table9", {"imagenet100": "/i"}),
        ("vem/table1", {"tiny-imagenet": "/t"}),
        ("vem/table3a", {"tiny-imagenet": "/t"}),
        *(
            (f"flatnce/{table}", {"imagenet": "/i"})
            for table in ("table2", "table3", "table-s2", "table-s3", "table-s4")
        ),
    ],
)
def test_images_of_ones_own_make_the_columns_that_need_them_run(name: str, images: dict[str, str]):
    study = study_named(name)
    ((kind, path),) = images.items()
    without, given = (plan_study(study, "paper", seeds=[0], images=found) for found in ({}, images))
    assert f"--images {kind}=PATH" in " ".join(without.left_out.values())
    assert len(given.runs) > len(without.runs)
    assert f"{kind}:{path}" in given.datasets
    assert f"--images {kind}" not in " ".join(given.left_out.values())


def test_the_papers_scale_has_the_papers_settings():
    ebclr = plan_study(study_named("ebclr/table1"), "paper").runs
    config = ebclr["ebclr-fashion-mnist-seed0"]
    assert (config.method.reinit_rate, config.training.epochs, config.training.batch_size) == (0.6, 100, 128)
    assert (config.encoder.name, config.views.recipe, config.views.shared_by) == ("resnet18", "ebclr-mnist", "chunk")
    assert ebclr["simclr-cifar10-seed0"].training.batch_size == 256
    batched = plan_study(study_named("ebclr/table3"), "paper").runs
    for batch, rate in ((16, 1e-4), (64, 1e-4), (128, 2e-4)):
        for data in ("cifar10", "cifar100"):
            config = batched[f"ebclr-{data}-{batch}-seed0"]
            assert (config.training.batch_size, config.optimizer.learning_rate) == (batch, rate)
    vem = plan_study(study_named("vem/table1"), "paper").runs["langevin-cifar100-seed0"]
    assert (vem.method.bank_size, vem.method.temperature, vem.method.bank_temperature) == (4096, 0.12, 0.02)
    assert (vem.training.epochs, vem.training.batch_size, vem.optimizer.weight_decay) == (1000, 256, 1e-4)
    assert (vem.encoder.name, vem.evaluation.linear_protocol, vem.data.holdout_rate) == ("resnet50", "vem-sgd", 0.0)
    banks = plan_study(study_named("vem/table6"), "paper").runs
    sizes = {
        name: (run.method.bank_size, run.training.batch_size) for name, run in banks.items() if "simclr" not in name
    }
    assert sorted(sizes.values()) == [(128, 128), (3072, 128)]
    figure = plan_study(study_named("flatnce/figure-s2"), "paper").runs.values()
    rates = [run.optimizer.learning_rate * run.training.batch_size / 256 for run in figure]
    assert rates == pytest.approx([1e-3, 2e-3, 4e-3])
    assert {(run.method_name, run.encoder.name) for run in figure} == {("flatclr", "resnet50")}
    assert {run.method.projection_size for run in figure} == {256}


def test_the_weights_of_eb_jepa_are_its_own_in_the_terms_of_the_losses_here():
    """Its losses: mean squared difference + weight * statistic, or + std * both variances + cov * both covariances."""
    plan = plan_study(study_named("eb-jepa/cifar10"), "paper")
    runs = {row: next(run for name, run in plan.runs.items() if name == f"{row}-seed0") for row in plan.study.rows}
    for row, weight in {"sigreg": 10, "sigreg-0.1": 0.1, "sigreg-1": 1, "sigreg-10": 10, "sigreg-100": 100}.items():
        ours, optimizer = runs[row].method.regularizer_weight, runs[row].optimizer
        factor = (1 - ours) / 4  # the mean squared distance of two views from their mean is a quarter of its own
        assert ours * 256 / factor == pytest.approx(weight, rel=1e-6)  # the statistic is 256 times its own
        assert optimizer.learning_rate * factor == pytest.approx(0.3, rel=1e-6)
        assert optimizer.learning_rate * optimizer.weight_decay == pytest.approx(0.3e-4, rel=1e-6)
    for row, spread, shared in (("vicreg", 1, 100), ("vicreg-1-10", 1, 10), ("vicreg-10-10", 10, 10)):
        ours = runs[row].method
        assert (ours.invariance, ours.variance / 2) == (1, spread)  # the mean of both views, there their sum
        assert ours.covariance * (ours.projection_size - 1) == pytest.approx(shared, rel=1e-6)


@pytest.mark.parametrize(
    ("name", "run", "method", "recipe", "images"),
    [
        ("vem/table1", "svgd-cifar100-seed0", "vem-svgd", "vem-paper", ""),
        ("vem/table9", "moco-resnet50-seed0", "moco", "vem-paper", "imagenet100"),
        *(
            (f"flatnce/{table}", "flatclr", "flatclr", "flatclr-imagenet", "imagenet")
            for table in ("table2", "table3", "table-s2", "table-s3", "table-s4")
        ),
    ],
)
def test_a_study_trains_as_the_recipe_of_its_paper_does(name: str, run: str, method: str, recipe: str, images: str):
    runs = plan_study(study_named(name), "paper", seeds=[0], images={images: "/i"} if images else {}).runs
    study = next(config for key, config in runs.items() if key.startswith(run))
    ours = compose(method, recipe, overrides=[f"data.name={images}:/i"] if images else [])
    assert (study.method, study.optimizer, study.encoder) == (ours.method, ours.optimizer, ours.encoder)
    assert (study.views, study.data) == (ours.views, ours.data)
    of_training = replace(study.training, keep_every=ours.training.keep_every)  # studies keep what they measure
    assert of_training == ours.training


def test_what_varies_at_the_papers_scale_varies_at_the_others_too():
    for name, setting in (
        ("vem/table12", "bank_size"),
        ("vem/table14", "num_steps"),
        ("vem/table13", "projection_size"),
    ):
        for scale in SCALES:
            runs = plan_study(study_named(name), scale, seeds=[0]).runs
            ours = [
                getattr(run.method, setting) for key, run in runs.items() if key.startswith(("langevin", "s1", "s3"))
            ]
            assert len(set(ours)) == len(ours) > 1, (name, scale)


def test_a_table_that_is_without_study_says_why_and_where_to_look():
    reasons = without_study()
    assert set(reasons).isdisjoint(STUDIES)
    for name, reason in reasons.items():
        with pytest.raises(UserError) as caught:
            load_study(name)
        assert str(caught.value) == f"{name}: no study, since {reason}"
        assert len(reason) > 20


def test_a_name_that_leaves_the_folder_of_studies_is_no_study():
    with pytest.raises(UserError, match="no such study"):
        load_study("../common")

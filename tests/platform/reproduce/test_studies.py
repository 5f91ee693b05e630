"""The studies that are shipped: every run has valid settings at every scale, and their numbers are the papers'."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from ebclab.config import compose
from ebclab.config.names import is_folder_name
from ebclab.errors import UserError
from ebclab.reproduce.catalog import list_studies, load_study, without_study, paper_of
from ebclab.reproduce.cost import estimate
from ebclab.reproduce.plan import plan_study
from ebclab.reproduce.study import SCALES

STUDIES = list_studies()


def test_studies_stand_in_the_order_of_their_numbers():
    assert [name for name in STUDIES if name.startswith("vem/table")] == [
        f"vem/table{number}" for number in (1, 6, 12, 13, 14)
    ]
    assert STUDIES.index("ebclr/figure1") < STUDIES.index("ebclr/table1") < STUDIES.index("ebclr/ablation-lambda")


@pytest.mark.parametrize("name", STUDIES)
def test_every_run_of_a_study_has_valid_settings_at_every_scale(name: str):
    study = load_study(name)
    assert paper_of(study).differs, "no facts about the paper"
    for scale in SCALES:
        plan = plan_study(study, scale, seeds=[0])
        assert len(plan.cells) == len(study.rows) * len(study.columns)
        assert all(cell.not_run or cell.runs for cell in plan.cells)
        assert all(is_folder_name(run) for run in plan.runs)
        assert len({run.config for run in plan.runs.values()}) == len(plan.runs), "two runs with the same settings"
        if scale != "paper":
            assert plan.runs, f"nothing is run at scale {scale}"
            assert {run.config.encoder.name for run in plan.runs.values()} == {"small"}
        if scale == "smoke":
            assert plan.datasets == ["digits"]
            assert estimate(plan).seconds < 60
        if scale == "small":
            assert set(plan.datasets) <= {"mnist", "fashion-mnist", "cifar10"}
            assert estimate(plan).seconds < 24 * 3600


# Read in the papers; None where a paper's number is not known. Not made from the files that they check.
PRINTED = [
    ("ebclr/table1", "ebclr", "mnist", 99.3),
    ("ebclr/table1", "ebclr", "fashion-mnist", 90.1),
    ("ebclr/table1", "ebclr", "cifar10", 77.3),
    ("ebclr/table1", "ebclr", "cifar100", 49.1),
    ("ebclr/table1", "ebclr-per-image", "cifar10", 77.3),
    ("ebclr/table1", "simclr", "cifar10", 68.0),
    ("ebclr/table1", "simclr", "cifar100", 43.1),
    ("ebclr/table1", "moco", "cifar10", 64.0),
    ("ebclr/table1", "byol", "cifar10", 70.9),
    ("ebclr/table1", "simsiam-per-image", "cifar10", 70.4),
    ("ebclr/table2", "ebclr", "mnist-to-fashion", 87.4),
    ("ebclr/table2", "ebclr", "fashion-to-mnist", 98.5),
    ("ebclr/table2", "ebclr", "cifar10-to-100", 46.9),
    ("ebclr/table2", "ebclr", "cifar100-to-10", 72.4),
    ("ebclr/table2", "byol", "mnist-to-fashion", None),
    ("ebclr/table3", "ebclr", "cifar10-16", 77.6),
    ("ebclr/table3", "ebclr", "cifar100-128", 49.1),
    ("ebclr/table3", "simclr", "cifar10-16", 65.2),
    ("ebclr/table3", "simclr", "cifar10-128", 69.0),
    ("ebclr/figure1", "simclr", "epoch-10", 49.5),
    ("ebclr/figure1", "ebclr-16", "epoch-100", 77.4),
    ("ebclr/ablation-lambda", "tenth", "linear", None),
    ("vem/table1", "langevin", "cifar10-resnet18", 91.63),
    ("vem/table1", "svgd", "cifar100-resnet50", 72.79),
    ("vem/table1", "simclr", "cifar100-resnet50", 69.94),
    ("vem/table1", "moco", "cifar100-resnet18", 65.00),
    ("vem/table6", "simclr", "linear", 65.14),
    ("vem/table12", "langevin", "m4096", 72.60),
    ("vem/table12", "svgd", "m16384", 72.54),
    ("vem/table13", "simclr", "b128", 67.14),
    ("vem/table13", "langevin", "b512", 73.02),
    ("vem/table14", "constant", "linear", 72.14),
    ("vem/time", "image", "epoch", 1230),
    ("vem/image-space", "image", "linear", 66.88),
    ("vem/calibration", "svgd", "mce", 0.172),
    ("vem/transfer-resnet50", "langevin", "cifar100-to-10", 86.22),
    ("flatnce/figure2", "flatclr", "b16", None),
    ("flatnce/table2", "simclr", "e100", 54.62),
    ("flatnce/table2", "flatclr", "e10", 39.70),
    ("flatnce/table-s3", "flatclr", "e100", 59.74),
    ("flatnce/ess", "flatclr", "ess", 0.35),
    ("flatnce/few-labels", "flatclr", "p1", 36.35),
    ("flatnce/transfer", "flatclr", "sun397", 51.31),
]


@pytest.mark.parametrize(("name", "row", "column", "printed"), PRINTED)
def test_published_numbers_are_those_of_the_paper(name: str, row: str, column: str, printed: float | None):
    assert load_study(name).published_number(row, column) == printed


def test_the_papers_scale_has_the_papers_settings():
    ebclr = plan_study(load_study("ebclr/table1"), "paper").runs
    config = ebclr["ebclr-fashion-mnist-seed0"].config
    assert (config.method.reinit_rate, config.training.epochs, config.training.batch_size) == (0.6, 100, 128)
    assert (config.encoder.name, config.views.recipe, config.views.shared_by) == ("resnet18", "ebclr-mnist", "chunk")
    assert ebclr["simclr-cifar10-seed0"].config.training.batch_size == 256
    for batch, rate in ((16, 1e-4), (64, 1e-4), (128, 2e-4)):
        for data in ("cifar10", "cifar100"):
            config = plan_study(load_study("ebclr/table3"), "paper").runs[f"ebclr-{data}-{batch}-seed0"].config
            assert (config.training.batch_size, config.optimizer.learning_rate) == (batch, rate)
    vem = plan_study(load_study("vem/table1"), "paper").runs["langevin-cifar100-resnet50-seed0"].config
    assert (vem.method.bank_size, vem.method.temperature, vem.method.bank_temperature) == (4096, 0.12, 0.02)
    assert (vem.training.epochs, vem.training.batch_size, vem.optimizer.weight_decay) == (1000, 256, 1e-4)
    assert (vem.encoder.name, vem.evaluation.linear_protocol, vem.data.holdout_rate) == ("resnet50", "vem-sgd", 0.0)
    rates = [
        run.config.optimizer.learning_rate * run.config.training.batch_size / 256
        for name, run in plan_study(load_study("flatnce/figure-s2"), "paper").runs.items()
        if name.startswith("flatclr")
    ]
    assert rates == pytest.approx([1e-3, 2e-3, 4e-3])


def test_what_varies_at_the_papers_scale_varies_at_the_others_too():
    for name, setting in (
        ("vem/table12", "bank_size"),
        ("vem/steps", "num_steps"),
        ("vem/dimension", "projection_size"),
    ):
        for scale in SCALES:
            runs = plan_study(load_study(name), scale, seeds=[0]).runs
            ours = [getattr(run.config.method, setting) for key, run in runs.items() if key.startswith("langevin")]
            assert len(set(ours)) == len(ours) > 1, (name, scale)


def test_a_table_that_is_without_study_says_why_and_where_to_look():
    reasons = without_study()
    assert set(reasons).isdisjoint(STUDIES)
    for name, reason in reasons.items():
        with pytest.raises(UserError) as caught:
            load_study(name)
        assert str(caught.value) == f"{name}: no study, since {reason}"
        assert "not recorded here" in reason


def test_an_unknown_study_gets_the_nearest():
    with pytest.raises(UserError, match=r"no such study, got 'eblcr/table1'; did you mean ebclr/table1\?"):
        load_study("eblcr/table1")
    with pytest.raises(UserError, match="no such study"):
        load_study("../common")


def test_the_page_of_the_docs_lists_every_study_once():
    text = (Path(__file__).parents[3] / "docs" / "reproduce.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| `([\w/-]+)` \|", text.partition("## Studies")[2], re.MULTILINE)
    assert sorted(listed) == sorted(STUDIES)


@pytest.mark.parametrize("name", ["flatnce/table2", "flatnce/table-s3"])
def test_the_command_for_images_of_ones_own_has_settings_that_exist(name: str):
    text = load_study(name).scales["paper"].not_run
    (command,) = re.findall(r"`ebclab pretrain METHOD (.*?)`", text)
    words = shlex.split(command.replace("folder:PATH", "folder:/images"))
    options = dict(zip(words[::2], words[1::2], strict=True))
    assert options["--dataset"] == "folder:/images"
    sets = [value for option, value in zip(words[::2], words[1::2], strict=True) if option == "--set"]
    config = compose("flatclr", options["--recipe"], overrides=["data.name=folder:/images", *sets])
    assert (config.encoder.name, config.encoder.stem, config.views.image_size) == ("resnet50", "imagenet", 224)
    rate = config.optimizer.learning_rate * config.training.batch_size / 256
    assert (config.optimizer.name, rate, config.optimizer.warmup_epochs) == ("lars", pytest.approx(0.6), 10)

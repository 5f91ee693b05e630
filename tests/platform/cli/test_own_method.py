"""A method of the user's own on the command line: trained, exported without its code, refused when its file changed."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from made_up_method import HARDEST

from ebclab.cli.app import parser
from ebclab.cli.submit import named_code, parsed
from ebclab.comparisons.plan import ComparisonFolder, make_comparison
from ebclab.comparisons.request import ComparisonRequest
from ebclab.config import compose
from ebclab.submission import stage_code, with_sent_files
from ebclab.sweeps.plan import make_plan
from ebclab.sweeps.request import SweepRequest

from .conftest import TINY, Ebclab

NAME = "own_code.hardest:Hardest"


def _forget() -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "own_code"]:
        del sys.modules[name]


@pytest.fixture
def code(ebclab: Ebclab, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The file of the method, in a package of the current folder."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    file = Path("own_code/hardest.py").absolute()
    file.parent.mkdir()
    (file.parent / "__init__.py").touch()
    file.write_text(HARDEST)
    yield file
    _forget()


def test_it_is_trained_and_resumed_and_its_encoder_is_exported_without_its_code(ebclab: Ebclab, code: Path) -> None:
    command = ["pretrain", NAME, "--epochs", "1", *TINY, "--set", "encoder.width=4"]
    assert ebclab(*command, "--set", "method.num_negatives=8").ok
    run = Path("runs/own_code.hardest.Hardest-digits-seed0")
    assert f"  name: {NAME}\n  digest: " in (run / "config.yaml").read_text()
    assert "nothing was trained" in ebclab("pretrain", NAME, "--resume", "--name", run.name).out

    _forget()
    code.write_text(HARDEST + "# other\n")
    changed = ebclab(*command, "--set", "method.num_negatives=8")
    assert "\n  method.digest: " in changed.refusal
    assert (
        "has changed since these settings were recorded" in ebclab("pretrain", NAME, "--resume", "--name", run.name).err
    )

    _forget()
    code.write_text("raise SystemExit('run')")
    for arguments in (("evaluate", run, "--only", "knn"), ("export", run, "--to", "encoder"), ("runs", "list")):
        assert ebclab(*arguments).ok
    assert not any(name.startswith("own_code") for name in sys.modules)
    assert NAME in Path("encoder/README.md").read_text()
    assert "a file alone does not choose which code is run" in ebclab("sample", run).err


def test_show_and_sweep_know_it(ebclab: Ebclab, code: Path) -> None:
    shown = ebclab("show", NAME, "--explain")
    assert "num_negatives: 16" in shown.out
    assert "Negatives that are kept." in shown.out
    assert make_plan(compose(NAME), SweepRequest()).space == make_plan(compose("simclr"), SweepRequest()).space


def test_a_comparison_of_it_is_planned_and_continued_only_by_who_writes_it(ebclab: Ebclab, code: Path) -> None:
    request = ComparisonRequest(
        methods=("simclr", NAME),
        batch_sizes=(32,),
        recipe="digits-demo",
        assignments=(f"{NAME}:method.num_negatives=4", "optimizer.weight_decay=0.01"),
        questions=(f"simclr@32,{NAME}@32",),
    )
    plan = make_comparison(request)
    assert plan.sweeps[0].plan.space == plan.sweeps[1].plan.space  # it extends SimCLR
    assert [planned.name for planned in plan.sweeps] == ["simclr-digits-b32", "own_code.hardest.Hardest-digits-b32"]
    own = plan.sweeps[1].plan.config
    assert (own.method.num_negatives, own.optimizer.weight_decay) == (4, 0.01)
    assert own.method_digest

    folder = Path("comparisons/mine")
    folder.mkdir(parents=True)
    ComparisonFolder(folder).write_plan(plan)
    _forget()
    assert ComparisonFolder(folder.absolute()).read_plan().digest == plan.digest
    refused = ebclab("compare", "--name", "mine")
    assert f"a file alone does not choose which code is run, got {NAME}" in refused.refusal
    assert not any(name.startswith("own_code") for name in sys.modules)


def test_its_package_is_sent_with_a_submitted_command(code: Path, tmp_path: Path) -> None:
    assert named_code(parsed(parser, ["pretrain", "simclr"])[2]) == []
    for arguments in (["pretrain", NAME, "--epochs", "1"], ["compare", "simclr", NAME], ["sweep", NAME]):
        assert named_code(parsed(parser, arguments)[2]) == [code.parent]
    single = tmp_path / "own_file.py"
    single.write_text(HARDEST)
    (tmp_path / "stage").mkdir()
    staged = {path.name: path for path in stage_code(tmp_path / "stage", own=[code.parent, single])}
    assert (staged["own_code"] / "hardest.py").read_text() == staged["own_file.py"].read_text() == HARDEST
    (tmp_path / "ebclab_submitted").mkdir()
    (sent,) = with_sent_files([f"{NAME}=submitted:0-space.yaml"], [tmp_path])
    assert sent == f"{NAME}={tmp_path}/ebclab_submitted/0-space.yaml"

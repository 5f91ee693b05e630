"""The plan of a comparison: every method the same chance, every mistake at once, a digest that says what was asked."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from made_up_comparison import request_for

from ebclab.cli.compare import CompareOptions
from ebclab.comparisons.compare import plan_of_request
from ebclab.comparisons.plan import ComparisonFolder, Task, growth, make_comparison
from ebclab.errors import ConfigError, UserError


def refused(*methods: str, **asked: Any) -> list[str]:
    """Return the problems of a request."""
    with pytest.raises(ConfigError) as error:
        make_comparison(request_for(*methods, **asked))
    return error.value.problems


def test_each_method_gets_the_same_draws_seeds_and_images_at_each_batch_size() -> None:
    plan = make_comparison(request_for("simclr", "dcl", batch_sizes=(32, 64), trials=5, seeds=4))
    names = [f"{method}-digits-b{size}" for size in (32, 64) for method in ("simclr", "dcl")]
    assert [planned.name for planned in plan.sweeps] == names
    for planned in plan.sweeps:
        sweep = planned.plan
        assert (sweep.search, sweep.rules.scheduler, sweep.trials) == ("random", "none", 6)  # default settings and 5
        assert (sweep.top, sweep.seeds, sweep.baseline, sweep.tested) == (1, 4, True, "all")
        assert sweep.config.training.batch_size == planned.task.batch_size
        assert "training.batch_size" not in sweep.space.by_name
        assert sweep.space.where.endswith("without training.batch_size")
    configs = [planned.plan.config for planned in plan.sweeps[:2]]
    for section in ("data", "views", "encoder", "evaluation"):
        assert getattr(configs[0], section) == getattr(configs[1], section)


def test_repeats_have_other_seeds_and_practice_has_its_own_sweeps() -> None:
    plan = make_comparison(request_for("simclr", "dcl", repeats=2, practice_seconds=30.0))
    assert plan.tasks == (Task("digits", 64), Task("digits", 64, 1))
    draws = [each for each in plan.sweeps if each.method == "simclr" and each.arm == "draws"]
    first, second = (each.plan.config.seed for each in draws)
    assert second - first > 100  # seeds of confirming runs follow the first
    practice = next(each for each in plan.sweeps if each.name == "dcl-digits-b64-repeat1-practice")
    assert practice.task == plan.tasks[1]
    assert (practice.plan.search, practice.plan.rules.scheduler) == ("tpe", "asha")
    assert (practice.plan.search_seconds, practice.plan.baseline) == (30.0, False)


def test_settings_may_be_for_one_method_alone(tmp_path: Path) -> None:
    space = tmp_path / "own.yaml"
    space.write_text("parameters:\n  method.temperature: {uniform: [0.3, 0.6]}\n")
    asked = request_for(
        "simclr", "dcl", assignments=("dcl:method.temperature=0.3", "encoder.width=16"), spaces=(f"dcl={space}",)
    )
    simclr, dcl = make_comparison(asked).sweeps
    assert (simclr.plan.config.method.temperature, dcl.plan.config.method.temperature) == (0.5, 0.3)  # type: ignore[attr-defined]
    assert simclr.plan.config.encoder.width == dcl.plan.config.encoder.width == 16
    assert list(dcl.plan.space.by_name) == ["method.temperature"]


def test_views_and_encoder_must_be_the_same_unless_said() -> None:
    lines = refused("simclr", "ebclr")
    named = [line.partition(":")[0] for line in lines]
    assert {"views.normalisation", "encoder.batch_norm", "encoder.activation"} <= set(named)
    line = next(line for line in lines if line.startswith("encoder.batch_norm"))
    assert "simclr global, ebclr none" in line
    assert "--may-differ encoder.batch_norm" in line
    plan = make_comparison(request_for("simclr", "ebclr", may_differ=("views.normalisation", "encoder")))
    assert plan.sweeps[1].plan.config.encoder.batch_norm == "none"


@pytest.mark.parametrize("datasets", [(), ("digits",)])
def test_what_is_wrong_with_all_methods_is_said_once(datasets: tuple[str, ...]) -> None:
    wrong_for_one = "dcl:method.temprature=1"
    assert refused("simclr", "dcl", datasets=datasets, assignments=("trainig.epochs=3", wrong_for_one)) == [
        "trainig: no such setting; did you mean training?",
        "dcl: method.temprature: no such setting; did you mean method.temperature?",
    ]


def test_epochs_must_be_the_same_unless_said() -> None:
    asked = {"epochs": None, "assignments": ("dcl:training.epochs=7", "simclr:training.epochs=5")}
    (line,) = refused("simclr", "dcl", **asked)
    assert line.startswith("training.epochs: not the same for all methods: simclr 5, dcl 7")
    plan = make_comparison(request_for("simclr", "dcl", may_differ=("training.epochs",), **asked))
    assert [each.plan.config.training.epochs for each in plan.sweeps] == [5, 7]


@pytest.mark.parametrize(
    ("asked", "line"),
    [
        ({"methods": ("simclr",)}, "METHOD: a comparison takes at least two methods, got simclr"),
        ({"methods": ("simclr", "simclr")}, "METHOD: twice, got simclr"),
        ({"methods": ("simclr", "flatclrr")}, "METHOD: no such method, got flatclrr; did you mean flatclr?"),
        ({"methods": ("runs/a", "runs/b")}, "METHOD: no such method, got runs/a; `ebclab report RUN RUN` shows"),
        ({"batch_sizes": ()}, "--batch-size: at least one, got none"),
        ({"batch_sizes": (64, 64)}, "--batch-size: twice, got 64"),
        ({"batch_sizes": (1,)}, "--batch-size: must be at least 2, got 1"),
        (
            {"batch_sizes": (1024, 2048)},
            "simclr at batch size 1024 and simclr at batch size 2048: --batch-size: outside the range of",
        ),
        ({"trials": 0}, "--trials: must be at least 1, got 0"),
        ({"seeds": 1}, "--seeds: must be at least 2, got 1"),
        ({"margin": 0.0}, "--margin: must be above 0, below 100, got 0"),
        ({"reference": "moco"}, "--reference: not among the methods compared, got moco"),
        ({"questions": ("simclr@64",)}, "--ask: not a question, got 'simclr@64'"),
        ({"questions": ("simclr@64,dcl,dcl@64",)}, "--ask: not a question, got 'simclr@64,dcl,dcl@64'"),
        ({"questions": ("simclr@64,dcl@128",)}, "not a batch size of this comparison, got 128; there are 64"),
        ({"questions": ("simclr@64,moco@64",)}, "not compared, got moco"),
        ({"target": 120.0}, "--target: must be above 0, below 100, got 120"),
        ({"repeats": 0}, "--repeat: must be at least 1, got 0"),
        ({"practice_seconds": -1.0}, "--practice: must be at least 0, below inf, got -1"),
        ({"practice_seconds": float("nan")}, "--practice: must be at least 0, below inf, got nan"),
        ({"practice_seconds": float("inf")}, "--practice: must be at least 0, below inf, got inf"),
        (
            {"datasets": ("folder:/a/birds", "folder:/b/birds")},
            "--dataset: folder:/a/birds and folder:/b/birds have one name for results, folder-birds",
        ),
        ({"metric": "linaer"}, "--metric: no such choice, got 'linaer'; did you mean linear?"),
        ({"budget": "hours"}, "--budget: no such choice, got 'hours'; known: epochs, seconds"),
        ({"assignments": ("moco:method.temperature=0.2",)}, "not among the methods compared, got moco"),
        ({"assignments": ("training.batch_size=32",)}, "write --batch-size"),
        ({"assignments": ("data.name=mnist",)}, "write --dataset"),
        ({"spaces": ("simclr",)}, "--space simclr: no = found; write METHOD=FILE"),
        ({"assignments": ("method.temprature=0.2",)}, "did you mean method.temperature"),
        (
            {"assignments": ("evaluation.objective=effective_rank",)},
            "a comparison is of accuracies, got effective_rank",
        ),
        ({"may_differ": ("views.colour",)}, "--may-differ: no such setting"),
    ],
)
def test_what_cannot_be_compared_is_a_sentence(asked: dict[str, Any], line: str) -> None:
    methods = asked.pop("methods", ("simclr", "dcl"))
    assert any(line in problem for problem in refused(*methods, **asked)), refused(*methods, **asked)


def test_all_mistakes_come_at_once() -> None:
    assert len(refused("simclr", "nothing", trials=0, seeds=1, margin=-1.0)) == 4


def test_the_digest_is_of_what_decides_numbers() -> None:
    asked = request_for("simclr", "dcl")
    digest = make_comparison(asked).digest
    elsewhere = replace(asked, data_root="/elsewhere", assignments=("resources.threads=2",))
    assert make_comparison(replace(elsewhere, assignments=())).digest == digest
    for change in ({"trials": 4}, {"margin": 1.0}, {"questions": ("simclr@64,dcl@64",)}, {"metric": "linear"}):
        assert make_comparison(replace(asked, **change)).digest != digest  # type: ignore[arg-type]


def test_a_plan_is_read_as_it_was_written(tmp_path: Path) -> None:
    plan = make_comparison(request_for("simclr", "dcl", practice_seconds=5.0, questions=("simclr@64,dcl@64",)))
    ComparisonFolder(tmp_path).write_plan(plan)
    again = ComparisonFolder(tmp_path).read_plan()
    (tmp_path / "again").mkdir()
    ComparisonFolder(tmp_path / "again").write_plan(again)
    assert again.request == plan.request
    assert (tmp_path / "again" / "comparison.yaml").read_text() == (tmp_path / "comparison.yaml").read_text()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("format: 1", "format: 2"),
        ("  simclr-digits-b64:", "  ../simclr-digits-b64:"),
        ("  simclr-digits-b64:", "  dcl-digits-b32:"),
        ("seeds: 3", "seeds: many"),
    ],
)
def test_a_damaged_plan_is_a_sentence(tmp_path: Path, old: str, new: str) -> None:
    path = tmp_path / "comparison.yaml"
    ComparisonFolder(tmp_path).write_plan(make_comparison(request_for("simclr", "dcl")))
    path.write_text(path.read_text().replace(old, new, 1))
    with pytest.raises(UserError, match=r"is not a comparison's plan, got .*restore the file"):
        ComparisonFolder(tmp_path).read_plan()


def test_a_comparison_may_grow() -> None:
    asked = request_for("simclr", "dcl")
    before = make_comparison(asked)
    grown = replace(asked, methods=("simclr", "dcl", "dhel"), trials=5, batch_sizes=(64, 32))
    lines = growth(before, make_comparison(grown), "here")
    assert lines[0] == "trials: 3 to 5"
    assert {"dhel-digits-b64: new", "simclr-digits-b32: new"} <= set(lines)
    assert growth(before, make_comparison(asked), "here") == []


def test_a_plan_keeps_the_digest_that_it_was_written_with(tmp_path: Path) -> None:
    asked, folder = request_for("simclr", "dcl"), tmp_path / "mine"
    folder.mkdir()
    ComparisonFolder(folder).write_plan(make_comparison(asked))
    digest = make_comparison(asked).digest
    text = (folder / "comparison.yaml").read_text()
    assert f"digest: {digest}" in text
    (folder / "comparison.yaml").write_text(text.replace(digest, "0123456789abcdef"))
    plan, _, grown = plan_of_request(asked, comparisons=tmp_path, name="mine")  # as if by an earlier version
    assert (plan.digest, grown) == ("0123456789abcdef", [])
    plan, _, grown = plan_of_request(replace(asked, trials=9), comparisons=tmp_path, name="mine")
    assert (plan.digest, grown) == (make_comparison(replace(asked, trials=9)).digest, ["trials: 3 to 9"])


def test_a_stored_plan_whose_option_replaced_a_setting_goes_on_though_both_are_refused_now(tmp_path: Path) -> None:
    asked, folder = request_for("simclr", "dcl", assignments=("encoder.width=16",)), tmp_path / "mine"
    both = replace(asked, assignments=("training.epochs=7", "encoder.width=16", "dcl:training={epochs: 9}"))
    assert len(both.problems()) == 2
    folder.mkdir()
    stored = replace(make_comparison(asked), request=both)
    ComparisonFolder(folder).write_plan(stored)
    kept = CompareOptions(given={}, name="mine", comparisons=str(tmp_path)).request()
    assert kept == asked
    plan, _, grown = plan_of_request(kept, comparisons=tmp_path, name="mine")
    assert (plan.digest, grown, plan.sweeps) == (stored.digest, [], stored.sweeps)


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"trials": 2}, "trials: 3 there, 2 here; it may grow, not shrink"),
        ({"margin": 1.0}, "margin: 0.5 there, 1.0 here"),
        ({"epochs": 3}, "simclr-digits-b64: config.training.epochs: 2 in the comparison, 3 now"),
        ({"batch_sizes": (32,)}, "simclr-digits-b64: there, and not here"),
        ({"assignments": ("encoder.width=16",)}, "simclr-digits-b64: config.encoder.width"),
    ],
)
def test_a_plan_that_changed_is_another_comparison(change: dict[str, Any], line: str) -> None:
    asked = request_for("simclr", "dcl")
    with pytest.raises(UserError, match="this comparison was planned otherwise; choose another --name") as error:
        growth(make_comparison(asked), make_comparison(replace(asked, **change)), "here")
    assert line in str(error.value)

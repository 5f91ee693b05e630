"""``ebclab sweep`` at the keyboard: every mistake is a sentence and exit code 2, before anything starts."""

from pathlib import Path

import pytest
import yaml
from made_up_trials import made_up_result

import ebclab as library
from ebclab.cli.sweep import print_result
from ebclab.config.options import seconds_of
from ebclab.document.text import print_facts
from ebclab.errors import UserError
from ebclab.sweeps.folder import SweepFolder
from ebclab.sweeps.results import ConfirmedSettings
from ebclab.sweeps.space.space import own_settings, parse_space

from .conftest import Ebclab

RATE = {"optimizer.learning_rate": {"loguniform": [1e-4, 1.0]}}


def _space(parameters: dict[str, object]) -> str:
    Path("space.yaml").write_text(yaml.safe_dump({"parameters": parameters}), encoding="utf-8")
    return "space.yaml"


def test_a_space_with_an_end_that_cannot_be_trained_is_refused_and_named(ebclab):
    space = _space({"training.batch_size": {"choice": [256, 2000]}})
    refusal = ebclab("sweep", "simclr", "--space", space).refusal
    assert "training images are too few for a batch and the method's proposals, got 2000; in a space of your" in refusal


NO_FOLDER = "error: --name: not the name of a folder, got '../x'; leave out /, \\, ? and a dot"
NO_POPULATION = "error: --interval: only a population exchanges, got 2 with --scheduler "
WRONG = [
    (["--objective", "test_accuracy"], "evaluation.objective: no such choice, got 'test_accuracy'"),
    (["--scheduler", "hyperband"], "--scheduler: no such choice, got 'hyperband'"),
    (["--scheduler", "pbt", "--interval", "0"], "--interval: must be at least 1, got 0"),
    (["--time", "8 hours"], "--time: not a duration, got '8 hours'; write 8h"),
    (["--rule", "plateau=3"], "--rule plateau: no such rule; did you mean plateau_epochs?"),
    (["--rule", "reduction_factor=1"], "--rule reduction_factor: out of range, got 1"),
    (["--set", "data.holdout_rate=0"], "data.holdout_rate: a sweep chooses by held-out images, got 0"),
    (["--search", "grid", "--trials", "5"], "points, got 5; leave --trials out"),
    (["--warm-start", "/nope"], "error: /nope: no sweep here, sweep.yaml is missing; `ebclab sweep` makes sweeps"),
    (["--name", "../x"], NO_FOLDER),
    (["--name", "../x", "--resume"], NO_FOLDER),
    (["--interval", "2"], f"{NO_POPULATION}asha; leave it out, or add --scheduler pbt"),
    (["--interval", "2", "--scheduler", "none"], NO_POPULATION),
]


@pytest.mark.parametrize(("arguments", "said"), WRONG, ids=[" ".join(words) for words, _ in WRONG])
def test_what_is_asked_wrongly_is_one_sentence_also_with_show(ebclab: Ebclab, arguments: list[str], said: str) -> None:
    for show in ([], ["--show"]):
        assert said in ebclab("sweep", "simclr", *arguments, *show).refusal
    assert list(Path.cwd().iterdir()) == []


def test_a_shipped_space_leaves_out_what_a_population_cannot_change_and_an_own_one_is_refused(ebclab: Ebclab) -> None:
    plan = library.make_plan(library.compose("simclr"), library.SweepRequest(scheduler="pbt"))
    assert "training.batch_size" not in plan.space.by_name
    assert "without training.batch_size" in plan.space.where
    assert "method.ess_target" not in plan.space.by_name  # off or on changes what is stored
    own = _space({"training.batch_size": {"choice": [128, 256]}, **RATE})
    refused = ebclab("sweep", "simclr", "--scheduler", "pbt", "--space", own)
    assert "training.batch_size: cannot change during a run" in refused.refusal


@pytest.mark.parametrize(
    ("method", "own"), [("simclr", "method.objective=nwj"), ("flatclr", "method.hoelder_exponent=2")]
)
def test_a_shipped_space_leaves_out_what_the_runs_method_refuses(method: str, own: str) -> None:
    plan = library.make_plan(library.compose(method, overrides=[own]))
    assert plan.space.where == f"search space {method} without method.ess_target"
    assert "method.ess_target" in library.make_plan(library.compose(method)).space.by_name


def test_all_mistakes_come_at_once(ebclab: Ebclab) -> None:
    space = _space({"method.temprature": {"uniform": [0.1, 1]}, "optimizer.beta1": {"uniform": [0, 2]}})
    said = ebclab("sweep", "simclr", "--space", space, "--scheduler", "ashaa", "--rule", "graces=1").refusal
    assert all(word in said for word in ("did you mean asha", "temprature", "beta1", "graces"))


@pytest.mark.parametrize(("name", "given"), [("s", ["--name", "s"]), ("simclr-digits", [])])
def test_a_sweep_with_another_space_is_refused_and_the_difference_shown(ebclab, name, given):
    space = parse_space({"parameters": RATE}, "test")
    plan = library.make_plan(library.compose("simclr"), library.SweepRequest(space=space))
    with SweepFolder(Path("sweeps", name)).claim_for(plan):
        pass
    wider = _space({"optimizer.learning_rate": {"loguniform": [1e-5, 1.0]}})
    resumed = ("sweep", "simclr", *given, "--resume")
    said = ebclab(*resumed, "--space", wider).refusal
    assert "space.parameters.optimizer.learning_rate.loguniform: [0.0001, 1.0] in the sweep, [1e-05, 1.0] now" in said
    said = ebclab(*resumed, "--trials", "8").refusal
    assert "--trials: a resumed sweep may grow, not shrink, got 8; it has 16" in said
    assert "nothing to resume, no sweep of this name" in ebclab("sweep", "moco", "--resume").refusal


def test_durations_are_read_as_written_and_nothing_else_is_one():
    assert [seconds_of(text) for text in ("8h", "1h30m", "90s", "1.5d")] == [28_800, 5_400, 90, 129_600]
    for text in ("", "8", "h", "-1h", "8h later", "0s"):
        with pytest.raises(UserError, match="not a duration"):
            seconds_of(text)


def test_the_starting_settings_are_called_so_wherever_they_stand(capsys: pytest.CaptureFixture[str]) -> None:
    plan = library.make_plan(library.compose("simclr"))
    start = own_settings(plan.space, plan.config)

    def entry(source: str, settings: dict[str, object]) -> ConfirmedSettings:
        return ConfirmedSettings(source=source, settings=settings, seeds=(1,), values=(0.5,), seeds_asked=1, mean=0.5)

    print_result(made_up_result("s", entry("0000", start), entry("0001", {}), entry("baseline", start)), plan)
    said = capsys.readouterr().out
    assert "winner: trial 0000, the starting settings: " in said
    names = [line.partition("50.0%")[0].strip() for line in said.splitlines() if "50.0%" in line]
    assert names == ["trial 0000, the starting settings", "trial 0001", "the starting settings"]


def test_what_is_said_of_a_sweep_is_as_wide_as_the_terminal_but_for_what_is_copied(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "30")
    next_command = "ebclab pretrain simclr --config sweeps/mine/best.yaml"
    print_facts({"trials": "3 finished, 2 stopped, 1 failed", "sweep": "/a/" + 30 * "b-", "next": next_command})
    assert capsys.readouterr().out.splitlines() == [
        "trials: 3 finished, 2 stopped,",
        "        1 failed",
        f" sweep: /a/{30 * 'b-'}",
        f"  next: {next_command}",
    ]

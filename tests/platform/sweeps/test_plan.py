"""A plan says what is wrong with it, survives its file, and is compared when a sweep is resumed."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from ebclab.errors import ConfigError, RunError, UserError
from ebclab.sweeps.folder import SweepFolder
from ebclab.sweeps.plan import Population, SweepPlan, plan_of, require_same, trial_config, write_plan

Plans = Callable[..., SweepPlan]
DERIVED = {
    "optimizer.learning_rate": {"loguniform": [1e-5, 0.1]},
    "method.temperature": {"quantised": [0.1, 1.0, 0.1]},
    "training.batch_size": {"choice": [32, 64]},
    "optimizer.weight_decay": {"uniform": [0.0, 0.1], "times": "optimizer.learning_rate"},
    "method.projection_size": {"int": [16, 256], "log": True, "points": 4},
}


def changed(plan: SweepPlan, **changes: Any) -> SweepPlan:
    """Replace fields of a plan, or with a section's name fields of that section of its settings."""
    for name in changes.keys() & {"training", "data"}:
        section = replace(getattr(plan.config, name), **changes.pop(name))
        plan = replace(plan, config=replace(plan.config, **{name: section}))
    return replace(plan, **changes)


PBT = {"scheduler": "pbt", "trials": 4}
COPIED = "hunt/0001 after epoch 2"


@pytest.mark.parametrize(
    ("asked", "changes", "problems"),
    [
        ({}, {}, []),
        (PBT, {}, []),
        ({}, {"top": 0, "seeds": 0}, []),
        ({}, {"trials": 1, "top": 1, "seeds": 1, "epochs": 1}, []),
        ({}, {"top": 0, "epochs": 7}, []),
        ({}, {"trials": 0, "top": 0}, ["--trials: must be at least 1, got 0"]),
        ({}, {"trials": -3, "top": 0}, ["--trials: must be at least 1, got -3"]),
        ({}, {"top": 17}, ["--top: more settings than trials, got 17 of 16; use at most 16"]),
        ({}, {"top": -1}, ["--top: must be at least 0, got -1"]),
        ({}, {"seeds": 0}, ["--seeds: at least one, got 0; or confirm nothing with --top 0"]),
        ({}, {"epochs": -3}, ["--epochs: must be at least 1, got -3"]),
        ({}, {"epochs": 7}, ["--epochs: a search must not train longer than the runs that confirm it, got 7 > 6"]),
        (
            PBT,
            {"search": "grid"},
            ["--search: population based training itself changes settings during a run, got grid; use --search random"],
        ),
        (PBT, {"trials": 3}, ["--trials: a population needs at least 4 members to choose among, got 3"]),
        (PBT, {"population": Population(6)}, ["--interval: no exchange in 6 epochs, got 6; make it smaller"]),
        (
            {},
            {"training": {"extended": (1,), "copied_weights": COPIED}},
            [
                "training.extended: is for runs, not for sweeps, got [1]; leave it out",
                f"training.copied_weights: is for runs, not for sweeps, got {COPIED}; leave it out",
            ],
        ),
        ({}, {"data": {"holdout_rate": 0.0}}, ["data.holdout_rate: a sweep chooses by held-out images, got 0"]),
        (
            {},
            {"trials": 0, "seeds": 0, "epochs": 0},
            [
                "--trials: must be at least 1",
                "--epochs: must be at least 1",
                "--top: more settings than trials",
                "--seeds: at least one",
            ],
        ),
    ],
    ids=str,
)
def test_each_problem_of_a_plan_is_one_line(sweep_plan, asked, changes, problems):
    found = changed(sweep_plan(**asked), **changes).problems()
    assert [line[: len(start)] for line, start in zip(found, problems, strict=True)] == problems


@pytest.mark.parametrize(
    ("asked", "concurrent", "most", "longest"),
    [
        ({"trials": 16, "epochs": 3, "top": 2, "seeds": 5}, 1, 16 * 3 + 15 * 6, 16 * 3 + 15 * 6),
        ({"trials": 17, "epochs": 3, "top": 2, "seeds": 5}, 16, 17 * 3 + 15 * 6, 2 * 3 + 6),  # 17 trials take two turns
        ({"trials": 4, "epochs": 3, "top": 1, "seeds": 3, "baseline": False}, 2, 4 * 3 + 3 * 6, 2 * 3 + 2 * 6),
        ({"trials": 5, "top": 0}, 4, 5 * 6, 2 * 6),
    ],
)
def test_the_longest_time_is_that_of_whole_turns(sweep_plan, asked, concurrent, most, longest):
    plan = sweep_plan(**asked)
    assert (plan.longest_epochs(1), plan.longest_epochs(concurrent)) == (most, longest)


def test_it_is_said_that_confirming_runs_have_all_epochs(sweep_plan: Plans) -> None:
    full = changed(sweep_plan(), training={"epochs": 20})
    assert replace(full, epochs=3).epochs_in_words() == (
        "at most 3 epochs each, then 20 for those that confirm the best (training.epochs; --epochs is for the search)"
    )
    assert replace(full, epochs=20).epochs_in_words() == "at most 20 epochs each"
    assert replace(full, epochs=3, top=0).epochs_in_words() == "at most 3 epochs each"
    assert replace(full, epochs=1, top=0).epochs_in_words() == "at most 1 epoch each"


@pytest.mark.parametrize(
    "asked",
    [
        {},
        {"search": "grid", "top": 2, "baseline": False},
        {"scheduler": "pbt", "trials": 5, "interval_epochs": 2},
        {"scheduler": "median", "rules": ["plateau_epochs=3", "plateau_min_change=1e-5", "min_spread=0"], "epochs": 3},
        {"space": DERIVED, "search": "random"},
    ],
    ids=str,
)
def test_a_plan_comes_back_from_its_file(sweep_plan: Plans, tmp_path: Path, asked: dict[str, Any]) -> None:
    overrides = ["optimizer.weight_decay=0.003", "seed=11", "data.root=/somewhere", "optimizer.learning_rate=0.06"]
    plan, path = sweep_plan(*overrides, **asked), tmp_path / "sweep.yaml"
    write_plan(path, plan)
    back = SweepFolder(tmp_path).read_plan()
    assert replace(back, space=plan.space) == plan
    assert back.space.parameters == plan.space.parameters
    assert back.to_mapping() == plan.to_mapping()
    require_same(back, plan, tmp_path)
    assert yaml.safe_load(path.read_text()) == yaml.safe_load(yaml.safe_dump(plan.to_mapping()))


@pytest.mark.parametrize(
    "damage",
    [
        {"rules": None},
        {"rules": {"scheduler": "asha", "no_such_rule": 1}},
        {"population": []},
        {"space": {"parameters": {}}},
        {"space": ["a"]},
        {"config": {"method": {"name": "simclr"}, "nothing": 1}},
        {"config": 3},
        {"trials": ...},
        {"space": ...},
        *("{", "", "- 1", "a: 1\na: 2"),
    ],
    ids=str,
)
def test_a_damaged_plan_is_one_sentence_with_its_place(sweep_plan, tmp_path, damage):
    path = tmp_path / "sweep.yaml"
    if isinstance(damage, dict):
        saved = {**sweep_plan().to_mapping(), **damage}
        damage = yaml.safe_dump({key: value for key, value in saved.items() if value is not ...})
    path.write_text(damage)
    with pytest.raises(UserError, match="nothing: no such setting" if "nothing" in damage else "sweep.yaml"):
        SweepFolder(tmp_path).read_plan()


def test_a_plan_that_leaves_a_choice_open_is_refused_by_its_name(sweep_plan: Plans) -> None:
    saved = sweep_plan().to_mapping()
    del saved["trials"], saved["top"]
    with pytest.raises(RunError, match=r"x is not a sweep's plan, got trials, top: missing; restore the file"):
        plan_of(saved, "x")


def test_trials_confirmation_and_resources_may_change(sweep_plan: Plans, tmp_path: Path) -> None:
    before = sweep_plan()
    now = sweep_plan("resources.threads=2", "resources.max_failures=9", "data.root=/elsewhere")
    require_same(before, replace(now, trials=30, top=5, seeds=9, baseline=False), tmp_path)


OTHER_SPACE = {"optimizer.learning_rate": {"loguniform": [1e-4, 0.1]}}


@pytest.mark.parametrize(
    ("overrides", "asked", "differences"),
    [
        (["method.temperature=0.3"], {}, ["config.method.temperature: 0.2 in the sweep, 0.3 now"]),
        (["seed=1"], {}, ["config.seed: 0 in the sweep, 1 now"]),
        (["data.holdout_rate=0.2"], {}, ["config.data.holdout_rate: 0.1 in the sweep, 0.2 now"]),
        ([], {"epochs": 5}, ["epochs: 6 in the sweep, 5 now"]),
        ([], {"search": "random"}, ["search: tpe in the sweep, random now"]),
        ([], {"interval_epochs": 3}, ["population.interval_epochs: 1 in the sweep, 3 now"]),
        (
            [],
            {"space": OTHER_SPACE, "rules": ["min_others=4"]},
            [
                "rules.min_others: 3 in the sweep, 4 now",
                "space.parameters.method.temperature.uniform: [0.1, 1.0] in the sweep, absent now",
                "space.parameters.optimizer.learning_rate.loguniform: [1e-05, 0.1] in the sweep, [0.0001, 0.1] now",
            ],
        ),
    ],
)
def test_any_other_difference_is_shown_and_refused(sweep_plan, tmp_path, overrides, asked, differences):
    with pytest.raises(RunError) as caught:
        require_same(sweep_plan(), sweep_plan(*overrides, **asked), tmp_path)
    first, *lines = str(caught.value).splitlines()
    assert first.startswith(f"{tmp_path}: this sweep was started with other settings")
    assert lines == [f"  {line}" for line in differences]


def test_a_trials_run_is_scored_and_saved_after_every_epoch_with_its_own_settings(sweep_plan: Plans) -> None:
    config = sweep_plan("training.checkpoint_every=5", "evaluation.knn_every=0").config
    found = trial_config(config, {"method.temperature": 0.7}, seed=4, epochs=2)
    assert (found.method.temperature, found.seed, found.training.epochs) == (0.7, 4, 2)
    assert (found.training.checkpoint_every, found.evaluation.knn_every) == (1, 1)
    back = replace(found, seed=0, method=config.method, training=config.training, evaluation=config.evaluation)
    assert back == config


def test_settings_that_contradict_each_other_make_no_trial(sweep_plan: Plans) -> None:
    with pytest.raises(ConfigError, match=r"optimizer\.warmup_epochs: must not exceed training\.epochs"):
        trial_config(sweep_plan().config, {"optimizer.warmup_epochs": 3.0}, seed=0, epochs=2)


@pytest.mark.parametrize(("epochs", "warmup"), [(6, 3.0), (3, 3.0), (2, 1.0), (1, 0.5)])  # 3 of 6 epochs
def test_a_trial_shorter_than_the_warmup_has_the_same_share_of_warmup(sweep_plan, epochs, warmup):
    config = sweep_plan("optimizer.warmup_epochs=3").config
    assert config.training.epochs == 6
    assert trial_config(config, {}, seed=0, epochs=epochs).optimizer.warmup_epochs == warmup


@pytest.mark.parametrize(
    ("trials", "top", "baseline", "epochs", "seeds"),
    [
        (16, 3, True, None, 3),  # 4 settings x 5 seeds x 6 epochs = 120, the search 96
        (20, 3, True, None, 3),  # as much is not less
        (21, 3, True, None, 5),
        (21, 3, True, 4, 3),  # a shorter search: 84
        (16, 3, False, None, 5),  # 90
    ],
)
def test_five_seeds_where_they_cost_less_than_the_search(sweep_plan, trials, top, baseline, epochs, seeds):
    plan = sweep_plan(trials=trials, top=top, baseline=baseline, epochs=epochs)
    assert plan.seeds == seeds
    assert sweep_plan(trials=trials, top=top, seeds=2).seeds == 2


def test_a_split_for_confirmation_is_as_large_as_the_held_out_one_unless_it_has_a_size(sweep_plan, tmp_path):
    assert sweep_plan().config.data.confirm_rate == 0.0
    plan = sweep_plan("data.holdout_rate=0.25", confirm_split=True)
    assert plan.config.data.confirm_rate == 0.25
    assert sweep_plan("data.confirm_rate=0.05", confirm_split=True).config.data.confirm_rate == 0.05
    write_plan(tmp_path / "sweep.yaml", plan)
    assert SweepFolder(tmp_path).read_plan().config == plan.config
    searching, confirming = (
        trial_config(plan.config, {}, seed=1, epochs=6, confirms=confirms).evaluation.scored_on
        for confirms in (False, True)
    )
    assert (searching, confirming) == ("holdout", "confirm")
    plain = sweep_plan().config
    assert trial_config(plain, {}, seed=1, epochs=6, confirms=True).evaluation.scored_on == "holdout"

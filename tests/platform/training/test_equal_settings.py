"""Equal settings mean equal numbers: what a later launch may change, what it may not, and what it is recorded as."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from small_runs import Killed, content_of, records_of, saved_in, settings_of, untimed

import ebclab
from ebclab.config import ExperimentConfig, compose
from ebclab.errors import ConfigError, RunError, UserError
from ebclab.storage.object_store import COPIES
from ebclab.training.display import Listener

FOLDER = (
    *("data.train_limit=96", "training.batch_size=32", "resources.threads=1", "training.log_every=1"),
    "encoder.width=4",
)
SMALL = "method.projection_size=16", "method.projection_hidden_size=32"


def _config(epochs: int) -> ExperimentConfig:
    """Two steps an epoch; BYOL's average follows the planned steps, and every second epoch is scored."""
    return compose("byol", overrides=[*FOLDER, *SMALL, f"training.epochs={epochs}", "evaluation.knn_every=2"])


def _pretrain(runs: Path, name: str, config: ExperimentConfig, **given: Any) -> Path:
    return ebclab.pretrain(config, runs=runs, name=name, display=given.pop("display", Listener()), **given).path


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], Path]:
    """Return a function that trains a run of so many epochs once, and returns its folder."""
    return cache(lambda epochs: _pretrain(tmp_path_factory.mktemp("runs"), "one", _config(epochs)))


@pytest.fixture
def begun(trained: Callable[[int], Path], tmp_path: Path) -> Path:
    """A run of one epoch, of which no other test knows."""
    return Path(shutil.copytree(trained(1), tmp_path / "one"))


def _numbers(run: Path) -> tuple[Any, ...]:
    """Return everything that a run computed, but for times."""
    result = json.loads((run / "result.json").read_text())
    kept = ("epochs", "steps", "scores", "best", "extensions")
    return {name: result[name] for name in kept}, untimed(run, "train", "epoch")


def _same(one: Path, other: Path) -> None:
    torch.testing.assert_close(saved_in(one).model, saved_in(other).model, rtol=0, atol=0)
    assert _numbers(one) == _numbers(other)


def test_an_extended_run_is_the_run_that_its_settings_describe(begun: Path, tmp_path: Path) -> None:
    _pretrain(tmp_path, "one", _config(1), extend=3)
    one = _pretrain(tmp_path, "one", _config(1), extend=4)
    settings = settings_of(one)
    assert (settings.training.extended, settings.training.epochs) == ((1, 3), 4)
    _same(one, _pretrain(tmp_path, "again", settings))


def test_a_kill_in_the_middle_of_extending_changes_nothing(begun: Path, tmp_path: Path) -> None:
    shutil.copytree(begun, tmp_path / "two")
    for step in (3, 5):
        with pytest.raises(KeyboardInterrupt):
            _pretrain(tmp_path, "one", _config(1), extend=4, display=Killed(step))
    one = _pretrain(tmp_path, "one", settings_of(begun))  # the settings say it; nobody need ask again
    _same(one, _pretrain(tmp_path, "two", _config(1), extend=4))


def test_an_unfinished_run_is_extended_at_the_end_that_it_was_to_have(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        _pretrain(tmp_path, "one", _config(2), display=Killed(3))
    one = _pretrain(tmp_path, "one", _config(2), extend=3)
    _pretrain(tmp_path, "two", _config(2))
    _same(one, _pretrain(tmp_path, "two", _config(2), extend=3))


def test_an_extended_run_has_other_settings_than_a_run_of_that_length(begun, trained, tmp_path):
    one = _pretrain(tmp_path, "one", _config(1), extend=3)
    assert settings_of(one) != settings_of(trained(3))
    with pytest.raises(RunError, match=r"training.extended: \[1\] in the run, \[\] now"):
        _pretrain(tmp_path, "one", _config(3))


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (["training.epochs=3"], "training.epochs: 2 in the run, 3 now"),
        (["training.epochs=1"], "training.epochs: 2 in the run, 1 now"),
        (["evaluation.knn_neighbours=5"], "evaluation.knn_neighbours: 20 in the run, 5 now"),
        (["evaluation.objective=effective_rank"], "evaluation.objective: holdout_knn in the run"),
        (["training.health=none"], "training.health: act in the run, none now"),
    ],
)
@pytest.mark.parametrize("resume", [True, False])
def test_a_finished_run_is_left_as_it_is_by_whatever_did_not_ask_for_it(asked, said, resume, finished):
    before = content_of(finished)
    config = compose("simclr", overrides=[*FOLDER, "training.epochs=2", *asked])
    with pytest.raises(RunError, match="belongs to a run with other settings") as caught:
        _pretrain(finished.parent, finished.name, config, resume=resume)
    assert said in str(caught.value)
    assert ("--extend 3" in str(caught.value)) == (asked == ["training.epochs=3"])
    assert content_of(finished) == before


def test_what_may_change_from_launch_to_launch_changes_nothing_but_rounding(trained, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        _pretrain(tmp_path, "one", _config(3), display=Killed(3))
    others = ["resources.threads=2", "resources.deterministic=false", "resources.max_failures=9", "data.root=elsewhere"]
    config = compose("byol", overrides=[*FOLDER, *SMALL, "training.epochs=3", "evaluation.knn_every=2", *others])
    one = _pretrain(tmp_path, "one", config)
    for ours, theirs in zip(untimed(one, "train"), untimed(trained(3), "train"), strict=True):
        assert ours == pytest.approx(theirs, rel=1e-2, abs=1e-3)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    config = compose("simclr", overrides=[*FOLDER, "training.epochs=2"])
    return _pretrain(tmp_path_factory.mktemp("runs"), "done", config)


def test_what_cannot_be_extended_is_refused_and_left_as_it_is(finished: Path) -> None:
    before = content_of(finished)
    config, runs, name = settings_of(finished), finished.parent, finished.name
    with pytest.raises(UserError, match="--extend: a run may grow, not shrink, got a total of 1; it has 2 epochs"):
        _pretrain(runs, name, config, extend=1)
    with pytest.raises(RunError, match="nothing to extend, no run of this name; write --epochs 5 instead"):
        _pretrain(runs, "other", config, extend=5)
    with pytest.raises(RunError, match="seed: 0 in the run, 1 now"):
        _pretrain(runs, name, replace(config, seed=1), extend=3)
    assert ebclab.pretrain(config, runs=runs, name=name, extend=2).was_finished
    assert content_of(finished) == before


@pytest.mark.parametrize("extended", [[3], [2, 2], [4, 2], [0]])
def test_totals_that_do_not_grow_are_nosettings_of(extended: list[int]) -> None:
    with pytest.raises(ConfigError, match=r"training\.extended: "):
        compose("simclr", overrides=[*FOLDER, "training.epochs=3", f"training.extended={extended}"])


def test_the_log_says_once_for_each_extension_what_happened_to_the_rate(begun: Path, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        _pretrain(tmp_path, "one", _config(1), extend=3, display=Killed(3))
    one = _pretrain(tmp_path, "one", _config(1), extend=3)
    events = records_of(one, "event", "extended")
    assert [(event["step"], event["before"], event["epochs"]) for event in events] == [(2, 1, 3)]
    assert yaml.safe_load((one / "config.yaml").read_text())["training"]["extended"] == [1]
    measured = {record["step"]: record["learning_rate"] for record in records_of(one, "train")}
    assert (events[0]["rate_before"], events[0]["rate_after"]) == pytest.approx((measured[2], measured[3]), rel=1e-12)


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_a_trial_of_a_sweep_is_not_extended(begun: Path, tmp_path: Path, scheme: str, monkeypatch) -> None:
    monkeypatch.setenv(COPIES, str(tmp_path / "copies"))
    trials = tmp_path / "hunt" / "trials"
    shutil.copytree(begun, trials / "0001")
    (tmp_path / "hunt" / "sweep.yaml").touch()
    before = content_of(trials / "0001")
    place = f"{scheme}{tmp_path}/hunt"
    refused = (
        f"^{place}/trials/0001: a trial of the sweep {place}, whose log says how long it trains; train its settings "
    )
    with pytest.raises(RunError, match=f"{refused}as a separate run, under another --runs, with --epochs 2$"):
        ebclab.pretrain(_config(1), runs=f"{place}/trials", name="0001", extend=2)
    assert content_of(trials / "0001") == before
    (tmp_path / "hunt" / "sweep.yaml").unlink()  # a folder that is only called so
    assert ebclab.pretrain(_config(1), runs=f"{place}/trials", name="0001", extend=2).summary.epochs == 2

"""What the nodes of a cluster are told that runs already."""

import os
import sys
from typing import Any

import pytest
import ray

from ebclab.cluster import join
from ebclab.cluster.switches import SWITCHES, environment_of_nodes, set_ray_switches
from ebclab.config.addresses import STORES
from ebclab.errors import UserError
from ebclab.hardware import usable_processors
from ebclab.storage.filesystem import PATIENCE
from ebclab.storage.object_store import COPIES, UNGUARDED
from ebclab.training.display import LineDisplay


def test_nodes_are_told_what_the_user_said_about_stores_and_nothing_else(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in (COPIES, PATIENCE, UNGUARDED, STORES, "RAY_JOB_CONFIG_JSON_ENV_VAR"):
        monkeypatch.delenv(name, raising=False)
    assert environment_of_nodes() is None
    monkeypatch.setenv(COPIES, "copies")
    monkeypatch.setenv(PATIENCE, "7")
    monkeypatch.setenv(UNGUARDED, "1")
    monkeypatch.setenv(STORES, "http://h:1")
    told = {COPIES: str(tmp_path / "copies"), UNGUARDED: "1", STORES: "http://h:1"}
    assert environment_of_nodes() == {"env_vars": {**told, PATIENCE: "7"}}
    monkeypatch.setenv("RAY_JOB_CONFIG_JSON_ENV_VAR", f'{{"runtime_env": {{"env_vars": {{"{PATIENCE}": "9"}}}}}}')
    assert environment_of_nodes() == {"env_vars": told}


def test_values_of_the_user_are_kept_but_of_switches_without_which_sweeps_would_not_work(monkeypatch):
    """ray#38202: with RAY_AIR_NEW_OUTPUT=1, Tune leaves out our callback: no display, no Ctrl-C, no time limit."""
    users = {
        "RAY_AIR_NEW_OUTPUT": "1",
        "RAY_CHDIR_TO_TRIAL_DIR": "1",
        "RAY_TRAIN_V2_ENABLED": "0",
        "TUNE_DISABLE_SIGINT_HANDLER": "0",
        "TUNE_RESULT_BUFFER_LENGTH": "10",
    }
    needed = {name: "0" if value == "1" else "1" for name, value in users.items()}
    kept = {"RAY_USAGE_STATS_ENABLED": "1", "TUNE_PRINT_ALL_TRIAL_ERRORS": "1"}
    for name in SWITCHES:
        monkeypatch.delenv(name, raising=False)
    for name, value in (users | kept).items():
        monkeypatch.setenv(name, value)
    set_ray_switches()
    assert {name: os.environ[name] for name in SWITCHES} == SWITCHES | needed | kept


@pytest.mark.parametrize(("address", "told"), [("10.0.0.7:6379", {"env_vars": {PATIENCE: "7"}}), ("local", None)])
def test_a_cluster_that_is_joined_is_told_and_one_that_starts_here_inherits(address, told, tmp_path, monkeypatch):
    asked: list[dict[str, Any]] = []

    def refuse(**arguments: Any) -> None:
        asked.append(arguments)
        raise RuntimeError("enough")

    monkeypatch.setattr(ray, "init", refuse)
    monkeypatch.setattr(join, "require_answer", lambda address: None)
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    monkeypatch.setenv("RAY_ADDRESS", address)
    for name in (COPIES, STORES, "RAY_JOB_CONFIG_JSON_ENV_VAR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(PATIENCE, "7")
    with pytest.raises(UserError, match="enough"), join.cluster_session(address, LineDisplay(sys.stderr)):
        pass
    assert [(each["address"], each.get("runtime_env")) for each in asked] == [(address, told)]
    # ray#63685: Ray counts all CPUs of the machine, and those of half a CPU as none
    assert asked[0].get("num_cpus") == (usable_processors() if address == "local" else None)

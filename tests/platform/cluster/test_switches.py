"""What the nodes of a cluster are told that runs already."""

from __future__ import annotations

from pathlib import Path

import pytest

from ebclab.cluster.switches import environment_of_nodes
from ebclab.storage.remote import COPIES
from ebclab.storage.retry import PATIENCE


def test_nodes_are_told_what_the_user_said_about_stores_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(COPIES, "")
    monkeypatch.delenv(PATIENCE, raising=False)
    monkeypatch.delenv("RAY_JOB_CONFIG_JSON_ENV_VAR", raising=False)
    assert environment_of_nodes() is None
    monkeypatch.setenv(COPIES, "copies")
    monkeypatch.setenv(PATIENCE, "7")
    assert environment_of_nodes() == {"env_vars": {COPIES: str(tmp_path / "copies"), PATIENCE: "7"}}
    monkeypatch.setenv("RAY_JOB_CONFIG_JSON_ENV_VAR", f'{{"runtime_env": {{"env_vars": {{"{PATIENCE}": "9"}}}}}}')
    assert environment_of_nodes() == {"env_vars": {COPIES: str(tmp_path / "copies")}}

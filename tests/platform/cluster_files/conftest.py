"""The files of cluster/ as values."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

CLUSTER = Path(__file__).parents[3] / "cluster"

RAYS_OWN = ("DeprecationWarning", "FutureWarning", "ResourceWarning")
"""Warnings that Ray raises in this process; they are not ours to mend."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Function]) -> None:
    """Leave Ray's own warnings alone in this folder."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            for category in RAYS_OWN:
                item.add_marker(pytest.mark.filterwarnings(f"ignore::{category}"))


@pytest.fixture
def launcher_config() -> Callable[[str], dict[str, Any]]:
    """Return a function that reads a file for `ray up` by name."""

    def read(name: str) -> dict[str, Any]:
        config: dict[str, Any] = yaml.safe_load((CLUSTER / name).read_text(encoding="utf-8"))
        return copy.deepcopy(config)  # what YAML's aliases share, Ray would change in several places at once

    return read

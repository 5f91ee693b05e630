"""Settings read quickly are those that YAML has, whatever the text; what ``to_yaml`` writes is read quickly."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from ebclab.config import compose, load_yaml_file, to_yaml
from ebclab.errors import ConfigError
from ebclab.inventory import written
from ebclab.inventory.written import settings_at
from energy_contrast.catalog import METHODS

KEYS = ("method.name", "data.name", "training.epochs", "evaluation.objective")


def by_yaml(path: Path) -> list[Any]:
    content = load_yaml_file(path)
    return [content[section][key] for section, key in (name.split(".") for name in KEYS)]


@pytest.mark.parametrize("method", METHODS)
def test_what_the_platform_writes_is_read_without_yaml(
    method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(
        to_yaml(
            compose(method, overrides=["views.recipe=digits", "data.name=folder:/data/a-b_1", "training.epochs=12"])
        )
    )
    expected = by_yaml(path)
    assert expected == [method, "folder:/data/a-b_1", 12, "holdout_knn"]
    monkeypatch.setattr(written, "load_yaml_file", lambda path: pytest.fail("read as YAML"))
    assert settings_at(path, KEYS) == expected


ODD = [" ", "  ", "\n", ":", ": ", "#", " #x", "'", '"', "- ", "!!int x", "2020-13-45", "null", "yes", "0x1F", "010"]
ODD += ["1_000", "1:30", "&a", "*a", "{", "}", "[", "]", "\t", "\x07", "é", "|", ">", "~", "1e5", "9" * 90, "name: b"]
ODD += ["\n  name: b\n", "\ndata:\n", "\n    more", "training:\n", "\n---\n", "\n...\n", "%YAML", "@", "`", "? ", ","]


def test_text_of_any_other_form_is_read_as_yaml_reads_it(tmp_path: Path) -> None:
    path, text = tmp_path / "config.yaml", to_yaml(compose("simclr"))
    errors = (ConfigError, KeyError, TypeError)
    for seed in range(400):
        source = random.Random(seed)
        lines = text.splitlines(keepends=True)
        few = [line for line in lines if line.strip().partition(":")[0] in {"method", "data", "training", "evaluation"}]
        few += ["  name: a\n", "  epochs: 3\n", "  objective: b\n"]
        short = (
            "method:\n  name: a\n\ndata:\n  name: c\n\ntraining:\n  epochs: 3\n\nevaluation:\n  objective: d\nseed: 0\n"
        )
        for _ in range(source.randrange(1, 3)):
            place = source.randrange(len(short) + 1)
            odd = source.choice([*ODD, *few])
            short = short[:place] + odd + short[place + source.choice([0, 0, 1, 5]) :]
        path.write_text(short)
        try:
            expected: object = by_yaml(path)
        except errors as error:
            expected = type(error)
        try:
            found: object = settings_at(path, KEYS)
        except errors as error:
            found = type(error)
        assert found == expected, short


@pytest.mark.parametrize("ends", ["[]", "[3]", "[3, 7]"])
def test_lists_of_whole_numbers_are_read_without_yaml(
    ends: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(to_yaml(compose("simclr", overrides=[f"training.extended={ends}", "training.epochs=12"])))
    expected = load_yaml_file(path)["training"]["extended"]
    monkeypatch.setattr(written, "load_yaml_file", lambda path: pytest.fail("read as YAML"))
    assert settings_at(path, ("training.extended",)) == [expected]

"""Settings read quickly are those that YAML has, whatever the text; what ``to_yaml`` writes is read quickly."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ebclab.config import ExperimentConfig, compose, load_yaml_file, to_yaml
from ebclab.config.experiment import SECTIONS
from ebclab.config.recipes import list_recipes
from ebclab.errors import ConfigError
from ebclab.inventory import written
from ebclab.inventory.written import settings_at
from energy_contrast.catalog import METHODS

KEYS = ("method.name", "data.name", "training.epochs", "evaluation.objective")
DIGITS = "0123456789abcdef"
IMAGES = "folder:/data/a-b_1"


def by_yaml(path: Path) -> list[Any]:
    content = load_yaml_file(path)
    return [content[section][key] for section, key in (name.split(".") for name in KEYS)]


def assert_read_without_yaml(config: ExperimentConfig, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that every setting of a file is read as YAML reads it, and without parsing the file as YAML."""
    path.write_text(to_yaml(config), encoding="utf-8")
    content = load_yaml_file(path)
    expected = {f"{part}.{key}": value for part in ("method", *SECTIONS) for key, value in content[part].items()}
    with monkeypatch.context() as patched:
        patched.setattr(written, "load_yaml_file", lambda path: pytest.fail("read as YAML"))
        assert settings_at(path, tuple(expected)) == list(expected.values())


@pytest.mark.parametrize("recipe", [None, *list_recipes()])
def test_what_the_platform_writes_is_read_without_yaml(
    recipe: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for method in METHODS:
        config = compose(method, recipe, overrides=["views.recipe=digits", f"data.name={IMAGES}"])
        assert_read_without_yaml(config, tmp_path / "config.yaml", monkeypatch)


TEXTS = [
    "",
    "1e5",
    "1234e5",
    "12e34e56",
    "0x1f",
    "010",
    "1:30",
    "2020-13-45",
    "2020-01-02",
    "1_000",
    "-1",
    ".5",
    "null",
]
TEXTS += [
    "true",
    "no",
    "y",
    "~",
    "=",
    "<<",
    "-",
    "a b",
    "a  b",
    " a",
    "it's",
    'say "a"',
    "a: b",
    "a #b",
    "#a",
    "a:",
    "é",
]
TEXTS += [
    "[a]",
    "{a}",
    "a, b",
    "&a",
    "*a",
    "!a",
    "@a",
    "%a",
    "`a",
    "|",
    ">",
    "? a",
    "- a",
    "s3://b/c?x=1&y=#2",
    "\u4e2d",
]
TEXTS += ["0.1.0", "1.2.3+cu121", "\U0001f600", "C:\\x", "a\\", "''", "'", "123", "12.50", ".inf", ".nan", "timm/x.y_z"]


@pytest.mark.parametrize("first", DIGITS)
def test_digests_and_names_with_any_first_digit_are_read_without_yaml(
    first: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, config = random.Random(first), compose("simclr")
    for kind in (DIGITS, DIGITS, DIGITS, "0123456789", "0123456789e", "01e", "0123456789.", "0123456789_:"):
        text = first + "".join(source.choices(kind, k=63))
        data = replace(config.data, digest=text, name=text[:20], label_column=text[:5])
        assert_read_without_yaml(replace(config, data=data), tmp_path / "config.yaml", monkeypatch)


@pytest.mark.parametrize("text", TEXTS)
def test_text_in_any_quotes_is_read_without_yaml(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = compose("simclr")
    data = replace(config.data, name=text, root=f"/data/{text}", image_column=f"{text}/x")
    assert_read_without_yaml(replace(config, data=data), tmp_path / "config.yaml", monkeypatch)


@pytest.mark.parametrize("number", [0, -1, 10**17, 1e-4, -2.5e-7, 1e22, 0.1, -0.0, 1 / 3, float("inf"), float("-inf")])
def test_numbers_and_lists_of_them_are_read_without_yaml(
    number: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = compose("simclr")
    for extended in ((number,), (number, 3, number), ("few-labels", "a b", "1e5", "-x"), ()):
        training: Any = replace(config.training, extended=extended, log_every=number)
        assert_read_without_yaml(replace(config, training=training), tmp_path / "config.yaml", monkeypatch)


ODD = [" ", "  ", "\n", ":", ": ", "#", " #x", "'", '"', "- ", "!!int x", "2020-13-45", "null", "yes", "0x1F", "010"]
ODD += ["1_000", "1:30", "&a", "*a", "{", "}", "[", "]", "\t", "\x07", "é", "|", ">", "~", "1e5", "9" * 90, "name: b"]
ODD += ["1" * 64, "12e34", ".5", "-", "- 1", "-1", "+1", "1.5.2", "0b1", "=", "<<", "''", '""', "{}", "a: ", "\u2028"]
ODD += [
    "'a'",
    '"\\x"',
    '"\\0"',
    "a: 'b",
    "\x85",
    "\ufeff",
    "\r",
    "-a",
    ", ",
    "[1, a b]",
    "[-]",
    "[010]",
    "[2020-13-45]",
    "[1:30, a]",
    "[-x, 1e5]",
    "[a:]",
    "...",
    "\\",
]
ODD += ["\n  name: b\n", "\ndata:\n", "\n    more", "training:\n", "\n---\n", "\n...\n", "%YAML", "@", "`", "? ", ","]


def test_text_of_any_other_form_is_read_as_yaml_reads_it(tmp_path: Path) -> None:
    path, text = tmp_path / "config.yaml", to_yaml(compose("simclr"))
    errors = (ConfigError, KeyError, TypeError)
    for seed in range(1000):
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
        path.write_text(short, encoding="utf-8")
        try:
            expected: object = by_yaml(path)
        except errors as error:
            expected = type(error)
        try:
            found: object = settings_at(path, KEYS)
        except errors as error:
            found = type(error)
        assert repr(found) == repr(expected), short

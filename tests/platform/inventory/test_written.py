"""Settings read quickly are those that YAML has, whatever the text; what ``to_yaml`` writes is read quickly."""

import random
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest

from ebclab.config import ExperimentConfig, compose, load_yaml_file, to_yaml
from ebclab.config.experiment import SECTIONS
from ebclab.config.recipes import list_recipes
from ebclab.errors import ConfigError
from ebclab.inventory import listing
from ebclab.inventory.listing import settings_at
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
        patched.setattr(listing, "load_yaml_file", lambda path: pytest.fail("read as YAML"))
        assert settings_at(path, tuple(expected)) == list(expected.values())


def test_what_the_platform_writes_is_read_without_yaml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    of_methods: list[tuple[str, str | None]] = [(method, None) for method in METHODS]
    for method, recipe in [*of_methods, *zip(cycle(METHODS), list_recipes(), strict=False)]:
        config = compose(method, recipe, overrides=["views.recipe=digits", f"data.name={IMAGES}"])
        assert_read_without_yaml(config, tmp_path / "config.yaml", monkeypatch)


_ONE_WORD = r"""
1e5 1234e5 12e34e56 0x1f 010 1:30 2020-13-45 2020-01-02 1_000 -1 .5 0.1.0 1.2.3+cu121 123 12.50 .inf .nan
null true no y ~ = << - it's '' ' #a a: [a] {a} &a *a !a @a %a `a | > C:\x a\ timm/x.y_z s3://b/c?x=1&y=#2
"""
TEXTS = [
    *_ONE_WORD.split(),
    *("", "a b", "a  b", " a", 'say "a"', "a: b", "a #b", "a, b", "? a", "- a", "é", "\u4e2d", "\U0001f600"),
]


def _digests() -> Iterator[str]:
    """Yield texts of digits and the like that begin with each of them."""
    for first in DIGITS:
        source = random.Random(first)
        for kind in (DIGITS, "0123456789", "0123456789e", "01e", "0123456789.", "0123456789_:"):
            yield first + "".join(source.choices(kind, k=63))


@pytest.mark.parametrize("texts", [TEXTS, _digests()], ids=["texts", "digests"])
def test_text_in_any_quotes_is_read_without_yaml(texts, tmp_path, monkeypatch):
    config = compose("simclr")
    for text in texts:
        columns = {"image_column": f"{text}/x", "label_column": text[:5]}
        data = replace(config.data, name=text[:20], root=f"/data/{text}", digest=text, **columns)
        assert_read_without_yaml(replace(config, data=data), tmp_path / "config.yaml", monkeypatch)


@pytest.mark.parametrize("number", [0, -1, 10**17, 1e-4, -2.5e-7, 1e22, 0.1, -0.0, 1 / 3, float("inf"), float("-inf")])
def test_numbers_and_lists_of_them_are_read_without_yaml(number, tmp_path, monkeypatch):
    config = compose("simclr")
    for extended in ((number,), (number, 3, number), ("few-labels", "a b", "1e5", "-x"), ()):
        training: Any = replace(config.training, extended=extended, log_every=number)
        assert_read_without_yaml(replace(config, training=training), tmp_path / "config.yaml", monkeypatch)


_ODD_WORDS = r"""
: # ' " 2020-13-45 null yes 0x1F 010 1_000 1:30 &a *a { } [ ] é | > ~ 1e5 12e34 .5 - -1 +1 1.5.2 0b1 = << '' "" {}
'a' "\x" "\0" -a [-] [010] [2020-13-45] [a:] ... \ %YAML @ ` ,
"""
ODD = [
    *_ODD_WORDS.split(),
    *(" ", "  ", "\n", ": ", " #x", "- ", "!!int x", "\t", "\x07", "9" * 90, "1" * 64, "name: b", "- 1", "a: ", "? "),
    *("a: 'b", "\u2028", "\x85", "\ufeff", "\r", ", ", "[1, a b]", "[1:30, a]", "[-x, 1e5]", "\n  name: b\n"),
    *("\ndata:\n", "\n    more", "training:\n", "\n---\n", "\n...\n"),
]


def test_text_of_any_other_form_is_read_as_yaml_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    errors = (ConfigError, KeyError, TypeError)
    for seed in range(1000):
        source = random.Random(seed)
        few = ["method:\n", "data:\n", "training:\n", "evaluation:\n"]
        few += ["  name: a\n", "  epochs: 3\n", "  objective: b\n"]
        short = (
            "method:\n  name: a\n\ndata:\n  name: c\n\ntraining:\n  epochs: 3\n\nevaluation:\n  objective: d\nseed: 0\n"
        )
        for _ in range(source.randrange(1, 3)):
            place = source.randrange(len(short) + 1)
            odd = source.choice([*ODD, *few])
            short = short[:place] + odd + short[place + source.choice([0, 0, 1, 5]) :]
        path.write_text(short, encoding="utf-8")
        found: list[object] = []
        for read in (by_yaml, partial(settings_at, keys=KEYS)):
            try:
                found.append(read(path))
            except errors as error:
                found.append(type(error))
        assert repr(found[0]) == repr(found[1]), short

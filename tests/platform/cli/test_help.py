"""What the command line says of itself: version, help, completion, and what there is."""

import os
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import typer

import ebclab as package
from ebclab.cli.app import app, parser
from ebclab.cli.show import cost_rows, listing
from ebclab.config import VIEW_RECIPES, list_recipes
from energy_contrast.catalog import METHODS

from .conftest import Ebclab, Outcome


def test_the_version_is_that_of_the_package(ebclab: Ebclab) -> None:
    assert ebclab("--version") == Outcome(0, f"ebclab {package.__version__}\n", "")


def test_help_and_version_are_answered_as_other_programs_do(ebclab: Ebclab) -> None:
    assert ebclab("version") == ebclab("-v") == ebclab("-V") == ebclab("--version")
    assert ebclab("help") == ebclab("--help")
    assert ebclab("help", "runs", "list") == ebclab("runs", "list", "--help")
    assert ebclab("help", "pretran").err.startswith("error: pretran: no such command; did you mean pretrain?")


@pytest.mark.parametrize("verb", [(), ("pretrain",), ("runs", "list"), ("submit",)])
def test_the_short_option_is_help_too(ebclab: Ebclab, verb: tuple[str, ...]) -> None:
    short = ebclab(*verb, "-h")
    assert short == ebclab(*verb, "--help")
    assert (short.code, "Usage: ebclab" in short.out) == (0, True)


@pytest.mark.parametrize("verb", [[], ["runs", "list"]])
def test_help_whose_reader_is_gone_is_no_failure(verb: list[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as unread:
        command = [sys.executable, "-m", "ebclab", *verb, "--help"]
        done = subprocess.run(command, stdout=unread, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_verb_that_was_parsed_alone_still_has_both_options_for_help() -> None:
    verb: Any = typer.main.get_command(app).commands["demo"]
    alone = verb.make_context("demo", [])
    assert verb.get_help_option(alone).opts == ["-h", "--help"]


def _verbs(command: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    yield words
    for name, below in getattr(command, "commands", {}).items():
        yield from _verbs(below, (*words, name))


@pytest.mark.parametrize("verb", list(_verbs(parser)), ids=" ".join)
def test_help_flows_at_80_columns_and_flags_take_no_value(ebclab: Ebclab, verb: tuple[str, ...]) -> None:
    lines = ebclab(*verb, "--help").out.splitlines()
    assert max(map(len, lines)) <= 80
    assert not any("<bool>" in line for line in lines)
    assert not any(line.startswith("│ --") and "list[" in line for line in lines)
    prose = [line.strip() for line in lines[: next(n for n, line in enumerate(lines) if line.startswith("╭"))]]
    for line, following in pairwise(prose):
        first, *_ = following.split() or [""]
        assert not (line and first) or len(f" {line} {first}") > 79, line


@pytest.mark.parametrize(
    ("verb", "usage"),
    [
        ("pretrain", "ebclab pretrain [OPTIONS] METHOD"),
        ("evaluate", "ebclab evaluate [OPTIONS] ENCODER..."),
        ("compare", "ebclab compare [OPTIONS] [METHOD...]"),
        ("demo", "ebclab demo [OPTIONS] [FOLDER]"),
        ("runs", "ebclab runs [OPTIONS] COMMAND [ARGS]..."),
    ],
)
def test_usage_has_arguments_as_the_pages_write_them(ebclab: Ebclab, verb: str, usage: str) -> None:
    (line,) = (line.strip() for line in ebclab(verb, "--help").out.splitlines() if "Usage: " in line)
    assert line == f"Usage: {usage}"


def test_a_shell_gets_the_verbs_and_options_that_begin_so() -> None:
    words = {"COMP_WORDS": "ebclab pretrain simclr --re", "COMP_CWORD": "3", "_EBCLAB_COMPLETE": "complete_bash"}
    command = [sys.executable, "-m", "ebclab"]
    done = subprocess.run(command, env={**os.environ, **words}, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["--recipe", "--resume"]


def test_every_name_has_a_line_that_describes_it_and_no_other():
    lists = {kind: listing(kind) for kind in ("methods", "recipes", "views")}
    assert [list(lists[kind]) for kind in lists] == [list(METHODS), list_recipes(), list(VIEW_RECIPES)]
    assert all(text and "\n" not in text for entries in lists.values() for text in entries.values())
    assert listing("methods")["simclr"].startswith("SimCLR: two views of an image")
    assert listing("recipes")["digits-demo"].startswith("the first run")
    lines = listing("methods")
    assert "Langevin" in lines["vem-langevin"]
    assert "Stein" in lines["vem-svgd"]
    assert len(set(lines.values())) == len(lines)


def test_a_method_says_that_it_needs_labels_and_the_paper_that_the_docs_name():
    pages = [path.read_text(encoding="utf-8") for path in (Path(__file__).parents[3] / "docs" / "methods").glob("*.md")]
    lines = listing("methods")
    for name, method in METHODS.items():
        (page,) = [text for text in pages if f"`{name}`" in text.partition("\n")[0]]
        assert method.paper.rpartition(", ")[2] in page  # its number, or the date of one without
        assert lines[name].endswith(f"{method.paper})") or not method.paper
        assert ("(needs labels" in lines[name]) == method.needs_labels


def test_every_method_has_a_row_of_costs():
    heading, *rows = cost_rows()
    assert [name for name, *_ in rows] == list(METHODS)
    assert all(len(row) == len(heading) for row in rows)
    assert ("byol", "4", "2", "1", "0 B") in rows
    assert cost_rows({"simclr": METHODS["simclr"]})[1:] == [("simclr", "2", "2", "0", "0 B")]

"""``ebclab demo``: what it prints is what it runs, and a person can repeat it."""

import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

from ebclab.cli import main
from ebclab.cli.app import parser
from ebclab.storage.lock import locked

from .conftest import TINY, Ebclab

FEW = ["--epochs", "2", "--trials", "1", "--seeds", "1", "--concurrent", "1"]


def test_every_command_of_the_demo_is_one_and_needs_no_file(ebclab: Ebclab) -> None:
    lines = ebclab("demo", "of mine", "--show").out.splitlines()
    assert len(lines) == 7
    assert list(Path.cwd().iterdir()) == []
    for line in lines:
        command: Any = parser
        _, *words = shlex.split(line)
        while hasattr(command, "commands"):
            command, *words = command.commands[words[0]], *words[1:]
        given = command.make_context(command.name, words).params
        assert "of mine" in str(given)
        assert given.get("space") in (None, "examples/digits")


def test_an_empty_folder_is_the_current_one_and_not_the_root_of_the_disk(ebclab: Ebclab) -> None:
    assert ebclab("demo", "", "--show").out == ebclab("demo", ".", "--show").out


@pytest.mark.parametrize(("codes", "run", "ended"), [((0,) * 7, 7, 0), ((0, 0, 130), 3, 130)])
def test_commands_are_printed_as_they_run_and_the_first_failure_ends_it(ebclab, monkeypatch, codes, run, ended):
    monkeypatch.setattr(sys, "argv", ["ebclab", "demo"])
    shown = ebclab("demo", "--show").out.splitlines()
    ran, left = list[str](), iter(codes)

    def record(words: list[str]) -> int:
        assert sys.argv == ["ebclab", *words]
        ran.append(shlex.join(sys.argv))
        return next(left)

    monkeypatch.setattr("ebclab.cli.main", record)
    done = ebclab("demo")
    assert (done.code, ran) == (ended, shown[:run])
    assert [line.removeprefix("$ ") for line in done.out.splitlines() if line.startswith("$ ")] == ran
    assert ("demo/runs/digits/card/card.html" in done.out) == (ended == 0)


def test_a_folder_that_cannot_be_had_is_one_sentence(ebclab: Ebclab) -> None:
    Path("taken").write_text("a file")
    with locked(Path("busy"), busy="runs this demo", option=""):
        refused = [ebclab("demo", folder) for folder in ("taken", "taken/demo", "busy", "s3://bucket/demo")]
    assert [each.code for each in refused] == [2] * 4
    assert [each.err.count("\n") for each in refused] == [1] * 4
    said = "choose another folder with `ebclab demo FOLDER`"
    assert said in refused[0].err
    assert said in refused[1].err
    assert "busy: another process runs this demo" in refused[2].err
    assert "got s3://bucket/demo" in refused[3].err
    assert not any(each.out for each in refused)


@pytest.mark.parametrize(("code", "was_there", "told"), [(2, True, True), (2, False, False), (1, True, False)])
def test_a_refusal_in_a_folder_that_was_there_names_the_remedy(ebclab, monkeypatch, code, was_there, told):
    monkeypatch.setattr(sys, "argv", ["ebclab", "demo"])
    monkeypatch.setattr("ebclab.cli.main", lambda words: code)
    if was_there:
        Path("demo/runs").mkdir(parents=True)
    done = ebclab("demo")
    assert done.code == code
    remedy = "if another version of ebclab began it, name another folder with `ebclab demo FOLDER`, or delete this one"
    assert (remedy in done.err) == told


@pytest.mark.ray
@pytest.mark.slow
def test_the_demo_runs_from_any_folder_and_again(cluster: str, ebclab: Ebclab, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny = [*TINY, "--set", "training.epochs=2"]
    shorter = {"pretrain": [*TINY, "--epochs", "2"], "evaluate": ["--only", "classification"], "sweep": [*tiny, *FEW]}
    monkeypatch.setattr(sys, "argv", ["ebclab", "demo"])
    monkeypatch.setattr("ebclab.cli.main", lambda words: main([*words, *shorter.get(words[0], ())]))
    first, again = ebclab("demo"), ebclab("demo")
    assert (first.code, again.code) == (0, 0), first.err + again.err
    assert "already finished; nothing was trained" in again.out
    made = [line.split()[0] for line in again.out.splitlines() if line.startswith("  demo/")]
    assert len(made) == 3
    for name in (*made, "demo/encoder/README.md", "demo/best/leaderboard.csv"):
        assert Path(name).is_file(), name

"""Names of other people's files are text wherever they leave: in a terminal, in Markdown, in CSV, in JSON and HTML."""

import ast
import csv
import io
import json
import logging
import os
import shlex
import subprocess
import sys
from collections.abc import Collection
from html.parser import HTMLParser
from pathlib import Path

import pytest
import yaml
from hostile_text import HOSTILE, unseen
from rich import table as rich_table
from rich.progress import Progress, TextColumn
from rich.text import Text
from sources import nodes

from ebclab.cli import main
from ebclab.config import compose
from ebclab.config.experiment import to_mapping
from ebclab.config.yaml_text import dump_yaml, from_yaml
from ebclab.errors import ConfigError
from ebclab.formatting import bounded, in_cell, visible
from ebclab.runs.folder import RunFolder
from ebclab.terminal import console, say, write
from ebclab.training.display import BarDisplay, LineDisplay, choose_display

SOURCES = Path(__file__).parents[2] / "platform" / "ebclab"

ALL = pytest.mark.parametrize("name", HOSTILE.values(), ids=HOSTILE)


class Terminal(io.StringIO):
    """A stream that says that it is a terminal."""

    def isatty(self) -> bool:
        return True


def read_back(text: str) -> str:
    """What was escaped, once more."""
    return text.encode("latin-1", "backslashreplace").decode("unicode_escape")


# One text


@ALL
def test_what_is_not_seen_is_escaped_and_all_else_stays(name: str) -> None:
    assert unseen(visible(name)) == set()
    assert read_back(visible(name)) == name
    assert visible(visible(name)) == visible(name)


def test_letters_of_all_languages_stay() -> None:
    for text in ("Ünï 中文 עברית हिन्दी é ± → │ 🦊", "e\u0301", "a\u00a0b"):
        assert visible(text) == text


def test_a_cell_is_one_line_of_bounded_length() -> None:
    assert in_cell("a\nb\tc") == "a\\nb\\tc"
    assert in_cell("x" * 100_000) == "x" * 300 + "... (99,700 more characters)"
    assert bounded("a\nb\nc\nd", 5, 2) == "a\nb\n... (2 more lines)"
    assert bounded("abcd\ne", 4, 2) == "abcd\ne"


def test_a_problem_is_one_line_of_a_message() -> None:
    assert str(ConfigError(["a: wrong, got x\nerror: all is lost", "b"])) == "a: wrong, got x\\nerror: all is lost\nb"


@ALL
def test_yaml_shows_what_it_holds_and_reads_it_back(name: str) -> None:
    text = dump_yaml({"data": {"name": name}, name: [name]})
    assert unseen(text) == set()
    assert from_yaml(text, "it") == yaml.safe_load(text) == {"data": {"name": name}, name: [name]}


# The terminal


@ALL
def test_what_is_said_is_shown(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    say(name)
    say(name, err=True)
    assert capsys.readouterr() == (f"{visible(name)}\n", f"{visible(name)}\n")


@ALL
def test_a_console_shows_names_and_obeys_only_itself(name: str) -> None:
    stream = Terminal()
    screen = console(stream)
    screen.width = 200
    table = rich_table.Table(title=name)
    table.add_column(name)
    table.add_row(Text(name, style="bold"))
    screen.print(table)
    screen.print(name)
    with Progress(TextColumn("{task.description}", markup=False), console=screen) as progress:
        progress.add_task(name)
        progress.console.print(name)
    written = stream.getvalue()
    for own in ("\x1b[?25l", "\x1b[?25h", "\x1b[2K", "\x1b[1A", "\x1b[3m", "\x1b[1m", "\x1b[0m", "\r"):
        written = written.replace(own, "")
    assert unseen(written) == set()
    shown = [] if "\t" in name else visible(name).split()  # rich cuts cells with tabs
    assert all(written.count(word) >= 4 for word in shown)  # of five; rich drops some controls of a Text


def test_only_one_file_writes_to_the_terminal() -> None:
    ways = {"print", "typer.echo", "typer.secho", "click.echo", "rich.console.Console", "Console", "rich.print"}
    found = []
    for path in sorted(SOURCES.rglob("*.py")):
        for node in nodes(path):
            name = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
            if name in ways or name.endswith(("stdout.write", "stderr.write")):
                found.append(f"{path.relative_to(SOURCES)}: {name}")
    assert found == []


@pytest.mark.parametrize("length", [100_000, 3])
def test_errors_and_logs_are_shown_and_bounded(length: int, capsys: pytest.CaptureFixture[str]) -> None:
    name = "\x1b[2J\u202e" + "x" * length
    assert main(["report", name]) == 2
    logging.getLogger("ebclab").warning("%s", name)
    said = capsys.readouterr().err
    assert unseen(said) == set()
    assert said.count(r"\x1b[2J\u202exxx") >= 2
    assert len(said) < 20_000


def test_tracebacks_and_warnings_are_shown() -> None:
    body = "import warnings; from ebclab.cli import run_process\n"
    body += "def fails():\n    warnings.warn('\\x1b[2Jw')\n    raise KeyError('\\x1b[2Jt', 'https://me:secret@host')\n"
    body += "class Odd(Exception):\n    pass\n"
    body += "def work():\n    try: fails()\n    except KeyError as e: raise Odd('\\x1b[2Jo') from e\nrun_process(work)"
    done = subprocess.run([sys.executable, "-c", body], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert unseen(done.stderr) == set()
    assert "Odd: \\x1b[2Jo" in done.stderr
    assert "UserWarning: \\x1b[2Jw" in done.stderr
    assert "secret" not in done.stderr


# Files


class Tags(HTMLParser):
    """The tags of a page with the names of their attributes, in order."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, tuple[str, ...]]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, tuple(name for name, _ in attrs)))


def _reported(folder: Path, names: Collection[str]) -> dict[str, str]:
    """Make a report of runs whose folder, dataset, machine and events have such names; its files by ending."""
    for number, name in enumerate(names):
        run = RunFolder.at(folder / f"{name.replace('/', ':')}{number}")
        run.path.mkdir(parents=True)
        settings = to_mapping(compose("simclr"))
        settings["data"]["name"] = name
        run.config_path.write_text(dump_yaml(settings))
        run.metrics.append("event", 0, event="started", ranks=1, num_steps=4)
        run.metrics.append("train", 1, epoch=0, seconds=1.0, loss=-0.5)
        run.metrics.append("event", 1, event="failed", reason=name)
        (run.path / "environment.json").write_text(json.dumps({"processor": name, "device": name, "torch": name}))
    runs = sorted(map(str, folder.iterdir()))
    assert main(["report", *runs, "--to", str(folder / "page.html")]) == 0
    return {ending: (folder / f"page.{ending}").read_text("utf-8") for ending in ("html", "csv", "json")}


def test_reports_of_runs_with_hostile_names_hold(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = _reported(tmp_path / "hostile", HOSTILE.values())
    harmless = _reported(tmp_path / "harmless", [f"name {number}" for number in range(len(HOSTILE))])
    assert Tags(told["html"]).found == Tags(harmless["html"]).found
    assert unseen(told["json"]) == set()
    facts = [each["settings"]["data.name"] for each in json.loads(told["json"])]
    assert sorted(facts) == sorted(HOSTILE.values())
    for row in list(csv.reader(io.StringIO(told["csv"], newline="")))[1:]:
        assert row[0][0] not in "=+-@\t\r"
        assert "-0.5" in row
    capsys.readouterr()
    for words in (["runs", "list", "--runs", str(tmp_path / "hostile")], ["runs", "show", *_runs(tmp_path)]):
        assert main(words) == 0
        said = capsys.readouterr()
        assert unseen(said.out + said.err) == set()
        assert r"\x1b" in said.out


def _runs(folder: Path) -> list[str]:
    return [str(path) for path in sorted((folder / "hostile").iterdir()) if path.is_dir()]


# A process without its streams


AS_THE_PROGRAM = """
import atexit, os, sys
from ebclab.cli import main, run_process
def look():
    if any(os.path.realpath(f"/proc/self/fd/{number}") != "/dev/null" for number in os.environ["CLOSED"]):
        os._exit(9)
atexit.register(look)
run_process(main)
"""


@pytest.mark.parametrize(("closed", "numbers"), [(">&-", "1"), ("2>&-", "2"), ("<&- >&- 2>&-", "012")])
def test_a_command_works_without_its_output(closed: str, numbers: str, tmp_path: Path) -> None:
    """The null device is in place of what is missing until the end."""
    command = shlex.join([sys.executable, "-c", AS_THE_PROGRAM, "runs", "list"])
    script, said = f"exec {command} {closed}", {**os.environ, "CLOSED": numbers}
    done = subprocess.run(["sh", "-c", script], cwd=tmp_path, env=said, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_no_file_and_no_child_gets_the_number_of_a_missing_stream(tmp_path: Path) -> None:
    body = "import os, subprocess, sys; from ebclab.terminal import open_missing_streams; open_missing_streams()\n"
    body += "file = os.open(sys.argv[1], os.O_CREAT | os.O_WRONLY)\n"
    body += "kinds = [os.readlink(f'/proc/self/fd/{n}') for n in range(3)]\n"
    body += "code = subprocess.run(['sh', '-c', 'echo x >&2 && echo x']).returncode\n"
    body += "sys.exit(file > 2 and kinds == ['/dev/null'] * 3 and code == 0)"
    command = shlex.join([sys.executable, "-c", body, str(tmp_path / "file")])
    done = subprocess.run(["sh", "-c", f"exec {command} <&- >&- 2>&-"], check=False)
    assert done.returncode == 1  # of True


def test_a_stream_that_is_missing_is_no_terminal_and_no_obstacle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stderr", None)
    monkeypatch.setattr(sys, "stdout", None)
    display = choose_display()
    assert isinstance(display, LineDisplay)
    display.note("nobody hears it")
    BarDisplay().note("nor this")
    say("or this")
    write("or this", None)
    small = ["data.train_limit=64", "training.batch_size=32", "training.epochs=1", "resources.threads=1"]
    settings = [word for each in small for word in ("--set", each)]
    assert main(["pretrain", "simclr", "--runs", str(tmp_path), "--name", "run", *settings]) == 0
    for opened in (sys.stdout, sys.stderr):  # in their places
        opened.close()
    assert (tmp_path / "run" / "result.json").is_file()

"""The code on the pages is code that runs: commands are parsed by the command line itself, Python is run as printed.

A block of Python that cannot run here has a comment above it, ``<!-- not run: why -->``, which readers do not see.
"""

import ast
import importlib.util
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
import yaml
from PIL import Image

from ebclab.cli import main
from ebclab.cli.app import parser
from ebclab.config import list_recipes
from ebclab.config.encoder import EncoderConfig
from ebclab.config.experiment import SECTIONS
from ebclab.data.preprocessing import Preprocessing
from ebclab.encoders.build import new_encoder
from ebclab.export import CardFacts, save_encoder
from ebclab.sweeps.space.space import parse_space
from energy_contrast.catalog import METHODS

from .test_docs import PAGES, ROOT

PAGES = [*PAGES, *(ROOT / folder / "README.md" for folder in ("cluster", "search_spaces", "studies"))]
TUTORIALS = ROOT / "docs" / "tutorials"
FENCE = re.compile(r"^(?:<!-- (.+?) -->\n)?( *)```(\w*)\n(.*?)^\2```", re.MULTILINE | re.DOTALL)
PYTHON_IS_RUN = (
    *("README.md", "docs/export.md", "docs/watching.md"),
    *("docs/tutorials/1-own-images.md", "docs/tutorials/4-new-method.md"),
)
"""Pages whose Python a test below runs."""
SETTINGS = {
    *(f"{section}.{field.name}" for section, config in SECTIONS.items() for field in fields(config)),
    *(f"method.{field.name}" for method in METHODS.values() for field in fields(method.Config)),
    *("seed", "method.num_negatives"),
}


def blocks(page: Path, *languages: str) -> list[tuple[str, str]]:
    """Return comment and content of the blocks in these languages; a comment is empty where there is none."""
    found = FENCE.findall(page.read_text(encoding="utf-8"))
    return [(comment, content) for comment, _, language, content in found if language in languages]


def commands(text: str) -> Iterator[list[str]]:
    """Yield the words after ``ebclab`` of each command line that no error follows, options of several lines joined."""
    lines = re.sub(r"\\\n\s*", "", text).splitlines()
    for line, answer in pairwise([*lines, ""]):
        if answer.startswith("error: "):
            continue
        line = re.sub(r"\s+#.*", "", line.strip().removeprefix("$ "))
        if not re.match(r"(?:\w+=\S+ )*(?:\S*/)?ebclab [a-zA-Z]", line):
            continue
        words = shlex.split(line)
        start = next(number for number, word in enumerate(words) if word.rpartition("/")[2] == "ebclab")
        yield [word for word in words[start + 1 :] if word != "..."]


def shown_commands(page: Path) -> list[list[str]]:
    text = page.read_text(encoding="utf-8")
    indented = "\n".join(re.findall(r"^ {4,}(.+)$", FENCE.sub("", text), re.MULTILINE))
    return [found for part in (*(content for _, content in blocks(page, "")), indented) for found in commands(part)]


def parse(words: list[str], shown: str) -> None:
    """Let the command line parse the words of a verb, and run nothing."""
    command = parser
    context = command.make_context("ebclab", words[:1] or ["show"])
    while hasattr(command, "commands"):
        assert words, f"{shown}: a verb is missing"
        if words[0].isupper():  # a word for any verb
            return
        assert words[0] in command.commands, f"{shown}: no such verb"
        command, words = command.commands[words[0]], words[1:]
    if command.name == "submit" and "--" in words:
        start = words.index("--")
        parse(words[start + 1 :], shown)
        words = words[:start] if words[:start] else ["--list"]
    command.make_context(command.name, list(words), parent=context)


def require_commands(found: list[list[str]], where: str) -> None:
    """Require that command lines are parsed, and that the settings and recipes on them exist."""
    for words in found:
        shown = f"{where}: ebclab {' '.join(words)}"
        try:
            parse(words, shown)
        except Exception as error:
            raise AssertionError(f"{shown}: {getattr(error, 'message', error)}") from error
        options = list(pairwise(words))
        keys = {value.partition("=")[0].rpartition(":")[2] for option, value in options if option == "--set"}
        assert {key for key in keys if "." in key and key.islower()} <= SETTINGS, shown
        assert {value for option, value in options if option == "--recipe"} <= set(list_recipes()), shown


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_command_line_is_one(page: Path) -> None:
    require_commands(shown_commands(page), page.name)


def commands_of_help(command: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield every command that is no group, with its words."""
    for name, below in command.commands.items():
        if hasattr(below, "commands"):
            yield from commands_of_help(below, (*words, name))
        else:
            yield (*words, name), below


@pytest.mark.parametrize(
    ("words", "command"), [*commands_of_help(parser)], ids=lambda it: " ".join(it) if isinstance(it, tuple) else ""
)
def test_help_ends_with_two_examples_and_groups_many_options(words: tuple[str, ...], command: Any) -> None:
    first, *examples = command.epilog.split("\n\n")
    assert first == "Examples:"
    assert [tuple(line.split()[1 : 1 + len(words)]) for line in examples] == [words, words]
    assert max(map(len, examples)) <= 78  # one line at 80 columns
    require_commands([found for line in examples for found in commands(line)], f"{' '.join(words)} --help")
    panels = [each.rich_help_panel or "Options" for each in command.params if each.param_type_name == "option"]
    assert max(map(panels.count, panels), default=0) <= 8


def test_the_command_lines_are_found() -> None:
    found = [words for page in PAGES for words in shown_commands(page)]
    assert len(found) > 60
    assert ["submit", "--stop", "ID"] in found


@pytest.mark.parametrize(
    "line",
    ["ebclab pretrain simclr --epoch 3", "ebclab sweeep simclr", "ebclab export", "ebclab submit -- sweep --top x"],
)
def test_a_command_line_that_is_none_is_noticed(line: str) -> None:
    (words,) = commands(line)
    with pytest.raises(BaseException, match=r"(?i)no such|missing|valid integer"):
        parse(words, line)


def test_every_block_of_python_is_run_or_says_why_not() -> None:
    with_python = {
        page.relative_to(ROOT).as_posix()
        for page in PAGES
        if any(not comment.startswith("not run: ") for comment, _ in blocks(page, "python"))
    }
    assert with_python == set(PYTHON_IS_RUN)


def run_as_module(name: str, code: str, folder: Path) -> ModuleType:
    """Import code from a file, under a name that other code may import."""
    path = folder / f"{name.rpartition('.')[2]}.py"
    path.write_text(code, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def files_on(page: Path) -> dict[str, str]:
    """Return the files that a page shows whole, by path."""
    shown = blocks(page, "python", "yaml")
    return {comment.removeprefix("file: "): content for comment, content in shown if comment.startswith("file: ")}


def test_a_method_in_a_file_of_ones_own_is_trained_as_the_tutorial_says(tmp_path, monkeypatch, capsys):
    page = TUTORIALS / "4-new-method.md"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setitem(sys.modules, "hardest", ModuleType("hardest"))  # taken out again when the test has ended
    del sys.modules["hardest"]
    Path("hardest.py").write_text(files_on(page)["hardest.py"])
    pretrain = next(words for words in shown_commands(page) if "first" in words)
    assert main([*pretrain, "--epochs", "1", "--set", "data.train_limit=200", "--set", "encoder.width=4"]) == 0
    (python,) = (code for comment, code in blocks(page, "python") if "ebclab.compose" in code)
    capsys.readouterr()
    exec(compile(python, page.name, "exec"), {})
    assert 0.1 < float(capsys.readouterr().out.splitlines()[-1]) <= 1
    recorded = {Path("runs", name, "config.yaml").read_text().split("\nviews:")[0] for name in ("first", "from-python")}
    assert len(recorded) == 1  # the same method, settings, digest and images, from the command line and from Python


def test_the_photographs_of_the_tutorial_have_no_crop_in_both_parts(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ((_, code),) = blocks(TUTORIALS / "1-own-images.md", "python")
    exec(compile(code, "1-own-images.md", "exec"), {})
    found = {part: sorted(Path("photos", part).rglob("*.jpg")) for part in ("train", "test")}
    assert {part: len(files) for part, files in found.items()} == {"train": 476, "test": 84}
    ends = {part: {int(file.stem.partition("-")[2]) for file in files} for part, files in found.items()}
    assert max(ends["train"]) + 96 <= min(ends["test"])  # columns of pixels


def test_the_method_of_the_tutorial_is_what_its_own_test_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = TUTORIALS / "4-new-method.md"
    files = files_on(page)
    name = "energy_contrast.contrastive.hardest"
    monkeypatch.setitem(sys.modules, name, ModuleType(name))  # taken out again when the test has ended
    method = run_as_module(name, files["methods/energy_contrast/contrastive/hardest.py"], tmp_path).Hardest
    monkeypatch.setitem(sys.modules, "test_hardest", ModuleType("test_hardest"))
    test = run_as_module("test_hardest", files["tests/methods/contrastive/test_hardest.py"], tmp_path)
    for num_negatives in (1, 3):
        test.test_loss_is_the_equation(num_negatives)
    test.test_with_all_negatives_it_is_simclr()
    space = parse_space(yaml.safe_load(files["search_spaces/hardest.yaml"]), "hardest")
    searched = {parameter.name.removeprefix("method.") for parameter in space.parameters if "method." in parameter.name}
    assert searched <= {field.name for field in fields(method.Config)}


@pytest.mark.slow
def test_the_python_of_the_page_about_exports_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Image.new("RGB", (40, 30), "red").save("photo.jpg")
    networks = [("resnet18", 3), ("resnet18", 3), ("timm/vit_tiny_patch16_224", 1)]
    run_here = [code for comment, code in blocks(ROOT / "docs" / "export.md", "python") if not comment]
    for (name, channels), code in zip(networks, run_here, strict=True):
        architecture, channel = EncoderConfig(name=name), (0.5,) * channels
        encoder = new_encoder(architecture, channels, 32).eval()
        how = {"in_channels": channels, "preprocessing": Preprocessing(32, channel, channel), "overwrite": True}
        save_encoder("DIR", encoder, architecture=architecture, facts=CardFacts("mine", "simclr", ""), **how)
        given: dict[str, Any] = {"files": ["photo.jpg"]}
        exec(compile(code, "export.md", "exec"), given)
        images = torch.rand(2, channels, 32, 32)
        torch.testing.assert_close(given["encoder"](images), encoder(images))
        assert "features" not in given or given["features"].shape == (1, 512)


@pytest.mark.slow
def test_the_python_of_the_readme_runs(tmp_path: Path) -> None:
    (file, method), (_, code) = blocks(ROOT / "README.md", "python")
    (tmp_path / file.removeprefix("file: ")).write_text(method)
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert 0.3 < float(done.stdout.splitlines()[-1]) < 1  # chance is 0.1


@pytest.mark.slow
def test_the_python_of_the_page_about_watching_runs(tmp_path: Path) -> None:
    one_core = "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})"  # threads that wait take time too
    code = "\n".join([one_core, *(content for _, content in blocks(ROOT / "docs" / "watching.md", "python"))])
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0].startswith("finished [")
    assert (tmp_path / "runs" / "watched" / "report.html").is_file()
    measured = ast.literal_eval(done.stdout.splitlines()[-1])
    assert [*measured] == [10, 20]  # of 20 steps
    assert all(0.3 < accuracy <= 1 for accuracy in measured.values())  # chance is 0.1

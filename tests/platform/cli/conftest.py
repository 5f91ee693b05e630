"""The command line in this process: arguments in; exit code, output and error text out."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from ebclab.cli import main

TINY = ["--set", "data.train_limit=96", "--set", "training.batch_size=32", "--set", "resources.threads=1"]
"""Two steps an epoch on real digits: enough for every path, a second of work."""


class Outcome(NamedTuple):
    """What a command left behind."""

    code: int
    out: str
    err: str

    @property
    def ok(self) -> Outcome:
        """The same, of a command that has done its work."""
        assert self.code == 0, self.err
        return self

    @property
    def refusal(self) -> str:
        """What a command says that refuses a mistake of the user: all of its error text."""
        assert self.code == 2, self.err
        assert "error: " in self.err
        assert "Traceback" not in self.err
        return self.err


Ebclab = Callable[..., Outcome]
"""Runs ``ebclab`` with arguments."""


@pytest.fixture
def ebclab(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ebclab:
    """Run ``ebclab`` with arguments in an empty folder, 80 columns wide."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.delenv("EBCLAB_DATA", raising=False)

    def run(*arguments: str | Path) -> Outcome:
        capsys.readouterr()
        code = main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return Outcome(code, captured.out, captured.err)

    return run


@pytest.fixture(scope="session")
def trained_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of two epochs, trained once for all tests; they have copies of it."""
    folder = tmp_path_factory.mktemp("trained")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.delenv("EBCLAB_DATA", raising=False)
        assert main(["pretrain", "flatclr", "--epochs", "2", "--name", "done", *TINY]) == 0
    return folder / "runs" / "done"


@pytest.fixture
def finished(ebclab: Ebclab, trained_once: Path) -> Path:
    """A finished run of two epochs in runs/done."""
    return Path(shutil.copytree(trained_once, "runs/done")).absolute()

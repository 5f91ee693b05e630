"""What the command line says of itself: version, help, completion."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable

import pytest

import ebclab as package

from .conftest import Outcome

Ebclab = Callable[..., Outcome]


def test_the_version_is_that_of_the_package(ebclab: Ebclab) -> None:
    assert ebclab("--version") == Outcome(0, f"ebclab {package.__version__}\n", "")


@pytest.mark.parametrize("verb", [(), ("pretrain",), ("runs", "list"), ("submit",)])
def test_the_short_option_is_help_too(ebclab: Ebclab, verb: tuple[str, ...]) -> None:
    short = ebclab(*verb, "-h")
    assert short == ebclab(*verb, "--help")
    assert (short.code, "Usage: ebclab" in short.out) == (0, True)


def test_a_shell_gets_the_verbs_and_options_that_begin_so() -> None:
    words = {"COMP_WORDS": "ebclab pretrain simclr --re", "COMP_CWORD": "3", "_EBCLAB_COMPLETE": "complete_bash"}
    command = [sys.executable, "-m", "ebclab"]
    done = subprocess.run(command, env={**os.environ, **words}, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["--recipe", "--resume"]

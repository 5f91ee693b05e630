"""``ebclab export`` and ``ebclab runs`` at the keyboard."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from ebclab import formatting
from ebclab.cli import runs
from ebclab.export import load_encoder

from .conftest import Outcome

Ebclab = Callable[..., Outcome]


def test_a_run_is_exported_in_another_format_and_compared_on_its_held_out_images(
    ebclab: Ebclab, finished: Path
) -> None:
    done = ebclab("export", finished, "--to", "out", "--format", "torch-export")
    assert done.code == 0, done.err
    assert {path.name for path in Path("out").iterdir()} == {
        "model.safetensors",
        "encoder.json",
        "README.md",
        "model.pt2",
    }
    assert "held-out images of digits" in Path("out/README.md").read_text()
    loaded = load_encoder("out")
    pixels = torch.rand(3, 1, 8, 8)
    torch.testing.assert_close(torch.export.load("out/model.pt2").module()(pixels), loaded.encoder(pixels))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--format", "onxx"], "--format: no such format, got 'onxx'; did you mean onnx?"),
        (["--top", "2"], "--top: is for sweeps, got"),
        (["--unconfirmed"], "--unconfirmed: is for sweeps, got"),
    ],
)
def test_what_does_not_fit_a_run_is_refused(ebclab: Ebclab, finished: Path, arguments: list[str], said: str) -> None:
    refused = ebclab("export", finished, "--to", "out", *arguments)
    assert (refused.code, Path("out").exists()) == (2, False)
    assert said in refused.err


def test_without_the_packages_of_onnx_the_command_to_install_them_is_printed(
    ebclab: Ebclab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, package=None: None)
    refused = ebclab("export", "runs/any", "--to", "out", "--format", "onnx")
    assert refused.code == 2
    assert "run `pip install 'onnx>=1.19'" in refused.err


def test_a_folder_that_is_neither_run_nor_sweep_is_one_sentence(ebclab: Ebclab) -> None:
    Path("empty").mkdir()
    refused = ebclab("export", "empty", "--to", "out")
    assert refused.code == 2
    assert "no run here" in refused.err


def test_runs_are_listed_with_what_they_are(ebclab: Ebclab, finished: Path) -> None:
    shown = ebclab("runs", "list")
    assert shown.code == 0
    row = next(line for line in shown.out.splitlines() if line.startswith("done "))
    assert row.split()[1:5] == ["flatclr", "digits", "2/2", "epochs"]
    assert "finished" in row


def test_a_long_name_stays_whole_in_a_narrow_terminal(ebclab: Ebclab, finished: Path) -> None:
    name = "flatclr-fashion-mnist-seed0"
    finished.rename(finished.with_name(name))
    heads, row = ebclab("runs", "list").out.splitlines()
    assert heads.split()[:6] == ["name", "method", "data", "done", "score", "state"]
    assert row.split()[:5] == [name, "flatclr", "digits", "2/2", "epochs"]


def test_an_empty_place_says_so_and_a_wrong_one_is_refused(ebclab: Ebclab) -> None:
    assert ebclab("runs", "list").out == "no runs in runs, no sweeps in sweeps, no comparisons in comparisons\n"
    assert ebclab("runs", "clean").out == "nothing to delete\n"
    refused = ebclab("runs", "list", "--runs", "nowhere")
    assert (refused.code, refused.err) == (2, "error: --runs: there is no such folder, got nowhere\n")


def test_nothing_is_deleted_without_a_yes(ebclab: Ebclab, finished: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left = finished / ".ray" / "state"
    left.parent.mkdir(exist_ok=True)
    left.write_bytes(b"x" * 2500)
    shown = ebclab("runs", "clean")
    assert "2.5 kB  runs/done: what Ray left behind\n" in shown.out
    assert shown.out.endswith("nothing was deleted; --yes deletes it\n")
    assert left.exists()
    monkeypatch.setattr(runs.sys.stdin, "isatty", lambda: True)
    for answer, sentence, stays in ((False, "nothing was deleted\n", True), (True, "freed 2.5 kB\n", False)):
        monkeypatch.setattr(runs.typer, "confirm", lambda question, answer=answer: answer)
        assert ebclab("runs", "clean").out.endswith(sentence)
        assert left.exists() == stays
    assert ebclab("export", finished, "--to", "out").code == 0


def test_yes_deletes_without_a_question(ebclab: Ebclab, finished: Path) -> None:
    (finished / ".ray").mkdir(exist_ok=True)
    assert ebclab("runs", "clean", "--yes").out.endswith("freed 0 B\n")
    assert not (finished / ".ray").exists()


@pytest.mark.parametrize(
    ("num_bytes", "said"), [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (52_000, "52 kB"), (3_400_000_000, "3.4 GB")]
)
def test_sizes_are_read_at_a_glance(num_bytes: int, said: str) -> None:
    assert formatting.size(num_bytes) == said


@pytest.mark.parametrize(("seconds", "said"), [(5, "5 s"), (90, "2 min"), (7200, "2 h"), (200_000, "2 d")])
def test_ages_are_read_at_a_glance(seconds: float, said: str) -> None:
    assert formatting.age(seconds) == said

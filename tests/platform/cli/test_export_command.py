"""``ebclab export`` and ``ebclab runs`` at the keyboard."""

import importlib.util
from pathlib import Path

import pytest
import torch

from ebclab.cli import runs
from ebclab.export import load_encoder

from .conftest import Ebclab


def test_a_run_is_exported_in_another_format_and_compared_on_its_held_out_images(ebclab, finished):
    assert ebclab("export", finished, "--to", "out", "--format", "torch-export").ok
    files = {"model.safetensors", "encoder.json", "README.md", "model.pt2"}
    assert {path.name for path in Path("out").iterdir()} == files
    assert "held-out images of digits" in Path("out/README.md").read_text()
    loaded = load_encoder("out")
    pixels = torch.rand(3, 1, 8, 8)
    torch.testing.assert_close(torch.export.load("out/model.pt2").module()(pixels), loaded.encoder(pixels))


@pytest.mark.parametrize(
    ("source", "arguments", "said"),
    [
        ("runs/done", ["--format", "onxx"], "--format: no such format, got 'onxx'; did you mean onnx?"),
        ("runs/done", ["--top", "2"], "--top: is for sweeps, got"),
        ("runs/done", ["--unconfirmed"], "--unconfirmed: is for sweeps, got"),
        ("runs/done", ["--format", "onnx"], "run `pip install 'onnx>=1.19'"),
        (".", [], "no run here"),
    ],
)
def test_what_cannot_be_exported_is_refused(ebclab, finished, monkeypatch, source, arguments, said):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, package=None: None)  # as without onnx
    assert said in ebclab("export", source, "--to", "out", *arguments).refusal
    assert not Path("out").exists()


def test_an_empty_place_says_so_and_a_wrong_one_is_refused(ebclab: Ebclab) -> None:
    assert ebclab("runs", "list").out == "no runs in runs, no sweeps in sweeps, no comparisons in comparisons\n"
    assert ebclab("runs", "clean").out == "nothing to delete\n"
    refused = ebclab("runs", "list", "--runs", "nowhere")
    assert (refused.code, refused.err) == (2, "error: --runs: there is no such folder, got nowhere\n")


def test_what_is_left_over_is_deleted_after_a_yes_alone(ebclab, finished, monkeypatch):
    left = finished / ".ray" / "state"
    left.parent.mkdir(exist_ok=True)
    left.write_bytes(b"x" * 2500)
    shown = ebclab("runs", "clean")
    assert "2.5 kB  runs/done: what Ray left behind\n" in shown.out
    assert (shown.code, shown.out.splitlines()[-1]) == (2, "nothing was deleted; --yes deletes it")
    assert left.exists()
    monkeypatch.setattr(runs.sys.stdin, "isatty", lambda: True)
    for answer, sentence, stays in ((False, "nothing was deleted\n", True), (True, "freed 2.5 kB\n", False)):
        monkeypatch.setattr(runs.typer, "confirm", lambda question, answer=answer: answer)
        assert ebclab("runs", "clean").out.endswith(sentence)
        assert left.exists() == stays
    assert ebclab("export", finished, "--to", "out").code == 0
    (finished / ".ray").mkdir(exist_ok=True)
    assert ebclab("runs", "clean", "--yes").out.endswith("freed 0 B\n")
    assert not (finished / ".ray").exists()

"""Runs in a store, listed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ebclab.cli import main
from ebclab.storage.home import COPIES, Home
from ebclab.storage.keeper import leased


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The address of a folder with one run, whose weights are 3,000,000 bytes."""
    monkeypatch.setenv(COPIES, str(tmp_path / "copies"))
    monkeypatch.chdir(tmp_path)
    run = tmp_path / "runs" / "one"
    assert main(["pretrain", "simclr", "--epochs", "1", "--runs", str(run.parent), "--name", "one", *_tiny()]) == 0
    weights = run / "checkpoints" / "kept-0000000001"
    weights.mkdir()
    (weights / "model.safetensors").write_bytes(bytes(3_000_000))
    (weights / "manifest.json").write_text(json.dumps({"files": {}}))
    return f"file://{run.parent}"


def _tiny() -> list[str]:
    return ["--set", "data.train_limit=64", "--set", "training.batch_size=16"]


def test_runs_in_a_store_are_listed_with_the_size_they_have_there(
    runs: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    assert main(["runs", "list", "--runs", runs]) == 0
    said = capsys.readouterr().out
    assert "one" in said
    assert "1/1 epochs" in said
    stored = tmp_path / "runs" / "one"
    size = sum(path.stat().st_size for path in stored.rglob("*") if path.is_file()) / 1e6
    assert (f"{size:.0f} MB" if size >= 10 else f"{size:.1f} MB") in said
    assert "finished" in said
    assert not list((tmp_path / "copies").rglob("*.safetensors"))
    with leased(Home(runs, "one"), "is training"):
        assert main(["runs", "list", "--runs", runs]) == 0
    assert "running" in capsys.readouterr().out


def test_what_lies_in_a_store_is_not_cleaned_and_says_how(runs: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["runs", "clean", "--runs", runs]) == 2
    assert f"--runs: only folders on a disk can be cleaned, got {runs}; delete in a store" in " ".join(
        capsys.readouterr().err.split()
    )

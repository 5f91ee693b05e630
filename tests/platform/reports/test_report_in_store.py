"""Reports of and in a store."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from ebclab.cli import main
from ebclab.reports.reading import read_sweep
from ebclab.reports.sections import commands


@pytest.fixture
def sweep(sweep_folder: Callable[..., Any], bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A sweep's folder in the bucket s3://bucket."""
    monkeypatch.chdir(tmp_path)
    folder = sweep_folder()
    folder.search(0, [0.5, 0.6, 0.7, 0.8])
    return Path(folder.path)


def test_a_page_is_written_directly_into_a_bucket(
    sweep: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", f"s3://bucket/{sweep.name}", "--to", "s3://bucket/one.html"]) == 0
    assert "report: s3://bucket/one.html" in capsys.readouterr().out
    assert {path.name for path in sweep.parent.glob("one.*")} == {"one.html", "one.csv", "one.json"}
    assert not list(tmp_path.glob("s3:*"))
    assert not list((tmp_path / "copies").glob("*/user"))
    for wrong, said in (("s3://bucket", "s3://bucket/report.html"), ("s3://bucket/one.txt", "s3://bucket/one.txt;")):
        assert main(["report", f"s3://bucket/{sweep.name}", "--to", wrong]) == 2
        assert said in " ".join(capsys.readouterr().err.split())


def test_a_sweep_in_a_store_was_last_heard_of_when_its_log_was_written_there(sweep: Path) -> None:
    os.utime(sweep / "trials.jsonl", (1_000_000_000, 1_000_000_000))
    assert read_sweep(f"s3://bucket/{sweep.name}").read_at == datetime.fromtimestamp(1_000_000_000, UTC)


def test_commands_name_the_store_and_not_the_copy_that_was_read(sweep: Path) -> None:
    told = commands(read_sweep(f"s3://bucket/{sweep.name}"))
    settings = f"s3://bucket/{sweep.name}/trials/0000/config.yaml"
    assert told["The best trial so far"] == f"ebclab pretrain simclr --config {settings} --seed 0"

"""Names of runs, sweeps and comparisons stand for their folders in every command that takes one."""

from pathlib import Path

import pytest
from made_up_images import put
from typer.testing import CliRunner

from ebclab.cli.app import app
from ebclab.inventory.listing import place_named

PLACES = {
    "first": "runs/first",
    "search": "sweeps/search",
    "both": "comparisons/both",
    "here": "here",
    "exported": "exported",
    "photos": "runs/photos",  # beside a folder of images with that name
    "runs/first": "runs/first",
    "timm/first": "timm/first",
    "s3://b/first": "s3://b/first",
    "no": "no",
    "": "",
}


@pytest.fixture(autouse=True)
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("first", "here", "exported", "photos"):
        put(tmp_path / f"runs/{name}/config.yaml", "method: {name: nonesuch}")
    for file in ("here/config", "sweeps/search/sweep", "comparisons/both/comparison"):
        put(tmp_path / f"{file}.yaml", "method: {name: nonesuch}")
    put(tmp_path / "exported" / "encoder.json", "{}")
    (tmp_path / "photos" / "cats").mkdir(parents=True)


@pytest.mark.parametrize("name", PLACES)
def test_a_name_is_that_of_a_folder_here_or_in_a_usual_one(name: str) -> None:
    assert place_named(name) == PLACES[name]


@pytest.mark.parametrize("command", ["evaluate first", "export first --to x", "report first", "sample first"])
def test_commands_find_a_run_by_its_name(command: str) -> None:
    done = CliRunner().invoke(app, command.split())
    assert any(word in f"{done.output}{done.exception}" for word in ("got 'nonesuch'", "runs/first/report.html"))

"""`ebclab report`, killed or cut off from its power anywhere, leaves the old page or the new one, each whole."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kill_points import LOSSES, Loss, killed_everywhere

from ebclab.reports import document as output
from ebclab.reports.document import write_report

FILES = ("report.html", "report.csv", "report.json")


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize(
    "has_old", [True, pytest.param(False, marks=pytest.mark.slow)], ids=["over an old page", "the first page"]
)
def test_a_killed_report_leaves_whole_files(
    tmp_path: Path, sweep_folder: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, loss: Loss, has_old: bool
) -> None:
    sweep = sweep_folder()
    sweep.search(0, [0.1, 0.5])
    sweep.search(1, [0.2, 0.6])
    page: list[str] = []
    record = output.read_sweep(sweep.path)  # once: reading and drawing take long, and write no file
    monkeypatch.setattr(output, "read_sweep", lambda folder: record)
    monkeypatch.setattr("ebclab.reports.place.as_page", lambda *_: page[0])
    monkeypatch.setattr(output, "sweeps_document", lambda *_: None)

    def report(folder: Path, text: str) -> None:
        page[:] = [text * 1000]
        write_report([sweep.path], folder / FILES[0])

    def before(folder: Path) -> None:
        if has_old:
            report(folder, "old")

    def is_whole(folder: Path) -> None:
        present = {name for name in FILES if (folder / name).exists()}
        assert present == set(FILES) or not has_old
        texts = {name: (folder / name).read_text() for name in present}
        assert texts.get(FILES[0], "new" * 1000) in ("old" * 1000, "new" * 1000)
        assert all(text.endswith("\n") for name, text in texts.items() if name != FILES[0])
        assert isinstance(json.loads(texts.get(FILES[2], "[]")), list)

    seen = []
    for folder in killed_everywhere(tmp_path, before, lambda folder: report(folder, "new"), loss):
        is_whole(folder)
        seen.append((folder / FILES[0]).exists() and (folder / FILES[0]).read_text().startswith("new"))
        report(folder, "new")
        is_whole(folder)
        assert {path.name for path in folder.glob("[!.]*")} == set(FILES)
    assert seen == sorted(seen)
    assert True in seen
    assert seen.count(False) > 10

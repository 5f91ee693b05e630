"""Files and folders are whole or absent."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ebclab.storage import atomic


def test_a_folder_appears_only_when_its_block_succeeds(tmp_path: Path) -> None:
    target = tmp_path / "checkpoint"

    def fail_in_the_middle() -> None:
        with atomic.new_folder(target) as aside:
            (aside / "half").write_text("half")
            raise RuntimeError("in the middle")

    with pytest.raises(RuntimeError, match="in the middle"):
        fail_in_the_middle()
    assert list(tmp_path.iterdir()) == []
    with atomic.new_folder(target) as aside:
        (aside / "whole").write_text("whole")
        assert not target.exists()
    assert (target / "whole").read_text() == "whole"
    assert list(tmp_path.iterdir()) == [target]


def test_a_file_keeps_its_old_text_when_the_new_one_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "result.json"
    atomic.write_json(path, {"knn": 0.5})

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(atomic.os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        atomic.write_json(path, {"knn": 0.9})
    assert json.loads(path.read_text()) == {"knn": 0.5}
    assert list(tmp_path.iterdir()) == [path]


def test_numbers_that_json_cannot_hold_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="JSON"):
        atomic.write_json(tmp_path / "result.json", {"knn": float("nan")})

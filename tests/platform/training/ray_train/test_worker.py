"""What a worker does before it trains: it reads why those before it gave up."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from ebclab.config import compose
from ebclab.runs.folder import RunFolder
from ebclab.training.process_group import ALONE, Ranks
from ebclab.training.ray_train.worker import REFUSAL, WorkerOutcome, train_on_worker
from ebclab.training.setup import RunSpec
from energy_contrast.catalog import METHODS

NONE: Any = None  # a worker that gives up looks at nothing else


@pytest.fixture
def refusal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(Ranks, "of_process_group", classmethod(lambda cls: ALONE))
    return tmp_path / REFUSAL


def _outcome(folder: Path) -> WorkerOutcome:
    spec = RunSpec(RunFolder.at(folder), compose("simclr"), METHODS["simclr"], None, ())
    return train_on_worker(spec, NONE, NONE)


def test_a_worker_that_was_started_again_returns_the_sentence_of_the_one_before(refusal: Path) -> None:
    refusal.write_text(json.dumps({"exit_code": 2, "text": "a.png: cannot be decoded"}))
    assert _outcome(refusal.parent) == WorkerOutcome(2, "a.png: cannot be decoded")


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"{}", b"\xff", b'{"exit_code": "x", "text": 3}', b"[" * 9999])
def test_a_damaged_sentence_is_one_of_its_own(refusal: Path, content: bytes) -> None:
    refusal.write_bytes(content)
    outcome = _outcome(refusal.parent)
    assert outcome.exit_code == 2
    assert outcome.text.startswith(f"{refusal.parent}: {REFUSAL} cannot be read, got ")


def test_a_pipe_in_its_place_does_not_hold_it_up(refusal: Path) -> None:
    os.mkfifo(refusal)
    outcome = _outcome(refusal.parent)
    assert outcome == WorkerOutcome(2, f"{refusal}: cannot be read, got a pipe or a device, not a file; delete it")

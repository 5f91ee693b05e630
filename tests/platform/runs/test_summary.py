"""The typed result of a run: its mapping on disk in both directions, files of older versions, files that are none."""

import json
from pathlib import Path
from typing import Any

import pytest

from ebclab.errors import RunError
from ebclab.runs.folder import RunFolder
from ebclab.runs.summary import BestScore, RunSummary

RESULT: dict[str, Any] = {
    "format": 1,
    "method": "simclr",
    "dataset": "digits",
    "seed": 3,
    "epochs": 2,
    "steps": 40,
    "batch_size": 64,
    "train_images": 1280,
    "holdout_images": 140,
    "average_weights": 0.0,
    "scores": {"holdout_knn": 0.75, "effective_rank": 9.5},
    "references": {"raw pixels": 0.5, "untrained encoder": 0.625},
    "best": {"objective": "holdout_knn", "value": 0.8, "epoch": 1, "step": 20},
    "metrics": {"loss": 2.5},
    "health": [{"step": 20, "action": "lower_step", "reason": "energies grow", "acted": True, "step_scale": 0.5}],
    "extensions": [{"before": 1, "epochs": 2, "step": 20, "rate_before": 0.01, "rate_after": 0.5}],
    "images_per_second": {"mean": 1000.0, "std": 12.5},
    "seconds": 2.5,
    "monitor_seconds": 0.5,
    "parameters": 4096,
    "checkpoint": "checkpoints/last-0000000040",
    "finished": "2026-11-20T12:00:00+00:00",
}
EMPTY = {
    **{"scores": {}, "references": {}, "best": None, "metrics": None, "health": [], "extensions": []},
    **{"images_per_second": None, "checkpoint": None},
}


@pytest.mark.parametrize("changes", [{}, EMPTY])
def test_a_summary_is_the_same_text_before_and_after(changes: dict[str, Any]) -> None:
    content = RESULT | changes
    summary = RunSummary.of_mapping(content, "result.json")
    assert json.dumps(summary.to_mapping()) == json.dumps(content)


def test_a_run_from_before_other_objectives_health_and_monitors_opens() -> None:
    newer = ("scores", "references", "health", "extensions", "monitor_seconds")
    old = {key: value for key, value in RESULT.items() if key not in newer}
    best = {"holdout_knn": 0.8, "epoch": 1, "step": 20}
    summary = RunSummary.of_mapping(old | {"holdout_knn": 0.75, "best": best}, "result.json")
    assert summary.scores == {"holdout_knn": 0.75}
    assert summary.best == BestScore("holdout_knn", 0.8, 1, 20)
    assert (summary.references, summary.health, summary.extensions) == ({}, [], [])
    assert summary.monitor_seconds == 0.0
    unscored = RunSummary.of_mapping(old | {"holdout_knn": None, "best": None}, "result.json")
    assert (unscored.scores, unscored.best) == ({}, None)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"epochs": "two"}, "epochs: "),
        ({"scores": [0.75]}, "scores: "),
        ({"best": {"value": 0.8}}, "best.objective: Field required, got nothing"),
        ({"train_images": None}, "train_images: "),
    ],
)
def test_what_is_no_result_is_one_sentence_with_the_file_and_the_field(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(RunError) as raised:
        RunSummary.of_mapping(RESULT | changes, "s3://b/run/result.json")
    text = str(raised.value)
    assert text.startswith(f"s3://b/run/result.json: not the result of a run, got {said}")
    assert text.endswith("; delete the file, and the command that made the run writes it again")


def test_a_run_folder_gives_its_summary_or_nothing_or_one_sentence(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    assert run.read_result() is None
    run.result.write_text(json.dumps(RESULT))
    summary = run.read_result()
    assert summary.to_mapping() == RESULT
    for text in ("", "{", "[]", "{}"):
        run.result.write_text(text)
        with pytest.raises(RunError, match=rf"^{run.result}: not the result of a run, got "):
            run.read_result()


def test_one_digit_that_was_changed_in_a_result_is_noticed(tmp_path: Path) -> None:
    run, own = RunFolder(tmp_path), RunSummary.of_mapping(RESULT, "")
    own.write(run.result)
    assert run.read_result() == own
    run.result.write_text(run.result.read_text().replace("4096", "4097"))
    with pytest.raises(RunError, match=rf"^{run.result}: not the result of a run, got its content does not match"):
        run.read_result()

"""The card of an exported run shows the scores of the checkpoint that was exported, and of no other."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from ebclab.config import to_yaml
from ebclab.evaluation.answers import Score
from ebclab.export.run import export_run
from ebclab.runs.evaluate import Evaluation
from ebclab.runs.folder import RunFolder

from .conftest import FinishedSweep


@pytest.mark.parametrize(("step", "is_shown"), [(2, True), (1, False), (3, False)])
def test_scores_of_another_checkpoint_stay_off_the_card(
    tmp_path: Path, sweep_of: Callable[..., FinishedSweep], step: int, is_shown: bool
) -> None:
    sweep = sweep_of()
    sweep.add("0000", 0.5)  # its only checkpoint is of step 2
    run = sweep.folder.trials / "0000"
    score = Score("knn", 0.75, 0.7, 0.8, 400, "a probe")
    found = Evaluation("digits", "last", step, True, 128, 400, {"simclr": {"knn": score}})
    (run / "evaluation.json").write_text(json.dumps(found.to_mapping()))
    folder, notes = export_run(run, tmp_path / "out")
    card = (folder / "README.md").read_text()
    assert ("75.0" in card) == is_shown
    assert ("a probe; 128 labelled training images" in card) == is_shown
    assert any(note.startswith("no scores") for note in notes) != is_shown


def test_the_card_of_a_populations_member_says_whose_weights_it_went_on_with(
    tmp_path: Path, sweep_of: Callable[..., FinishedSweep]
) -> None:
    sweep = sweep_of()
    sweep.add("0000", 0.5)
    run = RunFolder(sweep.folder.trials / "0000")
    config = run.read_config()
    training = replace(config.training, copied_weights="hunt/0001 after epoch 2")
    run.config_path.write_text(to_yaml(replace(config, training=training)))
    folder, _ = export_run(run.path, tmp_path / "out")
    assert "it continued with the weights of hunt/0001 after epoch 2;" in (folder / "README.md").read_text()

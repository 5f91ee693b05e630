"""The winners of a sweep as encoder folders: the right weights, cards that say how sure it is, all or nothing."""

import csv
import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from ebclab.errors import ExportError, UserError
from ebclab.export import formats, load_encoder
from ebclab.export.run import export_sweep


def names_in(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_the_best_means_come_first_each_with_the_weights_of_its_first_seed(hunt: Any, tmp_path: Path) -> None:
    _, places, _ = export_sweep(hunt.folder.path, tmp_path / "out", top=2)
    assert names_in(tmp_path / "out") == {"1-0002", "2-0001", "leaderboard.json", "leaderboard.csv"}
    assert [(place.rank, place.trial, place.seed) for place in places] == [(1, "0002", 1), (2, "0001", 1)]
    for folder, run in (("1-0002", "confirm-0002-seed1"), ("2-0001", "confirm-0001-seed1")):  # seed 2 scored higher
        found = load_encoder(tmp_path / "out" / folder).encoder.state_dict()
        for name, tensor in hunt.weights(run).items():
            assert torch.equal(found[name], tensor.to(found[name].dtype)), name


def test_a_card_names_sweep_rank_mean_interval_seed_settings_data_and_protocol(hunt: Any, tmp_path: Path) -> None:
    export_sweep(hunt.folder.path, tmp_path / "out", top=2)
    card = (tmp_path / "out" / "1-0002" / "README.md").read_text()
    assert "\n---\n\n# hunt, rank 1: 0002\n" in card
    assert "- sweep hunt: 4 trials of at most 1 epoch, tpe, asha, method simclr\n" in card
    assert "- rank 1 of " in card
    # Student: mean 0.8, standard deviation 0.1 sqrt 2, t(0.975; 1) = 12.706: 0.8 +- 1.27, cut at 0 and 1
    assert (
        "mean over 2 of 2 seeds: 80.0%, 95 % interval 0.0% to 100.0% over seeds only; 70.0% (seed 1), 90.0% (seed 2)\n"
        in card
    )
    assert "- these weights: seed 1, the first of the confirming seeds, whatever it scored" in card
    assert "optimizer.learning_rate=0.003, method.temperature=0.5\n" in card
    assert "10% of the training images of digits that were held out by hash" in card
    assert "- test set, kNN, mean over 2 seeds: " in card
    assert "test set, kNN" not in (tmp_path / "out" / "2-0001" / "README.md").read_text()  # it was not measured
    assert "\nseed: 1\n" in card
    assert "  learning_rate: 0.003\n" in card


def test_the_leaderboard_lists_all_that_was_confirmed_and_where_the_exported_ones_are(hunt, tmp_path):
    export_sweep(hunt.folder.path, tmp_path / "out", top=1)
    assert names_in(tmp_path / "out") == {"1-0002", "leaderboard.json", "leaderboard.csv"}
    board = json.loads((tmp_path / "out" / "leaderboard.json").read_text())
    assert (board["sweep"], board["method"], board["dataset"]) == ("hunt", "simclr", "digits")
    assert (board["objective"], board["confirmed"]) == ("holdout_knn", True)
    rows = [(row["rank"], row["trial"], row["folder"], row["run"], row["seed"]) for row in board["places"]]
    assert rows[:2] == [(1, "0002", "1-0002", "confirm-0002-seed1", 1), (2, "0001", None, "confirm-0001-seed1", 1)]
    assert [round(row["mean"], 12) for row in board["places"]][:2] == [0.8, 0.65]
    lines = list(csv.DictReader((tmp_path / "out" / "leaderboard.csv").read_text().splitlines()))
    assert [line["trial"] for line in lines] == [row["trial"] for row in board["places"]]
    assert (lines[1]["folder"], lines[1]["values"], lines[1]["seeds"]) == ("", "0.6 0.7", "1 2")
    assert float(lines[1]["optimizer.learning_rate"]) == 0.002
    # mean 0.65, standard deviation 0.05 sqrt 2, and t with one degree of freedom is a tangent: cut at 0 and 1
    assert 0.65 - 0.05 * math.tan(math.pi / 2 * (1 - 0.05 / len(rows))) < 0
    assert (float(lines[1]["low"]), float(lines[1]["high"])) == (0.0, 1.0)
    assert float(lines[1]["high"]) == 1.0


def test_more_than_was_confirmed_and_weights_that_are_gone_are_refused_and_nothing_appears(
    hunt: Any, tmp_path: Path
) -> None:
    count = len(json.loads(hunt.folder.result.read_text())["candidates"])
    with pytest.raises(UserError, match=rf"--top: more than were confirmed, got 9 of {count}; use at most {count}"):
        export_sweep(hunt.folder.path, tmp_path / "out", top=9)
    with pytest.raises(UserError, match="--top: at least one, got 0"):
        export_sweep(hunt.folder.path, tmp_path / "out", top=0)
    (checkpoint,) = (hunt.folder.trials / "confirm-0002-seed1" / "checkpoints").iterdir()
    shutil.rmtree(checkpoint)
    with pytest.raises(UserError, match="confirm-0002-seed1: the weights of rank 1 are gone, got no checkpoint"):
        export_sweep(hunt.folder.path, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_an_unfinished_sweep_has_no_winner_until_asked_for_its_best_trial_as_it_is(sweep_of, tmp_path):
    sweep = sweep_of()
    sweep.add("0000", 0.5)
    sweep.add("0001", 0.9)
    with pytest.raises(UserError, match=r"has not finished, got no result\.json; .*--resume`, .*--unconfirmed"):
        export_sweep(sweep.folder.path, tmp_path / "out")
    _, places, notes = export_sweep(sweep.folder.path, tmp_path / "out", unconfirmed=True)
    assert [place.folder for place in places] == ["1-0001"]
    assert any("1-0001: not confirmed: ranked by one run of one seed" in note for note in notes)
    card = (tmp_path / "out" / "1-0001" / "README.md").read_text()
    assert "**Note:** not confirmed: ranked by one run of one seed" in card
    assert "90.0%, one seed gives no interval" in card
    board = json.loads((tmp_path / "out" / "leaderboard.json").read_text())
    assert board["confirmed"] is False
    assert [row["low"] for row in board["places"]] == [None, None]


def test_a_sweep_that_confirmed_nothing_says_how_to(sweep_of: Callable[..., Any], tmp_path: Path) -> None:
    sweep = sweep_of(top=0)
    sweep.add("0000", 0.5)
    sweep.conclude()
    with pytest.raises(UserError, match=r"nothing was confirmed, got --top 0; .*--unconfirmed"):
        export_sweep(sweep.folder.path, tmp_path / "out")


def test_only_an_earlier_export_of_a_sweep_is_replaced_and_only_when_asked(hunt: Any, tmp_path: Path) -> None:
    out = tmp_path / "out"
    export_sweep(hunt.folder.path, out, top=2)
    with pytest.raises(UserError, match="already holds exported encoders"):
        export_sweep(hunt.folder.path, out, top=1)
    export_sweep(hunt.folder.path, out, top=1, overwrite=True)
    assert names_in(out) == {"1-0002", "leaderboard.json", "leaderboard.csv"}
    (out / "1-0002" / "mine.txt").write_text("keep")
    with pytest.raises(UserError, match="not an earlier export of a sweep, got 1-0002"):
        export_sweep(hunt.folder.path, out, top=1, overwrite=True)
    with pytest.raises(UserError, match="not an earlier export of a sweep, got"):
        export_sweep(hunt.folder.path, hunt.folder.path, overwrite=True)
    assert hunt.folder.log.exists()
    assert {path.name for path in tmp_path.iterdir()} == {"hunt", "out"}


def test_a_file_that_differs_leaves_nothing_of_any_winner(hunt, tmp_path, monkeypatch):
    monkeypatch.setattr(formats, "_torch_export", lambda encoder, path, example: lambda batch: encoder(batch) + 1)
    with pytest.raises(ExportError, match="the file gives other features"):
        export_sweep(hunt.folder.path, tmp_path / "out", top=2, formats=["torch-export"])
    assert names_in(tmp_path) == {"hunt"}

"""Runs and sweeps that an older version left on disk: today's commands read them and go on with them.

What is expected was written by that version: tests/folders/made_by_0.1/README.md has the commands.
"""

import csv
import json
import math
import os
import shutil
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from made_up_trials import launch_of
from safetensors.torch import load_file

from ebclab.config import load_yaml_file, parse_experiment
from ebclab.storage.reading import with_checksum
from ebclab.sweeps.conclude import conclude
from ebclab.sweeps.display import SweepDisplay
from ebclab.sweeps.folder import SweepFolder

from .conftest import Ebclab

OLD = Path(__file__).parents[2] / "folders" / "made_by_0.1"
EXPECTED = OLD / "expected"
OLD_SWEEP = "/srv/folders/sweeps/sweep"
"""Where the sweep lay when it was made."""


@pytest.fixture(autouse=True)
def _a_copy(tmp_path: Path) -> None:
    for name in ("runs", "sweeps"):
        shutil.copytree(OLD / name, tmp_path / name)


def _json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def _without(value: Any, *names: str) -> Any:
    """Return plain values without intervals, which have another meaning now, and without the entries ``names``."""
    left_out = {"low", "high", "images", *names}
    if isinstance(value, dict):
        return {name: _without(entry, *names) for name, entry in value.items() if name not in left_out}
    return [_without(entry, *names) for entry in value] if isinstance(value, list) else value


def _same_encoder(made: Path, expected: Path) -> None:
    expected_facts = _json(expected / "encoder.json")
    described = _json(made / "encoder.json")
    assert described.items() >= expected_facts.items()
    assert with_checksum(described) == described
    now, then = load_file(made / "model.safetensors"), load_file(expected / "model.safetensors")
    assert now.keys() == then.keys()
    assert all(torch.equal(now[name], tensor) for name, tensor in then.items())


def test_evaluate_gives_an_old_run_the_scores_that_it_had(ebclab: Ebclab) -> None:
    kept = Path("runs/finished/evaluation.json")
    before = _json(kept)
    kept.unlink()
    assert ebclab("evaluate", "runs/finished", "--references", "--only", "knn,linear").ok
    now = _json(kept)
    assert now.keys() == before.keys()
    for row, scores in before["rows"].items():
        for probe, score in scores.items():
            found = now["rows"][row][probe]
            # That version went to the minimum by L-BFGS; the minimum is what it was.
            assert found["detail"] == score["detail"].replace("L-BFGS to convergence", "solved to convergence")
            # One of the 355 test images may lie so near a border that another processor rounds it to the other side.
            assert found["value"] == pytest.approx(score["value"], abs=1.5 / 355), (row, probe)


def test_the_command_of_an_old_finished_run_prints_its_result(ebclab: Ebclab) -> None:
    run = Path("runs/finished")
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    outcome = ebclab("pretrain", "simclr", "--config", OLD / run / "config.yaml", "--name", run.name).ok
    assert "already finished; nothing was trained" in outcome.out
    assert f"{_json(run / 'result.json')['scores']['holdout_knn']:.1%}" in outcome.out
    assert all(path.read_bytes() == content for path, content in before.items())


def test_an_old_run_is_exported_as_it_was(ebclab: Ebclab) -> None:
    assert ebclab("export", "runs/finished", "--to", "encoder").ok
    _same_encoder(Path("encoder"), EXPECTED / "run")


def test_old_runs_and_sweeps_are_listed(ebclab: Ebclab) -> None:
    outcome = ebclab("runs", "list").ok
    rows = {line.split()[0]: line for line in outcome.out.splitlines()}
    assert all(word in rows["finished"] for word in ("2/2 epochs", "37.1%", " finished "))
    assert all(word in rows["unfinished"] for word in ("1/4 epochs", " unfinished "))
    assert all(word in rows["sweep"] for word in ("4/4 trials", "25.7%", " finished "))


def test_an_old_unfinished_run_ends_in_the_weights_of_one_that_nobody_stopped(ebclab: Ebclab) -> None:
    run = Path("runs/unfinished")
    outcome = ebclab("pretrain", "ebclr", "--config", OLD / run / "config.yaml", "--name", run.name).ok
    assert "resuming at step 3 of 8" in outcome.err
    now = load_file(run / "checkpoints" / "last-0000000008" / "model.safetensors")
    then = load_file(EXPECTED / "undisturbed.safetensors")
    assert now.keys() == then.keys()
    events = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    (resumed,) = [event for event in events if event.get("event") == "resumed"]
    for name, tensor in then.items():
        if resumed["environment_changes"]:  # another torch or processor rounds otherwise
            torch.testing.assert_close(now[name], tensor, rtol=0, atol=1e-6)
        else:
            assert torch.equal(now[name], tensor), name


def test_the_command_of_an_old_finished_sweep_prints_its_result(ebclab: Ebclab) -> None:
    log = Path("sweeps/sweep/trials.jsonl")
    before = log.read_bytes()
    plan = yaml.safe_load(Path("sweeps/sweep/sweep.yaml").read_text())
    Path("settings.yaml").write_text(yaml.safe_dump(plan["config"]))
    Path("space.yaml").write_text(yaml.safe_dump(plan["space"]))
    asked = [word for name in ("trials", "epochs", "top", "seeds") for word in (f"--{name}", str(plan[name]))]
    settings = ["--config", "settings.yaml", "--space", "space.yaml", "--name", "sweep"]
    outcome = ebclab("sweep", "flatclr", *settings, *asked, "--resume").ok
    for words in (
        "25.7% (0.0% to 62.0%)",
        "24.3% (0.0% to 100.0%)",
        "winner: trial 0001",
        "kNN 48.9%, linear probe 49.9%",
    ):
        assert words in outcome.out
    assert log.read_bytes() == before


def test_an_old_log_leads_to_the_same_result_and_settings(ebclab: Ebclab) -> None:
    folder = SweepFolder.at("sweeps/sweep")
    before, best = _json(folder.result), parse_experiment(load_yaml_file(folder.best))
    folder.result.unlink()
    folder.best.unlink()
    plan, log = folder.read_plan(), folder.read_log()
    conclude(launch_of(folder, plan, SweepDisplay()), log)
    now = _json(folder.result)
    assert now["finished"] > before["finished"]
    assert now == with_checksum({name: value for name, value in now.items() if name != "digest"})
    # Intervals hold together for both sets of settings now; there are no answers, so they are over seeds only.
    half = math.tan(math.pi / 2 * (1 - 0.05 / 2)) * abs(0.2857142857142857 - 0.22857142857142856) / 2
    assert (now["winner"]["low"], now["winner"]["high"]) == (0.0, pytest.approx(0.2571428571428571 + half))
    assert now["winner"]["images"] is None
    assert (now["test_of_start"], now["test_readings"]) == (None, 1)  # the weights of the start are gone
    new = ("gain", "test_of_start", "test_gain", "test_readings", "digest")
    assert _without(now, *new) == _without(before | {"path": str(folder.path), "finished": now["finished"]}, *new)
    assert parse_experiment(load_yaml_file(folder.best)) == best


def test_an_old_sweep_is_exported_as_it_was(ebclab: Ebclab) -> None:
    assert ebclab("export", "sweeps/sweep", "--to", "winners").ok
    name = "leaderboard.csv"
    assert Path("winners", name).read_text() == (EXPECTED / "sweep" / name).read_text()
    now, then = (_json(folder / "leaderboard.json") for folder in (Path("winners"), EXPECTED / "sweep"))
    assert all(place["images"] is None for place in now["places"])
    assert _without(now) == _without(then)
    _same_encoder(Path("winners/1-0001"), EXPECTED / "sweep" / "1-0001")


def test_the_report_of_an_old_sweep_says_what_it_said(ebclab: Ebclab) -> None:
    expected = (EXPECTED / "report.json").read_text().replace(OLD_SWEEP, str(Path("sweeps/sweep").absolute()))
    read_at = datetime.strptime(json.loads(expected)[0]["facts"]["Log as of"] + "+0000", "%Y-%m-%d %H:%M:%S UTC%z")
    os.utime("sweeps/sweep/trials.jsonl", (read_at.timestamp(), read_at.timestamp()))
    assert ebclab("report", "sweeps/sweep", "--to", "report.html").ok
    (now,), (then,) = json.loads(Path("report.json").read_text()), json.loads(expected)
    assert now["answer"].startswith("Winner: trial 0001, 25.7% over 2 seeds (95 %: 0.0% to 98.4%). Its gain over")
    assert "with other seeds; other images may move it as much" in now["measured"]["Intervals"]
    for said in now["measured"]["Test set"], now["measured"]["Confirmation"]:
        assert said.startswith(("read once", "scored on the same held-out images"))
    gap = now["confirmed"][1]["below_winner"]
    assert gap["is_noise"] is True
    assert gap["mean"] == then["confirmed"][1]["below_winner"]["mean"]
    assert gap["low"] < 0 < gap["high"]
    reworded = ("answer", "measured", "below_winner", "test_of_start", "test_gain", "test_readings")
    columns = then["trials"][0].keys()  # there may be new ones
    now["trials"] = [{name: row[name] for name in columns} for row in now["trials"]]
    assert now.pop("importance_digest")  # new
    hours = then.pop("cost")
    assert now.pop("cost") == {  # from Python 3.12 on, sum() rounds once
        name: pytest.approx(value, rel=1e-12) if isinstance(value, float) else value for name, value in hours.items()
    }
    assert _without(now, *reworded) == _without(then | {"references": []}, *reworded)
    assert "Whether anything was learnt is not known" in Path("report.html").read_text()
    before, after = (
        list(csv.DictReader(path.read_text().splitlines())) for path in (EXPECTED / "report.csv", Path("report.csv"))
    )
    assert [{name: row[name] for name in before[0]} for row in after] == before

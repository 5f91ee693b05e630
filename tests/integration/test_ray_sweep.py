"""Sweeps on real Ray: trials end for their own reasons, nothing ends the sweep, a killed sweep goes on."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import yaml
from made_up_comparison import request_for
from safetensors.torch import load_file
from tests.support.waiting import until

import ebclab
from ebclab.cli import main
from ebclab.comparisons.compare import plan_of_request
from ebclab.config import parse_yaml
from ebclab.evaluation.answers import table_of
from ebclab.runs.evaluate import evaluate_run
from ebclab.storage.reading import with_checksum
from ebclab.sweeps.display import SweepDisplay
from ebclab.sweeps.log import SweepLog, Trial
from ebclab.sweeps.plan import SweepPlan
from ebclab.sweeps.resources import Limits
from ebclab.sweeps.space.space import parse_space

pytestmark = pytest.mark.slow

TINY = ["data.train_limit=320", "training.batch_size=32", "optimizer.name=adam", "optimizer.learning_rate=0.003"]
SPACE = {
    "optimizer.learning_rate": {"loguniform": [1e-6, 1e-1]},
    "method.temperature": {"loguniform": [0.05, 1.0]},
}


ONE = Limits(concurrent=1)
"""For sweeps that are about something else: each process of trials takes four seconds of a processor to start."""


def _plan(*settings: str, space: dict[str, Any] | None = None, **asked: Any) -> SweepPlan:
    config = ebclab.compose("simclr", overrides=[*TINY, "training.epochs=4", *settings])
    return ebclab.make_plan(
        config, ebclab.SweepRequest(space=parse_space({"parameters": space or SPACE}, "test"), **asked)
    )


def _log(sweep: Path) -> list[dict[str, Any]]:
    if not (sweep / "trials.jsonl").exists():
        return []
    lines = (sweep / "trials.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines if line.endswith("}")]


def _trials(sweep: Path) -> dict[str, Trial]:
    return SweepLog(sweep / "trials.jsonl").trials


def _refuse_here(monkeypatch: pytest.MonkeyPatch, cluster: str, *functions: str) -> None:
    """Name the cluster as a user does, and refuse these functions in this process."""

    def refused(*given: Any, **options: Any) -> Any:
        raise AssertionError("done here")

    monkeypatch.setenv("RAY_ADDRESS", cluster)
    for name in functions:
        monkeypatch.setattr(name, refused)


def test_a_sweep_stops_bad_trials_confirms_the_best_with_other_seeds_and_reads_the_test_set_for_one_on_the_cluster(
    cluster: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _refuse_here(
        monkeypatch, cluster, "ebclab.sweeps.conclude.evaluate_run", "ebclab.runs.measured_references.evaluate_encoder"
    )
    result = ebclab.sweep(_plan(trials=9, top=2, seeds=2), sweeps=tmp_path, name="asha", display=SweepDisplay())
    folder = tmp_path / "asha"
    trials = _trials(folder)
    searched = [trial for trial in trials.values() if trial.kind == "search"]
    assert [trial.id for trial in searched] == [f"{number:04d}" for number in range(9)]
    assert searched[0].settings == {"optimizer.learning_rate": 0.003, "method.temperature": 0.2}  # where it starts
    stopped = [trial for trial in searched if trial.state == "stopped"]
    assert stopped
    assert all(trial.epochs_done < 4 and trial.reason.startswith("rung") for trial in stopped)
    for trial in stopped:  # each keeps its last checkpoint, and no result
        assert list((folder / "trials" / trial.id / "checkpoints").glob("last-*"))
        assert not (folder / "trials" / trial.id / "result.json").exists()
    confirmed = [trial for trial in trials.values() if trial.kind == "confirm"]
    assert {trial.seed for trial in confirmed} == {1, 2}
    assert all(trial.state == "finished" and trial.epochs_done == 4 for trial in confirmed)
    best = max(result["candidates"], key=lambda entry: entry["mean"])
    assert result["winner"] == best
    told = [trial.last.objective for trial in confirmed if trial.id.startswith(f"confirm-{best['trial']}-")]
    assert best["mean"] == pytest.approx(sum(told) / 2)
    for trial in confirmed:  # one bit an image came all the way through Tune
        assert trial.answers is not None
        assert trial.last is not None
        assert table_of([trial.answers]).mean() == pytest.approx(trial.last.objective)
    start = next(entry.source for entry in result.candidates if entry.is_start(_plan(trials=9, top=2, seeds=2)))
    wanted = list(dict.fromkeys([best["trial"], start]))  # the winner, and where the search started
    events = [record for record in _log(folder) if record["event"] in ("test_read", "tested")]
    assert [event["event"] for event in events] == ["test_read", *["tested"] * 2 * len(wanted)]
    assert [(event["trial"], event["seeds"]) for event in events[1:]] == [
        (one, [seed]) for one in wanted for seed in (1, 2)
    ]
    read = {path.parent.name for path in folder.glob("trials/*/evaluation.json")}
    assert read == set(events[0]["runs"]) == {f"confirm-{one}-seed{seed}" for one in wanted for seed in (1, 2)}
    tested = result.test or {}
    for place, seed in enumerate((1, 2)):
        run = folder / "trials" / f"confirm-{best['trial']}-seed{seed}"
        here = evaluate_run(run, train_limit=320).rows["simclr"]
        assert {name: score.values[place] for name, score in tested.items()} == {
            name: score.value for name, score in here.items()
        }
    kept = json.loads((folder / "references.json").read_text(encoding="utf-8"))
    assert len(kept["references"]) == 2 * 3  # knn and linear, of raw pixels and two untrained encoders
    taken = parse_yaml((folder / "best.yaml").read_text(), "best.yaml")
    assert taken.optimizer.learning_rate == best["settings"]["optimizer.learning_rate"]
    assert sorted(path.name for path in (folder / "tensorboard").iterdir()) == [trial.id for trial in searched]
    lines = len(_log(folder))
    again = ebclab.sweep(_plan(trials=9, top=2, seeds=2), sweeps=tmp_path, name="asha", display=SweepDisplay())
    assert with_checksum(again.to_mapping()) == json.loads((folder / "result.json").read_text())
    assert len(_log(folder)) == lines  # a finished sweep only tells


def test_equal_seconds_are_measured_on_the_cluster_that_trains(
    cluster: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _refuse_here(monkeypatch, cluster, "ebclab.comparisons.compare.epoch_seconds")
    asked = request_for("simclr", "dcl", budget="seconds", epochs=20, assignments=("data.train_limit=320",))
    plan, _, _ = plan_of_request(asked, comparisons=tmp_path, name="mine")
    epochs = {planned.method: planned.plan.config.training.epochs for planned in plan.sweeps}
    assert epochs["simclr"] == 20
    assert 5 <= epochs["dcl"] <= 80  # its step takes about as long


def test_trials_that_fail_diverge_or_run_out_of_memory_are_recorded_and_never_end_the_sweep(
    cluster: str, tmp_path: Path
) -> None:
    script = tmp_path / "own_method.py"
    script.write_text(
        """
import os, signal, sys
from functools import partial
from pathlib import Path
import ebclab
from ebclab.sweeps.space.space import parse_space
from energy_contrast.contrastive.simclr import Simclr

class Fragile(Simclr):
    def forward(self, batch, generator):
        t = self.config.temperature
        if t == 0.2:
            raise RuntimeError("a bug in a method")
        if t == 0.3:
            raise MemoryError("out of memory: 3 TB wanted")
        if t == 0.4 and not Path(sys.argv[1], "died").exists():
            Path(sys.argv[1], "died").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        if t == 0.6:
            signal.raise_signal(signal.SIGSEGV)
        output = super().forward(batch, generator)
        return output._replace(loss=output.loss * float("nan")) if t == 0.7 else output

if __name__ == "__main__":
    folder = sys.argv[1]
    config = ebclab.compose("simclr", overrides=[
        "data.train_limit=320", "training.batch_size=32", "training.epochs=2", "resources.max_failures=1"])
    space = parse_space({"parameters": {"method.temperature": {"choice": [0.5, 0.2, 0.3, 0.4, 0.6, 0.7, 0.8]}}}, "own")
    asked = {"search": "grid", "scheduler": "none", "top": 1, "seeds": 1, "baseline": False}
    plan = ebclab.make_plan(config, ebclab.SweepRequest(space=space, **asked))
    ebclab.sweep(plan, sweeps=folder, name="own", method=Fragile)
""",
        encoding="utf-8",
    )
    text = script.read_text().replace('sys.argv[1], "died"', repr(str(tmp_path)) + ', "died"')
    script.write_text(text, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path)],
        env={**os.environ, "RAY_ADDRESS": cluster},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert "did not complete" not in done.stderr  # Tune, of turns that are begun again
    by_temperature = {
        trial.settings["method.temperature"]: trial
        for trial in _trials(tmp_path / "own").values()
        if trial.kind == "search"
    }
    states = {temperature: trial.state for temperature, trial in by_temperature.items()}
    assert states == {
        0.5: "finished",
        0.2: "failed",
        0.3: "failed",
        0.4: "finished",  # begun again
        0.6: "failed",  # begun again once, and given up
        0.7: "diverged",
        0.8: "finished",
    }
    said = "Fragile failed (own_method.py, line 13), got RuntimeError: a bug in a method; correct the method"
    assert by_temperature[0.2].reason == said
    assert by_temperature[0.3].reason.startswith("out of memory")
    fault = r"Segmentation fault \(SIGSEGV\) in forward \(.*own_method\.py, line 20\)"
    assert re.fullmatch(rf"its process died.*: {fault}, 1 restarts allowed", by_temperature[0.6].reason)
    assert "step 1" in by_temperature[0.7].reason
    failed = tmp_path / "own" / "trials" / by_temperature[0.2].id
    assert "a bug in a method" in (failed / "error.txt").read_text()
    events = _log(tmp_path / "own")
    restarted = [(each["trial"], each["reason"]) for each in events if each["event"] == "restarted"]
    (killed, why), (faulty, how) = sorted(restarted)
    assert (killed, faulty) == (by_temperature[0.4].id, by_temperature[0.6].id)
    assert re.fullmatch(r"its process died.*: without a trace, as when .*", why)
    assert re.fullmatch(rf"its process died.*: {fault}", how)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What each process of trials that is started from now on asks for."""
    from ray.air.execution._internal.actor_manager import RayActorManager

    requests: list[Any] = []
    start = RayActorManager.add_actor

    def counted(manager: RayActorManager, **asked: Any) -> Any:
        requests.append(asked["resource_request"])
        return start(manager, **asked)

    monkeypatch.setattr(RayActorManager, "add_actor", counted)
    return requests


def test_a_short_trials_process_takes_the_next_trial_and_not_one_that_waits_for_its_own(
    cluster: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, started: list[Any]
) -> None:
    import ray
    from ray import tune

    def empty_turn(config: dict[str, Any], setup: Any) -> None:
        tune.report({"epoch": 1, "objective": 0.5, "metrics": {"holdout_knn": 0.5}})
        tune.report({"outcome": "finished", "reason": "", "answers": ""})

    taken = ray.util.placement_group([{"CPU": 1}])  # until six trials are over, there is room for one process
    ray.get(taken.ready())

    class Releasing(SweepDisplay):
        def show(self, trials: Any) -> None:
            if sum(trial.is_over for trial in trials) >= 6:
                ray.util.remove_placement_group(taken)

    monkeypatch.setattr("ebclab.sweeps.ray_tune.phase.run_turn", empty_turn)
    plan = _plan("training.epochs=1", trials=12, top=0, scheduler="none", search="random")
    try:
        result = ebclab.sweep(plan, sweeps=tmp_path, name="short", limits=Limits(concurrent=2), display=Releasing())
    finally:
        ray.util.remove_placement_group(taken)  # the tests that follow need its room
    assert result["trials"] == {"finished": 12}
    assert len(started) == 2


def _words(folder: Path, space: Path, *arguments: str) -> list[str]:
    settings = [part for assignment in TINY for part in ("--set", assignment)]
    own = ["--space", str(space), "--sweeps", str(folder), "--name", "s", "--epochs", "4", "--concurrent", "1"]
    return ["sweep", "simclr", *own, *settings, *arguments]


PROGRAM = [sys.executable, "-m", "ebclab"]
"""For what is killed or gets signals; all else is done by this process, which has imported torch and Ray already."""


CONFIRM = ["--set", "training.epochs=4", "--top", "1", "--seeds", "1", "--no-baseline"]


@pytest.fixture
def space_file(tmp_path: Path) -> Path:
    path = tmp_path / "space.yaml"
    path.write_text(yaml.safe_dump({"parameters": SPACE}), encoding="utf-8")
    return path


def _has_lines_or_ended(sweep: Path, lines: int, process: subprocess.Popen[bytes]) -> bool:
    return len(_log(sweep)) >= lines or process.poll() is not None


def _outcome(sweep: Path) -> dict[str, Any]:
    return {
        trial.id: (trial.settings, trial.state, trial.objectives, trial.reason) for trial in _trials(sweep).values()
    }


def test_a_sweep_whose_driver_is_killed_ends_as_the_undisturbed_one_and_may_grow(
    cluster: str, tmp_path: Path, space_file: Path
) -> None:
    environment = {**os.environ, "RAY_ADDRESS": cluster, "OMP_NUM_THREADS": "1"}
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    trials = ["--trials", "5", *CONFIRM]
    assert main(_words(whole, space_file, *trials)) == 0
    begun = [*PROGRAM, *_words(broken, space_file, "--trials", "4", *CONFIRM)]
    process = subprocess.Popen(begun, env=environment, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    until(partial(_has_lines_or_ended, broken / "s", 16, process))  # in the first trial, in a confirming one: compare
    assert process.poll() is None
    process.kill()
    process.wait()
    before = {trial.id for trial in _trials(broken / "s").values() if trial.is_over}
    kept = {name: (broken / "s" / "trials" / name / "metrics.jsonl").read_bytes() for name in before}
    assert before
    assert main(_words(broken, space_file, *trials, "--resume")) == 0
    assert _outcome(broken / "s") == _outcome(whole / "s")
    assert all((broken / "s" / "trials" / name / "metrics.jsonl").read_bytes() == text for name, text in kept.items())
    results = [json.loads((folder / "s" / "result.json").read_text()) for folder in (whole, broken)]
    assert results[0]["winner"] == results[1]["winner"]


def test_ctrl_c_saves_running_trials_and_the_same_command_goes_on(
    cluster: str, tmp_path: Path, space_file: Path
) -> None:
    words = _words(tmp_path, space_file, "--trials", "2", "--top", "0")
    environment = {key: value for key, value in os.environ.items() if key != "RAY_ADDRESS"}
    process = subprocess.Popen(
        [*PROGRAM, *words], env=environment, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    until(lambda: any(record["event"] == "epoch" for record in _log(tmp_path / "s")) or process.poll() is not None)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: its own instance of Ray must not die of it
    _, errors = process.communicate(timeout=600)
    assert process.returncode == 130, errors
    assert "everything is saved" in errors
    states = {trial.state for trial in _trials(tmp_path / "s").values()}
    assert "interrupted" in states
    assert "failed" not in states
    assert main(words) == 0
    assert {trial.state for trial in _trials(tmp_path / "s").values()} <= {"finished", "stopped"}


def test_workers_of_a_trial_that_is_stopped_make_room_for_the_next(cluster: str, tmp_path: Path) -> None:
    plan = _plan(
        "resources.workers=2",
        "resources.cpus_per_worker=1",
        "training.epochs=5000",
        trials=2,
        top=0,
        scheduler="none",
        rules=("plateau_epochs=1", "plateau_min_change=1"),
    )
    ebclab.sweep(plan, sweeps=tmp_path, name="short", limits=ONE, display=SweepDisplay())
    first, second = _trials(tmp_path / "short").values()
    assert [(trial.state, trial.epochs_done) for trial in (first, second)] == [("stopped", 2)] * 2
    lines = (tmp_path / "short" / "trials" / first.id / "metrics.jsonl").read_text().splitlines()
    events = [json.loads(line)["event"] for line in lines if '"kind": "event"' in line]
    assert events == ["started", "stopped"]  # its workers saved; they were not killed, and none started anew
    assert not [event for event in _log(tmp_path / "short") if event["event"] == "restarted"]


def test_a_grid_without_labels_under_the_median_rule_and_a_sweep_of_two_workers_a_trial_that_learns_from_it(
    cluster: str, tmp_path: Path
) -> None:
    space = {"method.temperature": {"choice": [0.1, 0.2]}, "optimizer.beta1": {"uniform": [0.8, 0.9], "points": 2}}
    label_free = ("evaluation.objective=effective_rank", "training.epochs=2")
    plan = _plan(*label_free, space=space, search="grid", scheduler="median", top=0)
    result = ebclab.sweep(plan, sweeps=tmp_path, name="grid", limits=ONE, display=SweepDisplay())
    trials = list(_trials(tmp_path / "grid").values())
    points = [(trial.settings["method.temperature"], trial.settings["optimizer.beta1"]) for trial in trials]
    assert points == [(0.1, 0.8), (0.1, 0.9), (0.2, 0.8), (0.2, 0.9)]
    assert {trial.state for trial in trials} <= {"finished", "stopped"}
    assert all(1 <= point.objective <= 64 for trial in trials for point in trial.curve.values())  # a rank, not a rate
    wider = {**space, "method.temperature": {"choice": [0.1, 0.2, 0.7]}}
    wide = ("resources.workers=2", "resources.cpus_per_worker=1")  # a trial is then a run on Ray Train
    more = _plan(*label_free, *wide, space=wider, trials=1, top=0)
    ebclab.sweep(more, sweeps=tmp_path, name="more", warm_start=tmp_path / "grid", display=SweepDisplay())
    (first,) = _trials(tmp_path / "more").values()
    assert first.settings == result["winner"]["settings"]
    assert (first.state, first.epochs_done) == ("finished", 2)
    lines = (tmp_path / "more" / "trials" / first.id / "metrics.jsonl").read_text().splitlines()
    assert json.loads(lines[0])["ranks"] == 2


def test_at_the_time_limit_what_runs_is_saved_and_what_waits_for_a_place_is_given_none(
    cluster: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import ray

    def clock() -> float:  # an hour passes when the first epoch is over, however slow this machine is
        told = any(record["event"] == "epoch" for record in _log(tmp_path / "short"))
        return time.monotonic() + 3600 * told

    monkeypatch.setattr("ebclab.sweeps.ray_tune.phase.time", SimpleNamespace(monotonic=clock))
    plan = _plan("training.epochs=5000", trials=2, epochs=5000, top=0, scheduler="none")
    taken = ray.util.placement_group([{"CPU": 1}])
    ray.get(taken.ready())
    try:
        ebclab.sweep(plan, sweeps=tmp_path, name="short", limits=Limits(seconds=1800.0), display=SweepDisplay())
    finally:
        ray.util.remove_placement_group(taken)
    first, second = _trials(tmp_path / "short").values()
    assert (first.state, second.state) == ("interrupted", "interrupted")
    assert 0 < first.epochs_done < 5000
    assert (tmp_path / "short" / "best.yaml").exists()
    assert second.reason == "stopped before it had a process"
    assert [path.parent.name for path in tmp_path.glob("short/trials/*/metrics.jsonl")] == ["0000"]
    assert capsys.readouterr().out == ""  # nor does Tune tell of it


def test_every_trial_starts_from_the_weights_that_the_sweep_was_given_and_one_process_trains_them_all(
    cluster: str, tmp_path: Path, started: list[Any]
) -> None:
    config = ebclab.compose("simclr", overrides=[*TINY, "training.epochs=1", "seed=7"])
    donor = ebclab.pretrain(config, runs=tmp_path, name="donor")
    still = {"optimizer.learning_rate": {"loguniform": [1e-32, 1e-30]}}
    settings = [f"init.weights={donor.path}", "optimizer.learning_rate=1e-31"]
    plan = _plan(*settings, space=still, trials=2, top=1, seeds=1, epochs=1, baseline=False)
    ebclab.sweep(plan, sweeps=tmp_path, name="begun", limits=ONE, display=SweepDisplay())
    begun = _encoder(donor.path)
    trials = sorted((tmp_path / "begun" / "trials").iterdir())
    assert len(trials) == 3
    assert len(started) == 1  # the run that confirms, too
    for trial in trials:
        assert all(torch.equal(begun[name], value) for name, value in _encoder(trial).items())


def _encoder(run: Path) -> dict[str, torch.Tensor]:
    """What the encoder of a run has learnt, in its newest checkpoint."""
    weights = load_file(max((run / "checkpoints").glob("last-*")) / "model.safetensors")
    return {
        k: v for k, v in weights.items() if k.startswith("encoder.") and "running" not in k and "num_batch" not in k
    }

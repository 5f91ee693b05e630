"""What a sweep costs beside the training: from the command to a number, the start of a trial, a resume, a comparison.

    python benchmarks/sweep_start.py --data-root DATA [--comparison FOLDER]

The command: a sweep of small trials on an instance of Ray of its own, and how long it says nothing until the first
trial's first epoch. A comparison: of one that has ended in FOLDER, the share of the processors' time in which no run
trained. Trials: each trains one step of the small encoder on Fashion-MNIST (the whole set is loaded), one trial at a
time. The peer is what one would write with Ray Tune alone: a function that loads the data and trains the same step,
with fresh processes, and with reused ones. Resume: a generated log of 1,000 trials of 20 epochs each.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

from page import write_page

TRIALS = 12
ROUNDS = 3
SMALL_SWEEP = ["sweep", "simclr", "--recipe", "digits-demo", "--trials", "2", "--top", "0", "--epochs", "2"]
SMALL_SWEEP += ["--set", "optimizer.warmup_epochs=0"]
SETTINGS = ["training.epochs=1", "training.batch_size=512", "data.train_limit=1024", "evaluation.knn_bank_limit=512"]
SPACE = {"parameters": {"method.temperature": {"loguniform": [0.1, 1.0]}}}


def config_of(root: str) -> Any:
    """Return the settings of a trial: one step over images chosen from the whole set."""
    import ebclab

    settings = [f"data.root={root}", *SETTINGS]
    return ebclab.compose("simclr", recipe="fashion-mnist-small", overrides=[*settings, "optimizer.warmup_epochs=0"])


def ours(root: str) -> list[float]:
    """Return the seconds from one trial's end to the next one's, its own training apart, all but the first."""
    import ebclab
    from ebclab.sweeps.display import SweepDisplay
    from ebclab.sweeps.resources import Limits
    from ebclab.sweeps.space.space import parse_space

    plan = ebclab.make_plan(
        config_of(root),
        ebclab.SweepRequest(space=parse_space(SPACE, "benchmark"), scheduler="none", trials=TRIALS, top=0),
    )
    with tempfile.TemporaryDirectory() as folder:
        ebclab.sweep(plan, sweeps=folder, name="s", limits=Limits(concurrent=1), display=SweepDisplay())
        sweep = Path(folder) / "s"
        records = [json.loads(line) for line in (sweep / "trials.jsonl").read_text().splitlines()]
        ends = [timestamp(record["time"]) for record in records if record["event"] == "ended"]
        trained = [
            json.loads((sweep / "trials" / f"{number:04d}" / "result.json").read_text())["seconds"]
            for number in range(TRIALS)
        ]
    return [end - before - own for before, end, own in zip(ends, ends[1:], trained[1:], strict=False)]


def cold() -> list[tuple[float, float]]:
    """Return seconds from commands to the first trial's first epoch, each with the longest silence until then."""
    found = []
    for _ in range(ROUNDS):
        with tempfile.TemporaryDirectory() as folder:
            began, said = time.time(), list[float]()
            command = [sys.executable, "-m", "ebclab", *SMALL_SWEEP, "--sweeps", folder, "--name", "s"]
            with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
                assert process.stdout is not None
                said = [time.time() for _ in process.stdout]
            assert process.returncode == 0, "the sweep has failed"
            lines = (Path(folder) / "s" / "trials.jsonl").read_text().splitlines()
        records = (json.loads(line) for line in lines)
        first = next(timestamp(record["time"]) for record in records if record["event"] == "epoch")
        heard = [began, *(at for at in said if at < first), first]
        found.append((first - began, max(later - earlier for earlier, later in pairwise(heard))))
    return found


def not_training(comparison: Path, processors: int) -> tuple[int, float, float]:
    """Return how many runs a comparison that has ended has, its seconds, and the share of them that trained nothing."""
    logs = [path.read_text().splitlines() for path in comparison.glob("sweeps/*/trials.jsonl")]
    began = min(
        (comparison / "comparison.yaml").stat().st_mtime, *(timestamp(json.loads(log[0])["time"]) for log in logs)
    )
    seconds = (comparison / "comparison.json").stat().st_mtime - began
    ends = [record for log in logs for record in map(json.loads, log) if record["event"] == "ended"]
    return len(ends), seconds, 1 - sum(end["seconds"] for end in ends) / (processors * seconds)


def timestamp(text: str) -> float:
    """Return an ISO time in seconds."""
    from datetime import datetime

    return datetime.fromisoformat(text).timestamp()


def peer(root: str, *, reuse: bool) -> list[float]:
    """Return the same for a plain function of Ray Tune that loads its data."""
    from ebclab.cluster.switches import set_ray_switches

    set_ray_switches()
    import ray
    from ray import tune

    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")

    def train(config: dict[str, Any]) -> None:
        import torch

        from ebclab.training.loop import train_step
        from ebclab.training.setup import prepare
        from energy_contrast.catalog import METHODS

        torch.set_num_threads(1)
        settings = config_of(root)
        prepared = prepare(settings, torch.device("cpu"), None, METHODS["simclr"])
        started = time.time()
        train_step(prepared.training)
        tune.report({"trained": time.time() - started, "end": time.time()})

    with tempfile.TemporaryDirectory() as folder:
        results = tune.Tuner(
            tune.with_resources(train, {"cpu": 2}),
            param_space={"temperature": tune.loguniform(0.1, 1.0)},
            tune_config=tune.TuneConfig(num_samples=TRIALS, reuse_actors=reuse),
            run_config=tune.RunConfig(storage_path=folder, verbose=0),
        ).fit()
    ray.shutdown()
    found = sorted((result.metrics["end"], result.metrics["trained"]) for result in results)
    return [end - before - own for (before, _), (end, own) in pairwise(found)]


def resume(root: str) -> dict[str, float]:
    """Return the seconds, by part, until a sweep with 1,000 recorded trials gives its next order."""
    import ebclab
    from ebclab.runs.stop_request import StopFlag
    from ebclab.sweeps.log import SweepLog
    from ebclab.sweeps.policies.suggest import suggest
    from ebclab.sweeps.scheduler import SearchProposals, SweepScheduler
    from ebclab.sweeps.space.space import load_space

    config = ebclab.compose("flatclr", recipe="fashion-mnist-small", overrides=["training.epochs=20"])
    plan = ebclab.make_plan(config, ebclab.SweepRequest(trials=1001, epochs=20))
    space = load_space(None, "flatclr")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trials.jsonl"
        with path.open("w") as file:
            for number in range(1000):
                point = suggest(space, "random", seed=0, number=number, trials=[], default=None)
                generated_trial(file, number, point, space.settings(point))
        marks = [time.perf_counter()]
        log = SweepLog(path)
        marks.append(time.perf_counter())
        scheduler = SweepScheduler(
            log, plan, SearchProposals(plan), concurrent=1, stop=StopFlag(), clone=lambda trial, donor: ({}, {})
        )
        turn = scheduler.next_turn()
        marks.append(time.perf_counter())
    assert turn is not None
    assert turn.trial == "1000"
    return {"read the log": marks[1] - marks[0], "suggest and order the next trial": marks[2] - marks[1]}


def generated_trial(file: Any, number: int, point: dict[str, Any], settings: dict[str, Any]) -> None:
    """Write the events of one finished trial of 20 epochs."""
    common = {"time": "2026-01-01T00:00:00.000+00:00", "trial": f"{number:04d}"}
    own = {"kind": "search", "number": number, "point": point, "settings": settings, "seed": 0, "epochs": 20}
    file.write(json.dumps({"event": "trial", **common, **own}) + "\n")
    for epoch in range(1, 21):
        value = 1 - 1 / (epoch + number % 17 + 1)
        metrics = {"holdout_knn": value, "info_nce": 3 - value, "effective_rank": 20.0, "ess": 0.3, "seconds": 1.0}
        record = {"event": "epoch", **common, "epoch": epoch, "objective": value, "seconds": epoch, "metrics": metrics}
        file.write(json.dumps(record) + "\n")
    file.write(json.dumps({"event": "ended", **common, "state": "finished", "reason": "", "seconds": 20.0}) + "\n")


WORK = {
    "ebclab": ours,
    "Ray Tune alone, processes reused": lambda root: peer(root, reuse=True),
    "Ray Tune alone, fresh processes": lambda root: peer(root, reuse=False),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-root", required=True)
    parser.add_argument("--comparison", type=Path, help="folder of a comparison that has ended on this machine")
    parser.add_argument("--only", choices=[*WORK, "resume"], help="measure this here and print it as JSON")
    arguments = parser.parse_args()
    if arguments.only:
        found = resume(arguments.data_root) if arguments.only == "resume" else WORK[arguments.only](arguments.data_root)
        print(json.dumps(found))
        return
    starts, measured = cold(), {}
    for name in [*WORK, "resume"]:
        command = [sys.executable, __file__, "--data-root", arguments.data_root, "--only", name]
        output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        measured[name] = json.loads(output.splitlines()[-1])
    lines = ["| from the command, Ray not running | seconds, median | fastest to slowest |", "|---|---|---|"]
    for name, values in zip(
        ("to the first trial's first epoch", "longest time without a line"), zip(*starts, strict=True), strict=True
    ):
        lines.append(f"| {name} | {statistics.median(values):.1f} | {min(values):.1f} to {max(values):.1f} |")
    lines += [
        "",
        "| a trial's start and end, its training apart | seconds, median | fastest to slowest |",
        "|---|---|---|",
    ]
    for name in WORK:
        values = measured[name]
        lines.append(f"| {name} | {statistics.median(values):.2f} | {min(values):.2f} to {max(values):.2f} |")
    lines += ["", "| resume of a sweep with 1,000 recorded trials | seconds |", "|---|---|"]
    lines += [f"| {part} | {seconds:.2f} |" for part, seconds in measured["resume"].items()]
    if arguments.comparison is not None:
        runs, seconds, share = not_training(arguments.comparison, os.cpu_count() or 1)
        lines += ["", "| a comparison | runs | minutes | of the processors' time, not training |", "|---|---|---|---|"]
        lines.append(f"| {arguments.comparison.name} | {runs} | {seconds / 60:.0f} | {share:.0%} |")
    run = "`python benchmarks/sweep_start.py --data-root DATA [--comparison FOLDER]`"
    write_page(
        "sweep_start", "What a sweep costs beside the training", run, ("torch", "ray", "optuna"), "\n".join(lines)
    )


if __name__ == "__main__":
    main()

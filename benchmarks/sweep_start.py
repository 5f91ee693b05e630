"""What a sweep costs beside the training: the start of a trial, and the resume of a long sweep.

    python benchmarks/sweep_start.py --data-root DATA

Trials: each trains one step of the small encoder on Fashion-MNIST (the whole set is loaded), one trial at a time.
The peer is what one would write with Ray Tune alone: a function that loads the data and trains the same step, with
fresh processes, and with reused ones. Resume: a generated log of 1,000 trials of 20 epochs each.
"""

from __future__ import annotations

import argparse
import json
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
    from ebclab.sweeps.proposals import SearchProposals
    from ebclab.sweeps.scheduler import SweepScheduler
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
    parser.add_argument("--only", choices=[*WORK, "resume"], help="measure this here and print it as JSON")
    arguments = parser.parse_args()
    if arguments.only:
        found = resume(arguments.data_root) if arguments.only == "resume" else WORK[arguments.only](arguments.data_root)
        print(json.dumps(found))
        return
    measured = {}
    for name in [*WORK, "resume"]:
        command = [sys.executable, __file__, "--data-root", arguments.data_root, "--only", name]
        output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        measured[name] = json.loads(output.splitlines()[-1])
    lines = ["| a trial's start and end, its training apart | seconds, median | fastest to slowest |", "|---|---|---|"]
    for name in WORK:
        values = measured[name]
        lines.append(f"| {name} | {statistics.median(values):.2f} | {min(values):.2f} to {max(values):.2f} |")
    lines += ["", "| resume of a sweep with 1,000 recorded trials | seconds |", "|---|---|"]
    lines += [f"| {part} | {seconds:.2f} |" for part, seconds in measured["resume"].items()]
    run = "`python benchmarks/sweep_start.py --data-root DATA`"
    write_page(
        "sweep_start", "What a sweep costs beside the training", run, ("torch", "ray", "optuna"), "\n".join(lines)
    )


if __name__ == "__main__":
    main()

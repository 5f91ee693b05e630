"""How start-up, scheduling and our own bookkeeping grow with nodes and trials.

    python benchmarks/scaling.py [--measured FILE]

Nodes are simulated: raylets of one CPU each on this machine. A trial is empty: it reports one epoch and its end, so
that what is measured is Ray Tune and our own decisions. The first trials wait until a process works on every node.
Every number of nodes or trials has a process of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from page import measured, write_page
from report import measure, write_sweep
from sweep_start import generated_trial, timestamp

NODES, TRIALS = (1, 2, 4, 8, 16), (10, 100, 1000)
SCHEDULED = ((1, 64), (2, 64), (4, 64), (8, 64), (16, 64), (4, 256), (4, 1000))
SPACE = {"parameters": {"method.temperature": {"loguniform": [0.1, 1.0]}}}
TINY = ["data.train_limit=128", "training.batch_size=64", "optimizer.warmup_epochs=0", "resources.threads=1"]


@contextmanager
def cluster(nodes: int) -> Iterator[tuple[float, float, float]]:
    """Yield the seconds of the head's start, of the other nodes', and MB of a node's own processes."""
    from ebclab.cluster.switches import set_ray_switches

    set_ray_switches()
    import ray
    from ray.cluster_utils import Cluster

    marks, room = [time.perf_counter()], {"num_cpus": 1, "object_store_memory": 100 << 20}
    simulated = Cluster(initialize_head=True, head_node_args={**room, "include_dashboard": False})
    ray.init(address=simulated.address, log_to_driver=False, logging_level="ERROR")
    marks.append(time.perf_counter())
    for _ in range(nodes - 1):
        simulated.add_node(wait=False, **room)
    simulated.wait_for_nodes(timeout=150)
    marks.append(time.perf_counter())
    time.sleep(3)  # agents come after their raylet
    sizes = [processes_memory(node) for node in simulated.worker_nodes]
    try:
        yield marks[1] - marks[0], marks[2] - marks[1], statistics.median(sizes) if sizes else 0.0
    finally:
        ray.shutdown()
        simulated.shutdown()


def processes_memory(node: Any) -> float:
    """Return the MB of a node's processes; memory that they share counts in parts."""
    import psutil

    roots = [psutil.Process(info.process.pid) for kind in node.all_processes.values() for info in kind]
    every = {process for root in roots for process in [root, *root.children(recursive=True)]}
    return sum(process.memory_full_info().pss for process in every) / 1e6


def start(nodes: int) -> dict[str, float]:
    """Measure the start of a cluster."""
    with cluster(nodes) as (head, others, memory):
        return {"head": head, "others": others, "memory": memory}


def empty_turn(nodes: int) -> Callable[..., None]:
    """Return what reports one epoch and the end, once as many processes as nodes have come."""

    def turn(config: dict[str, Any], setup: Any) -> None:
        from ray import tune

        there = setup.folder.path / "processes"
        there.mkdir(exist_ok=True)
        own = there / f"{os.getpid()}"
        if not own.exists():
            own.touch()
        while len(os.listdir(there)) < nodes:
            time.sleep(0.02)
        tune.report({"epoch": 1, "objective": 0.5, "metrics": {"holdout_knn": 0.5}})
        tune.report({"outcome": "finished", "reason": ""})

    return turn


def sweep_of(trials: int, place: str, turn: Callable[..., None], concurrent: int, epochs: int = 1) -> None:
    """Run a sweep on the cluster that this process has joined, with ``turn`` for a trial's work."""
    import ebclab
    from ebclab.sweeps.display import SweepDisplay
    from ebclab.sweeps.ray_tune import phase
    from ebclab.sweeps.resources import Limits
    from ebclab.sweeps.space.space import parse_space

    phase.run_turn = turn
    config = ebclab.compose("simclr", overrides=[*TINY, f"training.epochs={epochs}"])
    space = parse_space(SPACE, "benchmark")
    plan = ebclab.make_plan(
        config, ebclab.SweepRequest(space=space, search="random", scheduler="none", trials=trials, top=0)
    )
    ebclab.sweep(plan, sweeps=place, name="s", limits=Limits(concurrent=concurrent), display=SweepDisplay())


def schedule(nodes: int, trials: int) -> dict[str, float]:
    """Measure a sweep of empty trials, one at a time on each node."""
    from ebclab.sweeps.log import SweepLog  # noqa: F401  (imported before the clock starts)

    with cluster(nodes), tempfile.TemporaryDirectory() as folder:
        began = time.time()
        sweep_of(trials, folder, empty_turn(nodes), nodes)
        started = [path.stat().st_mtime for path in (Path(folder) / "s" / "processes").iterdir()]
        records = [json.loads(line) for line in (Path(folder) / "s" / "trials.jsonl").read_text().splitlines()]
        ends = sorted(timestamp(record["time"]) for record in records if record["event"] == "ended")
        half = len(ends) // 2
        early = (ends[half - 1] - ends[nodes - 1]) / (half - nodes)
        found = {"all": time.time() - began, "ready": sorted(started)[nodes - 1] - began, "processes": len(started)}
        return found | {"early": early, "each": (ends[-1] - ends[half - 1]) / half}


def decisions(trials: int) -> float:
    """Return the seconds that our own decisions take for a trial, log included, with nobody to train it."""
    import ebclab
    from ebclab.runs.stop_request import StopFlag
    from ebclab.sweeps.log import SweepLog
    from ebclab.sweeps.scheduler import SearchProposals, SweepScheduler
    from ebclab.sweeps.space.space import parse_space

    space, config = parse_space(SPACE, "benchmark"), ebclab.compose("simclr", overrides=TINY)
    plan = ebclab.make_plan(
        config, ebclab.SweepRequest(space=space, search="random", scheduler="none", trials=trials, top=0)
    )
    with tempfile.TemporaryDirectory() as folder:
        log = SweepLog(Path(folder) / "trials.jsonl")
        scheduler = SweepScheduler(
            log, plan, SearchProposals(plan), concurrent=4, stop=StopFlag(), clone=lambda *_: ({}, {})
        )
        began = time.perf_counter()
        while turn := scheduler.next_turn():
            scheduler.on_epoch(turn.trial, 1, 0.5, 1.0, {"holdout_knn": 0.5})
            scheduler.on_outcome(turn.trial, "finished", "", 1.0)
            scheduler.on_turn_over(turn.trial)
        return (time.perf_counter() - began) / trials


def grow(trials: int) -> dict[str, float]:
    """Measure what is done for one event, one proposal, one resume and one report, after ``trials`` trials."""
    from ebclab.storage.mirror import Mirror
    from ebclab.storage.object_store import RemoteFolder
    from ebclab.sweeps.folder import SweepFolder
    from ebclab.sweeps.log import SweepLog
    from ebclab.sweeps.policies.stopping import StopRules, decide
    from ebclab.sweeps.policies.suggest import suggest
    from ebclab.sweeps.space.space import load_space

    space, found = load_space(None, "flatclr"), {}
    with tempfile.TemporaryDirectory() as folder:
        os.environ["EBCLAB_COPIES"] = f"{folder}/copies"
        remote = RemoteFolder(f"file://{folder}/store", "s")
        remote.cache.mkdir(parents=True)
        path = remote.cache / "trials.jsonl"
        with path.open("w") as file:
            for number in range(trials):
                point = suggest(space, "random", seed=0, number=number, trials=[], default=None)
                generated_trial(file, number, point, space.settings(point))
            for name in ("params.json", "params.pkl", "result.json", "progress.csv"):
                for number in range(trials):  # what Tune leaves there for each trial
                    (remote.cache / ".ray" / "tune" / f"{number:04d}" / name).parent.mkdir(parents=True, exist_ok=True)
                    (remote.cache / ".ray" / "tune" / f"{number:04d}" / name).write_text("{}")
        log, found["read"] = timed(lambda: SweepLog(path))
        every = list(log.trials.values())
        _, found["append"] = timed(lambda: log.append("note", trial="0000"))
        found["megabytes"] = path.stat().st_size / 1e6
        asked = {"seed": 0, "number": trials, "trials": every, "default": None}
        _, found["suggest"] = timed(lambda: suggest(space, "tpe", **asked))
        newest = every[-1]
        for name, epochs_done in (("between", 5), ("median", 5), ("rung", 4)):
            while newest.epochs_done > epochs_done:
                newest.curve.pop(newest.epochs_done)
            rules = StopRules(scheduler="median" if name == "median" else "asha")
            _, found[name] = timed(lambda rules=rules: decide(newest, every, rules))
        mirror = Mirror(remote)
        mirror.push()
        _, found["push"] = timed(mirror.push)
        sweep = SweepFolder(Path(folder) / "sweep")
        write_sweep(sweep, trials, 20)
        _, found["report"], found["report_memory"] = measure(sweep)
        found["page"] = (sweep.path / "report.html").stat().st_size / 1e6
    return found | {"decisions": decisions(trials)}


def timed(work: Callable[[], Any], rounds: int = 5) -> tuple[Any, float]:
    """Return the last result of ``work`` and the median of its seconds."""
    seconds = []
    for _ in range(rounds):
        began = time.perf_counter()
        result = work()
        seconds.append(time.perf_counter() - began)
    return result, statistics.median(seconds)


PARTS: dict[str, Callable[..., dict[str, float]]] = {"start": start, "schedule": schedule, "grow": grow}


def tables(found: dict[str, dict[str, float] | None]) -> str:
    """Return the page's tables; what took longer than allowed was not measured."""

    def row(name: str, label: str, *cells: tuple[str, str, float]) -> str:
        own = found[name]
        texts = ["not measured" if own is None else format(own[key] * by, form) for key, form, by in cells]
        return f"| {label} | {' | '.join(texts)} |"

    lines = ["| nodes | head, s | the others, s | a node's own processes, MB |", "|---|---|---|---|"]
    cells = (("head", ".1f", 1), ("others", ".1f", 1), ("memory", ".0f", 1))
    lines += [row(f"start {nodes}", str(nodes), *cells) for nodes in NODES]
    heads = ("all, s", "until every node trains, s", "processes", "each, first half, ms", "each, second half, ms")
    lines += ["", f"| nodes, empty trials | {' | '.join(heads)} |", "|---|---|---|---|---|---|"]
    cells = (("all", ".1f", 1), ("ready", ".1f", 1), ("processes", "", 1), ("early", ".0f", 1e3), ("each", ".0f", 1e3))
    lines += [row(f"schedule {nodes} {n}", f"{nodes}, {n:,}", *cells) for nodes, n in SCHEDULED]
    lines += [
        "",
        "| after so many trials of 20 epochs | " + " | ".join(f"{n:,}" for n in TRIALS) + " |",
        "|---|---|---|---|",
    ]
    for key, label, form, by in GROWTH:
        values = [found[f"grow {n}"] for n in TRIALS]
        lines.append(
            f"| {label} | " + " | ".join("-" if v is None else format(v[key] * by, form) for v in values) + " |"
        )
    return "\n".join(lines)


GROWTH = (
    ("decisions", "all our decisions for an empty trial, mean, ms", ".1f", 1e3),
    ("append", "write an event, ms", ".1f", 1e3),
    ("between", "decide, asha between rungs, ms", ".2f", 1e3),
    ("rung", "decide, asha at a rung, ms", ".2f", 1e3),
    ("median", "decide, median rule, ms", ".2f", 1e3),
    ("suggest", "suggest (TPE), ms", ".0f", 1e3),
    ("push", "push with nothing new, beside what Tune leaves, ms", ".2f", 1e3),
    ("read", "read the log (resume), ms", ".0f", 1e3),
    ("megabytes", "log, MB", ".2f", 1),
    ("report", "report, s of the processor", ".1f", 1),
    ("report_memory", "report, peak MB", ".0f", 1),
    ("page", "page, MB", ".1f", 1),
)


def main() -> None:
    """Measure everything and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measured", metavar="FILE", help="keep measurements here; what it has is not repeated")
    parser.add_argument("--only", nargs="+", metavar="PART", help="measure this here and print it as JSON")
    asked = parser.parse_args()
    if asked.only:
        print(json.dumps(PARTS[asked.only[0]](*map(int, asked.only[1:]))))
        return
    names = [f"start {n}" for n in NODES] + [f"schedule {nodes} {n}" for nodes, n in SCHEDULED]
    found = measured(__file__, names + [f"grow {n}" for n in TRIALS], asked.measured)
    packages = ("torch", "ray", "optuna", "pyarrow")
    write_page("scaling", "Growth with nodes and trials", "`python benchmarks/scaling.py`", packages, tables(found))


if __name__ == "__main__":
    main()

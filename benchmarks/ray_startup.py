"""Where the seconds go until a worker of Ray Train begins to train.

    python benchmarks/ray_startup.py

Each round is a process of its own: import, start Ray, start one worker whose work is to look at the clock.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time

from page import write_page

PARTS = {
    "imports": "import torch, Ray Train and ebclab in the driver",
    "ray": "start Ray on this machine",
    "worker": "start a worker process that imports the same, and its process group",
    "end": "end the run and Ray",
}


def one_round() -> dict[str, float]:
    """Return the seconds of each part, in this process."""
    marks = [time.time()]
    from ebclab.cluster.switches import set_ray_switches

    set_ray_switches()
    import ray
    from ray.train import RunConfig, ScalingConfig
    from ray.train.torch import TorchTrainer

    import ebclab.training.ray_train.launch  # noqa: F401  (what a driver imports)

    marks.append(time.time())
    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    marks.append(time.time())
    with tempfile.TemporaryDirectory() as folder:
        where = RunConfig(name="startup", storage_path=folder)
        trainer = TorchTrainer(begin, scaling_config=ScalingConfig(num_workers=1), run_config=where)
        marks.append(trainer.fit().return_value)
    ray.shutdown()
    marks.append(time.time())
    return {part: after - before for part, before, after in zip(PARTS, marks, marks[1:], strict=False)}


def begin() -> float:
    """Return when a worker could have begun to train."""
    import ebclab.training.ray_train.worker  # noqa: F401  (what a worker imports)

    return time.time()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--one", action="store_true", help="make one round here and print it as JSON")
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(one_round()))
        return
    command = [sys.executable, __file__, "--one"]
    outputs = [
        subprocess.run(command, check=True, capture_output=True, text=True).stdout for _ in range(arguments.rounds)
    ]
    rounds = [json.loads(output.splitlines()[-1]) for output in outputs]
    lines = ["| part | seconds, median | fastest to slowest |", "|---|---|---|"]
    for part, words in PARTS.items():
        values = [found[part] for found in rounds]
        lines.append(f"| {words} | {statistics.median(values):.1f} | {min(values):.1f} to {max(values):.1f} |")
    run = f"`python benchmarks/ray_startup.py --rounds {arguments.rounds}`"
    write_page("ray_startup", "Seconds until a Ray Train worker begins", run, ("torch", "ray"), "\n".join(lines))


if __name__ == "__main__":
    main()

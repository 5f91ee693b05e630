"""The same short runs with 0, 1 and 2 workers, resident and streamed: do they agree, and what does Ray cost?

    python benchmarks/workers.py --data-root DIR --parquet DIR --folder DIR --runs DIR
    python benchmarks/workers.py --data-root DIR --runs DIR --methods ebclr vem-langevin --page workers_energy

The small encoder, one thread a worker. PARQUET is what ``ebclab data prepare fashion-mnist`` wrote; FOLDER holds
train/CLASS/*.png of the first images of the training set; without them images are resident only. Every run is a
command of its own.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

from page import write_page

METHODS = ("simclr", "flatclr", "moco")


def arrangements(arguments: argparse.Namespace) -> dict[str, list[str]]:
    """Return the command-line options of each way to deliver the images."""
    resident = ["--dataset", arguments.dataset, "--data-root", arguments.data_root]
    found = {
        "resident, in this process": [*resident, "--workers", "0"],
        "resident, 1 worker": [*resident, "--workers", "1"],
        "resident, 2 workers": [*resident, "--workers", "2"],
    }
    if arguments.parquet:
        parquet = ["--dataset", f"parquet:{arguments.parquet}", "--set", "data.delivery=stream"]
        found["streamed from Parquet, 1 worker"] = [*parquet, "--workers", "1"]
        found["streamed from Parquet, 2 workers"] = [*parquet, "--workers", "2"]
    if arguments.folder:
        stream = ["--set", "data.delivery=stream", "--set", "data.colour=grey"]
        folder = ["--dataset", f"folder:{arguments.folder}", *stream]
        found["streamed from a folder, 1 worker"] = [*folder, "--workers", "1"]
        found["streamed from a folder, 2 workers"] = [*folder, "--workers", "2"]
    return found


def run(method: str, name: str, options: list[str], arguments: argparse.Namespace) -> str:
    """Make one run and return its row of the table."""
    settings = [
        f"data.train_limit={arguments.images}",
        f"data.holdout_rate={arguments.holdout_rate}",
        "resources.threads=1",
    ]
    folder = f"{method}-{arguments.dataset}-{name}".replace(" ", "-").replace(",", "")
    command = [sys.executable, "-m", "ebclab", "pretrain", method, "--recipe", arguments.recipe, *options]
    command += ["--epochs", str(arguments.epochs), "--runs", arguments.runs, "--name", folder]
    start = time.perf_counter()
    subprocess.run([*command, *(part for s in settings for part in ("--set", s))], check=True, capture_output=True)
    wall = time.perf_counter() - start
    result = json.loads((Path(arguments.runs) / folder / "result.json").read_text())
    rate = result["images_per_second"]
    shown = f"{rate['mean']:,.0f} +/- {rate['std']:,.0f}" if rate else ""
    row = f"| {method} | {name} | {100 * result['scores']['holdout_knn']:.1f} % of {result['holdout_images']} "
    row += f"| {shown} | {wall:.0f} |"
    print(row, flush=True)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for option in ("--data-root", "--runs"):
        parser.add_argument(option, required=True)
    for option in ("--parquet", "--folder"):
        parser.add_argument(option)
    parser.add_argument("--methods", nargs="+", default=list(METHODS))
    parser.add_argument("--recipe", default="fashion-mnist-small")
    parser.add_argument("--dataset", default="fashion-mnist")
    parser.add_argument("--page", default="workers", help="name of the table in benchmarks/results")
    parser.add_argument("--images", type=int, default=5000, help="training images, held-out ones included")
    parser.add_argument(
        "--holdout-rate", type=float, default=0.4, help="many held-out images: scores with little noise"
    )
    parser.add_argument("--epochs", type=int, default=2)
    arguments = parser.parse_args()
    rows = ["| method | delivery | held-out kNN | img/s | seconds, whole command |", "|---|---|---|---|---|"]
    for method in arguments.methods:
        rows += [run(method, name, options, arguments) for name, options in arrangements(arguments).items()]
    numbers = f"--images {arguments.images} --holdout-rate {arguments.holdout_rate} --epochs {arguments.epochs}"
    asked = (
        f"--methods {' '.join(arguments.methods)} --recipe {arguments.recipe} --dataset {arguments.dataset} {numbers}"
    )
    command = f"`python benchmarks/workers.py ... {asked}`"
    title = f"{arguments.dataset} with 0, 1 and 2 workers"
    write_page(arguments.page, title, command, ("torch", "ray", "pyarrow"), "\n".join(rows))


if __name__ == "__main__":
    main()

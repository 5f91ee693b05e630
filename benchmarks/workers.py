"""The same short runs with 0, 1 and 2 workers, resident and streamed: do they agree, and what does Ray cost?

    python benchmarks/workers.py --data-root DIR --parquet DIR --folder DIR --runs DIR

Fashion-MNIST, the small encoder, one thread a worker. PARQUET is what ``ebclab data prepare fashion-mnist`` wrote;
FOLDER holds train/CLASS/*.png of the first images of the training set. Every run is a command of its own.
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
    resident = ["--dataset", "fashion-mnist", "--data-root", arguments.data_root]
    parquet = ["--dataset", f"parquet:{arguments.parquet}", "--set", "data.delivery=stream"]
    folder = ["--dataset", f"folder:{arguments.folder}", "--set", "data.delivery=stream", "--set", "data.colour=grey"]
    return {
        "resident, in this process": [*resident, "--workers", "0"],
        "resident, 1 worker": [*resident, "--workers", "1"],
        "resident, 2 workers": [*resident, "--workers", "2"],
        "streamed from Parquet, 1 worker": [*parquet, "--workers", "1"],
        "streamed from Parquet, 2 workers": [*parquet, "--workers", "2"],
        "streamed from a folder, 1 worker": [*folder, "--workers", "1"],
        "streamed from a folder, 2 workers": [*folder, "--workers", "2"],
    }


def run(method: str, name: str, options: list[str], arguments: argparse.Namespace) -> str:
    """Make one run and return its row of the table."""
    settings = [
        f"data.train_limit={arguments.images}",
        f"data.holdout_rate={arguments.holdout_rate}",
        "resources.threads=1",
    ]
    command = [sys.executable, "-m", "ebclab", "pretrain", method, "--recipe", "fashion-mnist-small", *options]
    command += [
        "--epochs",
        str(arguments.epochs),
        "--runs",
        arguments.runs,
        "--name",
        f"{method}-{name}".replace(" ", "-"),
    ]
    start = time.perf_counter()
    subprocess.run([*command, *(part for s in settings for part in ("--set", s))], check=True, capture_output=True)
    wall = time.perf_counter() - start
    result = json.loads((Path(arguments.runs) / f"{method}-{name}".replace(" ", "-") / "result.json").read_text())
    rate = result["images_per_second"]
    row = f"| {method} | {name} | {100 * result['scores']['holdout_knn']:.1f} % of {result['holdout_images']} "
    row += f"| {rate['mean']:,.0f} +/- {rate['std']:,.0f} | {wall:.0f} |"
    print(row, flush=True)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for option in ("--data-root", "--parquet", "--folder", "--runs"):
        parser.add_argument(option, required=True)
    parser.add_argument("--images", type=int, default=5000, help="training images, held-out ones included")
    parser.add_argument(
        "--holdout-rate", type=float, default=0.4, help="many held-out images: scores with little noise"
    )
    parser.add_argument("--epochs", type=int, default=2)
    arguments = parser.parse_args()
    rows = ["| method | delivery | held-out kNN | img/s | seconds, whole command |", "|---|---|---|---|---|"]
    for method in METHODS:
        rows += [run(method, name, options, arguments) for name, options in arrangements(arguments).items()]
    numbers = f"--images {arguments.images} --holdout-rate {arguments.holdout_rate} --epochs {arguments.epochs}"
    command = f"`python benchmarks/workers.py ... {numbers}`"
    title = "Fashion-MNIST with 0, 1 and 2 workers, resident and streamed"
    write_page("workers", title, command, ("torch", "ray", "pyarrow"), "\n".join(rows))


if __name__ == "__main__":
    main()

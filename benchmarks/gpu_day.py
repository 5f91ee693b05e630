"""A day on a GPU: four parts in order of value, each of at most nine minutes and complete by itself.

    a   the tests marked gpu; img/s of every method as it is, captured, in bfloat16 and compiled, beside SimCLR's
    b   EBCLR and its baselines, as released and better, on MNIST and Fashion-MNIST, 100 epochs
    c   EBCLR and SimCLR on CIFAR-10, 10 and 100 epochs
    d   four trials at once on the card, and one after the other

A part writes each row when it has it. A run that is not through when the time is over is saved, and the same command
goes on with it. Datasets lie in ``--data-root``; one that travelled in parts, FILE.part0 and so on, is put together.
"""

from __future__ import annotations

import os
import shutil
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

import torch
from gpu_common import BFLOAT16, CAPTURED, COMPILED, VARIANTS, Setting, timed_rate

from ebclab.errors import InterruptedRunError
from ebclab.runs.evaluate import evaluate_run
from ebclab.training.pretrain import pretrain
from energy_contrast.catalog import METHODS

PARTS = ("a", "b", "c", "d")
FIRST = ("simclr", "ebclr", "vem-svgd", "moco", "byol")
ORDER = ("float32", "bfloat16", "float32, captured", "bfloat16, captured", "float32, compiled", "bfloat16, compiled")
EVALUATION_SECONDS = 45.0
BASELINES = ("simclr", "moco", "simsiam", "byol")
BETTER = ("optimizer.schedule=cosine", "views.shared_by=image")
"""What the released baselines lack: a learning rate that falls, and views of its own for each image."""

TINY_RUN = ("data.name=digits", "views.recipe=digits", "data.train_limit=64", "training.batch_size=16")
"""Settings of a run that only shows that a part works."""


class Time:
    """The time that a part has.

    Args:
        minutes: From now on.
    """

    def __init__(self, minutes: float) -> None:
        self._end = time.monotonic() + 60 * minutes

    @property
    def left(self) -> float:
        """Seconds until it is over."""
        return self._end - time.monotonic()

    @contextmanager
    def stopping(self, reserve: float) -> Iterator[None]:
        """Ask the run within to stop and save, as a user does with Ctrl-C, ``reserve`` seconds before the end.

        It is asked once a second: only a run that trains already hears it, and stops at the first time.
        """
        over, wait = threading.Event(), max(0.1, self.left - reserve)
        before = signal.signal(signal.SIGTERM, lambda *_: None)

        def ask() -> None:
            done = over.wait(wait)
            while not done:
                os.kill(os.getpid(), signal.SIGTERM)
                done = over.wait(1.0)

        asking = threading.Thread(target=ask)
        asking.start()
        try:
            yield
        finally:
            over.set()
            asking.join()
            signal.signal(signal.SIGTERM, before)


class Table:
    """A markdown table in a file, which has each row as soon as it is known.

    Args:
        path: The file.
        title: Its heading.
        columns: Those of the table.
    """

    def __init__(self, path: Path, title: str, columns: tuple[str, ...]) -> None:
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"# {title}\n\n| {' | '.join(columns)} |\n|{'---|' * len(columns)}\n")

    def add(self, *cells: str) -> None:
        """Write a row."""
        line = f"| {' | '.join(cells)} |"
        print(line, flush=True)
        with self._path.open("a") as file:
            file.write(f"{line}\n")


def run_part(part: str, setting: Setting, left: Time, out: Path, *, data_root: str, runs: Path) -> int:
    """Do a part of the day; return 0, or 1 when a test failed.

    Args:
        part: One of ``PARTS``.
        setting: Where, and how large.
        left: Its time.
        out: Folder of its tables.
        data_root: Folder of the datasets.
        runs: Folder of the runs, which the next call goes on with.
    """
    if part == "a":
        failed = marked_tests(out)
        every_step(setting, left, out)
        return failed
    if part == "d":
        trials_at_once(setting, out)
        return 0
    join_parts(Path(data_root))
    title = f"Test accuracy on one {setting.name}"
    columns = ("run", "epochs", "seconds", "img/s", "test kNN %", "test linear %")
    table = Table(out / f"{part}.md", title, columns)
    for name, method, epochs, overrides in islice(planned(part), 2 if setting.tiny else None):
        if left.left < EVALUATION_SECONDS and not setting.tiny:
            table.add(name, str(epochs), "not begun: no time left", "", "", "")
            continue
        train(setting, left, table, name, method, epochs, [*overrides, f"data.root={data_root}"], runs)
    return 0


def marked_tests(out: Path) -> int:
    """Run the tests that need a GPU, where there is a pytest; return 1 when one failed."""
    out.mkdir(parents=True, exist_ok=True)
    tests = Path(__file__).parents[1] / "tests"
    command = [sys.executable, "-m", "pytest", str(tests), "-m", "gpu", "-q", "-p", "no:xdist"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    (out / "a_tests.txt").write_text(done.stdout + done.stderr)
    print((done.stdout.splitlines() or ["no pytest here"])[-1], flush=True)
    return int(done.returncode == 1)


def every_step(setting: Setting, left: Time, out: Path) -> None:
    """Measure a step of every method, the most telling ones first."""
    columns = ("method", "numbers", "img/s, median", "range", "step, of SimCLR's", "steps")
    table = Table(out / "a_steps.md", f"Steps with views on one {setting.name}", columns)
    size, steps = (8, 1) if setting.tiny else (512, 10)
    simclr: dict[str, float] = {}
    methods = ("simclr", "ebclr") if setting.tiny else (*FIRST, *(name for name in METHODS if name not in FIRST))
    variants = ORDER[:3] if setting.tiny else ORDER
    for name in variants:
        for method in methods:
            if left.left < 10 + 60 * (COMPILED in VARIANTS[name]):
                table.add(method, name, "no time left", "", "", "")
                continue
            torch.compiler.reset()
            overrides = [f"training.batch_size={size}", "training.log_every=1000", *VARIANTS[name]]
            training = setting.prepare(method, overrides, (12 if setting.tiny else 40) * size).training
            rates = [timed_rate(setting, training, size, steps) for _ in range(6)][1:]
            rate = simclr.setdefault(name, statistics.median(rates))
            median = statistics.median(rates)
            how = "one graph" if training.captured else training.not_captured or "as they are"
            span = f"{min(rates):,.0f} to {max(rates):,.0f}"
            table.add(method, name, f"{median:,.0f}", span, f"{rate / median:.2f}x", how)


def planned(part: str) -> Iterator[tuple[str, str, int, list[str]]]:
    """Yield the runs of a part: name, method, epochs, settings."""
    if part == "c":
        for epochs in (10, 100):
            for method in ("ebclr", "simclr"):
                yield f"cifar10-{method}-{epochs}", method, epochs, ["data.name=cifar10"]
        return
    for dataset in ("mnist", "fashion-mnist"):
        named = [f"data.name={dataset}"]
        yield f"{dataset}-ebclr", "ebclr", 100, named
        for method in BASELINES:
            yield f"{dataset}-{method}-released", method, 100, named
            yield f"{dataset}-{method}-better", method, 100, [*named, *BETTER]


def train(
    setting: Setting,
    left: Time,
    table: Table,
    name: str,
    method: str,
    epochs: int,
    overrides: list[str],
    runs: Path,
) -> None:
    """Train, or go on, until the run or the time is over; write its row."""
    device = f"resources.device={setting.device.type}"
    views = ["views.recipe=ebclr-mnist"] if "mnist" in name else []
    epochs = 1 if setting.tiny else epochs
    last = TINY_RUN if setting.tiny else (BFLOAT16, CAPTURED)
    settings = [device, *views, *overrides, f"training.epochs={epochs}", *last]
    config = setting.config(method, settings, "ebclr-as-released")
    try:
        with left.stopping(EVALUATION_SECONDS):
            run = pretrain(config, runs=runs, name=name)
    except InterruptedRunError as error:
        table.add(name, str(epochs), str(error).split(";")[0], "", "", "")
        return
    only = ["knn"] if setting.tiny else ["knn", "linear"]
    scores = evaluate_run(run.path, only=only).rows[method]
    values = [f"{100 * scores[probe].value:.2f}" if probe in scores else "" for probe in ("knn", "linear")]
    rate = (run.result["images_per_second"] or {"mean": float("nan")})["mean"]
    table.add(name, str(epochs), f"{run.result['seconds']:.0f}", f"{rate:,.0f}", *values)


def join_parts(root: Path) -> None:
    """Put files together that travelled in parts, FILE.part0 and so on, because a call carries 64 MiB."""
    for first in sorted(root.rglob("*.part0")):
        whole = first.with_suffix("")
        parts = sorted(
            whole.parent.glob(f"{whole.name}.part*"), key=lambda path: int(path.suffix.removeprefix(".part"))
        )
        if not whole.exists():
            with whole.open("wb") as target:
                for part in parts:
                    with part.open("rb") as source:
                        shutil.copyfileobj(source, target)


def trial(setting: Setting, steps: int) -> float:
    """Return img/s of a trial, alone in its process."""
    size = 8 if setting.tiny else 128
    training = setting.prepare("simclr", [f"training.batch_size={size}"], 8 * size).training
    timed_rate(setting, training, size, 1)
    return timed_rate(setting, training, size, steps)


def trials_at_once(setting: Setting, out: Path) -> None:
    """Let four trials share the card, and have it one after the other; processes start and end in both."""
    table = Table(out / "d.md", f"Four trials on one {setting.name}", ("trials", "seconds", "img/s of each"))
    count, steps = (2, 1) if setting.tiny else (4, 300)
    script = str(Path(__file__).with_name("gpu.py"))
    command = [sys.executable, script, "trial", "--device", setting.device.type, "--steps", str(steps)]
    command += ["--tiny"] if setting.tiny else []
    for title, together in (("one after the other", 1), ("at once", count)):
        start, rates = time.perf_counter(), []
        for _ in range(0, count, together):
            running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(together)]
            rates += [each.communicate()[0].strip() for each in running]
            if any(each.returncode for each in running):
                raise SystemExit("error: a trial failed")
        table.add(f"{count}, {title}", f"{time.perf_counter() - start:.1f}", ", ".join(rates))

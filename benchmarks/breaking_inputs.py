"""What ``breaking.py`` types and writes: settings out of range, bombs, words that are HTML."""

from __future__ import annotations

import html
import io
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import redirect_stdout
from html.parser import HTMLParser
from pathlib import Path

SECONDS, MEGABYTES = 20.0, 1000.0

PAYLOADS = (
    "<script>alert(1)</script>",
    "</script><script>alert(1)</script>",
    "</SCRIPT ><img src=x onerror=alert(1)>",
    "<img src=x onerror=alert(1)>",
    '"><svg onload=alert(1)>',
    "'><iframe src=javascript:alert(1)>",
    "<!--<script>",
    "-->",
    "]]><script>alert(1)</script>",
    "</style><script>alert(1)</script>",
    "</title><script>alert(1)</script>",
    "{{7*7}}{% raw %}<b>",
    "<a href='javascript:alert(1)'>x</a>\u2028<details open ontoggle=alert(1)>",
)


class Tags(HTMLParser):
    """The tags of a page with the names of their attributes, in order."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, tuple[str, ...]]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, tuple(name for name, _ in attrs)))


def hostile_words() -> tuple[int, int]:
    """Return how many texts were shown in a report, and how many of them changed its tags."""
    harmless = _tags("harmless")
    return len(PAYLOADS), sum(_tags(text) != harmless for text in PAYLOADS)


def _tags(text: str) -> list[tuple[str, tuple[str, ...]]]:
    """Return the tags of the report of a small sweep in which ``text`` stands wherever a person may write."""
    from report import write_sweep

    from ebclab.cli import main
    from ebclab.formatting import visible
    from ebclab.sweeps.folder import SweepFolder

    with tempfile.TemporaryDirectory() as place:
        folder = SweepFolder(Path(place) / "sweep")
        write_sweep(folder, 8, 100)
        plan = folder.plan.read_text().replace("name: digits", f"name: {json.dumps(f'folder:/{text}')}")
        folder.plan.write_text(plan)
        events = [json.loads(line) for line in folder.log.read_text().splitlines()]
        for event in events:
            if event["event"] == "ended":
                event |= {"state": "failed", "reason": text} if event["trial"] == "0001" else {"reason": text}
        started = {"event": "started", "time": "2026-01-01", "environment": {"processor": text, "device": text}}
        folder.log.write_text("".join(json.dumps(event) + "\n" for event in [started, *events]))
        page = Path(place) / "page.html"
        with redirect_stdout(io.StringIO()):
            code = main(["report", str(folder.path), "--to", str(page)])
        if code:
            raise RuntimeError(f"no report with {text!r}")
        shown = page.read_text()
        if visible(text) not in html.unescape(shown):
            raise RuntimeError(f"the report does not show {text!r}")
        return Tags(shown).found


def _nested(folder: Path) -> str:
    lines = ["a: &a [x, x, x, x, x, x, x, x, x]"]
    lines += [f"{new}: &{new} [{', '.join([f'*{old}'] * 9)}]" for old, new in zip("abcdefgh", "bcdefghi", strict=True)]
    return _file(folder, "\n".join(lines))


def _file(folder: Path, text: str) -> str:
    path = folder / "settings.yaml"
    path.write_text(text)
    return str(path)


def _config(text: str) -> Callable[[Path], list[str]]:
    return lambda folder: ["--config", _file(folder, text)]


CRAFTED: dict[str, Callable[[Path], list[str]]] = {
    "threads 100,000": lambda _: ["--set", "resources.threads=100000"],
    "threads -1": lambda _: ["--set", "resources.threads=-1"],
    "views of 100,000 pixels": lambda _: ["--set", "views.image_size=100000"],
    "views of -1 pixels": lambda _: ["--set", "views.image_size=-1"],
    "a batch of 10^12": lambda _: ["--set", "training.batch_size=1000000000000"],
    "10^30 epochs": lambda _: ["--set", f"training.epochs={10**30}"],
    "a temperature of nan": lambda _: ["--set", "method.temperature=.nan"],
    "a learning rate of infinity": lambda _: ["--set", "optimizer.learning_rate=.inf"],
    "a projection of 10^9": lambda _: ["--set", "method.projection_size=1000000000"],
    "a seed of 2^64": lambda _: ["--set", f"seed={2**64}"],
    "a name of 300 characters": lambda _: ["--name", "x" * 300],
    "a name with a way out": lambda _: ["--name", "../../x"],
    "a name with a zero": lambda _: ["--name", "a\nb"],
    "a dataset elsewhere": lambda _: ["--set", "data.name=../../../etc"],
    "aliases of aliases": lambda folder: ["--config", _nested(folder)],
    "lists 100,000 deep": _config("a: " + "[" * 100_000),
    "an object": _config("!!python/object/apply:os.system [true]"),
    "an endless number": _config("seed: " + "9" * 5000),
    "a date that is none": _config("seed: 2020-13-45"),
    "a file of 2 MiB": _config("#" * (2 << 20)),
    "a device": lambda _: ["--config", "/dev/zero"],
}


def crafted() -> tuple[int, list[str]]:
    """Return how many command lines were tried, and for each that went wrong its name and what happened."""
    wrong = []
    for name, words in CRAFTED.items():
        with tempfile.TemporaryDirectory() as folder:
            said = Path(folder) / "said"
            command = [
                sys.executable,
                "-m",
                "ebclab",
                "pretrain",
                "simclr",
                "--recipe",
                "digits-demo",
                "--runs",
                folder,
            ]
            with said.open("w") as file:
                process = subprocess.Popen([*command, *words(Path(folder))], stdout=file, stderr=file)
                code, seconds, megabytes = _end_of(process)
            text = said.read_text()
            if "Traceback" in text or code != 2:
                wrong.append(f"{name}: exit code {code}, {text.strip()[-80:]!r}")
            elif seconds > SECONDS or megabytes > MEGABYTES:
                wrong.append(f"{name}: {seconds:.0f} s, {megabytes:.0f} MB")
    return len(CRAFTED), wrong


def _end_of(process: subprocess.Popen[bytes]) -> tuple[int, float, float]:
    """Return exit code, seconds and largest memory in MB of a process; one that hangs is killed."""
    began = time.perf_counter()
    while True:
        ended, status, used = os.wait4(process.pid, os.WNOHANG)
        seconds = time.perf_counter() - began
        if ended:
            return os.waitstatus_to_exitcode(status), seconds, used.ru_maxrss / 1024
        if seconds > 3 * SECONDS:
            process.kill()
        time.sleep(0.02)

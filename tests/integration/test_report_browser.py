"""A report in a real browser: it draws everything, asks the network for nothing, and its table sorts and filters."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from ebclab.config import compose
from ebclab.reports.output import write_report
from ebclab.sweeps.folder import SweepFolder
from ebclab.sweeps.log import SweepLog
from ebclab.sweeps.make_plan import make_plan
from ebclab.sweeps.plan import write_plan
from ebclab.sweeps.space import parse_space

CHROMIUM = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), ""
)
HOSTILE = "</script><img src=http://example.org/x onerror=console.error('owned')>"
SPACE = {"optimizer.learning_rate": {"loguniform": [1e-4, 0.1]}, "method.temperature": {"uniform": [0.1, 1.0]}}
PROBE = """
window.addEventListener("load", async () => {
  while (!document.documentElement.dataset.drawn) await new Promise((done) => setTimeout(done, 20));
  const marks = {};
  for (const at of document.querySelectorAll(".canvas")) {
    marks[at.id] = at.querySelectorAll(".points path, .js-line, .point path, .contourfill path, .barlayer path").length;
  }
  const table = document.querySelector("table.sortable");
  const column = (name) => [...table.tHead.rows[0].cells].findIndex((head) => head.textContent.trim() === name);
  const read = (name) => [...table.tBodies[0].rows].filter((row) => !row.hidden)
    .map((row) => row.cells[column(name)].dataset.value ?? row.cells[column(name)].textContent);
  const click = (name) => table.tHead.rows[0].cells[column(name)].querySelector("button").click();
  click("seconds");
  const up = read("seconds");
  click("seconds");
  const down = read("seconds");
  const filter = document.querySelector("input[type=search]");
  filter.value = "STOPPED 0008";
  filter.dispatchEvent(new Event("input"));
  const ground = getComputedStyle(document.body).backgroundColor;
  const found = document.createElement("pre");
  found.id = "found";
  const kept = read("trial"), width = document.body.scrollWidth;
  found.textContent = JSON.stringify({ marks, up, down, kept, ground, width });
  document.body.append(found);
});
"""

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(not CHROMIUM, reason="no Chromium; install it: apt-get install -y chromium"),
]


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of a made-up sweep of twelve trials, two settings and hostile reasons."""
    folder = SweepFolder(tmp_path_factory.mktemp("sweeps") / "<b>made up")
    folder.path.mkdir()
    config = compose("simclr", overrides=["training.epochs=4", "optimizer.learning_rate=0.01"])
    plan = make_plan(config, space=parse_space({"parameters": SPACE}, "test"), trials=12, top=1, seeds=2)
    write_plan(folder.plan, plan)
    log = SweepLog(folder.log)
    for number in range(12):
        point = {
            "optimizer.learning_rate": 10 ** (-4 + number / 4),
            "method.temperature": 0.1 + 0.07 * (number * 5 % 12),
        }
        _trial(log, f"{number:04d}", "search", point, number, "stopped" if number % 4 == 0 else "finished")
    for seed in (1, 2):
        _trial(log, f"confirm-0011-seed{seed}", "confirm", point, seed, "finished")
    return Path(write_report([folder.path])[0])


def _trial(log: SweepLog, name: str, kind: str, point: dict[str, float], number: int, state: str) -> None:
    shared: dict[str, Any] = {"kind": kind, "number": number, "seed": number, "epochs": 4}
    log.append("trial", trial=name, point=point, settings=point, **shared)
    for epoch in range(1, 5):
        value, metrics = 0.4 + 0.01 * number + 0.05 * epoch, {"ess": 0.1 * epoch}
        log.append("epoch", trial=name, epoch=epoch, objective=value, seconds=epoch * (20.0 - number), metrics=metrics)
    log.append("ended", trial=name, state=state, reason=HOSTILE, seconds=4 * (20.0 - number))


def _open(page: Path, tmp_path: Path, *options: str) -> tuple[dict[str, Any], list[str], set[str]]:
    """Open a copy of the page with a probe in it; return what the probe found, console lines and network requests."""
    text = page.read_text(encoding="utf-8")
    nonce = re.search(r"'nonce-([\w-]+)'", text)
    assert nonce is not None
    copy, net = tmp_path / "page.html", tmp_path / "net.json"
    copy.write_text(text.replace("</body>", f'<script nonce="{nonce[1]}">{PROBE}</script></body>'), encoding="utf-8")
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}"]
    quiet = ["--disable-background-networking", "--disable-component-update", "--no-first-run"]
    log = ["--enable-logging=stderr", f"--log-net-log={net}", "--virtual-time-budget=20000", "--dump-dom"]
    done = subprocess.run(
        [*command, *quiet, *log, *options, copy.as_uri()], capture_output=True, text=True, timeout=120, check=True
    )
    found = re.search(r'<pre id="found">(.*?)</pre>', done.stdout, re.DOTALL)
    assert found is not None, done.stderr[-2000:]
    console = [line for line in done.stderr.splitlines() if ":CONSOLE" in line]
    urls = set(re.findall(r'"url":"(https?://[^"]+)"', net.read_text(encoding="utf-8")))
    return json.loads(found[1]), console, urls


@pytest.mark.slow
@pytest.mark.parametrize(("scheme", "ground"), [(1, "rgb(245, 246, 248)"), (0, "rgb(18, 21, 26)")])
def test_a_page_draws_every_plot_sorts_filters_and_calls_nobody(
    page: Path, tmp_path: Path, scheme: int, ground: str
) -> None:
    options = [f"--blink-settings=preferredColorScheme={scheme}", "--window-size=1280,900"]
    found, console, urls = _open(page, tmp_path, *options)
    assert console == []
    assert not [url for url in urls if "example.org" in url or "plot" in url or "cdn" in url], urls
    names = {"curves", "confirmed", "importance", "slices", "contour", "parallel", "diagnostics", "time"}
    assert set(found["marks"]) == {f"{name}-1" for name in names}
    assert all(count > 0 for count in found["marks"].values()), found["marks"]
    up = [float(value) for value in found["up"]]
    assert up == sorted(up)
    assert [float(value) for value in found["down"]] == sorted(up, reverse=True)
    assert found["kept"] == ["0008"]
    assert found["ground"] == ground


@pytest.mark.slow
def test_a_narrow_page_does_not_scroll_sideways(page: Path, tmp_path: Path) -> None:
    found, _, _ = _open(page, tmp_path, "--window-size=600,900")
    assert found["width"] <= 600

"""A report in a real browser: it draws everything, asks for no file but itself, sorts, filters and prints."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import pytest
from browsing import CHROMIUM, Visit

from ebclab.config import compose, to_yaml
from ebclab.document.document import Document, Items, Section
from ebclab.reports import watch
from ebclab.reports.document import write_report
from ebclab.reports.report import report
from ebclab.reports.watch import PageServer, WatchedPage
from ebclab.runs.folder import RunFolder
from ebclab.sweeps.folder import SweepFolder
from ebclab.sweeps.log import SweepLog
from ebclab.sweeps.plan import make_plan, write_plan
from ebclab.sweeps.request import SweepRequest
from ebclab.sweeps.space.space import parse_space

HOSTILE = "</script><img src=http://example.org/x onerror=console.error('owned')>"
SPACE = {"optimizer.learning_rate": {"loguniform": [1e-4, 0.1]}, "method.temperature": {"uniform": [0.1, 1.0]}}
NUM_PLOTS = 9
MARKS = ".points path, .js-line, .point path, .contourfill path, .barlayer path, .hm image"
NEVER_MEASURED = "0005"

pytestmark = [
    pytest.mark.browser,
    pytest.mark.slow,
    pytest.mark.skipif(not CHROMIUM, reason="no Chromium; install it: apt-get install -y chromium"),
]


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of a made-up sweep of twelve trials, two settings and hostile reasons."""
    folder = SweepFolder(tmp_path_factory.mktemp("sweeps") / "<b>made up")
    folder.path.mkdir()
    config = compose("simclr", overrides=["training.epochs=4", "optimizer.learning_rate=0.01"])
    plan = make_plan(config, SweepRequest(space=parse_space({"parameters": SPACE}, "test"), trials=12, top=1, seeds=2))
    write_plan(folder.plan, plan)
    log = SweepLog(folder.log)
    for number in range(12):
        point = {
            "optimizer.learning_rate": 10 ** (-4 + number / 4),
            "method.temperature": 0.1 + 0.07 * (number * 5 % 12),
        }
        name, state = f"{number:04d}", "stopped" if number % 4 == 0 else "finished"
        _trial(log, name, "search", point, number, "failed" if name == NEVER_MEASURED else state)
    for seed in (1, 2):
        _trial(log, f"confirm-0011-seed{seed}", "confirm", point, seed, "finished")
    return Path(write_report([folder.path]))


def _trial(log: SweepLog, name: str, kind: str, point: dict[str, float], number: int, state: str) -> None:
    shared: dict[str, Any] = {"kind": kind, "number": number, "seed": number, "epochs": 4}
    log.append("trial", trial=name, point=point, settings=point, **shared)
    for epoch in range(1, 1 if name == NEVER_MEASURED else 5):
        value, metrics = 0.4 + 0.01 * number + 0.05 * epoch, {"ess": 0.1 * epoch}
        log.append("epoch", trial=name, epoch=epoch, objective=value, seconds=epoch * (20.0 - number), metrics=metrics)
    log.append("ended", trial=name, state=state, reason=HOSTILE, seconds=4 * (20.0 - number))


@pytest.fixture(scope="module")
def light(browser: Any, page: Path) -> Visit:
    """The page in a wide window, light."""
    return Visit(browser, page, color_scheme="light")


@pytest.fixture(scope="module")
def dark(browser: Any, page: Path) -> Visit:
    """The page in a wide window, dark."""
    return Visit(browser, page, color_scheme="dark")


@pytest.mark.parametrize(("scheme", "ground"), [("light", "rgb(245, 246, 248)"), ("dark", "rgb(18, 21, 26)")])
def test_a_page_draws_every_plot_in_either_scheme_and_asks_for_no_file_but_itself(
    request: pytest.FixtureRequest, page: Path, scheme: str, ground: str
) -> None:
    visit = request.getfixturevalue(scheme)
    for head in ("trial", "seconds"):
        visit.sort(head)
    visit.tab.wait_for_timeout(300)  # for requests that come late
    assert visit.requests == [page.as_uri()]
    assert visit.said == []
    marks = visit.plots(MARKS)
    assert len(marks) == NUM_PLOTS
    assert all(count > 0 for count in marks.values()), marks
    assert visit.tab.evaluate("getComputedStyle(document.body).backgroundColor") == ground


def test_columns_sort_by_value_or_by_the_alphabet_with_what_is_missing_last(light: Visit) -> None:
    numbers = {"held-out kNN": 1, "seconds": 0, "learning_rate": 0, "rank": 3}  # the trial without measurements, runs
    for head, missing in numbers.items():
        light.sort(head)
        up = light.column(head)
        light.sort(head)
        down = light.column(head)
        known = [float(value) for value in up if value]
        assert known == sorted(known)
        assert [float(value) for value in down if value] == sorted(known, reverse=True)
        assert up[len(known) :] == down[len(known) :] == [""] * missing
    for head in ("trial", "state"):
        before = light.column(head)
        assert len(set(before)) > 1
        light.sort(head)
        assert light.column(head) == sorted(before)
        light.sort(head)
        assert light.column(head) == sorted(before, reverse=True)
    heads = light.tab.locator("table.sortable th[aria-sort]")
    assert [head.inner_text() for head in heads.all()] == ["state"]
    light.tab.fill("input[type=search]", "STOPPED 0008")
    assert light.column("trial") == ["0008"]
    assert light.tab.locator(".count").inner_text() == "1 of 14 runs"
    light.tab.fill("input[type=search]", "")  # for the tests that follow


def test_a_page_does_not_scroll_sideways(browser: Any, page: Path, light: Visit) -> None:
    narrow = Visit(browser, page, viewport={"width": 600, "height": 900})
    for visit, width in ((narrow, 600), (light, 1280)):
        assert visit.tab.evaluate("document.documentElement.scrollWidth") <= width


def taken(visit: Visit, button: Any) -> str:
    """Click on a button that saves a file, and return what it saves."""
    with visit.tab.expect_download() as download:
        button.click()
    return Path(download.value.path()).read_text(encoding="utf-8")


def test_tables_are_saved_as_latex_and_plots_as_svg_and_csv(dark: Visit) -> None:
    dark.tab.fill("input[type=search]", "0008")
    latex = taken(dark, dark.tab.locator(".made:has(table.sortable) button.take"))
    rows = latex.partition("\\midrule\n")[2].partition("\\bottomrule")[0].splitlines()
    assert len(rows) == 1
    assert "0008" in rows[0]
    assert rows[0].count("&") == latex.splitlines()[3].count("&")
    assert "learning\\_rate" in latex
    assert "$<$/script$>$$<$img" in taken(dark, dark.tab.locator("button.take").first) + latex
    plot = dark.tab.locator("figure.plot .canvas").first
    plot.hover()
    numbers = taken(dark, plot.locator("button[data-title*=CSV]"))
    assert numbers.startswith("curve,x,y,text,error_x.array")
    assert [line.split(",")[-3] for line in numbers.splitlines()[2:]] == ["seed 1", "seed 2"]
    svg = taken(dark, plot.locator("button[data-title*=SVG]"))
    assert svg.startswith("<svg")
    assert "#2b323b" in svg or "rgb(43, 50, 59)" in svg  # ink of the light scheme
    assert all(url.startswith(("file:", "blob:", "data:")) for url in dark.requests)


def test_no_plot_offers_to_send_its_numbers_away(light: Visit) -> None:
    titles = light.tab.evaluate("[...document.querySelectorAll('.modebar-btn')].map((each) => each.dataset.title)")
    assert len(titles) > NUM_PLOTS
    assert not [title for title in titles if "hare" in title or "loud" in title]


def test_plots_fit_the_paper_while_a_wide_window_prints_and_come_back(dark: Visit) -> None:
    before = dark.sizes()
    assert len(before) >= NUM_PLOTS - 1
    assert all(width > 1000 for width, _ in before)
    dark.tab.evaluate("dispatchEvent(new Event('beforeprint'))")
    a4 = (210 - 2 * 12) / 25.4 * 96  # pixels between the margins of the page
    assert all(width <= a4 for width, _ in dark.sizes())
    dark.tab.evaluate("dispatchEvent(new Event('afterprint'))")
    assert dark.sizes() == before


def test_words_of_the_table_stay_whole_in_print(browser: Any, page: Path) -> None:
    visit = Visit(browser, page, viewport={"width": 703, "height": 900})
    visit.tab.emulate_media(media="print")
    heights = visit.tab.evaluate(
        """[...document.querySelectorAll("table.sortable tbody tr:not(.confirm)")].map((row) => {
          const lines = document.createRange();
          lines.selectNodeContents(row.cells[2]);
          return lines.getClientRects().length;
        })"""
    )
    assert heights == [1] * 12  # "finished" and "stopped" take a line each


@pytest.fixture(scope="module")
def runs_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of two made-up runs with long names, six numbers each and a decision on their health."""
    places = []
    for number in range(2):
        run = RunFolder.at(tmp_path_factory.mktemp("runs") / f"a-long-name-of-a-run-from-november-{number}")
        run.path.mkdir()
        places.append(run.path)
        settings = ["training.epochs=3", f"method.temperature=0.{number + 1}"]
        run.config_path.write_text(to_yaml(compose("simclr", overrides=settings)))
        run.metrics.append("event", 0, event="started", ranks=1, num_steps=6)
        for step in range(1, 7):
            numbers = dict.fromkeys(("loss", "ess", "learning_rate", "images_per_second"), 0.01 * step + number)
            run.metrics.append("train", step, epoch=(step - 1) // 2, seconds=float(step), **numbers)
            if step % 2 == 0:
                run.metrics.append("epoch", step, epoch=step // 2, seconds=float(step), holdout_knn=0.1 * step)
        decision = {"event": "health", "action": "lower_step", "reason": HOSTILE, "acted": True}
        run.metrics.append("event", 4, **decision)
    return Path(report(*places, to=places[0].parent / "runs.html"))


@pytest.mark.parametrize("width", [400, 1400])
def test_a_page_of_runs_draws_every_plot_within_its_width_and_hides_a_run_when_told(
    browser: Any, runs_page: Path, width: int
) -> None:
    visit = Visit(browser, runs_page, viewport={"width": width, "height": 900})
    assert visit.requests == [runs_page.as_uri()]
    assert visit.said == []
    assert visit.tab.evaluate("document.documentElement.scrollWidth") <= width
    before = visit.plots(".js-line")
    assert list(before.values()) == [2] * 5
    visit.tab.locator("button[data-run='1']").click()
    visit.tab.wait_for_timeout(300)
    assert list(visit.plots(".js-line").values()) == [1] * 5


def test_a_watched_page_loads_itself_again_where_it_was_until_its_server_ends(
    browser: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "LOOK_SECONDS", 0.2)

    def draw() -> Document:
        lines = tuple(f"line {number}" for number in range(200))
        return Document("t", "report", "brand", (Section(str(sorted(os.listdir(tmp_path))), (Items(lines),)),), "")

    with PageServer(WatchedPage(draw, [str(tmp_path)])) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        tab, said = browser.new_page(), list[str]()
        tab.set_default_timeout(120_000)
        tab.on("console", lambda message: said.append(message.text))
        tab.on("pageerror", lambda error: said.append(str(error)))
        tab.goto(server.address)
        tab.wait_for_selector("html[data-drawn]")
        before = tab.evaluate("window.scrollTo(0, 700); document.documentElement.dataset.version")
        tab.wait_for_timeout(1_000)
        assert tab.evaluate("document.documentElement.dataset.version") == before
        (tmp_path / "something-new").touch()
        tab.wait_for_selector(f"html[data-drawn]:not([data-version='{before}'])")
        assert tab.evaluate("window.scrollY") == 700
        assert "something-new" in tab.inner_text("main")
        assert said == []
        server.shutdown()
    tab.wait_for_selector("text=brand · no longer watched")
    assert "something-new" in tab.inner_text("main")
    tab.close()

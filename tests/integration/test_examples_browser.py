"""The example pages of the documentation in a real browser: they draw everything and ask for nothing but plotly.js.

Two runs, a sweep, a comparison and an evaluation card; in a wide window and in a narrow one, light and dark.
"""

from __future__ import annotations

import importlib
import itertools
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from browsing import CHROMIUM, Visit
from tests.support.waiting import until

pytestmark = [
    pytest.mark.browser,
    pytest.mark.slow,
    pytest.mark.skipif(not CHROMIUM, reason="no Chromium; install it: apt-get install -y chromium"),
]


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("pages")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(Path(__file__).parents[2] / "docs" / "site"))
        examples = importlib.import_module("examples")
        examples.write_examples(folder)
    assert sorted(examples.PAGES) == sorted(path.name for path in folder.glob("*.html"))
    return [folder / name for name in examples.PAGES]


@pytest.fixture(scope="module")
def wide(browser: Any, pages: list[Path]) -> list[Visit]:
    """Every page in a wide window, light."""
    return [_opened(browser, page, 1400, "light") for page in pages]


@pytest.fixture(scope="module")
def narrow(browser: Any, pages: list[Path]) -> list[Visit]:
    """Every page in a narrow window, dark."""
    return [_opened(browser, page, 400, "dark") for page in pages]


def _opened(browser: Any, page: Path, width: int, scheme: str) -> Visit:
    visit = Visit(browser, page, color_scheme=scheme, viewport={"width": width, "height": 900})
    visit.tab.wait_for_timeout(300)  # for requests that come late
    return visit


@pytest.mark.parametrize(
    ("window", "width", "ground"), [("wide", 1400, "rgb(245, 246, 248)"), ("narrow", 400, "rgb(18, 21, 26)")]
)
def test_the_example_pages_draw_everything_without_errors_or_network(
    request: pytest.FixtureRequest, pages: list[Path], window: str, width: int, ground: str
) -> None:
    for page, visit in zip(pages, request.getfixturevalue(window), strict=True):
        asked = {request for request in visit.requests if not request.startswith("data:image/png;base64,")}
        assert asked == {page.as_uri(), page.with_name("plotly.js").as_uri()}
        assert visit.said == []
        marks = visit.plots(".point, .points path, .js-line, .bars path")
        assert marks, page
        assert all(count > 0 for count in marks.values()), (page, marks)
        assert visit.tab.evaluate("getComputedStyle(document.body).backgroundColor") == ground
        assert visit.tab.evaluate("document.documentElement.scrollWidth") <= width, page
        assert all(visit.tab.evaluate("[...document.images].map((image) => image.naturalWidth)"))


TITLES = """[...document.querySelectorAll(".canvas")].map((at) => {
  const titles = at.querySelectorAll("[class^=g-x][class$=title], .annotation-text");
  const boxes = [at, ...titles].map((each) => each.getBoundingClientRect());
  return boxes.map(({ left, right, top, bottom }) => [left, right, top, bottom]);
})"""
"""Left, right, top and bottom of every plot and of the titles of its axes and panels."""


def _are_in_place(tab: Any) -> bool:
    """Return whether all titles of a page stay within their plots, and apart."""
    for (first, last, *_), *titles in tab.evaluate(TITLES):
        if not all(first <= left and right <= last for left, right, *_ in titles):
            return False
        for one, other in itertools.combinations(titles, 2):
            if not (one[1] <= other[0] or other[1] <= one[0] or one[3] <= other[2] or other[3] <= one[2]):
                return False
    return True


ZOOM = 'document.querySelector(".canvas")._fullLayout.xaxis.range'


def test_titles_of_a_narrow_plot_stay_within_it_and_apart(narrow: list[Visit], pages: list[Path]) -> None:
    for page, visit in zip(pages, narrow, strict=True):
        plots = visit.tab.evaluate(TITLES)
        assert sum(map(len, plots)) > len(plots), (page, "no titles")
        assert _are_in_place(visit.tab), page


SHARES = """[...document.querySelectorAll(".canvas")].map((at) => at._fullLayout)
  .filter((of) => of.yaxis?.type === "category").map((of) => of._size.w / of.width)"""
"""Share of its width that a plot has for its marks, of each plot whose rows have names."""


def test_names_of_rows_leave_more_than_half_of_a_narrow_plot(narrow: list[Visit]) -> None:
    shares = [share for visit in narrow for share in visit.tab.evaluate(SHARES)]
    assert len(shares) >= 3
    assert min(shares) > 0.5


def test_titles_of_a_plot_that_was_wide_are_fitted_anew(browser: Any, pages: list[Path]) -> None:
    visit = Visit(browser, pages[0], viewport={"width": 1400, "height": 900})
    assert _are_in_place(visit.tab)
    visit.tab.set_viewport_size({"width": 400, "height": 900})
    until(partial(_are_in_place, visit.tab), seconds=60)
    visit.tab.close()


def test_a_plot_that_a_reader_has_zoomed_stays_so_in_another_width(browser: Any, pages: list[Path]) -> None:
    visit = Visit(browser, pages[0])
    box = visit.tab.locator(".canvas .nsewdrag").first.bounding_box()
    left, right, middle = box["x"] + 40, box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    whole = visit.tab.evaluate(ZOOM)
    visit.tab.mouse.move(left, middle)
    visit.tab.mouse.down()
    visit.tab.mouse.move(right, middle, steps=5)
    visit.tab.mouse.up()
    until(lambda: visit.tab.evaluate(ZOOM) != whole)
    zoomed = visit.tab.evaluate(ZOOM)
    visit.tab.set_viewport_size({"width": 400, "height": 900})
    visit.tab.wait_for_timeout(1000)  # it is drawn again after a fifth of that
    assert visit.tab.evaluate(ZOOM) == pytest.approx(zoomed)
    visit.tab.close()


def test_no_plot_and_no_table_is_cut_in_print(wide: list[Visit], pages: list[Path]) -> None:
    a4 = int((210 - 2 * 12) / 25.4 * 96)  # pixels between the margins of the page
    for page, visit in zip(pages, wide, strict=True):
        visit.tab.set_viewport_size({"width": a4, "height": 900})
        visit.tab.emulate_media(media="print")
        visit.tab.evaluate("dispatchEvent(new Event('beforeprint'))")
        sizes = "[...document.querySelectorAll('.canvas, .scroll, main')].map((at) => [at.scrollWidth, at.clientWidth])"
        visit.tab.wait_for_timeout(500)  # plots are drawn anew
        found = visit.tab.evaluate(sizes)
        assert len(found) > 1, (page, "neither plots nor tables")
        assert all(0 < needed <= shown for needed, shown in found), (page, found)

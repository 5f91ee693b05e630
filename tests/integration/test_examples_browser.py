"""The example pages of the documentation in a real browser: they draw everything and ask for nothing but plotly.js.

Two runs, a sweep, a comparison and an evaluation card; in a wide window and in a narrow one, light and dark.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest
from browsing import CHROMIUM, Visit

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


@pytest.mark.parametrize(
    ("width", "scheme", "ground"), [(1400, "light", "rgb(245, 246, 248)"), (400, "dark", "rgb(18, 21, 26)")]
)
def test_the_example_pages_draw_everything_without_errors_or_network(
    browser: Any, pages: list[Path], width: int, scheme: str, ground: str
) -> None:
    for page in pages:
        visit = Visit(browser, page, color_scheme=scheme, viewport={"width": width, "height": 900})
        visit.tab.wait_for_timeout(300)  # for requests that come late
        asked = {request for request in visit.requests if not request.startswith("data:image/png;base64,")}
        assert asked == {page.as_uri(), page.with_name("plotly.js").as_uri()}
        assert visit.said == []
        marks = visit.plots(".point, .points path, .js-line, .bars path")
        assert marks, page
        assert all(count > 0 for count in marks.values()), (page, marks)
        assert visit.tab.evaluate("getComputedStyle(document.body).backgroundColor") == ground
        assert visit.tab.evaluate("document.documentElement.scrollWidth") <= width, page
        assert all(visit.tab.evaluate("[...document.images].map((image) => image.naturalWidth)"))
        visit.tab.close()

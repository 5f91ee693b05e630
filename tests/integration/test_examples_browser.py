"""The example pages of the documentation in a real browser: they draw everything and ask for nothing but plotly.js."""

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


def test_the_example_pages_draw_everything_without_errors_or_network(
    browser: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "docs" / "site"))
    examples = importlib.import_module("examples")
    examples.write_examples(tmp_path)
    assert sorted(examples.PAGES) == sorted(path.name for path in tmp_path.glob("*.html"))
    for name in examples.PAGES:
        page = tmp_path / name
        visit = Visit(browser, page, viewport={"width": 1280, "height": 900})
        asked = {request for request in visit.requests if not request.startswith("data:image/png;base64,")}
        assert asked == {page.as_uri(), (tmp_path / "plotly.js").as_uri()}
        assert visit.said == []
        marks = visit.plots(".point, .points path, .js-line, .bars path")
        assert marks, name
        assert all(count > 0 for count in marks.values()), (name, marks)
        visit.tab.close()

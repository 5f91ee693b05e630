"""An evaluation card in a real browser: wide and narrow, light and dark, it draws everything without a network."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from browsing import CHROMIUM, Visit

from ebclab.card.evaluate import measure_cards
from ebclab.card.request import CardRequest
from ebclab.cli import main
from ebclab.evaluation import fine_tuning

pytestmark = [
    pytest.mark.browser,
    pytest.mark.slow,
    pytest.mark.skipif(not CHROMIUM, reason="no Chromium; install it: apt-get install -y chromium"),
]


@pytest.fixture(scope="module")
def card(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The whole card of a short run on digits beside its references."""
    folder = tmp_path_factory.mktemp("card")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.delenv("EBCLAB_DATA", raising=False)
        patch.setattr(fine_tuning, "LEAST_STEPS", 20)
        words = ["--epochs", "1", "--name", "run", "--set", "data.train_limit=300", "--set", "resources.threads=1"]
        assert main(["pretrain", "flatclr", *words]) == 0
        little: dict[str, Any] = {"seeds": 1, "train_limit": 200, "attacked_images": 20, "fine_tuning_epochs": 2}
        asked = CardRequest(("runs/run",), only=("all",), outside=("near=rotated",), references=True, **little)
        done = measure_cards(asked)
        assert done.failures == []
        return Path(done.page)


@pytest.mark.parametrize(
    ("width", "scheme", "ground"), [(1400, "light", "rgb(245, 246, 248)"), (400, "dark", "rgb(18, 21, 26)")]
)
def test_a_card_draws_everything_without_errors_or_network(
    browser: Any, card: Path, width: int, scheme: str, ground: str
) -> None:
    visit = Visit(browser, card, color_scheme=scheme, viewport={"width": width, "height": 900})
    visit.tab.wait_for_timeout(300)  # whoever is asked later than at first sight
    assert visit.requests[0] == card.as_uri()
    assert all(request.startswith("data:image/png;base64,") for request in visit.requests[1:])
    assert visit.said == []
    marks = visit.plots(".point, .points path, .js-line, .bars path")
    assert len(marks) >= 4  # at a glance, calibration, geometry, maps
    assert all(count > 0 for count in marks.values()), marks
    assert visit.tab.evaluate("getComputedStyle(document.body).backgroundColor") == ground
    assert visit.tab.evaluate("document.documentElement.scrollWidth") <= width
    loaded = visit.tab.evaluate("[...document.images].map((image) => image.naturalWidth)")
    assert loaded
    assert min(loaded) > 0

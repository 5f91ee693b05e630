"""Takes the pictures of the example pages, in Chromium: ``python docs/pictures.py``."""

from __future__ import annotations

import shutil
import sys
import tempfile
from io import BytesIO
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

DOCS = Path(__file__).parent
PICTURES = {
    "runs-report": ("runs.html", 1100, None, 1180),
    "card": ("card.html", 1085, None, 790),
    "sweep-report": ("sweep.html", 1100, None, 1180),
    "tutorial-comparison": ("comparison.html", 1080, "Results", 0),
    "tutorial-sweep": ("sweep.html", 1100, "How trials went", 0),
    "tutorial-report-real": ("sweep.html", 1100, "Is the difference real?", 0),
    "tutorial-report-settings": ("sweep.html", 1100, "Which settings mattered", 0),
    "cifar10-by-second": ("gpu.html", 900, "Accuracy by second", 0),
}
"""Page, width, heading of the section (None: the top of the page) and height (0: all of the section), in pixels."""


def write_curves(to: Path) -> None:
    """Write the page that draws the first table of ``benchmarks/results/gpu_cifar10.md``: accuracy by second."""
    import plotly.graph_objects as go

    from ebclab.document.document import Document, Section
    from ebclab.document.html import as_page
    from ebclab.reports.plots import COLOURS, plot

    text = (DOCS.parent / "benchmarks" / "results" / "gpu_cifar10.md").read_text(encoding="utf-8")
    lines: dict[str, list[tuple[float, float, str]]] = {}
    for row in text.split("\n\n")[3].splitlines()[2:]:
        name, epoch, _, linear, _, seconds = (cell.strip() for cell in row.strip("|").split("|"))
        lines.setdefault(name, []).append((float(seconds), float(linear), f"epoch {epoch}"))
    figure = go.Figure()
    for (name, points), colour in zip(lines.items(), COLOURS, strict=False):
        x, y, labels = zip(*points, strict=True)
        where = "bottom right" if name == "EBCLR, as released" else "top left"
        line = {"mode": "lines+markers+text", "textposition": where, "line_color": colour}
        figure.add_scatter(x=x, y=y, text=labels, name=name, **line)
    figure.update_xaxes(title="seconds of training on one H100", range=[0, 190])
    figure.update_yaxes(title="linear accuracy on CIFAR-10, %", range=[50, 82])
    figure.update_layout(legend_orientation="v")
    drawn = Section("Accuracy by second", (plot("", "", figure, height=420),))
    document = Document("EBCLR and SimCLR", "report", "", (drawn,), "")
    (to / "gpu.html").write_text(as_page(document), encoding="utf-8")


def main() -> None:
    """Write every picture, in 128 colours."""
    for folder in ("platform", "methods", "docs/site"):
        sys.path.insert(0, str(DOCS.parent / folder))
    from examples import write_examples

    with tempfile.TemporaryDirectory() as pages, sync_playwright() as started:
        write_examples(Path(pages))
        write_curves(Path(pages))
        browser = started.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for name, (page, width, heading, height) in PICTURES.items():
            tab = browser.new_page(viewport={"width": width, "height": 900})
            tab.goto((Path(pages) / page).as_uri())
            tab.wait_for_selector("html[data-drawn]")
            if heading is None:
                taken = tab.screenshot(full_page=True, clip={"x": 0, "y": 0, "width": width, "height": height})
            else:
                taken = tab.locator("section", has=tab.get_by_role("heading", name=heading, exact=True)).screenshot()
            picture = Image.open(BytesIO(taken)).convert("RGB").quantize(128, Image.Quantize.MAXCOVERAGE)
            picture.save(DOCS / "images" / f"{name}.png", optimize=True)
            tab.close()


if __name__ == "__main__":
    main()

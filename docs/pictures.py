"""Takes the pictures of example pages and of tables, in Chromium: ``python docs/pictures.py``, or with names."""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import re
import shutil
import sys
import tempfile
from collections.abc import Iterable, Sequence
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from PIL import Image
from playwright.sync_api import Browser, sync_playwright

if TYPE_CHECKING:
    import plotly.graph_objects as go

DOCS = Path(__file__).parent
RESULTS = DOCS.parent / "benchmarks" / "results"
PICTURES = {
    "runs-report": ("runs.html", 1100, None, 905),
    "card": ("card.html", 1085, None, 875),
    "card-map": ("card.html", 900, "Pictures", 530),
    "comparison": ("comparison.html", 900, None, 1050),
    "sweep-report": ("sweep.html", 1100, None, 1036),
    "tutorial-comparison": ("comparison.html", 1080, "Results", 0),
    "tutorial-sweep": ("sweep.html", 1100, "How trials went", 0),
    "tutorial-report-real": ("sweep.html", 1100, "Is the difference real?", 0),
    "tutorial-report-settings": ("sweep.html", 1100, "Which settings mattered", 0),
    "cifar10-by-second": ("by-second.html", 900, "Accuracy by second", 0),
    "accuracy-by-batch-size": ("batch-size.html", 900, "CIFAR-10, seven methods tuned alike", 0),
    "tutorial-new-method": ("hardest.html", 900, "Digits, the hardest negatives alone", 0),
}
"""Page, width, heading of the section (None: the top of the page) and height in pixels (0: all of the section)."""

MADE_OF = DOCS / "pictures.json"
"""Digests of what each picture was made of, by its name."""

TITLES = {
    "simclr": "SimCLR",
    "dcl": "DCL",
    "flatclr": "FlatCLR, ESS target",
    "sogclr": "SogCLR",
    "byol": "BYOL",
    "ebclr": "EBCLR",
    "vem-svgd": "VEM-SVGD",
}
"""Methods of the comparison of batch sizes."""

CELL = re.compile(r"(\S+) \((\S+) to (\S+)\)")
"""An accuracy with its interval, in per cent."""

Rows = Iterable[tuple[str, str, str]]
"""Label, accuracy with default settings and accuracy with tuned ones, as cells of a table."""


def table(text: str, heading: str) -> list[list[str]]:
    """Return the rows of the first Markdown table below a heading of any level."""
    lines = text.partition(f"{heading}\n")[2].partition("\n| ")[2].partition("\n\n")[0].splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def by_second() -> go.Figure:
    """Draw the first table of ``gpu_cifar10.md``: accuracy by second."""
    import plotly.graph_objects as go

    from ebclab.reports.plots import COLOURS

    text = (RESULTS / "gpu_cifar10.md").read_text(encoding="utf-8")
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
    return figure


def bars(means: Sequence[float], lows: Sequence[float], highs: Sequence[float]) -> dict[str, Any]:
    """Return the bars of intervals in plotly's form."""
    above = [high - mean for high, mean in zip(highs, means, strict=True)]
    below = [mean - low for mean, low in zip(means, lows, strict=True)]
    return {"type": "data", "array": above, "arrayminus": below, "thickness": 2, "width": 5}


def accuracies(rows: Rows, references: dict[str, float], span: Sequence[float], seeds: int) -> go.Figure:
    """Draw accuracies with their intervals, a row for each method, and lines for what no one trained."""
    import plotly.graph_objects as go

    from ebclab.reports.plots import BLUE, GREY

    figure, shown = go.Figure(), list(rows)
    for column, (settings, colour) in enumerate({"default": GREY, "tuned": BLUE}.items(), start=1):
        found = [(row[0], *map(float, match.groups())) for row in shown if (match := CELL.match(row[column]))]
        labels, means, lows, highs = zip(*found, strict=True)
        figure.add_scatter(
            x=means,
            y=labels,
            error_x=bars(means, lows, highs),
            mode="markers",
            orientation="h",
            offsetgroup=settings,
            name=f"{settings} settings",
            marker={"color": colour, "size": 11, "symbol": "circle" if settings == "tuned" else "circle-open"},
        )
    for name, value in references.items():
        figure.add_vline(x=value, line={"color": GREY, "width": 2, "dash": "dash"})
        beside = {"xanchor": "left", "xshift": -4, "yref": "paper", "yanchor": "bottom", "showarrow": False}
        figure.add_annotation(x=value, y=1, text=f"{name} {value:g}", **beside)
    figure.update_xaxes(title=f"kNN accuracy on test images, %; means of {seeds} seeds, 95 % intervals", range=span)
    figure.update_yaxes(autorange="reversed", automargin=True)
    figure.update_layout(scattermode="group", scattergap=0.55)
    return figure


def by_batch_size() -> go.Figure:
    """Draw the tuned accuracies of ``study_batch_size.md`` by batch size."""
    import plotly.graph_objects as go

    from ebclab.reports.plots import COLOURS, GREY

    colours = [*COLOURS[:-1], "#1b9aaa"]  # grey is for references
    rows = table((RESULTS / "study_batch_size.md").read_text(encoding="utf-8"), "### Default and tuned")
    figure = go.Figure()
    for index, ((name, title), colour) in enumerate(zip(TITLES.items(), colours, strict=True)):
        sizes, cells = zip(*((row[0].split()[-1], row[3]) for row in rows if row[1] == name), strict=True)
        means, lows, highs = zip(*(map(float, CELL.findall(cell)[0]) for cell in cells), strict=True)
        ends = bars(means, lows, highs) | {"thickness": 1.5, "width": 3}
        x = [math.log2(int(size)) + 0.07 * (index - (len(TITLES) - 1) / 2) for size in sizes]  # intervals side by side
        figure.add_scatter(x=x, y=means, error_y=ends, name=title, mode="lines+markers", line_color=colour)
    for name, value in {row[1]: float(row[3].split()[0]) for row in rows if row[1] not in TITLES}.items():
        kind, _, of = name.partition(" of ")
        figure.add_hline(y=value, line={"color": GREY, "width": 2, "dash": "dash"})
        side = (
            {"yanchor": "top", "yshift": -1}
            if kind == "untrained encoder" and of != "ebclr"
            else {"yanchor": "bottom", "yshift": 1}
        )
        beside = {"xanchor": "left", "xref": "paper", "showarrow": False, **side}
        text, place = (f"{kind}, without norm {value:.1f}", 0.45) if of == "ebclr" else (f"{kind} {value:.1f}", 0)
        figure.add_annotation(x=place, y=value, text=text, **beside)
    figure.update_xaxes(title="batch size", tickvals=[4, 6, 8], ticktext=["16", "64", "256"], range=[3.5, 8.5])
    figure.update_yaxes(title="kNN accuracy on test images, %", range=[28, 47.5])
    return figure


def on_digits() -> go.Figure:
    """Draw the accuracies that the tutorial about a new method prints."""
    tutorial = (DOCS / "tutorials" / "4-new-method.md").read_text(encoding="utf-8")
    printed = re.findall(r"^(simclr|hardest) {2,}(-|\S+ \(.+?\)) {3,}(\S+ \(.+?\))", tutorial, re.MULTILINE)
    results = (RESULTS / "methods_digits_demo.md").read_text(encoding="utf-8")
    measured = table(results, "# All methods, digits-demo, 40 epochs, 3 seeds")
    known = {row[0]: float(row[1].split()[0]) for row in measured}
    references = {"raw pixels": known["raw pixels"], "untrained encoder": known["simclr's encoder, untrained"]}
    return accuracies(printed, references, (85, 98.5), 4)


def write_views() -> None:
    """Write the picture of views, from the photographs that the tutorial about own images makes."""
    from ebclab.config import compose
    from ebclab.data.photograph import Reading
    from ebclab.data.sources.load import load_split
    from ebclab.data.views.preview import draw_views

    page = (DOCS / "tutorials" / "1-own-images.md").read_text(encoding="utf-8")
    code = page.partition("```python\n")[2].partition("```")[0]
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        exec(compile(code, "1-own-images.md", "exec"), {})
        config = compose("simclr", overrides=["data.name=folder:photos", "views.recipe=flatclr-cifar"])
        images = load_split(config.data.name, None, "train", Reading.of(config.data))
        draw_views(images, config.views, "views.png")
        sheet = Image.open("views.png").convert("RGB")
    width, heads, first, left_out = sheet.width, 68, 88, 2 * 108  # title; captions; rows with their frames and gaps
    shown = Image.new("RGB", (width, sheet.height - heads - left_out), "white")
    shown.paste(sheet.crop((0, heads, width, first)), (0, 0))
    shown.paste(sheet.crop((0, first + left_out, width, sheet.height)), (0, first - heads))
    shown.save(DOCS / "images" / "tutorial-views.jpg", quality=88, optimize=True)


CHARTS = {"by-second": (by_second, 420), "batch-size": (by_batch_size, 440), "hardest": (on_digits, 260)}
"""Function that draws a chart, and its height in pixels, by the name of its page."""


def made_of(name: str) -> str:
    """Return the digest of what a picture is made of: the figure of a chart, or the records behind an example page."""
    sys.path.insert(0, str(DOCS / "site"))
    import examples

    page = Path(PICTURES[name][0]).stem
    digest = hashlib.sha256(repr(PICTURES[name]).encode())
    if page in CHARTS:
        figure = CHARTS[page][0]().to_dict()
        figure["layout"].pop("template", None)  # plotly's own
        digest.update(json.dumps(figure, sort_keys=True).encode())
    records = {"runs": examples.RUNS, "sweep": [examples.SWEEP], "comparison": [examples.COMPARISON]}
    for folder in {**records, "card": [examples.CARD]}.get(page, []):
        for path in sorted((examples.RECORDS / folder).rglob("*")):
            if path.is_file():
                digest.update(str(path.relative_to(examples.RECORDS)).encode() + path.read_bytes())
    return digest.hexdigest()


def write_charts(to: Path) -> None:
    """Write a page for each chart of numbers that are in tables."""
    from ebclab.document.document import Document, Section
    from ebclab.document.html import as_page
    from ebclab.reports.plots import plot

    for name, (draw, height) in CHARTS.items():
        heading = next(title for page, _, title, _ in PICTURES.values() if page == f"{name}.html")
        chart = plot("", "", draw(), height=height)
        chart.figure["layout"]["legend"]["y"] = 1 + 24 / (height - 80)  # above the names of lines
        section = Section(heading or "", (chart,))
        (to / f"{name}.html").write_text(as_page(Document(name, "report", "", (section,), "")), encoding="utf-8")


def take(browser: Browser, pages: Path, name: str) -> None:
    """Write one picture, in 128 colours; a chart alone has two dots for each pixel, for screens that show them."""
    page, width, heading, height = PICTURES[name]
    scale = 2 if page in ("by-second.html", "batch-size.html", "hardest.html") else 1
    tab = browser.new_page(viewport={"width": width, "height": 900}, device_scale_factor=scale)
    tab.set_default_timeout(300_000)  # milliseconds, for a machine with other work
    tab.goto((pages / page).as_uri())
    tab.wait_for_selector("html[data-drawn]")
    if heading is None:
        taken = tab.screenshot(full_page=True, clip={"x": 0, "y": 0, "width": width, "height": height})
    else:
        section = tab.locator("section", has=tab.get_by_role("heading", name=heading, exact=True))
        if height:  # its beginning alone
            section.evaluate(f"(at) => {{ at.style.maxHeight = '{height}px'; at.style.overflow = 'hidden'; }}")
        taken = section.screenshot()
    few_colours(Image.open(BytesIO(taken)).convert("RGB")).save(DOCS / "images" / f"{name}.png", optimize=True)
    tab.close()


def few_colours(picture: Image.Image) -> Image.Image:
    """Return a picture in 128 colours: the most frequent ones as they are, such as grounds and lines, and others."""
    counts = picture.getcolors(picture.width * picture.height) or []
    exact = [colour for _, colour in sorted(counts, key=lambda each: -each[0])[:48]]
    others = picture.quantize(128 - len(exact), Image.Quantize.MAXCOVERAGE, kmeans=2).getpalette() or []
    palette = Image.new("P", (1, 1))
    palette.putpalette([*(part for colour in exact for part in colour), *others[: 3 * (128 - len(exact))]])
    return picture.quantize(palette=palette, dither=Image.Dither.NONE)


def main(names: Sequence[str]) -> None:
    """Write the pictures of these names, or every one."""
    for folder in ("platform", "methods", "docs/site"):
        sys.path.insert(0, str(DOCS.parent / folder))
    from examples import write_examples

    with tempfile.TemporaryDirectory() as pages, sync_playwright() as started:
        write_charts(Path(pages))
        if any(not (Path(pages) / PICTURES[name][0]).exists() for name in names or PICTURES):
            write_examples(Path(pages))
        browser = started.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for name in names or PICTURES:
            take(browser, Path(pages), name)
        known = json.loads(MADE_OF.read_text(encoding="utf-8")) if MADE_OF.exists() else {}
        known |= {name: made_of(name) for name in names or PICTURES}
        MADE_OF.write_text(json.dumps(dict(sorted(known.items())), indent=1) + "\n", encoding="utf-8")
    if not names:
        write_views()


if __name__ == "__main__":
    main(sys.argv[1:])

"""Renders the pages of the records in docs/examples: runs side by side, a sweep, a comparison and a card."""

from __future__ import annotations

import json
import os
from datetime import datetime
from pathlib import Path
from typing import Any

from plotly.offline import get_plotlyjs

import ebclab
from ebclab.card.card import Card, CardFolder, Findings, GroupResult
from ebclab.card.document import card_document
from ebclab.card.side_by_side import Cards
from ebclab.comparisons.document import write_findings
from ebclab.comparisons.findings import read_findings
from ebclab.comparisons.plan import ComparisonFolder
from ebclab.document.html import as_page
from ebclab.storage.reading import read_json

RECORDS = Path(__file__).parents[1] / "examples"
RUNS = ("runs/simclr-digits-seed0", "runs/flatclr-digits-seed0")
SWEEP = "sweeps/simclr-digits-b32"
COMPARISON = "comparisons/batches"
CARD = "runs/digits/card"
CARD_FOLDERS = ("", "references/untrained-encoder", "references/raw-pixels")
"""Where the groups of each encoder on the card lie, in its folder."""
PAGES = {
    "runs.html": "Two runs side by side: SimCLR and FlatCLR on digits",
    "sweep.html": "A sweep: SimCLR on digits, seven trials, two settings confirmed with five seeds",
    "comparison.html": "A comparison: SimCLR and FlatCLR on digits, tuned alike at batch sizes 16 and 64",
    "card.html": "An evaluation card: SimCLR of the demo beside its untrained encoder and raw pixels",
}


def links() -> str:
    """Return the links to the pages, for the page of the site that lies in their folder."""
    return "".join(f'- <a href="{name}">{title}</a>\n' for name, title in PAGES.items())


def write_examples(to: Path) -> None:
    """Render the pages as the commands do, but for one thing: they share a file with plotly.js instead of holding it.

    Args:
        to: Folder of the pages.
    """
    to.mkdir(parents=True, exist_ok=True)
    _at_the_time_of_its_end(RECORDS / SWEEP / "trials.jsonl")
    ebclab.report(*(RECORDS / run for run in RUNS), to=to / "runs.html")
    ebclab.report(RECORDS / SWEEP, to=to / "sweep.html")
    write_comparison(RECORDS / COMPARISON, to)
    (to / "card.html").write_text(as_page(card_document(Cards(tuple(read_cards(RECORDS / CARD))))), encoding="utf-8")
    for path in to.iterdir():
        path.write_text(path.read_text(encoding="utf-8").replace(f"{RECORDS}/", ""), encoding="utf-8")
    plotly = get_plotlyjs()
    (to / "plotly.js").write_text(plotly, encoding="utf-8")
    for name in PAGES:
        text = (to / name).read_text(encoding="utf-8")
        opening, _, rest = text.partition(f">{plotly}</script>")
        (to / name).write_text(f'{opening} src="plotly.js"></script>{rest}', encoding="utf-8")


def _at_the_time_of_its_end(log: Path) -> None:
    """Give a log the time of its last event, which the page shows; git gives it that of the checkout."""
    last = log.read_text(encoding="utf-8").splitlines()[-1]
    seconds = datetime.fromisoformat(json.loads(last)["time"]).timestamp()
    os.utime(log, (seconds, seconds))


def write_comparison(record: Path, to: Path) -> None:
    """Write the page of a comparison, with its numbers and tables beside it.

    Args:
        record: Its plan and the logs of its sweeps; nothing is written there.
        to: Folder of the page.
    """
    folder = ComparisonFolder(record)
    found = read_findings(folder, folder.read_plan())
    write_findings(ComparisonFolder(to), found)


def read_cards(folder: Path) -> list[Card]:
    """Return the cards that ``ebclab evaluate`` left in a folder."""
    cards = []
    for facts, place in zip(read_json(folder / "card.json")["cards"], CARD_FOLDERS, strict=True):
        groups = CardFolder(folder / place)
        results = tuple(_result(groups, written) for written in facts.pop("groups"))
        cards.append(Card(**facts, results=results))
    return cards


def _result(groups: CardFolder, written: dict[str, Any]) -> GroupResult:
    """Return what a group found, or why it was left out."""
    name, key = written["group"], written["key"]
    if "problem" in written:
        return GroupResult(name, key, Findings(()), written["seconds"], written["problem"])
    if (found := groups.read(name, key)) is None:
        raise LookupError(f"{groups.path}: {name} cannot be read")
    return found

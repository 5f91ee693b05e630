"""The document of one card, or of several side by side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import plotly.graph_objects as go

from ebclab.card.card import Card
from ebclab.card.groups import GROUPS
from ebclab.card.measuring import Group
from ebclab.card.side_by_side import Cards, EncoderCell, EncoderColumn, NumberRow
from ebclab.document.document import (
    Block,
    CellValue,
    Document,
    Facts,
    Folded,
    Plot,
    Remark,
    RichText,
    Section,
    Table,
    numeric,
)
from ebclab.interval import PLAIN, PLAIN_DIFFERENCE, POINTS, SHARE, Interval, NumberFormat
from ebclab.reports.plots import COLOURS, error_bars, plot, range_of

_SHOWN = 4  # metrics per group in the plot at the top
_SHORT = NumberFormat(digits=".3g")
_ARROWS = {"higher": "↑", "lower": "↓", "neither": ""}


def card_document(compared: Cards) -> Document:
    """Return the document of a comparison of cards; that of a single card compares nothing."""
    columns, rows = compared.columns, compared.rows
    measured = {result.group for card in compared.cards for result in card.results if not result.problem}
    groups = [GROUPS[name] for name in GROUPS if name in measured]
    drawn = [each for each in groups if each.name == "pictures"]  # near the top, those of the first encoder
    glance = _glance(columns, rows)
    skipped = problems(compared.cards, failed=False)
    head: tuple[Block, ...] = (
        *(Remark(line, "lead") for line in (*compared.learnt, summary(columns, rows))),
        *(Remark(line, "warning") for line in about_images(compared.cards)),
        *(Remark(f"Not measured: {line}", "warning") for line in problems(compared.cards, failed=True)),
        *([Remark(f"Not measured: {'; '.join(skipped)}.", "note")] if skipped else ()),
    )
    sections = (
        Section(_title(columns), head, is_head=True),
        Section("At a glance", (glance,) if glance else ()),
        *(_drawn(columns[:1], each, each.name, named=len(columns) > 1) for each in drawn),
        Section("What was measured", (_subjects(compared), Remark(what_intervals_say(columns), "note"))),
        *(Section(each.title, tuple(_group(compared, each.name)), each.name) for each in groups if each not in drawn),
        *(_drawn(columns[1:], each, f"{each.name}-of-others", named=True) for each in drawn if columns[1:]),
    )
    files = "All numbers: card.json beside this page."
    return Document(_title(columns), "card", "evaluation card", sections, files)


def _drawn(columns: Sequence[EncoderColumn], group: Group, place: str, *, named: bool) -> Section:
    title = group.title if place == group.name else f"{group.title} of the others"
    return Section(title, tuple(_found(columns, group.name, named=named)), place)


def _subjects(compared: Cards) -> Facts:
    facts: list[tuple[str, str | RichText]] = [
        (column.label, RichText(card.origin, (card.address,))) for column in compared.columns for card in column.cards
    ]
    facts += [("Paper", paper) for paper in dict.fromkeys(card.paper for card in compared.cards) if paper]
    by_content = {card.data: card for card in reversed(compared.cards)}
    facts += [
        (
            "Images",
            f"{card.dataset}: {card.num_train:,} for training, {card.num_test:,} for testing; content {card.data[:16]}",
        )
        for card in reversed(by_content.values())
    ]
    machine = compared.cards[0].environment
    words = [f"{machine.get('processor', 'unknown')}, {machine.get('device', 'unknown')}"]
    words += [f"{name} {machine[name]}" for name in ("torch", "ebclab", "commit") if machine.get(name)]
    return Facts((*facts, ("Machine", "; ".join(words))))


def _group(compared: Cards, group: str) -> Iterator[Block]:
    rows = [row for row in compared.rows if row.group == group]
    if rows:
        yield numbers_table(compared, group)
        protocols = Facts(tuple((row.number.title, _protocol(row)) for row in rows))
        yield Folded("Protocols", (protocols, Remark(f"Source: {GROUPS[group].source}.", "note")))
    yield from _found(compared.columns, group, named=len(compared.columns) > 1)


def _found(columns: Sequence[EncoderColumn], group: str, *, named: bool) -> Iterator[Block]:
    """Yield what a group says and draws of each encoder, with the encoder's name if they are ``named``."""
    first = [column.cards[0] for column in columns]
    found = [(card, each.findings) for card in first for each in card.results if each.group == group]
    for card, findings in found:
        yield from (Remark(f"{card.label}: {text}" if named else text, "status") for text in findings.remarks)
        of = f", {card.label}" if named else ""
        yield from (replace(drawn, title=drawn.title + of) for drawn in findings.plots)
        yield from (replace(picture, title=picture.title + of) for picture in findings.pictures)
        for place, table in enumerate(findings.tables):
            is_open = not place and not findings.plots and not findings.pictures and not named
            yield Folded(table.title + of, (Table("", table.columns, table.rows, table.note),), is_open)


def _protocol(row: NumberRow) -> str:
    seeds = f"; seeds {', '.join(map(str, row.number.seeds))}" if row.number.seeds else ""
    return f"{row.number.protocol}{seeds}"


def numbers_table(compared: Cards, group: str, *, is_brief: bool = False, title: str = "") -> Table:
    """Return the numbers of a group: a row for each, a column for each encoder.

    Brief tables have a star in place of intervals and verdicts, so that several encoders fit a terminal.
    """
    rows = [
        (
            f"{row.number.title} {_ARROWS[row.number.better]}",
            *((_brief if is_brief else _whole)(row, cell) for cell in row.cells),
            *(() if is_brief else (numeric(f"{row.number.num_images:,}"),)),
        )
        for row in compared.rows
        if row.group == group
    ]
    labels = [column.title for column in compared.columns]
    return Table(title, ("", *labels, *(() if is_brief else ("images",))), tuple(rows))


def _brief(row: NumberRow, cell: EncoderCell | None) -> CellValue:
    if cell is None:
        return None
    star = "*" if cell.against_first is not None and cell.against_first.is_noise is False else " "
    return numeric(f"{_form(row).number(cell.value.mean)} {star}")


def _whole(row: NumberRow, cell: EncoderCell | None) -> CellValue:
    if cell is None:
        return None
    form, value = _form(row), cell.value
    ends = form.ends(value.low, value.high)
    gap, of_gaps = cell.against_first, POINTS if row.number.unit == "share" else PLAIN_DIFFERENCE
    small = (f"({ends})" if ends else "", f"{of_gaps.interval(gap)}, {gap.verdict}" if gap else "")
    return numeric(form.spread(value), value.mean, small, is_strong=True)


def _glance(columns: Sequence[EncoderColumn], rows: Sequence[NumberRow]) -> Plot | None:
    """Plot the first metrics of each group that are shares with an interval; None if there are none."""
    shares = [
        row
        for row in rows
        if row.number.unit == "share" and any(cell and cell.value.low is not None for cell in row.cells)
    ]
    kept = [
        row for place, row in enumerate(shares) if [each.group for each in shares[:place]].count(row.group) < _SHOWN
    ]
    if not kept:
        return None
    figure, drawn = go.Figure(), list[Interval]()
    for place, column in enumerate(columns):
        cells = [(row, cell.value) for row in kept if (cell := row.cells[place])]
        shown = [(row, value) for row, value in cells if value.low is not None]
        drawn += [100.0 * value for _, value in shown]
        figure.add_scatter(
            x=[100 * value.mean for _, value in shown],
            y=[_glanced(row, kept[0].group) for row, _ in shown],
            error_x=error_bars([100.0 * value for _, value in shown], 1.5),
            mode="markers",
            orientation="h",
            offsetgroup=str(place),
            name=column.label,
            marker={"size": 8, "color": COLOURS[place % len(COLOURS)]},
        )
    figure.update_xaxes(title="per cent", range=range_of(drawn, least_margin=1.0))
    figure.update_yaxes(autorange="reversed", automargin=True)
    figure.update_layout(scattermode="group")
    height = 120 + len(kept) * (18 + 14 * len(columns))
    return plot(
        "Shares and their intervals",
        "Dots with 95 % intervals: the first numbers of each group. The tables below have all, and say how measured.",
        figure,
        height=height,
    )


def _glanced(row: NumberRow, first: str) -> str:
    """Return the title of a metric in a plot of several groups: those after the first name theirs."""
    return row.number.title if row.group == first else f"{row.number.title}, {GROUPS[row.group].title.lower()}"


def _form(row: NumberRow) -> NumberFormat:
    return SHARE if row.number.unit == "share" else PLAIN


def _title(columns: Sequence[EncoderColumn]) -> str:
    return " · ".join(column.title for column in columns)


def summary(columns: Sequence[EncoderColumn], rows: Sequence[NumberRow]) -> str:
    """Return a one-sentence summary: one metric of each group, of the first column."""
    chosen: dict[str, NumberRow] = {}
    for row in rows:
        if row.group not in chosen or row.number.name == GROUPS[row.group].headline:
            chosen[row.group] = row
    card = columns[0].cards[0]
    parts = [
        f"{row.number.title} {(SHARE if row.number.unit == 'share' else _SHORT).number(row.cells[0].value.mean)}"
        for row in chosen.values()
        if row.cells[0] is not None
    ]
    images = f"{card.num_test:,} {card.test_images}"
    return f"{columns[0].label} on {card.dataset}, {images}: {'; '.join(parts) or 'no numbers'}."


def what_intervals_say(columns: Sequence[EncoderColumn]) -> str:
    """Return an explanation of what the intervals of the page cover."""
    several = [column for column in columns if len(column.cards) > 1]
    single = [column for column in columns if len(column.cards) == 1]
    parts = []
    if single:
        names = ", ".join(column.label for column in single)
        parts.append(
            f"{names}: one encoder each, so that intervals are over other test images, not over other training runs."
        )
    if several:
        counts = ", ".join(f"{column.label} {len(column.cards)}" for column in several)
        parts.append(
            f"Runs that differ in the seed alone share a column ({counts}): their intervals are for other seeds and "
            "other test images. Few seeds say little about others; read such intervals as a hint."
        )
    if len(columns) > 1:
        parts.append(
            f"Differences are to {columns[0].label}, image by image on the same test images, with intervals that hold "
            f"together for the {len(columns) - 1} compared with it in one number (Bonferroni). Of so many "
            "numbers, one in twenty is beyond noise by chance."
        )
    return " ".join(parts)


def about_images(cards: Sequence[Card]) -> list[str]:
    """Return for each dataset how many of its test images are also training images, and whether it has a test part."""
    lines = dict[str, None]()
    for card in cards:
        if card.tests_held_out:
            line = f"{card.dataset} has no test part: measured on {card.num_test:,} images held out by hash of what "
            line += "probes are fitted on; of a run's own images also of its training, and its best checkpoint was "
            lines[line + "chosen by them"] = None
        if card.num_repeated:
            images = f"{card.num_repeated:,} of {card.num_test:,} {card.test_images}"
            lines[f"{card.dataset}: {images} are also training images"] = None
    return [*lines]


def problems(cards: Sequence[Card], *, failed: bool) -> list[str]:
    """Return a line for every reason why a group failed, or was skipped; of all cards alike, without their labels."""
    labels: dict[tuple[str, str], list[str]] = {}
    for card in cards:
        for result in card.results:
            if result.problem and result.failed == failed:
                labels.setdefault((result.group, result.problem), []).append(card.label)
    return [
        f"{GROUPS[group].title if group in GROUPS else group}{of}: {problem}"
        for (group, problem), names in labels.items()
        for of in ["" if len(names) == len(cards) else f" of {', '.join(dict.fromkeys(names))}"]
    ]

"""The document of a reproduction: our numbers beside the published ones, the claims, and what differs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import groupby

from ebclab.document.document import (
    Block,
    CellValue,
    ColumnHead,
    Document,
    Facts,
    Folded,
    Items,
    Remark,
    RichText,
    Section,
    Table,
    numeric,
)
from ebclab.document.html import as_page
from ebclab.document.markdown import as_markdown
from ebclab.errors import UnsavedError
from ebclab.formatting import clock, count
from ebclab.interval import NumberFormat
from ebclab.reproductions.answers import in_words
from ebclab.reproductions.folder import ReproductionFolder
from ebclab.reproductions.study import PublishedNumber, Unit
from ebclab.reproductions.table import NOT_REACHED, ReproducedCell, ReproducedTable
from ebclab.storage import atomic
from ebclab.storage.checksum import with_checksum
from ebclab.storage.kinds import REPRODUCTION


def write_table(table: ReproducedTable, folder: ReproductionFolder) -> None:
    """Write table.json, table.md and table.html into the folder of a reproduction."""
    document = table_document(table)
    try:
        atomic.write_json(folder.path / REPRODUCTION.result, with_checksum(table.to_mapping()))
        atomic.write_text(folder.path / "table.md", as_markdown(document))
        atomic.write_text(folder.page, as_page(document))
    except OSError as error:
        raise UnsavedError(
            f"{folder.address}: all was measured and the table cannot be written, got {error.strerror or error}; "
            "free some space and repeat the command",
            table,
        ) from error
    folder.send(REPRODUCTION.result, "table.md", folder.page.name)


def table_document(table: ReproducedTable) -> Document:
    """Return the document of a reproduction."""
    about = table.plan.study.about
    failures = [Remark(f"No number: {line}", "warning") for line in table.failures]
    head = (Remark(about.asks, "lead"), Remark(table.what_it_shows, "status"), *failures)
    lists = {
        "What differs from the paper at this scale": table.differs,
        "Not run at this scale": [f"{title}: {why}" for title, why in table.plan.left_out.items()],
        "What the released code does differently from the paper": table.released,
    }
    sections = (
        Section(about.title, head, is_head=True),
        Section("Ours beside the paper's", (beside_the_paper(table), Remark(table.what_seeds_say, "note"))),
        Section("What the paper claims", _claims(table)),
        *(Section(title, (Items(tuple(lines)),) if lines else ()) for title, lines in lists.items()),
        Section("Where the numbers come from", (_origin(table),)),
    )
    brand = f"{table.plan.study.name} at scale {table.plan.scale}"
    files = "All numbers: table.json beside this page; every run: the folder runs."
    return Document(about.title, "reproduction", brand, sections, files)


def beside_the_paper(table: ReproducedTable, *, title: str = "", with_not_run: bool = True) -> Table:
    """Return our numbers beside the published ones: a row for each row of the study, three cells for each column."""
    study = table.plan.study
    here = {cell.column: cell.here for cell in table.cells}
    heads: list[str | ColumnHead] = [ColumnHead("row")]
    for name, column in study.columns.items():
        unit = unit_in_words(column.unit)
        above = f"{column.title}, {unit}" if unit else column.title
        small = f"here: {here[name]}" if here.get(name) else ""
        heads += [ColumnHead(text, above, small) for text in ("ours", "paper", "difference")]
    rows = []
    for name, cells in groupby(table.cells, lambda cell: cell.row):
        by_column = {cell.column: cell for cell in cells if with_not_run or not cell.not_run}
        row = study.rows[name]
        recipe = f", {row.recipe}" if row.recipe else ""
        numbers = [cell for column in study.columns for cell in _cells(table, by_column.get(column))]
        rows.append((RichText(row.title, (f"({row.method}{recipe})",)), *numbers))
    return Table(title, tuple(heads), tuple(rows))


def _cells(table: ReproducedTable, cell: ReproducedCell | None) -> tuple[CellValue, CellValue, CellValue]:
    if cell is None:
        return None, None, None
    number, *small = shown_ours(cell, len(table.plan.seeds))
    ours = RichText(number, tuple(small), hint=cell.problem, is_number=True, is_strong=cell.ours is not None)
    return ours, numeric(shown_published(cell.published, cell.unit)), numeric(shown_difference(cell))


def _claims(table: ReproducedTable) -> tuple[Block, ...]:
    """Return the claims with their answers; comparisons of claims that have several are listed below."""
    if not table.claims:
        return ()
    rows = tuple((each.says, RichText(each.answer, is_strong=True), each.why, each.in_print) for each in table.claims)
    parts = [
        Items(tuple(f"{in_words(part)}: {part.answer}" for part in each.parts), each.says)
        for each in table.claims
        if len(each.parts) > 1
    ]
    folded = [Folded("The comparisons of each claim", tuple(parts))] if parts else []
    return (Table("", ("claim", "answer", "by", "in print"), rows), *folded, Remark(claims_asked(table), "note"))


def _origin(table: ReproducedTable) -> Facts:
    """Return where the numbers come from, and how each column was measured, by its first measured row."""
    details = {
        table.plan.study.columns[each.column].title: each.detail for each in reversed(table.cells) if each.detail
    }
    facts: dict[str, str | RichText] = {
        "Source": table.source,
        "Published numbers": published_in_words(table),
        "Cost": cost_in_words(table),
        "How that was estimated": "" if table.expected.seconds is None else table.expected.basis,
    }
    return Facts.of(facts | dict(reversed(details.items())))


NOT_RUN = "not run at this scale"


_FORMATS: Mapping[Unit, NumberFormat] = {
    "percent": NumberFormat(digits=1),
    "plain": NumberFormat(digits=".3g"),
    "seconds": NumberFormat(digits=1),
    "hours": NumberFormat(digits=2),
}


def shown_published(number: PublishedNumber | None, unit: Unit) -> str:
    """Return a published number as printed, with its standard deviation; percentages with one or two decimals."""
    if number is None:
        return ""
    if number.value is None:
        return "collapsed"
    text = f"{number.value:.2f}".removesuffix("0") if unit == "percent" else _FORMATS[unit].number(number.value)
    return text if number.spread is None else f"{text} ± {number.spread:.2f}"


def shown_ours(cell: ReproducedCell, num_seeds: int) -> list[str]:
    """Return our number, or why there is none, then its interval and how many of the planned seeds it is over."""
    if cell.ours is None:
        return [NOT_RUN if cell.not_run else "not reached" if cell.problem == NOT_REACHED else "failed"]
    form = _FORMATS[cell.unit]
    ends = form.ends(cell.ours.low, cell.ours.high)
    lost = len(cell.seeds) < num_seeds
    seeds = f"({len(cell.seeds)} of {num_seeds} seeds)" if lost else ""
    return [form.number(cell.ours.mean), *filter(None, [f"({ends})" if ends else "", seeds])]


def shown_difference(cell: ReproducedCell) -> str:
    """Return our number minus the published one, with its sign; empty if one is missing."""
    return replace(_FORMATS[cell.unit], is_signed=True).number(cell.difference)


def unit_in_words(unit: Unit) -> str:
    """Return the unit appended to a column's title; empty for plain numbers."""
    return {"percent": "%", "plain": "", "seconds": "s", "hours": "h"}[unit]


def published_in_words(table: ReproducedTable) -> str:
    """Return how the published numbers are known, how many runs they are of, and what is not known."""
    about = table.plan.study.about
    repeats = f"Each of {about.repeats} runs." if about.repeats else ""
    return " ".join(filter(None, [about.numbers, repeats, about.unknown]))


def claims_asked(table: ReproducedTable) -> str:
    """Return at which scale the claims were asked, and what their intervals cover."""
    return (
        f"Asked at scale {table.plan.scale} with {count(len(table.plan.seeds), 'seed')}. A claim holds if the 95 % "
        "intervals of all its comparisons say so; it does not hold if one of them says the opposite, with intervals "
        "wide enough to hold together. In print: by the published numbers alone, without intervals."
    )


def cost_in_words(table: ReproducedTable) -> str:
    """Return the actual and the estimated cost of the runs."""
    where = "" if table.expected.seconds is None else f" expected on {table.expected.device}"
    expected = f"{table.expected.in_words()}{where}"
    return f"{len(table.plan.runs)} runs, {clock(table.seconds)} of training; {expected}"

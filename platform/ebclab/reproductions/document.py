"""The page of a reproduction: our numbers beside the published ones, its claims, and where the numbers come from."""

from __future__ import annotations

from collections.abc import Sequence
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
from ebclab.errors import UnsavedError
from ebclab.formatting import clock, count, first_few
from ebclab.interval import Interval
from ebclab.reports.place import write_result
from ebclab.reproductions.answers import BesideRows, in_words
from ebclab.reproductions.plan import ReproductionFolder
from ebclab.reproductions.plots import plots
from ebclab.reproductions.study import FACTORS, PublishedNumber, Unit
from ebclab.reproductions.table import FORMATS, NOT_REACHED, NOT_RUN, UNITS, ReproducedCell, ReproducedTable


def write_table(table: ReproducedTable, folder: ReproductionFolder) -> None:
    """Write table.json, .md, .html, .csv and .tex into the folder of a reproduction."""
    try:
        written = write_result(folder.result, table.to_mapping(), table_document(table), as_rows(table))
    except OSError as error:
        raise UnsavedError(
            f"{folder.address}: all was measured and the table cannot be written, got {error.strerror or error}; "
            "free some space and repeat the command",
            table,
        ) from error
    folder.send(*written)


def as_rows(table: ReproducedTable) -> Table:
    """Return the numbers of a reproduction for other programs: a row for each cell that was run."""
    study = table.plan.study
    rows = tuple(
        (
            study.rows[cell.row].title,
            study.columns[cell.column].title,
            cell.unit,
            *((cell.ours.mean, cell.ours.low, cell.ours.high) if cell.ours else (None, None, None)),
            len(cell.seeds),
            cell.published and cell.published.value,
            cell.difference,
        )
        for cell in table.cells
        if not cell.not_run
    )
    return Table("", ("row", "column", "unit", "ours", "low", "high", "seeds", "published", "difference"), rows)


def table_document(table: ReproducedTable) -> Document:
    """Return the document of a reproduction."""
    about = table.plan.study.about
    failures = [Remark(f"No number: {line}", "warning") for line in table.failures]
    seen = [Remark(text, "lead") for text in (about.asks, table.learnt) if text]
    status = [Remark(table.what_it_shows, "status")] if table.what_it_shows else []
    head = (*seen, *status, *failures)
    of_paper = table.plan.study.is_of_paper
    lists = {
        f"What differs{' from the paper' * of_paper} at this scale": table.differs,
        "Not run at this scale": [f"{title}: {why}" for title, why in table.plan.left_out.items()],
        "What the released code does differently from the paper": table.released,
    }
    sections = (
        Section(about.title, head, is_head=True),
        Section(
            "Ours beside the paper's" if of_paper else "Results",
            (beside_the_paper(table), Remark(table.what_seeds_say, "note")),
        ),
        Section("Plots", plots(table)),
        Section("What the paper claims" if of_paper else "Claims", _claims(table)),
        *(Section(title, (Items(tuple(lines)),) if lines else ()) for title, lines in lists.items()),
        Section("Where the numbers come from", (_origin(table),)),
    )
    brand = f"{table.plan.study.name} at scale {table.plan.scale}"
    files = "All numbers: table.json, table.csv and table.tex beside this page; every run: the folder runs."
    return Document(about.title, "reproduction", brand, sections, files)


def beside_the_paper(table: ReproducedTable, *, title: str = "", with_not_run: bool = True) -> Table:
    """Return our numbers beside the published ones: a row for each row of the study, three cells for each column.

    Of a study without published numbers, a column has our number alone.
    """
    study = table.plan.study
    theirs = "paper" if study.is_of_paper else "published"
    parts = ("ours", theirs, "difference") if study.has_numbers else ("ours",)
    here = {cell.column: cell.here for cell in table.cells}
    columns = {name: column for name, column in study.columns.items() if name in here}
    heads: list[str | ColumnHead] = [ColumnHead("row")]
    for name, column in columns.items():
        unit = UNITS[column.unit]
        above = f"{column.title}, {unit}" if unit else column.title
        small = f"here: {here[name]}" if here[name] else ""
        heads += [ColumnHead(text, above, small) for text in parts]
    rows = []
    for name, cells in groupby(table.cells, lambda cell: cell.row):
        by_column = {cell.column: cell for cell in cells if with_not_run or not cell.not_run}
        row = study.rows[name]
        recipe = f", {row.recipe}" if row.recipe else ""
        numbers = [cell for column in columns for cell in _cells(table, by_column.get(column))[: len(parts)]]
        rows.append((RichText(row.title, (f"({row.method}{recipe})",)), *numbers))
    return Table(title, tuple(heads), (*rows, *_reference_rows(table, list(columns), len(parts))))


def _reference_rows(table: ReproducedTable, columns: Sequence[str], width: int) -> list[tuple[CellValue, ...]]:
    """Return a row for each reference, with ``width`` cells a column.

    Those of some rows alone, as their encoders differ, name them. A column where some of them have no run is in the row
    of all.
    """
    groups: dict[tuple[str, tuple[str, ...]], dict[str, BesideRows]] = {}
    for each in table.beside:
        like = [other for other in table.beside if other.name == each.name]
        whole = max((other for other in like if _is_part(each, other, like)), key=lambda other: len(other.rows))
        groups.setdefault((each.name, whole.rows), {})[each.column] = each
    rows: dict[tuple[str, tuple[str, ...]], dict[str, Interval]] = {}
    for (name, named), group in groups.items():
        others = {row for other in table.beside if other.column in group for row in other.rows} - set(named)
        titles = tuple(table.plan.study.rows[row].title for row in named) if others else ()
        values = {column: FACTORS["percent"] * each.value for column, each in group.items()}
        rows.setdefault((name, titles), {}).update(values)
    percent = FORMATS["percent"]
    return [
        (
            RichText(name, (f"(of {first_few(titles, 2)})",) if titles else ()),
            *(
                cell
                for column in columns
                for cell in (numeric(percent.interval(values.get(column))), *[None] * (width - 1))
            ),
        )
        for (name, titles), values in rows.items()
    ]


def _is_part(part: BesideRows, whole: BesideRows, like: Sequence[BesideRows]) -> bool:
    """Return whether a reference has no other rows than another has, and no second one of its column shares them."""
    sharing = [each for each in like if each.column == part.column and set(each.rows) & set(whole.rows)]
    return set(part.rows) <= set(whole.rows) and sharing == [part]


def _cells(table: ReproducedTable, cell: ReproducedCell | None) -> tuple[CellValue, CellValue, CellValue]:
    if cell is None:
        return None, None, None
    number, *small = shown_ours(cell, len(table.plan.seeds))
    ours = RichText(
        number, tuple(small), hint=cell.problem or cell.not_reached, is_number=True, is_strong=cell.ours is not None
    )
    return ours, numeric(shown_published(cell.published, cell.unit)), numeric(shown_difference(cell))


def _claims(table: ReproducedTable) -> tuple[Block, ...]:
    """Return the claims with their answers; comparisons of claims that have several are listed below."""
    if not table.claims:
        return ()
    printed = table.plan.study.has_numbers
    heads = ("claim", "answer", "by", *(["in print"] if printed else []))
    rows: tuple[tuple[CellValue, ...], ...] = tuple(
        (each.says, RichText(each.answer, is_strong=True), each.why, *([each.in_print] if printed else []))
        for each in table.claims
    )
    parts = [
        Items(tuple(f"{in_words(part)}: {part.answer}" for part in each.parts), each.says)
        for each in table.claims
        if len(each.parts) > 1
    ]
    folded = [Folded("The comparisons of each claim", tuple(parts))] if parts else []
    return (Table("", heads, rows), *folded, Remark(claims_asked(table), "note"))


def _origin(table: ReproducedTable) -> Facts:
    """Return where the numbers come from, and how each column was measured, by its first measured row."""
    about = table.plan.study.about
    repeats = f"Each of {about.repeats} runs." if about.repeats else ""
    details = {
        table.plan.study.columns[each.column].title: each.detail for each in reversed(table.cells) if each.detail
    }
    training = [config.training for config in table.plan.runs.values()]
    numbers = dict.fromkeys(f"{each.precision}, training.compile={each.compile}".lower() for each in training)
    facts: dict[str, str | RichText] = {
        "Source": table.source,
        "Published numbers": " ".join(filter(None, [about.numbers, repeats, about.unknown])),
        **{name: " | ".join(texts) for name, texts in table.made.items()},
        "Precision": "; ".join(numbers),
        "Cost": cost_in_words(table),
        "How that was estimated": "" if table.expected.seconds is None else table.expected.basis,
    }
    return Facts.of(facts | dict(reversed(details.items())))


def shown_published(number: PublishedNumber | None, unit: Unit) -> str:
    """Return a published number as printed, with its standard deviation; percentages with one or two decimals."""
    if number is None:
        return ""
    if number.value is None:
        return "collapsed"
    text = f"{number.value:.2f}".removesuffix("0") if unit == "percent" else FORMATS[unit].number(number.value)
    return text if number.spread is None else f"{text} ± {number.spread:.2f}"


def shown_ours(cell: ReproducedCell, num_seeds: int) -> list[str]:
    """Return our number, or why there is none, then its interval and how many of the planned seeds it is over."""
    if cell.ours is None:
        if cell.problem and cell.problem == cell.not_reached:
            return ["not reached" if cell.problem == NOT_REACHED else cell.problem]
        return [NOT_RUN if cell.not_run else "failed"]
    form = FORMATS[cell.unit]
    ends = form.ends(cell.ours.low, cell.ours.high)
    lost = len(cell.seeds) < num_seeds
    reached = "reached by " if cell.not_reached else ""
    seeds = f"({reached}{len(cell.seeds)} of {num_seeds} seeds)" if lost else ""
    return [form.number(cell.ours.mean), *filter(None, [f"({ends})" if ends else "", seeds])]


def shown_difference(cell: ReproducedCell) -> str:
    """Return our number minus the published one, with its sign; empty if one is missing."""
    return replace(FORMATS[cell.unit], is_signed=True).number(cell.difference)


def claims_asked(table: ReproducedTable) -> str:
    """Return at which scale the claims were asked, and what their intervals cover."""
    return (
        f"Asked at scale {table.plan.scale} with {count(len(table.plan.seeds), 'seed')}. A claim holds if the 95 % "
        "intervals of all its comparisons say so; it does not hold if one of them says the opposite, with intervals "
        "wide enough to hold together."
    ) + (" In print: by the published numbers alone, without intervals." * table.plan.study.has_numbers)


def cost_in_words(table: ReproducedTable) -> str:
    """Return the actual and the estimated cost of the runs."""
    where = "" if table.expected.seconds is None else f" expected on {table.expected.device}"
    expected = f"{table.expected.in_words()}{where}"
    return f"{count(len(table.plan.runs), 'run')}, {clock(table.seconds)} of training; {expected}"

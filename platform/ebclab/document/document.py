"""The vocabulary of documents: sections of facts, tables, plots, pictures, remarks, lists and commands."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Literal, TypeAlias


@dataclass(frozen=True)
class RichText:
    """Text of a cell or a fact with more than its words."""

    text: str  # the words
    small: tuple[str, ...] = ()  # lines below it in small print; ``line`` has them on one line
    value: float | str | None = None  # what the cell is sorted by, and what CSV has; None means the text
    hint: str = ""  # shown when the mouse is on it
    is_number: bool = False  # right-aligned
    is_strong: bool = False  # bold
    is_code: bool = False  # in a typewriter face
    swatch: str = ""  # CSS border drawn before it, as the key to a plot; empty draws none

    @property
    def line(self) -> str:
        """All of its text on one line."""
        return self.text + "".join(f" {line}" if line.startswith("(") else f"; {line}" for line in self.small)


Text: TypeAlias = str | RichText
CellValue: TypeAlias = str | int | float | RichText | None


def numeric(
    text: str, value: float | str | None = None, small: Sequence[str] = (), *, is_strong: bool = False
) -> RichText:
    """Return a right-aligned cell, sorted by its value."""
    return RichText(text, tuple(filter(None, small)), value, is_number=True, is_strong=is_strong)


@dataclass(frozen=True)
class ColumnHead:
    """Heading of a column."""

    text: str  # the heading
    above: str = ""  # heading over several columns; neighbours with equal ones share it
    small: str = ""  # a line below ``above`` in small print
    hint: str = ""  # shown when the mouse is on it


def one_line(value: CellValue | ColumnHead) -> str:
    """Return a cell, a fact or a heading as plain text; empty if there is nothing."""
    if isinstance(value, RichText | ColumnHead):
        return value.line if isinstance(value, RichText) else value.text
    return "" if value is None else str(value)


@dataclass(frozen=True)
class Table:
    """A table."""

    title: str  # heading; may be empty
    columns: tuple[str | ColumnHead, ...]  # column headings
    rows: tuple[tuple[CellValue, ...], ...]  # cells; numbers are right-aligned
    note: str = ""  # how to read the table; may be empty

    def __post_init__(self) -> None:
        """Refuse rows that are longer or shorter than the headings."""
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ValueError(f"{self.title}: {len(self.columns)} columns, and a row of {len(row)} cells")

    @property
    def heads(self) -> list[ColumnHead]:
        """The column headings, all of one type."""
        return [head if isinstance(head, ColumnHead) else ColumnHead(head) for head in self.columns]

    @property
    def numeric_columns(self) -> list[bool]:
        """Whether all cells of a column that are not empty are right-aligned, by column."""
        columns: list[list[CellValue]] = [[row[place] for row in self.rows] for place in range(len(self.columns))]
        return [
            any(map(is_numeric, cells)) and all(is_numeric(c) or not one_line(c) for c in cells) for cells in columns
        ]

    def unfolded(self) -> Table:
        """Return the table for a narrow place: columns that share a heading become rows, a line for each heading."""
        heads = self.heads
        spans = [
            (above, [place for place, _ in each]) for above, each in groupby(enumerate(heads), lambda h: h[1].above)
        ]
        groups = [(above, places) for above, places in spans if above]
        if not groups:
            return self
        own = [place for above, places in spans if not above for place in places]
        rows = [
            (*(row[place] for place in own), above, *(row[place] for place in places))
            for row in self.rows
            for above, places in groups
            if any(one_line(row[place]) for place in places)
        ]
        within = [heads[place].text for place in groups[0][1]]
        return Table(self.title, (*(heads[place] for place in own), "column", *within), tuple(rows), self.note)


def is_numeric(value: CellValue) -> bool:
    """Return whether a cell is right-aligned."""
    return value.is_number if isinstance(value, RichText) else isinstance(value, int | float)


@dataclass(frozen=True)
class MarkedTable(Table):
    """A table with marked rows that a page can sort and filter."""

    marks: tuple[str, ...] = ()  # look of each row, "winner", "confirm" or empty; rows after the last one have none
    is_sortable: bool = False  # whether a click on a heading sorts the rows
    is_filtered: bool = False  # whether there is a field to filter the rows; the table then scrolls within the page


@dataclass(frozen=True)
class Plot:
    """A plot."""

    title: str  # heading
    note: str  # how to read the plot; may be empty
    figure: dict[str, Any]  # plain values for plotly.js
    height: int  # height in pixels


@dataclass(frozen=True)
class Plots:
    """Plots beside each other, as many as fit."""

    plots: tuple[Plot, ...]
    switches: tuple[RichText, ...] = ()  # names whose curves a click hides, with the border that is the key to them


@dataclass(frozen=True)
class Picture:
    """A picture."""

    name: str  # key: letters, digits and hyphens
    title: str  # heading
    note: str  # description of the picture; also its text alternative
    png: bytes = field(default=b"", repr=False)  # content of the PNG file


@dataclass(frozen=True)
class Facts:
    """Facts with their names."""

    rows: tuple[tuple[str, Text], ...]

    @classmethod
    def of(cls, facts: Mapping[str, Text]) -> Facts:
        """Return facts without those that are empty."""
        return cls(tuple((name, text) for name, text in facts.items() if one_line(text)))


@dataclass(frozen=True)
class Remark:
    """A paragraph; its look is that of the answer ("lead"), of a note, of the state of things or of a warning."""

    text: str
    look: Literal["", "lead", "note", "status", "running", "warning"] = ""


@dataclass(frozen=True)
class Items:
    """A list."""

    lines: tuple[str, ...]
    title: str = ""
    is_ordered: bool = False


@dataclass(frozen=True)
class Command:
    """A command or code to copy, under a title."""

    title: str
    text: str
    language: str = ""


@dataclass(frozen=True)
class Tiles:
    """The most important numbers, each with what it is."""

    numbers: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Folded:
    """Blocks that a page shows on a click on their title."""

    title: str
    blocks: tuple[Block, ...]
    is_open: bool = False


Block: TypeAlias = Table | Plot | Plots | Picture | Facts | Remark | Items | Command | Tiles | Folded


@dataclass(frozen=True)
class Section:
    """Blocks under a heading."""

    title: str  # the heading; may be empty
    blocks: tuple[Block, ...]  # the content, in order
    name: str = ""  # what the links below the first head lead to; empty for none
    is_head: bool = False  # whether it is the head of what follows, and not one of its sections


@dataclass(frozen=True)
class Document:
    """A document."""

    title: str  # title of the window
    kind: str  # what it is of, such as "comparison"
    brand: str  # the line at the top of the page, after the name of the project
    sections: tuple[Section, ...]  # the content; except for heads, sections without blocks are not shown
    files: str  # where all numbers are, as a sentence

    def blocks(self) -> Iterator[Block]:
        """Yield all blocks, those within others too."""
        for section in self.sections:
            yield from _with_inner(section.blocks)


def _with_inner(blocks: Sequence[Block]) -> Iterator[Block]:
    for block in blocks:
        yield block
        if isinstance(block, Folded):
            yield from _with_inner(block.blocks)
        elif isinstance(block, Plots):
            yield from block.plots

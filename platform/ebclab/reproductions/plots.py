"""Plots of a reproduction: numbers by row, with their references, or over epochs; the published ones beside them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import plotly.graph_objects as go

from ebclab.document.document import Plot
from ebclab.formatting import first_few
from ebclab.interval import Interval
from ebclab.reports.plots import COLOURS, add_references, epoch_ticks, error_bars, plot, range_of, reference_line
from ebclab.reproductions.study import FACTORS, Unit
from ebclab.reproductions.table import UNITS, ReproducedCell, ReproducedTable

_MOST_COLUMNS = len(COLOURS)  # in one plot, a colour each
_FEWEST_EPOCHS = 3  # of a curve
_NAMED = 2  # columns in a title, which differs from those of the other plots by them
_TITLES: Mapping[Unit, str] = {"percent": "per cent", "plain": "value", "seconds": "seconds", "hours": "hours"}


def plots(table: ReproducedTable) -> tuple[Plot, ...]:
    """Return a plot for each unit, or over epochs where columns differ in these alone.

    A single number has none, and numbers of scale smoke, which say nothing.
    """
    cells = [cell for cell in table.cells if cell.ours is not None and table.plan.scale != "smoke"]
    drawn = []
    for unit in UNITS:
        columns = list(dict.fromkeys(cell.column for cell in cells if cell.unit == unit))
        shown = [cell for cell in cells if cell.unit == unit]
        if len(shown) < 2:
            continue
        epochs = _epochs(table, columns)
        parts = [columns] if epochs else [columns[n : n + _MOST_COLUMNS] for n in range(0, len(columns), _MOST_COLUMNS)]
        for part in parts:
            mine = [cell for cell in shown if cell.column in part]
            drawn.append(_over_epochs(table, mine, epochs) if epochs else _by_row(table, mine, part))
    return tuple(drawn)


def _epochs(table: ReproducedTable, columns: Sequence[str]) -> dict[str, int]:
    """Return the epoch of each column, if they are one measure of the same runs at several epochs; else nothing."""
    cells = [cell for cell in table.plan.cells if cell.column in columns and cell.runs]
    one_measure = len({(cell.wanted.measure, cell.wanted.dataset) for cell in cells}) == 1
    runs = {cell.row: tuple(cell.runs.values()) for cell in cells}
    if not one_measure or any(runs[cell.row] != tuple(cell.runs.values()) for cell in cells):
        return {}
    settings = table.plan.runs
    epochs = {(cell.column, cell.wanted.epoch or settings[runs[cell.row][0]].training.epochs) for cell in cells}
    found = dict(epochs)
    is_one_each = len(found) == len(epochs) == len(set(found.values()))
    return found if is_one_each and len(found) >= _FEWEST_EPOCHS else {}


def _by_row(table: ReproducedTable, cells: Sequence[ReproducedCell], columns: Sequence[str]) -> Plot:
    """Plot numbers by row, a colour for each column; published numbers as open marks, references as lines."""
    figure, study = go.Figure(), table.plan.study
    titles = {name: row.title for name, row in study.rows.items() if any(cell.row == name for cell in cells)}
    for colour, column in zip(COLOURS, columns, strict=False):
        mine = [cell for cell in cells if cell.column == column]
        values = [cell.ours for cell in mine if cell.ours is not None]
        printed = [(titles[cell.row], cell.published.value) for cell in mine if cell.published]
        figure.add_scatter(
            x=[value.mean for value in values],
            y=[titles[cell.row] for cell in mine],
            error_x=error_bars(values, 1.5),
            mode="markers",
            orientation="h",
            offsetgroup=column,
            name=study.columns[column].title,
            marker={"color": colour, "size": 9},
        )
        if printed:
            figure.add_scatter(
                x=[number for _, number in printed],
                y=[title for title, _ in printed],
                mode="markers",
                orientation="h",
                offsetgroup=column,
                name=f"{study.columns[column].title}, published",
                marker={"color": colour, "size": 9, "symbol": "diamond-open"},
            )
    places = {row: place for place, row in enumerate(titles)}
    references = [
        (each.name, places[row], FACTORS["percent"] * each.value)
        for each in table.beside
        if each.column in columns
        for row in each.rows
        if row in places
    ]
    add_references(figure, [(name, place, value.mean) for name, place, value in references])
    numbers = [cell.ours for cell in cells if cell.ours is not None] + [value for _, _, value in references]
    numbers += [Interval(cell.published.value) for cell in cells if cell.published and cell.published.value is not None]
    unit = cells[0].unit
    least, most = {"percent": (0.0, 100.0), "plain": (-math.inf, math.inf)}.get(unit, (0.0, math.inf))
    spanned = range_of(numbers, least_margin=1.0, least=least, most=most)
    figure.update_xaxes(title=_TITLES[unit], range=spanned)
    figure.update_yaxes(autorange="reversed", automargin=True, type="category")  # titles may be numbers
    figure.update_layout(scattermode="group")
    height = 150 + len(titles) * (16 + 12 * len(columns))
    title = first_few([study.columns[column].title for column in columns], _NAMED)
    return plot(title, _note(table), figure, height=height)


def _over_epochs(table: ReproducedTable, cells: Sequence[ReproducedCell], epochs: Mapping[str, int]) -> Plot:
    """Plot numbers over epochs, a line for each row; published numbers are dashed."""
    figure, study = go.Figure(), table.plan.study
    for place, row in enumerate(dict.fromkeys(cell.row for cell in cells)):
        mine = sorted((cell for cell in cells if cell.row == row), key=lambda cell: epochs[cell.column])
        values = [cell.ours for cell in mine if cell.ours is not None]
        colour, title = COLOURS[place % len(COLOURS)], study.rows[row].title
        figure.add_scatter(
            x=[epochs[cell.column] for cell in mine],
            y=[value.mean for value in values],
            error_y=error_bars(values, 1.2),
            mode="lines+markers",
            name=title,
            line={"color": colour, "width": 2},
        )
        printed = [(epochs[cell.column], cell.published.value) for cell in mine if cell.published]
        if printed:
            figure.add_scatter(
                x=[epoch for epoch, _ in printed],
                y=[number for _, number in printed],
                mode="lines",
                name=f"{title}, published",
                line={"color": colour, "width": 1, "dash": "dash"},
            )
    ends = [min(epochs.values()), max(epochs.values())]
    references = {(each.name, (FACTORS["percent"] * each.value).mean) for each in table.beside if each.column in epochs}
    for name, number in sorted(references):  # several untrained encoders have one entry in the legend
        is_first = all(trace.name != name for trace in figure.data)
        line = reference_line(name)
        figure.add_scatter(x=ends, y=[number] * 2, mode="lines", name=name, line=line, showlegend=is_first)
    figure.update_xaxes(title="epoch", **epoch_ticks(max(epochs.values())))
    figure.update_yaxes(title=_TITLES[cells[0].unit])
    return plot("Over epochs", _note(table), figure, height=440)


def _note(table: ReproducedTable) -> str:
    return "Means over seeds with 95 % intervals." if len(table.plan.seeds) > 1 else "One seed: there are no intervals."

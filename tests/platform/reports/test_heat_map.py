"""The heat map of a sweep: each trial is in one cell, and a cell is the mean of its trials."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from plotly.colors import hex_to_rgb, sample_colorscale

from ebclab.document.document import Plot, Remark, Table, one_line
from ebclab.reports.comparable import LEAST_TRIALS
from ebclab.reports.document import write_report
from ebclab.reports.reading import SweepRecord, read_sweep
from ebclab.reports.sweep_plots import _bins, heat_map, table_of_heat_map
from ebclab.sweeps.space.space import Parameter

RATE, TEMPERATURE, BATCH = "optimizer.learning_rate", "method.temperature", "training.batch_size"


@pytest.fixture
def swept(sweep_folder: Callable[..., Any]) -> Callable[..., SweepRecord]:
    def make(num_trials: int, score: Callable[[float, float, int], float]) -> SweepRecord:
        folder, draw = sweep_folder(trials=num_trials), np.random.default_rng(0)
        for number in range(num_trials):
            rate, temperature = float(10 ** draw.uniform(-4, -1)), float(draw.uniform(0.1, 1.0))
            batch = (64, 128, 256)[number % 3]
            point = {RATE: rate, TEMPERATURE: temperature, BATCH: batch}
            folder.search(number, [score(rate, temperature, batch)] * 4, point=point)
        return read_sweep(folder.path)

    return make


def drawn_of(record: SweepRecord) -> tuple[dict[str, Any], dict[str, Any]]:
    drawn = heat_map(record)
    assert isinstance(drawn, Plot)
    return drawn.figure["data"][0], drawn.figure["layout"]


def test_cells_are_those_of_a_weighted_histogram(swept: Callable[..., SweepRecord]) -> None:
    record = swept(72, lambda rate, temperature, _: -0.15 * math.log10(rate) + 0.3 * temperature)
    trace, layout = drawn_of(record)
    points = np.array([[math.log10(trial.point[RATE]), trial.point[TEMPERATURE]] for trial in record.compared.trials])
    edges = [np.linspace(-4, -1, 7), np.linspace(0.1, 1.0, 7)]
    counts, *_ = np.histogram2d(*points.T, bins=edges)
    sums, *_ = np.histogram2d(*points.T, bins=edges, weights=record.compared.values)
    with np.errstate(invalid="ignore"):
        expected = (sums / counts).T
    assert (layout["xaxis"]["title"]["text"], layout["yaxis"]["title"]["text"]) == ("learning_rate", "temperature")
    assert np.array([[np.nan if z is None else z for z in row] for row in trace["z"]]) == pytest.approx(
        expected, nan_ok=True
    )
    assert [list(row) for row in trace["text"]] == [
        [f"{100 * mean:.1f}%<br>({n:.0f})" if n else "" for mean, n in zip(*pair, strict=True)]
        for pair in zip(expected, counts.T, strict=True)
    ]
    table = table_of_heat_map(record)
    assert isinstance(table, Table)
    assert [[one_line(cell) for cell in row[1:]] for row in table.rows] == [
        [text.replace("<br>", " ") for text in row] for row in reversed(trace["text"])
    ]


def test_the_text_of_every_cell_has_the_contrast_of_wcag_aaa(swept: Callable[..., SweepRecord]) -> None:
    trace, _ = drawn_of(swept(LEAST_TRIALS, lambda rate, temperature, _: rate + temperature))
    ends = [colour for _, colour in trace["colorscale"]]
    grounds = [sample_colorscale(ends, share / 50, colortype="tuple")[0] for share in range(51)]
    dark = luminance(hex_to_rgb(trace["textfont"]["color"]))
    assert min((luminance([255 * part for part in each]) + 0.05) / (dark + 0.05) for each in grounds) >= 7


def luminance(colour: Any) -> float:
    """Relative luminance of an sRGB colour, channels up to 255, as WCAG 2.2 defines it."""
    linear = [c / 12.92 if (c := channel / 255) <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for channel in colour]
    return float(np.dot([0.2126, 0.7152, 0.0722], linear))


def test_a_choice_of_numbers_has_a_column_a_value(swept: Callable[..., SweepRecord]) -> None:
    record = swept(18, lambda rate, _, batch: batch / 1000 + rate)
    trace, layout = drawn_of(record)
    assert list(trace["x"]) == ["64", "128", "256"]
    assert layout["xaxis"]["title"]["text"] == "batch_size"
    of_batch = [[float(line.partition("%")[0]) for row in trace["text"] if (line := row[x])] for x in range(3)]
    assert [min(values) for values in of_batch] == pytest.approx([6.4, 12.8, 25.6], abs=1.1)


@pytest.mark.parametrize(
    ("parameter", "names", "places"),
    [
        (Parameter("x", "uniform", 1, 3), ("1 to 2", "2 to 3"), {1: 0, 1.99: 0, 2: 1, 3: 1}),
        (Parameter("x", "loguniform", 0.01, 1), ("0.01 to 0.1", "0.1 to 1"), {0.01: 0, 0.099: 0, 0.5: 1, 1: 1}),
        (Parameter("x", "uniform", 1, 3, also=0), ("0", "1 to 2", "2 to 3"), {0: 0, 1: 1, 2.5: 2}),
        (Parameter("x", "uniform", 1, 3, also=9), ("1 to 2", "2 to 3", "9"), {1: 0, 3: 1, 9: 2}),
        (Parameter("x", "int", 1, 3), ("1", "2", "3"), {1: 0, 2: 1, 3: 2}),
        (Parameter("x", "int", 1, 20), ("1 to 11", "11 to 20"), {1: 0, 10: 0, 11: 1, 20: 1}),
        (Parameter("x", "quantised", 0, 1, 0.1), ("0 to 0.5", "0.5 to 1"), {0: 0, 0.4: 0, 0.5: 1, 1: 1}),
        (Parameter("x", "choice", choices=(256, 16)), ("16", "256"), {16: 0, 256: 1}),
        (Parameter("x", "int", 1024, 16383, log=True), ("1024 to 4096", "4096 to 16383"), {4095: 0, 4096: 1}),
        (Parameter("x", "uniform", 0.9996, 1.0), ("0.9996 to 0.9998", "0.9998 to 1"), {0.9997: 0, 0.9999: 1}),
    ],
)
def test_every_value_of_a_range_has_the_bin_that_names_it(parameter, names, places):
    found = _bins(parameter, 2)
    assert found.names == names
    assert {value: found.place(value) for value in places} == places


def test_with_too_few_trials_the_page_says_why(swept):
    few = swept(LEAST_TRIALS - 1, lambda rate, *_: rate)
    assert (heat_map(few), table_of_heat_map(few)) == (None, None)
    page = write_report([few.folder.path])
    with open(page, encoding="utf-8") as file:
        assert f"heat map need at least {LEAST_TRIALS} comparable trials; there are 7." in file.read()


def test_one_number_among_words_is_no_heat_map(swept: Callable[..., SweepRecord], monkeypatch) -> None:
    record = swept(LEAST_TRIALS, lambda rate, *_: rate)
    monkeypatch.setitem(record.__dict__, "importance", {RATE: 1.0})
    said = heat_map(record)
    assert isinstance(said, Remark)
    assert f"only {RATE} has" in said.text
    assert table_of_heat_map(record) is None

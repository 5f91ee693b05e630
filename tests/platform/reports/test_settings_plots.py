"""Plots of several settings at once hold what Optuna's own plots do, and an importance is kept while it is true."""

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import optuna
import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

from ebclab.document.document import Plot
from ebclab.reports import reading
from ebclab.reports.document import write_report
from ebclab.reports.reading import SweepRecord, read_sweep
from ebclab.reports.sweep_plots import contour, parallel
from ebclab.sweeps.space.space import parse_space

RATE, TEMPERATURE, BATCH = "optimizer.learning_rate", "method.temperature", "training.batch_size"
KINDS: dict[str, Any] = {
    "method.encoder_kind_or_name": ({"choice": ["b", "a"]}, CategoricalDistribution(["b", "a"])),
    BATCH: ({"choice": [256, 64]}, CategoricalDistribution([256, 64])),
    RATE: ({"loguniform": [1e-4, 1e-1]}, FloatDistribution(1e-4, 1e-1, log=True)),
    TEMPERATURE: ({"uniform": [0.1, 1.0]}, FloatDistribution(0.1, 1.0)),
    "training.epochs": ({"int": [1, 40], "log": True}, IntDistribution(1, 40, log=True)),
    "data.seed": ({"int": [0, 9]}, IntDistribution(0, 9)),
}
LABELS = dict(
    zip(KINDS, ("encoder_kind_or_name", "batch_size", "learning_rate", "temperature", "epochs", "seed"), strict=True)
)


@pytest.fixture
def compared(sweep_folder: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Return a record of twenty trials with the settings of ``KINDS``, and the same as a study of Optuna."""

    def make(*important: str) -> tuple[SweepRecord, optuna.Study]:
        folder, draw = sweep_folder(), np.random.default_rng(0)
        study = optuna.create_study(direction="maximize")
        for number in range(20):
            point = {
                "method.encoder_kind_or_name": str(draw.choice(["b", "a"])),
                BATCH: int(draw.choice([256, 64])),
                RATE: float(10 ** draw.uniform(-4, -1)),
                TEMPERATURE: float(draw.uniform(0.1, 1)),
                "training.epochs": int(draw.integers(1, 41)),
                "data.seed": int(draw.integers(0, 10)),
            }
            value = float(draw.uniform(0.4, 0.9))
            folder.search(number, [value] * 4, point=point)
            study.add_trial(
                optuna.create_trial(
                    params={LABELS[name]: each for name, each in point.items()},
                    distributions={LABELS[name]: kind for name, (_, kind) in KINDS.items()},
                    value=value,
                )
            )
        record = read_sweep(folder.path)
        space = parse_space({"parameters": {name: form for name, (form, _) in KINDS.items()}}, "test")
        object.__setattr__(record.plan, "space", space)
        shares = {name: float(len(important) - important.index(name)) for name in important}
        monkeypatch.setattr(reading, "importance", lambda *_: shares)
        return record, study

    return make


@pytest.mark.parametrize("first", KINDS)
@pytest.mark.parametrize("second", ["training.batch_size", TEMPERATURE])
def test_a_contour_plot_has_the_grid_the_dots_and_the_axes_of_optunas(
    compared: Callable[..., Any], first: str, second: str
) -> None:
    if first == second:
        return
    record, study = compared(first, second)
    drawn = contour(record)
    assert isinstance(drawn, Plot)
    theirs = optuna.visualization.plot_contour(study, params=[LABELS[first], LABELS[second]])
    surface, dots = drawn.figure["data"]
    for axis in ("x", "y"):
        assert [*dots[axis]] == [*theirs.data[1][axis]]
        for ours, other in zip(surface[axis], theirs.data[0][axis], strict=True):
            assert ours == (other if isinstance(other, str) else pytest.approx(other))
        told, other = drawn.figure["layout"][f"{axis}axis"], theirs.layout[f"{axis}axis"]
        assert told["title"]["text"] == other.title.text
        assert [*told["range"]] == pytest.approx([*other.range])
        assert told["type"] == (other.type or "linear")
    np.testing.assert_array_equal(np.array(surface["z"], dtype=float), theirs.data[0].z)
    assert (surface["connectgaps"], surface["contours"]["coloring"]) == (True, theirs.data[0].contours.coloring)


def test_lines_of_all_settings_together_are_those_of_optuna(compared: Callable[..., Any]) -> None:
    record, study = compared()
    drawn = parallel(record)
    assert isinstance(drawn, Plot)
    theirs = optuna.visualization.plot_parallel_coordinate(study, target_name=record.objective_words)
    lines = sorted(((line["y"], line["customdata"]) for line in drawn.figure["data"]), key=lambda each: each[0])
    others = sorted(
        ((line.y, line.customdata) for line in theirs.data if line.mode == "lines"), key=lambda each: each[0]
    )
    assert len(lines) == len(others) == 20
    for (ours, said), (other, told) in zip(lines, others, strict=True):
        assert ours == pytest.approx([*other])
        assert said == [list(each) for each in told]
    layout = drawn.figure["layout"]
    assert layout["xaxis"]["ticktext"] == [*theirs.layout.xaxis.ticktext]
    ticks = [(each["x"], each["y"], each["text"]) for each in layout["annotations"]]
    assert [(x, pytest.approx(y), text) for x, y, text in ticks] == [
        (each.x, each.y, each.text) for each in theirs.layout.annotations
    ]


def test_an_importance_is_taken_from_the_report_only_while_it_is_that_of_these_trials(
    sweep_folder: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = sweep_folder()
    for number in range(9):
        folder.search(number, [0.5 + 0.01 * number] * 4)
    write_report([folder.path])
    shares = read_sweep(folder.path).importance
    report = folder.path / "report.json"
    monkeypatch.setattr(reading, "importance", lambda *_: {"computed": 1.0})
    assert read_sweep(folder.path).importance == shares
    assert sum(shares.values()) == pytest.approx(1)

    whole = report.read_text()
    changed = json.loads(whole)
    changed[0]["importance"] = dict(zip(shares, reversed(shares.values()), strict=True))
    for text in (json.dumps(changed), whole[:-9], "[1, {}]", "{}"):
        report.write_text(text)
        assert read_sweep(folder.path).importance == {"computed": 1.0}
    report.write_text(whole)
    folder.search(9, [0.7] * 4)
    assert read_sweep(folder.path).importance == {"computed": 1.0}

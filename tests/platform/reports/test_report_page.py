"""The page, the files beside it, in a store too, what a sweep cost, and every way to ask for it wrongly."""

import csv
import fcntl
import json
import os
import random
import re
import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import optuna
import pytest
from kill_points import LOSSES, Loss, killed_everywhere
from made_up_comparison import IMAGES, right
from optuna.storages.journal import JournalFileBackend
from pages import Page

from ebclab.cli import main
from ebclab.errors import RunError
from ebclab.evaluation.comparison import Measurements
from ebclab.reports import document as output
from ebclab.reports.comparable import LEAST_TRIALS, MOST_TRIALS, as_text, footing, importance
from ebclab.reports.document import Cost, commands, ranked, write_report
from ebclab.reports.journal import write_journal
from ebclab.reports.plots import thinned
from ebclab.reports.reading import read_sweep
from ebclab.reports.sweep_plots import _axis as plot_axis
from ebclab.reports.sweep_plots import contour, learning_curves, objective_against_time, pareto, slices
from ebclab.runs.references import PIXELS, UNTRAINED, Protocol, Reference, References
from ebclab.sweeps.display import TrialTable
from ebclab.sweeps.folder import SweepFolder
from ebclab.sweeps.log import Epoch, Trial
from ebclab.sweeps.policies.suggest import suggest
from ebclab.sweeps.results import SeedScores, SettingsTest
from ebclab.sweeps.space.space import parse_space

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>"
PLOTS = {"Learning curves", "Confirmed with other seeds", "What mattered", "Slices", "Two settings together"}
PLOTS |= {"Heat map of two settings", "All settings together", "Diagnostics of training", "Objective against time"}


text_alone = pytest.mark.usefixtures("_without_plots_of_settings")


def page_at(path: str | Path) -> Page:
    return Page(Path(path).read_text(encoding="utf-8"))


def test_a_finished_sweep_shows_every_plot_and_every_trial(filled):
    (filled.path / "result.json").write_text("{}")
    page = write_report([filled.path])
    found = page_at(page)
    assert page == str(filled.path / "report.html")
    assert set(found.figures) == PLOTS
    assert all(figure["data"] for figure in found.figures.values())
    told = ("Within noise of trial 0006", "loss is nan at step 7", "abacus, 2 cores", "'a b'", "best.yaml --seed 1")
    assert [said for said in told if said not in found.words] == []
    assert "has not concluded" not in found.words
    stopped = {f"stopped: {why} (1)" for why in ("below the others at a rung", "no more gain", "collapsed")}
    assert stopped | {"diverged (1)"} <= {trace.get("name") for trace in found.figures["Learning curves"]["data"]}


def test_hostile_names_are_text_in_plots_too(sweep_folder: Callable[..., Any]) -> None:
    folder = sweep_folder("<b>x onmouseover=1")
    for number in range(9):
        folder.search(number, [0.1 * number], "stopped", HOSTILE)
    folder.search(9, [0.5], "failed", HOSTILE, point={"method.temperature": HOSTILE})
    found = page_at(write_report([folder.path]))
    assert HOSTILE in "".join(found.texts)
    assert not [tag for tag, names in found.elements if tag == "img" or any(name.startswith("on") for name in names)]
    assert "&lt;script&gt;alert(1)" in json.dumps(found.figures)
    assert "<script>" not in json.dumps(found.figures)


@text_alone
def test_the_csv_and_the_json_hold_every_trial(filled, tmp_path) -> None:
    filled.search(12, [float("nan")], "diverged", "loss is nan")
    write_report([filled.path], tmp_path / "page.html", price=2.0)
    rows = list(csv.DictReader((tmp_path / "page.csv").read_text(encoding="utf-8").splitlines()))
    assert len(rows) == 13 + 9
    best = {"trial": "0007", "rank": "1", "objective": "0.64", "training.batch_size": "128"}
    assert rows[7].items() >= best.items()
    facts = json.loads((tmp_path / "page.json").read_text(encoding="utf-8"))[0]
    assert facts["trials"][7]["curve"]["4"]["objective"] == 0.64
    assert facts["confirmed"][1]["below_winner"]["is_noise"] is True
    assert facts["cost"]["money"] == pytest.approx(facts["cost"]["gpu_hours"] * 2)


NOT_IN_A_TERMINAL = {"rank", "seconds", "seed"}
"""Columns for which a terminal has no room, beside the settings."""


def test_every_column_of_the_trials_on_the_page_is_in_the_files_and_in_a_terminal_too(filled) -> None:
    record = read_sweep(filled.path)
    page = {head for head in output._trials(record).columns if isinstance(head, str)} - {record.objective_words}
    assert page - {*output._OF_TRIAL} == set(), "_OF_TRIAL in reports/document.py has the columns of CSV and JSON"
    columns, _ = TrialTable(record.search, record.search, "value")._columns(record.search, {}, 200)
    shown = {" ".join(column.header) for column in columns} - {"value"}
    where = "TrialTable in sweeps/display.py has the columns of a terminal, NOT_IN_A_TERMINAL here the others"
    assert shown == {"epoch" if head == "epochs" else head for head in page - NOT_IN_A_TERMINAL}, where


@text_alone
def test_a_running_sweep_says_so_and_its_trials_run(sweep_folder: Callable[..., Any]) -> None:
    folder = sweep_folder()
    folder.search(0, [0.4, 0.5], "running")
    with (folder.path / ".lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        words = page_at(write_report([folder.path])).words
    assert "This sweep is running" in words
    assert "Repeat the command to refresh" in words
    assert "1 running" in words
    assert "nothing works on it now" in page_at(write_report([folder.path])).words


@text_alone
@pytest.mark.parametrize("state", [None, "failed"])
def test_a_sweep_without_a_finished_trial_opens_and_says_so(sweep_folder, state):
    folder = sweep_folder()
    if state:
        folder.search(0, [], state, "out of memory")
    words = page_at(write_report([folder.path])).words
    assert "No trial measured anything." in words
    assert ("out of memory" in words) == (state is not None)


@text_alone
def test_bad_lines_are_skipped_and_counted(sweep_folder, capsys):
    folder = sweep_folder()
    folder.search(0, [0.4, 0.5, 0.6, 0.7])
    with (folder.path / "trials.jsonl").open("a") as file:
        file.write('no json\n{"event": "epoch", "trial": "9999"}\n{"event": "ended", "trial": "00')
    assert main(["report", str(folder.path)]) == 0
    assert "3 of its lines cannot be read" in page_at(folder.path / "report.html").words


def test_sweeps_stand_side_by_side_at_the_budget_of_the_shortest(sweep_folder, tmp_path):
    long, short = sweep_folder("long"), sweep_folder("short")
    for number in range(4):
        long.search(number, [0.1, 0.2, 0.3, 0.4 + 0.1 * number])
    short.search(0, [0.1, 0.2, 0.3, 0.35])
    short.search(1, [0.1, 0.2, 0.3, 0.45])
    page = write_report([long.path, short.path], tmp_path / "both.html")
    found = page_at(page)
    cells = re.findall(r"best after (\S+) of training", found.words)
    assert cells == ["1:20"]  # two trials of four epochs of ten seconds
    assert "50.0%" in found.words  # the long one after as many trials, and not its 70 %
    assert {"Best so far against the budget", "Learning curves"} <= set(found.figures)
    assert found.words.count("Learning curves") == 2
    assert all(f"{name}: simclr on digits" in found.texts for name in ("long", "short"))


@text_alone
def test_a_trial_that_measured_nothing_counts_among_those_of_the_equal_budget(sweep_folder, tmp_path):
    """The first of three trials diverged in its first epoch: 10 + 40 + 40 s, as long as the other sweep's search."""
    lost, other = sweep_folder("lost"), sweep_folder("other")
    lost.search(0, [0.1], "diverged", "loss is nan")
    for number in (1, 2):
        lost.search(number, [0.1, 0.2, 0.3, 0.4])
        other.search(number, [0.1, 0.2, 0.3, 0.5])
    other.search(3, [0.1], "stopped", "no gain")
    lines = {row.record.name: row.trials_then for row in ranked([read_sweep(lost.path), read_sweep(other.path)])}
    assert lines == {"lost": 3, "other": 3}
    write_report([lost.path, other.path], tmp_path / "both.html")


@text_alone
def test_sweeps_of_different_data_are_said_not_to_compare(sweep_folder: Callable[..., Any], tmp_path: Path) -> None:
    one, other = sweep_folder("one"), sweep_folder("other", "data.train_limit=512")
    page = write_report([one.path, other.path], tmp_path / "both.html")
    assert "Not measured alike: data.train_limit: 0 in one, 512 in other" in page_at(page).words


@text_alone
def test_winners_scored_on_other_images_get_no_difference(sweep_folder, tmp_path):
    """Keys of images are their numbers, so those held out of two datasets may have the same."""
    others = ("data.name=fashion-mnist", "data.holdout_rate=0.4", "data.train_limit=512")
    folders = sweep_folder("one"), sweep_folder("third"), *(sweep_folder(other, other) for other in others)
    for place, folder in enumerate(folders):
        folder.search(0, [0.1, 0.2, 0.3, 0.4])
        for seed in (1, 2, 3):
            folder.confirm("0000", seed, (0.9, 0.7, 0.5, 0.5, 0.5)[place] + 0.001 * seed * seed * (place + 1))
    for each in folders[2:]:
        rows = ranked([read_sweep(folder.path) for folder in (*folders[:2], each)])
        verdicts = {row.record.name: row.to_best and row.to_best.verdict for row in rows}
        assert verdicts == {"one": None, "third": "beyond noise", each.path.name: "scored on other images"}
    words = page_at(write_report([folder.path for folder in folders[:3]], tmp_path / "all.html")).words
    assert "points, scored on other images" not in words
    assert "points, beyond noise" in words


def test_sweeps_of_different_objectives_are_refused_and_named(sweep_folder, capsys):
    one, other = sweep_folder("one"), sweep_folder("other", "evaluation.objective=effective_rank")
    assert main(["report", str(one.path), str(other.path)]) == 2
    error = capsys.readouterr().err
    assert "different objectives" in error
    assert f"{one.path}: holdout_knn" in error
    assert f"{other.path}: effective_rank" in error


def test_axes_mark_whole_epochs_and_numbers_of_a_surface_are_plain_for_the_page_to_save(filled):
    record = read_sweep(filled.path)
    curves, dots = learning_curves(record), slices(record)
    axes = curves.figure["layout"]["xaxis"]
    assert (axes["dtick"], axes["exponentformat"]) == (1, "none")
    assert dots.figure["layout"]["coloraxis"]["colorbar"]["dtick"] == 1
    drawn = contour(read_sweep(filled.path))
    lines = drawn.figure["data"][0]["z"]  # arrays of bytes would be left out of the CSV that the page saves
    known = [value for line in lines for value in line if value is not None]
    assert 0.5 < sum(known) / len(known) < 0.7  # trials have 0.5 to 0.64


def test_trials_of_equal_length_have_no_scale_of_epochs(sweep_folder: Callable[..., Any]) -> None:
    folder = sweep_folder()
    for number in range(3):
        folder.search(number, [0.4, 0.5])
    dots = slices(read_sweep(folder.path))
    assert "coloraxis" not in dots.figure["layout"]
    assert "stopped early" not in dots.note


@text_alone
def test_a_search_of_milliseconds_saved_no_share_of_time(sweep_folder: Callable[..., Any]) -> None:
    folder = sweep_folder()
    folder.search(0, [0.3], "stopped", "no gain", seconds=0.01)
    page = Path(write_report([folder.path])).read_text(encoding="utf-8")
    assert "saved by early stopping" not in page.partition("<script")[0]


@pytest.mark.parametrize("program", ["/venv/bin/ebclab", "/lib/python/ebclab/__main__.py"])
def test_the_sweeps_own_command_is_one_that_can_be_given_again(sweep_folder: Callable[..., Any], program: str) -> None:
    folder = sweep_folder()
    folder.log.append("resumed", environment={"command": [program, "sweep", "simclr", "--name", "a b"]})
    assert commands(read_sweep(folder.path))["This sweep"] == "ebclab sweep simclr --name 'a b'"


def test_the_references_of_a_comparison_are_those_of_its_sweeps(filled, tmp_path):
    seeds = (1, 2, 3)
    SettingsTest("0007", seeds, {"knn": SeedScores.of(Measurements.of(seeds, (0.6,) * 3, [right(120)] * 3), 3)}).write(
        filled.log
    )
    inside = tmp_path / "comparison" / "sweeps" / "simclr"
    shutil.copytree(filled.path, inside)
    key = Protocol(filled.plan.config, 0, "knn").key(PIXELS)
    References((Reference(PIXELS, key, 0, 60 / IMAGES, right(60)),)).write(tmp_path / "comparison" / "references.json")
    assert [each.name for each in read_sweep(inside).references] == []  # not the folder of a comparison
    (tmp_path / "comparison" / "comparison.yaml").touch()
    (found,) = read_sweep(inside).references
    assert (found.name, found.value.mean) == (PIXELS, pytest.approx(0.3))


@text_alone
@pytest.mark.parametrize(
    ("pixels", "said"),
    [
        (None, "Whether anything was learnt is not known: this sweep did not measure raw pixels and the untrained"),
        (60, "On the test images the winner is above raw pixels and the untrained encoder, beyond noise."),
        (
            119,
            "the winner is not above raw pixels and the untrained encoder beyond noise: by kNN, it is within noise of",
        ),
        (
            123,
            "by kNN, it is within noise of raw pixels, -1.5 points (",
        ),
        (
            180,
            "the winner is not above raw pixels and the untrained encoder beyond noise: by kNN, it is below raw pixels",
        ),
    ],
)
def test_a_report_says_first_whether_anything_was_learnt(filled, pixels, said):
    """The winner is right about 120 of 200 test images, the untrained encoder about 50."""
    seeds, folder = (1, 2, 3), SweepFolder(filled.path)
    SettingsTest("0007", seeds, {"knn": SeedScores.of(Measurements.of(seeds, (0.6,) * 3, [right(120)] * 3), 3)}).write(
        filled.log
    )
    if pixels is not None:
        protocol = Protocol(filled.plan.config, 0, "knn")
        rows = [(PIXELS, 0, pixels), *((UNTRAINED, seed, 50) for seed in seeds)]
        made = [Reference(name, protocol.key(name), seed, n / IMAGES, right(n)) for name, seed, n in rows]
        References(tuple(made)).write(folder.references)
    page = write_report([filled.path])
    text = Path(page).read_text()
    assert said in text
    assert text.index(said) < text.index("Winner: trial 0007")
    assert ("Was anything learnt?" in text) == (pixels is not None)
    assert ("The intervals of the differences hold together." in text) == (pixels is not None)
    found = json.loads(Path(page).with_suffix(".json").read_text())[0]["references"]
    assert [(each["name"], each["mean"]) for each in found] == (
        [] if pixels is None else [(PIXELS, pytest.approx(pixels / IMAGES)), (UNTRAINED, pytest.approx(0.25))]
    )


@pytest.fixture
def sweep(sweep_folder: Callable[..., Any], bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A sweep's folder in the bucket s3://bucket."""
    monkeypatch.chdir(tmp_path)
    folder = sweep_folder()
    folder.search(0, [0.5, 0.6, 0.7, 0.8])
    return Path(folder.path)


def test_a_page_is_written_directly_into_a_bucket(sweep, tmp_path, capsys):
    assert main(["report", f"s3://bucket/{sweep.name}", "--to", "s3://bucket/one.html"]) == 0
    assert "report: s3://bucket/one.html" in capsys.readouterr().out
    assert {path.name for path in sweep.parent.glob("one.*")} == {"one.html", "one.csv", "one.json"}
    assert not list(tmp_path.glob("s3:*"))
    assert not list((tmp_path / "copies").glob("*/user"))
    for wrong, said in (("s3://bucket", "s3://bucket/report.html"), ("s3://bucket/one.txt", "s3://bucket/one.txt;")):
        assert main(["report", f"s3://bucket/{sweep.name}", "--to", wrong]) == 2
        assert said in " ".join(capsys.readouterr().err.split())


def test_a_sweep_in_a_store_is_named_by_its_address_and_was_last_heard_of_when_its_log_was_written_there(sweep):
    told = commands(read_sweep(f"s3://bucket/{sweep.name}"))
    settings = f"s3://bucket/{sweep.name}/trials/0000/config.yaml"
    assert told["The best trial so far"] == f"ebclab pretrain simclr --config {settings} --seed 0"
    os.utime(sweep / "trials.jsonl", (1_000_000_000, 1_000_000_000))
    assert read_sweep(f"s3://bucket/{sweep.name}").read_at == datetime.fromtimestamp(1_000_000_000, UTC)


def test_gpu_hours_are_trial_hours_times_the_share_of_a_gpu(filled):
    cost = Cost.of(read_sweep(filled.path), price=7.2)
    assert cost.search_hours == pytest.approx((8 * 40 + 10 + 20 + 20 + 20) / 3600)
    assert cost.confirm_hours == pytest.approx(9 * 40 / 3600)
    assert cost.money == pytest.approx((390 + 360) / 3600 * 0.5 * 7.2)


def test_the_pareto_line_holds_exactly_the_points_that_no_other_beats() -> None:
    source = random.Random(0)
    points = [(float(source.randrange(20)), float(source.randrange(20))) for _ in range(60)]
    slow = {(x, y) for x, y in points if not any((a <= x and b >= y) and (a, b) != (x, y) for a, b in points)}
    assert pareto(points) == sorted(slow)


def test_gpu_hours_of_a_sweep_that_was_resumed_with_other_gpus_are_those_of_each_launch(sweep_folder):
    """All hours were charged at the newest share: 100 s of two GPUs and 50 s of a quarter as 150 s of a quarter."""
    folder = sweep_folder()
    trial = {"kind": "search", "point": {}, "settings": {}, "seed": 0, "epochs": 4}
    folder.log.append("resumed", concurrent=1, gpus_per_trial=2.0)
    folder.log.append("trial", trial="0000", number=0, **trial)
    folder.log.append("epoch", trial="0000", epoch=1, objective=0.5, seconds=60.0, metrics={})
    folder.log.append("ended", trial="0000", state="interrupted", reason="asked", seconds=100.0)
    folder.log.append("resumed", concurrent=1, gpus_per_trial=0.25)
    folder.log.append("epoch", trial="0000", epoch=2, objective=0.6, seconds=130.0, metrics={})
    folder.log.append("ended", trial="0000", state="finished", reason="", seconds=150.0)
    record = read_sweep(folder.path)
    cost = Cost.of(record, price=3.0)
    assert cost.gpu_hours == pytest.approx((100 * 2 + 50 * 0.25) / 3600)
    assert cost.money == pytest.approx(3 * cost.gpu_hours)
    folder.log.append("resumed", concurrent=1, gpus_per_trial=0.0)
    later = Cost.of(read_sweep(folder.path), price=3.0)
    assert (later.gpu_hours, later.used_gpus) == (cost.gpu_hours, True)
    plot = objective_against_time(record)
    (text,) = [text for trace in plot.figure["data"] if trace["mode"] == "markers" for text in trace["text"]]
    assert text == f"0000, {130 * (212.5 / 150) / 3600:.3g} GPU-hours"


def test_trials_are_compared_at_the_last_epoch_that_half_of_them_reached(sweep_folder: Callable[..., Any]) -> None:
    folder = sweep_folder()
    for number, epochs in enumerate((4, 3, 3, 1, 1)):
        folder.search(number, [0.1 * epoch + number for epoch in range(epochs)])
    folder.search(5, [0.9] * 3, point={"method.temperature": "hot"})  # no place in the space
    found = footing(folder.plan.space, read_sweep(folder.path).search)
    assert (found.epoch, [trial.id for trial in found.trials]) == (3, ["0000", "0001", "0002"])
    assert found.values == pytest.approx((0.2, 1.2, 2.2))


@pytest.mark.parametrize("lengths", [(5,), (4, 2), (4, 3, 1, 1), (4, 3, 2, 1), (3, 3, 2, 1, 1, 1), (4, 4, 4, 1, 1)])
def test_exactly_half_of_the_trials_are_enough_to_be_compared(sweep_folder, lengths):
    folder = sweep_folder()
    for number, epochs in enumerate(lengths):
        folder.search(number, [0.5] * epochs)
    found = footing(folder.plan.space, read_sweep(folder.path).search)
    reached = {epoch: sum(length >= epoch for length in lengths) for epoch in range(1, max(lengths) + 1)}
    assert found.epoch == max(epoch for epoch, count in reached.items() if count >= len(lengths) / 2)
    assert len(found.trials) == reached[found.epoch]


def test_the_only_setting_that_matters_gets_nearly_all_importance(sweep_folder: Callable[..., Any]) -> None:
    folder = sweep_folder()
    for number in range(40):
        folder.search(number, [0.0])
    trials = read_sweep(folder.path).search
    for trial in trials:
        trial.curve[1] = Epoch(trial.point["method.temperature"], 1.0)
    shares = importance(folder.plan.space, footing(folder.plan.space, trials))
    assert sum(shares.values()) == pytest.approx(1)
    assert shares["method.temperature"] > 0.9


def _measured(number: int, point: dict[str, Any], score: float) -> Trial:
    """Return a trial with a score after its only epoch."""
    return Trial(f"{number:04}", "search", number, point, point, 0, 1, curve={1: Epoch(score, 1.0)})


@pytest.mark.parametrize("kind", ["uniform", "loguniform"])
def test_off_beside_a_range_counts_among_what_matters(kind: str) -> None:
    space = parse_space({"parameters": {"x": {kind: [0.1, 0.9], "also": 0}, "y": {"uniform": [0, 1]}}}, "s")
    draws = [suggest(space, "random", seed=0, number=n, trials=[], default=None) for n in range(40)]
    trials = [_measured(n, point, float(point["x"] == 0)) for n, point in enumerate(draws)]
    assert importance(space, footing(space, trials))["x"] > 0.9
    assert plot_axis(space.by_name["x"]) == {"type": "linear"}  # a log scale has no place for 0


@pytest.mark.parametrize(("low", "ticks"), [(1e-4, 1), (1e-3, 1), (0.02, "D2")])
def test_a_log_axis_of_less_than_two_decades_has_ticks_between_them(low: float, ticks: object) -> None:
    space = parse_space({"parameters": {"x": {"loguniform": [low, 0.1]}}}, "s")
    assert plot_axis(space.by_name["x"])["dtick"] == ticks


@pytest.mark.parametrize(
    ("range_of_x", "is_low"),
    [
        ({"loguniform": [0.0001, 1]}, lambda x: x < 0.01),
        ({"int": [1, 1024], "log": True}, lambda x: x < 32),
        ({"int": [1, 10]}, lambda x: x <= 5),
        ({"quantised": [0, 0.9, 0.1]}, lambda x: x < 0.45),
        ({"choice": [10, 20, 30, 1000]}, lambda x: x < 25),
    ],
)
def test_settings_that_move_the_score_alike_over_draws_share_alike(range_of_x, is_low):
    space = parse_space({"parameters": {"x": range_of_x, "y": {"uniform": [0, 1]}}}, "s")
    draws = [suggest(space, "random", seed=0, number=n, trials=[], default=None) for n in range(100)]
    scores = [float(is_low(point["x"])) + (point["y"] < 0.5) for point in draws]
    trials = [_measured(n, point, score) for n, (point, score) in enumerate(zip(draws, scores, strict=True))]
    assert importance(space, footing(space, trials))["x"] == pytest.approx(0.5, abs=0.1)  # both halve the draws


def test_too_few_or_equal_trials_have_no_importance(sweep_folder: Callable[..., Any]) -> None:
    folder = sweep_folder()
    for number in range(LEAST_TRIALS + 1):
        folder.search(number, [0.5])
    trials = read_sweep(folder.path).search
    assert importance(folder.plan.space, footing(folder.plan.space, trials)) == {}
    for trial in trials:
        trial.curve[1] = Epoch(trial.number / 10, 1.0)
    assert importance(folder.plan.space, footing(folder.plan.space, trials[: LEAST_TRIALS - 1])) == {}


def test_many_trials_are_thinned_evenly_and_long_curves_keep_both_ends(sweep_folder: Callable[..., Any]) -> None:
    folder = sweep_folder()
    for number in range(MOST_TRIALS * 2):
        folder.search(number, [0.5])
    thin = footing(folder.plan.space, read_sweep(folder.path).search)
    assert [trial.number for trial in thin.trials] == list(range(0, MOST_TRIALS * 2, 2))
    points = thinned(range(997), 50)
    assert (len(points), points[0], points[-1]) == (50, 0, 996)
    assert thinned(range(5), 50) == [*range(5)]


def test_text_in_a_plot_is_no_markup() -> None:
    assert as_text("<b>&</b>") == "&lt;b&gt;&amp;&lt;/b&gt;"


def test_optuna_reads_the_trials_of_a_sweep_from_its_journal(sweep_folder: Callable[..., Any], tmp_path: Path) -> None:
    folder = sweep_folder("first")
    folder.search(0, [0.5, 0.6])
    folder.search(1, [0.4], "stopped", "below the median")
    folder.search(2, [], "failed", "out of memory")
    folder.search(3, [0.7], "running")
    left_out = write_journal([folder.path], tmp_path / "journal.log")
    assert left_out == ["first: 1 of 4 trials were left out"]
    storage = optuna.storages.JournalStorage(JournalFileBackend(str(tmp_path / "journal.log")))
    (study,) = optuna.get_all_study_names(storage)
    trials = optuna.load_study(study_name=study, storage=storage).trials
    assert [trial.state.name for trial in trials] == ["COMPLETE", "PRUNED", "FAIL"]
    assert [trial.intermediate_values for trial in trials] == [{1: 0.5, 2: 0.6}, {1: 0.4}, {}]
    assert [trial.value for trial in trials] == [0.6, 0.4, None]
    assert [trial.params for trial in trials] == [folder.log.trials[f"{number:04d}"].point for number in range(3)]
    assert trials[2].user_attrs["reason"] == "out of memory"
    with pytest.raises(RunError, match=r"--optuna: cannot be written, got .*no such.*; choose another file"):
        write_journal([folder.path], tmp_path / "no such" / "journal.log")


FILES = ("report.html", "report.csv", "report.json")


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize(
    "has_old", [True, pytest.param(False, marks=pytest.mark.slow)], ids=["over an old page", "the first page"]
)
def test_a_killed_report_leaves_whole_files(
    tmp_path: Path, sweep_folder: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, loss: Loss, has_old: bool
) -> None:
    sweep = sweep_folder()
    sweep.search(0, [0.1, 0.5])
    sweep.search(1, [0.2, 0.6])
    page: list[str] = []
    record = output.read_sweep(sweep.path)  # once: reading and drawing take long, and write no file
    monkeypatch.setattr(output, "read_sweep", lambda folder: record)
    monkeypatch.setattr("ebclab.reports.place.as_page", lambda *_: page[0])
    monkeypatch.setattr(output, "sweeps_document", lambda *_: None)

    def report(folder: Path, text: str) -> None:
        page[:] = [text * 1000]
        write_report([sweep.path], folder / FILES[0])

    def before(folder: Path) -> None:
        if has_old:
            report(folder, "old")

    def is_whole(folder: Path) -> None:
        present = {name for name in FILES if (folder / name).exists()}
        assert present == set(FILES) or not has_old
        texts = {name: (folder / name).read_text() for name in present}
        assert texts.get(FILES[0], "new" * 1000) in ("old" * 1000, "new" * 1000)
        assert all(text.endswith("\n") for name, text in texts.items() if name != FILES[0])
        assert isinstance(json.loads(texts.get(FILES[2], "[]")), list)

    seen = []
    for folder in killed_everywhere(tmp_path, before, lambda folder: report(folder, "new"), loss):
        is_whole(folder)
        seen.append((folder / FILES[0]).exists() and (folder / FILES[0]).read_text().startswith("new"))
        report(folder, "new")
        is_whole(folder)
        assert {path.name for path in folder.glob("[!.]*")} == set(FILES)
    assert seen == sorted(seen)
    assert True in seen
    assert seen.count(False) > 10

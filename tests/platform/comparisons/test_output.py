"""The page, the table and the JSON of a comparison: the same numbers, escaped, and no network."""

import csv
import json
from collections.abc import Callable
from dataclasses import replace
from itertools import chain
from typing import Any

import pytest
from made_up_comparison import MadeUp, request_for, right

from ebclab.comparisons import document
from ebclab.comparisons.document import (
    as_mapping,
    comparison_document,
    facts,
    tables,
    what_intervals_say,
    what_it_does_not_show,
    what_was_tuned,
    write_findings,
)
from ebclab.comparisons.findings import ComparisonFindings, read_findings
from ebclab.comparisons.plan import PlanVersion, make_comparison
from ebclab.comparisons.plots import (
    _style,
    default_and_tuned,
    learning,
    plots,
    profile,
    score_by_batch_size,
    tuning_curves,
    what_matters,
)
from ebclab.document.document import Plot, Table
from ebclab.document.html import in_script
from ebclab.document.text import as_markdown
from ebclab.runs.references import Protocol, References
from ebclab.storage.reading import read_json
from ebclab.sweeps.log import SweepLog
from energy_contrast.catalog import METHODS

Make = Callable[..., MadeUp]


def figure(drawn: Plot | None) -> dict[str, Any]:
    """Return the figure of a plot, which has data."""
    return drawn.figure


def draws_of(found: ComparisonFindings) -> Plot | None:
    return tuning_curves(found, by_seconds=False)


@pytest.fixture
def _without_what_takes_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages have neither plots nor what simulations say of power."""
    monkeypatch.setattr(document, "plots", lambda found: [])
    monkeypatch.setattr(document, "measured_power", lambda found: ())


text_alone = pytest.mark.usefixtures("_without_what_takes_time")


@pytest.fixture
def comparison(made_up: Make) -> MadeUp:
    """Three methods on two batch sizes, of which one is better."""
    asked = {"batch_sizes": (32, 64), "target": 60.0, "practice_seconds": 4.0, "questions": ("dcl@32,simclr@64",)}
    request = request_for("simclr", "dcl", "dhel", **asked)
    return made_up(request, {"dcl": {"tuned_runs": (180, 182, 181)}, "dhel": {"draws": (None, 0.6, 0.55)}})


def test_the_files_say_the_same(comparison: MadeUp) -> None:
    folder, found = comparison.folder, comparison.findings()
    write_findings(folder, found)
    saved = read_json(folder.result)
    assert as_mapping(found, folder.read_versions()) == as_mapping(comparison.findings(), folder.read_versions())
    assert saved["plan"] == comparison.plan.digest
    for text in (folder.page.read_text(), folder.table.read_text()):
        assert comparison.plan.digest in text
        for line in saved["answer"]:
            assert line in text
    gap = next(each for each in saved["differences"] if each["family"] == "tuned" and each["one"]["method"] == "dcl")
    assert f"{100 * gap['mean']:+.1f} points" in folder.table.read_text()


def test_the_tables_cover_every_method_and_task(comparison: MadeUp) -> None:
    by_title = {table.title: table for table in chain(*tables(comparison.findings()))}
    assert list(by_title) == [
        "Default and tuned",
        "Differences between methods",
        "Asked beforehand",
        "Tuned as in practice, for equal seconds",
        "Over all tasks",
        "Expected best after n draws",
        "Time to a score",
        "What was tuned",
    ]
    assert len(by_title["Default and tuned"].rows) == 6
    assert len(by_title["Differences between methods"].rows) == 6
    assert by_title["Default and tuned"].rows[2][:2] == ("batch size 32", "dhel")
    assert by_title["Default and tuned"].rows[2][5] == "3, 1 lost"
    for table in by_title.values():
        assert {len(row) for row in table.rows} == {len(table.columns)}


def test_accuracies_are_drawn_with_every_interval_and_curves_in_plain_numbers_which_the_page_saves_as_csv(comparison):
    found = comparison.findings()
    left, right = figure(default_and_tuned(found))["layout"]["xaxis"]["range"]
    intervals = [value for each in found.searches for value in (each.accuracy("default"), each.accuracy()) if value]
    first = min(min(value.mean, value.low or 1.0) for value in intervals)
    last = max(max(value.mean, value.high or 0.0) for value in intervals)
    assert 0 <= left <= first < last <= right <= 1
    assert last - first > 0.8 * (right - left)
    for drawn in (profile(found), learning(found, by_seconds=False)):
        for trace in json.loads(in_script(figure(drawn)["data"])):
            assert trace["x"] == sorted(trace["x"])
            assert len(trace["x"]) == len(trace["y"])
            assert all(0 <= share <= 1 for share in trace["y"])


def test_an_interval_that_ends_at_nothing_is_drawn_to_its_end(made_up: Make) -> None:
    """Of two seeds one is lost: the interval is cut at 0 and at 1."""
    lost = {"simclr": {"tuned_runs": (150, None)}}
    found = made_up(request_for("simclr", "dcl", seeds=2, batch_sizes=(32, 64)), lost).findings()
    interval = found.searches[0].accuracy()
    assert (interval.mean, interval.low, interval.high) == (0.375, 0.0, 1.0)
    tuned = next(trace for trace in figure(default_and_tuned(found))["data"] if trace["name"] == "tuned")
    simclr = next(trace for trace in figure(score_by_batch_size(found))["data"] if trace["name"] == "simclr")
    for bars in (tuned["error_x"], simclr["error_y"]):
        assert (bars["array"][0], bars["arrayminus"][0]) == (0.625, 0.375)


def test_a_band_that_begins_at_nothing_does_not_press_the_tuning_curves_together(made_up: Make) -> None:
    """Two of eight draws diverged: the band begins at 0, where no median is."""
    draws = (None, None, 0.70, 0.71, 0.72, 0.73, 0.74, 0.75)
    found = made_up(request_for("simclr", "dcl", trials=8), {"simclr": {"draws": draws, "default": 0.72}}).findings()
    curve = found.searches[0].curve
    assert (curve.low[0], curve.median[0], curve.median[-1]) == (0.0, 0.71, 0.75)
    other = found.searches[1]
    lines = [*curve.median, *other.curve.median, 0.72, 0.5]
    for by_seconds in (False, True):
        low, high = figure(tuning_curves(found, by_seconds=by_seconds))["layout"]["yaxis"]["range"]
        assert low < min(lines) <= max(lines) < high
        assert max(lines) - min(lines) > 0.6 * (high - low)


def test_scores_that_are_close_have_ticks_that_differ_and_few_draws_whole_numbers(made_up: Make) -> None:
    """Whole per cents between 82 and 84.5 read 82, 83, 83, 84, 84."""
    close = {"tuned_runs": (164, 165, 166), "default_runs": (164, 164, 164)}
    found = made_up(request_for("simclr", "dcl", batch_sizes=(32, 64)), {"simclr": close, "dcl": close}).findings()
    by_runs, by_batch, by_draws = map(figure, (profile(found), score_by_batch_size(found), draws_of(found)))
    axes = (by_runs["layout"]["xaxis"], by_batch["layout"]["yaxis"], by_draws["layout"]["yaxis"])
    assert [axis["tickformat"] for axis in axes] == [".1%"] * 3
    assert by_draws["layout"]["xaxis"]["dtick"] == 1
    assert {trace["mode"] for trace in by_draws["data"] if trace.get("fill")} == {"lines"}  # bands have no marks


def test_notes_say_what_dotted_lines_are_and_count_one_task_as_one(made_up: Make) -> None:
    found = made_up(request_for("simclr", "dcl", batch_sizes=(32,))).findings()
    drawn = {by_seconds: tuning_curves(found, by_seconds=by_seconds) for by_seconds in (False, True)}
    for by_seconds, made in drawn.items():
        dotted = [trace for trace in figure(made)["data"] if trace["line"].get("dash") == "dot"]
        assert bool(dotted) == ("Dotted: the default settings" in made.note) == (not by_seconds)
    assert (runs := profile(found)) is not None
    assert runs.note.startswith("Over 1 task and 3 seeds,")


def test_every_method_stands_in_the_legend_once_even_where_its_first_search_is_missing(made_up: Make) -> None:
    comparison = made_up(request_for("simclr", "dcl", batch_sizes=(32, 64)))
    found = comparison.findings()
    left = tuple(each for each in found.sweeps if each.planned.name != "dcl-digits-b32")
    fewer = replace(found, sweeps=left)
    for drawn in (draws_of(fewer), learning(fewer, by_seconds=False)):
        assert [trace["name"] for trace in figure(drawn)["data"] if trace.get("showlegend")] == ["simclr", "dcl"]


def test_no_two_of_many_methods_look_alike(comparison: MadeUp) -> None:
    found, names = comparison.findings(), tuple(METHODS)
    assert len(names) > 7
    plan = replace(found.plan, request=replace(found.request, methods=names))
    many = replace(found, plan=plan)
    assert len({_style(many, name) for name in names}) == len(names)


def test_names_of_images_are_no_markup_in_plots(made_up: Make) -> None:
    found = made_up(request_for("simclr", "dcl", datasets=("digits", "folder:/sets/big<i>birds"))).findings()
    drawn = json.dumps([[each.figure["layout"], each.figure["data"]] for each in plots(found)], default=str)
    assert "big&lt;i&gt;birds" in drawn
    assert "big<i>birds" not in drawn


@text_alone
def test_differences_outside_the_method_are_listed(made_up: Make) -> None:
    request = request_for("simclr", "ebclr", may_differ=("views.normalisation", "encoder"))
    text = as_markdown(comparison_document(made_up(request).findings(), ()))
    assert "| encoder.batch_norm | simclr 'global', ebclr 'none' |" in text
    assert "| optimizer.learning_rate | simclr 0.006, ebclr 0.003 |" in text


@text_alone
def test_growth_after_numbers_is_said(comparison: MadeUp) -> None:
    versions = (PlanVersion("old", "2030-01-01"), PlanVersion("new", "2030-01-02", ("trials: 3 to 5",)))
    found = comparison.findings()
    text = as_markdown(comparison_document(found, versions))
    assert "The plan grew when there were numbers already: 2030-01-02: trials: 3 to 5 (plan new)" in text
    assert "of comparison.yaml, which grew from old, written before any number" in text
    assert "of comparison.yaml, which was written before any number" in as_markdown(comparison_document(found, ()))


@text_alone
def test_what_is_missing_is_named(made_up: Make) -> None:
    """A search of which nothing is there; and one of five draws, three of them over and the best confirmed already."""
    comparison = made_up(request_for("simclr", "dcl"))
    found = comparison.findings()
    text = as_markdown(comparison_document(replace(found, sweeps=found.sweeps[:1]), ()))
    assert "Not complete: not begun: dcl-digits-b64" in text
    assert "Nothing can be compared yet" in text
    assert text.index("## More numbers") < text.index("### Over all tasks")
    grown = read_findings(comparison.folder, make_comparison(request_for("simclr", "dcl", trials=5)))
    assert len(grown.gaps_of("tuned")) == 1
    line = "Not complete: simclr-digits-b64: 4 of 6 trials of the search are over; another draw may be chosen"
    assert line in as_markdown(comparison_document(grown, ()))
    more = read_findings(comparison.folder, make_comparison(request_for("simclr", "dcl", seeds=5)))
    text = as_markdown(comparison_document(more, ()))
    assert "Nothing can be compared yet: fewer than two methods have been measured with all seeds" in text
    assert "Not complete: simclr-digits-b64: runs with 3 of 5 other seeds are over" in text
    assert "Not complete" not in as_markdown(comparison_document(found, ()))


def test_shares_that_too_few_trials_leave_unknown_are_said_to_be(made_up: Make) -> None:
    table = what_was_tuned(made_up(request_for("simclr", "dcl")).findings())
    assert {row[-1] for row in table.rows} == {"-"}
    assert "not known of fewer than 8 trials" in table.note


def test_shares_of_settings_are_said_to_be_scaled(made_up: Make) -> None:
    """They are 1 in sum where the scores are noise and no setting explains any of it."""
    noise = {"draws": (0.50, 0.52, 0.49, 0.51, 0.53, 0.50, 0.48, 0.52, 0.51, 0.49)}
    found = made_up(request_for("simclr", "dcl", trials=10), {"simclr": noise, "dcl": noise}).findings()
    for each in found.searches:
        assert sum((each.importance or {}).values()) == pytest.approx(1.0)
    drawn = what_matters(found)
    assert "scaled to 100 % in sum" in drawn.note
    assert "scaled to 100 % in sum" in what_was_tuned(found).note


def test_references_are_rows_of_the_tables_and_lines_in_the_plots(made_up: Make) -> None:
    request = request_for("simclr", "ebclr", batch_sizes=(32, 64), may_differ=("views.normalisation", "encoder"))
    comparison = made_up(request)
    comparison.refer(pixels=190, untrained=90)
    found = comparison.findings()
    by_title = {table.title: table for table in chain(*tables(found))}
    assert list(by_title)[:2] == ["Was anything learnt?", "Default and tuned"]
    learnt = by_title["Was anything learnt?"].rows
    assert len(learnt) == 8  # two methods, two batch sizes, tuned and default
    assert [(row[2], row[4], row[6]) for row in learnt[:2]] == [
        ("tuned", "below, beyond noise", "above, beyond noise"),
        ("default", "below, beyond noise", "above, beyond noise"),
    ]
    rows = [row for row in by_title["Default and tuned"].rows if "raw" in str(row[1]) or "untrained" in str(row[1])]
    assert [row[1] for row in rows[:2]] == ["raw pixels", "untrained encoder"]
    assert [str(row[2])[:4] for row in rows] == ["95.0", "45.0"] * 2
    layout = figure(default_and_tuned(found))["layout"]
    lines = sorted({(round(line["x0"], 9), line["line"]["dash"]) for line in layout["shapes"]})
    assert lines == [(0.45, "dot"), (0.95, "dash")]
    assert layout["xaxis"]["range"][0] < 0.45
    named = [
        (each["name"], {round(value, 9) for value in each["y"]})
        for each in figure(score_by_batch_size(found))["data"]
        if each["name"].startswith(("raw", "unt"))
    ]
    assert named == [("raw pixels", {0.95}), ("untrained encoder", {0.45})]


def test_references_of_other_encoders_say_whose_they_are(made_up: Make) -> None:
    """The untrained encoder of EBCLR has another score than that of SimCLR; raw pixels are those of both."""
    request = request_for("simclr", "ebclr", may_differ=("views.normalisation", "encoder"))
    comparison = made_up(request)
    comparison.refer(pixels=150, untrained=90)
    kept = References.read(comparison.folder.references)
    ebclr = next(each for each in comparison.plan.sweeps if each.method == "ebclr").plan.config
    key = Protocol(ebclr, 0, "knn").key("untrained encoder")
    other = [replace(each, value=0.5, answers=right(100)) if each.key == key else each for each in kept.references]
    References(tuple(other)).write(comparison.folder.references)
    table = next(table for table in chain(*tables(comparison.findings())) if table.title == "Default and tuned")
    references = ["raw pixels", "untrained encoder of simclr", "untrained encoder of ebclr"]
    assert [row[1] for row in table.rows][2:] == references


@text_alone
def test_the_results_have_the_accuracies_while_default_settings_alone_are_measured(made_up: Make) -> None:
    comparison = made_up(request_for("simclr", "dcl"))
    comparison.refer(pixels=100, untrained=90)
    found = comparison.findings()
    early = replace(found, sweeps=tuple(replace(each, tuned=None) for each in found.sweeps))
    sections = {each.title: each for each in comparison_document(early, ()).sections}
    titles = [block.title for block in sections["Results"].blocks if isinstance(block, Table)]
    assert titles == ["Was anything learnt?", "Default and tuned"]


def test_seconds_of_runs_that_shared_a_gpu_are_said_to_be_no_measure(made_up: Make) -> None:
    comparison = made_up(request_for("simclr", "dcl", target=60.0))
    log = comparison.folder.sweep(comparison.plan.sweeps[0].name).log
    whole = log.read_bytes()
    launches: list[tuple[dict[str, Any], str]] = [
        ({"gpus_per_trial": 0.16, "concurrent": 6}, "Up to 6 runs shared a GPU"),
        ({"gpus_per_trial": 0.1, "concurrent": 24}, "Up to 10 runs shared a GPU"),
        ({"gpus_per_trial": 0.1, "concurrent": 2, "searches": 3}, "Up to 6 runs shared a GPU"),
        ({"gpus_per_trial": 0.16, "concurrent": 1}, ""),
        ({"gpus_per_trial": 1, "concurrent": 4}, ""),
        ({"gpus_per_trial": 0.0, "concurrent": 4}, ""),
        ({}, ""),
    ]
    for launch, said in launches:
        log.write_bytes(whole)
        for event, more in (("started", launch), ("resumed", {})):
            SweepLog(log).append(event, **more)
        found = comparison.findings()
        by_title = {each.title: each.note for each in chain(*tables(found), plots(found))}
        with_seconds = ("Time to a score", "What tuning is worth, by seconds", "Learning, by seconds")
        texts = [*(by_title[title] for title in with_seconds), "\n".join(what_it_does_not_show(found))]
        assert ["shared a GPU" in text and said in text for text in texts] == [bool(said)] * len(texts), launch
        assert "shared a GPU" not in by_title["Learning, by epochs"], launch


@pytest.mark.parametrize(
    ("schedules", "said"),
    [
        (("cosine", "cosine"), " The learning rate falls towards each run's own end."),
        (("cosine", "constant"), " The learning rate falls towards each run's own end, except of dcl."),
        (("constant", "constant"), ""),
    ],
)
def test_a_constant_learning_rate_is_not_said_to_fall(made_up: Make, schedules: tuple[str, str], said: str) -> None:
    own = tuple(f"{name}:optimizer.schedule={each}" for name, each in zip(("simclr", "dcl"), schedules, strict=True))
    drawn = learning(made_up(request_for("simclr", "dcl", assignments=own)).findings(), by_seconds=False)
    assert drawn.note == f"Means over the seeds of the tuned settings.{said}"


@text_alone
def test_the_page_says_by_what_it_was_made_and_names_the_gpu_that_trials_ran_on(comparison):
    environment = {"command": ["/bin/ebclab", "compare", "simclr"], "commit": "abc-dirty", "torch": "2.0"}
    found = comparison.findings()
    assert facts(found)["command"] == "not written down"
    made = [replace(each, environment=environment, machines=("Z80",)) for each in found.sweeps]
    text = as_markdown(comparison_document(replace(found, sweeps=tuple(made)), ()))
    for each in ("ebclab compare simclr", "abc-dirty", "torch 2.0", "Z80"):
        assert text.count(each) == 1
    planned = comparison.plan.sweeps[0]
    own = {"device": "cpu", "processor": "Z80", "machine": "x86_64"}
    SweepLog(comparison.folder.sweep(planned.name).log).append("resumed", environment=own)
    assert facts(comparison.findings())["machine"] == "Z80, x86_64"
    run = comparison.folder.sweep(planned.name).trials / "0000"
    run.mkdir()
    (run / "environment.json").write_text(json.dumps(own | {"device": "NVIDIA H200"}), encoding="utf-8")
    assert facts(comparison.findings())["machine"] == "NVIDIA H200, Z80, x86_64"


def test_accuracies_and_tables_are_files_for_other_programs(made_up: Make) -> None:
    """Of 200 images, tuned runs are right about 151 and default ones about 140 on average, raw pixels about 60."""
    comparison = made_up(request_for("simclr", "dcl"))
    comparison.refer(pixels=60)
    found = comparison.findings()
    written = write_findings(comparison.folder, found)
    assert sorted(written) == [f"comparison.{suffix}" for suffix in ("csv", "html", "json", "md", "tex")]
    rows = list(csv.DictReader((comparison.folder.path / "comparison.csv").read_text(encoding="utf-8").splitlines()))
    shown = {(row["method"], row["settings"]): float(row["accuracy"]) for row in rows}
    expected = {("raw pixels", ""): 60 / 200}
    expected |= {(name, s): n / 200 for name in ("simclr", "dcl") for s, n in (("tuned", 151), ("default", 140))}
    assert shown == pytest.approx(expected)
    assert {(row["dataset"], row["batch size"]) for row in rows} == {("digits", "64")}
    assert all(float(row["low"]) < float(row["accuracy"]) < float(row["high"]) for row in rows if row["settings"])
    latex = (comparison.folder.path / "comparison.tex").read_text(encoding="utf-8")
    assert latex.count("begin{tabular}") == sum(map(len, tables(found)))


def test_only_intervals_that_are_there_are_counted(made_up: Make) -> None:
    found = made_up(request_for("simclr", "dcl")).findings()
    assert "hold together: between tuned methods (1), between default settings (1), of" in what_intervals_say(found)
    one = replace(found, sweeps=found.sweeps[:1])
    assert "hold together: of tuned over default settings (1). In" in what_intervals_say(one)
    assert "hold together" not in what_intervals_say(replace(found, sweeps=()))

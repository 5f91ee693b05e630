"""Pages and tables of runs: what they say of runs of every kind, and every way to ask for them wrongly."""

import csv
import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
from pages import Page
from rich.cells import cell_len
from run_files import summary_of

import ebclab
from ebclab.cli import main
from ebclab.config import compose, to_yaml
from ebclab.document.document import Table
from ebclab.document.text import print_blocks
from ebclab.reports.report import document_of
from ebclab.reports.runs.document import MOST_POINTS, curves, look
from ebclab.reports.runs.facts import differing, event_in_words, facts, num_apart, open_runs, side_by_side
from ebclab.runs.folder import RunFolder
from ebclab.runs.record import open_run
from ebclab.runs.summary import BestScore, Throughput

HOSTILE = "<img src=x onerror=alert(1)>"
HEALTH = {"event": "health", "action": "lower_step", "reason": "energies drift", "acted": True, "step_scale": 0.5}


def a_run(path: Path, *overrides: str, method: str = "simclr", epochs: int = 2, finished: bool = False) -> RunFolder:
    """A run of four steps an epoch that logged steps 1, 2, 4 and so on, and scored its epochs 0.5, 0.6 and so on."""
    path.mkdir(parents=True)
    run = RunFolder.at(path)
    run.config_path.write_text(to_yaml(compose(method, overrides=[f"training.epochs={epochs}", *overrides])))
    run.metrics.append("event", 0, event="started", ranks=1, num_steps=4 * epochs)
    for step in (1, *range(2, 4 * epochs + 1, 2)):
        shared = {"epoch": (step - 1) // 4, "seconds": 10.0 * step, "learning_rate": 0.1}
        run.metrics.append("train", step, **shared, loss=4 - 0.1 * step, images_per_second=100.0)
        if step % 4 == 0:
            run.metrics.append("epoch", step, epoch=step // 4, seconds=10.0 * step, holdout_knn=0.4 + 0.1 * step / 4)
    environment = {"processor": "abacus", "cores": 1, "machine": "wood", "device": "cpu", "threads": 1, "torch": "9.9"}
    (path / "environment.json").write_text(json.dumps(environment))
    if finished:
        known = {"method": method, "epochs": epochs, "steps": 4 * epochs, "train_images": 1024, "seconds": 3725.0}
        known |= {"scores": {"holdout_knn": 0.6}, "best": BestScore("holdout_knn", 0.6, 2, 8)}
        summary_of(**known, images_per_second=Throughput(1234.0, 0.0)).write(run.result)
    return run


def page_of(*runs: Path, to: Path | None = None) -> tuple[str, dict[str, Any]]:
    """The text of a page, and its figures by their titles."""
    found = Page(Path(ebclab.report(*runs, to=to)).read_text(encoding="utf-8"))
    return found.words, found.figures


def test_facts_of_a_finished_run(tmp_path: Path) -> None:
    told = facts(open_run(a_run(tmp_path / "one", finished=True).path))
    averaged = facts(open_run(a_run(tmp_path / "two", "training.average_weights=0.999").path))
    assert (told["weights"], averaged["weights"]) == ("", "averaged over steps, decay 0.999")
    assert told["state"] == "finished 2026-11-20 12:34 UTC"
    assert (told["epochs"], told["steps"], told["data"]) == ("2 of 2", "8", "digits, 1,024 images")
    assert told["held-out kNN"] == "60.0% (best 60.0% after 2 epochs)"
    assert (told["images a second"], told["time"]) == ("1,234", "1:02:05")
    assert (told["machine"], told["versions"]) == ("abacus, 1 core, wood, 1 thread a process", "torch 9.9")


@pytest.mark.parametrize(
    ("end", "said"),
    [
        (None, "unfinished, broken off after step 8"),
        ({"event": "stopped"}, "unfinished, stopped at step 8"),
        ({"event": "failed", "reason": "step 8: loss = nan"}, "unfinished, failed at step 8: loss = nan"),
    ],
)
def test_how_an_unfinished_run_ended(tmp_path: Path, end: dict[str, str] | None, said: str) -> None:
    run = a_run(tmp_path / "one", epochs=2)
    if end:
        run.metrics.append("event", 8, **end)
    assert facts(open_run(run.path))["state"] == said


def test_settings_that_differ_are_told_once_and_those_of_one_method_counted(tmp_path: Path) -> None:
    one = open_run(a_run(tmp_path / "one", "method.temperature=0.2", "seed=1").path)
    two = open_run(a_run(tmp_path / "two", "method.temperature=0.3", "seed=2").path)
    other = open_run(a_run(tmp_path / "three", "method.temperature=0.2", method="dcl").path)
    assert differing([one, two]) == {"method.temperature": ["0.2", "0.3"]}  # the seed is a fact
    assert differing([one]) == {}
    assert num_apart([one, two]) == 0
    own = {key for key in one.settings if key not in other.settings} ^ {
        k for k in other.settings if k not in one.settings
    }
    assert num_apart([one, other]) == len(own) > 0


def test_a_table_fits_the_terminal_and_says_everything(tmp_path, monkeypatch, capsys):
    names = ["one", "another-run-with-quite-a-long-name", "three", "four"]
    runs = [a_run(tmp_path / name, f"method.temperature=0.{n}", finished=n == 1) for n, name in enumerate(names, 1)]
    runs[2].metrics.append("event", 6, **HEALTH)
    monkeypatch.setenv("COLUMNS", "80")
    print_blocks(side_by_side([open_run(run.path) for run in runs], 80))
    said = capsys.readouterr().out
    assert max(map(cell_len, said.splitlines())) <= 80
    for word in ("one", "another-run-with", "three", "four", "method.temperature", "1:02:05", "abacus", "1,234"):
        assert word in said
    assert "health, step 6: lowered the sampler's step: energies drift" in said
    monkeypatch.setenv("COLUMNS", "30")
    print_blocks(side_by_side([open_run(runs[1].path)], 30))
    assert max(map(cell_len, capsys.readouterr().out.splitlines())) <= 30


def test_a_page_draws_a_curve_for_every_run_and_number_that_was_logged(tmp_path: Path) -> None:
    one, two = a_run(tmp_path / "one"), a_run(tmp_path / "two", epochs=4)
    two.metrics.append("train", 16, epoch=3, seconds=1.0, loss=1.0, ess=0.5)
    two.metrics.append("event", 6, **HEALTH)
    text, figures = page_of(one.path, two.path, to=tmp_path / "page.html")
    assert list(figures) == [
        "loss",
        "held-out kNN",
        "effective sample size (share of K)",
        "learning rate",
        "images a second",
    ]
    loss, knn, ess, *_ = figures.values()
    assert [trace["mode"] for trace in loss["data"]] == ["lines+markers", "lines+markers", "markers"]
    assert loss["data"][0]["x"] == [0.25, 0.5, 1, 1.5, 2]  # steps 1, 2, 4, 6 and 8 of four an epoch
    mark = loss["data"][2]
    assert (mark["x"], mark["y"]) == ([1.5], [4 - 0.6])
    assert [trace["meta"] for trace in knn["data"]] == [0, 1]
    assert [trace["meta"] for trace in ess["data"]] == [1]
    assert "None but those above." in text
    rows = list(csv.DictReader((tmp_path / "page.csv").read_text().splitlines()))
    assert next(row["loss"] for row in rows if row["run"] == "one" and row["table"] == "metrics") == "3.9"
    assert json.loads((tmp_path / "page.json").read_text())[1]["events"][-1]["reason"] == "energies drift"


def test_numbers_that_are_none_are_gaps_and_a_number_without_points_is_no_curve(tmp_path: Path) -> None:
    run = a_run(tmp_path / "one", epochs=1)
    run.metrics.append("epoch", 8, epoch=2, seconds=1.0, holdout_knn=math.nan)
    text, figures = page_of(run.path)
    knn = figures["held-out kNN"]
    assert knn["data"][0]["y"] == [0.5, None]
    assert "nan" in text  # the newest score, as it is
    assert json.loads((run.path / "report.json").read_text())[0]["scores"]["holdout_knn"] == [0.5, "nan"]


def test_a_run_of_one_epoch_has_whole_ticks_and_words_in_the_singular(tmp_path: Path) -> None:
    run = a_run(tmp_path / "one", epochs=1)
    text, figures = page_of(run.path)
    assert "after 1 epoch)" in text
    for figure in figures.values():
        assert (figure["layout"]["xaxis"]["dtick"], figure["layout"]["xaxis"]["rangemode"]) == (1, "tozero")
    knn = figures["held-out kNN"]
    assert knn["layout"]["yaxis"]["range"] == pytest.approx([0.475, 0.525])  # around the only score, 0.5


def test_the_axis_of_shares_ends_at_all_of_them(tmp_path: Path) -> None:
    run = a_run(tmp_path / "one", epochs=1)
    run.metrics.append("epoch", 8, epoch=2, seconds=1.0, holdout_knn=0.99)
    _, figures = page_of(run.path)
    axes = {name: figure["layout"]["yaxis"] for name, figure in figures.items()}
    knn = axes["held-out kNN"]
    assert knn["autorangeoptions"] == {"clipmin": 0.0, "clipmax": 1.0}
    assert not any("autorangeoptions" in axis for axis in axes.values() if not axis["tickformat"])


def test_a_run_that_never_logged_is_a_page_too(tmp_path: Path) -> None:
    run = a_run(tmp_path / "one")
    run.metrics.path.unlink()
    text, figures = page_of(run.path)
    assert figures == {}
    assert "Nothing was logged yet." in text
    assert "unfinished, nothing was logged" in text


def test_names_and_reasons_with_html_are_text_in_plots_too(tmp_path: Path) -> None:
    runs = [a_run(tmp_path / HOSTILE, f"init.weights='{HOSTILE}'"), a_run(tmp_path / "other")]
    for each in runs:
        each.metrics.append("event", 4, **{**HEALTH, "reason": f"</script>{HOSTILE}"})
    text, figures = page_of(*(run.path for run in runs), to=tmp_path / "page.html")
    assert text.count(HOSTILE) >= 4  # the table, the legend, the settings, the events
    assert "&lt;img" in json.dumps(figures)
    assert "<img" not in json.dumps(figures)


def test_equal_events_of_two_runs_stand_under_the_name_of_each(tmp_path: Path) -> None:
    runs = [a_run(tmp_path / name) for name in ("first", "second")]
    for each in runs:
        each.metrics.append("event", 4, **HEALTH)
    text, _ = page_of(*(run.path for run in runs), to=tmp_path / "page.html")
    _, _, told = text.partition("Events")
    assert [told.partition("Machines and time")[0].count(name) for name in ("first", "second")] == [1, 1]


def test_long_curves_are_thinned_to_their_end_and_the_page_says_so(tmp_path: Path) -> None:
    run = a_run(tmp_path / "one")
    with run.metrics.path.open("a") as file:
        for step in range(9, 2009):
            file.write(json.dumps({"kind": "train", "step": step, "epoch": 2, "seconds": 1.0, "loss": 1.0}) + "\n")
    text, figures = page_of(run.path)
    (trace,) = figures["loss"]["data"]
    assert len(trace["x"]) == MOST_POINTS
    assert trace["x"][-1] == 2008 / 4
    assert f"thinned evenly to {MOST_POINTS} points" in text


def test_more_runs_than_colours_look_different() -> None:
    assert len({look(number) for number in range(21)}) == 21


def test_runs_of_one_name_are_told_apart_by_their_folders(tmp_path: Path) -> None:
    places = [a_run(tmp_path / sweep / "trials" / "0003").path for sweep in ("narrow", "wide")]
    assert [record.name for record in open_runs(places)] == ["narrow/trials/0003", "wide/trials/0003"]
    assert [record.name for record in open_runs(places[:1])] == ["0003"]


def test_events_of_other_versions_are_words_too() -> None:
    assert event_in_words({"event": "health", "step": 3, "reason": "old"}) == "health, step 3: old"
    assert event_in_words({"event": "saved_early", "step": 3, "reason": "why"}) == "step 3: saved early; why"
    assert event_in_words({"step": 3, "event": "started"}) == ""


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    a_run(tmp_path / "runs" / "first", finished=True)
    a_run(tmp_path / "runs" / "second")
    for file in ("sweeps/hunt/sweep.yaml", "comparisons/both/comparison.yaml", "reproductions/vem/plan.json"):
        (tmp_path / file).parent.mkdir(parents=True)
        (tmp_path / file).write_text("")
    return tmp_path


@pytest.mark.usefixtures("places")
def test_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["runs", "show", "first", "runs/second"]) == 0
    assert "second" in capsys.readouterr().out
    assert main(["report", "runs/first"]) == 0
    assert Path("runs/first/report.html").is_file()
    assert main(["report", "runs/first", "runs/second"]) == 0
    assert Path("runs.html").is_file()
    assert "beside it: runs.csv, runs.json" in capsys.readouterr().out


@pytest.mark.usefixtures("places")
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["runs", "show", "frst", "secnd"], r"frst: no run .*did you mean first\?.*\n.*did you mean second\?"),
        (["runs", "show", "hunt"], r"hunt: no run of .*; it is a sweep, of which `ebclab report sweeps/hunt` writes a"),
        (["runs", "show", "comparisons/both"], r"it is a comparison, of which `ebclab report comparisons/both` writes"),
        (["report", "runs/frst"], r"runs/frst: no run, sweep or comparison here; did you mean .*first\?"),
        (["report", "runs/first/config.yaml"], r"config.yaml: no run, .*; name the folder around it, .*runs/first\n"),
        (["report", "frst"], r"frst: no run, sweep or comparison here"),
        (["report", "runs"], r"runs: no run, sweep or comparison here; name one of those in it, such as .*runs/first"),
        (["report", "runs/first", "sweeps/hunt"], "runs and sweeps have separate pages, got 1 and 1 of them"),
        (
            ["report", "runs/first", "comparisons/both"],
            "both: a comparison has its own page; `ebclab report .*both` alone",
        ),
        (["report", "reproductions/vem"], "vem: a reproduction has its own page; `ebclab reproduce` writes it"),
        (["report", "runs/first", "--price-per-gpu-hour", "2"], "--price-per-gpu-hour: of sweeps only"),
        (["report", "runs/first", "--optuna", "o.log"], "--optuna: of sweeps only"),
        (["report", "runs/first", "--to", "page.txt"], "--to: not a page, got page.txt; name it page.html"),
        (["report", "runs/first", "--to", "sweeps"], "--to: a folder"),
        (["report", "runs/first", "--to", "nowhere/page.html"], "--to: no such folder"),
        (["report", "runs/first", "--to", "/proc/page.html"], "cannot be written"),
        (["report", "no/where"], "no run, sweep or comparison here; `ebclab runs list`"),
        (["report", "sweeps/hunt", "--watch", "--latex", "t.tex"], "--latex: --watch writes no files, got t.tex;"),
        (
            ["report", "runs/first", "--latex", "s3://b/t.tex"],
            "--latex: a file on this disk, got s3://b/t.tex;",
        ),
        (["report", "runs/first", "--latex", "nowhere/t.tex"], "--latex: no such folder, got nowhere; make it first"),
        (["report", "runs/first", "--latex", "sweeps"], "--latex: a folder, got sweeps; name a file in it"),
        (["report", "runs/first", "--latex", "t.tex"], "--latex: the page has no table with rows, got first"),
        (["report", "runs/first", "runs/second", "--latex", "/proc/t.tex"], "--latex: cannot be written, got /proc/t"),
        (["report", "runs/frst", "--watch"], r"runs/frst: no run, sweep or comparison here; did you mean .*first\?"),
        (["report", "runs/first", "--port", "8000"], "--port: is for --watch, got 8000; leave it out, or add --watch"),
        (["report", "runs/first", "--watch", "--port", "70000"], "--port: must be at least 1, at most 65535, got 70"),
    ],
)
def test_wrong_questions_are_answered_in_a_sentence(words, said, capsys):
    assert main(words) == 2
    error = capsys.readouterr().err
    assert re.search(said, error), error
    assert "Traceback" not in error


@pytest.mark.usefixtures("places")
def test_the_tables_of_a_page_are_written_for_a_paper(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", "runs/first", "runs/second", "--latex", "tables.tex"]) == 0
    assert "tables: tables.tex; it needs booktabs" in capsys.readouterr().out
    text = Path("tables.tex").read_text(encoding="utf-8")
    tables = [
        block for block in document_of("runs/first", "runs/second").blocks() if isinstance(block, Table) and block.rows
    ]
    assert text.count("begin{tabular}") == len(tables) > 0
    monkeypatch.setenv("HOME", str(tmp_path))
    assert main(["report", "runs/first", "runs/second", "--latex", "~/home.tex"]) == 0
    assert (tmp_path / "home.tex").read_text(encoding="utf-8") == text


def test_curves_of_runs_whose_steps_are_unknown_are_by_steps(tmp_path: Path) -> None:
    run = a_run(tmp_path / "one")
    kept = [line for line in run.metrics.path.read_text().splitlines() if "started" not in line]
    run.metrics.path.write_text("\n".join(kept) + "\n")
    drawn = curves([open_run(run.path)])
    assert drawn[0].figure["layout"]["xaxis"]["title"]["text"] == "steps"


@pytest.mark.usefixtures("places")
def test_a_page_without_tables_is_not_written_where_these_are_asked_for() -> None:
    assert main(["report", "runs/first", "--latex", "t.tex"]) == 2
    assert not Path("runs/first/report.html").exists()
    assert not Path("t.tex").exists()

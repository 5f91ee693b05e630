"""``ebclab compare`` as a user sees it: a plan before any number, the same command goes on, mistakes are sentences."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from made_up_comparison import MadeUp, request_for
from PIL import Image
from small_runs import content_of

from ebclab.cli import main
from ebclab.cli.report import _comparison_now
from ebclab.comparisons import compare as compare_module
from ebclab.comparisons.compare import check_searches, compare, plan_of_request, reading_cost, seconds_of_epochs
from ebclab.comparisons.findings import ComparisonFindings, read_findings
from ebclab.comparisons.plan import equal_seconds, make_comparison
from ebclab.config import compose
from ebclab.config.sections import DataConfig
from ebclab.data.holdout import Split
from ebclab.data.sources.load import load_split
from ebclab.errors import ConfigError, TrainingError, UserError
from ebclab.reports.watch import WatchedPage
from ebclab.storage.reading import read_json
from ebclab.sweeps.folder import SweepFolder
from ebclab.sweeps.preflight import reading_seconds
from ebclab.sweeps.resources import Limits
from ebclab.training.setup import load_images

Make = Callable[..., MadeUp]
TINY = ["--recipe", "digits-demo", "--batch-size", "32", "--epochs", "2", "--trials", "2", "--seeds", "2"]
TINY += ["--set", "data.train_limit=160", "--set", "encoder.width=8", "--set", "resources.threads=1"]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to work in."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("EBCLAB_DATA", raising=False)
    return tmp_path


def test_a_mistake_is_a_sentence_and_nothing_is_written(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "simclr", "flatclrr", *TINY, "--margin", "0"]) == 2
    error = capsys.readouterr().err
    assert "no such method, got flatclrr; did you mean flatclr?" in error
    assert "--margin: must be above 0, below 100, got 0" in error
    assert "Traceback" not in error
    assert list(here.iterdir()) == []


def test_a_command_without_what_it_needs_says_what_that_is(made_up, tmp_path, capsys):
    comparison = made_up(request_for("simclr", "dcl"))
    shutil.rmtree(comparison.folder.path / "sweeps")
    place = ["--comparisons", str(tmp_path), "--name"]
    for words, said in (
        ([], "a comparison takes at least two methods, got none"),
        ([*place, "comparsion"], "/comparsion: no comparison here, comparison.yaml is missing; did you mean"),
        (["--page"], "of which comparison, got no --name"),
        ([*place, "comparison", "--page"], "nothing to show yet: no sweep has begun"),
        ([*place, "nothing", "--page"], "no comparison here"),
        ([*place, "comparison", "--page", "--pilot", "2"], "--pilot: is not for --page"),
        ([*place, "comparison", "--page", "--show"], "--show: is not for --page"),
        ([*place, "comparison", "--page", "--at-once", "2"], "--at-once: is not for --page"),
        ([*place, "comparison", "--page", "--concurrent", "2"], "--concurrent: is not for --page"),
        ([*place, "comparison", "--at-once", "0"], "--at-once: must be at least 1, got 0"),
        ([*place, "comparison", "--page", "--margin", "3", "--seeds", "9"], "got another --seeds and --margin"),
        (["dcl", "simclr", *place, "comparison", "--page"], "got another METHOD; leave it out"),
        (["simclr", "dcl", *place, "comparison", "--page"], "nothing to show yet: no sweep has begun"),
    ):
        assert main(["compare", *words]) == 2
        assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "asked", "said"),
    [
        ("full", {}, "the folder holds something that is not a comparison; choose another --name"),
        ("../mine", {}, "name"),
        ("comparison", {"margin": 2.0}, r"margin: 0\.5 there, 2\.0 here"),
    ],
)
def test_a_place_that_is_not_this_comparisons_is_left_alone(made_up, tmp_path, name, asked, said):
    made_up(request_for("simclr", "dcl"))
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "letter.txt").write_text("dear")
    with pytest.raises(UserError, match=said):
        plan_of_request(request_for("simclr", "dcl", **asked), comparisons=tmp_path, name=name)


def test_what_cannot_be_trained_is_said_of_every_method_at_once() -> None:
    asked = request_for("moco", "simclr", "dcl", batch_sizes=(126, 134), assignments=("data.train_limit=140",))
    with pytest.raises(ConfigError) as error:
        check_searches(ComparisonFindings(make_comparison(asked)))
    said = {line.partition(":")[0] for line in error.value.problems}
    assert said == {
        "moco at batch size 126",  # eight groups of batch norm do not divide it
        "moco at batch size 134",  # nor this, and with the held-out images taken away 126 are left to train on
        "simclr at batch size 134",
        "dcl at batch size 134",
    }


def test_images_without_a_test_set_are_refused(here: Path) -> None:
    for number in range(80):
        path = here / "set" / f"{number % 2}" / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((8, 8), number, dtype=np.uint8)).save(path)
    asked = request_for("simclr", "dcl", datasets=("folder:set",), batch_sizes=(16,))
    with pytest.raises(ConfigError, match=r"data\.name: methods are compared on test images, got folder:.*has none"):
        check_searches(ComparisonFindings(make_comparison(asked)))


def test_a_comparison_with_a_failed_search_is_shown_and_ends_with_1(made_up, tmp_path, monkeypatch, capsys):
    def fail(*_: Any, name: str, **__: Any) -> None:
        if "dcl" in name:
            raise TrainingError("no trial measured anything")

    made_up(request_for("simclr", "dcl"))
    monkeypatch.setattr(compare_module, "sweep", fail)
    monkeypatch.setattr(compare_module, "_one_ray", lambda *_: nullcontext())
    monkeypatch.setattr(compare_module, "try_references", lambda *_: None)
    assert main(["compare", "--name", "comparison", "--comparisons", str(tmp_path)]) == 1
    shown = capsys.readouterr()
    assert "not measured: dcl-digits-b64: no trial measured anything" in shown.err
    assert "Differences between methods" in shown.out


def test_a_new_method_is_trained_on_the_images_of_the_others(made_up, tmp_path, monkeypatch):
    made = made_up(request_for("simclr", "dcl"))
    images = load_images(made.plan.sweeps[0].plan.config.data).content
    made.folder.sweep("simclr-digits-b64").read_log().append("started", images=images)
    asked: dict[str, str] = {}
    monkeypatch.setattr(compare_module, "sweep", lambda *_, name, checked, **__: asked.update({name: checked}))
    monkeypatch.setattr(compare_module, "_one_ray", lambda *_: nullcontext())
    monkeypatch.setattr(compare_module, "try_references", lambda *_: None)
    words = ["compare", "simclr", "dcl", "byol", "--name", "comparison", "--comparisons", str(tmp_path)]
    assert main([*words, "--batch-size", "64", "--batch-size", "32"]) == 0
    named = {name for name in asked if not name.startswith("simclr-digits-b64")}
    assert {"byol-digits-b64", "byol-digits-b32"} <= named
    assert {asked[name] for name in named} == {images}


def test_a_cluster_that_is_not_there_is_refused_before_images_are_read(tmp_path, monkeypatch):
    def load(data: DataConfig) -> Split:
        raise AssertionError("images were read")

    monkeypatch.setattr(compare_module, "load_images", load)
    monkeypatch.setenv("RAY_ADDRESS", "nowhere")
    with pytest.raises(UserError, match=r"^resources.address: not an address of a Ray cluster, got nowhere"):
        compare(request_for("simclr", "dcl"), comparisons=tmp_path)
    assert [*tmp_path.iterdir()] == []


def test_growth_on_other_images_is_refused_before_the_plan_is_written(made_up, tmp_path, capsys):
    made = made_up(request_for("simclr", "dcl"))
    ours = load_images(made.plan.sweeps[0].plan.config.data).content
    for name, images in (("simclr-digits-b64", ours), ("dcl-digits-b64", "0123")):  # as if they had begun at once
        made.folder.sweep(name).read_log().append("started", images=images)
    before = content_of(made.folder.path)
    assert main(["compare", "--name", "comparison", "--comparisons", str(tmp_path), "--trials", "9"]) == 2
    said = "/comparison: the images of digits are not those that trials were trained on, got "
    assert capsys.readouterr().err.count(said) == 1
    assert content_of(made.folder.path) == before


def test_methods_whose_images_may_differ_are_each_compared_with_their_own(made_up):
    of_one = ("simclr:data.train_limit=200", "dcl:data.train_limit=300")
    plan = make_comparison(request_for("simclr", "dcl", assignments=of_one, may_differ=("data.train_limit",)))
    made = made_up(request_for("simclr", "dcl"))
    digests = {each.method: load_images(each.plan.config.data).content for each in plan.sweeps}
    assert len({*digests.values()}) == 2
    for method in digests:
        made.folder.sweep(f"{method}-digits-b64").read_log().append("started", images=digests[method])
    found = read_findings(made.folder, plan)
    check_searches(found, "here")
    others = tuple(replace(each, images=digests["dcl"]) for each in found.sweeps)
    with pytest.raises(UserError, match="here: the images of digits are not those that trials were trained on"):
        check_searches(replace(found, sweeps=others), "here")


def test_searches_that_saw_other_images_are_not_compared_even_if_all_have_ended(made_up, tmp_path, monkeypatch, capsys):
    made = made_up(request_for("simclr", "dcl"))
    for method, images in (("simclr", "0123"), ("dcl", "4567")):
        made.folder.sweep(f"{method}-digits-b64").read_log().append("started", images=images)
    for name in ("sweep", "try_references"):
        monkeypatch.setattr(compare_module, name, lambda *_, **__: None)
    monkeypatch.setattr(compare_module, "_is_finished", lambda *_: True)
    assert main(["compare", "--name", "comparison", "--comparisons", str(tmp_path)]) == 2
    said = "dcl-digits-b64 saw other images than simclr-digits-b64, got 4567, expected 0123"
    assert said in capsys.readouterr().err


@pytest.fixture
def quick_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """Costs are measured with a few steps only."""
    monkeypatch.setattr("ebclab.sweeps.preflight._MEASURE_SECONDS", 0.3)


@pytest.mark.usefixtures("quick_look")
def test_a_practice_of_less_than_one_trial_is_refused() -> None:
    asked = request_for("simclr", "dcl", practice_seconds=1e-4, assignments=("data.train_limit=160",))
    with pytest.raises(ConfigError, match="--practice: less than one trial of simclr at batch size 64"):
        check_searches(ComparisonFindings(make_comparison(asked)))


def test_searches_that_end_by_the_clock_are_not_run_at_once(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"--at-once: --practice gives searches equal times.*got 2"):
        compare(request_for("simclr", "dcl", practice_seconds=60.0), comparisons=tmp_path, at_once=2)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("quick_look")
def test_equal_seconds_give_a_slower_method_fewer_epochs_and_stay_when_continued() -> None:
    small = {"may_differ": ("views", "encoder"), "assignments": ("data.train_limit=160",)}
    asked = request_for("simclr", "ebclr", budget="seconds", epochs=40, **small)
    plan = make_comparison(asked)
    epochs = equal_seconds(plan, None, seconds_of_epochs)
    assert epochs["simclr", "digits", 64] == 40
    assert 1 <= epochs["ebclr", "digits", 64] < 20  # ten steps of its chains a step
    settled = make_comparison(asked, epochs)
    assert settled.sweeps[1].plan.config.training.epochs == epochs["ebclr", "digits", 64]
    assert equal_seconds(plan, settled, seconds_of_epochs) == epochs


def test_equal_seconds_are_measured_with_the_gpus_of_a_trial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Limits] = []
    monkeypatch.setattr(compare_module, "_one_ray", lambda _, __, limits: asked.append(limits) or nullcontext())
    monkeypatch.setattr(compare_module, "seconds_of_epochs", lambda plan, _: dict.fromkeys(plan.epochs, 1.0))
    there = ("resources.address=10.0.0.1:6379",)
    request, limits = request_for("simclr", "dcl", budget="seconds", assignments=there), Limits(gpus_per_trial=0.25)
    plan_of_request(request, comparisons=tmp_path, limits=limits)
    assert asked == [limits]


def test_seconds_in_which_a_method_has_no_epoch_are_refused() -> None:
    """Four epochs of SimCLR take 10 s, one of DCL 100 s, one of DHEL 2.5 s."""
    plan = make_comparison(request_for("simclr", "dcl", "dhel", budget="seconds", epochs=4))
    seconds = {("simclr", "digits", 64): 2.5, ("dcl", "digits", 64): 100.0, ("dhel", "digits", 64): 2.5}
    with pytest.raises(ConfigError) as error:
        equal_seconds(plan, None, lambda _: seconds)
    assert error.value.problems == [
        "--budget seconds: less than one epoch of dcl at batch size 64, got 10 s, those of a run of simclr; "
        "one takes 100 s: raise --epochs"
    ]
    seconds["dcl", "digits", 64] = 4.0
    assert equal_seconds(plan, None, lambda _: seconds) == {
        ("simclr", "digits", 64): 4,
        ("dcl", "digits", 64): 2,  # 10 s are two and a half epochs of 4 s
        ("dhel", "digits", 64): 4,
    }


def test_methods_that_join_get_the_seconds_of_the_method_that_was_first_before() -> None:
    """Four epochs of SimCLR take 10 s, and one of DHEL 5 s, whatever comes first, and however many epochs are asked."""
    before = make_comparison(request_for("simclr", "dcl", budget="seconds", epochs=4))
    plan = make_comparison(request_for("dhel", "simclr", "dcl", budget="seconds", epochs=8))
    found = equal_seconds(plan, before, lambda now: {key: 5.0 if key[0] == "dhel" else 2.5 for key in now.epochs})
    assert {method: epochs for (method, _, _), epochs in found.items()} == {"simclr": 4, "dcl": 4, "dhel": 2}


def test_readings_of_the_test_images_and_their_time_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two methods at two batch sizes, tuned and default, three seeds: 24; three untrained encoders, and raw pixels."""
    plan = make_comparison(request_for("simclr", "dcl", batch_sizes=(32, 64)))
    asked = list[int]()

    def two_seconds(config: Any, probe: str, split: Any, num_test: int) -> float:
        asked.append(num_test)
        return 2.0

    monkeypatch.setattr("ebclab.comparisons.compare.reading_seconds", two_seconds)
    assert reading_cost(plan) == (28, 56.0)
    assert asked == [len(load_split("digits", None, "test"))]  # once, since all searches have one encoder
    wider = request_for("simclr", "dcl", assignments=("dcl:encoder.width=8",), may_differ=("encoder",))
    assert reading_cost(make_comparison(wider)) == (19, 38.0)  # 12, six untrained encoders, and the same raw pixels


def test_a_reading_takes_the_time_of_all_features_and_of_all_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A millisecond an image and a microsecond a pair of images, of 1,000 labelled images and 5,000 for the test."""
    now = [0.0]

    def features(encoder: Any, images: Any, *args: Any, **options: Any) -> None:
        now[0] += 1e-3 * len(images)

    def probe(encoder: Any, train: Any, test: Any, *args: Any, **options: Any) -> None:
        now[0] += 1e-3 * (len(train) + len(test)) + 1e-6 * len(train) * len(test)

    monkeypatch.setattr("ebclab.sweeps.preflight.compute_features", features)
    monkeypatch.setattr("ebclab.sweeps.preflight.evaluate_encoder", probe)
    monkeypatch.setattr("ebclab.sweeps.preflight.time", SimpleNamespace(perf_counter=lambda: now[0]))
    config = make_comparison(request_for("simclr", "dcl", assignments=("data.train_limit=1000",))).sweeps[0].plan.config
    assert reading_seconds(config, "knn", load_images(config.data), 5_000) == pytest.approx(6.0 + 5.0)


def test_the_page_of_what_is_there_so_far_trains_nothing(made_up, tmp_path, capsys):
    comparison = made_up(request_for("simclr", "dcl"))
    shutil.rmtree(comparison.folder.sweep("dcl-digits-b64").path)
    assert main(["compare", "--page", "--name", "comparison", "--comparisons", str(tmp_path)]) == 0
    assert "Nothing can be compared yet" in capsys.readouterr().out
    assert "not begun: dcl-digits-b64" in comparison.folder.table.read_text()


def test_a_report_of_a_comparison_is_its_page(made_up, tmp_path, capsys):
    folder = made_up(request_for("simclr", "dcl")).folder
    folder.page.unlink(missing_ok=True)
    assert main(["report", str(folder.path)]) == 0
    assert (
        capsys.readouterr().out
        == f"report: {folder.page}\nbeside it: comparison.md, comparison.json, comparison.csv, comparison.tex\n"
    )
    assert folder.page.is_file()
    assert main(["report", str(folder.path), "--to", str(tmp_path / "page.html")]) == 2
    assert "--to: of runs and sweeps only, got a comparison; leave it out" in capsys.readouterr().err


WORDS = ["compare", "simclr", "dcl", *TINY, "--name", "mine", "--concurrent", "1", "--comparisons"]


@pytest.fixture(scope="module")
def whole(cluster: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a comparison that nobody disturbed."""
    folder = tmp_path_factory.mktemp("whole")
    assert main([*WORDS, str(folder)]) == 0
    return folder / "mine"


@pytest.mark.slow
def test_a_comparison_is_repeated_without_training_and_may_grow(
    whole: Path, cluster: str, capsys: pytest.CaptureFixture[str]
) -> None:
    first = read_json(whole / "comparison.json")
    assert len(first["differences"]) >= 2
    assert [len(each["draws"]) for each in first["methods"]] == [2, 2]
    assert all(len(each["tuned"]["tested"]["knn"]) == 2 for each in first["methods"])
    assert all(set(each["tuned"]["tested"]) == {"knn"} for each in first["methods"])
    assert [each["name"] for each in first["references"]] == ["raw pixels", "untrained encoder"]
    config = compose("simclr", "digits-demo", overrides=["data.train_limit=160"])
    digest = load_images(config.data).content
    assert {SweepFolder.at(path).read_log().images for path in whole.glob("sweeps/*")} == {digest}
    logs = {path: path.read_text() for path in (*whole.glob("sweeps/*/trials.jsonl"), whole / "references.json")}
    assert main([*WORDS, str(whole.parent)]) == 0
    assert "Differences between methods: batch size 32" in capsys.readouterr().out
    assert {path: path.read_text() for path in logs} == logs
    assert read_json(whole / "comparison.json") == first
    grown = whole.parent / "grown"
    shutil.copytree(whole, grown, ignore=shutil.ignore_patterns(".*"))
    words = ["--trials", "3", "--concurrent", "1", "--comparisons", str(whole.parent)]
    assert main(["compare", "--name", "grown", *words]) == 0
    result = read_json(grown / "comparison.json")
    assert [len(each["draws"]) for each in result["methods"]] == [3, 3]
    assert [each["draws"][:2] for each in result["methods"]] == [each["draws"] for each in first["methods"]]
    assert result["plans"][1]["grown"] == ["trials: 2 to 3"]


def _without_times(value: Any) -> Any:
    """Return a result without what depends on the clock."""
    timed = ("seconds", "search_seconds", "plans", "digest", "test_readings")
    if isinstance(value, dict):
        return {key: _without_times(each) for key, each in value.items() if key not in timed}
    return [_without_times(each) for each in value] if isinstance(value, list) else value


@pytest.fixture
def processes() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Processes that a test starts; all of them end with it."""
    started: list[subprocess.Popen[bytes]] = []
    yield started
    for process in started:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)


@pytest.mark.slow
def test_a_comparison_killed_in_its_second_search_ends_in_the_same_numbers_with_its_searches_at_once(
    whole: Path,
    cluster: str,
    tmp_path: Path,
    processes: list[subprocess.Popen[bytes]],
    capsys: pytest.CaptureFixture[str],
) -> None:
    command = [sys.executable, "-m", "ebclab", *WORDS, str(tmp_path)]
    shutil.copytree(whole, tmp_path / "mine", ignore=shutil.ignore_patterns(".*", "dcl-*", "comparison.[jmh]*"))
    assert read_json(tmp_path / "mine" / "sweeps" / "simclr-digits-b32" / "result.json")  # the first of two searches
    log = tmp_path / "mine" / "sweeps" / "dcl-digits-b32" / "trials.jsonl"
    process = subprocess.Popen(
        command,
        env={**os.environ, "RAY_ADDRESS": cluster},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    processes.append(process)
    while process.poll() is None:  # killed among the runs that confirm; in the search itself: test_ray_sweep
        if log.exists() and log.read_text().count('"confirm"') >= 2:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        time.sleep(0.02)
    assert process.returncode == -signal.SIGKILL
    shutil.rmtree(tmp_path / "mine" / "sweeps" / "simclr-digits-b32")  # so that two searches are left
    capsys.readouterr()
    assert main([*WORDS, str(tmp_path), "--at-once", "2"]) == 0
    assert "2 searches, 2 at once" in capsys.readouterr().err
    found = read_json(tmp_path / "mine" / "comparison.json")
    assert _without_times(found) == _without_times(read_json(whole / "comparison.json"))


def test_a_comparison_is_watched_with_its_sweeps(made_up: Make) -> None:
    folder = made_up(request_for("simclr", "dcl")).folder
    page = WatchedPage(lambda: _comparison_now(str(folder.path)), [str(folder.path)])
    version, content = page.newest()
    assert page.newest()[0] == version
    assert b"dcl" in content
    shutil.rmtree(folder.sweep("dcl-digits-b64").path)
    newest, content = page.newest()
    assert newest != version
    assert b"not begun: dcl-digits-b64" in content

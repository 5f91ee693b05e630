"""The table of ``ebclab runs list``: whole where it fits, narrower where it does not, never without method and data."""

import json
import os
from pathlib import Path

import pytest

from ebclab.cli.runs import _fitting_table
from ebclab.config import compose, to_yaml
from ebclab.inventory.listing import Content, Entry

from .conftest import Ebclab

NOW = 1000.0


def entry(name: str, data: str = "digits") -> Entry:
    content = Content("flatclr", data, 2, 2, "holdout_knn", {"holdout_knn": 0.983}, True)
    return Entry(name, "run", f"runs/{name}", "finished", content, 2_600_000, NOW - 30.0)


def test_columns_are_as_wide_as_their_widest_cell_on_the_screen() -> None:
    """Widths with the two spaces after each: 10 + 9 + 8 + 12 + 7 + 10 + 8 + 6 = 70; the first name has four cells."""
    assert _fitting_table([entry("ドア"), entry("abcdefgh")], 70, NOW) == [
        "name      method   data    done        score  state     size    age",
        "ドア      flatclr  digits  2/2 epochs  98.3%  finished  2.6 MB  30 s",
        "abcdefgh  flatclr  digits  2/2 epochs  98.3%  finished  2.6 MB  30 s",
    ]


def test_size_and_age_go_first_and_method_and_data_stay() -> None:
    """Without the size 62 remain, without the age 56."""
    found = {width: _fitting_table([entry("abcdefgh")], width, NOW)[0].split() for width in (69, 62, 61, 56, 30)}
    least = ["name", "method", "data", "done", "score", "state"]
    assert found[69] == found[62] == [*least, "age"]
    assert found[61] == found[56] == found[30] == least


def test_then_names_fold_and_long_places_of_images() -> None:
    """80 cells: 9 of the method, 12 done, 7 score and 10 state leave 42; the name keeps 18, the data get 24."""
    lines = _fitting_table([entry("a-long-name-of-a-run-with-a-date", "parquet:/data/photographs/2026/train")], 80, NOW)
    assert lines[1:] == [
        "a-long-name-of-a  flatclr  parquet:/data/photogra  2/2 epochs  98.3%  finished",
        "-run-with-a-date           phs/2026/train",
    ]


@pytest.fixture
def three_runs(ebclab: Ebclab) -> Ebclab:
    """Unfinished runs with held-out kNN of 0.5, 0.75 and none, of two methods."""
    for name, method, score in (("b", "simclr", 0.5), ("c", "flatclr", 0.75), ("a", "simclr", None)):
        folder = Path("runs", name)
        folder.mkdir(parents=True)
        (folder / "config.yaml").write_text(to_yaml(compose(method)))
        if score is not None:
            checkpoint = folder / "checkpoints" / "last-0000000010"
            checkpoint.mkdir(parents=True)
            manifest = {"facts": {"epochs_done": 1, "scores": {"holdout_knn": score}}}
            (checkpoint / "manifest.json").write_text(json.dumps(manifest))
    return ebclab


@pytest.mark.parametrize(
    ("asked", "names"),
    [
        (["--sort", "knn"], ["c", "b", "a"]),  # the best first, what was not measured last
        (["--sort", "name"], ["a", "b", "c"]),
        (["--sort", "method"], ["c", "a", "b"]),  # flatclr; the others as they were, the newest first
        (["--method", "simclr", "--sort", "score"], ["b", "a"]),
        (["--dataset", "digits", "--state", "unfinished", "--sort", "name"], ["a", "b", "c"]),
        (["--state", "finished"], []),
    ],
)
def test_a_list_is_sorted_and_filtered(three_runs: Ebclab, asked: list[str], names: list[str]) -> None:
    for number, name in enumerate(("c", "b", "a")):
        os.utime(Path("runs", name, "config.yaml"), (number, number))
    assert [each["name"] for each in json.loads(three_runs("runs", "list", "--json", *asked).ok.out)] == names


def test_a_comparison_is_listed_by_each_of_its_methods_and_datasets(three_runs: Ebclab) -> None:
    folder = Path("comparisons", "both")
    folder.mkdir(parents=True)
    tasks = {name: {"task": {"dataset": name}} for name in ("digits", "mnist")}
    plan = {"asked": {"methods": ["byol", "simclr"]}, "sweeps": tasks}
    (folder / "comparison.yaml").write_text(json.dumps(plan))  # JSON is YAML
    for filters, names in (
        (["--method", "simclr"], ["a", "b", "both"]),
        (["--method", "byol"], ["both"]),
        (["--dataset", "mnist"], ["both"]),
        (["--method", "flatclr"], ["c"]),
    ):
        asked = ["runs", "list", "--json", "--sort", "name", *filters]
        assert [each["name"] for each in json.loads(three_runs(*asked).ok.out)] == names
    assert three_runs("runs", "list", "--method", "dcl").refusal.endswith("known: byol, flatclr, simclr\n")
    empty = three_runs("runs", "list", "--method", "flatclr", "--dataset", "mnist").ok.out
    assert "no runs in runs" in empty
    assert empty.endswith("with method flatclr, dataset mnist\n")


def test_json_has_every_number(three_runs: Ebclab) -> None:
    Path("runs/b/config.yaml").write_text("{")
    none, damaged, best = json.loads(three_runs("runs", "list", "--json", "--sort", "name").ok.out)
    told = {key: best[key] for key in ("name", "kind", "method", "data", "done", "of", "state", "value", "scores")}
    run = {"name": "c", "kind": "run", "method": "flatclr", "data": "digits", "state": "unfinished"}
    progress = {"done": 1, "of": compose("flatclr").training.epochs}
    assert told == run | progress | {"value": 0.75, "scores": {"holdout_knn": 0.75}}
    assert (none["value"], none["scores"], damaged["state"]) == (None, {}, "unreadable")
    assert "method" not in damaged


def test_wrong_names_are_answered_together_with_the_nearest_right_ones(three_runs: Ebclab) -> None:
    asked = ["--method", "simclrr", "--dataset", "digit", "--state", "finishd", "--sort", "kn"]
    said = three_runs("runs", "list", *asked).refusal
    for near in ("simclr?", "digits?", "finished?", "knn?"):
        assert f"did you mean {near}" in said

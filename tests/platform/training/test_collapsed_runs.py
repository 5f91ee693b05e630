"""Runs that collapse or learn nothing: they say so in every place, once, and stop if they are told to."""

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from small_runs import Killed, Notes, records_of

import ebclab
from ebclab.card.subject import open_subject
from ebclab.cli.pretrain import report
from ebclab.config import compose
from ebclab.errors import DivergedError
from ebclab.export.run import export_run
from ebclab.reports.runs.facts import facts
from ebclab.runs import checkpoint
from ebclab.training import rank
from ebclab.training.display import Listener
from ebclab.training.pretrain import RunResult
from energy_contrast.catalog import METHODS

TINY = [
    *("data.train_limit=200", "data.holdout_rate=0.3", "training.batch_size=16", "training.log_every=4"),
    *("resources.threads=1", "encoder.width=8", "optimizer.warmup_epochs=0", "optimizer.schedule=constant"),
]  # nine steps an epoch
VICREG = ["method.variance=0", "method.covariance=0", "method.projection_num_layers=1", "encoder.batch_norm=none"]
CASES: dict[str, tuple[str, list[str], set[str]]] = {
    "without norm": (
        "simclr",
        ["encoder.batch_norm=none", "optimizer.learning_rate=10", "training.epochs=4"],
        {"collapsed", "learns nothing"},
    ),
    "only invariance": (
        "vicreg",
        [*VICREG, "optimizer.name=sgd", "optimizer.learning_rate=0.3", "training.epochs=5"],
        {"collapsed", "kNN at chance"},
    ),
    "learning rate 1e6": ("simclr", ["optimizer.learning_rate=1e6", "training.epochs=3"], {"weights grew"}),
    "learning rate 30": ("simsiam", ["optimizer.learning_rate=30", "training.epochs=3"], {"weights grew"}),
    "temperature 1e-30": ("simclr", ["method.temperature=1e-30", "training.epochs=3"], {"learns nothing"}),
    "healthy": ("simclr", ["training.epochs=4"], set()),
}


@pytest.fixture(autouse=True, scope="module")
def _from_the_first_step() -> Iterator[None]:
    """Judge runs of a few steps too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rank, "FIRST_STEP", 0)
        yield


def run(runs: Path, case: str, *overrides: str, name: str = "run", display: Listener | None = None) -> RunResult:
    method, settings, _ = CASES[case]
    config = compose(method, recipe="digits-demo", overrides=[*TINY, *settings, *overrides])
    return ebclab.pretrain(config, runs=runs, name=name, display=display or Listener())


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[RunResult, list[str]]]:
    """Return a function that trains a case once, and returns its result and what it said."""

    @cache
    def train(case: str) -> tuple[RunResult, list[str]]:
        notes = Notes()
        return run(tmp_path_factory.mktemp("runs"), case, display=notes), notes.lines

    return train


def health_of(path: Path) -> list[dict[str, Any]]:
    return records_of(path, "event", "health")


def plain(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"kind": "event", "event": "health", **event} for event in events]


@pytest.mark.parametrize("case", CASES)
def test_a_run_that_learns_nothing_says_so_and_a_healthy_one_nothing(ran: Callable[..., Any], case: str) -> None:
    result, lines = ran(case)
    told = result.result["health"]
    found = {event["finding"] for event in told}
    assert found >= CASES[case][2]
    assert METHODS[CASES[case][0]].has_negatives or "learns nothing" not in found
    assert bool(told) == bool(CASES[case][2])
    assert health_of(result.path) == plain(told)
    shown = [line for line in lines if line.startswith("health, step ")]
    assert len(shown) == len(told)
    assert all(event["reason"] in line for event, line in zip(told, shown, strict=True))


def test_it_is_told_where_the_run_is_shown(ran, tmp_path, capsys):
    result, _ = ran("temperature 1e-30")
    text = "learns nothing: InfoNCE "
    assert text in facts(ebclab.open_run(result.path))["health"]
    report(result)
    assert f"health: {text}" in capsys.readouterr().out
    assert text in open_subject(str(result.path)).origin
    folder, notes = export_run(result.path, tmp_path / "export")
    assert any(note.startswith(text) for note in notes)
    assert text in (folder / "README.md").read_text(encoding="utf-8")


def test_stop_ends_the_run_with_exit_code_1_and_keeps_its_checkpoint(tmp_path: Path) -> None:
    for _ in range(2):  # the same command does not go on
        with pytest.raises(DivergedError, match=r"step 9: weights grew: .* times that of their start") as caught:
            run(tmp_path, "learning rate 1e6", "training.health=stop", "training.checkpoint_every=3")
    assert caught.value.exit_code == 1
    (event,) = health_of(tmp_path / "run")
    assert event["action"] == "stop"
    assert checkpoint.newest_step(tmp_path / "run" / "checkpoints") == 9
    assert not (tmp_path / "run" / "result.json").exists()


def test_none_looks_for_nothing_and_looking_changes_no_bit(ran: Callable[..., Any], tmp_path: Path) -> None:
    off, (on, _) = run(tmp_path, "learning rate 1e6", "training.health=none"), ran("learning rate 1e6")
    assert (off.result["health"], bool(on.result["health"])) == ([], True)
    assert off.result["metrics"]["loss"] == on.result["metrics"]["loss"]


@pytest.mark.parametrize("every", [1, 4])
def test_a_run_that_was_killed_tells_the_same_and_nothing_twice(ran, tmp_path, every):
    settings = f"training.checkpoint_every={every}"  # 4: it is killed before its first checkpoint, after an event
    straight, _ = ran("without norm")
    assert straight.result["health"][0]["step"] < 30
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, "without norm", settings, name="parts", display=Killed(32))
    parts = run(tmp_path, "without norm", settings, name="parts")
    assert parts.result["health"] == straight.result["health"]
    assert health_of(parts.path) == plain(straight.result["health"])

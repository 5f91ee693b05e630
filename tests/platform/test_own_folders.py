"""Folders and logs of our own within a folder that somebody gave away: what is behind a link there is left alone."""

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from ebclab.card.card import CardFolder
from ebclab.comparisons.plan import ComparisonFolder
from ebclab.errors import RunError
from ebclab.reproductions.plan import ReproductionFolder
from ebclab.runs.folder import RunFolder
from ebclab.runs.metrics_log import MetricsLog
from ebclab.storage import atomic
from ebclab.storage.own_folder import own_folder
from ebclab.storage.signal_file import LocalSignal
from ebclab.sweeps.folder import SweepFolder
from ebclab.sweeps.log import SweepLog

USES: dict[str, tuple[str, Callable[[Path], object]]] = {
    "checkpoints of a run": ("checkpoints", lambda path: RunFolder(path).checkpoints),
    "Ray's files of a run": (".ray", lambda path: RunFolder(path).ray),
    "events of a run": ("tensorboard", lambda path: RunFolder(path).own("tensorboard")),
    "events of a trial": ("tensorboard/0001", lambda path: SweepFolder(path).own("tensorboard", "0001")),
    "runs of a sweep": ("trials", lambda path: SweepFolder(path).trials),
    "a run of a sweep": ("trials", lambda path: SweepFolder(path).run("0001")),
    "the run of a trial": ("trials/0001", lambda path: SweepFolder(path).run("0001")),
    "sweeps of a comparison": ("sweeps", lambda path: ComparisonFolder(path).inside),
    "a sweep of a comparison": ("sweeps/a", lambda path: ComparisonFolder(path).sweep("a")),
    "runs of a reproduction": ("runs", lambda path: ReproductionFolder(path).inside),
    "values of a reproduction": ("measured", lambda path: ReproductionFolder(path).write_numbers("a", "", {})),
    "features of a card": ("features", lambda path: CardFolder(path).features),
}


@pytest.mark.parametrize("kind", ["link", "link to nothing", "pipe"])
@pytest.mark.parametrize("case", USES)
def test_a_link_or_a_pipe_in_place_of_a_folder_is_refused(tmp_path: Path, case: str, kind: str) -> None:
    name, use = USES[case]
    path = tmp_path / "given" / name
    path.parent.mkdir(parents=True)
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to(tmp_path / "victim")
    if kind == "link":
        (tmp_path / "victim").mkdir()
    with pytest.raises(RunError, match=rf"given/{name}: a folder of ebclab belongs here, got \w+ .*; delete it, or"):
        use(tmp_path / "given")
    assert not (tmp_path / "victim").exists() or not list((tmp_path / "victim").iterdir())


def test_the_folder_that_the_user_named_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "disk" / "checkpoints").mkdir(parents=True)
    (tmp_path / "runs").symlink_to("disk")
    assert own_folder(tmp_path / "runs", "checkpoints", "missing") == tmp_path / "runs" / "checkpoints" / "missing"


@pytest.mark.parametrize("kind", ["link", "pipe"])
@pytest.mark.parametrize(
    "write",
    [
        lambda path: MetricsLog(path).append("train", 1),
        lambda path: SweepLog(path).append("started"),
        lambda path: LocalSignal(path).write(b"now"),
    ],
)
def test_nothing_is_appended_through_a_link_or_to_a_pipe(tmp_path, kind, write):
    path, victim = tmp_path / "log", tmp_path / "victim"
    (tmp_path / "log.new").symlink_to(victim)
    if kind == "link":
        path.symlink_to(victim)
    else:
        os.mkfifo(path)
    with suppress(RunError):  # a signal replaces it
        write(path)
    assert not victim.exists()


def test_a_removed_link_leaves_what_is_behind_it(tmp_path: Path) -> None:
    (tmp_path / "victim").mkdir()
    (tmp_path / "victim" / "thesis.txt").touch()
    for name in ("last-0000000001", ".last-0000000001.01234567"):
        (tmp_path / name).symlink_to("victim")
    atomic.remove_folder(tmp_path / "last-0000000001")
    atomic.remove_leftovers(tmp_path, "*-*")
    assert [path.name for path in tmp_path.rglob("*")] == ["victim", "thesis.txt"]

"""Each file and folder of a run, a sweep or an export is a link or a pipe: nothing behind it changes, nothing hangs.

Whoever gives a folder away decides what is in it. The product of all places and verbs is in the second tier.
"""

import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from .conftest import TINY, Ebclab

OLD = Path(__file__).parents[2] / "folders" / "made_by_0.1"
SECONDS = 120  # for all verbs at one place, which take three
KINDS = ("link", "link to nothing", "pipe")
TRAIN = ("pretrain", "flatclr", "--name", "done", "--extend", "3", *TINY)
VERBS = {
    "train": TRAIN,
    "evaluate": ("evaluate", "runs/done", "--only", "classification"),  # the other groups are written the same way
    "list": ("runs", "list"),
    "show": ("runs", "show", "runs/done"),
    "report": ("report", "runs/done", "--to", "page.html"),
    "export": ("export", "runs/done", "--to", "exported"),
    "clean": ("runs", "clean", "--yes"),
    "delete": ("runs", "delete", "done", "--yes"),
}
LAST = "checkpoints/last-0000000004"
OF_A_RUN = (
    *("config.yaml", "environment.json", "metrics.jsonl", "answers.json", "result.json", "evaluation.json"),
    *(".lock", ".stop", ".save", ".ray", "tensorboard", "checkpoints", LAST, "card"),
    *(f"{LAST}/manifest.json", f"{LAST}/state.pt", "loggers.json"),
)
OF_A_SWEEP = ("trials.jsonl", "sweep.yaml", "result.json", "best.yaml", ".lock", "trials", "trials/0001", ".ray")
FOLDERS = {"tensorboard", "checkpoints", "last-0000000004", "card", ".ray", "trials", "0001"}


@pytest.fixture(autouse=True)
def _in_time() -> Iterator[None]:
    def stop(*_: object) -> None:
        raise TimeoutError("it hangs")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(SECONDS)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def replace(path: Path, kind: str, victim: Path) -> None:
    """Put a pipe, or a link to a victim with a copy of what was there, in the place of a file or folder."""
    is_folder = path.name in FOLDERS
    if kind == "link":
        if path.exists():
            shutil.copytree(path, victim) if is_folder else shutil.copyfile(path, victim)
        else:
            victim.mkdir() if is_folder else victim.write_text("{}")
        if is_folder:
            for each in ("last-0000000002", ".last-0000000002.01234567", "."):
                (victim / each).mkdir(exist_ok=True)
                (victim / each / "thesis.txt").write_text("years of work")
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
    path.parent.mkdir(exist_ok=True)
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to(victim)


def content(path: Path) -> dict[str, bytes]:
    files = [path, *path.rglob("*")] if os.path.lexists(path) else []
    return {str(each): each.read_bytes() if each.is_file() else b"" for each in files}


def holds(ebclab: Ebclab, folder: Path, name: str, kind: str, verbs: list[tuple[str, ...]]) -> None:
    """Require of every verb that it ends with a code of ours and leaves the victim as it was."""
    victim, whole = Path("victim").absolute(), Path("whole").absolute()
    folder.rename(whole)
    for verb in verbs:
        shutil.copytree(whole, folder)
        replace(folder / name, kind, victim)
        before = content(victim)
        outcome = ebclab(*verb)
        assert outcome.code in (0, 1, 2), (verb, outcome)
        assert "Traceback" not in outcome.err, (verb, outcome)
        assert content(victim) == before, (verb, outcome)
        for each in (folder, victim, Path("exported")):
            shutil.rmtree(each, ignore_errors=True)
        victim.unlink(missing_ok=True)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", [".lock", "checkpoints", "tensorboard", "metrics.jsonl", LAST])
def test_training_and_deleting_leave_alone_what_is_behind_a_link(ebclab, finished, name, kind):
    holds(ebclab, finished, name, kind, [VERBS["train"], VERBS["clean"], VERBS["delete"]])


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", OF_A_RUN)
def test_no_verb_changes_what_is_behind_a_link_in_a_run(ebclab: Ebclab, finished: Path, name: str, kind: str) -> None:
    holds(ebclab, finished, name, kind, list(VERBS.values()))


@pytest.mark.parametrize("kind", ["link", pytest.param("link to nothing", marks=pytest.mark.slow), "pipe"])
@pytest.mark.parametrize("name", OF_A_SWEEP)
def test_no_verb_changes_what_is_behind_a_link_in_a_sweep(ebclab: Ebclab, name: str, kind: str) -> None:
    sweep = Path(shutil.copytree(OLD / "sweeps" / "sweep", "sweeps/done"))
    verbs = ["runs list", "runs show sweeps/done", "report sweeps/done --to page.html", "runs clean --yes"]
    holds(ebclab, sweep, name, kind, [*map(tuple, map(str.split, verbs)), ("runs", "delete", "done", "--yes")])

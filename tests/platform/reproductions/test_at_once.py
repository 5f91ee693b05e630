"""Several runs of a study train at once, and stop together."""

import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from ebclab.reproductions import reproduce as run_module
from ebclab.reproductions.plan import ReproductionFolder, plan_study
from ebclab.reproductions.reproduce import run_plan
from ebclab.reproductions.study import Study
from ebclab.runs.stop_request import ASKED

WORK = """
import os, signal, sys, time
from pathlib import Path
from ebclab.errors import EbclabError, RunError
from ebclab.runs.jobs import work_at_once
from ebclab.runs.stop_request import StopFlag, stop_on_signals

def work(name):
    if name == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if name == "interrupted":
        raise KeyboardInterrupt
    if name == "refused":
        raise RunError("refused: got a bad folder")
    if name.startswith("slow"):
        flag = StopFlag()
        with stop_on_signals(flag, print):
            Path(f"{name}.pid").write_text(str(os.getpid()))
            while not flag.is_set:
                time.sleep(0.1)
        Path(f"{name}.saved").write_text("")
    return name.upper()

if __name__ == "__main__":
    try:
        for name, result in work_at_once(work, sys.argv[1:], 2):
            print(name, result, flush=True)
    except EbclabError as error:
        print(type(error).__name__, error)
"""


def _started(folder: Path, *names: str) -> subprocess.Popen[str]:
    (folder / "work.py").write_text(WORK)
    return subprocess.Popen(
        [sys.executable, "work.py", *names], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def _wait_for(*files: Path) -> None:
    end = time.monotonic() + 60
    while not all(file.exists() for file in files):
        assert time.monotonic() < end, files
        time.sleep(0.05)


def test_two_runs_at_once_have_the_numbers_of_one_after_the_other_and_none_is_done_again(
    study: Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = plan_study(study, "smoke", assignments=["resources.threads=1"])
    notes: list[str] = []
    together = run_plan(plan, ReproductionFolder(tmp_path / "together"), note=notes.append, at_once=2)
    alone = run_plan(plan, ReproductionFolder(tmp_path / "alone"))
    assert [*together] == [*plan.runs]
    assert {n: replace(o, seconds=0) for n, o in together.items()} == {
        n: replace(o, seconds=0) for n, o in alone.items()
    }
    assert notes[0].startswith(f"{len(plan.runs)} runs, 2 at once")
    assert [note.split(":")[0] for note in notes[1:]] == [f"{k} of {len(plan.runs)} done" for k in (1, 2)]

    started: list[list[str]] = []
    monkeypatch.setattr(run_module, "work_at_once", lambda work, names, _: started.append(names) or [])
    again = run_plan(plan, ReproductionFolder(tmp_path / "together"), at_once=2)
    assert (again, started) == (together, [[]])  # what is finished and measured needs no process
    first, second = plan.runs
    (tmp_path / "together" / "measured" / f"{first}.json").unlink()
    (tmp_path / "together" / "runs" / second / "result.json").unlink()
    with pytest.raises(KeyError):  # nothing was done for them
        run_plan(plan, ReproductionFolder(tmp_path / "together"), at_once=2)
    assert started[1:] == [[first, second]]


@pytest.mark.parametrize(
    ("names", "lines"),
    [
        (["a", "b", "c"], r"(. .\n){3}"),
        (
            ["a", "killed", "b"],
            r"(?=.*a A\n)(?=.*b B\n)(. .\n)*"  # in the order in which they end
            r"killed its process was ended by signal 9 \(Killed\), [^\n]* \(--at-once\); [^\n]*\n(. .\n)*",
        ),
        (["interrupted"], r"interrupted its process ended with code 130; the same command resumes\n"),
        (["refused", "slow"], r"RunError refused: got a bad folder\n"),
    ],
)
def test_results_and_errors_of_processes_arrive(tmp_path: Path, names: list[str], lines: str) -> None:
    command = _started(tmp_path, *names)
    output, errors = command.communicate(timeout=60)
    assert re.fullmatch(lines, output, re.DOTALL), output
    assert "Traceback" not in errors
    assert (tmp_path / "slow.pid").exists() == (tmp_path / "slow.saved").exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_runs_in_progress_save_when_the_command_is_stopped_or_killed(tmp_path: Path, number: int) -> None:
    command = _started(tmp_path, "slow1", "slow2", "slow3")
    _wait_for(tmp_path / "slow1.pid", tmp_path / "slow2.pid")
    command.send_signal(number)
    output, errors = command.communicate(timeout=60)
    assert output.startswith("" if number == signal.SIGKILL else "InterruptedRunError stopped by request")
    assert ASKED not in output  # by each of them
    assert (number == signal.SIGKILL) or errors == f"{ASKED}\n"
    assert {file.name for file in tmp_path.glob("slow*.saved")} == {"slow1.saved", "slow2.saved"}

"""The process of a command ends at once, and loses nothing by it: exit functions, output, threads, the exit code."""

import json
import os
import subprocess
import sys

import pytest

START = "import atexit, sys, threading, time; from ebclab.cli import run_process\n"


def _process(body: str, stdout: int = subprocess.PIPE) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", START + body]
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    return subprocess.run(command, stdout=stdout, stderr=subprocess.PIPE, env=buffered, text=True, check=False)


SLEEPER = "threading.Thread(target=lambda: time.sleep(0.5) or print('done', flush=True)).start()\n"
LIVING = "class Living:\n    def __del__(self): print('taken apart')\nliving = Living()\n"


@pytest.mark.parametrize(
    ("body", "code", "printed"),
    [
        ("run_process(lambda: print('x' * 300_000) or 3)", 3, 300_000 * "x" + "\n"),
        ("atexit.register(print, 'last'); run_process(lambda: print('first') or 0)", 0, "first\nlast\n"),
        (f"{SLEEPER}run_process(lambda: 1)", 1, "done\n"),
        (f"{LIVING}run_process(lambda: 0)", 0, ""),
        (f"{LIVING}sys.exit(0)", 0, "taken apart\n"),  # as any other process ends
    ],
    ids=["output", "exit functions", "threads", "nothing is taken apart", "as ever"],
)
def test_a_process_ends_with_all_that_it_prints_and_with_the_exit_code_of_its_command(body, code, printed):
    done = _process(body)
    assert (done.returncode, done.stdout, done.stderr) == (code, printed, "")


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
def test_a_process_without_an_output_ends_as_any_other(closed: str) -> None:
    program = f"{START}run_process(lambda: 3)"
    done = subprocess.run(["sh", "-c", f'exec "$0" -c "$1" {closed}', sys.executable, program], check=False)
    assert done.returncode == 3


def test_a_profiler_sees_the_end_of_the_command() -> None:
    program = f"{START}import cProfile; cProfile.run('run_process(lambda: 0)')"
    done = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, check=False)
    assert "function calls" in done.stdout


PRINT = {
    "words": "say('x', err=err)",
    "many words": "say('x' * 300_000, err=err)",
    "a table": "console(err=err).print('x')",
    "the progress of a run": "choose_display(sys.stderr if err else sys.stdout).note('x')",
}


UNREAD = f"""{START}
import json, os
from ebclab.terminal import console, say
from ebclab.training.display import choose_display
ended = {{}}
for err in (False, True):
    for name, print_it in {PRINT!r}.items():
        (ours, other), (nobody, unread) = os.pipe(), os.pipe()
        os.close(nobody)
        if not os.fork():
            os.dup2(unread, 2 if err else 1)
            os.dup2(other, 1 if err else 2)
            def command():
                for _ in range(2):
                    exec(print_it)
                print('done', file=sys.stdout if err else sys.stderr)
                return 3
            run_process(command)
        os.close(unread), os.close(other)
        said = os.fdopen(ours).read()
        ended[f'{{name}}, err {{err}}'] = os.waitstatus_to_exitcode(os.wait()[1]), said
print(json.dumps(ended))
"""
"""Forks a process for each way to print and each stream, which nobody reads; says how it ended, by what it said."""


def test_a_command_continues_when_no_one_reads_its_output() -> None:
    done = subprocess.run([sys.executable, "-c", UNREAD], stdout=subprocess.PIPE, text=True, check=True)
    ended = json.loads(done.stdout)
    assert len(ended) == 2 * len(PRINT)
    assert {name: how for name, how in ended.items() if how != [3, "done\n"]} == {}


def test_an_exception_is_a_traceback_and_exit_code_1() -> None:
    done = _process("run_process(lambda: 1 / 0)")
    assert done.returncode == 1
    assert done.stderr.rstrip().endswith("ZeroDivisionError: division by zero")


@pytest.mark.skipif(sys.platform != "linux", reason="/dev/full is Linux's")
def test_output_that_cannot_be_written_is_told() -> None:
    with open("/dev/full", "w") as full:
        done = _process("run_process(lambda: print('x') or 0)", stdout=full.fileno())
    assert done.returncode == 120  # Python's own code for it
    assert "No space left on device" in done.stderr

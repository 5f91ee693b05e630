"""Runs, sweeps and comparisons of somebody else, hostile in one field: commands hold, or say a sentence, no more.

No connection is opened, nothing is imported, started or written elsewhere, in bounded time, memory and output.
``python tests/support/hostile_runs.py FOLDER SEED`` runs one of the cases.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import hostile_runs
import pytest
from hostile_runs import FILES, READ_BY, VALUES, Case, Place, change

CASES = int(os.environ.get("EBCLAB_HOSTILE_CASES", "42"))


@pytest.fixture(scope="module")
def faults(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> dict[int, list[str]]:
    """The faults of all cases of this session, by seed."""
    here = [each for each in request.session.items if each.path == request.path]
    seeds = [str(each.callspec.params["seed"]) for each in here if "faults" in each.fixturenames]  # type: ignore[attr-defined]
    command = [sys.executable, hostile_runs.__file__, str(tmp_path_factory.mktemp("hostile")), *seeds]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    told = map(json.loads, done.stdout.splitlines())
    return {seed: [f"{what}: {each}" for each in wrong] for seed, what, wrong in told}


@pytest.mark.timeout(3_600)
@pytest.mark.parametrize(  # each file once, and more changes of each in the second tier
    "seed", [pytest.param(seed, marks=[pytest.mark.slow] * (seed >= len(READ_BY))) for seed in range(CASES)]
)
def test_a_hostile_field_does_no_harm(seed: int, faults: dict[int, list[str]]) -> None:
    assert faults[seed] == []


def test_cases_differ_and_come_again(tmp_path: Path) -> None:
    def drawn(round_: int) -> list[Case]:
        cases = []
        for seed in range(10 * len(READ_BY)):
            folder = tmp_path / f"{round_}-{seed}"
            for name in READ_BY:
                file = folder / name
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text('{"a": 1, "b": {"c": [2, "x"]}, "digest": "0"}')
            cases.append(change(seed, folder, Place(1, tmp_path)))
        return cases

    cases = drawn(0)
    assert cases == drawn(1)
    assert {case.file for case in cases} == {*READ_BY}
    assert len({case.value for case in cases}) > (len(VALUES) + len(FILES)) // 2


HARM = {
    "connects": ("import socket; socket.create_connection(('127.0.0.1', AT.port))", "the listener heard"),
    "writes": ("open(AT.elsewhere / 'new', 'w').close()", "wrote "),
    "writes unseen": ("import pyarrow; pyarrow.OSFile(str(AT.elsewhere / 'new'), 'wb').close()", "changed what is"),
    "deletes": ("import os; os.remove(AT.elsewhere / 'thesis.txt')", "wrote "),
    "imports": ("import evilmod", "imported evilmod"),
    "starts": ("import subprocess; subprocess.run(['true'])", "subprocess.Popen"),
    "spins": ("while True: pass", "not done in"),
    "grows": ("x = bytearray(300 << 20)", "grew by"),
    "raises": ("raise KeyError('x')", "traceback KeyError"),
    "prints escapes": ("print('\\x1b[2J')", "printed ['\\x1b']"),
    "prints much": ("print('x' * 200_000)", "printed 200,"),
    "says nothing": ("code = 2", "without a sentence"),
}


@pytest.fixture(scope="module")
def harmed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """The faults that are found when a command does harm, by its name."""
    folder = tmp_path_factory.mktemp("harm")
    body = f"""
import hostile_runs, json, sys
from pathlib import Path
hostile_runs.WALL_SECONDS, hostile_runs.MEGABYTES = 60, 200
hostile_runs._make = lambda folder: folder.mkdir()
import ebclab.cli
for name, code in {{name: code for name, (code, _) in {HARM!r}.items()}}.items():
    def change(seed, folder, place):
        scope = {{'AT': place, 'code': 0}}
        ebclab.cli.main = lambda words: exec(code, scope) or scope['code']
        return hostile_runs.Case(seed, '', '', '', (['x'],))
    hostile_runs.change = change
    hostile_runs.SECONDS = 0 if name == 'spins' else 20
    ((_, faults),) = hostile_runs.outcomes(Path({str(folder)!r}) / name.replace(' ', ''), [0])
    print(json.dumps([name, faults]))
"""
    path = os.pathsep.join([str(Path(hostile_runs.__file__).parent), *sys.path])
    there = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run([sys.executable, "-c", body], capture_output=True, text=True, env=there, check=False)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(line) for line in done.stdout.splitlines())


@pytest.mark.parametrize("harm", HARM)
def test_each_harm_would_be_noticed(harm: str, harmed: dict[str, list[str]]) -> None:
    assert any(HARM[harm][1] in fault for fault in harmed[harm]), harmed[harm]

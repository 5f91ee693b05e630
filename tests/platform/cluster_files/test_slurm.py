"""cluster/slurm.sh, with Slurm's commands played: Ray and ebclab know what they are asked."""

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from ray.scripts.scripts import start
from ray.scripts.symmetric_run import curate_and_validate_ray_start_args, symmetric_run

from ebclab.cli.app import parser

pytestmark = pytest.mark.filterwarnings(
    "ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::ResourceWarning"
)

SCRIPT = Path(__file__).parents[3] / "cluster" / "slurm.sh"
ASKED = ["sweep", "simclr", "--recipe", "cifar10-resnet18", "--trials", "64", "--name", "with space"]
PLAYED = {
    "scontrol": "echo first; seq 100000",
    "srun": 'printf "%s\\0" "$@" > ~/asked; [ $RAY = up ] || exit 0; until [ "$1" = -- ]; do shift; done; "${@:2}"',
    "ray": 'echo "$@" >> ~/made; mkdir -p ~/.ray; umask 022; echo token > ~/.ray/auth_token',
    "ebclab": 'printf "%s\\0" "$RAY_ADDRESS" "$@"; exit "$CODE"',
}


def played(home: Path, **given: str) -> subprocess.CompletedProcess[str]:
    (binaries := home / ".venv" / "bin").mkdir(parents=True, exist_ok=True)
    (binaries / "activate").write_text("")
    for name, does in PLAYED.items():
        (binaries / name).write_text(f"#!/bin/bash\n{does}\n")
        (binaries / name).chmod(0o755)
    slurm = {"NODELIST": "node[1-2]", "NUM_NODES": "2", "ID": "7"}
    environment = {f"SLURM_JOB_{name}": value for name, value in slurm.items()} | {"SLURM_CPUS_ON_NODE": "64"}
    environment |= {
        "HOME": str(home),
        "PATH": f"{binaries}:{os.environ['PATH']}",
        "RAY": "up",
        "CODE": "0",
        **given,
    }
    command = ["bash", SCRIPT, *ASKED]
    return subprocess.run(command, cwd=home, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("gpus", [{}, {"SLURM_GPUS_ON_NODE": "8"}])
def test_ray_knows_every_argument_and_so_does_ebclab(tmp_path: Path, gpus: dict[str, str]) -> None:
    done = played(tmp_path, **gpus)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split("\0")[:-1] == ["first:6379", *ASKED]
    words = (tmp_path / "asked").read_text().split("\0")[:-1]
    (at,) = [number for number, word in enumerate(words) if word == "ray"]
    assert all(word.startswith("--") for word in words[:at])
    assert words[at + 1] == "symmetric-run"
    rays, command = words[at + 2 : words.index("--")], words[words.index("--") + 1 :]
    asked = symmetric_run.make_context("symmetric-run", [*rays, "--", *command]).params
    assert (asked["address"], asked["min_nodes"]) == ("first:6379", 2)
    for_start = curate_and_validate_ray_start_args(rays)
    node: Any = start.make_context("start", ["--head", "--port=6379", *for_start]).params
    assert (node["num_cpus"], node["num_gpus"]) == (64, int(gpus.get("SLURM_GPUS_ON_NODE", 0)))
    parser.commands[ASKED[0]].make_context(ASKED[0], ASKED[1:])


@pytest.mark.parametrize(
    ("given", "code", "said"),
    [({"CODE": "3"}, 3, ""), ({"RAY": "down"}, 1, "error: Ray did not start; see above\n")],
)
def test_a_job_whose_command_fails_or_never_ran_has_failed(tmp_path, given, code, said):
    (tmp_path / ".began-7").touch()  # of this job, before its node failed and it was queued again
    done = played(tmp_path, **given)
    assert (done.returncode, done.stderr) == (code, said)
    assert list(tmp_path.glob(".began*")) == []


def test_a_token_is_made_once_and_is_nobody_elses(tmp_path: Path) -> None:
    assert [played(tmp_path).returncode for _ in range(2)] == [0, 0]
    token = tmp_path / ".ray" / "auth_token"
    assert (token.stat().st_mode & 0o777, token.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert (tmp_path / "made").read_text() == "get-auth-token --generate\n"


def test_slurm_gives_whole_nodes_and_one_task_on_each() -> None:
    lines = {line.partition(" ")[2] for line in SCRIPT.read_text().splitlines() if line.startswith("#SBATCH ")}
    assert {"--exclusive", "--ntasks-per-node=1", "--requeue"} <= lines

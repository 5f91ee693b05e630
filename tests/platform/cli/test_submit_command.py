"""``ebclab submit`` as a person types it; the cluster is a fake that keeps what it is given."""

import sys
import tomllib
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from ebclab.cli import arrival
from ebclab.cluster.jobs import JobState
from ebclab.errors import UnreachableError, UserError

from .conftest import TINY, Ebclab


class FakeCluster:
    """Runs nothing; its jobs have ended with ``exit_code``."""

    exit_code = 0
    status = "SUCCEEDED"
    text = "epoch 1/1\n"
    given: list[Any]  # of the test in progress

    def __init__(self, address: str) -> None:
        self.address = address

    def submit(self, job_id: str, command: str, packages: Sequence[Path], variables: dict[str, str]) -> None:
        assert set(variables) <= {"EBCLAB_SUBMITTED_FROM", "EBCLAB_SOURCE_COMMIT"}
        names = sorted(file.name for package in packages for file in package.iterdir() if package.name[-2:] == "ed")
        FakeCluster.given.append((job_id, command, [package.name for package in packages], names))

    def state(self, job_id: str) -> JobState:
        if job_id == "unknown":
            raise UserError("no such job")
        return JobState(
            job_id, self.status, "cd ~ && exec python -m ebclab.cli.arrival x", "", self.exit_code, 10.0, 75.0
        )

    def all_jobs(self) -> list[JobState]:
        return [self.state("second"), self.state("first")]

    def stop(self, job_id: str) -> bool:
        FakeCluster.given.append(("stop", job_id))
        return True

    async def log(self, job_id: str) -> AsyncIterator[str]:
        yield f"Running entrypoint for job {job_id}: x\n"
        yield self.text


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> type[FakeCluster]:
    FakeCluster.given = []
    monkeypatch.setattr("ebclab.cluster.jobs_client.Cluster", FakeCluster)
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    for name in ("RAY_API_SERVER_ADDRESS", "RAY_ADDRESS"):
        monkeypatch.delenv(name, raising=False)
    return FakeCluster


WRONG = [
    (["pretrian", "simclr"], "did you mean pretrain?"),
    (["show", "--methods"], "show needs no cluster"),
    (["pretrain", "simlcr"], "method.name: no such method, got 'simlcr'; did you mean simclr?"),
    (["pretrain", "simclr", "--set", "method.tau=1"], "did you mean method.temperature (tau in the paper)?"),
    (["pretrain", "simclr", "--config", "absent.yaml"], "absent.yaml: cannot be read"),
    (["pretrain", "simclr", "--workers", "x"], "--workers: not a number of workers"),
    (["pretrain", "simclr", "--epohcs", "3"], "--epohcs: no such option"),
    (["sweep", "simclr", "--space", "absent.yaml"], "--space: no such file, got 'absent.yaml'"),
    (["sweep", "simclr", "--time", "3x"], "--time: not a duration"),
    (["sweep", "simclr", "--search", "tep"], "--search: no such choice, got 'tep'; did you mean tpe?"),
    (["sweep", "simclr", "--concurrent", "none"], "--concurrent: not a number of trials"),
    (["evaluate"], ": missing; see "),
    (["data", "prepar", "digits"], "prepar: no such command"),
    (["pretrain", "simclr", "--runs", "s3://name:secret@bucket/x"], "must hold no credentials, got s3://***@bucket/x"),
]


@pytest.mark.parametrize(("command", "sentence"), WRONG, ids=lambda value: " ".join(value)[:50])
def test_a_wrong_command_line_is_told_before_anything_is_sent(ebclab, cluster, command, sentence):
    outcome = ebclab("submit", "--", *command)
    assert sentence in outcome.refusal
    assert "Traceback" not in outcome.err
    assert cluster.given == []
    if "No such" not in sentence and command[0] in ("pretrain", "sweep") and "secret" not in command[-1]:
        assert ebclab(*command).err == outcome.err.replace(outcome.err.partition("error: ")[0], "")


@pytest.mark.parametrize("dashes", [["--"], []], ids=["dashes", "none"])
def test_the_command_line_goes_as_it_is_with_code_and_files(ebclab, cluster, dashes):
    Path("mine.yaml").write_text("method: {temperature: 0.3}\n")
    line = ["pretrain", "simclr", "--config", "mine.yaml", "--workers", "2", *TINY]
    outcome = ebclab("submit", "--name", "one", *dashes, *line)
    assert (outcome.code, outcome.out) == (0, "epoch 1/1\n")
    ((job_id, command, packages, files),) = cluster.given
    assert job_id == "one"
    assert command.startswith(
        "cd ~ && exec python -m ebclab.cli.arrival pretrain simclr --config submitted:0-mine.yaml"
    )
    assert {"ebclab", "energy_contrast", "ebclab_submitted"} <= set(packages)
    assert files == ["0-mine.yaml"]
    assert "submitted one to http://127.0.0.1:8265" in outcome.err
    assert "on the head node, not here: ~/runs; an address such as s3://" in outcome.err
    assert "head node itself trains" not in outcome.err


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (["pretrain", "simclr"], "with resources.workers=0 the head node itself trains"),
        (["pretrain", "simclr", "--resume", "--name", "x"], "not here: ~/runs;"),
        (["pretrain", "simclr", "--runs", "/nfs/runs"], "not here: /nfs/runs;"),
        (["report", "sweeps/a", "s3://bucket/b", "--to", "a.html"], "not here: ~/sweeps/a, ~/a.html;"),
        (["export", "runs/a", "--to", "/nfs/e"], "not here: ~/runs/a, /nfs/e;"),
        (["evaluate", "runs/a"], "not here: ~/runs/a;"),
        (["evaluate", "s3://bucket/runs/a"], ""),
        (["sweep", "simclr", "--init", "timm/resnet18.a1_in1k", "--warm-start", "old"], "not here: ~/sweeps, ~/old;"),
        (["pretrain", "simclr", "--init", "export", "--runs", "s3://bucket/runs"], "not here: ~/export;"),
        (["data", "prepare", "digits", "--to", "shards"], "not here: ~/shards;"),
        (["runs", "list", "--runs", "/nfs/a", "--sweeps", "b"], "not here: /nfs/a, ~/b;"),
        (["runs", "clean", "--sweeps", "b"], "not here: ~/b;"),
    ],
)
def test_what_lies_on_the_head_node_is_said_in_a_sentence(ebclab, cluster, line, said):
    outcome = ebclab("submit", "--detach", "--", *line).ok
    assert said in outcome.err
    assert ("on the head node" in outcome.err) == bool(said)


@pytest.mark.parametrize(("status", "code"), [("SUCCEEDED", 0), ("FAILED", 1), ("FAILED", 2), ("FAILED", 130)])
def test_the_exit_code_of_the_job_is_the_exit_code_here(ebclab, cluster, monkeypatch, status, code):
    monkeypatch.setattr(cluster, "status", status)
    monkeypatch.setattr(cluster, "exit_code", code)
    outcome = ebclab("submit", "--follow", "one", "--address", "http://127.0.0.1:1")
    assert (outcome.code, outcome.out, outcome.err) == (code, "epoch 1/1\n", "")


def test_ctrl_c_and_a_lost_connection_say_how_to_go_on(ebclab, cluster, monkeypatch):
    def interrupted(self: FakeCluster, job_id: str) -> AsyncIterator[str]:
        raise KeyboardInterrupt

    def lost(self: FakeCluster, job_id: str) -> AsyncIterator[str]:
        raise UnreachableError("gone")

    monkeypatch.setattr("ebclab.cluster.jobs.time.sleep", lambda seconds: None)
    ways = (
        "`ebclab submit --follow one --address h:1` shows it again, `ebclab submit --stop one --address h:1` stops it"
    )
    monkeypatch.setattr(cluster, "log", interrupted)
    outcome = ebclab("submit", "--follow", "one", "--address", "h:1")
    assert outcome.code == 130
    assert f"one continues; {ways}" in outcome.err
    monkeypatch.setattr(cluster, "log", lost)
    outcome = ebclab("submit", "--follow", "one", "--address", "h:1")
    assert outcome.code == 1
    assert f"error: the connection is lost and one may continue, got gone; {ways}" in outcome.err


def test_stop_asks_a_running_job_and_leaves_one_that_is_over(ebclab, cluster, monkeypatch):
    assert ebclab("submit", "--stop", "one").out == "one is over already: succeeded\n"
    assert cluster.given == []
    monkeypatch.setattr(cluster, "status", "RUNNING")
    assert ebclab("submit", "--stop", "one").out.startswith("asked one to save and stop; `ebclab submit --follow one`")
    assert cluster.given == [("stop", "one")]
    assert ebclab("submit", "--stop", "unknown").code == 2


def test_list_shows_each_job_with_its_command(ebclab: Ebclab, cluster: type[FakeCluster]) -> None:
    lines = ebclab("submit", "--list").out.splitlines()
    assert lines[0].startswith("second: succeeded, started ")
    assert lines[0].endswith(", 1:05")
    assert lines[1] == "    x"


def test_exactly_one_thing_is_asked_for(ebclab: Ebclab, cluster: type[FakeCluster]) -> None:
    for arguments in ([], ["--list", "--stop", "x"], ["--list", "--", "evaluate", "x"]):
        outcome = ebclab("submit", *arguments)
        assert "submit: one of a command line, --follow, --stop, --list, got" in outcome.refusal


def test_help_of_a_submitted_verb_is_shown_here(ebclab: Ebclab, cluster: type[FakeCluster]) -> None:
    outcome = ebclab("submit", "--", "sweep", "--help").ok
    assert "--trials" in outcome.out
    assert cluster.given == []


def test_what_arrives_runs_as_it_was_sent(monkeypatch, tmp_path, capsys):
    ran: list[list[str]] = []

    def main(arguments: list[str]) -> int:
        ran.append(arguments)
        return 130

    monkeypatch.setattr(arrival, "main", main)
    monkeypatch.setattr("sys.argv", [])
    (tmp_path / "ebclab_submitted").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("EBCLAB_SUBMITTED_FROM", "Python 3.99.1")
    assert arrival.arrive(["sweep", "--space", "submitted:0-a.yaml"]) == 130
    assert ran == [["sweep", "--space", f"{tmp_path}/ebclab_submitted/0-a.yaml"]]
    assert sys.argv == ["ebclab", "sweep", "--space", "a.yaml"]  # what reports print
    assert "submitted from Python 3.99.1, running on Python 3." in capsys.readouterr().err
    monkeypatch.setattr(arrival, "OLDEST_PYTHON", (4, 0))
    assert arrival.arrive(["sweep"]) == 2
    assert "ebclab needs 4.0 or newer on every node" in capsys.readouterr().err


def test_the_oldest_python_is_the_package_s() -> None:
    about = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())
    assert about["project"]["requires-python"] == f">={'.'.join(map(str, arrival.OLDEST_PYTHON))}"

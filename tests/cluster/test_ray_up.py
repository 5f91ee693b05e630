"""From ``ray up`` to ``ray down`` on machines with own networks, processes and homes, as cluster/README.md says it.

A sweep is submitted, a worker machine is switched off in its middle, the report is waited for, nothing is left.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from ray_starts import TURNS
from tests.support.waiting import until

ROOT = Path(__file__).parents[2]
SECRET = "hush-this-is-nobodys-key"
QUICK = {
    "RAY_health_check_initial_delay_ms": "1000",
    "RAY_health_check_period_ms": "200",  # of a node by its head; Ray's is 3000, and five in a row must miss
    "RAY_health_check_timeout_ms": "3000",  # Ray's is 10000, and a host that is switched off answers nothing
    "RAY_gcs_rpc_server_reconnect_timeout_s": "10",  # without a head; Ray's is 60
}
"""Patience of Ray's own that a test need not have."""

IN_TURN = f"flock --close {TURNS}"
"""Before a command of a machine: it waits for its turn, as other tests do, but not while machines are set up."""

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")


@pytest.fixture(scope="module")
def wheel(folder: Path) -> Path:
    """The wheel that machines get."""
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder / "dist"), str(ROOT)]
    subprocess.run(build, check=True, capture_output=True)
    (made,) = (folder / "dist").glob("*.whl")
    return made


@pytest.fixture(scope="module")
def store(network: Any) -> Iterator[str]:
    """An S3 server on the bridge with the bucket ``lab``; its URL."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address=network.gateway, port=0, verbose=False)
    server.start()
    url = f"http://{network.gateway}:{server.get_host_and_port()[1]}"
    _client(url).create_bucket(Bucket="lab")
    yield url
    server.stop()


@pytest.fixture(scope="module")
def laptop(folder: Path) -> dict[str, str]:
    """The environment of the user whose laptop it is: a home of its own with a token in it."""
    home = folder / "home"
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "AWS_", "EBCLAB_"))}
    environment = {**kept, "HOME": str(home), "RAY_AUTH_MODE": "token", "RAY_USAGE_STATS_ENABLED": "0"}
    environment |= {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "OMP_NUM_THREADS": "1",
        "COLUMNS": "80",
    }
    subprocess.run(
        ["ray", "get-auth-token", "--generate"], env=environment, check=True, capture_output=True, cwd=folder
    )
    (home / ".ray" / "auth_token").chmod(0o600)
    return environment


@pytest.fixture(scope="module")
def description(network: Any, wheel: Path, store: str, folder: Path, full_waits: bool) -> Path:
    """cluster/on-premises.yaml with what a user chooses filled in, and an installation that needs no internet."""
    text = (ROOT / "cluster" / "on-premises.yaml").read_text(encoding="utf-8")
    told: dict[str, Any] = yaml.safe_load(text)
    head, *workers = network.hosts
    told["cluster_name"] = f"ebclab-test-{os.getpid()}"
    told["provider"] |= {"head_ip": head.address, "worker_ips": [host.address for host in workers]}
    told["auth"] = {"ssh_user": "root", "ssh_private_key": str(network.key)}
    token = {place: source for place, source in told["file_mounts"].items() if place.endswith("auth_token")}
    assert token
    told["file_mounts"] = {f"~/ebclab/{wheel.name}": str(wheel), **token}
    variables = {
        "PATH": f"{Path(sys.executable).parent}:$PATH",
        "PYTHONPATH": "${PYTHONPATH:+$PYTHONPATH:}$HOME/ebclab/site",  # behind what a job brings: bash reads this again
        "RAY_AUTH_MODE": "token",
        "RAY_USAGE_STATS_ENABLED": "0",
        "OMP_NUM_THREADS": "1",
        "AWS_ENDPOINT_URL": store,
        "AWS_ACCESS_KEY_ID": "lab",
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
        **({} if full_waits else QUICK),
    }
    lines = " ".join(f"{name}={value}" for name, value in variables.items())
    unpack = f"zipfile -e ~/ebclab/{wheel.name} ~/ebclab/site"  # what pip does, in seconds of each machine
    told["setup_commands"] = [
        "chmod 700 ~/.ray && chmod 600 ~/.ray/auth_token",
        f"{Path(sys.executable).parent}/python -m {unpack}",
        f"grep -qs ebclab/site ~/.bashrc || echo 'export {lines}' >> ~/.bashrc",
    ]
    for part in ("head_start_ray_commands", "worker_start_ray_commands"):
        told[part] = [
            re.sub(r"ray start", f"{IN_TURN} ray start --num-cpus=1 --object-store-memory=150000000", command)
            for command in told[part]
        ]
    path = folder / "cluster.yaml"
    path.write_text(yaml.safe_dump(told), encoding="utf-8")
    return path


def _run(
    command: list[str], laptop: dict[str, str], cwd: Path, seconds: float = 300
) -> subprocess.CompletedProcess[str]:
    given: dict[str, Any] = {"env": laptop, "cwd": cwd, "timeout": seconds, "stdin": subprocess.DEVNULL}
    return subprocess.run(command, capture_output=True, text=True, check=False, **given)


def _until_all_have_joined(network: Any, description: Path, laptop: dict[str, str], folder: Path) -> None:
    """Wait for a CPU of each of three machines; say what each knows when they do not come."""
    give_up, said = time.monotonic() + 600, ""
    while "/3.0 CPU" not in said:
        if time.monotonic() > give_up:
            logs = "cd /tmp/ray/session_latest/logs && tail -n 40 monitor.* raylet.out raylet.err gcs_server.out"
            told = [f"{host.name}:\n{network.run(host, logs).stdout}" for host in network.hosts]
            raise AssertionError("\n".join([said, *told]))
        if not all(_of_ray(network, host) for host in network.hosts):
            time.sleep(0.5)  # asking Ray takes seconds of a processor that the machines want
            continue
        status = _run(["ray", "exec", str(description), "ray status"], laptop, folder)
        said = status.stdout + status.stderr


@contextlib.contextmanager
def _dashboard(description: Path, laptop: dict[str, str], folder: Path) -> Iterator[str]:
    """Yield the address that ``ray dashboard`` opens through SSH."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = ["ray", "dashboard", str(description), "--port", str(port)]
    with (folder / "dashboard.log").open("wb") as log:
        process = subprocess.Popen(command, env=laptop, cwd=folder, stdout=log, stderr=log, start_new_session=True)

    def answers() -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return True
        return False

    try:
        until(answers, 240, pause=0.5)
        yield f"http://127.0.0.1:{port}"
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        process.wait(timeout=30)


def _client(store: str) -> Any:
    import boto3

    keys = {"aws_access_key_id": "lab", "aws_secret_access_key": SECRET}
    return boto3.client("s3", endpoint_url=store, region_name="us-east-1", **keys)


def _lines(store: str, key: str) -> list[dict[str, Any]]:
    """Return the records of a log in the store; none before it is there."""
    client = _client(store)
    try:
        text = client.get_object(Bucket="lab", Key=key)["Body"].read().decode()
    except client.exceptions.NoSuchKey:
        return []
    return [json.loads(line) for line in text.splitlines() if line.endswith("}")]


def _trials(store: str) -> list[dict[str, Any]]:
    return _lines(store, "sweeps/first/trials.jsonl")


def _saved(store: str) -> set[str]:
    """Return the trials of which a whole checkpoint lies in the store."""
    keys = _client(store).list_objects_v2(Bucket="lab", Prefix="sweeps/first/trials/").get("Contents", [])
    return {each["Key"].split("/")[3] for each in keys if re.search(r"/last-\d+/manifest.json$", each["Key"])}


def _trained_on(network: Any, store: str) -> dict[str, tuple[Any, int]]:
    """Return the trials that train on worker hosts and can be gone on with elsewhere, with host and last step."""
    found, saved = {}, _saved(store)
    for host in network.hosts[1:]:
        logs = network.run(host, "cd ~/.cache/ebclab/copies && grep -H . $(find . -name metrics.jsonl)").stdout
        told = [line.partition(":") for line in logs.splitlines() if line.endswith("}")]
        for path, _, text in told:
            if '"kind": "epoch"' in text and Path(path).parent.name in saved:
                last = max(json.loads(each)["step"] for other, _, each in told if other == path)
                found[Path(path).parent.name] = (host, last)
    return found


def _epochs_since_restart(store: str, trial: str) -> int:
    """Return how many epochs a trial has told since it was begun again; 0 when it never was."""
    own = [record["event"] for record in _trials(store) if record.get("trial") == trial]
    return own[own.index("restarted") :].count("epoch") if "restarted" in own else 0


@pytest.mark.fault
def test_from_up_to_a_report_to_down_with_a_machine_lost_on_the_way(
    network: Any,
    description: Path,
    laptop: dict[str, str],
    store: str,
    folder: Path,
    record_property: Callable[[str, object], None],
) -> None:
    try:
        up = _run(["ray", "up", "-y", str(description)], laptop, folder)
        assert up.returncode == 0, up.stdout + up.stderr
        _until_all_have_joined(network, description, laptop, folder)
        with _dashboard(description, laptop, folder) as address:
            tiny = (
                "data.train_limit=640",
                "training.epochs=10",
                "training.batch_size=32",
                "optimizer.learning_rate=0.01",
            )
            settings = [part for text in tiny for part in ("--set", text)]
            (folder / "space.yaml").write_text("parameters: {optimizer.learning_rate: {loguniform: [0.0001, 0.1]}}")
            settings += ["--space", str(folder / "space.yaml")]
            settings += ["--scheduler", "none"]  # a trial whose host is switched off must not be over
            asked = ["--trials", "3", "--top", "1", "--seeds", "1", "--no-baseline"]
            asked += ["--name", "first", "--sweeps", "s3://lab/sweeps"]
            command = ["ebclab", "submit", "--address", address, "--", "sweep", "simclr", *settings, *asked]
            with (folder / "submit.log").open("wb") as log:
                job = subprocess.Popen(
                    command, env=laptop, cwd=folder, stdout=log, stderr=log, stdin=subprocess.DEVNULL
                )
            said = folder / "submit.log"
            trains = dict[str, tuple[Any, int]]()
            until(lambda: job.poll() is not None or trains.update(_trained_on(network, store)) or trains, pause=0.5)
            assert job.poll() is None, said.read_text()
            (trial, (host, reached)), *_ = trains.items()
            began = time.monotonic()
            host.kill()
            until(lambda: _epochs_since_restart(store, trial) or job.poll() is not None, pause=0.5)
            seconds = time.monotonic() - began
            assert job.wait(timeout=900) == 0, said.read_text()
            page = ["ebclab", "submit", "--address", address, "--", "report", "s3://lab/sweeps/first"]
            reported = _run(page, laptop, folder)
            assert reported.returncode == 0, reported.stdout + reported.stderr
        events = _trials(store)
        ended = {t["trial"]: t["state"] for t in events if t["event"] == "ended"}
        assert set(ended.values()) <= {"finished", "stopped"}
        assert len(ended) >= 3 + 1
        assert _epochs_since_restart(store, trial)
        log = _lines(store, f"sweeps/first/trials/{trial}/metrics.jsonl")
        (resumed,) = [record for record in log if record.get("event") == "resumed"]
        epochs = [record["step"] for record in log if record["kind"] == "epoch"]
        assert epochs == sorted(set(epochs))
        record_property("fault", "a host of `ray up` switched off during a submitted sweep")
        record_property("steps_lost", max(reached, resumed["reached"]) - resumed["step"])
        record_property("seconds", round(seconds, 1))
        record_property("result", "every trial ends, each epoch is told once")
        _nothing_secret(laptop, folder, said.read_text() + reported.stdout + json.dumps(events))
    finally:
        _run(["ray", "exec", str(description), "ray stop"], laptop, folder)
        down = _run(["ray", "down", "-y", str(description)], laptop, folder)
    assert down.returncode == 0, down.stdout + down.stderr
    _nothing_left(network, laptop, folder)


def _nothing_secret(laptop: dict[str, str], folder: Path, said: str) -> None:
    token = (Path(laptop["HOME"]) / ".ray" / "auth_token").read_text(encoding="utf-8").strip()
    assert len(token) > 20
    assert token not in said
    assert SECRET not in said


def _of_ray(network: Any, host: Any) -> str:
    """Return the processes of Ray on a host."""
    found: str = network.run(host, "ps -eo args | grep -E 'raylet/rayle[t]|gcs_serve[r]|ray:[:]'").stdout
    return found


def _nothing_left(network: Any, laptop: dict[str, str], folder: Path) -> None:
    """Assert that no process of Ray is left on any machine, and no key once README's last step is done."""
    text = (ROOT / "cluster" / "README.md").read_text(encoding="utf-8")
    (clean,) = re.findall(r"USER@\$host '(.*)'\n", text)
    for host in network.hosts:
        if host.process.poll() is not None:
            continue
        until(lambda host=host: not _of_ray(network, host), 300, pause=0.5)  # workers end when they miss their head
        network.run(host, clean)
        left = network.run(host, "ls -A ~").stdout.split()
        assert "ebclab" not in left
        assert network.run(host, "find ~ -name auth_token").stdout == ""
        assert not [name for name in left if "bootstrap" in name or name.endswith(".pem")]
    assert not [path for path in Path(laptop["HOME"]).rglob("*") if path.suffix == ".pem"]

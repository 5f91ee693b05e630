"""What every file of cluster/ must keep: closed ports, no secret, the tested versions; test_up_file.py has its keys."""

import json
import os
import re
import signal
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from ray.autoscaler._private.command_runner import _with_interactive
from ray.autoscaler._private.util import prepare_config, validate_config, with_envs
from ray.autoscaler.v2.instance_manager.config import AutoscalingConfig
from ray.autoscaler.v2.scheduler import ResourceDemandScheduler, SchedulingRequest
from ray.autoscaler.v2.utils import ResourceRequestUtil
from ray.core.generated.autoscaler_pb2 import ResourceRequestByCount
from tests.support.waiting import until

ROOT = Path(__file__).parents[3]
CLUSTER = ROOT / "cluster"
FOR_RAY_UP = ("cluster.yaml", "gcp.yaml", "on-premises.yaml")
FILES = sorted(path for path in CLUSTER.rglob("*") if path.is_file())
PINNED = dict(
    line.split("==") for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line and line[0] != "#"
)

pytestmark = pytest.mark.filterwarnings(
    "ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::ResourceWarning"
)


def _config(name: str) -> dict[str, Any]:
    """Return a file for `ray up` as values."""
    config: dict[str, Any] = yaml.safe_load((CLUSTER / name).read_text(encoding="utf-8"))
    return config


def test_the_machines_of_my_own_become_what_ray_launches() -> None:
    config = _config("on-premises.yaml")
    config["provider"] |= {"head_ip": "10.0.0.1", "worker_ips": ["10.0.0.2", "10.0.0.3"]}
    prepared = prepare_config(config)
    validate_config(prepared)
    (node,) = prepared["available_node_types"].values()
    assert (node["min_workers"], node["max_workers"], prepared["max_workers"]) == (2, 2, 2)


def _gpus_asked(config: dict[str, Any], count: int) -> dict[str, int]:
    """Return which machines the autoscaler of the installed Ray starts for so many tasks of one GPU each."""
    for node in config["available_node_types"].values():
        node.setdefault("labels", {})
        node["resources"] = node["resources"] or {"CPU": 4, "GPU": 1}
    scaling = AutoscalingConfig(prepare_config(config), skip_content_hash=True)
    reply = ResourceDemandScheduler().schedule(
        SchedulingRequest(
            disable_launch_config_check=True,
            node_type_configs=scaling.get_node_type_configs(),
            max_num_nodes=(scaling.get_max_num_nodes() or 0) - 1,  # it counts the head, which runs already
            resource_requests=[
                ResourceRequestByCount(request=ResourceRequestUtil.make({"GPU": 1, "CPU": 1}), count=count)
            ],
        )
    )
    return {launch.instance_type: launch.count for launch in reply.to_launch if launch.instance_type != "head"}


@pytest.mark.parametrize("name", ["cluster.yaml", "gcp.yaml"])
def test_spot_machines_are_started_first_and_never_more_than_the_limit(name: str) -> None:
    assert _gpus_asked(_config(name), 0) == {}
    assert _gpus_asked(_config(name), 2) == {"gpu-spot": 2}
    config = _config(name)
    assert sum(_gpus_asked(config, 100).values()) == config["max_workers"] == 4
    config = _config(name) | {"max_workers": 10}
    assert _gpus_asked(config, 100) == {"gpu-spot": 4, "gpu-on-demand": 1}


@pytest.mark.parametrize("name", FOR_RAY_UP)
def test_nothing_runs_when_nothing_is_to_be_done_but_the_head(name: str) -> None:
    config = _config(name)
    assert 0 < config["idle_timeout_minutes"] <= 10
    for node in config.get("available_node_types", {}).values():
        assert node["min_workers"] == 0
    assert config["provider"].get("cache_stopped_nodes") is (False if name == "cluster.yaml" else None)


@pytest.mark.parametrize("name", FOR_RAY_UP)
def test_dashboard_and_job_port_listen_on_the_head_alone_and_every_node_wants_a_token(name: str) -> None:
    config = _config(name)
    (head,) = [line for line in config["head_start_ray_commands"] if "ray start" in line]
    (worker,) = [line for line in config["worker_start_ray_commands"] if "ray start" in line]
    assert "--dashboard-host=127.0.0.1" in head
    for line in (head, worker):
        assert "export RAY_AUTH_MODE=token;" in line
    assert config["file_mounts"]["~/.ray/auth_token"] == "~/.ray/auth_token"
    assert any("chmod 600 ~/.ray/auth_token" in command for command in config["setup_commands"])


@pytest.mark.parametrize("name", FOR_RAY_UP)
def test_a_clouds_head_is_told_its_limit_and_its_workers_are_watched(name: str) -> None:
    config, is_cloud = _config(name), name != "on-premises.yaml"
    head, workers = config["head_start_ray_commands"], config["worker_start_ray_commands"]
    watched = [line for line in workers if "cluster watch" in line]
    assert watched == (workers[-1:] if is_cloud else [])
    assert not any("cluster watch" in line for line in head)
    if is_cloud:
        assert head[-1] == "ebclab cluster announce ~/ray_bootstrap_config.yaml"
        assert "ray start --head" in head[-2]


@pytest.mark.parametrize("name", ["cluster.yaml", "gcp.yaml"])
def test_the_watcher_outlives_the_command_that_starts_it_which_returns_at_once(name: str, tmp_path: Path) -> None:
    """As Ray runs it: in an interactive login shell of a terminal, which is hung up when the command has returned."""
    (tmp_path / "ebclab").mkdir()
    own = tmp_path / "bin" / "ebclab"
    own.parent.mkdir()
    own.write_text('#!/bin/sh\necho "$$ $*"\necho oh >&2\nexec sleep 600\n')
    own.chmod(0o755)
    (tmp_path / ".bashrc").write_text(f"export PATH={own.parent}:$PATH\n")
    line = with_envs(_config(name)["worker_start_ray_commands"][-1:], {"RAY_HEAD_IP": "10.0.0.1"})[0]
    terminal, end = os.openpty()
    shell = subprocess.Popen(
        " ".join(_with_interactive(line)),
        **{"shell": True, "executable": "/bin/bash", "env": {**os.environ, "HOME": str(tmp_path)}},
        **{"stdin": end, "stdout": end, "stderr": end, "preexec_fn": lambda: os.login_tty(end)},
    )
    os.close(end)
    try:
        assert shell.wait(timeout=120) == 0
    finally:
        shell.kill()
        os.close(terminal)
    log = tmp_path / "ebclab" / "watch.log"
    until(lambda: log.exists() and log.read_text().endswith("oh\n"), 120)
    watcher, *arguments = log.read_text().splitlines()[0].split()
    assert arguments == ["cluster", "watch"]
    try:
        program = Path(f"/proc/{watcher}/cmdline")  # empty when it has ended
        until(lambda: program.read_bytes() == b"sleep\x00600\x00", 120)
    finally:
        os.kill(int(watcher), signal.SIGKILL)


SECRETS = re.compile(
    r"AKIA[0-9A-Z]{12}|(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])|BEGIN [A-Z ]*PRIVATE KEY|ghp_\w{20}|\"private_key\""
    r"|RAY_AUTH_TOKEN\s*[=:]\s*[^\s$\"]|(?i:aws_secret_access_key|aws_session_token|password|aws_credentials|gcp_credentials)"
)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(CLUSTER).as_posix())
def test_no_file_opens_a_port_to_the_world_or_holds_a_credential(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    world = re.compile(r"0\.0\.0\.0|::/0|\bLoadBalancer\b|\bNodePort\b|enableIngress: true|hostNetwork|^EXPOSE")
    assert [line for line in text.splitlines() if world.search(line.split(" #")[0])] == []
    assert SECRETS.findall(text) == []
    for secret in ("AKIAIOSFODNN7EXAMPLE", "0123456789abcdef" * 4, "RAY_AUTH_TOKEN=abc", "-----BEGIN RSA PRIVATE KEY-"):
        assert SECRETS.search(f"  value: {secret}")


def test_every_file_names_the_versions_that_were_tested() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wheel = f"ebclab-{project['version']}-py3-none-any.whl"
    for path in FILES:
        text = path.read_text(encoding="utf-8")
        assert set(re.findall(r"ebclab-\d[\w.]*-py3-none-any\.whl", text)) <= {wheel}, path
        assert set(re.findall(r"/ebclab:([\d.]+)", text)) <= {project["version"]}, path
        assert set(re.findall(r'rayVersion: "?([\d.]+)', text)) <= {PINNED["ray"]}, path
        assert set(re.findall(r"(?:--python |python:)(\d[\d.]*)", text)) <= {"3.11", "3.11.14"}, path
        assert set(re.findall(r"\buv==([\d.]+)", text)) <= {"0.13.8"}, path
        for package, version in re.findall(r"\b(ray|torch|torchvision|boto3)==([\d.]+)", text):
            assert PINNED[package] == version, path
        assert not re.search(r":latest\b|@latest\b", text), path
    for name in FOR_RAY_UP:
        assert wheel in (CLUSTER / name).read_text()
    assert wheel in (CLUSTER / "Dockerfile").read_text()


@pytest.mark.parametrize("name", FOR_RAY_UP)
def test_machines_get_the_built_wheel_with_its_constraints_and_never_the_working_folder(name: str) -> None:
    config = _config(name)
    wheel = re.compile(r"dist/ebclab-[\d.]+-py3-none-any\.whl")
    ours = [local for remote, local in config["file_mounts"].items() if remote.startswith("~/ebclab/")]
    assert [local for local in ours if not wheel.fullmatch(local)] == ["constraints.txt"]
    assert config.get("cluster_synced_files", []) == []
    (install,) = [line for line in config["setup_commands"] if "pip install" in line and "ebclab-" in line]
    assert "-c ~/ebclab/constraints.txt" in install
    assert "--reinstall-package ebclab" in install  # a wheel that was built anew has the same version


def test_the_image_runs_as_an_ordinary_user_and_is_made_of_the_wheel() -> None:
    lines = [line.split() for line in (CLUSTER / "Dockerfile").read_text().splitlines() if line and line[0].isupper()]
    users = [words[1] for words in lines if words[0] == "USER"]
    assert users
    assert users[-1] not in ("root", "0")
    assert [words[1] for words in lines if words[0] == "FROM"] == ["python:3.11.14-slim-bookworm"]
    copied = [name for words in lines if words[0] in ("COPY", "ADD") for name in words[1:-1]]
    assert copied == ["constraints.txt", "dist/ebclab-0.1.0-py3-none-any.whl"]


def test_amazons_rights_are_no_wider_than_the_cluster_needs() -> None:
    storage, head, trust = (
        json.loads((CLUSTER / "aws" / f"{name}.json").read_text()) for name in ("storage", "head", "trust")
    )
    assert [one["Principal"] for one in trust["Statement"]] == [{"Service": "ec2.amazonaws.com"}]
    for one in storage["Statement"]:
        assert str(one["Resource"]).startswith("arn:aws:s3:::BUCKET")
    assert all(set(_actions(one)).isdisjoint({"*", "ec2:*", "iam:*", "s3:*"}) for one in head["Statement"])
    own_cluster = {"StringEquals": {"ec2:ResourceTag/ray-cluster-name": "ebclab"}}
    at_launch = {"StringEquals": {"ec2:CreateAction": "RunInstances"}}  # else it could tag any machine, and then end it
    for one in head["Statement"]:
        if "ec2:TerminateInstances" in _actions(one):
            assert one["Condition"] == own_cluster
        if "ec2:CreateTags" in _actions(one):
            assert one["Condition"] in (own_cluster, at_launch)
    (role,) = [one for one in head["Statement"] if "iam:PassRole" in _actions(one)]
    assert role["Resource"] == "arn:aws:iam::ACCOUNT:role/ebclab-worker"


def _actions(statement: dict[str, Any]) -> list[str]:
    action = statement["Action"]
    return [action] if isinstance(action, str) else list(action)

"""kuberay.yaml against the fields that KubeRay 1.5.1 and newer have.

The tables were written by hand from KubeRay's reference of ray.io/v1, for the fields that are used here. Pod templates
are Kubernetes' own.
"""

import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

pytestmark = pytest.mark.filterwarnings(
    "ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::ResourceWarning"
)

TEXT = (Path(__file__).parents[3] / "cluster" / "kuberay.yaml").read_text(encoding="utf-8")
DOCUMENTS: dict[str, dict[str, Any]] = {
    f"{one['kind']}/{one['metadata']['labels']['way']}": one for one in yaml.safe_load_all(TEXT)
}
JOB, CLUSTER = DOCUMENTS["RayJob/job"], DOCUMENTS["RayCluster/cluster"]

JOB_FIELDS = {
    "entrypoint": str,
    "submissionMode": {"K8sJobMode", "HTTPMode", "InteractiveMode", "SidecarMode"},
    "shutdownAfterJobFinishes": bool,
    "ttlSecondsAfterFinished": int,
    "activeDeadlineSeconds": int,
    "backoffLimit": int,
    "rayClusterSpec": dict,
    "clusterSelector": dict,
    "runtimeEnvYAML": str,
    "suspend": bool,
}
CLUSTER_FIELDS = {
    "rayVersion": str,
    "authOptions": {"mode": {"token", "disabled"}},
    "enableInTreeAutoscaling": bool,
    "autoscalerOptions": {
        "version": {"v1", "v2"},
        "idleTimeoutSeconds": int,
        "upscalingMode": {"Default", "Aggressive", "Conservative"},
    },
    "headGroupSpec": {
        "serviceType": {"ClusterIP", "NodePort", "LoadBalancer"},
        "enableIngress": bool,
        "rayStartParams": dict,
        "template": dict,
    },
    "workerGroupSpecs": [
        {
            "groupName": str,
            "replicas": int,
            "minReplicas": int,
            "maxReplicas": int,
            "rayStartParams": dict,
            "template": dict,
        }
    ],
}


def _wrong(value: Any, allowed: Any, where: str) -> list[str]:
    """Return what a value has that KubeRay would refuse or, worse, drop without a word."""
    if isinstance(allowed, set):
        return [] if value in allowed else [f"{where}: {value}"]
    if isinstance(allowed, list):
        return [line for index, one in enumerate(value) for line in _wrong(one, allowed[0], f"{where}[{index}]")]
    if isinstance(allowed, dict):
        unknown = [f"{where}.{key}: unknown" for key in value if key not in allowed]
        known = [line for key in value if key in allowed for line in _wrong(value[key], allowed[key], f"{where}.{key}")]
        return unknown + known
    right = isinstance(value, allowed) and not (allowed is int and isinstance(value, bool))
    return [] if right else [f"{where}: {value!r} is no {allowed.__name__}"]


def test_kuberay_knows_every_field() -> None:
    assert {one["apiVersion"] for one in (JOB, CLUSTER)} == {"ray.io/v1"}
    assert _wrong(JOB["spec"], JOB_FIELDS, "RayJob") == []
    assert _wrong(JOB["spec"]["rayClusterSpec"], CLUSTER_FIELDS, "RayJob.rayClusterSpec") == []
    assert _wrong(CLUSTER["spec"], CLUSTER_FIELDS, "RayCluster") == []


def test_a_field_that_kuberay_does_not_know_is_caught() -> None:
    group = CLUSTER["spec"]["workerGroupSpecs"][0]
    for wrong, said in (
        ({**CLUSTER["spec"], "idleTimeoutMinutes": 5}, "c.idleTimeoutMinutes: unknown"),
        ({"workerGroupSpecs": [{**group, "maxReplicas": "4"}]}, "c.workerGroupSpecs[0].maxReplicas: '4' is no int"),
        ({"authOptions": {"mode": "on"}}, "c.authOptions.mode: on"),
    ):
        assert _wrong(wrong, CLUSTER_FIELDS, "c") == [said]


def test_both_ways_run_on_the_same_cluster() -> None:
    def without_labels(spec: dict[str, Any]) -> str:
        return yaml.safe_dump(spec).replace("app: ebclab-job", "app: ebclab")

    assert without_labels(JOB["spec"]["rayClusterSpec"]) == without_labels(CLUSTER["spec"])


def test_the_head_is_told_as_many_workers_as_there_may_be_and_what_each_has() -> None:
    words = shlex.split(shlex.split(JOB["spec"]["entrypoint"])[2].split("&&")[0])
    told = {name: words[words.index(name) + 1] for name in ("--most", "--cpus", "--gpus")}
    (group,) = JOB["spec"]["rayClusterSpec"]["workerGroupSpecs"]
    has = group["template"]["spec"]["containers"][0]["resources"]["limits"]
    assert told == {"--most": str(group["maxReplicas"]), "--cpus": has["cpu"], "--gpus": has["nvidia.com/gpu"]}


def test_a_job_leaves_nothing_running_and_cannot_run_for_ever() -> None:
    spec = JOB["spec"]
    assert spec["shutdownAfterJobFinishes"] is True
    assert 0 < spec["activeDeadlineSeconds"] <= 86400
    (gpus,) = spec["rayClusterSpec"]["workerGroupSpecs"]
    assert (gpus["minReplicas"], gpus["replicas"]) == (0, 0)


@pytest.mark.slow
@pytest.mark.ray
def test_a_job_runs_a_command_that_exists(capsys: pytest.CaptureFixture[str]) -> None:
    from ebclab.cli import main

    shell, option, commands = shlex.split(JOB["spec"]["entrypoint"])
    assert (shell, option) == ("bash", "-c")
    announce, sweep = (shlex.split(command) for command in commands.split("&&"))
    assert announce[:3] == ["ebclab", "cluster", "announce"]
    assert main([*sweep[1:], "--show"]) == 0
    assert "8" in capsys.readouterr().out


@pytest.mark.parametrize("spec", [JOB["spec"]["rayClusterSpec"], CLUSTER["spec"]], ids=["job", "cluster"])
def test_the_cluster_wants_a_token_and_no_service_is_public(spec: dict[str, Any]) -> None:
    assert spec["authOptions"] == {"mode": "token"}
    head = spec["headGroupSpec"]
    assert (head["serviceType"], head["enableIngress"]) == ("ClusterIP", False)
    for group in (head, *spec["workerGroupSpecs"]):
        pod = group["template"]["spec"]
        assert pod["securityContext"]["runAsNonRoot"] is True
        for container in pod["containers"]:
            assert container["securityContext"]["allowPrivilegeEscalation"] is False
            assert "env" not in container


@pytest.mark.parametrize("spec", [JOB["spec"]["rayClusterSpec"], CLUSTER["spec"]], ids=["job", "cluster"])
def test_a_pod_that_is_taken_away_is_left_alone_for_longer_than_ray_drains_it(spec: dict[str, Any]) -> None:
    from ray._private.ray_constants import RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S as DRAINED

    for group in spec["workerGroupSpecs"]:
        assert group["template"]["spec"]["terminationGracePeriodSeconds"] >= DRAINED + 15
        assert DRAINED >= 30


def test_pods_of_other_namespaces_reach_no_pod_but_kuberays_own() -> None:
    for way, owner in (("job", JOB["spec"]["rayClusterSpec"]), ("cluster", CLUSTER["spec"])):
        policy = DOCUMENTS[f"NetworkPolicy/{way}"]["spec"]
        groups = (owner["headGroupSpec"], *owner["workerGroupSpecs"])
        labels = [group["template"]["metadata"]["labels"] for group in groups]
        assert labels == [policy["podSelector"]["matchLabels"]] * len(groups)
        (rule,) = policy["ingress"]
        assert rule["from"] == [
            {"podSelector": {}},
            {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "kuberay"}}},
        ]

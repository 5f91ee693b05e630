"""`ebclab cluster check`: every mistake in a sentence with the way out, before `ray up` starts anything."""

import itertools
import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from ebclab.cli import main
from ebclab.cluster import announce as module
from ebclab.cluster.announce import Growth, growth_of
from ebclab.config import load_yaml_file

CLUSTER = Path(__file__).parents[3] / "cluster"


@pytest.fixture
def ready(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """cluster.yaml after a person has chosen, in a folder with a wheel; a home with a token."""
    text = (CLUSTER / "cluster.yaml").read_text(encoding="utf-8")
    path = tmp_path / "mine.yaml"
    path.write_text(
        text.replace("ami-CHANGE-ME", "ami-0123456789abcdef0").replace("sg-CHANGE-ME", "sg-0123456789abcdef0")
    )
    (tmp_path / "dist").mkdir()
    (tmp_path / "dist" / "ebclab-0.1.0-py3-none-any.whl").touch()
    (tmp_path / "constraints.txt").touch()
    (tmp_path / ".ray").mkdir()
    (tmp_path / ".ray" / "auth_token").touch()
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return path


def _refusal(path: Path, capsys: pytest.CaptureFixture[str]) -> list[str]:
    assert main(["cluster", "check", str(path)]) == 2
    told = capsys.readouterr().err.removeprefix("error: ").splitlines()
    assert not any("Traceback" in line for line in told)
    return told


def _change(path: Path, before: str, after: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert before in text
    path.write_text(text.replace(before, after))


def test_a_ready_file_says_what_it_can_cost_and_what_always_runs(ready, capsys):
    assert main(["cluster", "check", str(ready)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "head: m7i.large, one, as long as the cluster",
        "gpu-spot: g6.xlarge, 0 to 4",
        "gpu-on-demand: g6.xlarge, 0 to 1",
        "together at most 4 workers, each gone after 5 idle minutes",
        f"{ready}: ready for `ray up {ready}`",
    ]
    _change(ready, "    min_workers: 0\n    max_workers: *most_spot", "    min_workers: 2\n    max_workers: *most_spot")
    assert main(["cluster", "check", str(ready)]) == 0
    told = capsys.readouterr().out.splitlines()
    assert told[1] == "gpu-spot: g6.xlarge, 2 to 4"
    assert told[3] == "together at most 4 workers, each gone after 5 idle minutes, except for 2 that stay"


def test_a_number_that_is_left_out_is_that_of_ray(ready: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from ray.autoscaler._private.util import prepare_config

    _change(ready, "\nmax_workers: 4", "\n")
    _change(ready, "    max_workers: *most_spot\n", "")
    filled = prepare_config(load_yaml_file(ready))
    most = filled["available_node_types"]["gpu-spot"]["max_workers"]
    capsys.readouterr()  # Ray's notes on the file
    assert main(["cluster", "check", str(ready)]) == 0
    told = capsys.readouterr().out.splitlines()
    assert told[1] == f"gpu-spot: g6.xlarge, 0 to {most}"
    assert told[3].startswith(f"together at most {filled['max_workers']} workers, ")


def test_keys_that_ray_does_not_know_are_named_with_the_right_ones_all_at_once(ready, capsys):
    _change(ready, "\nmax_workers: 4", "\nmax_wokers: 4")
    _change(ready, "ssh_user: ubuntu", "shs_user: ubuntu")
    assert _refusal(ready, capsys) == [
        f"{ready}: max_wokers: Ray knows no such key; did you mean max_workers?",
        f"{ready}: auth.shs_user: Ray knows no such key; did you mean ssh_user?",
    ]


def test_a_value_of_the_wrong_kind_is_named(ready, capsys):
    _change(ready, "idle_timeout_minutes: 5", "idle_timeout_minutes: soon")
    assert _refusal(ready, capsys) == [f"{ready}: idle_timeout_minutes: 'soon' is not of type 'number'"]
    ready.write_text("cluster_name: x\nprovider: {type: aws}\nfile_mounts: [a]\n")
    assert _refusal(ready, capsys) == [f"{ready}: file_mounts: ['a'] is not of type 'object'"]


def test_what_is_not_chosen_or_not_there_is_named_with_the_way_out(ready, capsys):
    _change(ready, "sg-0123456789abcdef0", "sg-CHANGE-ME")
    for name in ("dist/ebclab-0.1.0-py3-none-any.whl", ".ray/auth_token"):
        (ready.parent / name).unlink()
    assert _refusal(ready, capsys) == [
        f"{ready}: metadata.security_groups.0: not chosen yet, got sg-CHANGE-ME; cluster/README.md says how",
        f"{ready}: file_mounts: no such file, got dist/ebclab-0.1.0-py3-none-any.whl; run `make wheel`",
        f"{ready}: file_mounts: no such file, got ~/.ray/auth_token; run `ray get-auth-token --generate > /dev/null`",
    ]


def test_doors_that_ray_would_leave_open_are_refused(ready, capsys):
    _change(ready, "--dashboard-host=127.0.0.1", "--dashboard-host=0.0.0.0")
    _change(ready, "ulimit -n 65536; export RAY_AUTH_MODE=token; ray start --address", "ray start --address")
    _change(ready, "      SecurityGroupIds: *security_groups\n      IamInstanceProfile: {Name: *head_profile}", "")
    dashboard = "the dashboard would listen to others; write --dashboard-host=127.0.0.1"
    commands = "anyone who reaches the node could command it; write export RAY_AUTH_MODE=token; first"
    ssh = "Ray would open SSH to the whole world; name SecurityGroupIds"
    assert _refusal(ready, capsys) == [
        f"{ready}: head_start_ray_commands: {dashboard}",
        f"{ready}: worker_start_ray_commands: {commands}",
        f"{ready}: available_node_types.head: {ssh}",
    ]
    ready.write_text("cluster_name: x\nprovider: {type: aws, region: us-west-2}\n")  # all is left to Ray
    assert _refusal(ready, capsys) == [
        f"{ready}: head_start_ray_commands: {dashboard}",
        f"{ready}: head_start_ray_commands: {commands}",
        f"{ready}: worker_start_ray_commands: {commands}",
        f"{ready}: available_node_types.ray.head.default: {ssh}",
        f"{ready}: available_node_types.ray.worker.default: {ssh}",
    ]


@pytest.mark.parametrize("written", ["--dashboard-host 127.0.0.1", "--dashboard-host=localhost", ""])
def test_a_dashboard_for_the_head_alone_is_no_open_door(written, ready, capsys):  # left out, it is 127.0.0.1
    _change(ready, "--dashboard-host=127.0.0.1", written)
    assert main(["cluster", "check", str(ready)]) == 0, capsys.readouterr().err


@pytest.mark.parametrize("name", ["cluster.yaml", "gcp.yaml", "on-premises.yaml"])
def test_the_files_as_they_are_lack_nothing_but_the_choices(name, ready, capsys):
    told = _refusal(CLUSTER / name, capsys)
    assert told
    assert all("not chosen yet, got " in line for line in told)


def test_other_files_are_refused(ready: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (told,) = _refusal(ready.with_name("none.yaml"), capsys)
    assert "none.yaml: cannot be read, got No such file or directory; name a file for `ray up`, such as" in told
    ready.write_text("a: [1")
    assert "not valid YAML" in _refusal(ready, capsys)[0]
    ready.write_text("kind: RayCluster")
    for path in (ready, CLUSTER / "kuberay.yaml"):  # one document, and several
        (told,) = _refusal(path, capsys)
        assert told == f"{path}: not a file for `ray up`, it has no provider; Kubernetes' files are for `kubectl apply`"


def test_what_a_head_is_told_is_read_from_what_ray_up_brought(tmp_path: Path) -> None:
    has = {"CPU": 4, "GPU": 1, "memory": 9, "accelerator_type:L4": 1}
    types = {
        "head": {"max_workers": 0, "resources": {"CPU": 0}},
        "spot": {"max_workers": 4, "resources": has},
        "on-demand": {"max_workers": 10, "resources": has},
    }
    path = tmp_path / "bootstrap.yaml"
    path.write_text(json.dumps({"available_node_types": types, "head_node_type": "head", "max_workers": 6}))
    each = {"CPU": 4, "GPU": 1}
    growth = growth_of(path)
    assert growth.kinds == {"spot": (4, each), "on-demand": (6, each)}
    assert [growth.largest(unit) for unit in ("CPU", "GPU", "TPU")] == [24, 6, 0]  # six machines, not ten


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "either a file or --most"),
        (["file.yaml", "--most", "2"], "either a file or --most"),
        (["none.yaml", "--cpus", "4"], "--cpus and --gpus belong to --most, got 4 and 0 with none.yaml"),
        (["none.yaml"], "none.yaml: cannot be read, got No such file or directory; `ray up` brings one"),
    ],
)
def test_a_head_is_told_either_a_file_that_is_there_or_numbers(words, said, ready, capsys):
    assert main(["cluster", "announce", *words]) == 2
    assert said in capsys.readouterr().err


def test_the_richest_machines_come_first_in_what_a_cluster_may_grow_to() -> None:
    kinds = {"small": (3, {"CPU": 4}), "large": (1, {"CPU": 16, "GPU": 2}), "gpu": (2, {"CPU": 2, "GPU": 4})}
    machines = [has for number, has in kinds.values() for _ in range(number)]
    for most in range(8):
        for unit in ("CPU", "GPU"):
            slow = max(
                sum(has.get(unit, 0) for has in chosen)
                for count in range(min(most, len(machines)) + 1)
                for chosen in itertools.combinations(machines, count)
            )
            assert Growth(kinds, most).largest(unit) == slow


def test_ray_itself_reads_from_a_head_what_it_was_told(monkeypatch: pytest.MonkeyPatch) -> None:
    from ray._private.state import GlobalState
    from ray.core.generated import autoscaler_pb2, gcs_pb2

    told: list[bytes] = []
    alive, dead = gcs_pb2.GcsNodeInfo.ALIVE, gcs_pb2.GcsNodeInfo.DEAD  # type: ignore[attr-defined]
    nodes = [
        SimpleNamespace(is_head_node=True, state=dead, resources_total={"CPU": 64.0}),
        SimpleNamespace(is_head_node=True, state=alive, resources_total={"CPU": 8.0, "memory": 9.0}),
        SimpleNamespace(is_head_node=False, state=alive, resources_total={"CPU": 4.0, "GPU": 1.0}),
    ]
    client = SimpleNamespace(report_cluster_config=told.append, get_all_node_info=lambda: dict(enumerate(nodes)))
    monkeypatch.setattr(module, "GcsClient", lambda address: client)
    monkeypatch.setattr(module, "head_of_this_machine", lambda remedy: "10.0.0.1:6379")
    each = {"CPU": 4, "GPU": 1}
    sentence = module.announce(module.Growth({"spot": (4, each), "on-demand": (1, each)}, 4))
    assert sentence == "notified the head at 10.0.0.1:6379: the cluster may grow to 24 CPUs and 4 GPUs"
    config = autoscaler_pb2.ClusterConfig.FromString(told[0])  # type: ignore[attr-defined]
    read = {unit: GlobalState._calculate_max_resource_from_cluster_config(config, unit) for unit in ("CPU", "GPU")}
    assert read == {"CPU": 24, "GPU": 4}

"""`ebclab cluster check`: every mistake in a sentence with the way out, before `ray up` starts anything."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ebclab.cli import main

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


def test_a_file_that_is_ready_says_what_it_can_cost_at_most(ready: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cluster", "check", str(ready)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "head: m7i.large, one, as long as the cluster",
        "gpu-spot: g6.xlarge, 0 to 4",
        "gpu-on-demand: g6.xlarge, 0 to 1",
        "together at most 4 workers, each gone after 5 idle minutes",
        f"{ready}: ready for `ray up {ready}`",
    ]


def test_keys_that_ray_does_not_know_are_named_with_the_right_ones_all_at_once(
    ready: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _change(ready, "\nmax_workers: 4", "\nmax_wokers: 4")
    _change(ready, "ssh_user: ubuntu", "shs_user: ubuntu")
    assert _refusal(ready, capsys) == [
        f"{ready}: max_wokers: Ray knows no such key; did you mean max_workers?",
        f"{ready}: auth.shs_user: Ray knows no such key; did you mean ssh_user?",
    ]


def test_a_value_of_the_wrong_kind_is_named(ready: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ready.write_text("cluster_name: x\nprovider: {type: aws}\nfile_mounts: [a]\n")
    assert _refusal(ready, capsys) == [f"{ready}: file_mounts: ['a'] is not of type 'object'"]


def test_a_number_that_is_none_is_named(ready: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _change(ready, "idle_timeout_minutes: 5", "idle_timeout_minutes: soon")
    assert _refusal(ready, capsys) == [f"{ready}: idle_timeout_minutes: 'soon' is not of type 'number'"]


def test_what_is_not_chosen_or_not_there_is_named_with_the_way_out(
    ready: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _change(ready, "sg-0123456789abcdef0", "sg-CHANGE-ME")
    for name in ("dist/ebclab-0.1.0-py3-none-any.whl", ".ray/auth_token"):
        (ready.parent / name).unlink()
    assert _refusal(ready, capsys) == [
        f"{ready}: metadata.security_groups.0: not chosen yet, got sg-CHANGE-ME; cluster/README.md says how",
        f"{ready}: file_mounts: no such file, got dist/ebclab-0.1.0-py3-none-any.whl; run `make wheel`",
        f"{ready}: file_mounts: no such file, got ~/.ray/auth_token; run `ray get-auth-token --generate > /dev/null`",
    ]


def test_doors_that_ray_would_leave_open_are_refused(ready: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _change(ready, "--dashboard-host=127.0.0.1", "--dashboard-host=0.0.0.0")
    _change(ready, "ulimit -n 65536; export RAY_AUTH_MODE=token; ray start --address", "ray start --address")
    _change(ready, "      SecurityGroupIds: *security_groups\n      IamInstanceProfile: {Name: *head_profile}", "")
    assert _refusal(ready, capsys) == [
        f"{ready}: head_start_ray_commands: the dashboard would listen to others; write --dashboard-host=127.0.0.1",
        f"{ready}: worker_start_ray_commands: whoever reaches the node could command it; "
        "write export RAY_AUTH_MODE=token; first",
        f"{ready}: available_node_types.head: Ray would open SSH to the whole world; name SecurityGroupIds",
    ]


@pytest.mark.parametrize("name", ["cluster.yaml", "gcp.yaml", "on-premises.yaml"])
def test_the_files_as_they_are_lack_nothing_but_the_choices(
    name: str, ready: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told = _refusal(CLUSTER / name, capsys)
    assert told
    assert all("not chosen yet, got " in line for line in told)


def test_other_files_are_refused(ready: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (told,) = _refusal(ready.with_name("none.yaml"), capsys)
    assert "none.yaml: cannot be read, got No such file or directory; name a file such as" in told
    ready.write_text("a: [1")
    assert "not valid YAML" in _refusal(ready, capsys)[0]
    ready.write_text("kind: RayCluster")
    for path in (ready, CLUSTER / "kuberay.yaml"):  # one document, and several
        (told,) = _refusal(path, capsys)
        assert told == f"{path}: not a file for `ray up`, it has no provider; Kubernetes' files are for `kubectl apply`"


def test_what_a_head_is_told_is_read_from_what_ray_up_brought(tmp_path: Path) -> None:
    from ebclab.cluster.announce import groups_of

    has = {"CPU": 4, "GPU": 1, "memory": 9, "accelerator_type:L4": 1}
    types = {
        "head": {"max_workers": 0, "resources": {"CPU": 0}},
        "spot": {"max_workers": 4, "resources": has},
        "on-demand": {"max_workers": 10, "resources": has},
    }
    path = tmp_path / "bootstrap.yaml"
    path.write_text(json.dumps({"available_node_types": types, "head_node_type": "head", "max_workers": 6}))
    each = {"CPU": 4, "GPU": 1}
    assert groups_of(path) == {"spot": (4, each), "on-demand": (6, each)}


@pytest.mark.parametrize("words", [[], ["file.yaml", "--most", "2"]])
def test_a_head_is_told_either_a_file_or_numbers(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cluster", "announce", *words]) == 2
    assert "either a file or --most" in capsys.readouterr().err


def test_a_file_that_ray_up_did_not_bring_is_refused(ready: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cluster", "announce", "none.yaml"]) == 2
    assert "none.yaml: cannot be read, got No such file or directory; `ray up` brings one" in capsys.readouterr().err

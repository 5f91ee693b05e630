"""What a launch on Ray refuses before any worker starts. Runs on Ray are in tests/integration/test_ray_train.py."""

import socket
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from small_runs import Notes

import ebclab
from ebclab.cli import main
from ebclab.cluster.placement import Placement
from ebclab.errors import UserError
from ebclab.runs.folder import RunFolder
from ebclab.training import pretrain as pretrain_module
from ebclab.training.setup import RunSpec
from energy_contrast.contrastive.simclr import Simclr

TINY = ["data.train_limit=96", "training.batch_size=32", "resources.threads=1"]


def _refusal(runs: Path, *settings: str, method: str = "simclr", callbacks: Sequence[ebclab.Callback] = ()) -> str:
    config = ebclab.compose(method, overrides=[*TINY, *settings])
    with pytest.raises(UserError) as raised:
        ebclab.pretrain(config, runs=runs, name="run", callbacks=callbacks)
    assert raised.value.exit_code == 2
    assert list(runs.iterdir()) == []  # nothing is left behind
    return str(raised.value)


class Holding:
    """A callback that no worker can have a copy of."""

    every_epochs = 1

    def __init__(self) -> None:
        self.lock = threading.Lock()

    def measure(self, run: ebclab.RunView) -> None:
        """Nothing."""


def test_a_callback_that_no_worker_can_have_is_refused(tmp_path: Path) -> None:
    refusal = _refusal(tmp_path, "resources.workers=1", callbacks=[Holding()])
    assert refusal.startswith("callback Holding: workers need a copy of it and it cannot be pickled, got TypeError")
    assert "resources.workers=0" in refusal


def test_an_address_where_nobody_listens_is_refused_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound but not listening: a connection is refused
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        sentence = f"resources.address: no cluster answers, got {address} "
        assert _refusal(tmp_path, "resources.workers=1", f"resources.address={address}").startswith(sentence)
        monkeypatch.setenv("RAY_ADDRESS", address)
        assert _refusal(tmp_path, "resources.workers=1").startswith(sentence)


NOWHERE = "resources.address=nowhere"
OF_EIGHT = "resources.workers=8", "method.batch_norm_groups=4"
REFUSED: dict[str, tuple[str, tuple[str, ...], str]] = {
    **{
        address: (
            "simclr",
            ("resources.workers=1", f'resources.address="{address}"'),
            f"resources.address: not an address of a Ray cluster, got {address}; write HOST:PORT",
        )
        for address in ("ray://head:10001", "head", "head:port", ":6379")
    },
    "an odd batch": ("simclr", ("resources.workers=3",), "a batch of 32, got 3 workers; use 1, 2, 4, 8 or change"),
    "odd groups": ("moco", OF_EIGHT, "a batch of 32 and of 4 batch norm groups, got 8 workers; use 1, 2, 4"),
    "no batch norm": ("moco", (*OF_EIGHT, NOWHERE, "encoder.batch_norm=none"), "resources.address: not an address"),
    "timm, without": ("moco", (*OF_EIGHT, NOWHERE, "encoder.name=timm/test_vit"), "resources.address: not an address"),
    "timm, with": ("moco", (*OF_EIGHT, NOWHERE, "encoder.name=timm/test_resnet"), "a batch of 32 and of 4 batch norm"),
    "groups in one process": (
        "moco",
        ("method.batch_norm_groups=5",),
        "method.batch_norm_groups: must divide the global batch of 32 images, got 5",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_no_worker_could_train_is_refused_before_any_starts(tmp_path: Path, case: str) -> None:
    method, settings, said = REFUSED[case]
    assert said in _refusal(tmp_path, *settings, method=method)


@pytest.mark.parametrize(
    ("workers", "said"),
    [
        *((text, "--workers: not a number of workers") for text in ("two", "1:", ":4", "-1", "1:4:8", "1.5")),
        ("4:2", "resources.max_workers: must exceed workers"),
    ],
)
def test_the_option_takes_a_number_or_a_range(workers, said, tmp_path, capsys):
    assert main(["pretrain", "simclr", f"--workers={workers}", "--runs", str(tmp_path)]) == 2
    assert said in capsys.readouterr().err


def test_another_version_of_ray_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import ray

    def refuse(**arguments: Any) -> None:
        raise RuntimeError("Version mismatch: The cluster was started with:\n    Ray: 2.9.0\n    Python: 3.11.7\n")

    monkeypatch.setattr(ray, "init", refuse)
    monkeypatch.setattr("ray._private.services.canonicalize_bootstrap_address", lambda address: None)
    refusal = _refusal(tmp_path, "resources.workers=1", "resources.address=auto")
    assert "resources.address: auto: Version mismatch: The cluster was started with: Ray: 2.9.0" in refusal
    assert "\n" not in refusal


def test_without_ray_the_way_out_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pretrain_module, "find_spec", lambda name: None)
    assert "Ray is not installed here, got 1; run `pip install 'ray[" in _refusal(tmp_path, "resources.workers=1")


def test_no_method_is_built_before_the_workers_start(tmp_path: Path) -> None:
    class Unbuildable(Simclr):
        def __init__(self, *_: Any) -> None:
            raise AssertionError("a method was built")

    config = ebclab.compose("simclr", overrides=[*TINY, "resources.workers=1", "resources.address=nowhere"])
    with pytest.raises(UserError, match="not an address"):
        ebclab.pretrain(config, runs=tmp_path, name="run", method=Unbuildable)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Return a function that sets what the joined cluster has, and what it may grow to."""
    from ebclab.training.ray_train import launch

    def has(there: list[dict[str, float]], to_come: Sequence[dict[str, float]] = ()) -> None:
        size = [max(sum(node.get(unit, 0) for node in nodes) for nodes in (there, to_come)) for unit in ("CPU", "GPU")]
        monkeypatch.setattr(launch, "cluster_size", lambda: tuple(size))
        monkeypatch.setattr(launch, "nodes", lambda: there)
        monkeypatch.setattr(launch, "nodes_to_come", lambda most: list(to_come))

    return has


def _placed(tmp_path: Path, sizes: tuple[int, ...], *settings: str, streamed: bool = False) -> Placement:
    from ebclab.training.ray_train.launch import _place

    config = ebclab.compose("simclr", overrides=list(settings))
    return _place(RunSpec(RunFolder(tmp_path), config, Simclr, None, ()), sizes, streamed=streamed)


@pytest.mark.parametrize(
    ("there", "to_come", "streamed", "expected"),
    [
        # not three CPUs, of two nodes: Ray would wait for ever
        ([{"CPU": 2.0}] * 2, [], (True,), Placement((1,), 2.0, 0)),
        ([{"CPU": 2.0}] * 2, [], (True,), Placement((2,), 1.0, 0)),
        # the head's CPUs are no use to workers with GPUs
        ([{"CPU": 16.0}, {"CPU": 32.0, "GPU": 8.0}], [], (False, True), Placement((8,), 4.0, 1)),
        ([{}], [{"CPU": 4.0, "GPU": 1.0}] * 4, (False, True), Placement((2,), 4.0, 1)),
    ],
)
def test_a_worker_gets_its_share_of_one_node_that_is_there_or_to_come(
    there: list[dict[str, float]],
    to_come: list[dict[str, float]],
    streamed: tuple[bool, ...],
    expected: Placement,
    tmp_path: Path,
    cluster: Callable[..., None],
) -> None:
    cluster(there, to_come)
    assert [_placed(tmp_path, expected.sizes, streamed=each) for each in streamed] == [expected] * len(streamed)


def test_workers_that_no_node_holds_are_refused(tmp_path: Path, cluster: Callable[..., None]) -> None:
    cluster([{"CPU": 2.0}, {"CPU": 2.0}])
    with pytest.raises(UserError, match="a worker must fit one node, got 1 worker with 3 CPUs each"):
        _placed(tmp_path, (1,), "resources.cpus_per_worker=3")


def test_who_waits_for_machines_is_told_so_each_time_they_are_missing(cluster: Callable[..., None]) -> None:
    from ebclab.training.ray_train.launch import Missing

    notes = Notes()
    missing = Missing(Placement((2, 4), 2.0, 1), notes)
    for number in (1, 1, 2, 0, 0, 4):
        cluster([{"CPU": 8.0}, *[{"CPU": 2.0, "GPU": 1.0}] * number])
        missing.look()
    assert notes.lines == [
        "the cluster's nodes hold 1 of 2 workers now: the run waits for machines",
        "the cluster's nodes hold 0 of 2 workers now: the run waits for machines",
    ]

"""What a launch refuses, asks of Ray and says when Ray gives up. Runs on Ray: tests/integration/test_ray_train.py."""

import socket
import threading
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from small_runs import Notes

import ebclab
from ebclab.cli import main
from ebclab.cluster.placement import Placement
from ebclab.errors import StoreError, TrainingError, UserError
from ebclab.runs import checkpoint
from ebclab.runs.folder import RunFolder
from ebclab.training import pretrain as pretrain_module
from ebclab.training.setup import RunSpec
from energy_contrast.contrastive.simclr import Simclr
from energy_contrast.method import Requirements

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


def test_a_cluster_that_is_not_there_is_refused_before_images_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(*_: Any) -> None:
        raise AssertionError("images were read")

    monkeypatch.setattr("ebclab.training.ray_train.launch.require_labels", read)
    monkeypatch.setattr("ray._private.services.canonicalize_bootstrap_address", lambda address: None)
    named = "resources.workers=1", "resources.address=auto"
    assert _refusal(tmp_path, *named).startswith("resources.address: no cluster runs on this machine, got auto; ")


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
    monkeypatch.setattr("ray._private.services.canonicalize_bootstrap_address", lambda address: "local")
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


def _spec(path: Path, *settings: str) -> RunSpec:
    return RunSpec(RunFolder(path), ebclab.compose("simclr", overrides=[*TINY, *settings]), Simclr, None, ())


@pytest.mark.parametrize(
    ("there", "setting", "gpus"),
    [
        ({"CPU": 8.0, "GPU": 2.0}, "resources.device=auto", 1),
        ({"CPU": 8.0}, "resources.device=auto", 0),
        ({"CPU": 8.0, "GPU": 2.0}, "resources.device=cpu", 0),
        ({"CPU": 8.0, "GPU": 2.0}, "resources.device=cuda", 1),
    ],
)
def test_workers_take_gpus_if_there_are_any_unless_told_not_to(there, setting, gpus, tmp_path, cluster):
    cluster([there])
    assert _placed(tmp_path, (2,), setting) == Placement((2,), 4.0, gpus)
    assert _placed(tmp_path, (2,), setting, "resources.cpus_per_worker=1.5") == Placement((2,), 1.5, gpus)


def test_a_single_gpu_is_taken_too(tmp_path: Path, cluster: Callable[..., None]) -> None:
    cluster([{"CPU": 8.0, "GPU": 1.0}])
    assert _placed(tmp_path, (1,)) == Placement((1,), 8.0, 1)


@pytest.mark.parametrize(
    ("workers", "most", "chunks", "sizes"),
    [(2, 0, 1, (2,)), (2, 9, 1, (2, 4, 8)), (1, 8, 8, (1, 2, 4)), (1, 2, 32, (1,))],
)
def test_numbers_of_workers_split_each_chunk_of_a_batch_of_32(workers, most, chunks, sizes, tmp_path):
    from ebclab.training.ray_train.launch import _sizes

    settings = {"workers": workers, "max_workers": most}
    given = [f"resources.{name}={value}" for name, value in settings.items()]
    spec = _spec(tmp_path, *given, f"training.accumulate={chunks}")
    assert _sizes(spec, Requirements(2)) == sizes


def test_gpus_that_are_asked_for_and_not_there_are_refused(tmp_path: Path, cluster: Callable[..., None]) -> None:
    cluster([{"CPU": 8.0}])
    with pytest.raises(UserError, match=r"2 workers x 1 GPU = 2 GPUs, the cluster has 0"):
        _placed(tmp_path, (2,), "resources.device=cuda")


def test_a_stream_keeps_a_cpu_that_no_worker_has(tmp_path: Path, cluster: Callable[..., None]) -> None:
    cluster([{"CPU": 4.0}])
    assert _placed(tmp_path, (2,), "resources.cpus_per_worker=2") == Placement((2,), 2.0, 0)
    with pytest.raises(UserError, match=r"too few CPUs, got 4 for 2 workers x 2 \+ 1 for Ray Data"):
        _placed(tmp_path, (2,), "resources.cpus_per_worker=2", streamed=True)


def test_workers_are_told_to_save_when_a_machine_will_be_taken_away(tmp_path: Path) -> None:
    from ebclab.training.ray_train.launch import _save_now

    spec, notes = _spec(tmp_path), Notes()
    _save_now(spec, notes, ["10.0.0.7", "10.0.0.8"])
    assert spec.run.save_now.is_set
    assert notes.lines == ["10.0.0.7, 10.0.0.8 will be taken away: the workers save at their next log step"]


@pytest.fixture
def policy(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Return a function that makes the policy of a run on 2, 4 or 8 workers, on a clock and a cluster of its own.

    Ray's own policy, were it asked, would answer "Ray's".
    """
    from ray.train.v2.api.config import ScalingConfig

    from ebclab.training.ray_train import launch

    def made(world: SimpleNamespace, *, streamed: bool = False, remote: object = None) -> Any:
        def newest(seconds: float | None = None) -> str:
            world.asked += 1
            if world.newest is None:
                raise StoreError("no answer")
            return str(world.newest)

        monkeypatch.setattr(launch, "time", SimpleNamespace(monotonic=lambda: world.now))
        monkeypatch.setattr(launch.ray, "cluster_resources", lambda: {"CPU": world.cpus})
        monkeypatch.setattr(launch.ElasticScalingPolicy, "make_decision_for_running_worker_group", lambda *_: "Ray's")
        run: Any = SimpleNamespace(remote=remote, newest_checkpoint=newest)
        scaling = ScalingConfig(num_workers=(2, 8), resources_per_worker={"CPU": 1.0})
        return launch._ElasticPolicy(scaling, Placement((2, 4, 8), 1.0, 0), run, streamed)

    return made


def _resizes(policy: Any, workers: int) -> bool:
    """Return whether a running group of workers is left to Ray's policy, which may resize it."""
    decision = policy.make_decision_for_running_worker_group(SimpleNamespace(num_workers=workers), None)
    assert decision == "Ray's" or type(decision).__name__ == "NoopDecision"
    return bool(decision == "Ray's")


def test_an_elastic_run_is_resized_only_after_a_checkpoint_or_without_cpus(policy: Callable[..., Any]) -> None:
    world = SimpleNamespace(now=0.0, asked=0, newest="last-2", cpus=4.0)
    resident = policy(world)
    assert not _resizes(resident, 4)
    world.newest = "last-4"
    assert [_resizes(resident, 4), _resizes(resident, 4)] == [True, False]
    world.cpus = 3.0
    assert _resizes(resident, 4)
    world.cpus = 4.0
    assert _resizes(policy(world, streamed=True), 4)  # none is left for Ray Data
    world.cpus = 5.0
    assert not _resizes(policy(world, streamed=True), 4)


def test_an_elastic_run_looks_into_a_store_now_and_then_and_outlives_it(policy: Callable[..., Any]) -> None:
    world = SimpleNamespace(now=0.0, asked=0, newest="last-2", cpus=8.0)
    stored = policy(world, remote=object())
    world.newest = "last-4"
    for now, resizes, asked in ((4.9, False, 1), (5.1, True, 2), (5.2, False, 2)):
        world.now = now
        assert (_resizes(stored, 4), world.asked) == (resizes, asked)
    world.now, world.newest = 11.0, None
    assert (_resizes(stored, 4), world.asked) == (False, 3)


@pytest.mark.parametrize(
    ("reserved", "cpus", "streamed", "workers"),
    [(8, 8, False, 8), (7, 8, False, 4), (8, 7, False, 4), (8, 8, True, 4), (1, 8, False, 0), (16, 16, True, 8)],
)
def test_a_new_group_has_the_largest_size_that_fits_and_splits_a_batch(reserved, cpus, streamed, workers, policy):
    world = SimpleNamespace(now=0.0, asked=0, newest="", cpus=float(cpus))
    assert policy(world, streamed=streamed)._count_possible_workers({"node": {"CPU": float(reserved)}}) == workers


def test_what_ray_is_asked_for_is_the_placement(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from ebclab.training.ray_train import launch

    monkeypatch.setattr(launch.TorchTrainer, "_initialize_and_run_controller", lambda _, **arguments: arguments)
    delivering = launch.DatasetsCallback.__new__(launch.DatasetsCallback)
    monkeypatch.setattr(launch.TorchTrainer, "_create_default_callbacks", lambda _: [delivering, "another"])
    spec = _spec(tmp_path, "resources.max_failures=3")
    for placement, workers, each, backend in (
        (Placement((2,), 1.5, 0), 2, {"CPU": 1.5}, "gloo"),
        (Placement((2, 4, 8), 2.0, 1), (2, 8), {"CPU": 2.0, "GPU": 1}, "cpu:gloo,cuda:nccl"),
    ):
        trainer = launch._Trainer(spec, placement, None)
        scaling = trainer.scaling_config
        assert (scaling.num_workers, scaling.resources_per_worker, scaling.use_gpu) == (workers, each, "GPU" in each)
        assert trainer.backend_config.backend == backend
        assert trainer.run_config.failure_config.max_failures == 3
        assert trainer.run_config.storage_path == str(tmp_path / ".ray")
        assert [type(each) for each in trainer.run_config.callbacks] == [launch._TellsDeaths]
        assert trainer._create_default_callbacks() == ["another"]  # without data, nothing that would deliver it
        trainer.datasets = {"train": "a stream"}
        assert trainer._create_default_callbacks() == [delivering, "another"]
        trainer.datasets = {}
        rays = SimpleNamespace(scaling_config=scaling)
        policy = trainer._initialize_and_run_controller(scaling_policy=rays)["scaling_policy"]
        assert isinstance(policy, launch._ElasticPolicy) == placement.elastic
        assert placement.elastic or policy is rays


@pytest.fixture
def launched(tmp_path: Path, cluster: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Return a function that launches a run on a cluster of four CPUs, whose trainer does what a test says."""
    from ebclab.training.ray_train import launch

    cluster([{"CPU": 4.0}])
    run = RunFolder(tmp_path)

    def with_fit(fit: Callable[[], Any], lost: Exception | None = None) -> Any:
        monkeypatch.setattr(launch, "cluster_session", lambda *_: nullcontext(SimpleNamespace(lost=lambda: lost)))
        monkeypatch.setattr(launch, "require_same_versions", lambda: None)
        monkeypatch.setattr(launch, "on_drain", lambda _: nullcontext())
        monkeypatch.setattr(launch, "_Trainer", lambda *_: SimpleNamespace(fit=fit))
        monkeypatch.setattr(launch, "watch", lambda fit, *_: SimpleNamespace(return_value=fit()))
        return launch.launch(_spec(tmp_path, "resources.workers=2", "resources.max_failures=1"), Notes())

    for name in (launch.REFUSAL, launch.DEATHS):
        run.signal(name).write(b"of an earlier launch")
    run.save_now.set()
    return with_fit


def test_a_launch_forgets_what_earlier_ones_left_and_returns_the_result(launched: Callable[..., Any], tmp_path: Path):
    from ebclab.training.ray_train.worker import DEATHS, REFUSAL, WorkerOutcome

    run, summary = RunFolder(tmp_path), object()

    def fit() -> WorkerOutcome:
        assert [run.signal(name).read() for name in (REFUSAL, DEATHS)] == [None, None]
        assert not run.save_now.is_set
        return WorkerOutcome(None, "", summary)  # type: ignore[arg-type]

    assert launched(fit) is summary
    with pytest.raises(StoreError, match=r"^no answer$"):
        launched(lambda: WorkerOutcome("StoreError", "no answer"))


@pytest.mark.parametrize("has_checkpoint", [False, True])
def test_when_ray_gives_up_the_sentence_says_why_and_what_is_kept(has_checkpoint, launched, tmp_path):
    from ray.exceptions import RayError, RayTaskError
    from ray.train.v2.api.exceptions import ControllerError, WorkerGroupError

    from ebclab.training.ray_train.worker import REFUSAL

    def raising(error: Exception, refusal: str = "") -> Callable[[], None]:
        def fit() -> None:
            if refusal:
                RunFolder(tmp_path).signal(REFUSAL).write(refusal.encode())
            raise error

        return fit

    kept = "there is no checkpoint"
    if has_checkpoint:
        checkpoint.save(tmp_path / "checkpoints", "last", checkpoint.Checkpoint(2, {}, {}, {}, {}))
        newest = RunFolder(tmp_path).newest_checkpoint()
        assert newest.endswith("last-0000000002")
        kept = f"the last checkpoint is {newest}; the same command resumes from there"
    failed = WorkerGroupError("long", {1: ValueError("two\nlines"), 0: OSError()})
    at_start = RayTaskError("setup", "Traceback:\nValueError: no GPU", ValueError("no GPU\nfound"))
    twice = "workers failed 2 times, resources.max_failures allows 1; the last time worker 0: OSError: no text; "
    for error, refusal, kind, said in (
        (failed, "", TrainingError, f"{twice}worker 1: ValueError: two; {kept}"),
        (RayError("gone\nfar"), "", TrainingError, f"Ray could not run the workers, got RayError: gone; {kept}"),
        (
            ControllerError(at_start),
            "",
            TrainingError,
            f"Ray could not run the workers, got ValueError: no GPU; {kept}",
        ),
        (failed, '{"kind": "StoreError", "text": "no answer"}', StoreError, "no answer"),
    ):
        with pytest.raises(kind) as raised:
            launched(raising(error, refusal))
        assert (type(raised.value), str(raised.value)) == (kind, said)
    with pytest.raises(UserError, match="the head is gone"):
        launched(raising(failed), lost=UserError("the head is gone"))

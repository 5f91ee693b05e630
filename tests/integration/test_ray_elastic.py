"""A run that may have one to four workers takes what the cluster has, and grows when a machine joins."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from ray_starts import one_start_at_a_time
from run_files import records
from tests.support.waiting import until

import ebclab
from ebclab.data.preparing.write_parquet import prepare_dataset
from ebclab.data.sources.load import load_split
from ebclab.errors import InterruptedRunError
from ebclab.training.display import Listener

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),  # a second instance of Ray in this process
]


@pytest.fixture
def one_machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A cluster of one machine with one CPU, to which others can be added."""
    from ebclab.cluster.switches import set_ray_switches

    set_ray_switches()
    import ray
    from ray.cluster_utils import Cluster

    from ebclab.training.ray_train import launch

    monkeypatch.setattr(launch, "_RESIZE_SECONDS", 2.0)
    head = {"num_cpus": 1, "include_dashboard": False, "include_log_monitor": False}
    with one_start_at_a_time():
        cluster = Cluster(initialize_head=True, head_node_args=head)
    ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
    yield cluster
    ray.shutdown()
    cluster.shutdown()


def _wait_for(run: Path, launches: int) -> None:
    """Wait until workers have begun ``launches`` times and have trained for some steps since."""

    def trained() -> bool:
        begun = [r["step"] for r in records(run, kind="event") if r["event"] in ("started", "resumed")]
        return len(begun) == launches and records(run)[-1]["step"] >= begun[-1] + 6

    until(trained, pause=0.1)


@contextmanager
def _training(run: Path, *settings: str) -> Iterator[None]:
    """Train for ever in a thread, with at least one worker; ask the run to stop at the end."""
    tiny = ["data.train_limit=96", "training.batch_size=32", "training.epochs=100000", "resources.threads=1"]
    workers = ["resources.workers=1", "resources.cpus_per_worker=1"]
    config = ebclab.compose("simclr", overrides=[*tiny, *workers, *settings])
    ended: list[Exception] = []

    def train() -> None:
        try:
            ebclab.pretrain(config, runs=run.parent, name=run.name, display=Listener())
        except InterruptedRunError as error:
            ended.append(error)

    thread = threading.Thread(target=train)
    thread.start()
    try:
        yield
    finally:
        (run / ".stop").touch()
        thread.join(timeout=300)
    assert "everything is saved" in str(ended[0])


def test_a_streamed_run_takes_a_machine_that_joins_and_goes_on_without_one_that_leaves(
    one_machine: Any, tmp_path: Path
) -> None:
    prepare_dataset({"train": load_split("digits", None, "train")}, tmp_path / "digits")
    one_machine.add_node(num_cpus=1)  # two CPUs: a worker and Ray Data
    run = tmp_path / "run"
    stream = [f"data.name=parquet:{tmp_path / 'digits'}", "data.delivery=stream", "views.recipe=digits"]
    with _training(run, *stream, "resources.max_workers=4"):
        _wait_for(run, launches=1)
        joined = one_machine.add_node(num_cpus=2)  # Ray Data's and three more, but three do not split a batch of 32
        _wait_for(run, launches=2)
        one_machine.remove_node(joined)  # three CPUs are in use: it held at least one of them
        _wait_for(run, launches=3)

    changes = records(run, event="ranks_changed")
    assert [(change["before"], change["now"]) for change in changes] == [(1, 2), (2, 1)]
    resumed = [record["step"] for record in records(run, event="resumed")]
    assert len(resumed) == 2
    assert all(step % 2 == 0 for step in resumed)  # from checkpoints at an epoch's end
    epochs = [record["step"] for record in records(run, kind="epoch")]
    assert epochs == list(range(2, epochs[-1] + 1, 2))  # nothing is left out, nothing is told twice

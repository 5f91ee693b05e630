"""A machine on notice: what is saved and when, in one process and in two, and that all ranks hear when it cannot be."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Never

import pytest
from small_runs import At, one_folder, records_of, train_as

from ebclab.cluster.placement import Placement
from ebclab.cluster.versions import Origin
from ebclab.config import compose, to_yaml
from ebclab.errors import RunError
from ebclab.runs import checkpoint
from ebclab.runs.folder import RunFolder
from ebclab.runs.stop_request import FileRequest
from ebclab.storage import atomic
from ebclab.storage.mirror import Syncer
from ebclab.storage.object_store import RemoteFolder
from ebclab.storage.signal_file import StoredSignal
from ebclab.training.process_group import ALONE, Ranks
from ebclab.training.ray_train.worker import train_on_worker
from ebclab.training.setup import RunSpec
from energy_contrast.catalog import METHODS

TINY = [  # two steps an epoch
    *("data.train_limit=72", "training.batch_size=32", "resources.threads=1", "training.epochs=3"),
    *("training.checkpoint_every=100", "evaluation.knn_every=0", "encoder.width=4"),
]
OFTEN = "training.log_every=1"


def train(run: RunFolder, *overrides: str, ranks: Ranks = ALONE, notice: int = -1) -> dict[str, Any]:
    """Train as one of ``ranks``; return what is known in the end, a refusal included."""
    config = compose("simclr", overrides=[*TINY, *overrides])
    run.path.mkdir(parents=True, exist_ok=True)
    training, refused = train_as(ranks, run, config, At(notice, run.save_now.set))
    return {"step": training.step, "refused": str(refused or ""), "early": early(run.path)}


def early(path: Path) -> list[int]:
    """Return the steps at which a notice was heeded, as metrics.jsonl tells."""
    if not (path / "metrics.jsonl").exists():
        return []
    return [record["step"] for record in records_of(path, "event", "saved_early")]


@pytest.mark.parametrize(("step", "log_every"), [(3, 1), (2, 1), (2, 100)])
def test_checkpoint_and_event_are_in_the_store_before_the_notice_is_forgotten(
    step: int, log_every: int, remote: RemoteFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = tmp_path / "store" / "run"
    forgotten: list[tuple[int, list[int]]] = []

    def look(request: FileRequest) -> None:
        forgotten.append((checkpoint.newest_step(there / "checkpoints"), early(there)))
        usual(request)

    usual = FileRequest.clear
    monkeypatch.setattr(StoredSignal, "pause", 0.0)
    monkeypatch.setattr(FileRequest, "clear", look)
    run = RunFolder(remote.cache, remote)
    ended = train(run, f"training.log_every={log_every}", notice=step)
    assert forgotten == [(step, [step])]
    assert ended == {"step": 6, "refused": "", "early": [step]}
    assert not run.save_now.is_set
    assert {path.name for path in (there / "checkpoints").iterdir()} == {f"last-{step:010d}", "last-0000000006"}


@pytest.fixture
def pushed(remote: RemoteFolder, monkeypatch: pytest.MonkeyPatch) -> list[tuple[set[str], list[int]]]:
    """Return the checkpoints and the scored steps that each upload is to bring to the store."""
    found: list[tuple[set[str], list[int]]] = []
    run = RunFolder(remote.cache, remote)

    def look(syncer: Syncer) -> None:
        if threading.current_thread() is threading.main_thread():
            scored = [record["step"] for record in run.metrics.records() if record["kind"] == "epoch"]
            found.append(({path.name for path in run.checkpoints.iterdir()}, scored))
        usual(syncer)

    usual = Syncer.push
    monkeypatch.setattr(Syncer, "push", look)
    return found


def test_an_epoch_is_uploaded_once_with_its_scores_and_checkpoints(remote, pushed):
    every_epoch = ["evaluation.knn_every=1", "training.keep_every=1", "training.checkpoint_every=1"]
    train(RunFolder(remote.cache, remote), *every_epoch, "training.epochs=2", "data.holdout_rate=0.1")
    first, second, end = pushed
    assert first == ({"best-0000000002", "kept-0000000002", "last-0000000002"}, [2])
    assert (second[1], end[1]) == ([2, 4], [2, 4])
    assert {"kept-0000000004", "last-0000000004"} < second[0]


def test_an_epoch_without_a_checkpoint_waits_for_no_store(remote, pushed):
    train(RunFolder(remote.cache, remote))
    assert pushed == [({"last-0000000006"}, [])] * 2  # with the checkpoint of the last epoch, and with the result


def _refuse(*_: object, **__: object) -> Never:
    raise RunError("s3://runs/x: no permission")


FAULTS: dict[str, tuple[Any, str, int]] = {  # what refuses, and the step at which all must stop
    "the checkpoint cannot be saved": (checkpoint, "save", 3),
    "the notice cannot be taken away": (FileRequest, "clear", 3),
}


def enter(run: RunFolder, rank: int) -> tuple[str | None, str]:
    """Train as a worker where rank 0 alone cannot pull the run; return the kind of its error and its sentence."""
    config = compose("simclr", overrides=TINY)
    run.path.mkdir(exist_ok=True)
    atomic.write_text(run.config_path, to_yaml(config))
    with pytest.MonkeyPatch.context() as patch:
        if rank == 0:
            patch.setattr(RunFolder, "pull", _refuse)
        spec = RunSpec(run, config, METHODS["simclr"], None, ())
        ended = train_on_worker(spec, Placement((2,), 1, 0), Origin.here())
    return ended.kind, ended.text


def be_a_rank(rank: int, num_ranks: int) -> dict[str, Any]:
    """Train as one of ``num_ranks`` processes, once without a fault and once with each of ``FAULTS`` on rank 0."""
    ranks = Ranks.of_process_group()
    found: dict[str, Any] = {}
    with one_folder() as folder:
        found["no fault"] = train(RunFolder(folder / "no fault"), OFTEN, ranks=ranks, notice=3)
        for name, (owner, attribute, _) in FAULTS.items():
            with pytest.MonkeyPatch.context() as patch:
                if rank == 0:
                    patch.setattr(owner, attribute, _refuse)
                found[name] = train(RunFolder(folder / name), OFTEN, ranks=ranks, notice=3)
        found["entering"] = enter(RunFolder(folder / "entering"), rank)
    return found


@pytest.fixture(scope="module")
def both(run_ranks: Callable[[str, int], list[Any]]) -> list[dict[str, Any]]:
    """Return how the runs of each of two ranks ended."""
    return run_ranks(__file__, 2)


def test_two_ranks_save_between_epochs_and_go_on(both: list[dict[str, Any]]) -> None:
    for found in both:
        assert found["no fault"] == {"step": 6, "refused": "", "early": [3]}


def test_a_store_that_rank_0_alone_cannot_read_ends_both_before_they_train(both: list[dict[str, Any]]) -> None:
    for found in both:
        assert found["entering"] == ("UserError", "s3://runs/x: no permission")


@pytest.mark.parametrize("fault", FAULTS)
def test_what_rank_0_is_refused_ends_both_at_the_same_step(fault: str, both: list[dict[str, Any]]) -> None:
    _, _, step = FAULTS[fault]
    for found in both:
        assert (found[fault]["step"], found[fault]["refused"]) == (step, "s3://runs/x: no permission")

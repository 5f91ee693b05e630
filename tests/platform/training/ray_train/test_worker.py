"""What a worker does before it trains: it reads why those before it gave up."""

import json
import os
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from made_up_images import encoded, pixels, put
from ray.core.generated.common_pb2 import ActorDiedErrorContext
from ray.exceptions import ActorDiedError, OutOfMemoryError
from ray.train.v2._internal.exceptions import WorkerHealthCheckFailedError
from small_runs import records_of

from ebclab.cluster.placement import Placement
from ebclab.config import compose, to_yaml
from ebclab.errors import MethodError
from ebclab.runs.folder import RunFolder
from ebclab.training.process_group import ALONE, Ranks
from ebclab.training.ray_train import worker
from ebclab.training.ray_train.launch import _TellsDeaths
from ebclab.training.ray_train.worker import REFUSAL, WorkerOutcome, _log_deaths, _prepared, train_on_worker
from ebclab.training.setup import RunSpec
from energy_contrast.catalog import METHODS

NONE: Any = None  # a worker that gives up looks at nothing else


@pytest.fixture
def refusal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(worker, "_require_run", lambda *_: None)
    monkeypatch.setattr(worker, "watched", lambda *_, **__: nullcontext())  # pytest watches its own process
    monkeypatch.setattr(Ranks, "of_process_group", classmethod(lambda cls: ALONE))
    return tmp_path / REFUSAL


def _outcome(folder: Path) -> WorkerOutcome:
    spec = RunSpec(RunFolder.at(folder), compose("simclr"), METHODS["simclr"], None, ())
    return train_on_worker(spec, NONE, NONE)


def test_a_worker_that_was_started_again_returns_the_sentence_of_the_one_before(refusal: Path) -> None:
    refusal.write_text(json.dumps({"kind": "UserError", "text": "a.png: cannot be decoded"}))
    assert _outcome(refusal.parent) == WorkerOutcome("UserError", "a.png: cannot be decoded")


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"{}", b"\xff", b'{"kind": "x", "text": 3}', b"[" * 9999])
def test_a_damaged_sentence_is_one_of_its_own(refusal: Path, content: bytes) -> None:
    refusal.write_bytes(content)
    outcome = _outcome(refusal.parent)
    assert outcome.kind == "UserError"
    assert outcome.text.startswith(f"{refusal.parent}: {REFUSAL} cannot be read, got ")


@pytest.mark.parametrize(
    ("cause", "ends_all"),
    [(KeyError("x"), True), (NotImplementedError("x"), True), (RuntimeError("Connection closed by peer"), False)],
)
def test_a_method_of_the_users_own_that_fails_ends_all_ranks_unless_another_one_may_have_left(
    refusal: Path, monkeypatch: pytest.MonkeyPatch, cause: Exception, ends_all: bool
) -> None:
    def fail(*_: Any) -> None:
        raise MethodError("Mine failed (mine.py, line 3)") from cause

    monkeypatch.setattr(Ranks, "of_process_group", classmethod(lambda cls: Ranks(0, 2)))
    monkeypatch.setattr(Ranks, "together", lambda ranks, work: work())
    monkeypatch.setattr(worker, "_prepared", fail)
    with pytest.raises(RuntimeError, match=r"^Mine failed \(mine.py, line 3\)"):  # the others wait: Ray ends them
        _outcome(refusal.parent)
    assert refusal.exists() == ends_all
    if ends_all:
        assert _outcome(refusal.parent) == WorkerOutcome("UserError", "Mine failed (mine.py, line 3)")


def test_a_method_of_the_users_own_that_fails_alone_is_not_started_again(refusal, monkeypatch):
    def fail(*_: Any) -> None:
        raise MethodError("Mine failed (mine.py, line 3)") from RuntimeError("shapes cannot be multiplied")

    monkeypatch.setattr(Ranks, "of_process_group", classmethod(lambda cls: ALONE))
    monkeypatch.setattr(worker, "_prepared", fail)
    assert _outcome(refusal.parent) == WorkerOutcome("UserError", "Mine failed (mine.py, line 3)")
    assert not refusal.exists()


def test_how_workers_died_is_a_warning_of_those_that_are_started_after_them(tmp_path, caplog):
    run = RunFolder.at(tmp_path)
    context = ActorDiedErrorContext(actor_id=bytes(16), pid=41, node_ip_address="10.0.0.7", error_message="It is dead.")
    rays = ActorDiedError(context)
    lost = RuntimeError("Connection closed by peer\nand more")
    _TellsDeaths(run).after_exception(None, {1: WorkerHealthCheckFailedError("unhealthy", failure=rays), 0: lost})
    _log_deaths(run)
    # the death first: `runs show` has the beginning of a long line
    told = "worker 1: its process died (process 41 on 10.0.0.7); worker 0: RuntimeError: Connection closed by peer"
    assert caplog.messages == [f"{told}; the workers were started again"]
    _log_deaths(run)
    assert len(caplog.messages) == 1
    put(run.ray / "worker-1.json", json.dumps({"pid": 41, "host": "there", "ranks": 2, "kernel_kills": {}}))
    put(run.ray / "worker-1.fault", 'Fatal Python error: Bus error\n\n  File "mine.py", line 3 in forward\n')
    full = OutOfMemoryError("Memory on the node was 15GB used / 16GB limit\nand more")
    _TellsDeaths(run).after_exception(
        None, {rank: WorkerHealthCheckFailedError("unhealthy", failure=each) for rank, each in enumerate((full, rays))}
    )
    _log_deaths(run)
    told = (
        "worker 0: Ray ended its process, out of memory: Memory on the node was 15GB used / 16GB limit; "
        "worker 1: its process died (process 41 on 10.0.0.7): Bus error (SIGBUS) in forward (mine.py, line 3)"
    )
    assert caplog.messages[1] == f"{told}; the workers were started again"


@pytest.mark.parametrize("rank", [0, 1])
def test_how_many_images_were_left_out_is_an_event_of_the_run_from_the_first_worker_alone(tmp_path, rank):
    images, run = tmp_path / "images", RunFolder.at(tmp_path / "run")
    for number in range(41):
        put(images / f"{number}.png", encoded(pixels(number, 8, 8))[: 60 if number == 0 else None])
    few = ["training.batch_size=8", "resources.workers=2", "data.skip_corrupt=true", "views.recipe=flatclr-cifar"]
    config = compose("simclr", overrides=[f"data.name=folder:{images}", *few])
    put(run.config_path, to_yaml(config))
    spec = RunSpec(run, config, METHODS["simclr"], None, ())
    _prepared(spec, Placement((2,), 1.0, 0), replace(ALONE, rank=rank, world_size=2), None)
    events = records_of(run.path, "event", "warning") if rank == 0 else []
    assert [each["text"].partition(" (")[0] for each in events] == ["1 of 41 images left out"] * (rank == 0)
    assert run.metrics.path.exists() == (rank == 0)
    assert not run.has_begun()  # a launch that is refused now leaves no folder behind


def test_a_pipe_in_its_place_does_not_hold_it_up(refusal: Path) -> None:
    os.mkfifo(refusal)
    outcome = _outcome(refusal.parent)
    assert outcome == WorkerOutcome(
        "UserError", f"{refusal}: cannot be read, got a pipe or a device, not a file; delete it"
    )

"""Runs whose energies go wrong: they go back, go on with a smaller step, log it, or stop for good."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch
from small_runs import Killed, Notes, records_of, saved_in
from torch import Tensor

import ebclab
from ebclab.config import compose
from ebclab.errors import DivergedError
from ebclab.runs import checkpoint
from ebclab.runs.folder import RunFolder
from ebclab.training.display import Listener
from ebclab.training.health.policy import HealthRecord
from ebclab.training.pretrain import RunResult
from ebclab.training.recorder import Recorder
from ebclab.training.rollback import RollbackController
from ebclab.training.setup import prepare
from energy_contrast.energy_based.vem_bank import VemLangevin

TINY = [
    *("data.train_limit=72", "training.batch_size=32", "resources.threads=1", "training.log_every=1"),
    *("views.normalisation=half", "encoder.batch_norm=none", "optimizer.schedule=constant", "evaluation.knn_every=0"),
    "encoder.width=4",
]
EBCLR = ["method.buffer_size=64", "method.num_steps=2", "method.reinit_rate=0.5"]
TOO_FAR = 2000.0  # pixel range: chains leave it with the first step
MUCH_NOISE = ["method.sigma_min=20", "method.sigma_max=20"]  # which no smaller step cures


def run(
    runs: Path, name: str, *overrides: str, method: str = "ebclr", epochs: int = 2, display: Listener | None = None
) -> RunResult:
    settings = [*TINY, *(EBCLR if method == "ebclr" else []), f"training.epochs={epochs}", *overrides]
    config = compose(method, overrides=settings)
    return ebclab.pretrain(config, runs=runs, name=name, display=display or Listener())


def weights(result: RunResult) -> dict[str, Tensor]:
    return {name: value for name, value in saved_in(result.path).model.items() if name != "step_scale"}


def health_of(path: Path) -> list[dict[str, Any]]:
    return records_of(path, "event", "health")


def test_a_run_that_went_back_to_its_start_is_that_with_the_smaller_step(tmp_path: Path) -> None:
    notes = Notes()
    healed = run(tmp_path, "healed", f"method.step_size={TOO_FAR}", display=notes)
    (event,) = healed.result["health"]
    assert (event["action"], event["step"], event["to_step"], event["step_scale"]) == ("roll_back", 2, 0, 0.25)
    assert event["reason"].startswith("chain_saturation 0.9")
    small = run(tmp_path, "small", f"method.step_size={TOO_FAR / 4}", "training.health=none")
    torch.testing.assert_close(weights(healed), weights(small), rtol=0, atol=0)
    assert healed.result["steps"] == small.result["steps"] == 4
    logged = [record["step"] for record in records_of(healed.path, "train")]
    assert logged == [1, 2, 3, 4]  # what was undone is forgotten
    assert [{"kind": "event", "event": "health", **event}] == health_of(healed.path)
    assert any("went back to step 0" in line for line in notes.lines)


def test_a_run_that_nothing_heals_stops_and_keeps_its_healthy_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(DivergedError, match="after going back 3 times") as caught:
        run(tmp_path, "unhealthy", *MUCH_NOISE, epochs=4)
    assert caught.value.exit_code == 1
    assert "method.step_size" in str(caught.value)
    assert [event["action"] for event in health_of(tmp_path / "unhealthy")] == ["roll_back"] * 3 + ["stop"]
    assert [path.name for path in (tmp_path / "unhealthy" / "checkpoints").iterdir()] == ["last-0000000000.003"]
    assert not (tmp_path / "unhealthy" / "result.json").exists()


def test_watching_says_what_it_would_do_and_changes_no_bit(tmp_path: Path) -> None:
    watched = run(tmp_path, "watched", *MUCH_NOISE, "training.health=watch")
    off = run(tmp_path, "off", *MUCH_NOISE, "training.health=none")
    torch.testing.assert_close(weights(watched), weights(off), rtol=0, atol=0)
    assert [(event["action"], event["acted"]) for event in watched.result["health"]] == [("roll_back", False)]
    assert off.result["health"] == []


def test_a_run_that_was_interrupted_decides_as_one_that_was_not(tmp_path: Path) -> None:
    strange = ["method.sigma_min=1.5", "method.sigma_max=1.5"]  # but not unhealthy
    straight = run(tmp_path, "straight", *strange, epochs=6)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, "parts", *strange, epochs=6, display=Killed(3))
    parts = run(tmp_path, "parts", *strange, epochs=6)
    assert [event["action"] for event in straight.result["health"]] == ["lower_step", "lower_step"]
    assert parts.result["health"] == straight.result["health"]
    torch.testing.assert_close(weights(parts), weights(straight), rtol=0, atol=0)


def test_a_method_that_samples_nothing_has_nothing_to_go_back_to(tmp_path: Path) -> None:
    result = run(tmp_path, "plain", method="simclr")
    assert result.result["health"] == []
    assert not (result.path / "checkpoints" / "last-0000000000").exists()


def test_a_best_checkpoint_of_a_time_that_was_undone_is_forgotten(tmp_path: Path) -> None:
    saved: list[Any] = []

    def remember(recorder: Recorder, *arguments: Any) -> None:
        original(recorder, *arguments)
        saved.append(recorder.best)

    original = Recorder.return_to
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Recorder, "return_to", remember)
        healed = run(tmp_path, "healed", f"method.step_size={TOO_FAR}", "evaluation.knn_every=1")
    assert saved == [None]
    assert healed.result["best"]["step"] in (2, 4)
    assert saved_in(healed.path, "best").step == healed.result["best"]["step"]


def test_a_step_that_was_lowered_since_the_checkpoint_gets_smaller_still(tmp_path: Path) -> None:
    config = compose("vem-langevin", overrides=[*TINY, "method.bank_size=32"])
    training = prepare(config, torch.device("cpu"), None, VemLangevin).training
    method, record = training.method, HealthRecord()
    state = {**training.state(), "best": {}, "seconds": 1.0, "metrics": None, "health": asdict(record)}
    facts = {"healthy": True, "epochs_done": 1, "scores": {}}
    saved = checkpoint.Checkpoint(2, facts, method.state_dict(), state, {})
    checkpoint.save(tmp_path / "checkpoints", "last", saved)
    training.step, record.step_scale = 6, 0.5
    method.scale_step(0.5)
    rollback = RollbackController(RunFolder(tmp_path), training, record, None, "act")
    rollback.add({"loss": float("nan")})
    assert not rollback.end_epoch()
    assert training.step == 2
    assert record.step_scale == method.step_scale.item() == 0.5 * 0.25
    (event,) = record.events
    assert (event["action"], event["step"], event["to_step"], event["step_scale"]) == ("roll_back", 6, 2, 0.125)

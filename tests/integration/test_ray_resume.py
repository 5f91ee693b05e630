"""Two workers that were stopped or killed and started again end where two undisturbed ones do.

The promise is equality to rounding. Of two numbers there is one sum, whoever adds them: with two workers even the bits
are equal.
"""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from safetensors.torch import load_file

import ebclab
from ebclab.errors import InterruptedRunError
from ebclab.training.display import SilentDisplay
from energy_contrast.catalog import METHODS
from energy_contrast.method import Method, Progress

TINY = ["data.train_limit=110", "training.batch_size=32", "resources.threads=1", "training.log_every=1"]
EPOCHS = 4
NUM_STEPS = 12
STOP_AT = 5  # within the second epoch of three steps

CASES = {"moco": ["method.queue_size=44"], "flatclr": ["method.ess_target=0.4", "optimizer.name=adam"]}


class Undisturbed(NamedTuple):
    """What two workers find when nothing happens to them."""

    method: str
    weights: dict[str, torch.Tensor]
    score: float


def disturbed(name: str, run: Path, how: str) -> type[Method]:
    """Return a method that, once, asks its run to stop or loses its second worker at a step within an epoch."""
    marker, parent = run.with_name(f"{run.name}.disturbed"), METHODS[name]

    class Disturbed(parent):  # type: ignore[misc, valid-type]
        def after_step(self, progress: Progress) -> None:
            super().after_step(progress)
            if progress.step != STOP_AT or marker.exists():
                return
            if how == "stopped" and torch.distributed.get_rank() == 0:
                marker.touch()
                (run / ".stop").touch()
            if how == "killed" and torch.distributed.get_rank() == 1:
                marker.touch()
                os.kill(os.getpid(), signal.SIGKILL)

    return Disturbed


def _pretrain(run: Path, method: str, how: str = "") -> dict[str, Any]:
    overrides = [*TINY, f"training.epochs={EPOCHS}", "resources.workers=2", *CASES[method]]
    config = ebclab.compose(method, overrides=overrides)
    method_class = disturbed(method, run, how) if how else None
    options = {"runs": run.parent, "name": run.name, "method": method_class, "display": SilentDisplay()}
    return ebclab.pretrain(config, **options).result


def _records(run: Path, event: str) -> list[dict[str, Any]]:
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    return [record for record in records if record.get("event") == event]


def _weights(run: Path) -> dict[str, torch.Tensor]:
    return load_file(sorted((run / "checkpoints").glob("last-*"))[-1] / "model.safetensors")


@pytest.fixture(scope="module", params=list(CASES))
def undisturbed(request: pytest.FixtureRequest, cluster: str, tmp_path_factory: pytest.TempPathFactory) -> Undisturbed:
    """A method and its run that nobody touched."""
    run = tmp_path_factory.mktemp(request.param) / "run"
    result = _pretrain(run, request.param)
    assert result["steps"] == NUM_STEPS
    return Undisturbed(request.param, _weights(run), result["scores"]["holdout_knn"])


def _assert_same(run: Path, result: dict[str, Any], undisturbed: Undisturbed) -> None:
    found = _weights(run)
    for name, tensor in undisturbed.weights.items():
        assert torch.equal(found[name], tensor), name
    assert result["scores"]["holdout_knn"] == undisturbed.score


def test_two_workers_stopped_within_an_epoch_go_on_at_the_very_step(undisturbed: Undisturbed, tmp_path: Path) -> None:
    run = tmp_path / "run"
    with pytest.raises(InterruptedRunError, match=f"stopped at step {STOP_AT} of {NUM_STEPS}"):
        _pretrain(run, undisturbed.method, "stopped")
    result = _pretrain(run, undisturbed.method, "stopped")
    assert [(record["step"], record["ranks"]) for record in _records(run, "resumed")] == [(STOP_AT, 2)]
    _assert_same(run, result, undisturbed)


def test_two_workers_of_which_one_is_killed_go_on_at_the_last_epoch_s_end(
    undisturbed: Undisturbed, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    result = _pretrain(run, undisturbed.method, "killed")
    assert [(record["step"], record["ranks"]) for record in _records(run, "resumed")] == [(3, 2)]
    _assert_same(run, result, undisturbed)

"""Two ranks whose energies go wrong: they go back together, and go on as one run."""

import itertools
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from small_runs import one_folder, records_of, train_as
from torch import Tensor

from ebclab.config import compose
from ebclab.runs.checkpoint import Checkpoint
from ebclab.runs.folder import RunFolder
from ebclab.storage.object_store import COPIES, RemoteFolder
from ebclab.training.process_group import ALONE, Ranks
from ebclab.training.recorder import Recorder
from energy_contrast.energy_based.vem_bank import VemLangevin

TINY = [
    *("data.train_limit=72", "training.batch_size=32", "resources.threads=1", "training.log_every=1"),
    *("views.normalisation=half", "encoder.batch_norm=none", "optimizer.schedule=constant", "evaluation.knn_every=0"),
    "encoder.width=4",
]
EBCLR = ["method.buffer_size=64", "method.num_steps=2", "method.reinit_rate=0.5"]
TOO_FAR = 2000.0  # pixel range: chains leave it with the first step
RUNS: dict[str, tuple[str, list[str]]] = {
    "healed": ("ebclr", [*EBCLR, "training.epochs=2", f"method.step_size={TOO_FAR}"]),
    "small": ("ebclr", [*EBCLR, "training.epochs=2", f"method.step_size={TOO_FAR / 4}", "training.health=none"]),
    "not finite on one rank": ("vem-langevin", ["training.epochs=2", "method.bank_size=32"]),
    "incurable": ("ebclr", [*EBCLR, "training.epochs=4", "method.sigma_min=20", "method.sigma_max=20"]),
}


def run(
    name: str, folder: Path, ranks: Ranks, *, replayable: bool = True, remote: RemoteFolder | None = None
) -> dict[str, Any]:
    """Train one of ``RUNS``, in ``folder`` or in a store, and return what this rank holds in the end."""
    method, overrides = RUNS[name]
    config = compose(method, overrides=[*TINY, *overrides])
    place = RunFolder.at(remote or folder / name)
    training, refused = train_as(ranks, place, config, replayable=replayable)
    memories = {
        f"{name}.{key}": value
        for name, memory in training.method.memories.items()
        for key, value in memory.state_dict().items()
    }
    return {
        "step": training.step,
        "state": {**training.method.state_dict(), **memories},
        "generator": training.generator.get_state(),
        "momenta": [state["momentum_buffer"] for state in training.optimizer.state.values()],
        "refused": str(refused or ""),
        "events": records_of(place.path, "event", "health") if ranks.rank == 0 else [],
    }


def break_rank_1() -> None:
    """Let rank 1 alone measure what is no number, once, in the fourth step."""
    usual, calls = VemLangevin._measure_bank, itertools.count(1)

    def measured(method: VemLangevin, query: Tensor, moved: Tensor) -> dict[str, Tensor]:
        found = usual(method, query, moved)
        return {**found, "bank_cosine": query.new_tensor(torch.nan)} if next(calls) == 4 else found

    VemLangevin._measure_bank = measured


def be_a_rank(rank: int, num_ranks: int) -> dict[str, Any]:
    """Train every run as one of ``num_ranks`` processes."""
    if rank == 1:
        break_rank_1()
    ranks = Ranks.of_process_group()
    with one_folder() as folder, tempfile.TemporaryDirectory() as own:
        found = {name: run(name, folder, ranks) for name in RUNS}
        os.environ[COPIES] = own  # as on two machines: this rank's alone, and empty
        (folder / "store").mkdir(exist_ok=True)
        found["healed in a store"] = run("healed", folder, ranks, remote=RemoteFolder(f"file://{folder}/store", "run"))
        return found


@pytest.fixture(scope="module")
def both(run_ranks: Callable[[str, int], list[Any]]) -> list[dict[str, dict[str, Any]]]:
    """Return what each of two ranks held in the end of each run."""
    return run_ranks(__file__, 2)


@pytest.mark.parametrize("name", [*RUNS, "healed in a store"])
def test_both_ranks_end_in_the_same_state_at_the_same_step(both: list[dict[str, dict[str, Any]]], name: str) -> None:
    zero, one = (found[name] for found in both)
    for what in ("state", "momenta", "generator"):
        torch.testing.assert_close(one[what], zero[what], rtol=0, atol=0)
    assert (one["step"], one["refused"]) == (zero["step"], zero["refused"])


def test_two_ranks_that_went_back_as_one_does_are_two_with_the_smaller_step(both):
    healed, small = ({**both[0][name], "state": dict(both[0][name]["state"])} for name in ("healed", "small"))
    (event,) = healed["events"]
    assert (event["action"], event["step"], event["to_step"], event["step_scale"]) == ("roll_back", 2, 0, 0.25)
    assert (healed["state"].pop("step_scale"), small["state"].pop("step_scale")) == (0.25, 1.0)
    for what in ("state", "momenta", "generator"):
        torch.testing.assert_close(healed[what], small[what], rtol=0, atol=0)
    assert healed["step"] == small["step"] == 4


def test_ranks_with_copies_of_their_own_go_back_by_what_rank_0_has(both: list[dict[str, dict[str, Any]]]) -> None:
    (event,) = both[0]["healed in a store"]["events"]
    assert (event["action"], event["step"], event["to_step"]) == ("roll_back", 2, 0)
    for found in both:
        for what in ("state", "momenta", "generator"):
            torch.testing.assert_close(found["healed in a store"][what], found["healed"][what], rtol=0, atol=0)


def test_what_one_rank_measures_sends_both_back(both: list[dict[str, dict[str, Any]]]) -> None:
    zero, one = (found["not finite on one rank"] for found in both)
    (event,) = zero["events"]
    assert (event["step"], event["to_step"], event["reason"]) == (4, 2, "step 4: bank_cosine = nan")
    assert zero["step"] == one["step"] == 4


def test_what_nothing_heals_stops_both_with_the_same_sentence(both: list[dict[str, dict[str, Any]]]) -> None:
    zero, one = (found["incurable"] for found in both)
    assert "after going back 3 times" in zero["refused"]
    assert one["refused"] == zero["refused"]
    assert [event["action"] for event in zero["events"]] == ["roll_back"] * 3 + ["stop"]


def test_where_batches_come_once_the_weights_go_back_and_the_step_does_not(tmp_path, monkeypatch):
    weights: list[bool] = []

    def look(recorder: Recorder, saved: Checkpoint) -> None:
        now = recorder.training.method.state_dict()
        weights.append(
            saved.step == 0 and all(torch.equal(now[n], v) for n, v in saved.model.items() if n != "step_scale")
        )
        usual(recorder, saved)

    usual = Recorder.return_to
    monkeypatch.setattr(Recorder, "return_to", look)
    ended = run("healed", tmp_path, ALONE, replayable=False)
    (event,) = ended["events"]
    assert (event["action"], event["step"], event["to_step"], event["step_scale"]) == ("roll_back", 2, 2, 0.25)
    assert weights == [True]
    assert ended["step"] == 4

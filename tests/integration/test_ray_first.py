"""Ray in the first tier, on the shared instance: a run, a sweep, a card, and what a cluster cannot hold."""

from __future__ import annotations

import os
import pty
import shutil
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from run_files import records, same_bits, weights

import ebclab
from ebclab.card.evaluate import measure_cards
from ebclab.card.request import CardRequest
from ebclab.card.side_by_side import Cards
from ebclab.errors import UserError
from ebclab.sweeps.display import SweepDisplay, choose_sweep_display
from ebclab.sweeps.resources import Limits

from .test_ray_sweep import _plan
from .test_ray_train import _pretrain


def test_one_worker_gives_the_bits_of_a_run_in_this_process_from_given_weights_with_a_network_of_timm(
    cluster: str, tmp_path: Path
) -> None:
    timms = ["encoder.name=timm/test_resnet", "evaluation.knn_every=0"]
    donor = _pretrain(tmp_path, "donor", 0, 1, *timms, "seed=3")
    here, ray = (
        _pretrain(tmp_path, name, workers, 2, *timms, f"init.weights={donor.path}")
        for name, workers in (("here", 0), ("ray", 1))
    )
    assert same_bits(ray.path, weights(here.path))
    timed = {"seconds", "images_per_second"}
    logs = [
        [{k: v for k, v in r.items() if k not in timed} for r in records(run.path) if r["kind"] != "event"]
        for run in (here, ray)
    ]
    assert logs[0] == logs[1]
    assert ray.result["steps"] == here.result["steps"] == 4


def test_a_cluster_that_is_too_small_is_refused_with_the_sum(cluster: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"4 workers x 1 CPU = 4 CPUs, the cluster has 2; "):
        _pretrain(tmp_path, "run", 4, 1)
    with pytest.raises(UserError, match=r"2 workers x 1 GPU = 2 GPUs, the cluster has 0; "):
        _pretrain(tmp_path, "run", 2, 1, "resources.device=cuda")
    assert list(tmp_path.iterdir()) == []


def test_a_sweep_in_a_terminal_shows_a_table(cluster: str, tmp_path: Path) -> None:
    terminal, inside = pty.openpty()  # Ray pickles what it is given, and a terminal cannot be pickled
    seen: list[bytes] = []

    def read() -> None:  # meanwhile: a terminal that nobody reads is full after some drawings
        with suppress(OSError):  # the other end is closed
            while data := os.read(terminal, 65_536):
                seen.append(data)

    reader = threading.Thread(target=read)
    reader.start()
    with os.fdopen(inside, "w") as stream:
        plan = _plan("training.epochs=1", trials=2, top=0, scheduler="none")
        ebclab.sweep(plan, sweeps=tmp_path, name="seen", display=choose_sweep_display(stream))
    reader.join()
    os.close(terminal)
    assert b"0001" in b"".join(seen)
    assert b"2 finished" in b"".join(seen)


def test_what_the_cluster_lacks_is_refused_with_the_sum_and_leaves_no_folder(cluster: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"3 x 1 CPUs = 3 .* the cluster has 2 CPUs"):
        ebclab.sweep(_plan(), sweeps=tmp_path, limits=Limits(concurrent=3), display=SweepDisplay())
    with pytest.raises(UserError, match=r"--gpus-per-trial: a trial needs 0.5, the cluster has 0"):
        ebclab.sweep(_plan(), sweeps=tmp_path, limits=Limits(gpus_per_trial=0.5), display=SweepDisplay())
    assert list(tmp_path.iterdir()) == []


def test_two_workers_give_the_card_of_one_process_and_keep_it(cluster: str, tmp_path: Path) -> None:
    run = _pretrain(tmp_path, "run", 0, 1).path
    shown: list[tuple[int, int, str]] = []
    groups = ("classification", "calibration", "out-of-distribution", "geometry")

    def card(workers: int) -> Cards:
        request = CardRequest((str(run),), only=groups, outside=("rotated",), train_limit=300, workers=workers)
        return measure_cards(request, lambda *told: shown.append(told))

    here = card(0)
    shutil.rmtree(run / "card")
    shown.clear()
    spread = card(2)
    assert _timeless(spread.to_mapping()) == _timeless(here.to_mapping())
    assert {what: (done, of) for done, of, what in shown}["groups of the card"] == (4, 4)
    assert len(list((run / "card" / "features").iterdir())) == 4  # training, test, and two halves of it
    assert spread.cards[0].environment["ranks"] == 2
    again = card(2)  # nothing is left to measure, so no worker is started
    assert again.cards[0].results == spread.cards[0].results
    assert again.cards[0].environment["ranks"] == 1


def _timeless(plain: Any) -> Any:
    """Return a card's JSON without seconds and without what describes the process that measured."""
    if isinstance(plain, dict):
        return {name: _timeless(each) for name, each in plain.items() if name not in ("seconds", "environment")}
    return [_timeless(each) for each in plain] if isinstance(plain, list) else plain

"""Evaluation cards on Ray workers that die, and what is refused."""

from __future__ import annotations

import gc
import os
import signal
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from ebclab.card.card import CardFolder
from ebclab.card.images import MeasuredSet
from ebclab.card.measure import CardTask, measure_card
from ebclab.card.measuring import CardOptions, FeatureStore, Measuring
from ebclab.card.ray_workers.spread import measure_on_workers
from ebclab.card.subject import Subject
from ebclab.cluster.placement import TRIES
from ebclab.config.sections import EvaluationConfig
from ebclab.data.preprocessing import Preprocessing
from ebclab.data.sources.load import load_split
from ebclab.errors import UserError
from ebclab.evaluation.progress import silent

pytestmark = pytest.mark.slow


def _task(label: str, encoder: nn.Module, folder: Path, *groups: str) -> CardTask:
    parts = (load_split("digits", None, split) for split in ("train", "test"))
    digits = MeasuredSet("digits", *(part.rows(torch.arange(60)) for part in parts))
    prepared = Preprocessing(8, (0.3,), (0.3,))
    subject = Subject(label, label, encoder.eval(), prepared, 1, "a test", label)
    options = CardOptions(replace(EvaluationConfig(), knn_neighbours=5))
    store = FeatureStore(folder / "features")
    measuring = Measuring(subject, digits, options, store, device=torch.device("cpu"), on_progress=silent)
    return CardTask(measuring, groups, CardFolder(folder), "cpu", 1)


def test_a_worker_that_dies_loses_its_own_group_alone_and_the_card_goes_on(cluster: str, tmp_path: Path) -> None:
    deaths = tmp_path / "deaths"

    class Deadly(nn.Module):
        """Ends its process when it sees as many images as two views of all test images are."""

        def forward(self, images: Tensor) -> Tensor:
            if len(images) == 120:
                with deaths.open("a") as file:
                    file.write("x")
                os._exit(7)
            return images.flatten(1)

    groups = ("classification", "geometry")
    cards = measure_on_workers(
        [_task("deadly", Deadly(), tmp_path / "a", *groups), _task("plain", nn.Flatten(), tmp_path / "b", *groups)],
        2,
        silent,
    )
    found = {(card.label, each.group): each for card in cards for each in card.results}
    lost = found["deadly", "geometry"]
    assert lost.failed
    assert f"its worker died {TRIES} times, the last time its process died (process " in lost.problem
    assert deaths.read_text() == "x" * TRIES
    assert [name for name, each in found.items() if each.problem] == [("deadly", "geometry")]
    assert sorted(path.name for path in tmp_path.glob("?/groups/*.json")) == ["classification.json"] * 2 + [
        "geometry.json"
    ]
    values: dict[str, Any] = {card.label: card.numbers("classification") for card in cards}
    assert [each.value for each in values["deadly"]] == [each.value for each in values["plain"]]


def test_an_interrupted_card_goes_on_at_the_next_group_and_loses_nothing(cluster: str, tmp_path: Path) -> None:
    passes, may_end = tmp_path / "passes", tmp_path / "may end"

    class Counted(nn.Module):
        """Writes down how many images it sees: 60 for features, 120 for two views, of the group that waits."""

        def forward(self, images: Tensor) -> Tensor:
            with passes.open("a") as file:
                file.write(f"{len(images)}\n")
            give_up = time.monotonic() + 300
            while len(images) == 120 and not may_end.exists() and time.monotonic() < give_up:
                time.sleep(0.05)
            return images.flatten(1)

    def task(folder: str) -> CardTask:
        return _task("counted", Counted(), tmp_path / folder, "classification", "geometry")

    def interrupt(done: int, total: int, what: str) -> None:
        if what == "groups of the card" and done == 1:
            signal.raise_signal(signal.SIGINT)  # what Ctrl+C sends

    with suppress(KeyboardInterrupt):
        measure_on_workers([task("a")], 1, interrupt)
        pytest.fail("the first group was not told")
    gc.collect()  # the worker goes with its handle, as it goes with an interrupted command
    may_end.touch()
    (kept,) = (tmp_path / "a" / "groups").glob("*.json")
    before = kept.read_bytes()
    told: list[int] = []
    (card,) = measure_on_workers([task("a")], 1, lambda done, total, what: told.append(done))
    assert told[0] == 1  # it begins with what is kept
    assert kept.read_bytes() == before
    assert passes.read_text().split().count("60") == 2  # features of training and test images are not computed again
    whole = measure_card(task("b"), card.environment)
    for name in ("classification", "geometry"):
        pairs = zip(card.numbers(name), whole.numbers(name), strict=True)
        assert all(mine.value == theirs.value for mine, theirs in pairs)


def test_features_that_are_no_numbers_are_told_by_every_group_that_looks_at_them(cluster: str, tmp_path: Path) -> None:
    class Diverged(nn.Module):
        """Gives NaN."""

        def forward(self, images: Tensor) -> Tensor:
            return images.flatten(1) * float("nan")

    (card,) = measure_on_workers([_task("diverged", Diverged(), tmp_path, "classification", "geometry")], 1, silent)
    for each in card.results:
        assert "NaN or infinity for 60 of 60 images" in each.problem
        assert not each.failed


def test_more_workers_than_processors_are_refused(cluster: str, tmp_path: Path) -> None:
    tasks = [_task(name, nn.Flatten(), tmp_path / name, "geometry") for name in "abc"]
    with pytest.raises(UserError, match="--workers: each needs a CPU, got 3 for 2 CPUs of the cluster; use fewer"):
        measure_on_workers(tasks, 3, silent)
    assert not list(tmp_path.rglob("*.json"))

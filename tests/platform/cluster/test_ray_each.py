"""Jobs that are done on the machines of a cluster."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from ebclab.cluster import each as module
from ebclab.cluster.each import each_on_cluster
from ebclab.cluster.placement import TRIES
from ebclab.errors import RunError, TrainingError


def test_every_job_has_its_result_or_its_error(cluster: str) -> None:
    def halved(job: int) -> int:
        if job % 2:
            raise RunError(f"{job}: odd")
        return job // 2

    found = dict(each_on_cluster(halved, [0, 1, 2, 3], cpus=1, on_gpu=False))
    assert (found[0], found[2]) == (0, 1)
    assert isinstance(found[3], RunError)
    assert [str(found[1]), str(found[3])] == ["1: odd", "3: odd"]


def test_without_gpus_a_machine_has_one_process_which_keeps_what_it_reads(cluster: str) -> None:
    kept: list[int] = []

    def seen(job: int) -> tuple[int, int]:
        kept.append(job)
        return os.getpid(), len(kept)

    (first, one), (second, two), (third, three) = (
        found for _, found in each_on_cluster(seen, [7, 8, 9], cpus=1, on_gpu=False) if isinstance(found, tuple)
    )
    assert first == second == third != os.getpid()
    assert (one, two, three, kept) == (1, 2, 3, [])


def test_each_gpu_of_a_machine_has_a_process(cluster: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, float]] = []

    class Remote:
        def options(self, **reserved: float) -> Remote:
            asked.append(reserved)
            raise RuntimeError("enough")

    monkeypatch.setattr(module, "nodes", lambda: [{"CPU": 4.0, "GPU": 2.0}, {"CPU": 4.0}])
    monkeypatch.setattr(module.ray, "remote", lambda _: Remote())
    with pytest.raises(RuntimeError, match="enough"):
        next(each_on_cluster(str, [1], cpus=3, on_gpu=True))
    assert (asked[0]["num_cpus"], asked[0]["num_gpus"]) == (3, 1)


def test_a_job_whose_process_dies_is_tried_again_once(cluster: str, tmp_path: Path) -> None:
    def survived(job: str) -> str:
        tries = tmp_path / job
        tries.write_text(f"{tries.read_text() if tries.exists() else ''}x")
        if job == "doomed" or (job == "unlucky" and tries.read_text() == "x"):
            os._exit(1)
        return tries.read_text()

    found = dict(each_on_cluster(survived, ["doomed", "unlucky", "well"], cpus=1, on_gpu=False))
    assert (found["unlucky"], found["well"]) == ("xx", "x")
    assert isinstance(found["doomed"], TrainingError)
    told = rf"the process of doomed died {TRIES} times, the last time its process died \(process \d+ on [0-9.]+\)"
    assert re.fullmatch(told, str(found["doomed"]))
    assert (tmp_path / "doomed").read_text() == TRIES * "x"

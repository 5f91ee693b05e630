"""``ebclab evaluate --only energies``: the same of a run and of its export, one sentence where there are none."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from .conftest import TINY, Ebclab

ABLE = "jem, ebclr, vem-langevin, vem-svgd, vem-image"


def test_energies_of_a_run_are_those_of_its_export(ebclab: Ebclab) -> None:
    small = ["--set", "method.buffer_size=64", "--set", "method.num_steps=1"]
    assert ebclab("pretrain", "ebclr", "--epochs", "1", "--name", "run", *TINY, *small).code == 0
    assert ebclab("export", "runs/run", "--to", "out/export").code == 0
    found = []
    for place, more in (("runs/run", []), ("out/export", ["--dataset", "digits"])):
        limits = ["--test-limit", "60", "--pairs", "2"]
        words = ["--only", "energies", "--ood", "rotated", *limits, "--to", "card", "--json"]
        measured = ebclab("evaluate", place, *more, *words).ok
        (group,) = json.loads(measured.out)["cards"][0]["groups"]
        found.append({each["name"]: each["value"] for each in group["findings"]["numbers"]})
        assert {each["name"] for each in group["findings"]["pictures"]} == {"images", "pairs-same", "pairs-other"}
    assert found[0].keys() >= {"test-mean", "train-q50", "near-rotated-q95", "pair-same", "pair-found-energy"}
    assert found[1] == pytest.approx(found[0], abs=1e-5)
    page = Path("card/card.html").read_text(encoding="utf-8")
    assert "The likeliest and the unlikeliest" in page
    few = ebclab("evaluate", "runs/run", "--only", "energies", "--test-limit", "4", "--pairs", "5")
    assert (few.code, few.err.strip()) == (
        2,
        "error: --pairs: 5 pairs need as many test images, got 4; show fewer",
    )


def test_encoders_without_energies_are_refused_all_at_once(ebclab: Ebclab, finished: Path) -> None:
    assert ebclab("export", finished, "--to", "encoder").code == 0
    refused = ebclab("evaluate", finished, "encoder", "--only", "energies,geometry", "--dataset", "digits")
    place = Path("encoder").absolute()
    assert refused.refusal.splitlines() == [
        f"error: --only: energies are defined for {ABLE}, got a run of flatclr",
        "--only: energies need energies.json and energies.safetensors beside an encoder, got "
        f"{place}, exported encoder; name a run, or export one with energies",
    ]

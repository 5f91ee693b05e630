"""kNN predictions, 10,000 images against 50,000 of 512 numbers, one thread, beside lightly and the products alone.

    python benchmarks/knn.py [--rounds 3]

Features resemble an encoder's: rectified, of a spectrum that decays. ``candidates`` was tried and is not used: 64
candidates of each image by products in bfloat16, of which exact products choose the 20 neighbours; it counts the
images for which the largest rounding error leaves a doubt. Contestants take turns; time is CPU time.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from page import write_page
from torch import Tensor
from torch.nn import functional

from ebclab.evaluation.evaluate import knn_predictions

BANK, QUERIES, SIZE, CLASSES = 50_000, 10_000, 512, 10
NEIGHBOURS, CANDIDATES, TEMPERATURE = 20, 64, 0.1
AT_ONCE = 335  # images, whose products take 64 MiB
LARGEST_ERROR = 2**-8 + 2**-9 + 1e-4  # both factors and the product rounded to 8 bits, and the sum in float32


def features(count: int, mix: Tensor, generator: torch.Generator) -> Tensor:
    """Return features (count, SIZE)."""
    hidden = torch.randn(count, len(mix), generator=generator) * torch.logspace(0, -1.5, len(mix))
    noise = torch.randn(count, SIZE, generator=generator)
    return (hidden @ mix + 0.02 * noise).relu()


def candidates(bank: Tensor, queries: Tensor) -> tuple[Tensor, int]:
    """Return the neighbours (q, NEIGHBOURS) of unit vectors, and for how many images they may not be the nearest."""
    found, doubtful, coarse_bank = [], 0, bank.bfloat16().T
    for block in torch.split(queries, AT_ONCE):
        coarse, rows = (block.bfloat16() @ coarse_bank).float().topk(CANDIDATES)
        exact = torch.bmm(bank[rows], block[:, :, None])[:, :, 0]
        best, places = exact.topk(NEIGHBOURS)
        doubtful += int((coarse[:, -1] + LARGEST_ERROR >= best[:, -1]).sum())
        found.append(rows.gather(1, places))
    return torch.cat(found), doubtful


def products(bank: Tensor, queries: Tensor) -> None:
    for block in torch.split(queries, AT_ONCE):
        block @ bank.T


def lightly_predictions(bank: Tensor, labels: Tensor, queries: Tensor) -> Tensor:
    from lightly.utils.benchmarking.knn import knn_predict

    turned, blocks = bank.T.contiguous(), torch.split(queries, AT_ONCE)
    return torch.cat([knn_predict(part, turned, labels, CLASSES, NEIGHBOURS, TEMPERATURE)[:, 0] for part in blocks])


def main() -> None:
    """Measure in turns and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    mix = torch.randn(64, SIZE, generator=generator) / 8
    bank, queries = features(BANK, mix, generator), features(QUERIES, mix, generator)
    labels = torch.randint(CLASSES, (BANK,), generator=generator)
    unit, unit_queries = functional.normalize(bank, dim=1), functional.normalize(queries, dim=1)
    coarse, coarse_queries = unit.bfloat16(), unit_queries.bfloat16()
    options: dict[str, Any] = {"neighbours": NEIGHBOURS, "temperature": TEMPERATURE, "num_classes": CLASSES}
    contestants: dict[str, Callable[[], object]] = {
        "ebclab": lambda: knn_predictions(bank, labels, queries, **options),
        "lightly's knn_predict": lambda: lightly_predictions(unit, labels, unit_queries),
        "matrix products alone, float32": lambda: products(unit, unit_queries),
        "matrix products alone, bfloat16": lambda: products(coarse, coarse_queries),
        "candidates": lambda: candidates(unit, unit_queries),
    }
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(asked.rounds):
        for name, run in contestants.items():
            began = time.process_time()
            run()
            seconds[name].append(time.process_time() - began)
    same = torch.eq(knn_predictions(bank, labels, queries, **options), lightly_predictions(unit, labels, unit_queries))
    _, doubtful = candidates(unit, unit_queries)
    rows = [
        f"| {name} | {statistics.median(all_of):.1f} | {min(all_of):.1f} to {max(all_of):.1f} |"
        for name, all_of in seconds.items()
    ]
    rows += [
        "",
        f"Equal predictions of ebclab and lightly: {same.float().mean():.2%}. Doubtful by candidates: {doubtful}.",
    ]
    table = "| | seconds, median | fastest to slowest |\n|---|---|---|\n" + "\n".join(rows)
    title = "kNN predictions, 10,000 images against 50,000 of 512 numbers, one thread"
    write_page("knn", title, f"`python benchmarks/knn.py --rounds {asked.rounds}`", ("torch", "lightly"), table)


if __name__ == "__main__":
    main()

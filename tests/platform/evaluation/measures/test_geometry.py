"""Label-free numbers against slow loops of their equations in float64."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from ebclab.evaluation.measures.geometry import geometry


def test_every_number_is_its_equation() -> None:
    draw = torch.Generator().manual_seed(0)
    first, second, features = (torch.randn(count, 4, generator=draw, dtype=torch.float64) for count in (5, 5, 9))
    second = first + 0.3 * second  # two views of the same images
    found = geometry(first, second, features)
    unit = [[row / np.linalg.norm(row) for row in view.numpy()] for view in (first, second)]
    n = len(first)
    assert found.distances.tolist() == pytest.approx([float(((a - b) ** 2).sum()) for a, b in zip(*unit, strict=True)])
    potentials = [
        np.mean([math.exp(-2 * ((view[i] - view[j]) ** 2).sum()) for i in range(n) for j in range(i)]) for view in unit
    ]
    assert found.uniformity == pytest.approx(np.mean(np.log(potentials)))
    shares = np.linalg.svd(features.numpy(), compute_uv=False)
    shares = shares / shares.sum()
    assert found.effective_rank == pytest.approx(math.exp(-(shares * np.log(shares)).sum()), rel=1e-6)
    losses, sizes = [], []
    for view in range(2):
        for i in range(n):
            right = unit[view][i] @ unit[1 - view][i] / 0.1
            wrong = [unit[view][i] @ unit[v][j] / 0.1 for v in range(2) for j in range(n) if j != i]  # of other images
            losses.append(-right + math.log(math.exp(right) + sum(map(math.exp, wrong))))
            weights = np.exp(wrong) / np.exp(wrong).sum()
            sizes.append(1 / (len(wrong) * (weights**2).sum()))
    assert found.num_negatives == len(wrong)
    assert found.info_nce == pytest.approx(np.mean(losses))
    assert found.log_k_saturation == pytest.approx(1 - np.mean(losses) / math.log(len(wrong) + 1))
    assert found.effective_sample_size == pytest.approx(np.mean(sizes))

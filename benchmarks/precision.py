"""How exact gradients of InfoNCE and FlatNCE are in four floating types, from guessing to saturation.

    python benchmarks/precision.py

FlatNCE's paper says that InfoNCE loses its signal to rounding where positives stand out. Here 256 anchors with 254
negatives each have logits of which the chance to miss, 1 - p+, is set from one half to 1e-10. Each number is the
relative error of an anchor's gradient (by its logits, of the mean over anchors), the median over anchors, against the
closed form of the same rounded logits in float64: -(1 - p+) for the positive and (1 - p+) w_j for the negatives of
InfoNCE, -1 and w_j for those of FlatNCE, w the softmax of the negatives. lost: all of it became zero. InfoNCE is
computed twice: as the cross-entropy of public implementations, and as log(1 + xi) here. The loss is not scaled.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import torch
import torch.nn.functional as F
from page import write_page
from torch import Tensor

from energy_contrast.losses import flat_nce, info_nce

ANCHORS, NEGATIVES = 256, 254
MISSES = (0.5, 1e-1, 1e-2, 1e-3, 1e-4, 1e-6, 1e-8, 1e-10)
DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def cross_entropy(positive: Tensor, negatives: Tensor) -> Tensor:
    """Return InfoNCE as a classifier's loss, the positive being class 0."""
    logits = torch.cat([positive[:, None], negatives], dim=1)
    return F.cross_entropy(logits, torch.zeros(len(logits), dtype=torch.int64))


LOSSES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "InfoNCE, cross-entropy": cross_entropy,
    "InfoNCE, log(1 + xi)": lambda positive, negatives: info_nce(positive, negatives, temperature=1.0),
    "FlatNCE": lambda positive, negatives: flat_nce(positive, negatives, temperature=1.0),
}


def logits_that_miss(chance: float) -> tuple[Tensor, Tensor]:
    """Return logits (N,) and (N, K) in float64 of which each anchor's 1 - p+ is ``chance``."""
    negatives = torch.randn(ANCHORS, NEGATIVES, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    xi = torch.tensor(chance / (1 - chance), dtype=torch.float64)
    return negatives.logsumexp(dim=1) - xi.log(), negatives


def gradient(loss: Callable[[Tensor, Tensor], Tensor], positive: Tensor, negatives: Tensor) -> Tensor:
    """Return (N, K + 1) the loss's gradient by the logits, in float64 but with the digits of their type."""
    leaves = positive.clone().requires_grad_(), negatives.clone().requires_grad_()
    by_positive, by_negatives = torch.autograd.grad(loss(*leaves), leaves)
    return torch.cat([by_positive[:, None], by_negatives], dim=1).double()


def closed_form(name: str, positive: Tensor, negatives: Tensor) -> Tensor:
    """Return (N, K + 1) the gradient of a loss by float64 logits, without a difference of near numbers."""
    weights = negatives.softmax(dim=1)
    chance = torch.sigmoid(negatives.logsumexp(dim=1) - positive) if name.startswith("InfoNCE") else 1 + 0 * positive
    return torch.cat([-chance[:, None], chance[:, None] * weights], dim=1) / ANCHORS


def error(name: str, chance: float, dtype: torch.dtype) -> str:
    """Return the median over anchors of the relative error of their gradients, as it is printed."""
    positive, negatives = (logits.to(dtype) for logits in logits_that_miss(chance))
    found = gradient(LOSSES[name], positive, negatives)
    exact = closed_form(name, positive.double(), negatives.double())
    if not found.any():
        return "lost"
    return f"{((found - exact).norm(dim=1) / exact.norm(dim=1)).median().item():.0e}"


def table() -> str:
    """Return the markdown table."""
    names = [str(dtype).removeprefix("torch.") for dtype in DTYPES]
    lines = [f"| 1 - p+ | loss | length of the gradient | {' | '.join(names)} |", "|---" * (3 + len(DTYPES)) + "|"]
    for chance in MISSES:
        for name in LOSSES:
            length = closed_form(name, *logits_that_miss(chance)).norm(dim=1).mean().item() * ANCHORS
            cells = [f"{chance:g}", name, f"{length:.2g}", *(error(name, chance, dtype) for dtype in DTYPES)]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    title = "Gradients of InfoNCE and FlatNCE in floating point"
    write_page("precision", title, "`python benchmarks/precision.py`", ("torch",), table())


if __name__ == "__main__":
    main()

"""The penalty that is chosen, and its classifier, against scikit-learn's; what is reported meanwhile."""

from __future__ import annotations

import torch
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

from ebclab.evaluation.linear_head import PENALTIES, best_classifier, fit_head
from ebclab.evaluation.protocols import LBFGS


def test_the_best_classifier_is_that_of_scikit_learn_with_each_penalty() -> None:
    pixels, labels = load_digits(return_X_y=True)
    x, y = torch.tensor(pixels[:, 8:24], dtype=torch.float32), torch.tensor(labels)  # two rows of pixels: not all right
    train, held_out = (x[:400], y[:400]), (x[400:800], y[400:800])
    told: list[tuple[int, int, str]] = []
    head, chosen = best_classifier(LBFGS, train, held_out, 10, lambda *step: told.append(step))
    mean, std = x[:400].double().mean(dim=0), x[:400].double().std(dim=0, correction=0)
    scaled = [((part.double() - mean) / torch.where(std > 0, std, 1.0)).numpy() for part in (train[0], held_out[0])]
    shares = []
    for l2 in PENALTIES:
        model = LogisticRegression(C=1 / (400 * l2), tol=1e-10, max_iter=500, solver="newton-cholesky")
        shares.append(float(model.fit(scaled[0], train[1].numpy()).score(scaled[1], held_out[1].numpy())))
    assert len(set(shares)) > 2
    assert list(chosen.accuracies) == shares
    assert chosen.l2 == head.l2 == PENALTIES[shares.index(max(shares))]
    alone = fit_head(LBFGS, *train, 10, chosen.l2)  # begins at 0, not at the next stronger penalty
    torch.testing.assert_close(head.logits(held_out[0].double()), alone.logits(held_out[0].double()), rtol=0, atol=1e-2)
    assert [done for done, _, _ in told] == sorted(done for done, _, _ in told)
    assert told[-1][:2] == (6, 6)
    assert len(told) > 2 * len(PENALTIES)  # a long search reports after each step, not only when it ends

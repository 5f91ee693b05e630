"""Attacks against closed forms of a linear classifier, foolbox and the authors' own Square attack."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from pyautoattack.square import SquareAttack
from torch import Tensor, nn
from torch.nn import functional

from ebclab.evaluation.measures.attacks import clearly_more, fgsm, loss_gradients, pgd, random_start, square_search

EPS, STEP = 8 / 255, 2 / 255


def _images(n: int = 40, side: int = 6, channels: int = 2) -> tuple[Tensor, Tensor, Tensor]:
    """Return pixels, labels and keys."""
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(n, channels, side, side, generator=generator)
    return x, torch.arange(n) % 3, torch.arange(n) + 100


def _network(side: int = 6, channels: int = 2) -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(
        nn.Conv2d(channels, 5, 3), nn.Tanh(), nn.Flatten(), nn.Linear(5 * (side - 2) ** 2, 3)
    ).requires_grad_(False)  # fmt: skip


def _linear(n: int = 60) -> tuple[Callable[[Tensor], Tensor], Tensor, Tensor, Tensor, Tensor]:
    """Return a linear classifier of two classes, pixels away from 0 and 1, its answers, keys, and w1 - w0."""
    generator = torch.Generator().manual_seed(2)
    x = 0.3 + 0.4 * torch.rand(n, 1, 5, 5, dtype=torch.float64, generator=generator)
    weights = torch.randn(25, 2, dtype=torch.float64, generator=generator)
    shift = -(x.flatten(1) @ weights).mean(dim=0)  # both classes occur

    def classify(pixels: Tensor) -> Tensor:
        return pixels.flatten(1) @ weights + shift

    return classify, x, classify(x).argmax(dim=1), torch.arange(n), weights[:, 1] - weights[:, 0]


def _in_ball(moved: Tensor, x: Tensor, eps: float) -> bool:
    return bool((moved - x).abs().max() <= eps + 1e-6 and moved.min() >= 0 and moved.max() <= 1)


def test_fgsm_on_a_linear_classifier_is_the_sign_of_the_difference_of_weights() -> None:
    classify, x, labels, _, difference = _linear()
    towards = torch.where(labels[:, None] == 1, -difference, difference).sign().view_as(x)
    assert torch.equal(fgsm(classify, x, labels, EPS), x + EPS * towards)


def test_a_linear_classifier_stays_right_exactly_where_its_margin_is_large_enough() -> None:
    classify, x, labels, keys, difference = _linear()
    logits = classify(x)
    margins = (logits[:, 1] - logits[:, 0]).abs()
    eps = float((margins / difference.abs().sum()).median())  # half of the images are close enough
    safe = margins > eps * difference.abs().sum()
    assert 0.3 < float(safe.double().mean()) < 0.7
    attacked = {
        "fgsm": fgsm(classify, x, labels, eps),
        "pgd": pgd(classify, x, labels, eps=eps, step=eps / 4, steps=20, start=random_start(x, keys, eps=eps, seed=0)),
    }
    assert 0 < eps < 0.3  # no pixel reaches 0 or 1, where the closed form would end
    for moved in attacked.values():
        assert torch.equal(classify(moved).argmax(dim=1) == labels, safe)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # foolbox imports an old name of scipy's
def test_pgd_is_bit_for_bit_that_of_foolbox_from_the_same_start() -> None:
    import foolbox

    x, labels, keys = _images()
    model, start = _network(), random_start(x, keys, eps=EPS, seed=3)

    class FromStart(foolbox.attacks.LinfPGD):
        def get_random_start(self, x0: Any, epsilon: float) -> Any:
            return type(x0)(start)

    theirs = FromStart(abs_stepsize=STEP, steps=20)
    wrapped = foolbox.PyTorchModel(model.eval(), bounds=(0, 1), device="cpu")
    expected, _, _ = theirs(wrapped, x, labels, epsilons=EPS)
    ours = pgd(model, x, labels, eps=EPS, step=STEP, steps=20, start=start)
    misled = model(expected).argmax(dim=1) != labels
    unchanged = (expected == x).flatten(1).all(dim=1)  # foolbox gives images that were wrong before back as they came
    assert torch.equal(ours[~unchanged], expected[~unchanged])
    assert int((misled & ~unchanged).sum()) > 3


def test_attacks_stay_in_the_ball_and_in_the_range_of_pixels() -> None:
    x, labels, keys = _images()
    x[:10], x[10:20] = 0, 1
    model = _network()
    start = random_start(x, keys, eps=EPS, seed=0)
    assert _in_ball(start, x, EPS)
    assert _in_ball(fgsm(model, x, labels, EPS), x, EPS)
    far = pgd(model, x, labels, eps=EPS, step=1.0, steps=3, start=start)
    assert _in_ball(far, x, EPS)
    assert float((far - x).abs().max()) == pytest.approx(EPS, abs=1e-6)
    assert _in_ball(square_search(model, x, labels, keys, eps=EPS, queries=30, seed=0), x, EPS)


def test_a_random_start_is_uniform_and_depends_on_seed_and_key_alone() -> None:
    x, _, keys = _images(n=200)
    x = x * 0.5 + 0.25  # away from 0 and 1
    draws = (random_start(x, keys, eps=EPS, seed=0) - x) / EPS
    assert float(draws.mean()) == pytest.approx(0, abs=4 * (1 / 3) ** 0.5 / draws.numel() ** 0.5)
    assert float(draws.square().mean()) == pytest.approx(1 / 3, abs=0.01)
    assert torch.equal(random_start(x[7:9], keys[7:9], eps=EPS, seed=0), random_start(x, keys, eps=EPS, seed=0)[7:9])
    assert not torch.equal(random_start(x, keys, eps=EPS, seed=1), random_start(x, keys, eps=EPS, seed=0))


def test_attacks_leave_no_gradient_on_the_classifier_and_work_without_grad() -> None:
    x, labels, _ = _images()
    model = _network().requires_grad_()
    with torch.no_grad():
        assert loss_gradients(model, x, labels).abs().sum() > 0
    assert all(weights.grad is None for weights in model.parameters())
    assert not x.requires_grad


def test_square_search_is_never_better_than_the_closed_form_and_comes_close_to_it() -> None:
    classify, x, labels, keys, difference = _linear()
    logits = classify(x)
    margins = (logits[:, 1] - logits[:, 0]).abs()
    norm = difference.abs().sum()
    eps = float(margins.min() / norm) * 0.99  # nobody can be misled, so no search ends early
    least = margins - eps * norm
    reached = []
    for queries in (1, 10, 400):
        after = classify(square_search(classify, x, labels, keys, eps=eps, queries=queries, seed=0))
        found = (after[:, 1] - after[:, 0]).abs()
        assert bool((found >= least - 1e-9).all())
        reached.append(float(((margins - found) / (eps * norm)).mean()))  # 1: the optimum
    assert reached[0] < reached[1] < reached[2]
    assert reached[2] > 0.9
    apart = [square_search(classify, *part, eps=eps, queries=10, seed=0) for part in _halves(x, labels, keys)]
    assert torch.equal(torch.cat(apart), square_search(classify, x, labels, keys, eps=eps, queries=10, seed=0))


def test_square_search_accepts_no_candidate_that_leaves_the_margin_as_it_is() -> None:
    """Andriushchenko et al. (2020), algorithm 1: accepted if the loss is smaller. Here no pixel matters."""
    x, labels, keys = _images()

    def classify(pixels: Tensor) -> Tensor:
        return functional.one_hot(labels, 3).double()  # a margin of 1, which is never negative

    stripes, after = (square_search(classify, x, labels, keys, eps=EPS, queries=n, seed=0) for n in (1, 20))
    assert torch.equal(after, stripes)


def _halves(*whole: Tensor) -> list[list[Tensor]]:
    middle = len(whole[0]) // 2
    return [[each[:middle] for each in whole], [each[middle:] for each in whole]]


def test_square_search_misleads_about_as_often_as_its_authors_code() -> None:
    x, _, keys = _images(n=300, side=16, channels=1)
    model, eps = _network(side=16, channels=1), 0.05
    labels = model(x).argmax(dim=1)
    theirs = SquareAttack(model, norm="Linf", n_queries=100, eps=eps, seed=0, resc_schedule=True, device="cpu")
    with torch.random.fork_rng():
        expected = model(theirs.perturb(x, labels)).argmax(dim=1) == labels
    found = model(square_search(model, x, labels, keys, eps=eps, queries=100, seed=0)).argmax(dim=1) == labels
    share = float(expected.double().mean())
    assert 0.3 < share < 0.8
    assert float(found.double().mean()) == pytest.approx(share, abs=0.08)  # two standard errors of the difference


def test_two_shares_differ_clearly_when_they_do_by_two_standard_errors() -> None:
    # of 100 images, d = 1 at k and 0 elsewhere: mean k / 100 against 2 sqrt(k (100 - k) / (100 * 100 * 99)); k = 4
    # gives .04 > .0394, k = 3 gives .03 < .0343
    none = torch.zeros(100, dtype=torch.bool)
    for count, expected in ((3, False), (4, True)):
        assert clearly_more(torch.arange(100) < count, none) is expected
        assert clearly_more(none, torch.arange(100) < count) is False
    assert clearly_more(torch.ones(1, dtype=torch.bool), torch.zeros(1, dtype=torch.bool)) is False

"""Fine-tuning: the steps are those of the equation, the given encoder stays as it is, a seed means the same bits."""

import copy
import math
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from ebclab.card.groups import fine_tuning
from ebclab.card.groups.fine_tuning import (
    LEAST_STEPS,
    FineTuningTask,
    choose_rate,
    fine_tuned,
    light_views,
    predicted_logits,
)
from ebclab.config.sections import ViewsConfig
from ebclab.data.image_set import ImageSet
from ebclab.data.preprocessing import Preprocessing
from ebclab.errors import DataError, DivergedError
from ebclab.evaluation.protocols import FINE_TUNING

RATES = FINE_TUNING["simclr"].rates
PLAIN = Preprocessing(4, (0.5,), (0.25,))
TASK = FineTuningTask(2, PLAIN, ViewsConfig(), epochs=3, batch_size=32, device=torch.device("cpu"))
AS_THEY_ARE = ViewsConfig()  # no crop, no flip
Step = Callable[[int, int, Tensor], Tensor]
"""Maps the place of a weight, the number of a step from 1 on, and a gradient to what is taken off."""


@pytest.fixture(autouse=True)
def _few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fine_tuning, "LEAST_STEPS", 5)


def made_up(count: int, seed: int = 0) -> ImageSet:
    """Images (count, 1, 4, 4) of two classes: the left half is bright, or the right half."""
    generator = torch.Generator().manual_seed(seed)
    pixels = torch.randint(0, 120, (count, 1, 4, 4), generator=generator, dtype=torch.uint8)
    labels = torch.arange(count) % 2
    pixels[labels == 0, :, :, :2] += 130
    pixels[labels == 1, :, :, 2:] += 130
    return ImageSet("made-up", pixels, labels, torch.arange(count) + 1000 * seed, (), (0.5,), (0.25,))


class WithNorm(nn.Module):
    """A convolution with batch norm, pooled by halves of the image, and dropout."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.layers = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout(0.1))

    def forward(self, images: Tensor) -> Tensor:
        return functional.adaptive_avg_pool2d(self.layers(images), (1, 2)).flatten(1)


def same(one: nn.Module, other: nn.Module) -> bool:
    first, second = one.state_dict(), other.state_dict()
    return first.keys() == second.keys() and all(torch.equal(first[key], second[key]) for key in first)


def nesterov(rate: float) -> Step:
    """Sutskever et al. (2013), constant momentum: v <- 0.9 v + g; w <- w - rate (g + 0.9 v), the rate a cosine."""
    velocity: dict[int, Tensor] = {}

    def step(place: int, number: int, g: Tensor) -> Tensor:
        velocity[place] = 0.9 * velocity.get(place, torch.zeros_like(g)) + g
        return rate * (1 + math.cos(math.pi * (number - 1) / 5)) / 2 * (g + 0.9 * velocity[place])

    return step


def nadam(rate: float) -> Step:
    """Dozat (2016): mu_t = 0.9 (1 - 0.96^(t / 250) / 2), M_t = mu_1 ... mu_t; m and v are Adam's averages, and

    w <- w - rate ((1 - mu_t) g / (1 - M_t) + mu_(t+1) m / (1 - M_t mu_(t+1))) / (sqrt(v / (1 - 0.999^t)) + 1e-8).
    """
    means: dict[int, Tensor] = {}
    squares: dict[int, Tensor] = {}

    def step(place: int, number: int, g: Tensor) -> Tensor:
        means[place] = 0.9 * means.get(place, torch.zeros_like(g)) + 0.1 * g
        squares[place] = 0.999 * squares.get(place, torch.zeros_like(g)) + 0.001 * g**2
        mu = [0.9 * (1 - 0.5 * 0.96 ** (0.004 * at)) for at in range(1, number + 2)]
        product = math.prod(mu[:-1])
        ahead = (1 - mu[-2]) * g / (1 - product) + mu[-1] * means[place] / (1 - product * mu[-1])
        return rate * ahead / ((squares[place] / (1 - 0.999**number)).sqrt() + 1e-8)

    return step


@pytest.mark.parametrize("marked", [False, True])
@pytest.mark.parametrize(("name", "rate", "optimizer"), [("simclr", 0.2, nesterov), ("flatnce", 5.0**-5, nadam)])
def test_the_steps_are_those_of_the_equation(name, rate, optimizer, marked):
    # logits = V (U x + a) + c. With G = (softmax - onehot) / n: dV = G' h, dc = sum G, dU = V' G' x, da = sum V' G.
    # One batch an epoch, so order is no matter. Of marks, G = (sigmoid - mark) / (their number), 0 where one is -1.
    data, encoder = made_up(6), nn.Sequential(nn.Flatten(), nn.Linear(16, 3))
    task, step = replace(TASK, protocol=FINE_TUNING[name]), optimizer(rate)
    start, trained = (fine_tuned(encoder, data, task, rate=each, seed=1) for each in (0.0, rate))
    x = ((data.images.double() / 255 - 0.5) / 0.25).flatten(1)
    onehot = functional.one_hot(data.labels, 2).double()
    marks = torch.tensor([[1, 1], [0, 0], [1, -1], [0, 1], [-1, -1], [1, 0]], dtype=torch.int8)
    if marked:
        marked_data = replace(data, labels=torch.full((6,), -1), marks=marks)
        start, trained = (fine_tuned(encoder, marked_data, task, rate=each, seed=1) for each in (0.0, rate))
    weights = [parameter.detach().double() for parameter in start.parameters()]  # U, a, V, c
    for number in range(1, 6):
        u, a, v, c = weights
        hidden = x @ u.T + a
        logits = hidden @ v.T + c
        g = (logits.softmax(dim=1) - onehot) / len(x)
        if marked:
            g = (logits.sigmoid() - marks) * (marks >= 0) / 9
        gradients = [(g @ v).T @ x, (g @ v).sum(dim=0), g.T @ hidden, g.sum(dim=0)]
        weights = [
            weight - step(at, number, each) for at, (weight, each) in enumerate(zip(weights, gradients, strict=True))
        ]
    for found, expected in zip(trained.parameters(), weights, strict=True):
        torch.testing.assert_close(found.detach().double(), expected, rtol=1e-4, atol=1e-6)


def test_of_one_rate_or_without_held_out_images_there_is_nothing_to_choose():
    data, task = made_up(6), replace(TASK, protocol=FINE_TUNING["flatnce"])
    assert choose_rate(WithNorm(), data, data, task, seed=0) == (5.0**-5, ())
    data = made_up(4)
    nothing = data.rows(torch.zeros(4, dtype=torch.bool))
    assert choose_rate(WithNorm(), data, nothing, TASK, seed=0) == (RATES[0], ())


def test_flatnces_test_images_are_seen_without_their_border() -> None:
    seen: list[Tensor] = []
    model = nn.Sequential(nn.Flatten())
    model.register_forward_hook(lambda _, given, output: seen.append(given[0]))
    images = torch.randint(0, 256, (5, 1, 16, 16), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    data = ImageSet("made-up", images, torch.zeros(5, dtype=torch.int64), torch.arange(5), (), (0.5,), (0.25,))
    task = replace(TASK, protocol=FINE_TUNING["flatnce"], preprocessing=replace(PLAIN, image_size=14, read_size=16))
    predicted_logits(model, data, task)
    torch.testing.assert_close(seen[0], (images[:, :, 1:15, 1:15].float() / 255 - 0.5) / 0.25)
    assert light_views("flowers102:/x", task.protocol) == ViewsConfig(crop_scale_min=0.08, flip_rate=0.5)
    wide = replace(data, images=torch.cat([images, images], dim=3)[..., 8:28])  # 16 x 20: the square begins at 3
    predicted_logits(model, wide, task)
    torch.testing.assert_close(seen[1], (wide.images[:, :, 1:15, 3:17].float() / 255 - 0.5) / 0.25)


def test_the_given_encoder_stays_as_it_is_to_the_bit() -> None:
    encoder = WithNorm().eval()
    before = copy.deepcopy(encoder)
    model = fine_tuned(encoder, made_up(12), TASK, rate=0.1, seed=0)
    assert same(encoder, before)
    assert not encoder.training
    assert all(parameter.grad is None for parameter in encoder.parameters())
    assert not same(model[0], before)  # type: ignore[index]
    # batch norm is in training mode while training, and the result in eval mode
    assert int(model[0].layers[1].num_batches_tracked) == 5  # type: ignore[index, union-attr, operator, arg-type]
    assert not any(part.training for part in model.modules())


def test_a_seed_means_the_same_bits_and_moves_no_generator() -> None:
    encoder, data = WithNorm().eval(), made_up(12)
    before = torch.get_rng_state()
    first = fine_tuned(encoder, data, TASK, rate=0.1, seed=3)
    assert torch.equal(torch.get_rng_state(), before)
    torch.rand(7)
    again, other = (fine_tuned(encoder, data, TASK, rate=0.1, seed=seed) for seed in (3, 4))
    assert same(first, again)
    assert not same(first, other)


def test_an_epoch_has_every_image_once_in_batches_of_almost_one_size() -> None:
    keys = torch.arange(130) * 7
    batches = list(fine_tuning._epoch(keys, 0, 0, TASK.batches(130)))
    assert [len(rows) for rows in batches] == [44, 43, 43]
    assert torch.equal(torch.cat(batches).sort().values, torch.arange(130))
    assert not torch.equal(torch.cat(batches), torch.cat(list(fine_tuning._epoch(keys, 0, 1, 3))))
    assert min(len(rows) for rows in fine_tuning._epoch(keys[:65], 0, 0, 2)) == 32  # and no single image


@pytest.mark.parametrize(("count", "epochs"), [(10, 200), (600, 20), (6000, 10), (60_000, 10)])
def test_few_images_are_passed_more_often(count: int, epochs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fine_tuning, "LEAST_STEPS", LEAST_STEPS)
    assert replace(TASK, epochs=10).epochs_for(count) == epochs


def test_the_rate_taken_is_best_on_held_out_images() -> None:
    encoder, data, held_out = WithNorm().eval(), made_up(16), made_up(30, seed=1)
    chosen = choose_rate(encoder, data, held_out, TASK, seed=0)
    models = [fine_tuned(encoder, data, TASK, rate=rate, seed=0) for rate in RATES]
    each = [
        float((predicted_logits(model, held_out, TASK).argmax(dim=1) == held_out.labels).double().mean())
        for model in models
    ]
    assert chosen.accuracies == tuple(each)
    assert chosen.rate == RATES[each.index(max(each))]
    assert len(set(each)) > 1  # rates do differ here


class Huge(nn.Module):
    """Features so large that any of the rates diverges."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(1e25))

    def forward(self, images: Tensor) -> Tensor:
        return images.flatten(1) * self.scale


def test_a_rate_that_diverges_has_nothing_right_and_divergence_is_one_sentence() -> None:
    data = made_up(8)
    data = replace(data, images=data.images[:1].expand(8, -1, -1, -1))  # half of the labels are wrong whatever it says
    assert choose_rate(Huge(), data, data, TASK, seed=0).accuracies == (0.0, 0.0, 0.0)
    with pytest.raises(DivergedError, match=r"fine-tuning: training diverged, .* images of made-up; the encoder's"):
        predicted_logits(fine_tuned(Huge(), data, TASK, rate=0.1, seed=0), data, TASK)


def test_what_cannot_be_trained_is_one_sentence() -> None:
    with pytest.raises(DataError, match="fine-tuning: an encoder with weights to train is needed, Flatten has none"):
        fine_tuned(nn.Flatten(), made_up(4), TASK, rate=0.1, seed=0)
    colour = replace(made_up(4), images=torch.zeros(4, 3, 4, 4, dtype=torch.uint8))
    with pytest.raises(DataError, match=r"the encoder expects 1 channel\(s\), got 3"):
        fine_tuned(WithNorm(), colour, TASK, rate=0.1, seed=0)


class Seeing(WithNorm):
    """Keeps what it sees, in a list that copies of it share."""

    def __init__(self, seen: list[Tensor]) -> None:
        super().__init__()
        self.keep = seen.append  # a bound method of a list is copied as it is

    def forward(self, images: Tensor) -> Tensor:
        self.keep(images.detach().clone())
        return super().forward(images)


def test_images_of_another_size_are_cropped_and_scaled_as_when_the_run_read_its_own() -> None:
    wide = replace(made_up(2), images=torch.randint(0, 256, (2, 1, 6, 10), dtype=torch.uint8))
    preprocessing = replace(PLAIN, read_size=6)
    task = replace(TASK, preprocessing=preprocessing, views=AS_THEY_ARE)
    seen: list[Tensor] = []
    encoder = Seeing(seen)
    fine_tuned(encoder, wide, task, rate=0.1, seed=0)
    expected = preprocessing(wide.images)
    assert len(seen) == 6  # one look at the size of the features, five steps
    for batch in seen[1:]:
        in_order = batch if torch.allclose(batch[0], expected[0], atol=1e-4) else batch.flip(0)
        torch.testing.assert_close(in_order.contiguous(), expected, rtol=0, atol=1e-4)


def test_digits_are_not_mirrored_photographs_are_and_of_unknown_images_nobody_says() -> None:
    flips = {name: light_views(name).flip_rate for name in ("digits", "mnist", "fashion-mnist", "cifar10", "folder:/x")}
    assert flips == {"digits": 0.0, "mnist": 0.0, "fashion-mnist": 0.5, "cifar10": 0.5, "folder:/x": 0.0}
    assert light_views("mnist").crop_scale_min == 0.5

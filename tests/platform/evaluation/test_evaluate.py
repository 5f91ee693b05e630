"""The probes together on digits, kNN against slow loops, and features: frozen, in order, telling how far they are."""

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.preprocessing import StandardScaler
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from ebclab.config.sections import EvaluationConfig
from ebclab.data.image_set import ImageSet
from ebclab.data.preprocessing import Preprocessing
from ebclab.errors import ConfigError, DataError, TrainingError
from ebclab.evaluation import evaluate as knn
from ebclab.evaluation.answers import Score, wilson_interval
from ebclab.evaluation.evaluate import ebclr_knn_predictions, evaluate_encoder, knn_predictions
from ebclab.evaluation.features import compute_features, placed, require_labels
from ebclab.evaluation.progress import ProgressRates, in_lines
from ebclab.evaluation.protocols import PROTOCOLS

PLAIN = Preprocessing(8, (0.0,), (1.0,))
CONFIG = EvaluationConfig(batch_size=100)


def pixel_scores(
    train: ImageSet, test: ImageSet, config: EvaluationConfig = CONFIG, **options: Any
) -> dict[str, Score]:
    """The scores of flattened pixels."""
    plain = Preprocessing(0, (0.0,) * train.images.shape[1], (1.0,) * train.images.shape[1])
    return evaluate_encoder(nn.Flatten(), train, test, plain, config, device="cpu", **options)


def as_numpy(images: ImageSet) -> tuple[np.ndarray, np.ndarray]:
    return (images.images.flatten(1).double() / 255).numpy(), images.labels.numpy()


def test_raw_pixels_equal_scikit_learn(digits: tuple[ImageSet, ImageSet]) -> None:
    scores = pixel_scores(*digits, only=("knn", "linear", "ebclr-knn"))
    (train_x, train_y), (test_x, test_y) = as_numpy(digits[0]), as_numpy(digits[1])
    cosine = KNeighborsClassifier(20, metric="cosine", weights=lambda distance: np.exp((1 - distance) / 0.1))
    euclidean = KNeighborsClassifier(20, weights="distance")
    scaler = StandardScaler().fit(train_x)
    logistic = LogisticRegression(C=1 / (1400 * 1e-3), tol=1e-7, max_iter=10_000)
    expected = {
        "knn": cosine.fit(train_x, train_y).score(test_x, test_y),
        "linear": logistic.fit(scaler.transform(train_x), train_y).score(scaler.transform(test_x), test_y),
        "ebclr-knn": euclidean.fit(train_x, train_y).score(test_x, test_y),
    }
    assert {name: score.value for name, score in scores.items()} == pytest.approx(expected, abs=1 / 397)


def test_a_protocol_with_randomness_is_repeated_from_the_seed_on(digits, monkeypatch):
    monkeypatch.setitem(PROTOCOLS, "vem-sgd", dataclasses.replace(PROTOCOLS["vem-sgd"], epochs=3))
    config = EvaluationConfig(linear_protocol="vem-sgd", linear_seeds=3)
    score = pixel_scores(*digits, config, only=["linear"], seed=5)["linear"]
    assert score.seeds == (5, 6, 7)
    assert score.value == pytest.approx(sum(score.per_seed) / 3)
    assert len(set(score.per_seed)) > 1
    again = pixel_scores(*digits, config, only=["linear"], seed=6)["linear"]
    assert again.per_seed[:2] == pytest.approx(score.per_seed[1:], abs=2 / 397)


@pytest.mark.parametrize(("of_training", "of_test"), [(3, 2), (2, 3)])
def test_classes_are_counted_in_both_sets(of_training: int, of_test: int) -> None:
    """Each class is one colour that a probe names without fail, and some of 20 neighbours are of other classes."""

    def colours(count: int) -> ImageSet:
        labels = torch.arange(count).repeat(12)
        images = torch.zeros(len(labels), 3, 2, 2, dtype=torch.uint8)
        images[torch.arange(len(labels)), labels] = 200
        return ImageSet("colours", images, labels, torch.arange(len(labels)), (), (0.3,) * 3, (0.4,) * 3)

    scores = pixel_scores(colours(of_training), colours(of_test), only=("knn", "linear", "ebclr-knn"))
    known = min(1.0, of_training / of_test)
    assert {name: score.value for name, score in scores.items()} == pytest.approx(dict.fromkeys(scores, known))


def test_of_fewer_images_than_neighbours_all_vote_and_the_score_says_how_many(
    digits: tuple[ImageSet, ImageSet],
) -> None:
    """A dataset that is named beside a run's own may be smaller than the neighbours chosen for that."""
    train, test = digits
    few = train.rows(torch.arange(9))
    scores = pixel_scores(few, test, only=("knn", "ebclr-knn"))
    assert scores["knn"].detail.startswith("kNN, 9 neighbours, ")
    assert scores["ebclr-knn"].detail.startswith("kNN, 9 Euclidean neighbours, ")
    assert (
        scores["knn"].value
        == pixel_scores(few, test, dataclasses.replace(CONFIG, knn_neighbours=9), only=["knn"])["knn"].value
    )


def test_features_are_computed_once_for_all_probes(digits: tuple[ImageSet, ImageSet]) -> None:
    seen = 0

    def encoder(images: Tensor) -> Tensor:
        nonlocal seen
        seen += len(images)
        return images.flatten(1)

    evaluate_encoder(encoder, *digits, PLAIN, CONFIG, device="cpu", only=("knn", "linear", "ebclr-knn"))
    assert seen == 1797


def test_scores_carry_interval_size_and_protocol_and_progress_names_what_is_under_way(digits):
    last: dict[str, tuple[int, int]] = {}
    scores = pixel_scores(*digits, on_progress=lambda done, total, what: last.update({what: (done, total)}))
    features = {"features of training images": (1400, 1400), "features of test images": (397, 397)}
    assert last == features | {"knn": (397, 397), "linear": (1, 1)}
    assert list(scores) == ["knn", "linear"]
    for name, score in scores.items():
        assert (score.name, score.num_images, score.seeds, score.std) == (name, 397, (), None)
        assert (score.low, score.high) == wilson_interval(score.value, 397)
    assert scores["knn"].detail == "kNN, 20 neighbours, votes exp(cosine / 0.1)"
    assert scores["linear"].detail == f"linear, lbfgs: {PROTOCOLS['lbfgs'].doc}, l2 0.001"


def unused(images: Tensor) -> Tensor:
    raise AssertionError("mistakes are found before any work")


@pytest.mark.parametrize("which", [0, 1])
def test_a_missing_label_is_refused_before_any_work(digits: tuple[ImageSet, ImageSet], which: int) -> None:
    sets = list(digits)
    labels = sets[which].labels.clone()
    labels[3] = -1
    sets[which] = dataclasses.replace(sets[which], labels=labels)
    with pytest.raises(DataError, match=r"digits: .* label for every image, got 1 of"):
        evaluate_encoder(unused, *sets, PLAIN, CONFIG, device="cpu")


def test_unknown_names_are_refused_before_any_work(digits: tuple[ImageSet, ImageSet]) -> None:
    with pytest.raises(ConfigError, match=r"only: no such probe, got 'lineal'; did you mean linear\?"):
        evaluate_encoder(unused, *digits, PLAIN, CONFIG, device="cpu", only=("lineal",))
    config = EvaluationConfig(linear_protocol="moco")
    with pytest.raises(
        ConfigError, match=r"evaluation.linear_protocol: no such protocol, got 'moco'; did you mean moco-sgd"
    ):
        evaluate_encoder(unused, *digits, PLAIN, config, device="cpu")


def random_problem(num_classes: int = 5) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    draw = torch.Generator().manual_seed(3)
    centres = torch.randn(num_classes, 6, generator=draw, dtype=torch.float64)
    labels = torch.randint(0, num_classes, (260,), generator=draw)
    points = centres[labels] + 1.2 * torch.randn(260, 6, generator=draw, dtype=torch.float64)
    return points[:200], labels[:200], points[200:], labels[200:]


def slow_cosine_knn(
    bank: list[list[float]], labels: Tensor, query: list[float], neighbours: int, temperature: float, classes: int
) -> int:
    similarity = [
        sum(a * b for a, b in zip(query, row, strict=True)) / (math.hypot(*query) * math.hypot(*row)) for row in bank
    ]
    nearest = sorted(range(len(bank)), key=lambda row: (-similarity[row], row))[:neighbours]
    votes = [0.0] * classes
    for row in nearest:
        votes[int(labels[row])] += math.exp(similarity[row] / temperature)
    return votes.index(max(votes))


@pytest.mark.parametrize(("neighbours", "temperature"), [(1, 0.1), (7, 0.07), (20, 0.5), (200, 0.2)])
def test_cosine_votes_equal_a_slow_loop(neighbours: int, temperature: float) -> None:
    bank, labels, queries, _ = random_problem()
    expected = [slow_cosine_knn(bank.tolist(), labels, query, neighbours, temperature, 5) for query in queries.tolist()]
    predicted = knn_predictions(bank, labels, queries, neighbours=neighbours, temperature=temperature, num_classes=5)
    assert predicted.tolist() == expected


def test_ebclr_votes_equal_scikit_learn_with_distance_weights() -> None:
    bank, labels, queries, _ = random_problem()
    queries = torch.cat([queries + 40.0, bank[:5]])  # far from the origin; and five exact copies
    bank = torch.cat([bank + 40.0, bank[:5]])
    labels = torch.cat([labels, (labels[:5] + 1) % 5])
    model = KNeighborsClassifier(20, weights="distance").fit(bank.numpy(), labels.numpy())
    predicted = ebclr_knn_predictions(bank, labels, queries, num_classes=5)
    assert predicted.tolist() == model.predict(queries.numpy()).tolist()
    assert predicted[-5:].tolist() == labels[-5:].tolist()  # distance zero outvotes all others


@pytest.mark.parametrize(("far", "winner"), [(1.9, 1), (2.1, 0)])
def test_two_ebclr_votes_beat_one_at_less_than_twice_its_distance(far: float, winner: int) -> None:
    bank = torch.tensor([[1.0, 0.0], [0.0, far], [0.0, -far]])  # votes 1 against 2 / far
    predicted = ebclr_knn_predictions(bank, torch.tensor([0, 1, 1]), torch.zeros(1, 2), num_classes=2, neighbours=3)
    assert predicted.tolist() == [winner]


def test_a_tiny_temperature_lets_the_nearest_decide_without_overflow() -> None:
    bank, labels, queries, _ = random_problem()
    one = knn_predictions(bank, labels, queries, neighbours=1, temperature=1.0, num_classes=5)
    cold = knn_predictions(bank.float(), labels, queries.float(), neighbours=50, temperature=1e-6, num_classes=5)
    assert torch.equal(cold, one)


def test_of_equally_near_rows_the_lower_ones_are_neighbours() -> None:
    bank = torch.tensor([[0.0, 1.0]] + [[1.0, 0.0]] * 5)
    labels = torch.tensor([4, 3, 2, 2, 1, 1])
    query = torch.tensor([[1.0, 0.0]])

    def winner(neighbours: int) -> int:
        return int(knn_predictions(bank, labels, query, neighbours=neighbours, temperature=0.1, num_classes=5))

    assert winner(1) == 3  # row 1 alone
    assert winner(2) == 2  # rows 1, 2: equal votes, the lower label wins
    assert winner(3) == 2  # rows 1, 2, 3
    assert winner(5) == 1  # rows 1 to 5: two votes each for 2 and 1


def test_blocks_do_not_change_predictions(monkeypatch: pytest.MonkeyPatch) -> None:
    bank, labels, queries, _ = random_problem()
    whole = ebclr_knn_predictions(bank, labels, queries, num_classes=5)
    monkeypatch.setattr(knn, "_SCORES_AT_ONCE", 200 * 7)
    seen: list[int] = []
    blocks = ebclr_knn_predictions(
        bank, labels, queries, num_classes=5, on_progress=lambda done, total, what: seen.append(done)
    )
    assert torch.equal(blocks, whole)
    assert seen == [7, 14, 21, 28, 35, 42, 49, 56, 60]


class Largest(TorchDispatchMode):
    """Counts the numbers of the largest float64 tensor that an operation returns."""

    count = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = function(*args, **(kwargs or {}))
        if isinstance(found, Tensor) and found.dtype == torch.float64:
            self.count = max(self.count, found.numel())
        return found


def test_votes_by_distance_never_hold_the_features_of_all_neighbours(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = torch.Generator().manual_seed(5)
    bank, queries = torch.randn(30, 64, generator=draw), torch.randn(50, 64, generator=draw)
    labels = torch.randint(0, 5, (30,), generator=draw)
    whole = ebclr_knn_predictions(bank, labels, queries, num_classes=5)
    monkeypatch.setattr(knn, "_COORDINATES_AT_ONCE", 4 * 20 * 64)
    with Largest() as largest:
        assert torch.equal(ebclr_knn_predictions(bank, labels, queries, num_classes=5), whole)
    assert largest.count == 4 * 20 * 64  # of 50 queries, 4 at a time


def test_votes_for_classes_of_high_numbers_are_held_for_few_queries(monkeypatch: pytest.MonkeyPatch) -> None:
    bank, labels, queries, _ = random_problem()
    monkeypatch.setattr(knn, "_SCORES_AT_ONCE", 4_000)  # by the bank alone, 20 of the 60 queries are looked at together
    rule = {"neighbours": 7, "temperature": 0.1}
    few = knn_predictions(bank.float(), labels, queries.float(), num_classes=5, **rule)
    with Largest() as largest:
        assert torch.equal(knn_predictions(bank.float(), labels, queries.float(), num_classes=2_000, **rule), few)
    assert largest.count == 2 * 2_000  # of 60 queries, 2 at a time


def test_more_neighbours_than_rows_is_one_sentence() -> None:
    bank, labels = torch.ones(10, 2), torch.zeros(10, dtype=torch.long)
    sentence = r"evaluation\.knn_neighbours: .* 10 available training images, got 20"
    with pytest.raises(DataError, match=sentence):
        knn_predictions(bank, labels, bank, neighbours=20, temperature=0.1, num_classes=1)
    with pytest.raises(DataError, match="ebclr-knn: needs 20 training images, got 10; use more, or the probe knn"):
        ebclr_knn_predictions(bank, labels, bank, num_classes=1)


def grey_images(count: int) -> Tensor:
    return torch.randint(0, 256, (count, 1, 8, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


def conv_net() -> nn.Module:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout(0.5), nn.Flatten())
    net[1].running_mean.uniform_(-1, 1)
    net[1].running_var.uniform_(0.5, 2)
    return net


@pytest.mark.parametrize("norm_trains", [True, False])
def test_a_network_in_training_keeps_its_bits_and_the_mode_of_each_part(norm_trains: bool) -> None:
    net = conv_net().train()
    net[1].train(norm_trains)  # or a frozen norm inside a network in training
    before = {name: value.clone() for name, value in net.state_dict().items()}
    compute_features(net, grey_images(50), PLAIN, batch_size=16, device="cpu")
    colour = Preprocessing(8, (0.0,) * 3, (1.0,) * 3)
    with pytest.raises(RuntimeError):  # modes return even when the encoder fails
        compute_features(net, grey_images(4).expand(4, 3, 8, 8), colour, batch_size=2, device="cpu")
    assert before.keys() == net.state_dict().keys()
    assert all(torch.equal(before[name], value) for name, value in net.state_dict().items())
    assert [part.training for part in net] == [True, norm_trains, True, True, True]
    assert net.training


def test_batch_norm_uses_running_statistics_and_dropout_does_nothing() -> None:
    net = conv_net().train()
    images = grey_images(9)
    features = compute_features(net, images, PLAIN, batch_size=4, device="cpu")
    conv, norm = net[0], net[1]
    maps = nn.functional.conv2d(images.double() / 255, conv.weight.double(), conv.bias.double())
    shape = (1, 4, 1, 1)
    scale = norm.weight.double() / (norm.running_var.double() + norm.eps).sqrt()
    expected = (maps - norm.running_mean.double().view(shape)) * scale.view(shape) + norm.bias.double().view(shape)
    torch.testing.assert_close(features.double(), expected.relu().flatten(1), rtol=0, atol=1e-5)


@pytest.mark.parametrize("batch_size", [1, 7, 20, 21, 1000])
def test_rows_are_the_images_in_order_for_any_batch_size(batch_size: int) -> None:
    images = grey_images(21)
    normalised = Preprocessing(8, (0.25,), (0.5,))
    features = compute_features(nn.Flatten(), images, normalised, batch_size=batch_size, device="cpu")
    assert torch.equal(features, ((images.float() / 255 - 0.25) / 0.5).flatten(1))


def test_features_of_convolutions_in_nhwc_are_those_in_nchw() -> None:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 4, 3), nn.Flatten()).double()
    images = torch.randint(256, (6, 3, 8, 8), dtype=torch.uint8)
    as_input = Preprocessing(8, (0.5,) * 3, (0.5,) * 3)
    before = [part.clone() for part in network.parameters()]
    plain = network(as_input(images).double()).detach()
    there = placed(network, "cpu")
    assert there[2].weight.is_contiguous(memory_format=torch.channels_last)
    assert all(torch.equal(now, part) for now, part in zip(there.parameters(), before, strict=True))
    found = compute_features(lambda pixels: there(pixels.double()), images, as_input, batch_size=4, device="cpu")
    torch.testing.assert_close(found, plain.float(), rtol=1e-6, atol=1e-6)


def test_features_are_float32_without_gradient_and_usable_in_training() -> None:
    net = conv_net().double()
    features = compute_features(lambda x: net.eval()(x.double()), grey_images(3), PLAIN, batch_size=2, device="cpu")
    assert features.dtype == torch.float32
    assert not features.requires_grad
    probe = nn.Linear(features.shape[1], 2)
    probe(features).sum().backward()
    assert probe.weight.grad is not None


def test_a_bound_method_stands_for_its_module() -> None:
    class Wrapper(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder = conv_net()

        def embed(self, images: Tensor) -> Tensor:
            return self.encoder(images)

    wrapper = Wrapper().train()
    frozen = compute_features(wrapper.encoder, grey_images(6), PLAIN, batch_size=3, device="cpu")
    assert torch.equal(compute_features(wrapper.embed, grey_images(6), PLAIN, batch_size=3, device="cpu"), frozen)
    assert wrapper.encoder.training


def test_progress_counts_images() -> None:
    seen: list[tuple[int, int, str]] = []
    told = {"on_progress": lambda *step: seen.append(step), "what": "features of test images"}
    compute_features(nn.Flatten(), grey_images(5), PLAIN, batch_size=2, device="cpu", **told)
    assert seen == [(done, 5, "features of test images") for done in (2, 4, 5)]


def broken(images: Tensor) -> Tensor:
    out = images.flatten(1).clone()
    out[1, 0], out[2, 3] = float("nan"), float("inf")
    return out


@pytest.mark.parametrize(
    ("encoder", "count", "channels", "error", "sentence"),
    [
        (broken, 4, 1, TrainingError, "got NaN or infinity for 2 of 4 images"),
        (nn.Flatten(), 2, 3, DataError, r"expects 3 channel\(s\), got 1"),  # one would broadcast to three
        (nn.Flatten(), 0, 1, DataError, "at least one"),
    ],
)
def test_what_gives_no_features_is_one_sentence(encoder, count, channels, error, sentence):
    preprocessing = Preprocessing(8, (0.0,) * channels, (1.0,) * channels)
    with pytest.raises(error, match=sentence):
        compute_features(encoder, grey_images(count), preprocessing, batch_size=4, device="cpu")


@pytest.mark.parametrize(
    ("labels", "sentence"),
    [
        ([0, -1, 2, -1], "folder: .* got 2 of 4 without"),
        ([0, 1_000_000_000_002], "folder: labels must be numbers of classes, below 1,048,576, .* 1000000000002"),
    ],
)
def test_labels_that_no_probe_can_use_are_one_sentence(labels: list[int], sentence: str) -> None:
    count = len(labels)
    images = ImageSet("folder", grey_images(count), torch.tensor(labels), torch.arange(count), (), (0.0,), (1.0,))
    with pytest.raises(DataError, match=sentence):
        require_labels(images)
    require_labels(images.rows((images.labels >= 0) & (images.labels < 10)))


def test_a_line_comes_every_ten_seconds_whatever_the_work() -> None:
    times, written = iter([0.0, 4.0, 9.9, 10.0, 19.9, 20.1]), list[str]()
    on_progress = in_lines(written.append, lambda: next(times))
    for done, what in ((1, "features"), (2, "features"), (1_200, "features"), (1, "knn"), (5_000, "linear")):
        on_progress(done, 10_000, what)
    # 1,199 images in 6 s, 8,800 to go: 44.04 s; of linear nothing but its beginning has been seen
    assert written == ["features: 1,200 of 10,000, 200/s, 0:44 left", "linear: 5,000 of 10,000"]


def test_work_without_parts_is_said_to_run() -> None:
    times, written = iter([0.0, 12.0, 24.0]), list[str]()
    on_progress = in_lines(written.append, lambda: next(times))
    for done in (0, 1):
        on_progress(done, 1, "linear")
    assert written == ["linear: running", "linear: done"]


def test_work_that_begins_again_or_in_the_middle_has_a_rate_of_its_own() -> None:
    rates = ProgressRates()
    seen = [rates.seen(done, "features", now) for done, now in ((0, 0.0), (20, 10.0), (0, 100.0), (5, 101.0))]
    assert seen == [0.0, 2.0, 0.0, 5.0]
    continued = [rates.seen(done, "images", now) for done, now in ((1000, 0.0), (1300, 30.0))]
    assert continued == [0.0, 10.0]

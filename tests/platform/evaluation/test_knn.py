"""kNN rules against slow loops, scikit-learn and closed forms."""

import math
from typing import Any

import pytest
import torch
from sklearn.neighbors import KNeighborsClassifier
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from ebclab.errors import DataError
from ebclab.evaluation import evaluate as knn
from ebclab.evaluation.evaluate import ebclr_knn_predictions, knn_predictions


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

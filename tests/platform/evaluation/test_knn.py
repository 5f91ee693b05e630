"""kNN rules against slow loops, scikit-learn and closed forms."""

import math

import numpy as np
import pytest
import torch
from sklearn.neighbors import KNeighborsClassifier
from torch import Tensor

from ebclab.errors import DataError
from ebclab.evaluation import knn
from ebclab.evaluation.knn import ebclr_knn_predictions, knn_predictions


def random_problem(num_classes: int = 5) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    draw = torch.Generator().manual_seed(3)
    centres = torch.randn(num_classes, 6, generator=draw, dtype=torch.float64)
    labels = torch.randint(0, num_classes, (260,), generator=draw)
    points = centres[labels] + 1.2 * torch.randn(260, 6, generator=draw, dtype=torch.float64)
    return points[:200], labels[:200], points[200:], labels[200:]


def slow_cosine_knn(
    bank: Tensor, labels: Tensor, query: Tensor, neighbours: int, temperature: float, classes: int
) -> int:
    similarity = [float(query @ row / (query.norm() * row.norm())) for row in bank]
    nearest = sorted(range(len(bank)), key=lambda row: (-similarity[row], row))[:neighbours]
    votes = [0.0] * classes
    for row in nearest:
        votes[int(labels[row])] += math.exp(similarity[row] / temperature)
    return votes.index(max(votes))


@pytest.mark.parametrize(("neighbours", "temperature"), [(1, 0.1), (7, 0.07), (20, 0.5), (200, 0.2)])
def test_cosine_votes_equal_a_slow_loop(neighbours: int, temperature: float) -> None:
    bank, labels, queries, _ = random_problem()
    expected = [slow_cosine_knn(bank, labels, query, neighbours, temperature, 5) for query in queries]
    predicted = knn_predictions(bank, labels, queries, neighbours=neighbours, temperature=temperature, num_classes=5)
    assert predicted.tolist() == expected


def test_cosine_votes_equal_scikit_learn() -> None:
    bank, labels, queries, truth = random_problem()
    model = KNeighborsClassifier(15, metric="cosine", weights=lambda distance: np.exp((1 - distance) / 0.1))
    model.fit(bank.numpy(), labels.numpy())
    settings = {"neighbours": 15, "temperature": 0.1, "num_classes": 5}
    assert knn_predictions(bank, labels, queries, **settings).tolist() == model.predict(queries.numpy()).tolist()
    accuracy = (knn_predictions(bank, labels, queries, **settings) == truth).double().mean().item()
    assert accuracy == pytest.approx(model.score(queries.numpy(), truth.numpy()), abs=1e-12)
    assert 0.5 < accuracy < 1.0


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


def test_one_ebclr_vote_at_distance_zero_beats_all_others() -> None:
    bank = torch.cat([torch.zeros(1, 2), torch.full((19, 2), 1e-6)])
    labels = torch.tensor([0] + [1] * 19)
    assert ebclr_knn_predictions(bank, labels, torch.zeros(1, 2), num_classes=2).tolist() == [0]


def test_the_two_rules_differ_where_length_matters() -> None:
    bank = torch.tensor([[10.0, 1.0], [1.0, 3.0]])
    labels = torch.tensor([0, 1])
    query = torch.tensor([[1.0, 0.5]])  # its direction is nearer to row 0, its position to row 1
    assert knn_predictions(bank, labels, query, neighbours=1, temperature=0.1, num_classes=2).tolist() == [0]
    assert ebclr_knn_predictions(bank, labels, query, num_classes=2, neighbours=1).tolist() == [1]


def test_scale_of_features_does_not_change_the_cosine_rule() -> None:
    bank, labels, queries, _ = random_problem()
    scale = torch.rand(200, 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64) + 0.1
    settings = {"neighbours": 9, "temperature": 0.1, "num_classes": 5}
    assert torch.equal(
        knn_predictions(bank * scale, labels, queries * 7, **settings),
        knn_predictions(bank, labels, queries, **settings),
    )


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


def test_a_collapsed_encoder_scores_the_same_for_any_order_of_ties() -> None:
    labels = torch.arange(100) % 4
    predicted = knn_predictions(
        torch.ones(100, 4), labels, torch.ones(8, 4), neighbours=21, temperature=0.1, num_classes=4
    )
    assert predicted.tolist() == [0] * 8  # rows 0 to 20 hold label 0 six times, the others five times


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


def test_separate_classes_score_one_and_shuffled_labels_chance() -> None:
    draw = torch.Generator().manual_seed(0)
    labels = torch.arange(3000) % 10
    points = 10 * torch.eye(10)[labels] + torch.randn(3000, 10, generator=draw)
    settings = {"neighbours": 20, "temperature": 0.1, "num_classes": 10}
    assert torch.equal(knn_predictions(points[:2000], labels[:2000], points[2000:], **settings), labels[2000:])
    shuffled = labels[torch.randperm(3000, generator=draw)]
    predicted = knn_predictions(points[:2000], shuffled[:2000], points[2000:], **settings)
    chance = (predicted == shuffled[2000:]).double().mean().item()
    assert abs(chance - 0.1) < 4 * math.sqrt(0.1 * 0.9 / 1000)  # four standard errors over 1,000 test rows


def test_more_neighbours_than_rows_is_one_sentence() -> None:
    bank, labels = torch.ones(10, 2), torch.zeros(10, dtype=torch.long)
    sentence = r"evaluation\.knn_neighbours: .* 10 available training images, got 20"
    with pytest.raises(DataError, match=sentence):
        knn_predictions(bank, labels, bank, neighbours=20, temperature=0.1, num_classes=1)
    with pytest.raises(DataError, match="ebclr-knn: needs 20 training images, got 10; use more, or the probe knn"):
        ebclr_knn_predictions(bank, labels, bank, num_classes=1)

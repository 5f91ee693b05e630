"""Running means by row: the update against plain numbers, growth, and what may be loaded."""

import math

import pytest
import torch

from energy_contrast.memory import RunningMeans


def rows(*numbers: int) -> torch.Tensor:
    return torch.tensor(numbers)


def test_means_follow_the_papers_update_from_the_first_value_on() -> None:
    memory, expected = RunningMeans(0.3), {}
    for step in range(5):
        for row in (4, 1, 7)[: 1 + step % 3]:
            value = 0.5 + step + row
            expected[row] = 0.7 * expected[row] + 0.3 * value if row in expected else value
            memory.store(rows(row), memory.blend(rows(row), torch.tensor([[value]]))[0])
    assert memory.means.tolist() == pytest.approx([expected.get(row, 0.0) for row in range(8)], rel=1e-14)


def test_a_blend_stores_nothing_and_both_values_of_a_row_meet_its_mean_alone() -> None:
    memory = RunningMeans(0.25)
    memory.store(rows(0, 2), torch.tensor([8.0, 1.0]))
    blended = memory.blend(rows(2, 0), torch.tensor([[5.0, 4.0], [9.0, 12.0]]))
    assert blended.tolist() == [[2.0, 7.0], [3.0, 9.0]]
    assert memory.means.tolist() == [8.0, 0.0, 1.0]


def test_a_rate_of_one_forgets_and_the_state_is_taken_over_as_a_copy() -> None:
    memory, other = RunningMeans(1.0), RunningMeans(1.0)
    memory.store(rows(3), torch.tensor([2.0]))
    other.load_state_dict(memory.state_dict())
    memory.store(rows(3), torch.tensor([9.0]))
    assert other.means.tolist() == [0.0, 0.0, 0.0, 2.0]
    assert other.blend(rows(3), torch.tensor([[5.0]])).item() == 5.0


@pytest.mark.parametrize(
    "means",
    [
        torch.zeros(2, 2).double(),
        torch.zeros(2),
        torch.tensor([1.0, math.nan]).double(),
        torch.tensor([math.inf]).double(),
        torch.tensor([-1.0]).double(),
    ],
)
def test_what_is_no_mean_is_refused(means: torch.Tensor) -> None:
    for state in ({"means": means}, {}):
        with pytest.raises(ValueError, match="means: not one number a row, 0 or more, got"):
            RunningMeans(0.5).load_state_dict(state)

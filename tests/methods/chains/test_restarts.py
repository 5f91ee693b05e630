"""What a buffer begins with and what new starts look like."""

import pytest
import torch
from torch import Tensor

from energy_contrast.chains.restarts import Restarts
from energy_contrast.memory import ReplayBuffer
from energy_contrast.method import PixelRange

CPU = torch.device("cpu")
RANGE = PixelRange((-2.0, 0.0), (-1.0, 5.0))


def sevens(count: int, generator: torch.Generator) -> Tensor:
    return torch.full((count, 2, 3, 3), 7.0)


def fill(restarts: Restarts, size: int = 2000, dtype: str = "float32") -> ReplayBuffer:
    buffer = ReplayBuffer(size, dtype=dtype)
    restarts.fill(buffer, sevens, torch.Generator().manual_seed(0), CPU, RANGE)
    return buffer


@pytest.mark.parametrize(
    ("rate", "batch_size", "places"), [(0.2, 128, 25), (0.2, 16, 3), (0.29, 100, 29), (0.0, 9, 0), (1.0, 9, 9)]
)
def test_places_are_the_whole_part_of_rate_times_batch(rate: float, batch_size: int, places: int) -> None:
    assert Restarts(rate, 0.0, 5).num_starts(batch_size) == places
    assert Restarts(rate, 0.5, 5).num_proposals(batch_size) == places
    assert Restarts(rate, 1.0, 5).num_proposals(batch_size) == 0


def test_a_buffer_of_data_holds_what_was_drawn_chunk_by_chunk() -> None:
    asked = []

    def rising(count: int, generator: torch.Generator) -> Tensor:
        asked.append(count)
        return (torch.arange(count) + sum(asked[:-1])).float().view(-1, 1, 1, 1)

    buffer = ReplayBuffer(2500)
    Restarts(0.2, 0.0, 5).fill(buffer, rising, torch.Generator(), CPU, None)
    assert torch.equal(buffer.pixels.flatten(), torch.arange(2500).float())
    assert (buffer.counts == 5).all()


def test_uniform_starts_lie_between_black_and_white_of_their_channel_evenly() -> None:
    pixels = fill(Restarts(0.2, 1.0, 5)).pixels
    for channel, (low, high) in enumerate(zip(*RANGE, strict=True)):
        values = pixels[:, channel].flatten().sort().values
        assert low <= values[0] < values[-1] <= high
        even = torch.linspace(low, high, len(values))
        assert (values - even).abs().max() < 0.02 * (high - low)


def test_a_blend_is_uniform_image_by_image_at_its_rate() -> None:
    data = (fill(Restarts(0.2, 0.3, 5)).pixels == 7.0).flatten(1)
    assert torch.equal(data.any(1), data.all(1))
    assert 1 - data.all(1).double().mean().item() == pytest.approx(0.3, abs=4 * (0.3 * 0.7 / 2000) ** 0.5)


def test_new_starts_are_the_proposals_unless_uniform() -> None:
    proposals, like = torch.full((4, 2, 3, 3), 9.0), torch.empty(6, 2, 3, 3, dtype=torch.float64)

    def starts(uniform_rate: float, given: Tensor) -> Tensor:
        return Restarts(0.5, uniform_rate, 5).new_starts(
            given, torch.Generator().manual_seed(0), RANGE, like=like, count=4
        )

    assert torch.equal(starts(0.0, proposals), proposals.double())
    uniform = starts(1.0, proposals[:0])
    assert uniform.shape == (4, 2, 3, 3)
    assert ((uniform[:, 0] >= -2) & (uniform[:, 0] <= -1)).all()
    with pytest.raises(ValueError, match="part: rank 0 of 1 holds 4 of 4 rows, got 3"):
        starts(0.0, proposals[:3])


def test_bytes_reach_a_tenth_beyond_black_and_white() -> None:
    buffer = ReplayBuffer(4, dtype="uint8")
    Restarts(0.2, 0.0, 5).fill(buffer, sevens, torch.Generator(), CPU, RANGE)
    assert buffer.bounds == pytest.approx((-2.7, 5.7))  # from -2 to 5 over all channels
    torch.testing.assert_close(buffer.draw(torch.arange(4), torch.float32)[0], torch.full((4, 2, 3, 3), 5.7))

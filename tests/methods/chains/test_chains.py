"""Which chains start, from where, how they move and where they are written."""

import pytest
import torch
from torch import Tensor

from energy_contrast.chains.chains import gather_chains, measure_chains, move_chains, start_chains, store_chains
from energy_contrast.chains.restarts import Restarts
from energy_contrast.memory import ReplayBuffer
from energy_contrast.method import PixelRange
from energy_contrast.samplers import multistage_sgld, proximal_sgld

SHAPE = (1, 2, 2)
RANGE = PixelRange((-1.0,), (1.0,))


def numbered_buffer(size: int = 50) -> ReplayBuffer:
    """Return a buffer whose image r is all r and whose count is 100 + r."""
    buffer = ReplayBuffer(size)
    buffer.allocate(SHAPE, torch.float64, torch.device("cpu"))
    rows = torch.arange(size)
    buffer.store(rows, numbered(size), rows + 100)
    return buffer


def numbered(count: int, first: int = 0) -> Tensor:
    return (torch.arange(count).double() + first).view(-1, 1, 1, 1).expand(-1, *SHAPE)


def begin(buffer: ReplayBuffer, batch_size: int, rate: float, seed: int = 0, uniform_rate: float = 0.0):
    restarts = Restarts(rate, uniform_rate, first_count=5)
    proposals = numbered(restarts.num_proposals(batch_size), first=1000)
    generator = torch.Generator().manual_seed(seed)
    like = torch.empty(batch_size, *SHAPE, dtype=torch.float64)
    return start_chains(buffer, restarts, proposals, generator, RANGE, like=like)


def test_without_restarts_chains_are_the_buffers_rows_with_their_counts() -> None:
    chains = begin(numbered_buffer(), 30, 0.0)
    assert torch.equal(chains.position, numbered(50)[chains.rows])
    assert torch.equal(chains.counts, (chains.rows + 100).int())
    assert len(chains.rows.unique()) < 30  # drawn with replacement


def test_chains_that_start_anew_each_by_itself_take_the_proposal_of_their_own_place() -> None:
    restarts, buffer = Restarts(0.5, 0.0, first_count=5, drawn="each"), numbered_buffer()
    like = torch.empty(10, *SHAPE, dtype=torch.float64)
    proposals, generator = numbered(10, first=1000), torch.Generator().manual_seed(3)
    chains = start_chains(buffer, restarts, proposals, generator, RANGE, like=like)
    generator = torch.Generator().manual_seed(3)
    rows = torch.randint(50, (10,), generator=generator)
    fresh = [chance < 0.5 for chance in torch.rand(10, generator=generator).tolist()]
    assert 2 < sum(fresh) < 10
    for place, (row, new) in enumerate(zip(rows.tolist(), fresh, strict=True)):
        assert (chains.position[place] == (1000 + place if new else row)).all()
        assert chains.counts[place] == (0 if new else row + 100)


def test_a_place_that_starts_anew_takes_the_last_proposal_drawn_for_it_and_count_zero() -> None:
    for seed in range(20):
        chains = begin(numbered_buffer(), 10, 0.9, seed)
        generator = torch.Generator().manual_seed(seed)
        rows = torch.randint(50, (10,), generator=generator)
        places = torch.randint(10, (9,), generator=generator).tolist()
        expected, counts = numbered(50)[rows].clone(), rows + 100
        for number, place in enumerate(places):
            expected[place], counts[place] = 1000.0 + number, 0
        assert torch.equal(chains.rows, rows)
        assert torch.equal(chains.position, expected)
        assert torch.equal(chains.counts, counts.int())


@pytest.mark.parametrize(("rate", "batch_size"), [(0.2, 128), (0.2, 16), (0.4, 128), (0.6, 128), (1.0, 128)])
def test_the_distinct_share_that_starts_anew_is_that_of_draws_with_replacement(rate: float, batch_size: int) -> None:
    # k = floor(B rho) draws leave a place out with chance (1 - 1/B)^k.
    draws = int(batch_size * rate)
    expected = 1 - (1 - 1 / batch_size) ** draws
    buffer = numbered_buffer()
    shares = [(begin(buffer, batch_size, rate, seed).counts == 0).double().mean().item() for seed in range(300)]
    found = sum(shares) / len(shares)
    spread = (sum((share - found) ** 2 for share in shares) / len(shares)) ** 0.5
    assert found == pytest.approx(expected, abs=4 * spread / len(shares) ** 0.5)
    if batch_size == 128:
        assert round(expected, 2) == {0.2: 0.18, 0.4: 0.33, 0.6: 0.45, 1.0: 0.63}[rate]


def test_chains_go_back_to_their_rows_the_last_of_a_row_with_its_count_plus_one() -> None:
    buffer = numbered_buffer(6)
    chains = begin(buffer, 20, 0.3)._replace(position=numbered(20, first=500))
    store_chains(buffer, gather_chains(chains))
    expected = {row: (float(row), 100 + row) for row in range(6)}
    for place, (row, count) in enumerate(zip(chains.rows.tolist(), chains.counts.tolist(), strict=True)):
        expected[row] = (500.0 + place, count + 1)
    assert {row: (buffer.pixels[row, 0, 0, 0].item(), buffer.counts[row].item()) for row in range(6)} == expected


def test_noise_is_drawn_anew_in_every_step_and_the_context_belongs_to_the_step() -> None:
    seen = []
    sampler = multistage_sgld(
        lambda x, _: 0 * x.flatten(1).sum(1),
        step_size=0.1,
        gradient_clamp=1.0,
        sigma_min=2.0,
        sigma_max=2.0,
        noise_decay_count=3,
    )
    chains = begin(numbered_buffer(), 8, 0.0)

    def context(step: int, position: Tensor) -> int:
        seen.append((step, position.clone()))
        return step

    moved, infos = move_chains(sampler, chains, context, torch.Generator().manual_seed(3), num_steps=4)
    generator = torch.Generator().manual_seed(3)
    position = chains.position
    for step in range(4):
        assert seen[step][0] == step
        torch.testing.assert_close(seen[step][1], position)
        position = position + 2.0 * torch.randn(8, *SHAPE, generator=generator, dtype=torch.float64)
    torch.testing.assert_close(moved.position, position)
    assert len(infos) == 4
    assert torch.equal(moved.rows, chains.rows)
    assert torch.equal(moved.counts, chains.counts)


def test_what_is_measured_of_chains() -> None:
    buffer = numbered_buffer(4)
    chains = begin(buffer, 4, 0.5)
    sampler = proximal_sgld(lambda x, _: 3 * x.flatten(1).sum(1), step_size=0.5, gradient_clamp=2.0, noise_std=0.0)
    _, info = sampler.step(sampler.init(chains.position), None, torch.zeros(4, *SHAPE))
    position = torch.tensor([-1.3, -1.1, 0.0, 1.21]).double().view(1, *SHAPE).expand(4, *SHAPE)
    metrics = measure_chains(buffer, chains._replace(position=position), [info, info], RANGE)
    assert metrics["chain_movement"].item() == pytest.approx(0.5 * 2)  # every pixel by step times clamp
    assert metrics["chain_gradient_norm"].item() == pytest.approx(3 * 4**0.5)  # before the clamp
    assert metrics["chain_saturation"].item() == 0.5  # beyond 1.2, a tenth of the range past white
    assert metrics["buffer_age"].item() == pytest.approx(101.5)
    assert metrics["reinit_share"].item() == (chains.counts == 0).double().mean()
    new_buffer = measure_chains(buffer, chains._replace(counts=0 * chains.counts), [info], RANGE)
    assert new_buffer["reinit_share"] == metrics["reinit_share"]  # images that were never moved are no new starts
    assert "chain_saturation" not in measure_chains(buffer, chains, [info], None)


@pytest.mark.parametrize("batch_size", [10, 16])
@pytest.mark.parametrize("rate", [0.0, 0.3, 1.0])
def test_a_share_without_replacement_is_of_different_chains(rate: float, batch_size: int) -> None:
    restarts = Restarts(rate, 0.0, first_count=5, drawn="without-replacement")
    like = torch.empty(batch_size, *SHAPE, dtype=torch.float64)
    count = int(batch_size * rate + 1e-9)
    chains = start_chains(
        numbered_buffer(), restarts, numbered(count, 1000), torch.Generator().manual_seed(0), RANGE, like=like
    )
    shown = chains.position.flatten(1).amax(1)
    assert sorted(shown[chains.anew].tolist()) == [1000 + slot for slot in range(count)]  # each new start once
    assert int(chains.anew.sum()) == count
    assert torch.equal(shown[~chains.anew], chains.rows[~chains.anew].double())
    assert ((chains.counts == 0) == chains.anew).all()


def test_chains_take_the_memory_format_of_the_views() -> None:
    buffer, restarts = ReplayBuffer(5), Restarts(0.5, 0.0, first_count=5)
    buffer.allocate((3, 4, 4), torch.float32, torch.device("cpu"))
    like = torch.empty(4, 3, 4, 4).to(memory_format=torch.channels_last)
    for wanted in (like, like.contiguous()):
        found = start_chains(buffer, restarts, torch.zeros(2, 3, 4, 4), torch.Generator(), None, like=wanted).position
        assert found.stride() == wanted.stride()

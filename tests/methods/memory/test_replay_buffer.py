"""The replay buffer against a dictionary, and what it says before it takes memory."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from energy_contrast.memory import ReplayBuffer
from energy_contrast.memory.replay_buffer import available_bytes

CPU = torch.device("cpu")
SHAPE = (2, 3, 3)


def filled(size: int = 10, dtype: str = "float32", bounds: tuple[float, float] = (-1.0, 1.0)) -> ReplayBuffer:
    buffer = ReplayBuffer(size, dtype=dtype, bounds=bounds)
    buffer.allocate(SHAPE, torch.float32, CPU)
    buffer.store(torch.arange(size), images(size), torch.arange(size) + 5)
    return buffer


def images(count: int, seed: int = 0) -> Tensor:
    return torch.rand(count, *SHAPE, generator=torch.Generator().manual_seed(seed)) * 2 - 1


def test_rows_come_back_as_they_were_stored_with_their_counts() -> None:
    buffer, rows = filled(), torch.tensor([3, 9, 3])
    found, counts = buffer.draw(rows, torch.float32)
    assert torch.equal(found, images(10)[rows])
    assert counts.tolist() == [8, 14, 8]


@pytest.mark.parametrize("seed", range(5))
def test_of_equal_rows_the_last_stays_as_in_a_dictionary(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    buffer, new = filled(), images(30, seed=7)
    rows = torch.randint(10, (30,), generator=generator)
    counts = torch.randint(100, (30,), generator=generator)
    buffer.store(rows, new, counts)
    expected = dict(enumerate(zip(images(10), range(5, 15), strict=True)))
    for row, image, count in zip(rows.tolist(), new, counts.tolist(), strict=True):
        expected[row] = (image, count)
    for row, (image, count) in expected.items():
        assert torch.equal(buffer.pixels[row], image)
        assert buffer.counts[row] == count


class Backwards(TorchFunctionMode):
    """A device that writes the last row of an ``index_copy_`` first: where rows are equal, any order is allowed."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func is Tensor.index_copy_:
            written, axis, rows, values = args
            args = (written, axis, rows.flip(0), values.flip(0))
        return func(*args, **(kwargs or {}))


def test_of_equal_rows_the_last_stays_in_whatever_order_a_device_writes() -> None:
    buffer, new = filled(), images(3, seed=7)
    with Backwards():
        buffer.store(torch.tensor([4, 4, 2]), new, torch.tensor([60, 61, 62]))
    assert torch.equal(buffer.pixels[[4, 2]], new[1:])
    assert buffer.counts.tolist() == [5, 6, 62, 8, 61, 10, 11, 12, 13, 14]


def test_what_was_drawn_is_a_copy() -> None:
    buffer = filled()
    buffer.draw(torch.arange(10), torch.float32)[0].zero_()
    assert torch.equal(buffer.pixels, images(10))


def test_float32_does_not_round_double_images_and_half_rounds_to_its_own_numbers() -> None:
    double = ReplayBuffer(3)
    double.allocate(SHAPE, torch.float64, CPU)
    exact = images(3).double() / 3
    double.store(torch.arange(3), exact, torch.zeros(3))
    assert torch.equal(double.draw(torch.arange(3), torch.float64)[0], exact)
    assert torch.equal(filled(dtype="half").draw(torch.arange(10), torch.float32)[0], images(10).half().float())


def test_bytes_hold_levels_of_the_bounds_and_cut_what_lies_outside() -> None:
    buffer = filled(dtype="uint8", bounds=(-1.2, 1.2))
    found = buffer.draw(torch.arange(10), torch.float32)[0]
    assert buffer.pixels.dtype == torch.uint8
    assert (found - images(10)).abs().max() <= 1.2 / 255 + 1e-6  # half a level
    buffer.store(torch.tensor([0, 1]), torch.tensor([-9.0, 9.0]).view(2, 1, 1, 1).expand(2, *SHAPE), torch.zeros(2))
    ends = buffer.draw(torch.tensor([0, 1]), torch.float32)[0].flatten(1)
    torch.testing.assert_close(ends, torch.tensor([[-1.2], [1.2]]).expand(2, 18))
    buffer.store(torch.tensor([0]), found[5:6], torch.zeros(1))
    assert torch.equal(buffer.pixels[0], buffer.pixels[5])  # what was rounded once is not rounded again


@pytest.mark.parametrize("dtype", ["float32", "half", "uint8"])
def test_a_saved_buffer_goes_on_in_the_same_bits(dtype: str) -> None:
    buffer, other = filled(dtype=dtype, bounds=(-1.5, 1.0)), ReplayBuffer(10, dtype=dtype)
    other.load_state_dict(buffer.state_dict())
    for each in (buffer, other):
        each.store(torch.tensor([2, 2]), images(2, seed=3), torch.tensor([1, 4]))
    assert torch.equal(buffer.pixels, other.pixels)
    assert torch.equal(buffer.counts, other.counts)
    rows = torch.arange(10)
    assert torch.equal(buffer.draw(rows, torch.float32)[0], other.draw(rows, torch.float32)[0])
    assert other.pixels.data_ptr() != buffer.pixels.data_ptr()


def test_a_buffer_without_images_can_be_saved_and_loaded() -> None:
    empty = ReplayBuffer(4)
    empty.load_state_dict(ReplayBuffer(4).state_dict())
    assert not empty.allocated


@pytest.mark.parametrize(("dtype", "each"), [("float32", 4), ("half", 2), ("uint8", 1)])
def test_the_bytes_are_known_before_any_are_taken(dtype: str, each: int) -> None:
    buffer = ReplayBuffer(10, dtype=dtype)
    expected = 10 * (18 * each + 4)
    assert buffer.num_bytes(SHAPE) == expected
    assert not buffer.allocated
    buffer.allocate(SHAPE, torch.float32, CPU)
    assert buffer.pixels.nbytes + buffer.counts.nbytes == expected


def test_a_buffer_that_does_not_fit_is_refused_with_the_sum_before_it_is_made() -> None:
    buffer = ReplayBuffer(50_000)
    message = r"buffer_size: 50000 images of 3x32x32 as float32 do not fit on cpu, got 0\.61 GB needed and 0\.50 GB"
    with pytest.raises(ValueError, match=message):
        buffer.require_room((3, 32, 32), 500_000_000, "cpu")
    buffer.require_room((3, 32, 32), buffer.num_bytes((3, 32, 32)), "cpu")
    assert not buffer.allocated
    assert available_bytes(CPU) > 2**28


def test_wrong_sizes_and_types_are_refused() -> None:
    with pytest.raises(ValueError, match="buffer_size: a buffer needs an image, got 0"):
        ReplayBuffer(0)
    with pytest.raises(ValueError, match="buffer_dtype: no such choice, got 'int4'; use one of float32, half, uint8"):
        ReplayBuffer(3, dtype="int4")
    with pytest.raises(ValueError, match="buffer_size: the saved buffer has another size, got 10"):
        ReplayBuffer(11).load_state_dict(filled().state_dict())


@pytest.mark.parametrize(("dtype", "saved"), [("float32", "half"), ("half", "float32"), ("float32", "uint8")])
def test_saved_images_of_another_type_are_refused(dtype: str, saved: str) -> None:
    state = filled(dtype=saved).state_dict()
    found = str(state["pixels"].dtype).replace(".", r"\.")
    with pytest.raises(ValueError, match=rf"buffer: not images as {dtype}, got {found} \(10, "):
        ReplayBuffer(10, dtype=dtype).load_state_dict(state)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_duplicates_end_alike_on_cpu_and_gpu_wherever_the_buffer_lives() -> None:
    rows, new = torch.randint(10, (64,), generator=torch.Generator().manual_seed(0)), images(64, seed=1)
    expected = filled()
    expected.store(rows, new, torch.arange(64))
    for device in ("cpu", "cuda"):
        buffer = filled()
        buffer.to(torch.device(device))
        buffer.store(rows.cuda(), new.cuda(), torch.arange(64).cuda())
        assert torch.equal(buffer.pixels.cpu(), expected.pixels)
        assert torch.equal(buffer.counts.cpu(), expected.counts)
        assert torch.equal(buffer.draw(rows.cuda(), torch.float32)[0].cpu(), expected.pixels[rows])

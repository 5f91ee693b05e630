"""What ranks do together, alone and as two processes."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from ebclab.errors import (
    DivergedError,
    EbclabError,
    ExportError,
    InterruptedRunError,
    RunError,
    StoreError,
    TrainingError,
    UserError,
    VersionError,
)
from ebclab.training.process_group import ALONE, Ranks, kind_of, raised_elsewhere


def _refuse() -> None:
    raise RunError("runs/x: no room")


def _lose_the_folder() -> None:
    raise FileNotFoundError(2, "No such file or directory", "runs/x/metrics.jsonl")


def be_a_rank(rank: int, num_ranks: int) -> dict[str, Any]:
    """Run every exchange as one of ``num_ranks`` processes."""
    ranks = Ranks.of_process_group()
    heard = []
    for refusing in (0, 1):
        try:
            ranks.together(_refuse if rank == refusing else lambda: None)
        except UserError as error:
            heard.append(f"{type(error).__name__} {error}")
    try:
        ranks.together(_lose_the_folder if rank == 0 else lambda: None)
    except (TrainingError, FileNotFoundError) as error:
        heard.append(f"{type(error).__name__} {error}")
    done: list[int] = []
    first = ranks.of_first(lambda: done.append(rank) or {"of": torch.tensor([rank]), "text": f"rank {rank}"})
    try:
        ranks.of_first(_refuse)
    except UserError as error:
        heard.append(f"{type(error).__name__} {error}")
    layer = nn.Linear(1, 1, bias=False)
    nn.init.constant_(layer.weight, 2.0)
    layer.register_buffer("own", torch.tensor(float(rank)))
    shared = ranks.shared(layer)
    shared(torch.tensor([[1.0 + rank]])).sum().backward()
    return {
        "who": [ranks.rank, ranks.world_size],
        "mean": ranks.mean(torch.tensor([1.0 + rank, float("nan") if rank else 0.0])),
        "first": first,
        "done": done,
        "gathered": ranks.gather(f"rank {rank}"),
        "result": ranks.together(lambda: 10 + rank),
        "heard": heard,
        "gradient": layer.weight.grad,
        "buffer": layer.own,
    }


def test_two_ranks_exchange_and_stop_for_the_same_reason(run_ranks: Callable[[str, int], list[Any]]) -> None:
    zero, one = run_ranks(__file__, 2)
    assert (zero["who"], one["who"]) == ([0, 2], [1, 2])
    for found in (zero, one):
        assert found["mean"][0] == 1.5
        assert found["mean"][1].isnan()
        assert found["first"] == {"of": torch.tensor([0]), "text": "rank 0"}
        assert found["gathered"] == ["rank 0", "rank 1"]
        assert found["gradient"].item() == 1.5  # the mean of the inputs 1 and 2
    assert (zero["done"], one["done"]) == ([0], [])  # rank 0 alone has worked
    assert (zero["result"], one["result"]) == (10, 11)
    lost = "[Errno 2] No such file or directory: 'runs/x/metrics.jsonl'"
    assert zero["heard"] == [
        "RunError runs/x: no room",
        "UserError runs/x: no room",
        f"FileNotFoundError {lost}",
        "RunError runs/x: no room",
    ]
    assert one["heard"] == [
        "UserError runs/x: no room",
        "RunError runs/x: no room",
        f"TrainingError {lost}",
        "UserError runs/x: no room",
    ]
    assert (zero["buffer"], one["buffer"]) == (0.0, 1.0)  # buffers are the methods' own business


def test_one_rank_talks_to_nobody() -> None:
    value, module = torch.tensor([1.0]), nn.Linear(1, 1)
    assert ALONE.alone
    assert ALONE.mean(value) is value
    assert ALONE.shared(module) is module
    assert ALONE.gather("a") == ["a"]
    assert ALONE.together(lambda: 3) == 3
    assert ALONE.of_first(lambda: 4) == 4
    with pytest.raises(RunError, match="no room"):
        ALONE.together(_refuse)


@pytest.mark.parametrize(
    ("own", "there"),
    [
        (DivergedError, DivergedError),
        (TrainingError, TrainingError),
        (VersionError, VersionError),
        (StoreError, StoreError),
        (RunError, UserError),
        (InterruptedRunError, InterruptedRunError),
        (ExportError, EbclabError),
        (OSError, TrainingError),
    ],
)
def test_an_error_of_another_process_keeps_its_sentence_and_what_depends_on_its_kind(own, there):
    error = raised_elsewhere(kind_of(own("a sentence")), "a sentence")
    assert type(error) is there
    assert str(error) == "a sentence"
    assert error.exit_code == getattr(own, "exit_code", TrainingError.exit_code)

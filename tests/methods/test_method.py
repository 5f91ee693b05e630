"""The contract, exercised by a toy method that uses every part of it."""

from dataclasses import dataclass, replace

import pytest
import torch
from torch import Tensor, nn

from energy_contrast.method import Batch, Method, Progress, Requirements, StepOutput


@dataclass(frozen=True)
class ToyConfig:
    proposal_rate: float = 0.5


class Toy(Method):
    """Pulls three views together, keeps a pool filled at the start and refreshed with proposals."""

    Config = ToyConfig
    num_views = 3

    def __init__(self, config: ToyConfig, encoder: nn.Module) -> None:
        super().__init__(config, encoder)
        self.pool = torch.zeros(0)
        self.seen: list[Progress] = []

    @classmethod
    def requirements(cls, config: ToyConfig, batch_size: int) -> Requirements:
        needed = super().requirements(config, batch_size)
        return replace(needed, num_proposals=int(batch_size * config.proposal_rate))

    def start(self, draw) -> None:
        self.pool = draw(6, torch.Generator().manual_seed(0))

    def forward(self, batch: Batch, generator: torch.Generator) -> StepOutput:
        self.pool = torch.cat([batch.proposals, self.pool[len(batch.proposals) :]])
        views = self.encoder(batch.views.flatten(0, 1)).unflatten(0, batch.views.shape[:2])
        noise = torch.rand((), generator=generator)
        return StepOutput(views.var(dim=0).mean(), {"info_nce": noise})

    def after_step(self, progress: Progress) -> None:
        self.seen.append(progress)


class Minimal(Method):
    """Only what a method must have."""

    def forward(self, batch: Batch, generator: torch.Generator) -> StepOutput:
        return StepOutput(self.encoder(batch.views[0]).mean(), {})


def build_encoder() -> nn.Module:
    encoder = nn.Sequential(nn.Flatten(), nn.Linear(4, 2))
    encoder.embedding_size = 2
    return encoder


def draw(count: int, generator: torch.Generator) -> Tensor:
    return torch.rand(count, 1, 2, 2, generator=generator)


def test_a_method_can_ask_for_views_proposals_and_a_start() -> None:
    toy = Toy(ToyConfig(), build_encoder())
    toy.start(draw)
    assert toy.pool.shape == (6, 1, 2, 2)
    size = 5
    assert toy.num_proposals(size) == 2
    assert Toy.requirements(ToyConfig(), size) == Requirements(num_views=3, num_proposals=2, batch_norm_groups=1)
    proposals = torch.full((2, 1, 2, 2), 7.0)
    batch = Batch(torch.rand(toy.num_views, size, 1, 2, 2), torch.zeros(size), torch.arange(size), proposals)
    output = toy(batch, torch.Generator().manual_seed(0))
    output.loss.backward()
    assert toy.encoder[1].weight.grad.abs().sum() > 0
    assert (toy.pool[:2] == 7).all()
    toy.after_step(Progress(1, 10, 0))
    assert toy.seen == [Progress(step=1, num_steps=10, epoch=0)]


def test_a_method_that_says_nothing_has_two_views_no_proposals_no_memories_and_quiet_hooks() -> None:
    method = Minimal(None, build_encoder())
    before = {k: v.clone() for k, v in method.state_dict().items()}
    method.start(draw)
    method.after_step(Progress(1, 1, 0))
    torch.testing.assert_close(method.state_dict(), before, rtol=0, atol=0)
    assert (method.num_views, method.num_proposals(64), method.memories) == (2, 0, {})
    assert method.diagnosing
    assert Minimal.requirements(None, 64) == Requirements(num_views=2, num_proposals=0, batch_norm_groups=1)


def test_a_method_may_override_what_a_built_one_is_asked() -> None:
    class Eager(Minimal):
        num_views = 4

        def num_proposals(self, batch_size: int) -> int:
            return 3 * batch_size

    eager = Eager(None, build_encoder())
    assert (eager.num_views, eager.num_proposals(2)) == (4, 6)
    assert Eager.requirements(None, 2).num_views == 4


def test_project_is_the_head_if_there_is_one_and_embed_never_is() -> None:
    method = Minimal(None, build_encoder())
    images = torch.rand(3, 1, 2, 2)
    torch.testing.assert_close(method.project(images), method.encoder(images), rtol=0, atol=0)
    method.head = nn.Linear(2, 5)
    torch.testing.assert_close(method.embed(images), method.encoder(images), rtol=0, atol=0)
    torch.testing.assert_close(method.project(images), method.head(method.encoder(images)), rtol=0, atol=0)


def test_a_method_without_forward_cannot_be_built() -> None:
    class Empty(Method):
        pass

    with pytest.raises(TypeError, match="forward"):
        Empty(None, build_encoder())

"""MoCo v2 against the papers' algorithm written out, and against torch's own cross-entropy and batch norm."""

import copy
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from energy_contrast.contrastive.moco import Moco, MocoConfig
from energy_contrast.contrastive.simclr import Simclr, SimclrConfig
from energy_contrast.method import Batch, Method, Progress
from energy_contrast.networks import build_encoder
from energy_contrast.networks.batch_norm import set_groups

from ..conftest import built, random_batch

SIZE = 8


def build(**settings: object) -> Moco:
    return built(Moco, **{"queue_size": 20, "batch_norm_groups": 1, **settings})


class Paper:
    """Algorithm 1 of the paper, line by line: average, score against the queue, step, enqueue."""

    def __init__(self, method: Moco) -> None:
        self.query = nn.Sequential(copy.deepcopy(method.encoder), copy.deepcopy(method.head))
        self.key = copy.deepcopy(self.query)
        self.rows = list(method.queue.clone())  # the oldest first
        self.config = method.config
        self.optimizer = torch.optim.SGD(self.query.parameters(), lr=0.1, momentum=0.9)

    def step(self, batch: Batch) -> Tensor:
        m = self.config.momentum
        with torch.no_grad():
            for weight, averaged in zip(self.query.parameters(), self.key.parameters(), strict=True):
                averaged.copy_(m * averaged + (1 - m) * weight)
            key = F.normalize(self.key(batch.views[1]), dim=1)
        query = F.normalize(self.query(batch.views[0]), dim=1)
        logits = torch.cat([(query * key).sum(dim=1, keepdim=True), query @ torch.stack(self.rows).T], dim=1)
        loss = F.cross_entropy(logits / self.config.temperature, torch.zeros(len(query), dtype=torch.int64))
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.rows = [*self.rows, *key][-self.config.queue_size :]
        return loss.detach()


@pytest.mark.parametrize("queue_size", [20, 16, 5])
def test_six_steps_are_the_papers_algorithm(queue_size: int) -> None:
    method = build(queue_size=queue_size, momentum=0.7, temperature=0.2)
    paper = Paper(method)
    optimizer = torch.optim.SGD([p for p in method.parameters() if p.requires_grad], lr=0.1, momentum=0.9)
    for step in range(6):
        output = method(random_batch(SIZE, step), torch.Generator())
        optimizer.zero_grad()
        output.loss.backward()
        optimizer.step()
        method.after_step(Progress(step + 1, 10, 0))
        torch.testing.assert_close(output.loss.detach(), paper.step(random_batch(SIZE, step)), rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(output.metrics["info_nce"], output.loss.detach())
    oldest = method.pointer.item()
    assert oldest == 6 * SIZE % queue_size
    torch.testing.assert_close(method.queue.roll(-oldest, 0), torch.stack(paper.rows), rtol=1e-9, atol=1e-9)
    trained, expected = (list(network.parameters()) for network in (method.encoder, paper.query[0]))
    torch.testing.assert_close(trained, expected, rtol=1e-8, atol=1e-9)


def test_the_queue_begins_with_unit_vectors_that_the_seed_decides() -> None:
    method = build()
    torch.testing.assert_close(method.queue.norm(dim=1), torch.ones(20, dtype=torch.float64), rtol=1e-6, atol=1e-6)
    assert torch.equal(method.queue, build().queue)
    assert (method.queue @ method.queue.T).fill_diagonal_(0).abs().mean() < 0.2  # rows are not alike


def test_symmetric_is_the_mean_of_both_directions_and_stores_both_views_keys() -> None:
    method, one_way = build(symmetric=True), build()
    batch = random_batch(SIZE, 0)
    swapped = Batch(batch.views.flip(0), batch.labels, batch.index, batch.proposals)
    losses = [one_way(b, torch.Generator()).loss for b in (batch, swapped)]
    output = method(batch, torch.Generator())
    torch.testing.assert_close(output.loss, (losses[0] + losses[1]) / 2)
    method.after_step(Progress(1, 10, 0))
    keys = [
        F.normalize(one_way.key_head(one_way.key_encoder(views)), dim=1) for views in (batch.views[1], batch.views[0])
    ]
    torch.testing.assert_close(method.queue[: 2 * SIZE], torch.cat(keys).detach())
    assert method.pointer == 2 * SIZE


def test_keys_are_normalised_in_groups_of_a_shuffled_batch_and_queries_in_groups_as_they_come() -> None:
    method, batch = build(batch_norm_groups=4), random_batch(16, 0)
    networks = [nn.Sequential(copy.deepcopy(e), copy.deepcopy(h)) for e, h in ((method.encoder, method.head),) * 2]
    for network in networks:
        set_groups(network, 1)
    output = method(batch, torch.Generator().manual_seed(3))
    order = torch.randperm(16, generator=torch.Generator().manual_seed(3))
    key = torch.empty(16, 128, dtype=torch.float64)
    for rows in order.chunk(4):
        key[rows] = F.normalize(networks[1](batch.views[1, rows]), dim=1).detach()
    query = torch.cat([F.normalize(networks[0](part), dim=1) for part in batch.views[0].chunk(4)])
    logits = torch.cat([(query * key).sum(dim=1, keepdim=True), query @ method.queue.T], dim=1) / 0.1
    torch.testing.assert_close(output.loss, F.cross_entropy(logits, torch.zeros(16, dtype=torch.int64)))
    method.after_step(Progress(1, 10, 0))
    torch.testing.assert_close(method.queue[:16], key)


def test_a_batch_that_the_groups_do_not_divide_is_refused() -> None:
    with pytest.raises(ValueError, match="batch_norm_groups: must divide the global batch of 8 images, got 3; use 2"):
        build(batch_norm_groups=3)(random_batch(SIZE, 0), torch.Generator())


class DispatchCount(TorchDispatchMode):
    """Counts what torch dispatches within it."""

    number = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.number += 1
        return function(*args, **(kwargs or {}))


def operations_of_a_step(method: Method) -> int:
    method.diagnosing = False
    with DispatchCount() as count:
        method(random_batch(16, dtype=torch.float32), torch.Generator()).loss.backward()
        method.after_step(Progress(1, 10, 0))
    return count.number


def test_a_step_with_groups_dispatches_at_most_three_times_what_simclrs_does() -> None:
    encoders = [build_encoder("resnet18", in_channels=1, width=4) for _ in range(2)]
    moco, simclr = Moco(MocoConfig(batch_norm_groups=8), encoders[0]), Simclr(SimclrConfig(), encoders[1])
    assert operations_of_a_step(moco) <= 3 * operations_of_a_step(simclr)

"""The loop trains any method, in the right order, and stops with a reason."""

import copy
from typing import Any

import pytest
import torch
from small_runs import Watcher
from torch import Tensor, nn

from ebclab.config.sections import TrainingConfig
from ebclab.errors import MethodError, TrainingError, UserError
from ebclab.training import loop
from ebclab.training.loop import RateMeter, Training, train
from ebclab.training.process_group import Ranks
from energy_contrast.method import Batch, Method, Progress, StepOutput


class Linear(Method):
    """Least squares on the first view; writes down what it was told."""

    num_views = 1

    def __init__(self) -> None:
        encoder = nn.Linear(2, 1, bias=False)
        nn.init.zeros_(encoder.weight)
        super().__init__(None, encoder)
        self.calls: list[Any] = []

    def forward(self, batch: Batch, generator: torch.Generator) -> StepOutput:
        self.calls.append(("forward", self.diagnosing, int(batch.index[0])))
        residual = self.encoder(batch.views[0].flatten(1)) - batch.labels[:, None]
        loss = residual.square().mean()
        noise = torch.rand((), generator=generator)
        return StepOutput(loss, {"info_nce": loss.detach(), "noise": noise})

    def after_step(self, progress: Progress) -> None:
        self.calls.append(("after_step", progress))


class Source:
    """Three batches an epoch; the batch says where it belongs."""

    num_batches = 3

    def batch(self, epoch: int, position: int) -> Batch:
        views = torch.ones(1, 4, 1, 1, 2)
        index = torch.full((4,), 10 * epoch + position)
        return Batch(views, torch.full((4,), 3), index, torch.empty(0, 1, 1, 2))


def _training(**settings: Any) -> Training:
    method = Linear()
    config = TrainingConfig(epochs=2, batch_size=4, log_every=2, **settings)
    return Training(
        method=method,
        optimizer=torch.optim.SGD(method.parameters(), lr=1.0),
        generator=torch.Generator().manual_seed(0),
        data=Source(),
        learning_rate=lambda step: 0.1 / (step + 1),
        config=config,
    )


def test_the_weights_after_two_epochs_are_those_of_the_recursion_by_hand() -> None:
    training = _training()
    assert train(training, Watcher()) is True
    weight = torch.zeros(2, dtype=torch.float64)
    for step in range(6):  # d/dw mean((w1 + w2 - 3)^2) = 2 (w1 + w2 - 3) for each weight
        weight = weight - 0.1 / (step + 1) * 2 * (weight.sum() - 3)
    assert torch.allclose(training.method.encoder.weight.detach().double(), weight[None], atol=1e-6)


def test_weight_decay_is_that_of_the_step_and_is_logged() -> None:
    training, watcher = _training(), Watcher()
    training.weight_decay = lambda step: 0.1 * step
    nn.init.ones_(training.method.encoder.weight)
    train(training, watcher)
    weight = torch.ones(2, dtype=torch.float64)
    for step in range(6):
        weight = weight - 0.1 / (step + 1) * (2 * (weight.sum() - 3) + 0.1 * step * weight)
    assert torch.allclose(training.method.encoder.weight.detach().double(), weight[None], atol=1e-6)
    assert [log["weight_decay"] for log in watcher.logs] == pytest.approx(
        [0.1 * (step - 1) for step in (1, 2, 3, 4, 6)]
    )


def test_gradients_are_clipped_over_all_weights_as_by_torchs_loop() -> None:
    training, watcher = _training(), Watcher()
    training.method.encoder, training.clip_norm = nn.Linear(2, 1), 0.5
    training.optimizer = torch.optim.SGD(training.method.parameters(), lr=1.0, momentum=0.9)
    twin, norms = copy.deepcopy(training.method.encoder), []
    optimizer = torch.optim.SGD(twin.parameters(), lr=1.0, momentum=0.9)
    for step in range(6):
        optimizer.zero_grad()
        optimizer.param_groups[0]["lr"] = 0.1 / (step + 1)
        (twin(torch.ones(4, 2)) - 3).square().mean().backward()
        norms.append(nn.utils.clip_grad_norm_(twin.parameters(), 0.5).item())
        optimizer.step()
    train(training, watcher)
    torch.testing.assert_close(training.method.encoder.state_dict(), twin.state_dict(), rtol=0, atol=0)
    assert [log["gradient_norm"] for log in watcher.logs] == [norms[step - 1] for step in (1, 2, 3, 4, 6)]
    assert min(norms) > 0.5


def test_steps_come_in_order_and_logs_at_the_first_every_second_and_each_epochs_last_step() -> None:
    training, watcher = _training(), Watcher()
    train(training, watcher)
    forward, after = ([call for call in training.method.calls if call[0] == kind] for kind in ("forward", "after_step"))
    assert [index for _, _, index in forward] == [0, 1, 2, 10, 11, 12]
    assert [diagnosed for _, diagnosed, _ in forward] == [True, True, True, True, False, True]
    assert [progress for _, progress in after] == [Progress(step, 6, (step - 1) // 3) for step in range(1, 7)]
    assert [e for e in watcher.events if e[0] == "log"] == [("log", s, (s - 1) // 3) for s in (1, 2, 3, 4, 6)]
    assert watcher.logs[1]["learning_rate"] == pytest.approx(0.05)
    assert watcher.logs[0]["info_nce"] == pytest.approx(9.0)


def test_a_request_to_stop_is_heard_after_the_step_and_the_rest_can_follow() -> None:
    training, watcher = _training(), Watcher(stop_after=4)
    assert train(training, watcher) is False
    assert watcher.events[-1] == ("stop", 4)
    assert training.step == 4
    assert train(training, Watcher()) is True
    undisturbed = _training()
    train(undisturbed, Watcher())
    assert torch.equal(training.method.encoder.weight, undisturbed.method.encoder.weight)


def test_a_request_to_stop_after_the_last_step_does_not_undo_a_finished_run() -> None:
    watcher = Watcher(stop_after=6)
    assert train(_training(), watcher) is True
    assert watcher.events[-1] == ("epoch", 6, 2)


def test_a_metric_that_is_not_finite_stops_the_run_with_its_step_and_name() -> None:
    training = _training()
    with torch.no_grad():
        training.method.encoder.weight.fill_(float("inf"))
    with pytest.raises(TrainingError, match=r"step 1: .*info_nce = "):
        train(training, Watcher())


HERE, NONE = torch.ones((), requires_grad=True), torch.zeros(())


@pytest.mark.parametrize(
    ("output", "problem"),
    [
        (StepOutput(HERE, {"loss": NONE}), "metric loss of Odd: .* another number of the log, got 'loss'; "),
        (StepOutput(HERE, {"epoch": NONE}), "metric epoch of Odd: .* another number of the log, got 'epoch'; "),
        (StepOutput(HERE, {3: NONE}), "metric 3 of Odd: not a text, or .*, got 3; "),
        (StepOutput(HERE, {"mine": torch.zeros(3)}), r"metric mine of Odd: not a .*, got .* of shape \(3,\)"),
        (StepOutput(HERE, {"mine": 0.5}), "metric mine of Odd: not a tensor with a single number on cpu, got float"),
        (StepOutput(HERE, {"mine": NONE.to("meta")}), "metric mine of Odd: not a .* on cpu, got .* on meta"),
        (NONE, r"Odd: forward must return StepOutput\(loss, metrics by their names\), got Tensor"),
        (StepOutput(HERE, None), "Odd: forward must return .*, got StepOutput with metrics of NoneType"),
        (StepOutput(0.5, {}), "Odd: the loss must be one number that depends on the weights, on cpu, got float; "),
        (StepOutput(torch.zeros(2), {}), r"Odd: the loss must be .*, got .* shape \(2,\) on cpu, without a gradient; "),
        (StepOutput(NONE, {}), r"Odd: the loss must be .*, got .* shape \(\) on cpu, without a gradient; "),
        (StepOutput(HERE.to("meta"), {}), "Odd: the loss must be .* on cpu, got .* on meta; "),
        (StepOutput(HERE.to(torch.complex64), {}), "Odd: the loss must be .*, got torch.complex64 of "),
        (StepOutput(HERE, {}), "Odd: the loss must depend .*, got no gradient for 1 of 1 weights, such as encoder"),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_what_a_method_must_not_return_is_a_sentence(output: Any, problem: str) -> None:
    class Odd(Linear):
        def forward(self, batch: Batch, generator: torch.Generator) -> StepOutput:
            return output

    training, watcher = _training(), Watcher()
    training.method = Odd()
    training.optimizer = torch.optim.SGD(training.method.parameters(), lr=0.1)
    with pytest.raises(UserError, match=f"^{problem}"):
        train(training, watcher)
    assert watcher.events == []


@pytest.mark.parametrize("place", ["forward", "after_step"])
def test_what_a_method_of_the_users_own_raises_is_a_sentence_with_its_line(place: str) -> None:
    def fail(*_: Any) -> None:
        {}["nothing"]  # this line

    training, line = _training(), fail.__code__.co_firstlineno + 1
    training.method.__dict__[place] = fail
    said = rf"Linear failed \(test_loop.py, line {line}\), got KeyError: 'nothing'; correct the method"
    with pytest.raises(MethodError, match=f"^{said}") as caught:
        train(training, Watcher())
    assert isinstance(caught.value.__cause__, KeyError)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("given", [True, False])
def test_draws_from_torchs_own_generator_are_a_warning(given: bool, caplog: pytest.LogCaptureFixture) -> None:
    class Drawing(Linear):
        def forward(self, batch: Batch, generator: torch.Generator) -> StepOutput:
            torch.rand(2, generator=generator if given else None)
            return super().forward(batch, generator)

    training = _training()
    training.method = Drawing()
    training.optimizer = torch.optim.SGD(training.method.parameters(), lr=0.1)
    train(training, Watcher())
    said = "Drawing: its steps draw from torch's own generator, "
    assert [text.startswith(said) for text in caplog.messages] == ([] if given else [True])  # once


def test_with_several_ranks_a_weight_without_gradient_is_named() -> None:
    training = _training()
    training.method.register_parameter("unused", nn.Parameter(torch.zeros(2)))
    training.optimizer.add_param_group({"params": [training.method.unused]})
    train(training, Watcher())  # one rank: nothing is averaged
    training.step, training.ranks = 0, Ranks(0, 2)
    with pytest.raises(UserError, match=r"^Linear: .* got no gradient for 1 of 2 weights, such as unused; freeze "):
        train(training, Watcher())


def test_bfloat16_runs_the_forward_pass_under_autocast() -> None:
    seen: list[Tensor] = []
    training = _training(precision="bfloat16")
    training.method.encoder.register_forward_hook(lambda module, inputs, output: seen.append(output))
    train(training, Watcher())
    assert seen[0].dtype == torch.bfloat16
    assert training.method.encoder.weight.dtype == torch.float32


def test_the_first_interval_is_left_out_once_there_is_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(loop.time, "perf_counter", lambda: now)
    meter = RateMeter()
    assert meter.summary() is None
    now += 60.0
    meter.restart()  # what came before does not count
    for images, seconds in ((100, 10.0), (300, 1.0), (100, 1.0)):
        meter.count(images)
        now += seconds
        assert meter.lap() == pytest.approx(images / seconds)
    summary = meter.summary()
    assert (summary.mean, summary.std) == pytest.approx((200.0, 100.0))

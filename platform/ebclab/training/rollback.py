"""Acting on a run's health: the training loop with an observer around the run's own, the same on every rank."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from ebclab.errors import DivergedError
from ebclab.runs import checkpoint
from ebclab.runs.folder import RunFolder
from ebclab.training.health.policy import Decision, HealthRules, HealthState, give_up_or_go_back
from ebclab.training.health.record import HealthRecord
from ebclab.training.loop import Observer, Training, train
from ebclab.training.recorder import Recorder
from ebclab.training.restore import restore


def record_of(found: checkpoint.Checkpoint | None) -> HealthRecord:
    """Return what a checkpoint knows of its run's health; nothing when it is None or was made without a look at it."""
    plain = (found.state or {}).get("health") if found is not None else None
    return HealthRecord.of_plain(plain) if plain else HealthRecord()


class RollbackController:
    """Watches what a method with a sampler logs, and lowers the sampler's step, goes back or stops.

    Metrics are means over the ranks, so that all ranks decide the same; only files are rank 0's alone.

    Args:
        run: The run folder.
        training: This rank's training.
        record: What is known of the run's health.
        recorder: On rank 0 the run's recorder, else None.
        mode: ``act``, or ``watch`` to say what would be done.
        replayable: Batches of the past can be had again; else a run that goes back goes on with the images to come.
        rules: Thresholds.
    """

    def __init__(
        self,
        run: RunFolder,
        training: Training,
        record: HealthRecord,
        recorder: Recorder | None,
        mode: Literal["act", "watch"],
        *,
        replayable: bool = True,
        rules: HealthRules | None = None,
    ) -> None:
        self._run, self._training, self._recorder = run, training, recorder
        self._mode, self._replayable, self._rules = mode, replayable, rules or HealthRules()
        self.record = record
        if recorder is not None:
            recorder.health = record

    def begin(self) -> None:
        """Save a new run's first state, so that there is something healthy to go back to."""

        def save() -> None:
            if self._recorder is not None and checkpoint.latest_path(self._run.checkpoints) is None:
                self._recorder.save(0, "last")

        if self._mode == "act":
            self._training.ranks.together(save)

    def train(self, observer: Observer) -> bool:
        """Train as ``loop.train`` does with ``observer``, and go back where it would fail.

        Raises:
            DivergedError: Numbers stopped being finite, or energies went wrong, and nothing helped.
        """
        while True:
            try:
                return train(self._training, _Watching(self, observer))
            except DivergedError as error:
                if self._mode == "watch" or isinstance(error, _UnhealableError):
                    raise
                self.act(give_up_or_go_back(str(error), self._rules, self.record.state))

    def judge_epoch(self) -> bool:
        """Decide on the epoch that has ended and act; return whether the run is still where it was.

        Raises:
            DivergedError: The run cannot be healed.
        """
        record, rules = self.record, self._rules
        decision = record.close_epoch(rules)
        if decision.kind == "continue":
            record.state = record.state.after("continue", rules)
        elif self._mode == "watch":
            self._tell(decision, acted=False)
            record.state = HealthState(waiting=rules.cool_down_epochs)
        elif decision.kind == "lower_step":
            self._scale(rules.lower_factor)
            record.state = record.state.after("lower_step", rules)
            self._tell(decision, acted=True, step_scale=record.step_scale)
        else:
            self.act(decision)
            return False
        return True

    def act(self, decision: Decision) -> None:
        """Go back to the last healthy checkpoint, or stop.

        Rank 0 reads it for all: copies of the run on other machines are as old as the launch.

        Raises:
            DivergedError: The decision is to stop, or there is nothing to go back to.
        """
        found = self._training.ranks.of_first(self._run.load_healthy)
        if found is None or decision.kind == "stop":
            self._stop(decision, found)
        else:
            self._go_back(decision, found)

    def _stop(self, decision: Decision, found: checkpoint.Checkpoint | None) -> None:
        reason = decision.reason if found else f"{decision.reason}; there is no healthy checkpoint to go back to"
        self._tell(Decision("stop", reason, healthy=False), acted=True)
        if found is not None:
            self._on_rank_0(lambda recorder: recorder.forget_after(found.step))
        raise _UnhealableError(f"step {self._training.step}: {reason}")

    def _go_back(self, decision: Decision, found: checkpoint.Checkpoint) -> None:
        record, step, scale = self.record, self._training.step, self.record.step_scale
        to_step = found.step if self._replayable else step
        restore(self._training, found, to_step)
        record.go_back(record_of(found))
        record.state = record.state.after("roll_back", self._rules)
        self._scale(self._rules.roll_back_factor * scale / record.step_scale)
        event = record.tell(decision, step, acted=True, to_step=to_step, step_scale=record.step_scale)
        self._on_rank_0(lambda recorder: recorder.go_back(found, event))

    def _scale(self, factor: float) -> None:
        self.record.step_scale *= factor
        self._training.method.scale_step(factor)

    def _tell(self, decision: Decision, **consequences: Any) -> None:
        event = self.record.tell(decision, self._training.step, **consequences)
        if self._recorder is not None:
            self._recorder.write_health(event)

    def _on_rank_0(self, work: Callable[[Recorder], None]) -> None:
        recorder = self._recorder
        self._training.ranks.together(lambda: work(recorder) if recorder is not None else None)


class _UnhealableError(DivergedError):
    """Energies went wrong and stayed so."""


class _Watching:
    """The run's own observer, which sees no epoch from whose end the run went back."""

    def __init__(self, rollback: RollbackController, inner: Observer) -> None:
        self._rollback, self._inner = rollback, inner

    def on_log(self, step: int, epoch: int, metrics: dict[str, float]) -> None:
        """Remember one training record and pass it on."""
        self._rollback.record.add(metrics)
        self._inner.on_log(step, epoch, metrics)

    def on_epoch(self, step: int, epochs_done: int) -> None:
        """Decide on the epoch and pass it on."""
        if self._rollback.judge_epoch():
            self._inner.on_epoch(step, epochs_done)

    def on_stop(self, step: int) -> None:
        """Pass it on."""
        self._inner.on_stop(step)

    def should_stop(self) -> bool:
        """Pass it on."""
        return self._inner.should_stop()

"""Rollback: trains a run whose health is watched, and returns it to its last healthy checkpoint if it is unhealthy."""

from __future__ import annotations

from typing import Any, Literal

from ebclab.errors import DivergedError
from ebclab.runs import checkpoint
from ebclab.runs.folder import RunFolder
from ebclab.training.health.policy import (
    COOL_DOWN_EPOCHS,
    LOWER_FACTOR,
    ROLL_BACK_FACTOR,
    Decision,
    HealthRecord,
    HealthState,
    roll_back_or_stop,
)
from ebclab.training.loop import Observer, Training, train
from ebclab.training.recorder import Recorder, on_rank_0
from ebclab.training.restore import restore


class RollbackController:
    """Keeps the metrics of a run; with a sampler, lowers the sampler's step, goes back, or stops the run.

    Every rank has one. Metrics are means over the ranks, so all ranks decide the same; only rank 0 touches files.

    Args:
        training: This rank's training.
        record: The run's health so far; on rank 0 the recorder holds the same object.
        recorder: On rank 0 the run's recorder, else None.
        mode: ``act``, or ``watch`` to log what ``act`` would do; ``none`` for a method without a sampler, whose numbers
            are only kept.
        replayable: Earlier batches can be read again. If not, a run that goes back continues with later images.
    """

    def __init__(
        self,
        run: RunFolder,
        training: Training,
        record: HealthRecord,
        recorder: Recorder | None,
        mode: Literal["act", "watch", "none"],
        *,
        replayable: bool = True,
    ) -> None:
        self._run, self._training, self._recorder = run, training, recorder
        self._mode, self._replayable, self._record = mode, replayable, record

    def begin(self) -> None:
        """Save the first state of a new run, so that there is always a healthy checkpoint."""

        def save(recorder: Recorder) -> None:
            if checkpoint.latest_path(self._run.checkpoints) is None:
                recorder.save(0, "last")

        if self._mode == "act":
            on_rank_0(self._training, self._recorder, save)

    def train(self, observer: Observer) -> bool:
        """Train as ``loop.train`` does, and go back if numbers stop being finite; ``observer`` calls this object."""
        while True:
            try:
                return train(self._training, observer)
            except DivergedError as error:
                if self._mode != "act" or isinstance(error, _GaveUpError):
                    raise
                self._act(roll_back_or_stop(str(error), self._record.state))

    def add(self, metrics: dict[str, float]) -> None:
        """Add the metrics of one log step to the health record."""
        self._record.add(metrics)

    def end_epoch(self) -> bool:
        """Decide on the epoch that has ended and act; return False if the run has gone back to before its end."""
        record = self._record
        decision = record.close_epoch(decides=self._mode != "none")
        if decision.kind == "continue":
            record.state = record.state.after("continue")
        elif self._mode == "watch":
            self._write(decision, acted=False)
            record.state = HealthState(waiting=COOL_DOWN_EPOCHS)
        elif decision.kind == "lower_step":
            self._scale_step(LOWER_FACTOR)
            record.state = record.state.after("lower_step")
            self._write(decision, acted=True, step_scale=record.step_scale)
        else:
            self._act(decision)
            return False
        return True

    def _act(self, decision: Decision) -> None:
        """Go back to the newest healthy checkpoint, or stop.

        Rank 0 reads it for all ranks: copies of the run on other machines are as old as the launch.
        """
        healthy = self._training.ranks.of_first(self._run.load_healthy)
        if healthy is None or decision.kind == "stop":
            self._stop(decision, healthy)
        else:
            self._roll_back(decision, healthy)

    def _roll_back(self, decision: Decision, healthy: checkpoint.Checkpoint) -> None:
        """Return to ``healthy`` with a smaller step of the sampler, and drop what came after it."""
        training, record = self._training, self._record
        step = training.step
        to_step = healthy.step if self._replayable else step
        # 1. every rank: weights, memories, optimizer and generator
        healthy = restore(training, healthy, to_step, self._run.address)
        # 2. every rank: the record drops the measurements since, keeps the decisions; the sampler's step gets smaller
        scale = ROLL_BACK_FACTOR * record.step_scale
        record.forget_since(HealthRecord.of_state(healthy.state))
        record.state = record.state.after("roll_back")
        self._scale_step(scale / record.step_scale)
        event = record.add_event(decision, step, acted=True, to_step=to_step, step_scale=record.step_scale)

        # 3. rank 0: save a checkpoint from which training continues, then remove those and the records of undone steps
        # (after a kill in between, the next launch resumes from one of these and makes the same decision again)
        def undo(recorder: Recorder) -> None:
            recorder.return_to(healthy)
            recorder.write_health(event)
            recorder.save(to_step // training.data.num_batches, "last")
            recorder.forget_checkpoints_after(to_step)
            self._run.metrics.forget_after(to_step)

        on_rank_0(self._training, self._recorder, undo)

    def _stop(self, decision: Decision, healthy: checkpoint.Checkpoint | None) -> None:
        """Log why the run stops, keep ``healthy`` as its newest checkpoint, and raise."""
        reason = decision.reason if healthy else f"{decision.reason}; there is no healthy checkpoint to go back to"
        self._write(Decision("stop", reason, healthy=False), acted=True)
        if healthy is not None:
            on_rank_0(self._training, self._recorder, lambda recorder: recorder.forget_checkpoints_after(healthy.step))
        raise _GaveUpError(f"step {self._training.step}: {reason}")

    def _scale_step(self, factor: float) -> None:
        self._record.step_scale *= factor
        self._training.method.scale_step(factor)

    def _write(self, decision: Decision, **consequences: Any) -> None:
        event = self._record.add_event(decision, self._training.step, **consequences)
        if self._recorder is not None:
            self._recorder.write_health(event)


class _GaveUpError(DivergedError):
    """The run has stopped because going back did not help."""

"""What one of several ranks does between the steps: rank 0 records, all wait for it and stop at the same step."""

from __future__ import annotations

from ebclab.training.loop import Training, check_weights
from ebclab.training.recorder import Recorder


class RankObserver:
    """The loop's observer where several ranks train together.

    A wish to stop is heard at log steps only: asking rank 0 is an exchange between all ranks, too dear for each step.

    Args:
        training: This rank's training.
        recorder: On rank 0 the run's recorder, else None.
    """

    def __init__(self, training: Training, recorder: Recorder | None) -> None:
        self._training, self._recorder = training, recorder
        self._may_stop = False

    def on_log(self, step: int, epoch: int, metrics: dict[str, float]) -> None:
        """Write one training record on rank 0."""
        self._may_stop = True
        if self._recorder is not None:
            self._recorder.on_log(step, epoch, metrics)

    def on_epoch(self, step: int, epochs_done: int) -> None:
        """Score, record and save on rank 0 while the others wait."""

        def record() -> None:
            if self._recorder is None:
                check_weights(self._training.method, step)
            else:
                self._recorder.on_epoch(step, epochs_done)

        self._training.ranks.together(record)

    def on_stop(self, step: int) -> None:
        """Save on rank 0 while the others wait."""

        def save() -> None:
            if self._recorder is not None:
                self._recorder.on_stop(step)

        self._training.ranks.together(save)

    def should_stop(self) -> bool:
        """Return what rank 0 was asked, on every rank the same, at log steps; False at all others."""
        if not self._may_stop:
            return False
        self._may_stop = False
        asked = self._recorder is not None and self._recorder.should_stop()
        return any(self._training.ranks.gather(asked))

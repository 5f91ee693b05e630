"""What a rank does between the steps: rank 0 records, all wait for it and stop at the same step."""

from __future__ import annotations

from ebclab.training.loop import Training, check_weights
from ebclab.training.recorder import Recorder


class RankObserver:
    """The loop's observer.

    Several ranks hear a wish to stop at log steps only: asking rank 0 is an exchange between all, too dear for each
    step. One rank alone hears it after every step. A notice that a machine will be taken away is heard at log steps.

    Args:
        training: This rank's training.
        recorder: On rank 0 the run's recorder, else None.
    """

    def __init__(self, training: Training, recorder: Recorder | None) -> None:
        self._training, self._recorder = training, recorder
        self._has_logged = False

    def on_log(self, step: int, epoch: int, metrics: dict[str, float]) -> None:
        """Write one training record on rank 0."""
        self._has_logged = True
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
        """Return whether rank 0 was asked to stop, on every rank the same; save first when a machine is on notice.

        Raises:
            EbclabError: Rank 0 could not save.
        """
        ranks, recorder, has_logged = self._training.ranks, self._recorder, self._has_logged
        self._has_logged = False
        if not has_logged and not ranks.alone:
            return False
        asked = (False, False)
        if recorder is not None:
            asked = recorder.should_stop(), has_logged and recorder.is_on_notice
        stop, save = ranks.gather(asked)[0]
        if save:
            ranks.together(lambda: recorder.save_early() if recorder is not None else None)
        return stop

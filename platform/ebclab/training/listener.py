"""Listener: receives the progress of a run while it is trained."""

from __future__ import annotations


class Listener:
    """Receives the start, the numbers and the end of a run; this one ignores them.

    What a call reports is on disk already, so a listener may end the run in ``start`` or ``on_epoch`` by raising.
    """

    def start(self, step: int, num_steps: int, epochs: int) -> None:
        """Training begins at ``step`` of ``num_steps``."""

    def on_log(self, step: int, epoch: int, metrics: dict[str, float]) -> None:
        """Metrics of a training step were logged."""

    def on_epoch(self, step: int, epoch: int, metrics: dict[str, float]) -> None:
        """An epoch was scored and saved; ``metrics`` holds its scores and the newest metrics of training."""
        self.on_log(step, epoch, metrics)

    def note(self, text: str) -> None:
        """A message for the user."""

    def stop(self) -> None:
        """Nothing more follows, or a message from elsewhere does."""

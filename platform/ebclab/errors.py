"""Every error that ebclab raises on purpose, and the exit code each one means."""

from __future__ import annotations


class EbclabError(Exception):
    """Base of all errors of ebclab; its text is shown to the user without a traceback."""

    exit_code = 1


class UserError(EbclabError):
    """What the user asked for cannot be done as asked; the text says what to change."""

    exit_code = 2


class ConfigError(UserError):
    """Settings are wrong. Holds every problem found, one line each.

    Args:
        problems: Lines of the form ``<dotted key>: <what is wrong>, got <value>; <what to write>``.
    """

    def __init__(self, problems: list[str]) -> None:
        self.problems = problems
        super().__init__("\n".join(problems))

    def __reduce__(self) -> tuple[type[ConfigError], tuple[list[str]]]:
        """Return how another process makes this error again."""
        return type(self), (self.problems,)


class DataError(UserError):
    """A dataset is missing, damaged or does not fit."""


class RunError(UserError):
    """A run folder is missing, taken, damaged or cannot be written."""


class UnsavedError(RunError):
    """Something was measured and could not be written; nothing else is wrong with it.

    Args:
        text: What is shown to the user.
        result: What was measured.
    """

    def __init__(self, text: str, result: object) -> None:
        self.result = result
        super().__init__(text)

    def __reduce__(self) -> tuple[type[UnsavedError], tuple[str, object]]:
        """Return how another process makes this error again."""
        return type(self), (str(self), self.result)


class StoreError(RunError):
    """An object store refuses, or has not answered for long."""


class LostLeaseError(StoreError):
    """Another process has taken over a folder in a store that this one held, or somebody deleted it."""


class CallbackError(UserError):
    """The user's own code failed during training; the text names the callback."""


class MetadataError(EbclabError):
    """A cloud's metadata service does not answer, or not as its documentation says."""


class UnreachableError(UserError):
    """Nobody answers where the user says a cluster is, or nobody any more."""


class VersionError(UserError):
    """A node of the cluster runs other versions than the process that gives the orders."""


class TrainingError(EbclabError):
    """The work itself failed; the text names the last good checkpoint."""


class DivergedError(TrainingError):
    """Numbers stopped being finite."""


class UnmeasuredError(EbclabError):
    """A finished run lacks what was to be measured of it."""


class ExportError(EbclabError):
    """An exported file does not do what the encoder does; it was not kept."""


class InterruptedRunError(EbclabError):
    """The user (or the machine's scheduler) asked to stop; the text says what was saved and how to go on."""

    exit_code = 130

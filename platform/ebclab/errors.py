"""Every error that ebclab raises on purpose, with its exit code."""

from __future__ import annotations


class EbclabError(Exception):
    """Base of all errors of ebclab; its text is shown to the user without a traceback."""

    exit_code = 1


class UserError(EbclabError):
    """The user's request cannot be carried out as given; the text says what to change."""

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
        """Return how pickle rebuilds this error in another process."""
        return type(self), (self.problems,)


class DataError(UserError):
    """A dataset is missing, damaged or does not fit."""


class RunError(UserError):
    """A run folder is missing, in use, damaged or cannot be written."""


class UnsavedError(RunError):
    """A result was measured successfully but could not be written.

    Args:
        text: Message for the user.
        result: The measured result.
    """

    def __init__(self, text: str, result: object) -> None:
        self.result = result
        super().__init__(text)

    def __reduce__(self) -> tuple[type[UnsavedError], tuple[str, object]]:
        """Return how pickle rebuilds this error in another process."""
        return type(self), (str(self), self.result)


class StoreError(RunError):
    """An object store refuses a request, or has not answered for a long time."""


class LostLeaseError(StoreError):
    """Another process has taken over a folder in a store that this one held, or somebody deleted it."""


class CallbackError(UserError):
    """The user's own code failed during training; the text names the callback."""


class MetadataError(EbclabError):
    """A cloud's metadata service does not answer, or not in the documented form."""


class UnreachableError(UserError):
    """No cluster answers at the given address, or not any more."""


class VersionError(UserError):
    """A node of the cluster has other versions than the process that launched the work."""


class TrainingError(EbclabError):
    """The work itself failed; the text names the last good checkpoint."""


class DivergedError(TrainingError):
    """Numbers stopped being finite."""


class UnmeasuredError(EbclabError):
    """A finished run lacks a number that was to be measured on it."""


class ExportError(EbclabError):
    """An exported file does not compute what the encoder computes; it was deleted."""


class InterruptedRunError(EbclabError):
    """The user (or the machine's scheduler) asked to stop; the text says what was saved and how to continue."""

    exit_code = 130

"""All exceptions that ebclab raises deliberately, with their exit codes."""

from __future__ import annotations


class EbclabError(Exception):
    """Base class of all errors of ebclab; its text is shown to the user without a traceback."""

    exit_code = 1


class UserError(EbclabError):
    """The user's request cannot be carried out as given; the text says what to change."""

    exit_code = 2


class ConfigError(UserError):
    """Settings are invalid. Contains every problem found, one line each.

    Args:
        problems: Lines of the form ``<dotted key>: <what is wrong>, got <value>; <what to write>``, or one of them.
    """

    def __init__(self, problems: str | list[str]) -> None:
        lines = [problems] if isinstance(problems, str) else problems
        self.problems = [problem.replace("\n", "\\n") for problem in lines]
        super().__init__("\n".join(self.problems))

    def __reduce__(self) -> tuple[type[ConfigError], tuple[list[str]]]:
        """Return how pickle rebuilds this error in another process."""
        return type(self), (self.problems,)


class DataError(UserError):
    """A dataset is missing, damaged or unsuitable."""


class NoTestPartError(DataError):
    """The files of a dataset have no part for tests."""


class MixedSizesError(DataError):
    """Image files of a dataset have several sizes, and nothing says to which they are scaled."""


class RunError(UserError):
    """A run folder is missing, in use, damaged or cannot be written."""


class UnsavedError(RunError):
    """A result was measured successfully but could not be written."""

    def __init__(self, text: str, result: object) -> None:
        self.result = result
        super().__init__(text)

    def __reduce__(self) -> tuple[type[UnsavedError], tuple[str, object]]:
        """Return how pickle rebuilds this error in another process."""
        return type(self), (str(self), self.result)


class StoreError(RunError):
    """An object store refuses a request, or does not respond before the timeout."""


class LostLeaseError(StoreError):
    """A folder in a store that this process held was taken over by another process, or deleted."""


class CallbackError(UserError):
    """The user's own code failed during training; the text names the callback."""


class MethodError(UserError):
    """A method of the user's own failed; the text says in which line, if that is in the method's code."""


class MetadataError(EbclabError):
    """A cloud's metadata service does not respond, or not in the documented format."""


class UnreachableError(UserError):
    """No cluster responds at the given address, or it no longer does."""


class VersionError(UserError):
    """A node of the cluster has other versions than the process that launched the work."""


class TrainingError(EbclabError):
    """The work itself failed; the text names the last good checkpoint."""


class DivergedError(TrainingError):
    """Training diverged or an encoder returned NaN or infinity."""


class UnmeasuredError(EbclabError):
    """A finished run lacks a metric that was requested."""


class ExportError(EbclabError):
    """The output of an exported file differs from that of the encoder; the file was deleted."""


class InterruptedRunError(EbclabError):
    """The user (or the machine's scheduler) requested a stop; the text says what was saved, if anything."""

    exit_code = 130

    def __init__(self, text: str = "stopped before it was done") -> None:
        super().__init__(text)

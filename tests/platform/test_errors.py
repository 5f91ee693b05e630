"""Every error on purpose has the exit code that shells and schedulers know."""

import pickle
import signal

import pytest

from ebclab import errors
from ebclab.errors import ConfigError, EbclabError, UnsavedError, UserError

WORK_FAILED, WRONG_INPUT = 1, 2
CODES = {
    **dict.fromkeys(("EbclabError", "MetadataError", "TrainingError", "DivergedError"), WORK_FAILED),
    **dict.fromkeys(("UnmeasuredError", "ExportError"), WORK_FAILED),
    **dict.fromkeys(("UserError", "ConfigError", "DataError", "RunError", "CallbackError"), WRONG_INPUT),
    **dict.fromkeys(("MethodError", "StoreError"), WRONG_INPUT),
    **dict.fromkeys(("LostLeaseError", "UnsavedError", "UnreachableError", "VersionError"), WRONG_INPUT),
    **dict.fromkeys(("MixedSizesError", "NoTestPartError"), WRONG_INPUT),
    "InterruptedRunError": 128 + signal.SIGINT,  # as a shell reports a command that Ctrl-C has ended
}


def test_every_error_has_the_exit_code_of_its_kind() -> None:
    assert {name: kind.exit_code for name, kind in vars(errors).items() if isinstance(kind, type)} == CODES


@pytest.mark.parametrize(
    "error", [ConfigError(["a: wrong", "b: wrong"]), UnsavedError("not written", {"score": 1}), UserError("wrong")]
)
def test_an_error_is_the_same_in_another_process(error: EbclabError) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert (str(again), vars(again)) == (str(error), vars(error))

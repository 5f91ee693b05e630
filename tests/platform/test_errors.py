"""Every error on purpose has the exit code that shells and schedulers know."""

from __future__ import annotations

import pickle
import signal

import pytest

from ebclab import errors
from ebclab.errors import ConfigError, EbclabError, UnsavedError, UserError

WORK_FAILED, WRONG_INPUT = 1, 2
CODES = {
    "EbclabError": WORK_FAILED,
    "MetadataError": WORK_FAILED,
    "TrainingError": WORK_FAILED,
    "DivergedError": WORK_FAILED,
    "UnmeasuredError": WORK_FAILED,
    "ExportError": WORK_FAILED,
    "UserError": WRONG_INPUT,
    "ConfigError": WRONG_INPUT,
    "DataError": WRONG_INPUT,
    "RunError": WRONG_INPUT,
    "CallbackError": WRONG_INPUT,
    "StoreError": WRONG_INPUT,
    "LostLeaseError": WRONG_INPUT,
    "UnsavedError": WRONG_INPUT,
    "UnreachableError": WRONG_INPUT,
    "VersionError": WRONG_INPUT,
    "InterruptedRunError": 128 + signal.SIGINT,  # as a shell reports a command that Ctrl-C has ended
}


@pytest.mark.parametrize(("name", "code"), CODES.items())
def test_every_error_has_the_exit_code_of_its_kind(name: str, code: int) -> None:
    assert getattr(errors, name).exit_code == code


def test_no_error_is_left_out() -> None:
    assert set(CODES) == {name for name, kind in vars(errors).items() if isinstance(kind, type)}


@pytest.mark.parametrize(
    "error", [ConfigError(["a: wrong", "b: wrong"]), UnsavedError("not written", {"score": 1}), UserError("wrong")]
)
def test_an_error_is_the_same_in_another_process(error: EbclabError) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert (str(again), vars(again)) == (str(error), vars(error))
